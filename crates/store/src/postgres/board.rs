//! What this process knows in memory of what it may claim: kept by its own rounds and by what others tell.
//!
//! None of it is trusted: the database decides. What is missed here only comes later, when the board is read anew.

use std::collections::{BTreeSet, HashMap};

use notification::{ChunkId, Lane, Timestamp};

use super::notices::Notice;
use crate::rows::filter::RecipientFilter;
use crate::rows::lanes::{LaneId, Lanes};

/// A place in the index of ready chunks of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) due_at: Timestamp,
    pub(super) chunk: i64,
}

/// A chunk that is claimed, as the database has it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Leased {
    pub(super) chunk: ChunkId,
    pub(super) lane: LaneId,
    pub(super) until: Timestamp,
    pub(super) count: usize,
}

/// Lanes with work, their claims, and the filter of recipients.
#[derive(Debug)]
pub(super) struct Board {
    pub(super) lanes: Lanes,
    /// By lane: nothing of ours is ready at or before this place. Where a scan starts, it meets nothing dead.
    marks: HashMap<LaneId, Place>,
    /// When claims end, as far as this process knows.
    leases: BTreeSet<(Timestamp, ChunkId)>,
    lease_of: HashMap<ChunkId, Timestamp>,
    /// Claims that ended at or before this instant have been looked at.
    looked_until: Timestamp,
    /// Lanes of which no more than the number is known.
    unknown: Vec<(LaneId, Timestamp)>,
    /// Lanes that were met, with work or without.
    numbers: HashMap<Lane, LaneId>,
    names: HashMap<LaneId, Lane>,
    pub(super) suppressed: RecipientFilter,
    /// What came while the database was being read: the reader may not have seen it.
    journal: Option<Vec<(LaneId, Place)>>,
    is_stale: bool,
    is_filter_stale: bool,
}

/// Lanes remembered without work; what is forgotten is read again.
const NAMES_MAX: usize = 1 << 16;
/// Before any chunk.
const FIRST: i64 = 0;

// === impl Board ===

impl Board {
    pub(super) fn new() -> Self {
        Self {
            lanes: Lanes::default(),
            marks: HashMap::new(),
            leases: BTreeSet::new(),
            lease_of: HashMap::new(),
            looked_until: Timestamp::from_millis(i64::MIN),
            unknown: Vec::new(),
            numbers: HashMap::new(),
            names: HashMap::new(),
            suppressed: RecipientFilter::new(),
            journal: None,
            is_stale: true,
            is_filter_stale: true,
        }
    }

    /// Takes in what another process told; `owns` says whether a partition is ours.
    pub(super) fn hear(&mut self, notice: Notice, owns: impl Fn(u8) -> bool) {
        match notice {
            Notice::Due { lane, at } => self.due(lane, Place { due_at: at, chunk: FIRST }),
            Notice::Freed { partition, lane, weight } if owns(partition) => self.free(lane, weight),
            Notice::Freed { .. } => {}
            Notice::Suppressed { print } => self.suppressed.insert_print(print),
            Notice::Everything => self.distrust(),
        }
    }

    /// A chunk of the lane is ready at `place`, or behind it.
    pub(super) fn due(&mut self, lane: LaneId, place: Place) {
        if let Some(journal) = &mut self.journal {
            journal.push((lane, place));
        }
        self.found_due(lane, place);
    }

    /// Something of the lane is gone that was ready: the next claim looks.
    pub(super) fn recheck(&mut self, lane: LaneId) {
        if self.lanes.lane(lane).is_some() {
            self.lanes.add_due(lane, Timestamp::from_millis(i64::MIN));
        }
    }

    /// `weight` of the lane is not claimed any more.
    pub(super) fn free(&mut self, lane: LaneId, weight: usize) {
        self.lanes.free(lane, weight);
    }

    /// The same, told by who reads the database and so will not miss it.
    pub(super) fn found_due(&mut self, lane: LaneId, place: Place) {
        if let Some(mark) = self.marks.get_mut(&lane)
            && place <= *mark
        {
            *mark = Place { chunk: place.chunk - 1, ..place };
        }
        if self.lanes.lane(lane).is_none() {
            let Some(name) = self.names.get(&lane) else {
                self.unknown.push((lane, place.due_at));
                return;
            };
            self.lanes.add(lane, name.clone());
        }
        self.lanes.add_due(lane, place.due_at);
    }

    // --- Reading the database while others go on ---

    /// From now on, what comes is noted besides.
    pub(super) fn start_reading(&mut self) {
        self.journal = Some(Vec::new());
    }

    /// What came meanwhile comes again, on top of what was read.
    pub(super) fn finish_reading(&mut self) {
        for (lane, place) in self.journal.take().unwrap_or_default() {
            self.found_due(lane, place);
        }
    }

    /// Forgets the lanes, to be filled with what was read; what came meanwhile is noted and comes on top.
    pub(super) fn reset(&mut self) {
        self.lanes = Lanes::default();
        self.marks.clear();
        self.leases.clear();
        self.lease_of.clear();
        self.looked_until = Timestamp::from_millis(i64::MIN);
        self.unknown.clear();
        self.is_stale = false;
    }

    /// It is to be read anew.
    pub(super) fn distrust(&mut self) {
        self.is_stale = true;
    }

    /// The list of suppressed recipients is to be read anew, too: additions may have been missed.
    pub(super) fn distrust_all(&mut self) {
        self.is_stale = true;
        self.is_filter_stale = true;
    }

    pub(super) const fn is_stale(&self) -> bool {
        self.is_stale
    }

    pub(super) const fn is_filter_stale(&self) -> bool {
        self.is_filter_stale
    }

    pub(super) fn set_filter(&mut self, filter: RecipientFilter) {
        self.suppressed = filter;
        self.is_filter_stale = false;
    }

    // --- Names of lanes ---

    pub(super) fn number_of(&self, lane: &Lane) -> Option<LaneId> {
        self.numbers.get(lane).copied()
    }

    pub(super) fn learn(&mut self, id: LaneId, lane: Lane) {
        if self.names.len() >= NAMES_MAX {
            self.names.clear();
            self.numbers.clear();
        }
        self.numbers.insert(lane.clone(), id);
        self.names.insert(id, lane);
    }

    /// Lanes that others told of and this process never met.
    pub(super) fn take_unknown(&mut self) -> Vec<(LaneId, Timestamp)> {
        std::mem::take(&mut self.unknown)
    }

    // --- Where scans start ---

    /// Where the scan of a lane starts: behind this.
    pub(super) fn mark(&self, lane: LaneId) -> Place {
        let start = Place { due_at: Timestamp::from_millis(i64::MIN), chunk: FIRST };
        self.marks.get(&lane).copied().unwrap_or(start)
    }

    /// Nothing of ours is left in the lane up to and including `place`.
    pub(super) fn set_mark(&mut self, lane: LaneId, place: Place) {
        if self.marks.len() >= NAMES_MAX {
            self.marks.clear();
        }
        self.marks.insert(lane, place);
    }

    // --- When claims end ---

    /// A claim was found in the database, or made.
    pub(super) fn lease(&mut self, chunk: ChunkId, until: Timestamp) {
        self.unlease(chunk);
        self.leases.insert((until, chunk));
        self.lease_of.insert(chunk, until);
        self.looked_until = self.looked_until.min(Timestamp::from_millis(until.millis() - 1));
    }

    /// A claim is over.
    pub(super) fn unlease(&mut self, chunk: ChunkId) {
        if let Some(until) = self.lease_of.remove(&chunk) {
            self.leases.remove(&(until, chunk));
        }
    }

    /// A claim that is known to the database only ends at `until`.
    pub(super) fn look_at(&mut self, until: Timestamp) {
        self.leases.insert((until, ChunkId(0)));
    }

    /// When the next claim ends.
    pub(super) fn next_lease_end(&self) -> Option<Timestamp> {
        self.leases.first().map(|(until, _)| *until)
    }

    /// If any claim may have ended by `now`: since when to look, and whether none is known that ends later.
    pub(super) fn leases_to_look_at(&self, now: Timestamp) -> Option<(Timestamp, bool)> {
        let earliest = self.next_lease_end().filter(|until| *until <= now)?;
        let is_last = self.leases.last().is_none_or(|(until, _)| *until <= now);
        Some((self.looked_until.min(earliest.minus(std::time::Duration::from_millis(1))), is_last))
    }

    /// Claims that ended by `now` were looked at.
    pub(super) fn looked(&mut self, now: Timestamp) {
        while let Some((until, chunk)) = self.leases.first().copied()
            && until <= now
        {
            self.leases.pop_first();
            self.lease_of.remove(&chunk);
        }
        self.looked_until = now;
    }

    /// A chunk that was claimed when the database was read.
    pub(super) fn found_leased(&mut self, leased: Leased, lane: &Lane) {
        if self.lanes.lane(leased.lane).is_none() {
            self.lanes.add(leased.lane, lane.clone());
        }
        self.lanes.add_claimed(leased.lane, leased.count);
        self.lease(leased.chunk, leased.until);
    }

    /// The first ready chunk of a lane when the database was read.
    pub(super) fn found_ready(&mut self, id: LaneId, lane: Lane, first: Place) {
        if self.lanes.lane(id).is_none() {
            self.lanes.add(id, lane.clone());
        }
        self.learn(id, lane);
        self.set_mark(id, Place { chunk: first.chunk - 1, ..first });
        self.lanes.add_due(id, first.due_at);
    }
}
