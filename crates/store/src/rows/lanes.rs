//! The lanes that have work now or soon, in memory: a claim finds its next chunk without a scan.

mod load;
mod ready;
mod turns;

pub(crate) use load::{SettledCall, SettledChunk};
pub(crate) use turns::Turn;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use notification::{ChunkId, Lane, Name, Pauses, Priority, Timestamp};

use super::codes::LaneId;
use super::due::{DueCursor, LANES_PER_PAGE, span_of};
use super::evidence::EvidenceBook;
use super::room::{LaneLoad, LoadKind, TotalLoad};
use crate::ClaimRequest;
use ready::ReadyLanes;

/// The lanes with something claimed or due, and those that are due soon. The store's index says which chunk; this says
/// which lane. A lane whose next chunk is due in a later span than that of the last claim is left to the index
/// `chunk_due`, but for as many as a page has.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    work: HashMap<LaneId, LaneWork>,
    numbers: HashMap<Lane, LaneId>,
    /// Lanes whose next chunk was not due when a claim last looked, or which were closed then, by priority and the time when
    /// to look again.
    waiting: BTreeMap<Priority, BTreeSet<(Timestamp, LaneId)>>,
    /// Number of waiting lanes.
    waiting_count: usize,
    /// Lanes whose next chunk is due, and which may hold many.
    ready: ReadyLanes,
    /// Lanes whose next chunk is due, which have nothing claimed, and which are not proven.
    probes: BTreeSet<Probe>,
    turns: u64,
    /// Deliveries by which normal lanes had more than three for one of a bulk lane; negative when they had less. No more than one
    /// claim either way: turns missed while the others had nothing are not made up for.
    normal_ahead: i64,
    /// The channels whose lanes have a place; all channels when nothing is said.
    offered: Option<Arc<BTreeSet<Name>>>,
    /// The pauses in force: a lane that one covers gets no turn, though its channel is offered.
    pauses: Arc<Pauses>,
    total: TotalLoad,
    /// The weight of the bytes of chunks that hold many.
    heavy: HashMap<ChunkId, usize>,
    evidence: EvidenceBook,
    /// Every lane with a ready chunk up to here in `chunk_due` is known.
    read_to: DueCursor,
    /// The span of the last claim; `None` before the first.
    span_now: Option<i64>,
}

#[derive(Debug)]
struct LaneWork {
    lane: Lane,
    load: LaneLoad,
    counted: LoadKind,
    next_due: Option<Timestamp>,
    turn: u64,
    readiness: LaneReadiness,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LaneReadiness {
    /// The lane has nothing to claim, its channel is not offered, or it is paused.
    Idle,
    /// The lane waits until this time.
    Waiting(Timestamp),
    Ready,
    Probe(Probe),
    /// The lane waits for a settlement.
    Full,
}

/// A lane to be probed, in the order in which this is done: of those that may answer, the one that is due for the shortest
/// time; of those that fail, and of those that are silent, the one that is closed no more for the longest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Probe {
    priority: Priority,
    kind: ProbeKind,
    order: i64,
    lane: LaneId,
}

/// Lanes that are probed, by what the last attempts at their destination came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ProbeKind {
    Unproven,
    /// They failed, and it answered lately.
    Failing,
    Silent,
}

// === impl Lanes ===

impl Lanes {
    /// Lanes without work, whose destinations have this `evidence`.
    #[cfg(feature = "postgres")]
    pub(crate) fn knowing(evidence: EvidenceBook) -> Self {
        Self { evidence, ..Self::default() }
    }

    /// Evidence of the destinations of lanes, shared with later updates.
    pub(crate) fn evidence(&self) -> EvidenceBook {
        self.evidence.clone()
    }

    /// Cursor of the next page of lanes, if some may be due that were not read: to be read before a claim. No page is needed
    /// while nothing may be claimed.
    pub(crate) fn unread(&mut self, request: &ClaimRequest) -> Option<DueCursor> {
        // Noted even when nothing is to be read: `keeps` goes by it until the next claim.
        let span_now = span_of(request.now);
        self.span_now = Some(span_now);
        let is_wanted = self.read_to.span <= span_now && request.has_any_room(self.total);
        is_wanted.then_some(self.read_to)
    }

    /// A lane was read from `chunk_due`, with the earliest of its chunks in that span.
    pub(crate) fn add_read(&mut self, id: LaneId, lane: Lane, at: Timestamp) {
        if self.lane(id).is_none() {
            self.add(id, lane);
        }
        self.read_to = DueCursor::of(at, id).max(self.read_to);
        // Not by `add_due`: a page may reach into later spans, and the cursor passes them, so all it brings is kept.
        self.note_due(id, at);
    }

    /// Notes that no lanes are behind those that were read.
    pub(crate) fn read_all(&mut self) {
        self.read_to = DueCursor::END;
    }

    /// True if a due time of a lane is to be kept in memory. Others are found in `chunk_due` when their span begins.
    pub(crate) fn keeps(&mut self, id: LaneId, at: Timestamp) -> bool {
        let place = DueCursor::of(at, id);
        // A lane that is due now must not wait until the cursor has come through a backlog.
        if Some(place.span) <= self.span_now {
            return true;
        }
        // The cursor has not been there: the lane is read when the span begins.
        if place > self.read_to {
            return false;
        }
        if self.waiting_count >= LANES_PER_PAGE {
            // The cursor has been there, and would not find the lane again: it goes back.
            self.read_to = DueCursor::before(place.span);
            return false;
        }
        true
    }

    pub(crate) fn number_of(&self, lane: &Lane) -> Option<LaneId> {
        self.numbers.get(lane).copied()
    }

    pub(crate) fn lane(&self, id: LaneId) -> Option<&Lane> {
        self.work.get(&id).map(|work| &work.lane)
    }

    /// Makes a lane known that has no work yet.
    pub(crate) fn add(&mut self, id: LaneId, lane: Lane) {
        // A new lane comes behind those that wait for their turn already.
        self.turns += 1;
        self.numbers.insert(lane.clone(), id);
        let (load, turn, readiness) = (LaneLoad::default(), self.turns, LaneReadiness::Idle);
        let work =
            LaneWork { lane, load, counted: LoadKind::Proven, next_due: None, turn, readiness };
        self.work.insert(id, work);
    }

    /// Forgets the lane if it has no work.
    pub(crate) fn forget_if_idle(&mut self, id: LaneId) {
        if let Some(work) = self.work.get(&id)
            // The claims of a lane are counted here alone: a lane that was dropped would never give them back to all lanes.
            && work.load == LaneLoad::default()
            && work.next_due.is_none()
        {
            self.numbers.remove(&work.lane);
            self.work.remove(&id);
        }
    }

    /// The lane does not exist.
    pub(crate) fn remove(&mut self, id: LaneId) {
        self.dequeue(id);
        // All that it holds, or the common windows would stay filled by a lane that is not there.
        self.unload(id, LaneLoad { deliveries: usize::MAX, weight: usize::MAX });
        if let Some(work) = self.work.remove(&id) {
            self.numbers.remove(&work.lane);
        }
    }

    /// Notes a ready chunk of the lane, due at `at`. A lane with no other work is dropped if that is not kept.
    pub(crate) fn add_due(&mut self, id: LaneId, at: Timestamp) {
        if self.keeps(id, at) {
            self.note_due(id, at);
        } else {
            self.forget_if_idle(id);
        }
    }

    fn note_due(&mut self, id: LaneId, at: Timestamp) {
        let Some(work) = self.work.get(&id) else { return };
        if work.next_due.is_none_or(|next_due| at < next_due) {
            self.enqueue(id, Some(at));
        }
    }

    /// The earliest due time of the lane's ready chunks, read from the store.
    pub(crate) fn set_next_due(&mut self, id: LaneId, next_due: Option<Timestamp>) {
        let next_due = next_due.filter(|at| self.keeps(id, *at));
        self.enqueue(id, next_due);
    }

    fn enqueue(&mut self, id: LaneId, next_due: Option<Timestamp>) {
        self.dequeue(id);
        let Some(work) = self.work.get_mut(&id) else { return };
        let is_offered =
            self.offered.as_ref().is_none_or(|offered| offered.contains(&work.lane.channel));
        let has_place = is_offered && !self.pauses.covers_lane(&work.lane);
        work.next_due = next_due.filter(|_| has_place);
        if let Some(at) = work.next_due {
            // Even due chunks wait: the time of the next claim decides which lanes are ready.
            self.wait(id, at);
        }
        self.forget_if_idle(id);
    }

    fn wait(&mut self, id: LaneId, until: Timestamp) {
        let Some(work) = self.work.get_mut(&id) else { return };
        work.readiness = LaneReadiness::Waiting(until);
        self.waiting.entry(work.lane.priority).or_default().insert((until, id));
        self.waiting_count += 1;
    }

    /// Parks the lanes of all channels but `offered`. Parked lanes are not kept in memory: those that are offered again are found
    /// in `chunk_due`, which is read from its beginning.
    pub(crate) fn offer(&mut self, offered: Option<Arc<BTreeSet<Name>>>) {
        self.offered = offered;
        let dues: Vec<(LaneId, Option<Timestamp>)> =
            self.work.iter().map(|(id, work)| (*id, work.next_due)).collect();
        for (id, next_due) in dues {
            self.enqueue(id, next_due);
        }
        self.read_to = DueCursor::START;
    }

    /// Takes out the lanes that are paused, as those of channels that are not offered. Costs nothing unless the pauses are others
    /// than before.
    pub(crate) fn pause(&mut self, pauses: &Arc<Pauses>) {
        if Arc::ptr_eq(&self.pauses, pauses) {
            return;
        }
        let former = std::mem::replace(&mut self.pauses, Arc::clone(pauses));
        let is_paused = |work: &LaneWork| work.next_due.is_some() && pauses.covers_lane(&work.lane);
        let covered = self.work.iter().filter(|(_, work)| is_paused(work));
        let covered: Vec<LaneId> = covered.map(|(id, _)| *id).collect();
        for id in covered {
            self.enqueue(id, None);
        }
        // Resumed lanes are not in memory: they are found in `chunk_due`.
        if !former.is_empty() {
            self.read_to = DueCursor::START;
        }
    }

    fn dequeue(&mut self, id: LaneId) {
        let Some(work) = self.work.get_mut(&id) else { return };
        match work.readiness {
            LaneReadiness::Waiting(until) => {
                if let Some(waiting) = self.waiting.get_mut(&work.lane.priority) {
                    waiting.remove(&(until, id));
                }
                self.waiting_count -= 1;
            }
            LaneReadiness::Ready => {
                self.ready.remove(&work.lane, work.turn);
            }
            LaneReadiness::Probe(probe) => {
                self.probes.remove(&probe);
            }
            LaneReadiness::Idle | LaneReadiness::Full => {}
        }
        work.readiness = LaneReadiness::Idle;
    }
}
