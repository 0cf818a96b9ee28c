//! The blame for a crash among the deliveries in flight. Arithmetic only: the store writes the result. Decision 0018 gives the
//! reasons.

use std::cmp::Reverse;

use notification::{Timestamp, limits};

use crate::{Ending, Recovery};

/// Deliveries of one chunk whose claim ended with its process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InFlight {
    /// Held against them before: crashes, up to [`limits::CRASHES_BEFORE_SUSPICION`], which makes them suspects; above
    /// it, the weight of crashes with no other suspect in flight.
    pub(crate) crashes: u16,
    /// Time at which the process claimed them.
    pub(crate) claimed_at: Timestamp,
    /// Number of deliveries; at least one.
    pub(crate) count: usize,
}

/// A process that ended with claims.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProcessEnd {
    pub(crate) ending: Ending,
    /// Latest instant at which it may have ended.
    pub(crate) before: Timestamp,
    /// Present time.
    pub(crate) now: Timestamp,
}

/// Fate of the deliveries of one chunk after a crash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Due again, without a further crash counted against them.
    Returned,
    /// Due again, with this number of crashes counted against them.
    Counted(u16),
    /// Tried apart from other suspects.
    Suspected {
        /// Crashes counted against them.
        crashes: u16,
        /// Number of deliveries, in order of index, and the instant at which they are due, for each part.
        parts: Vec<(usize, Timestamp)>,
    },
    /// Dead: a single delivery that ends the process whenever it is sent.
    Quarantined,
}

/// The detail in the log of one that is quarantined.
pub(crate) const QUARANTINED: &str =
    "quarantined: the process ended each time this was sent; requeue it when the cause is gone";

const QUARANTINE: u16 = limits::CRASHES_BEFORE_SUSPICION + limits::WEIGHT_BEFORE_QUARANTINE;

/// The fate of each chunk that a process had in flight, in their order.
pub(crate) fn judge(end: ProcessEnd, in_flight: &[InFlight]) -> Vec<Fate> {
    // Counted by the state before: deliveries that this crash makes suspects were not tried as such.
    let suspects = suspects(in_flight);
    let (mut fates, mut apart) = (Vec::with_capacity(in_flight.len()), Vec::new());
    for (place, chunk) in in_flight.iter().enumerate() {
        let crashes = end.holds_against(chunk, suspects);
        fates.push(match crashes {
            None => Fate::Returned,
            Some(crashes) if crashes < limits::CRASHES_BEFORE_SUSPICION => Fate::Counted(crashes),
            Some(crashes) if crashes < QUARANTINE => {
                // Divided below with the suspects of all other chunks: no two parts may be due at the same time.
                apart.push((place, *chunk));
                Fate::Suspected { crashes, parts: Vec::new() }
            }
            Some(_) => Fate::Quarantined,
        });
    }
    for (place, due) in divide(apart, end.now) {
        if let Some(Fate::Suspected { parts, .. }) = fates.get_mut(place) {
            parts.push(due);
        }
    }
    fates
}

/// True if suspects that wait are cleared of the crashes in which they were alone: the process ended without any of them.
pub(crate) fn clears_others(ending: Ending, in_flight: &[InFlight]) -> bool {
    // An end in order is no crash, and proves nothing of the deliveries that wait.
    ending != Ending::Left && suspects(in_flight) == 0
}

/// Number of deliveries in flight that were suspected before.
fn suspects(in_flight: &[InFlight]) -> usize {
    in_flight.iter().filter(|chunk| chunk.is_suspect()).map(|chunk| chunk.count).sum()
}

/// Divides suspects into parts of about the same size that are due one after the other, the latest claimed first: the cause of a
/// crash most often ends a process soon. Returns the place of a chunk with each part of it.
fn divide(
    mut suspects: Vec<(usize, InFlight)>,
    now: Timestamp,
) -> Vec<(usize, (usize, Timestamp))> {
    suspects.sort_by_key(|(_, chunk)| Reverse(chunk.claimed_at));
    let total: usize = suspects.iter().map(|(_, chunk)| chunk.count).sum();
    let size = total.div_ceil(limits::SUSPECT_PARTS).max(1);
    let mut parts = Vec::new();
    // The first part waits as well: a process that it ends must not start again too often for its supervisor.
    let (mut due_at, mut room) = (now.plus(limits::SUSPECT_PAUSE), size);
    for (place, chunk) in suspects {
        let mut left = chunk.count;
        while left > 0 {
            if room == 0 {
                (due_at, room) = (due_at.plus(limits::SUSPECT_PAUSE), size);
            }
            let taken = left.min(room);
            parts.push((place, (taken, due_at)));
            (left, room) = (left - taken, room - taken);
        }
    }
    parts
}

// === impl Recovery ===

impl Recovery {
    /// Counts `items` that were in flight, and met this fate.
    pub(crate) fn count(&mut self, fate: &Fate, items: usize) {
        match fate {
            Fate::Returned | Fate::Counted(_) => self.returned += items as u64,
            Fate::Suspected { .. } => {
                self.returned += items as u64;
                self.suspected += items as u64;
            }
            Fate::Quarantined => self.quarantined += items as u64,
        }
    }
}

// === impl InFlight ===

impl InFlight {
    fn is_suspect(&self) -> bool {
        self.crashes >= limits::CRASHES_BEFORE_SUSPICION
    }
}

// === impl ProcessEnd ===

impl ProcessEnd {
    /// The crashes held against `chunk` after this one, in which `suspects` suspects were in flight; `None` when they are as
    /// before.
    fn holds_against(self, chunk: &InFlight, suspects: usize) -> Option<u16> {
        let weight = match self.ending {
            Ending::Left => return None,
            // A mail may be under way for a quarter of an hour, and is in flight at every kill: what was claimed so long before
            // is not the cause.
            Ending::Killed if self.before.since(chunk.claimed_at) > limits::SUSPECT_TRIAL => {
                return None;
            }
            Ending::Killed => 1,
            Ending::Faulted => limits::FAULT_WEIGHT,
        };
        match (chunk.is_suspect(), suspects) {
            // Only a crash with no other suspect in flight says something of a single delivery.
            (true, 1) => Some(chunk.crashes + weight),
            // Nothing more is held against it, but it is divided again: `None` would return it whole.
            (true, _) => Some(chunk.crashes),
            // One, whatever the ending weighs: others were in flight as well, and a weight is held against a single delivery.
            (false, 0) => Some(chunk.crashes + 1),
            // If it is the cause after all, it soon ends a process without the suspects.
            (false, _) => None,
        }
    }
}

#[cfg(test)]
#[path = "blame_tests.rs"]
mod tests;
