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

    /// The part of `numbers` that is walked over before an index is asked, from `next` on: one stretch if there is an index, for of a
    /// list that has most of what is there it fills the page.
    pub(crate) fn first_part(
        index: Option<&Self>,
        numbers: &Range<u64>,
        next: u64,
        walk: &ListWalk,
    ) -> Range<u64> {
        let has_index = index.is_some_and(|index| index.has_next_of(numbers, walk));
        walk.stretch(numbers, next, if has_index { STRETCH } else { PAGE_BATCHES_PASSED })
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
