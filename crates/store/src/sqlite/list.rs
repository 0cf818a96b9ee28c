//! Lists of notifications: by walking over batches, and by the index of recipients.
//!
//! A page goes by places, which are ordered alike in batches, in runs and in what is not indexed yet. So a list is complete while
//! the index moves on between two of its pages: what was not indexed for one page is for the next, and stands at the same place.

use std::ops::Range;

use notification::{BatchId, ByteString, Name, NotificationId, Timestamp};
use rusqlite::{OptionalExtension, params};

use super::read::{ACCEPTED, Snapshot};
use super::rows::signed;
use crate::rows::codec::Items;
use crate::rows::codes::LaneId;
use crate::rows::members::Members;
use crate::rows::search::lookup::Lookup;
use crate::{Filter, History, ListOrder, Page, StoreError};

/// A page while it is made.
struct Listing<'a> {
    snapshot: &'a Snapshot,
    filter: &'a Filter,
    items_max: usize,
    page: Page<History>,
}

/// A batch that may have members of a list.
struct ListedBatch {
    id: BatchId,
    lane: LaneId,
    count: usize,
}

/// A place: batch and index.
type ListPlace = (BatchId, u16);

/// Batches read whole for one page of a list.
const PAGE_BATCHES: usize = 64;
/// Batches of which the recipients alone are read for one page, and about how many of these. With an index that has nothing to
/// do, all that is not in it yet is less.
const PAGE_RECIPIENT_BATCHES: usize = 1_024;
const PAGE_RECIPIENTS: usize = 65_536;
/// Numbers of batches looked at for one page: those that do not match cost no more than this.
const PAGE_BATCHES_PASSED: u64 = 4_096;
/// Notifications found in the index that are read for one page.
const PAGE_CANDIDATES: usize = 256;
/// All numbers that a batch may have.
const ALL: Range<u64> = 0..1 << 46;

// === impl Snapshot ===

impl Snapshot {
    pub(super) fn list(
        &self,
        filter: &Filter,
        after: Option<NotificationId>,
        items: usize,
    ) -> Result<Page<History>, StoreError> {
        let page = Page { items: Vec::new(), next: None };
        let mut listing = Listing { snapshot: self, filter, items_max: items, page };
        let after = after.map(|id| (id.batch(), id.index()));
        let is_at_end = match (&filter.tenant, &filter.recipient) {
            (Some(tenant), Some(recipient)) => listing.search(tenant, recipient, after)?,
            _ => listing.walk(ALL, after)?,
        };
        if is_at_end {
            listing.page.next = None;
        }
        Ok(listing.page)
    }

    /// The batch `id`, if it is there and accepted.
    fn accepted_batch(&self, id: BatchId) -> Result<Option<ListedBatch>, StoreError> {
        let sql = format!("SELECT lane, count FROM batch WHERE id = ?1 AND {ACCEPTED}");
        let mut select = self.connection.prepare_cached(&sql)?;
        let batch = select.query_row([id.0.cast_signed()], |row| {
            Ok(ListedBatch { id, lane: row.get(0)?, count: usize::from(row.get::<_, u16>(1)?) })
        });
        Ok(batch.optional()?)
    }

    /// Batches with these numbers that may match `filter`, at most `batches_max`, in its order.
    fn batches_in(
        &self,
        filter: &Filter,
        numbers: &Range<u64>,
        batches_max: usize,
    ) -> Result<Vec<ListedBatch>, StoreError> {
        let sql = match filter.order {
            ListOrder::OldestFirst => format!(
                "SELECT batch.id, lane, count FROM batch JOIN tenant_lane AS lane ON lane.id = batch.lane \
                 WHERE batch.id >= ?1 AND batch.id < ?6 AND {ACCEPTED} AND (?2 IS NULL OR batch.tenant = ?2) \
                 AND (?3 IS NULL OR channel = ?3) AND (?4 IS NULL OR broadcast = ?4) \
                 ORDER BY batch.id LIMIT ?5"
            ),
            ListOrder::NewestFirst => format!(
                "SELECT batch.id, lane, count FROM batch JOIN tenant_lane AS lane ON lane.id = batch.lane \
                 WHERE batch.id >= ?1 AND batch.id < ?6 AND {ACCEPTED} AND (?2 IS NULL OR batch.tenant = ?2) \
                 AND (?3 IS NULL OR channel = ?3) AND (?4 IS NULL OR broadcast = ?4) \
                 ORDER BY batch.id DESC LIMIT ?5"
            ),
        };
        let mut select = self.connection.prepare_cached(&sql)?;
        let parameters = params![
            numbers.start.cast_signed(),
            filter.tenant.as_ref().map(Name::as_str),
            filter.channel.as_ref().map(Name::as_str),
            filter.broadcast.map(|id| id.0.cast_signed()),
            signed(batches_max),
            numbers.end.cast_signed(),
        ];
        let rows = select.query_map(parameters, |row| {
            let id = BatchId(row.get::<_, i64>(0)?.cast_unsigned());
            let (lane, count) = (row.get(1)?, usize::from(row.get::<_, u16>(2)?));
            Ok(ListedBatch { id, lane, count })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// The first number of a batch among `numbers` in `order`.
    fn next_number(
        &self,
        numbers: &Range<u64>,
        order: ListOrder,
    ) -> Result<Option<u64>, StoreError> {
        let sql = match order {
            ListOrder::OldestFirst => "SELECT min(id) FROM batch WHERE id >= ?1 AND id < ?2",
            ListOrder::NewestFirst => "SELECT max(id) FROM batch WHERE id >= ?1 AND id < ?2",
        };
        let mut select = self.connection.prepare_cached(sql)?;
        let parameters = params![numbers.start.cast_signed(), numbers.end.cast_signed()];
        let number: Option<i64> = select.query_row(parameters, |row| row.get(0))?;
        Ok(number.map(i64::cast_unsigned))
    }

    /// The members of a batch that are for the recipient of `filter`.
    fn members_to(&self, batch: &ListedBatch, filter: &Filter) -> Result<Members, StoreError> {
        let mut select = self.connection.prepare_cached("SELECT items FROM batch WHERE id = ?1")?;
        let items: Vec<u8> = select.query_row([batch.id.0.cast_signed()], |row| row.get(0))?;
        let (mut items, mut members) = (Items::new(items.into())?, Members::default());
        for index in (0..=u16::MAX).take(batch.count) {
            let (own, others) = items.read_recipients()?;
            if filter.has_recipient(&own, &others) {
                members.insert(index);
            }
        }
        Ok(members)
    }
}

// === impl Listing ===

impl Listing<'_> {
    /// Finds what is indexed, and walks over what is not; true at the end of the list.
    fn search(
        &mut self,
        tenant: &Name,
        recipient: &ByteString,
        after: Option<ListPlace>,
    ) -> Result<bool, StoreError> {
        let Some(key) = self.snapshot.term_key()? else { return self.walk(ALL, after) };
        let cursor = self.snapshot.search_cursor()?;
        let order = self.filter.order;
        let term = key.recipient(tenant.as_str(), recipient);
        let lookup = Lookup { term, order, after, places_max: PAGE_CANDIDATES };
        let rest = cursor.0 + 1..ALL.end;
        match order {
            ListOrder::OldestFirst => {
                if !self.look_up(&lookup)? {
                    return Ok(false);
                }
                self.walk(rest, after)
            }
            ListOrder::NewestFirst => {
                if !self.walk(rest, after)? {
                    return Ok(false);
                }
                self.look_up(&lookup)
            }
        }
    }

    /// Adds what the index has; true if that is all.
    fn look_up(&mut self, lookup: &Lookup) -> Result<bool, StoreError> {
        let runs = self.snapshot.complete_runs()?;
        let found = lookup.find(self.snapshot, &runs)?;
        for places in found.places.chunk_by(|one, other| one.0 == other.0) {
            let Some(&(id, last)) = places.last() else { continue };
            // A batch that is gone, or not accepted, has nothing to show.
            if let Some(batch) = self.snapshot.accepted_batch(id)? {
                let indexes = places.iter().map(|(_, index)| *index);
                let wanted = indexes.filter(|index| usize::from(*index) < batch.count).collect();
                if !self.add(&batch, &wanted)? {
                    return Ok(false);
                }
            }
            self.pass((id, last));
        }
        Ok(!found.has_more)
    }

    /// Walks over the batches with these `numbers`; true at the end of them.
    fn walk(&mut self, numbers: Range<u64>, after: Option<ListPlace>) -> Result<bool, StoreError> {
        let numbers = self.behind(numbers, after);
        let Some(stretch) = self.stretch(&numbers)? else { return Ok(true) };
        let has_recipient = self.filter.recipient.is_some();
        let batches_max = if has_recipient { PAGE_RECIPIENT_BATCHES } else { PAGE_BATCHES };
        let batches = self.snapshot.batches_in(self.filter, &stretch, batches_max)?;
        let (looked_at_all, mut recipients) = (batches.len() < batches_max, 0);
        for batch in batches {
            let mut wanted = self.members_behind(&batch, after);
            if has_recipient {
                if recipients >= PAGE_RECIPIENTS {
                    return Ok(false);
                }
                recipients += batch.count;
                let of_recipient = self.snapshot.members_to(&batch, self.filter)?;
                wanted = wanted.iter().filter(|index| of_recipient.contains(*index)).collect();
            }
            if !self.add(&batch, &wanted)? {
                return Ok(false);
            }
            // Even when none of it was left to look at: the next page begins behind it.
            self.pass_all(&batch);
        }
        if !looked_at_all {
            return Ok(false);
        }
        // Fewer than a page may have were found in this stretch: the next page begins behind it.
        let (rest, end) = match self.filter.order {
            ListOrder::OldestFirst => (stretch.end..numbers.end, (stretch.end - 1, u16::MAX)),
            ListOrder::NewestFirst => (numbers.start..stretch.start, (stretch.start, 0)),
        };
        self.pass((BatchId(end.0), end.1));
        Ok(self.snapshot.next_number(&rest, self.filter.order)?.is_none())
    }

    /// The first part of `numbers` in which there is a batch, as long as one page may walk.
    fn stretch(&self, numbers: &Range<u64>) -> Result<Option<Range<u64>>, StoreError> {
        let order = self.filter.order;
        let next = self.snapshot.next_number(numbers, order)?;
        Ok(next.map(|next| match order {
            ListOrder::OldestFirst => next..numbers.end.min(next + PAGE_BATCHES_PASSED),
            ListOrder::NewestFirst => {
                numbers.start.max((next + 1).saturating_sub(PAGE_BATCHES_PASSED))..next + 1
            }
        }))
    }

    /// The part of `numbers` that is not before `after`. Its batch is in it: some members may come behind.
    fn behind(&self, numbers: Range<u64>, after: Option<ListPlace>) -> Range<u64> {
        let Some((BatchId(batch), _)) = after else { return numbers };
        match self.filter.order {
            ListOrder::OldestFirst => numbers.start.max(batch)..numbers.end,
            ListOrder::NewestFirst => numbers.start..numbers.end.min(batch + 1),
        }
    }

    /// The members of a batch that are behind `after`.
    fn members_behind(&self, batch: &ListedBatch, after: Option<ListPlace>) -> Members {
        let all = Members::all(batch.count);
        match after {
            Some((id, place)) if id == batch.id => {
                let is_behind = |index: &u16| match self.filter.order {
                    ListOrder::OldestFirst => *index > place,
                    ListOrder::NewestFirst => *index < place,
                };
                all.iter().filter(is_behind).collect()
            }
            _ => all,
        }
    }

    /// Adds those of the `wanted` members that match; false if there was no room for all of them.
    fn add(&mut self, batch: &ListedBatch, wanted: &Members) -> Result<bool, StoreError> {
        if wanted.is_empty() {
            return Ok(true);
        }
        let batch_history = self.snapshot.batch_history(batch.id, batch.lane)?;
        let mut histories = batch_history.histories(self.snapshot.store_id, wanted)?;
        if self.filter.order == ListOrder::NewestFirst {
            histories.reverse();
        }
        for history in histories {
            // Before the place moves on: the history for which there is no room is the first of the next page.
            if self.page.items.len() == self.items_max {
                return Ok(false);
            }
            // Also past those that do not match, so that no page looks at them again.
            self.page.next = Some(history.id);
            if self.filter.matches(&history) {
                self.page.items.push(self.snapshot.linked(history)?);
            }
        }
        Ok(true)
    }

    /// Has the next page begin behind all members of a batch.
    fn pass_all(&mut self, batch: &ListedBatch) {
        let last = match self.filter.order {
            ListOrder::OldestFirst => batch.count.saturating_sub(1),
            ListOrder::NewestFirst => 0,
        };
        self.pass((batch.id, u16::try_from(last).unwrap_or(u16::MAX)));
    }

    /// Has the next page begin behind a place.
    fn pass(&mut self, (batch, index): ListPlace) {
        if self.page.next.is_none_or(|id| (id.batch(), id.index()) != (batch, index)) {
            // A list goes by the batch and the index of a place alone, so it need not be the id of a notification.
            let (epoch, store_id) = (Timestamp::from_millis(0), self.snapshot.store_id);
            self.page.next = Some(NotificationId::new(epoch, store_id, batch, index));
        }
    }
}
