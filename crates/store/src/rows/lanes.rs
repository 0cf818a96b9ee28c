//! The lanes that have work, in memory: a claim finds its next chunk without a scan.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use notification::{ChunkId, Lane, Name, Priority, Timestamp, limits};

use crate::ClaimRequest;

/// Number of a lane in the store.
pub(crate) type LaneId = i64;

/// All lanes with something pending. The store's index says which chunk; this says which lane.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    work: HashMap<LaneId, Work>,
    numbers: HashMap<Lane, LaneId>,
    /// Lanes whose next chunk was not due when a claim last looked, by due time.
    waiting: BTreeSet<(Timestamp, LaneId)>,
    /// Lanes whose next chunk is due: urgent first, least recently served first.
    ready: BTreeMap<(Priority, u64), LaneId>,
    turns: u64,
    /// The channels whose lanes have a place; all channels when nothing is said.
    offered: Option<Arc<BTreeSet<Name>>>,
    /// Weight of what is claimed and unsettled, over all lanes.
    claimed: usize,
    /// What chunks that hold many bytes weigh more than others.
    heavy: HashMap<ChunkId, usize>,
}

#[derive(Debug)]
struct Work {
    lane: Lane,
    /// Weight of what is claimed and unsettled.
    claimed: usize,
    next_due: Option<Timestamp>,
    turn: u64,
    place: Place,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// It has nothing to claim, or is parked.
    Nowhere,
    Waiting,
    Ready,
}

// === impl Lanes ===

impl Lanes {
    pub(crate) fn number_of(&self, lane: &Lane) -> Option<LaneId> {
        self.numbers.get(lane).copied()
    }

    pub(crate) fn lane(&self, id: LaneId) -> Option<&Lane> {
        self.work.get(&id).map(|work| &work.lane)
    }

    /// Makes a lane known that has no work yet.
    pub(crate) fn add(&mut self, id: LaneId, lane: Lane) {
        self.turns += 1;
        self.numbers.insert(lane.clone(), id);
        let (turn, place) = (self.turns, Place::Nowhere);
        self.work.insert(id, Work { lane, claimed: 0, next_due: None, turn, place });
    }

    /// Forgets the lane if it has no work.
    pub(crate) fn forget_if_idle(&mut self, id: LaneId) {
        if let Some(work) = self.work.get(&id)
            && work.claimed == 0
            && work.next_due.is_none()
        {
            self.numbers.remove(&work.lane);
            self.work.remove(&id);
        }
    }

    /// The lane does not exist.
    pub(crate) fn remove(&mut self, id: LaneId) {
        self.withdraw(id);
        if let Some(work) = self.work.remove(&id) {
            self.claimed -= work.claimed;
            self.numbers.remove(&work.lane);
        }
    }

    /// A chunk of the lane is ready, due at `at`.
    pub(crate) fn add_due(&mut self, id: LaneId, at: Timestamp) {
        let Some(work) = self.work.get(&id) else { return };
        if work.next_due.is_none_or(|next_due| at < next_due) {
            self.set_next_due(id, Some(at));
        }
    }

    /// The earliest due time of the lane's ready chunks, read from the store.
    pub(crate) fn set_next_due(&mut self, id: LaneId, next_due: Option<Timestamp>) {
        self.withdraw(id);
        let Some(work) = self.work.get_mut(&id) else { return };
        work.next_due = next_due;
        let is_offered =
            self.offered.as_ref().is_none_or(|offered| offered.contains(&work.lane.channel));
        if let Some(at) = next_due.filter(|_| is_offered) {
            work.place = Place::Waiting;
            self.waiting.insert((at, id));
        }
        self.forget_if_idle(id);
    }

    /// Parks the lanes of all channels but `offered`, and puts the others back.
    pub(crate) fn offer(&mut self, offered: Option<Arc<BTreeSet<Name>>>) {
        self.offered = offered;
        let dues: Vec<(LaneId, Option<Timestamp>)> =
            self.work.iter().map(|(id, work)| (*id, work.next_due)).collect();
        for (id, next_due) in dues {
            self.set_next_due(id, next_due);
        }
    }

    /// A chunk of `items` deliveries was claimed.
    pub(crate) fn add_claimed(&mut self, id: LaneId, items: usize) {
        let weight = items + limits::CHUNK_WEIGHT;
        if let Some(work) = self.work.get_mut(&id) {
            work.claimed += weight;
            self.claimed += weight;
        }
    }

    /// The chunk that was claimed holds so many bytes.
    pub(crate) fn add_bytes(&mut self, id: LaneId, chunk: ChunkId, (items, bytes): (usize, usize)) {
        let weight = limits::weight_of_bytes(items, bytes);
        if weight > 0
            && let Some(work) = self.work.get_mut(&id)
        {
            work.claimed += weight;
            self.claimed += weight;
            self.heavy.insert(chunk, weight);
        }
    }

    /// The claim of the chunk is over: it holds nothing any more.
    pub(crate) fn remove_bytes(&mut self, id: LaneId, chunk: ChunkId) {
        if let Some(weight) = self.heavy.remove(&chunk)
            && let Some(work) = self.work.get_mut(&id)
        {
            let weight = weight.min(work.claimed);
            work.claimed -= weight;
            self.claimed -= weight;
        }
    }

    /// `items` deliveries of a claimed chunk are settled or due again; with the last of them the chunk is gone.
    pub(crate) fn remove_claimed(&mut self, id: LaneId, items: usize, is_gone: bool) {
        let weight = items + if is_gone { limits::CHUNK_WEIGHT } else { 0 };
        if let Some(work) = self.work.get_mut(&id) {
            debug_assert!(work.claimed >= weight, "more was settled than claimed");
            let weight = weight.min(work.claimed);
            work.claimed -= weight;
            self.claimed -= weight;
        }
        self.forget_if_idle(id);
    }

    /// So much of what was claimed is not any more, by somebody else's account; never more than is known here.
    #[cfg(feature = "postgres")]
    pub(crate) fn free(&mut self, id: LaneId, weight: usize) {
        if let Some(work) = self.work.get_mut(&id) {
            let weight = weight.min(work.claimed);
            work.claimed -= weight;
            self.claimed -= weight;
        }
        self.forget_if_idle(id);
    }

    /// `weight` was claimed before, by an earlier life of this owner or by another one.
    #[cfg(feature = "postgres")]
    pub(crate) fn add_weight(&mut self, id: LaneId, weight: usize) {
        if let Some(work) = self.work.get_mut(&id) {
            work.claimed += weight;
            self.claimed += weight;
        }
    }

    /// Up to `count` lanes that are due and whose windows are not full, in turn.
    #[cfg(feature = "postgres")]
    pub(crate) fn open(&self, request: &ClaimRequest, count: usize) -> Vec<LaneId> {
        let ready = self.ready.values().copied();
        ready.filter(|id| self.is_open(*id, request)).take(count).collect()
    }

    /// The lane whose turn it is, among those whose windows are not full.
    pub(crate) fn next(&mut self, request: &ClaimRequest) -> Option<LaneId> {
        while let Some(&(at, id)) = self.waiting.first()
            && at <= request.now
        {
            self.waiting.pop_first();
            let Some(work) = self.work.get_mut(&id) else { continue };
            work.place = Place::Ready;
            self.ready.insert((work.lane.priority, work.turn), id);
        }
        self.ready.values().copied().find(|id| self.is_open(*id, request))
    }

    /// The lane had its turn: it goes behind the others of its priority.
    pub(crate) fn served(&mut self, id: LaneId, next_due: Option<Timestamp>) {
        self.withdraw(id);
        self.turns += 1;
        if let Some(work) = self.work.get_mut(&id) {
            work.turn = self.turns;
        }
        self.set_next_due(id, next_due);
    }

    /// The earliest instant at which a lane whose windows are not full has work.
    pub(crate) fn next_at(&self, request: &ClaimRequest) -> Option<Timestamp> {
        let ready = self.ready.values().find(|id| self.is_open(**id, request));
        let waiting = self.waiting.iter().map(|(_, id)| id).find(|id| self.is_open(**id, request));
        let due = |id: &LaneId| self.work.get(id).and_then(|work| work.next_due);
        ready.and_then(due).into_iter().chain(waiting.and_then(due)).min()
    }

    fn is_open(&self, id: LaneId, request: &ClaimRequest) -> bool {
        self.work
            .get(&id)
            .is_some_and(|work| request.is_open(work.lane.priority, work.claimed, self.claimed))
    }

    fn withdraw(&mut self, id: LaneId) {
        let Some(work) = self.work.get_mut(&id) else { return };
        match (work.place, work.next_due) {
            (Place::Waiting, Some(at)) => {
                self.waiting.remove(&(at, id));
            }
            (Place::Ready, _) => {
                self.ready.remove(&(work.lane.priority, work.turn));
            }
            (Place::Waiting | Place::Nowhere, _) => {}
        }
        work.place = Place::Nowhere;
    }
}
