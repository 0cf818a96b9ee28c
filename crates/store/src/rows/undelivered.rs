//! Ends by which batches are listed: those that an operator looks for, which are few (decisions 0059 and 0063).

use std::collections::BTreeSet;
use std::ops::Range;

use notification::{BatchId, State, limits};

use super::places::{ListPlace, ListWalk, PAGE_CANDIDATES, PAGE_CHUNK_BATCHES};
use crate::{Filter, ListOrder};

/// The sources of the batches of a list by state or by reason. Together they have each batch with a member that matches.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ListSources {
    /// Ends that the log has of a member.
    pub(crate) ends: BTreeSet<State>,
    /// Batches that have a chunk.
    pub(crate) chunks: ChunkSource,
    /// True for batches that wait for their chunk.
    pub(crate) has_waiting: bool,
    /// True for batches that will get none: their broadcast was withdrawn, and the log has no lines about them yet.
    pub(crate) has_withdrawn: bool,
}

/// The chunks whose batches are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChunkSource {
    None,
    /// Those that are claimed, which are few.
    Leased,
    All,
}

/// The last batches that may have ended before their ends were listed.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Unlisted {
    /// Before any of them was.
    pub(crate) ends: u64,
    /// Before those that were cancelled were, and those that were delivered with words.
    pub(crate) all: u64,
}

/// The next batches that several sources have.
#[derive(Debug)]
pub(crate) struct FoundBatches {
    order: ListOrder,
    numbers: Vec<u64>,
    /// The last number up to which every source is complete; `None` if that is the end.
    complete_to: Option<u64>,
}

/// True if batches are listed by members that ended in this state with these words in the log. Delivered ones have none, but
/// where a provider or an operator gave some.
pub(crate) const fn is_listed(state: State, words: &str) -> bool {
    match state {
        State::Refused
        | State::Expired
        | State::Cancelled
        | State::Suppressed
        | State::InDoubt
        | State::Dead => true,
        State::Delivered => !words.is_empty(),
        State::Pending | State::Claimed | State::Begun => false,
    }
}

/// The reason that `filter` is for, if it leaves any out: every line of the log has the empty one.
pub(crate) fn reason_of(filter: &Filter) -> Option<&str> {
    filter.reason.as_deref().filter(|reason| !reason.is_empty())
}

// === impl ListSources ===

impl ListSources {
    /// The sources of what `filter` lists; `None` if they do not have all of it, or a walk finds it as fast.
    pub(crate) fn of(filter: &Filter) -> Option<Self> {
        let has_reason = reason_of(filter).is_some();
        let mut states = filter.states.clone();
        if states.is_empty() && has_reason {
            states.extend(State::ALL);
        }
        if has_reason {
            // The line of a cancellation has no words.
            states.remove(&State::Cancelled);
        } else if states.is_empty() || states.contains(&State::Delivered) {
            return None;
        }
        let chunks = if states.contains(&State::Pending) {
            ChunkSource::All
        } else if states.contains(&State::Claimed) || states.contains(&State::Begun) {
            ChunkSource::Leased
        } else {
            ChunkSource::None
        };
        let sources = Self {
            has_waiting: states.contains(&State::Pending) && !has_reason,
            has_withdrawn: states.contains(&State::Cancelled),
            ends: states.into_iter().filter(|state| state.is_terminal()).collect(),
            chunks,
        };
        // A walk compares the recipients of more batches in a page than may be read whole.
        (!filter.is_searched() || sources.matches_few()).then_some(sources)
    }

    /// True if next to nothing of a batch may match: all members of a broadcast are pending or cancelled together.
    fn matches_few(&self) -> bool {
        self.chunks == ChunkSource::None && !self.ends.contains(&State::Cancelled)
    }

    /// How many members of batches are worth a read for each that matches.
    pub(crate) fn surplus(&self) -> usize {
        if self.matches_few() { limits::BATCH_ITEMS } else { 1 }
    }

    /// The last batch that may match without being in these sources.
    pub(crate) fn unlisted(&self, unlisted: Unlisted) -> u64 {
        let late = [State::Cancelled, State::Delivered];
        if late.iter().any(|state| self.ends.contains(state)) {
            unlisted.all
        } else if self.ends.is_empty() {
            0
        } else {
            unlisted.ends
        }
    }

    /// Batches with chunks that one page looks at. Those of others are passed over.
    pub(crate) fn chunks_max(filter: &Filter) -> usize {
        let Filter { tenant, channel, broadcast, .. } = filter;
        if tenant.is_some() || channel.is_some() || broadcast.is_some() {
            PAGE_CHUNK_BATCHES
        } else {
            PAGE_CANDIDATES
        }
    }
}

// === impl FoundBatches ===

impl FoundBatches {
    pub(crate) const fn new(order: ListOrder) -> Self {
        Self { order, numbers: Vec::new(), complete_to: None }
    }

    /// Adds what a source gave when it was asked for the first `batches_max` of its batches, in order.
    pub(crate) fn add(&mut self, numbers: Vec<u64>, batches_max: usize) {
        if let Some(&last) = numbers.last()
            && numbers.len() >= batches_max
        {
            let complete_to = self.complete_to.unwrap_or(last);
            self.complete_to = Some(match self.order {
                ListOrder::OldestFirst => complete_to.min(last),
                ListOrder::NewestFirst => complete_to.max(last),
            });
        }
        self.numbers.extend(numbers);
    }

    /// Adds all batches of a source, in any order.
    pub(crate) fn add_all(&mut self, numbers: impl IntoIterator<Item = u64>) {
        self.numbers.extend(numbers);
    }

    /// The batches in order, each once, as far as every source is complete.
    pub(crate) fn batches(&self) -> Vec<u64> {
        let mut numbers = self.numbers.clone();
        numbers.sort_unstable();
        numbers.dedup();
        if self.order == ListOrder::NewestFirst {
            numbers.reverse();
        }
        if let Some(last) = self.complete_to {
            numbers.retain(|&number| match self.order {
                ListOrder::OldestFirst => number <= last,
                ListOrder::NewestFirst => number >= last,
            });
        }
        numbers
    }

    /// The part of `numbers` that was not looked at; `None` if all was.
    pub(crate) fn rest(&self, numbers: &Range<u64>) -> Option<Range<u64>> {
        self.complete_to.map(|last| match self.order {
            ListOrder::OldestFirst => last + 1..numbers.end,
            ListOrder::NewestFirst => numbers.start..last,
        })
    }
}

// === impl ListWalk ===

impl ListWalk {
    /// The place before a `part` of the numbers.
    pub(crate) fn place_before(&self, part: &Range<u64>) -> Option<ListPlace> {
        match self.order {
            ListOrder::OldestFirst => {
                part.start.checked_sub(1).map(|number| (BatchId(number), u16::MAX))
            }
            ListOrder::NewestFirst => Some((BatchId(part.end), 0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(states: &[State], reason: Option<&str>) -> Option<ListSources> {
        let states = states.iter().copied().collect();
        ListSources::of(&Filter { states, reason: reason.map(str::to_owned), ..Filter::default() })
    }

    #[test]
    fn a_list_that_may_have_what_was_delivered_without_words_has_no_sources() {
        assert_eq!(sources(&[], None), None);
        assert_eq!(sources(&[], Some("")), None);
        assert_eq!(sources(&[State::Delivered, State::Dead], None), None);
        let by_reason = sources(&[], Some("busy")).unwrap();
        assert!(by_reason.ends.contains(&State::Delivered));
        assert!(!by_reason.ends.contains(&State::Cancelled), "it has no words");
        assert_eq!(
            (by_reason.chunks, by_reason.has_waiting, by_reason.has_withdrawn),
            (ChunkSource::All, false, false)
        );
    }

    #[test]
    fn sources_are_those_of_the_states() {
        let none = || ListSources {
            ends: BTreeSet::new(),
            chunks: ChunkSource::None,
            has_waiting: false,
            has_withdrawn: false,
        };
        let pending = ListSources { chunks: ChunkSource::All, has_waiting: true, ..none() };
        assert_eq!(sources(&[State::Pending, State::Begun], None), Some(pending));
        let begun = ListSources { chunks: ChunkSource::Leased, ..none() };
        assert_eq!(sources(&[State::Begun], None), Some(begun));
        let ends = [State::Cancelled, State::Dead];
        let ended = ListSources { ends: ends.into(), has_withdrawn: true, ..none() };
        assert_eq!(sources(&ends, None), Some(ended));
        assert_eq!(sources(&[State::Cancelled], Some("busy")), Some(none()));
    }

    #[test]
    fn a_list_by_recipient_goes_by_few_batches_or_walks() {
        let of = |state: State| {
            let recipient = Some("someone".into());
            ListSources::of(&Filter { states: [state].into(), recipient, ..Filter::default() })
        };
        assert!(of(State::Dead).is_some());
        assert_eq!(of(State::Pending), None);
        assert_eq!(of(State::Cancelled), None);
    }

    #[test]
    fn batches_are_walked_that_ended_before_their_ends_were_listed() {
        let unlisted = Unlisted { ends: 5, all: 9 };
        let last = |states: &[State]| sources(states, None).unwrap().unlisted(unlisted);
        assert_eq!(last(&[State::Pending]), 0);
        assert_eq!(last(&[State::Pending, State::Dead]), 5);
        assert_eq!(last(&[State::Cancelled]), 9);
        assert_eq!(sources(&[], Some("busy")).unwrap().unlisted(unlisted), 9);
    }

    #[test]
    fn what_several_sources_have_is_complete_as_far_as_each_is() {
        let mut found = FoundBatches::new(ListOrder::OldestFirst);
        found.add(vec![1, 4, 9], 4);
        assert_eq!((found.batches(), found.rest(&(0..20))), (vec![1, 4, 9], None));
        found.add(vec![2, 4, 7], 3);
        found.add(vec![1, 8], 2);
        found.add_all([6, 5, 5]);
        assert_eq!(found.batches(), [1, 2, 4, 5, 6, 7]);
        assert_eq!(found.rest(&(0..20)), Some(8..20));
        let mut newest = FoundBatches::new(ListOrder::NewestFirst);
        newest.add(vec![9, 4, 1], 4);
        newest.add(vec![7, 4, 2], 3);
        newest.add(vec![8, 3], 2);
        assert_eq!(newest.batches(), [9, 8, 7, 4, 3]);
        assert_eq!(newest.rest(&(0..20)), Some(0..3));
    }
}
