//! The list of a tenant's broadcasts: filter, items and pages.

use notification::{BroadcastId, ByteString, Guarantee, Labels, Name, Priority, Timestamp};

use crate::{ListOrder, StoreError};

/// A filter of one tenant's broadcasts, and the order in which they are listed. A field that is not set matches all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BroadcastFilter {
    /// Tenant that owns the broadcasts.
    pub tenant: Name,
    /// Channel of the broadcasts.
    pub channel: Option<Name>,
    /// Sealed at this instant or later.
    pub since: Option<Timestamp>,
    /// Sealed before this instant.
    pub until: Option<Timestamp>,
    /// External id of the broadcasts, byte for byte.
    pub external_id: Option<ByteString>,
    /// A tag of the broadcasts, byte for byte.
    pub tag: Option<ByteString>,
    /// The order, by number.
    pub order: ListOrder,
}

/// A broadcast in a list. Where its notifications stand is told by [`ReadStore::broadcast`](crate::ReadStore::broadcast), which
/// walks over them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedBroadcast {
    /// Its number.
    pub id: BroadcastId,
    /// The channel.
    pub channel: Name,
    /// Priority of its notifications.
    pub priority: Priority,
    /// Guarantee of its notifications.
    pub guarantee: Guarantee,
    /// Time at which it was sealed.
    pub accepted_at: Timestamp,
    /// Due time.
    pub due_at: Timestamp,
    /// Expiry of its pending notifications.
    pub expires_at: Option<Timestamp>,
    /// Number of notifications that it was sealed with.
    pub accepted: u64,
    /// Its labels.
    pub labels: Labels,
}

/// Some of a list of broadcasts, and where it goes on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BroadcastPage {
    /// Items in the order of the filter. May be few, or none, although more follow: a call reads a bounded number of rows.
    pub items: Vec<ListedBroadcast>,
    /// Pass this to go on; `None` at the end.
    pub next: Option<BroadcastId>,
}

/// Broadcasts looked at for one page: those that do not match cost no more than this.
const PAGE_BROADCASTS: usize = 1_000;

// === impl BroadcastFilter ===

impl BroadcastFilter {
    /// All broadcasts of `tenant`, the oldest one first.
    pub fn of(tenant: Name) -> Self {
        Self {
            tenant,
            channel: None,
            since: None,
            until: None,
            external_id: None,
            tag: None,
            order: ListOrder::default(),
        }
    }

    /// True if labels decide what matches.
    pub(crate) fn has_labels(&self) -> bool {
        self.external_id.is_some() || self.tag.is_some()
    }

    /// True if a broadcast of the tenant matches the filter.
    fn matches(&self, broadcast: &ListedBroadcast) -> bool {
        let Self { channel, since, until, external_id, tag, .. } = self;
        channel.as_ref().is_none_or(|channel| channel == &broadcast.channel)
            && since.is_none_or(|since| broadcast.accepted_at >= since)
            && until.is_none_or(|until| broadcast.accepted_at < until)
            && broadcast.labels.have(external_id.as_ref(), tag.as_ref())
    }

    /// The numbers between which the broadcasts behind `after` lie: neither is one of theirs.
    pub(crate) fn numbers_behind(&self, after: Option<BroadcastId>) -> (i64, i64) {
        // A caller may name a number that no store has drawn.
        let after = after.map(|id| i64::try_from(id.0).unwrap_or(i64::MAX));
        match self.order {
            ListOrder::OldestFirst => (after.unwrap_or(0), i64::MAX),
            ListOrder::NewestFirst => (0, after.unwrap_or(i64::MAX)),
        }
    }

    /// Rows of the tenant that a page of `items` reads. The last one only tells that the list goes on behind the others.
    pub(crate) fn rows_max(&self, items: usize) -> usize {
        let Self { channel, since, until, .. } = self;
        let matches_all =
            channel.is_none() && since.is_none() && until.is_none() && !self.has_labels();
        1 + if matches_all { items.min(PAGE_BROADCASTS) } else { PAGE_BROADCASTS }
    }
}

// === impl BroadcastPage ===

impl BroadcastPage {
    /// The page of at most `items` that begins with the first of `rows`: those of the tenant, in the order of `filter`, as many as
    /// it says.
    pub(crate) fn of(
        filter: &BroadcastFilter,
        items: usize,
        rows: impl IntoIterator<Item = Result<ListedBroadcast, StoreError>>,
    ) -> Result<Self, StoreError> {
        let (mut page, mut last) = (Self::default(), None);
        for (passed, row) in rows.into_iter().enumerate() {
            let row = row?;
            if page.items.len() == items || passed == PAGE_BROADCASTS {
                page.next = last;
                break;
            }
            last = Some(row.id);
            if filter.matches(&row) {
                page.items.push(row);
            }
        }
        Ok(page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(number: usize) -> ListedBroadcast {
        ListedBroadcast {
            id: BroadcastId(number as u64),
            channel: notification::sample::name("channel"),
            priority: Priority::Bulk,
            guarantee: Guarantee::AtLeastOnce,
            accepted_at: Timestamp::from_millis(number.try_into().unwrap()),
            due_at: Timestamp::from_millis(0),
            expires_at: None,
            accepted: 1,
            labels: Labels::default(),
        }
    }

    #[test]
    fn a_page_on_which_nothing_matches_goes_on_where_it_stopped() {
        let all = BroadcastFilter::of(notification::sample::name("tenant"));
        let filter = BroadcastFilter { since: Some(Timestamp::from_millis(1_500)), ..all.clone() };
        let page = |numbers: std::ops::RangeInclusive<usize>| {
            let rows = numbers.take(filter.rows_max(3)).map(|number| Ok(row(number)));
            let page = BroadcastPage::of(&filter, 3, rows).unwrap();
            (page.items.iter().map(|it| it.id.0).collect::<Vec<_>>(), page.next.map(|it| it.0))
        };
        assert_eq!(page(1..=2_000), (vec![], Some(1_000)));
        assert_eq!(page(1_001..=2_000), (vec![1_500, 1_501, 1_502], Some(1_502)));
        assert_eq!(page(1..=1_000), (vec![], None));
        assert_eq!((all.rows_max(3), all.rows_max(5_000)), (4, 1_001));
    }

    #[test]
    fn behind_a_number_that_no_store_has_drawn_is_nothing_or_all() {
        let mut filter = BroadcastFilter::of(notification::sample::name("tenant"));
        let beyond = Some(BroadcastId(u64::MAX));
        assert_eq!(filter.numbers_behind(beyond), (i64::MAX, i64::MAX));
        filter.order = ListOrder::NewestFirst;
        assert_eq!(filter.numbers_behind(beyond), filter.numbers_behind(None));
    }
}
