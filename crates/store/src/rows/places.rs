//! Places of a list, in either direction: batches in the order of their numbers, and members in that of their indexes.
//!
//! Batches, runs of the search index and what is not indexed yet are all in this order. So a list is complete while the index moves on
//! between two of its pages: what was not indexed for one page is for the next, and stands at the same place.

use std::ops::Range;

use notification::{BatchId, NotificationId, Timestamp};

use super::members::Members;
use super::search::block::BLOCK_POSTINGS_MIN;
use crate::ListOrder;

/// A place: batch and index.
pub(crate) type ListPlace = (BatchId, u16);

/// The order of a list, the numbers of its batches, and the place behind which its next page begins.
#[derive(Debug, Clone)]
pub(crate) struct ListWalk {
    pub(crate) order: ListOrder,
    pub(crate) numbers: Range<u64>,
    pub(crate) after: Option<ListPlace>,
}

/// Batches that a page of a list may still read whole. Read from a disk, one of a thousand members takes a millisecond or two.
#[derive(Debug)]
pub(crate) struct PageRoom {
    batches: usize,
    members: usize,
}

/// Batches of which the recipients alone are read for one page, and about how many of these. All that is not in an index that has
/// nothing to do yet is four such pages at most.
pub(crate) const PAGE_RECIPIENT_BATCHES: usize = 1_024;
pub(crate) const PAGE_RECIPIENTS: usize = 16_384;
/// Numbers of batches looked at for one page: those that do not match cost no more than this.
pub(crate) const PAGE_BATCHES_PASSED: u64 = 4_096;
/// Batches with chunks looked at for one page, if only some of them may match.
pub(crate) const PAGE_CHUNK_BATCHES: usize = 4_096;
/// Notifications found in the index that are read for one page. A page takes two blocks of a run at most.
pub(crate) const PAGE_CANDIDATES: usize = 256;
const _: () = assert!(PAGE_CANDIDATES <= BLOCK_POSTINGS_MIN);
/// Parts of the numbers looked at for one page, if the index says where the next one is that may have a match.
pub(crate) const PAGE_PARTS: usize = 8;
/// All numbers that a batch may have.
pub(crate) const ALL: Range<u64> = 0..1 << 46;

// === impl ListWalk ===

impl ListWalk {
    /// A list of batches with these numbers.
    pub(crate) fn new(
        order: ListOrder,
        numbers: Range<u64>,
        after: Option<NotificationId>,
    ) -> Self {
        Self { order, numbers, after: after.map(|id| (id.batch(), id.index())) }
    }

    /// The place behind which a look-up begins: the one of the list, or where its numbers begin.
    pub(crate) fn look_up_after(&self) -> Option<ListPlace> {
        let Range { start, end } = self.numbers;
        match self.order {
            ListOrder::OldestFirst => {
                let before = start.checked_sub(1).map(|number| (BatchId(number), u16::MAX));
                self.after.max(before)
            }
            ListOrder::NewestFirst => {
                let first = (end < ALL.end).then_some((BatchId(end), 0));
                self.after.into_iter().chain(first).min()
            }
        }
    }

    /// True unless a place that was looked up is behind all numbers of the list.
    pub(crate) fn has(&self, (BatchId(batch), _): ListPlace) -> bool {
        match self.order {
            ListOrder::OldestFirst => batch < self.numbers.end,
            ListOrder::NewestFirst => batch >= self.numbers.start,
        }
    }

    /// The part of `numbers` that is listed and not before the place. Its batch is in it: some members may come behind.
    pub(crate) fn behind(&self, numbers: Range<u64>) -> Range<u64> {
        let numbers = numbers.start.max(self.numbers.start)..numbers.end.min(self.numbers.end);
        let Some((BatchId(batch), _)) = self.after else { return numbers };
        match self.order {
            ListOrder::OldestFirst => numbers.start.max(batch)..numbers.end,
            ListOrder::NewestFirst => numbers.start..numbers.end.min(batch + 1),
        }
    }

    /// The first of `numbers` from `next` on, the first number of a batch among them: at most `passed_max`.
    pub(crate) fn stretch(&self, numbers: &Range<u64>, next: u64, passed_max: u64) -> Range<u64> {
        match self.order {
            ListOrder::OldestFirst => next..numbers.end.min(next + passed_max),
            ListOrder::NewestFirst => {
                numbers.start.max((next + 1).saturating_sub(passed_max))..next + 1
            }
        }
    }

    /// The part of `numbers` behind a `stretch` of it, and the last place of that.
    pub(crate) fn rest(
        &self,
        numbers: &Range<u64>,
        stretch: &Range<u64>,
    ) -> (Range<u64>, ListPlace) {
        match self.order {
            ListOrder::OldestFirst => {
                (stretch.end..numbers.end, (BatchId(stretch.end - 1), u16::MAX))
            }
            ListOrder::NewestFirst => (numbers.start..stretch.start, (BatchId(stretch.start), 0)),
        }
    }

    /// The members of a batch of `count` that are behind the place.
    pub(crate) fn members(&self, batch: BatchId, count: usize) -> Members {
        let all = Members::all(count);
        match self.after {
            Some((id, place)) if id == batch => {
                let is_behind = |index: &u16| match self.order {
                    ListOrder::OldestFirst => *index > place,
                    ListOrder::NewestFirst => *index < place,
                };
                all.iter().filter(is_behind).collect()
            }
            _ => all,
        }
    }

    /// A place behind all members of a batch of any size.
    pub(crate) fn end_of(&self, batch: BatchId) -> ListPlace {
        self.last_of(batch, usize::from(u16::MAX) + 1)
    }

    /// The last place of a batch of `count`.
    pub(crate) fn last_of(&self, batch: BatchId, count: usize) -> ListPlace {
        let last = match self.order {
            ListOrder::OldestFirst => count.saturating_sub(1),
            ListOrder::NewestFirst => 0,
        };
        (batch, u16::try_from(last).unwrap_or(u16::MAX))
    }
}

// === impl PageRoom ===

impl PageRoom {
    /// The room of a page that has read nothing yet.
    pub(crate) const ALL: Self = Self { batches: 64, members: 16_384 };

    /// Batches that may still be read, if they are small.
    pub(crate) const fn batches(&self) -> usize {
        if self.members == 0 { 0 } else { self.batches }
    }

    /// Takes a batch of so many members out of the room; false if there is none left.
    pub(crate) fn take(&mut self, members: usize) -> bool {
        let has_room = self.batches() > 0;
        self.batches = self.batches.saturating_sub(1);
        self.members = self.members.saturating_sub(members);
        has_room
    }
}

/// Has the page after one begin behind a place. `next` need not be the identifier of a notification, for a list goes by the batch
/// and the index alone; it stays if it is the one at this place.
pub(crate) fn pass(next: &mut Option<NotificationId>, store_id: u16, (batch, index): ListPlace) {
    if next.is_none_or(|id| (id.batch(), id.index()) != (batch, index)) {
        *next = Some(NotificationId::new(Timestamp::from_millis(0), store_id, batch, index));
    }
}
