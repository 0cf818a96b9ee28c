//! The load of lanes, and the evidence of their settlements.

use std::collections::BTreeMap;

use notification::{ChunkId, Priority, Timestamp, limits};

use super::super::codes::LaneId;
use super::super::evidence::{AttemptEvidence, LaneHealth};
use super::super::room::{LaneLoad, LoadKind};
use super::{LaneReadiness, Lanes};

/// The bound of `normal_ahead`: a claim.
const AHEAD_MAX: i64 = 8_000;

/// The settlements of one call: the evidence of them, and the load that they free.
#[derive(Debug, Default)]
pub(crate) struct SettledCall {
    /// Attempts of each lane.
    pub(crate) attempts: BTreeMap<LaneId, AttemptEvidence>,
    /// Chunks of which something was settled.
    pub(crate) chunks: Vec<SettledChunk>,
}

/// A chunk of which something was settled.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SettledChunk {
    pub(crate) id: ChunkId,
    pub(crate) lane: LaneId,
    /// Deliveries that are settled or due again.
    pub(crate) items: usize,
    /// True if none is left.
    pub(crate) is_gone: bool,
}

// === impl Lanes ===

impl Lanes {
    /// Something of the lane is sent at `now`: if the lane fails, that is a probe.
    ///
    /// Returns what [`take_back_probe`](Self::take_back_probe) takes, if the lane is closed for longer now.
    pub(crate) fn note_probe(&self, id: LaneId, now: Timestamp) -> Option<Timestamp> {
        self.evidence.note_probe(id, now)
    }

    /// Nothing of the lane was sent, though a probe was noted at `now`: the lane is closed until `before` again.
    #[cfg(feature = "postgres")]
    pub(crate) fn take_back_probe(&mut self, id: LaneId, before: Timestamp, now: Timestamp) {
        self.evidence.take_back_probe(id, before, now);
        // It may wait for the end of a closure that is over.
        if let Some(next_due) = self.work.get(&id).map(|work| work.next_due) {
            self.enqueue(id, next_due);
        }
    }

    /// A chunk of `items` deliveries was claimed.
    pub(crate) fn add_claimed(&mut self, id: LaneId, items: usize) {
        self.add_load(id, LaneLoad { deliveries: items, weight: items + limits::CHUNK_WEIGHT });
        let Some(work) = self.work.get(&id) else { return };
        // Probes have no turns among those of tenants.
        if work.readiness == LaneReadiness::Ready {
            self.ready.count(&work.lane, items);
        }
        let count = i64::try_from(items).unwrap_or(AHEAD_MAX);
        let ahead = match work.lane.priority {
            Priority::Normal => count.saturating_mul(Priority::Bulk.weight().into()),
            Priority::Bulk => -count.saturating_mul(Priority::Normal.weight().into()),
            Priority::Urgent => 0,
        };
        self.normal_ahead = (self.normal_ahead + ahead).clamp(-AHEAD_MAX, AHEAD_MAX);
    }

    #[cfg(test)]
    pub(crate) fn failing_weight(&self) -> usize {
        self.total.failing_weight()
    }

    /// Adds the bytes of a claimed chunk.
    pub(crate) fn add_bytes(&mut self, id: LaneId, chunk: ChunkId, (items, bytes): (usize, usize)) {
        let weight = limits::weight_of_bytes(items, bytes);
        if weight > 0 {
            self.add_load(id, LaneLoad { deliveries: 0, weight });
            self.heavy.insert(chunk, weight);
        }
    }

    /// The claim of the chunk is over: it holds nothing any more.
    pub(crate) fn remove_bytes(&mut self, id: LaneId, chunk: ChunkId) {
        if let Some(weight) = self.heavy.remove(&chunk) {
            self.unload(id, LaneLoad { deliveries: 0, weight });
        }
    }

    /// `items` deliveries of a claimed chunk are settled or due again; with the last of them the chunk is gone.
    pub(crate) fn remove_claimed(&mut self, id: LaneId, items: usize, is_gone: bool) {
        let weight = items + if is_gone { limits::CHUNK_WEIGHT } else { 0 };
        debug_assert!(
            self.work.get(&id).is_none_or(|work| work.load.weight >= weight),
            "more was settled than claimed"
        );
        self.unload(id, LaneLoad { deliveries: items, weight });
        self.forget_if_idle(id);
    }

    /// Notes settlements once they are stored.
    pub(crate) fn note_settled(&mut self, SettledCall { attempts, chunks }: SettledCall) {
        // Before some of its load is freed: a lane was busy by what it held when it was answered.
        for (lane, attempts) in attempts {
            self.note_attempts(lane, attempts);
        }
        for SettledChunk { id, lane, items, is_gone } in chunks {
            if is_gone {
                // The bytes of a chunk stay in memory until all of it is settled.
                self.remove_bytes(lane, id);
            }
            self.remove_claimed(lane, items, is_gone);
        }
    }

    /// Subtracts `load`, which another writer reports as no longer claimed; never more than the lane has here.
    #[cfg(feature = "postgres")]
    pub(crate) fn free(&mut self, id: LaneId, load: LaneLoad) {
        self.unload(id, load);
        self.forget_if_idle(id);
    }

    /// Adds `load` that [`add_claimed`](Self::add_claimed) did not count: the weight of bytes, or the claims of an earlier life
    /// of this owner, or of another one.
    pub(crate) fn add_load(&mut self, id: LaneId, load: LaneLoad) {
        let Some(work) = self.work.get_mut(&id) else { return };
        work.load.deliveries += load.deliveries;
        work.load.weight += load.weight;
        self.total.add(work.counted, load.weight);
    }

    /// Adds the load that was claimed of the lane before the work was read anew, at `now`.
    #[cfg(feature = "postgres")]
    pub(crate) fn restore_load(&mut self, id: LaneId, load: LaneLoad, now: Timestamp) {
        let health = self.evidence.of(id).health(now);
        if let Some(work) = self.work.get_mut(&id) {
            work.counted = health.into();
        }
        self.add_load(id, load);
    }

    pub(super) fn unload(&mut self, id: LaneId, load: LaneLoad) {
        let Some(work) = self.work.get_mut(&id) else { return };
        // A wrong count makes a window a little wrong; an underflow would close it, or end the process.
        let weight = load.weight.min(work.load.weight);
        work.load.weight -= weight;
        work.load.deliveries -= load.deliveries.min(work.load.deliveries);
        self.total.remove(work.counted, weight);
        if work.readiness == LaneReadiness::Full {
            let next_due = work.next_due;
            self.enqueue(id, next_due);
        }
    }

    /// Notes the evidence of settlements for the lane's destination.
    pub(crate) fn note_attempts(&mut self, id: LaneId, attempts: AttemptEvidence) {
        if attempts.tell_nothing() {
            return;
        }
        let before = self.evidence.of(id).health(attempts.at);
        self.evidence.note(id, attempts);
        self.evidence.trim(attempts.at, |lane| self.work.contains_key(&lane));
        let Some(work) = self.work.get_mut(&id) else { return };
        if attempts.answered > 0 {
            // With fewer deliveries than places it is the lack of work, and not the destination, that sets its pace.
            let is_busy = attempts.places > 0 && work.load.deliveries >= attempts.places;
            self.evidence.note_pace(id, attempts, is_busy);
            // Its load leaves the window for probes, and makes room there for those that still have to prove themselves.
            self.total.remove(work.counted, work.load.weight);
            work.counted = LoadKind::Proven;
            self.total.add(work.counted, work.load.weight);
        }
        // A proven lane keeps its place as long as it is proven: that is looked at when it has its turn.
        if !matches!(before, LaneHealth::Proven { .. }) && work.readiness != LaneReadiness::Ready {
            let next_due = work.next_due;
            self.enqueue(id, next_due);
        }
    }
}
