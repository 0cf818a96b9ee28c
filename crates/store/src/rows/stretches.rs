//! Stretches: neighbouring numbers of batches, of which the search index says together that a tenant or a channel is among them.
//!
//! A list of a tenant or a channel skips the stretches that have none of its batches.

use std::collections::VecDeque;
use std::ops::Range;

use notification::BatchId;

use super::places::{ListWalk, PAGE_BATCHES_PASSED, PAGE_PARTS};
use super::search::lookup::{Candidates, Lookup};
use super::search::term::Term;
use crate::ListOrder;

/// Numbers of a stretch.
pub(crate) const STRETCH: u64 = 64;

/// The stretches that the index has of a list.
#[derive(Debug)]
pub(crate) struct StretchIndex {
    term: Term,
    /// The last batch that is indexed.
    indexed: BatchId,
    /// First batches of stretches that were looked up and not walked over yet.
    ahead: VecDeque<BatchId>,
}

// === impl StretchIndex ===

impl StretchIndex {
    /// The stretches that have `term`, in an index that goes up to the batch `indexed`.
    pub(crate) fn new(term: Term, indexed: BatchId) -> Self {
        Self { term, indexed, ahead: VecDeque::new() }
    }

    /// The part of `numbers` that is walked over before an index is asked, from the first batch, `next`, on. As many numbers as a
    /// stretch has if it is indexed: of a list that has most of what is there, they fill the page. Else as many as a page may pass,
    /// but none that are indexed.
    pub(crate) fn first_part(
        index: Option<&Self>,
        numbers: &Range<u64>,
        next: u64,
        walk: &ListWalk,
    ) -> Range<u64> {
        let Some(BatchId(indexed)) = index.map(|index| index.indexed) else {
            return walk.stretch(numbers, next, PAGE_BATCHES_PASSED);
        };
        if next <= indexed {
            return walk.stretch(numbers, next, STRETCH);
        }
        let part = walk.stretch(numbers, next, PAGE_BATCHES_PASSED);
        part.start.max(indexed + 1)..part.end
    }

    /// True if all of `numbers` that are next in the order of `walk` are in the index.
    pub(crate) fn has_next_of(&self, numbers: &Range<u64>, walk: &ListWalk) -> bool {
        match walk.order {
            ListOrder::OldestFirst => numbers.start <= self.indexed.0,
            ListOrder::NewestFirst => numbers.end <= self.indexed.0 + 1,
        }
    }

    /// The part of `numbers` in the next stretch that was looked up; `None` if there is none left.
    pub(crate) fn next_part(&mut self, numbers: &Range<u64>) -> Option<Range<u64>> {
        while let Some(first) = self.ahead.pop_front() {
            let end = (first.0 / STRETCH + 1) * STRETCH;
            let part = numbers.start.max(first.0)..numbers.end.min(end);
            if !part.is_empty() {
                return Some(part);
            }
        }
        None
    }

    /// The look-up of the first stretches of `numbers`, as many as one page may walk over.
    pub(crate) fn lookup(&self, numbers: &Range<u64>, walk: &ListWalk) -> Lookup {
        let after = match walk.order {
            // The posting of a stretch is of its first batch that has the term, which may be before `numbers`.
            ListOrder::OldestFirst => {
                let before = (numbers.start / STRETCH * STRETCH).checked_sub(1);
                before.map(|number| (BatchId(number), u16::MAX))
            }
            ListOrder::NewestFirst => Some((BatchId(numbers.end), 0)),
        };
        Lookup { term: self.term, order: walk.order, after, places_max: PAGE_PARTS }
    }

    /// Takes the answer to a [look-up](Self::lookup); false if it is that there are no more of them.
    pub(crate) fn learn(&mut self, found: &Candidates) -> bool {
        self.ahead.extend(found.places.iter().map(|(first, _)| *first));
        !self.ahead.is_empty()
    }

    /// The part of `numbers` that the index knows nothing of.
    pub(crate) fn behind(&self, numbers: &Range<u64>) -> Range<u64> {
        numbers.start.max(self.indexed.0 + 1)..numbers.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::places::ALL;

    #[test]
    fn a_walk_begins_with_a_stretch_where_the_index_knows_and_with_all_that_it_does_not_know() {
        let index = StretchIndex::new(Term(1), BatchId(10_000));
        let part = |order, next| {
            let walk = ListWalk::new(order, ALL, None);
            let numbers = if order == ListOrder::OldestFirst { next..ALL.end } else { 0..next + 1 };
            StretchIndex::first_part(Some(&index), &numbers, next, &walk)
        };
        let (oldest, newest) = (ListOrder::OldestFirst, ListOrder::NewestFirst);
        assert_eq!(part(oldest, 7), 7..7 + STRETCH);
        assert_eq!(part(oldest, 10_001), 10_001..10_001 + PAGE_BATCHES_PASSED);
        assert_eq!(part(newest, 10_000), 10_001 - STRETCH..10_001);
        assert_eq!(part(newest, 10_300), 10_001..10_301, "as far as it is not indexed");
        assert_eq!(part(newest, 20_000), 20_001 - PAGE_BATCHES_PASSED..20_001);
        let walk = ListWalk::new(oldest, ALL, None);
        assert_eq!(StretchIndex::first_part(None, &ALL, 7, &walk), 7..7 + PAGE_BATCHES_PASSED);
    }
}
