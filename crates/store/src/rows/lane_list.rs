//! The choice of the lanes that are listed, of any number of them, by a bounded number of looks into two indexes.
//!
//! By the index `chunk_ready` each lane costs one look, however much waits in it: with few lanes all are listed, however long their
//! backlogs are. If there are more, those whose work is due first are found by the index `chunk_due`, in which a lane has an entry
//! for each span of 16 s: a page of it may be of one lane alone, and the rest of the list is of those that were found before.

use std::collections::BTreeMap;

use notification::Timestamp;

use crate::LANES_LISTED;

/// The lanes found so far, by their key.
#[derive(Debug)]
pub(crate) struct LaneChooser<Key> {
    found: BTreeMap<Key, FoundLane>,
    until: Option<Timestamp>,
}

/// A lane of the list, but for its name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct FoundLane {
    pub(crate) claimed: u64,
    pub(crate) next_due_at: Option<Timestamp>,
}

/// The lanes to be listed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ChosenLanes<Key> {
    pub(crate) lanes: BTreeMap<Key, FoundLane>,
    /// [`LaneList::until`](crate::LaneList::until).
    pub(crate) until: Option<Timestamp>,
}

/// Lanes that are looked at in order of their keys: one more than are listed, which tells that there are more.
pub(crate) const LANES_LOOKED_AT: usize = LANES_LISTED + 1;

// === impl LaneChooser ===

impl<Key: Ord + Clone> LaneChooser<Key> {
    /// Nothing but lanes with something claimed, and when the next of what is not claimed of them is due.
    pub(crate) const fn new(claimed: BTreeMap<Key, FoundLane>) -> Self {
        Self { found: claimed, until: None }
    }

    /// Adds the first [`LANES_LOOKED_AT`] lanes in which something waits, in order of their keys, with the earliest due time of
    /// each. Returns true if these are all: then nothing else is to be read.
    pub(crate) fn add_first(&mut self, lanes: Vec<(Key, Timestamp)>) -> bool {
        let are_all = lanes.len() < LANES_LOOKED_AT;
        self.add(lanes);
        are_all
    }

    /// Adds the first [`LANES_LISTED`] entries of `chunk_due`, in its order.
    pub(crate) fn add_due(&mut self, entries: Vec<(Key, Timestamp)>) {
        self.until = entries.iter().map(|(_, due_at)| *due_at).max();
        self.add(entries);
    }

    fn add(&mut self, lanes: Vec<(Key, Timestamp)>) {
        for (key, due_at) in lanes {
            let lane = self.found.entry(key).or_default();
            lane.next_due_at = Some(lane.next_due_at.map_or(due_at, |known| known.min(due_at)));
        }
    }

    /// All with something claimed, and of the others the [`LANES_LISTED`] that are due first.
    pub(crate) fn choose(self) -> ChosenLanes<Key> {
        let Self { found: mut lanes, until } = self;
        let waiting = lanes.iter().filter(|(_, lane)| lane.claimed == 0);
        let mut waiting: Vec<(Option<Timestamp>, Key)> =
            waiting.map(|(key, lane)| (lane.next_due_at, key.clone())).collect();
        waiting.sort_unstable();
        for (_, key) in waiting.drain(LANES_LISTED.min(waiting.len())..) {
            lanes.remove(&key);
        }
        ChosenLanes { lanes, until }
    }
}
