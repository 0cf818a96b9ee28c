//! Lists of notifications, by walking over batches in either direction. There is no index of recipients here yet (decision 0053):
//! a page of a list with a recipient reads the recipients of a bounded number of batches, and no more of those without any.

use std::ops::Range;

use notification::{BatchId, Name, NotificationId, Timestamp};
use tokio_postgres::Row;

use super::columns::signed;
use super::read::{Parameters, Snapshot, unsigned};
use crate::rows::codec::Items;
use crate::rows::members::Members;
use crate::{Filter, History, ListOrder, Page, StoreError};

/// Batches looked into for one page of a list.
const PAGE_BATCHES: usize = 64;
/// Batch numbers looked at for one page: those that do not match cost no more than this.
const PAGE_BATCHES_PASSED: u64 = 4096;
/// All numbers that a batch may have.
const ALL: Range<u64> = 0..1 << 46;

// === impl Snapshot ===

impl Snapshot<'_> {
    pub(super) async fn list(
        &self,
        filter: &Filter,
        after: Option<NotificationId>,
        items: usize,
    ) -> Result<Page<History>, StoreError> {
        let mut page = Page { items: Vec::new(), next: None };
        let numbers = behind(after, filter.order);
        let Some(stretch) = self.stretch(&numbers, filter.order).await? else { return Ok(page) };
        let batches = self.batches_in(filter, &stretch).await?;
        let looked_at_all = batches.len() < PAGE_BATCHES;
        for (batch, count) in batches {
            let wanted = self.wanted(filter, (batch, count), after).await?;
            if !wanted.is_empty()
                && let Some(batch_history) = self.batch_history(batch).await?
            {
                let mut histories = batch_history.histories(self.store_id, &wanted)?;
                if filter.order == ListOrder::NewestFirst {
                    histories.reverse();
                }
                for history in histories {
                    // Before the place moves on: the history for which there is no room is the first of the next page.
                    if page.items.len() == items {
                        return Ok(page);
                    }
                    // Also past those that do not match, so that no page looks at them again.
                    page.next = Some(history.id);
                    if filter.matches(&history) {
                        page.items.push(self.linked(history).await?);
                    }
                }
            }
            // Even when none of it was left to look at: the next page begins behind it.
            let last = match filter.order {
                ListOrder::OldestFirst => count.saturating_sub(1),
                ListOrder::NewestFirst => 0,
            };
            page.next = Some(self.place(batch, u16::try_from(last).unwrap_or(u16::MAX)));
        }
        // Fewer batches than a page may have: all numbers of the stretch were looked at, and the next page begins behind them
        // even if none matched.
        if looked_at_all {
            let (rest, place) = match filter.order {
                ListOrder::OldestFirst => {
                    let last = self.place(BatchId(stretch.end - 1), u16::MAX);
                    (stretch.end..numbers.end, last)
                }
                ListOrder::NewestFirst => {
                    (numbers.start..stretch.start, self.place(BatchId(stretch.start), 0))
                }
            };
            let has_more = self.next_number(&rest, filter.order).await?.is_some();
            page.next = has_more.then_some(place);
        }
        Ok(page)
    }

    /// The members of a batch that are behind `after`, and for the recipient if there is one.
    async fn wanted(
        &self,
        filter: &Filter,
        (batch, count): (BatchId, usize),
        after: Option<NotificationId>,
    ) -> Result<Members, StoreError> {
        let all = match &filter.recipient {
            Some(_) => self.members_to(batch, filter).await?,
            None => Members::all(count),
        };
        let is_behind = |index: &u16| match after {
            Some(id) if id.batch() == batch => match filter.order {
                ListOrder::OldestFirst => *index > id.index(),
                ListOrder::NewestFirst => *index < id.index(),
            },
            _ => true,
        };
        Ok(all.iter().filter(is_behind).collect())
    }

    /// The members of a batch that are for the recipient of `filter`.
    async fn members_to(&self, batch: BatchId, filter: &Filter) -> Result<Members, StoreError> {
        let select = "SELECT items, count FROM batch WHERE id = $1";
        let row = self.transaction.query_one(select, &[&batch.0.cast_signed()]).await?;
        let (items, count): (Vec<u8>, i32) = (row.try_get(0)?, row.try_get(1)?);
        let (mut items, mut members) = (Items::new(items.into())?, Members::default());
        for index in (0..=u16::MAX).take(usize::try_from(count).unwrap_or(0)) {
            let (own, others) = items.read_recipients()?;
            if filter.has_recipient(&own, &others) {
                members.insert(index);
            }
        }
        Ok(members)
    }

    /// Batches with these numbers that may match `filter`, in its order, and the number of members of each.
    async fn batches_in(
        &self,
        filter: &Filter,
        numbers: &Range<u64>,
    ) -> Result<Vec<(BatchId, usize)>, StoreError> {
        let select = match filter.order {
            ListOrder::OldestFirst => {
                "SELECT batch.id, count FROM batch JOIN tenant_lane AS lane ON lane.id = batch.lane \
                 LEFT JOIN broadcast ON broadcast.id = batch.broadcast \
                 WHERE batch.id >= $1 AND batch.id < $2 AND (batch.broadcast IS NULL OR sealed_at IS NOT NULL) \
                 AND ($3::text IS NULL OR batch.tenant = $3) AND ($4::text IS NULL OR lane.channel = $4) \
                 AND ($5::int8 IS NULL OR batch.broadcast = $5) ORDER BY batch.id LIMIT $6"
            }
            ListOrder::NewestFirst => {
                "SELECT batch.id, count FROM batch JOIN tenant_lane AS lane ON lane.id = batch.lane \
                 LEFT JOIN broadcast ON broadcast.id = batch.broadcast \
                 WHERE batch.id >= $1 AND batch.id < $2 AND (batch.broadcast IS NULL OR sealed_at IS NOT NULL) \
                 AND ($3::text IS NULL OR batch.tenant = $3) AND ($4::text IS NULL OR lane.channel = $4) \
                 AND ($5::int8 IS NULL OR batch.broadcast = $5) ORDER BY batch.id DESC LIMIT $6"
            }
        };
        let parameters: Parameters<'_> = &[
            &numbers.start.cast_signed(),
            &numbers.end.cast_signed(),
            &filter.tenant.as_ref().map(Name::as_str),
            &filter.channel.as_ref().map(Name::as_str),
            &filter.broadcast.map(|id| id.0.cast_signed()),
            &signed(PAGE_BATCHES),
        ];
        let rows = self.transaction.query(select, parameters).await?;
        let count =
            |row: &Row| row.try_get::<_, i32>(1).map(|count| usize::try_from(count).unwrap_or(0));
        rows.iter().map(|row| Ok((BatchId(unsigned(row, 0)?), count(row)?))).collect()
    }

    /// The first part of `numbers` in which there is a batch, as long as one page may walk.
    async fn stretch(
        &self,
        numbers: &Range<u64>,
        order: ListOrder,
    ) -> Result<Option<Range<u64>>, StoreError> {
        let next = self.next_number(numbers, order).await?;
        Ok(next.map(|next| match order {
            ListOrder::OldestFirst => next..numbers.end.min(next + PAGE_BATCHES_PASSED),
            ListOrder::NewestFirst => {
                numbers.start.max((next + 1).saturating_sub(PAGE_BATCHES_PASSED))..next + 1
            }
        }))
    }

    /// The first number of a batch among `numbers` in `order`.
    async fn next_number(
        &self,
        numbers: &Range<u64>,
        order: ListOrder,
    ) -> Result<Option<u64>, StoreError> {
        let select = match order {
            ListOrder::OldestFirst => "SELECT min(id) FROM batch WHERE id >= $1 AND id < $2",
            ListOrder::NewestFirst => "SELECT max(id) FROM batch WHERE id >= $1 AND id < $2",
        };
        let parameters: Parameters<'_> =
            &[&numbers.start.cast_signed(), &numbers.end.cast_signed()];
        let number: Option<i64> =
            self.transaction.query_one(select, parameters).await?.try_get(0)?;
        Ok(number.map(i64::cast_unsigned))
    }

    /// A place in a list, which goes by the batch and the index alone: it need not be the id of a notification.
    fn place(&self, batch: BatchId, index: u16) -> NotificationId {
        NotificationId::new(Timestamp::from_millis(0), self.store_id, batch, index)
    }
}

/// The numbers that are not before `after`. Its batch is among them: some of its members may come behind.
fn behind(after: Option<NotificationId>, order: ListOrder) -> Range<u64> {
    match (after.map(|id| id.batch().0), order) {
        (None, _) => ALL,
        (Some(batch), ListOrder::OldestFirst) => batch..ALL.end,
        (Some(batch), ListOrder::NewestFirst) => ALL.start..batch + 1,
    }
}
