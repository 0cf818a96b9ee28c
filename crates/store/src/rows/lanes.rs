//! The lanes that have work now or soon, in memory: a claim finds its next chunk without a scan.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use notification::{ChunkId, Lane, Name, Priority, Timestamp, limits};

use super::codes::LaneId;
use super::due::{DueCursor, LANES_PER_PAGE, span_of};
use crate::ClaimRequest;

/// The lanes with something claimed or due, and those that are due soon. The store's index says which chunk; this says
/// which lane. A lane whose next chunk is due in a later span than that of the last claim is left to the index
/// `chunk_due`, but for as many as a page has.
#[derive(Debug)]
pub(crate) struct Lanes {
    work: HashMap<LaneId, LaneWork>,
    numbers: HashMap<Lane, LaneId>,
    /// Lanes whose next chunk was not due when a claim last looked, by priority and due time.
    waiting: BTreeMap<Priority, BTreeSet<(Timestamp, LaneId)>>,
    /// How many these are.
    waiting_count: usize,
    /// Lanes whose next chunk is due: urgent first, least recently served first.
    ready: BTreeMap<(Priority, u64), LaneId>,
    turns: u64,
    /// The channels whose lanes have a place; all channels when nothing is said.
    offered: Option<Arc<BTreeSet<Name>>>,
    /// Weight of what is claimed and unsettled, over all lanes.
    claimed: usize,
    /// The weight of the bytes of chunks that hold many.
    heavy: HashMap<ChunkId, usize>,
    /// Every lane with a ready chunk up to here in `chunk_due` is known.
    read_to: DueCursor,
    /// The span of the last claim.
    span_now: i64,
}

#[derive(Debug)]
struct LaneWork {
    lane: Lane,
    /// Weight of what is claimed and unsettled.
    claimed: usize,
    next_due: Option<Timestamp>,
    turn: u64,
    readiness: LaneReadiness,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LaneReadiness {
    /// It has nothing to claim, or its channel is not offered.
    Idle,
    Waiting,
    Ready,
}

// === impl Lanes ===

impl Default for Lanes {
    fn default() -> Self {
        Self {
            work: HashMap::new(),
            numbers: HashMap::new(),
            waiting: BTreeMap::new(),
            waiting_count: 0,
            ready: BTreeMap::new(),
            turns: 0,
            offered: None,
            claimed: 0,
            heavy: HashMap::new(),
            read_to: DueCursor::START,
            span_now: DueCursor::START.span,
        }
    }
}

impl Lanes {
    /// Where the next page of lanes begins, if some may be due that are not known: to be read before a claim. Nothing needs to
    /// be known while nothing may be claimed.
    pub(crate) fn unread(&mut self, request: &ClaimRequest) -> Option<DueCursor> {
        // Noted even when nothing is to be read: `keeps` goes by it until the next claim.
        self.span_now = span_of(request.now);
        let is_wanted = self.read_to.span <= self.span_now && self.has_room(request);
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

    /// Nothing is behind what was read.
    pub(crate) fn read_all(&mut self) {
        self.read_to = DueCursor::END;
    }

    /// Whether a due time of a lane is to be kept in memory. What is not is found in `chunk_due` when its span begins.
    pub(crate) fn keeps(&mut self, id: LaneId, at: Timestamp) -> bool {
        let place = DueCursor::of(at, id);
        // What is due now must not wait until the cursor has come through a backlog.
        if place.span <= self.span_now {
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
        let (turn, readiness) = (self.turns, LaneReadiness::Idle);
        self.work.insert(id, LaneWork { lane, claimed: 0, next_due: None, turn, readiness });
    }

    /// Forgets the lane if it has no work.
    pub(crate) fn forget_if_idle(&mut self, id: LaneId) {
        if let Some(work) = self.work.get(&id)
            // What is claimed is counted here alone: a lane that was forgotten would never give it back to all lanes.
            && work.claimed == 0
            && work.next_due.is_none()
        {
            self.numbers.remove(&work.lane);
            self.work.remove(&id);
        }
    }

    /// The lane does not exist.
    pub(crate) fn remove(&mut self, id: LaneId) {
        self.dequeue(id);
        if let Some(work) = self.work.remove(&id) {
            self.claimed -= work.claimed;
            self.numbers.remove(&work.lane);
        }
    }

    /// A chunk of the lane is ready, due at `at`. A lane with nothing else is forgotten if that is not kept.
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
        work.next_due = next_due.filter(|_| is_offered);
        if let Some(at) = work.next_due {
            // Even what is due waits: which lanes are ready is decided by the time of the claim that asks.
            work.readiness = LaneReadiness::Waiting;
            self.waiting.entry(work.lane.priority).or_default().insert((at, id));
            self.waiting_count += 1;
        }
        self.forget_if_idle(id);
    }

    /// Parks the lanes of all channels but `offered`. What is parked is not kept in memory: those that are not parked any
    /// more are found in `chunk_due`, which is read from its beginning.
    pub(crate) fn offer(&mut self, offered: Option<Arc<BTreeSet<Name>>>) {
        self.offered = offered;
        let dues: Vec<(LaneId, Option<Timestamp>)> =
            self.work.iter().map(|(id, work)| (*id, work.next_due)).collect();
        for (id, next_due) in dues {
            self.enqueue(id, next_due);
        }
        self.read_to = DueCursor::START;
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
            // A wrong count makes a window a little wrong; an underflow would close it, or end the process.
            debug_assert!(work.claimed >= weight, "more was settled than claimed");
            let weight = weight.min(work.claimed);
            work.claimed -= weight;
            self.claimed -= weight;
        }
        self.forget_if_idle(id);
    }

    /// So much of what was claimed is not any more, as another writer says; never more than is known here.
    #[cfg(feature = "postgres")]
    pub(crate) fn free(&mut self, id: LaneId, weight: usize) {
        if let Some(work) = self.work.get_mut(&id) {
            let weight = weight.min(work.claimed);
            work.claimed -= weight;
            self.claimed -= weight;
        }
        self.forget_if_idle(id);
    }

    /// So much is claimed beside what [`add_claimed`](Self::add_claimed) counted: the weight of bytes, or what an earlier life of
    /// this owner claimed, or another one.
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
        self.open_lanes(request).take(count).collect()
    }

    /// The lane whose turn it is, among those whose windows are not full.
    pub(crate) fn next(&mut self, request: &ClaimRequest) -> Option<LaneId> {
        for waiting in self.waiting.values_mut() {
            while let Some(&(at, id)) = waiting.first()
                && at <= request.now
            {
                waiting.pop_first();
                self.waiting_count -= 1;
                let Some(work) = self.work.get_mut(&id) else { continue };
                work.readiness = LaneReadiness::Ready;
                // By turn, and not by due time: a lane with an old backlog would come first again and again.
                self.ready.insert((work.lane.priority, work.turn), id);
            }
        }
        self.open_lanes(request).next()
    }

    /// The lane had its turn: it goes behind the other lanes of its priority.
    pub(crate) fn served(&mut self, id: LaneId, next_due: Option<Timestamp>) {
        // Before the turn changes, which is part of the lane's key among the ready ones.
        self.dequeue(id);
        self.turns += 1;
        if let Some(work) = self.work.get_mut(&id) {
            work.turn = self.turns;
        }
        self.set_next_due(id, next_due);
    }

    /// The earliest instant at which a lane whose windows are not full has work, or may have.
    pub(crate) fn next_at(&self, request: &ClaimRequest) -> Option<Timestamp> {
        let ready = self.open_lanes(request).next();
        let waiting =
            self.waiting.iter().filter(|(priority, _)| self.has_room_for(**priority, request));
        let waiting = waiting.filter_map(|(_, lanes)| {
            lanes.iter().map(|(_, id)| *id).find(|id| self.is_open(*id, request))
        });
        let due = |id: LaneId| self.work.get(&id).and_then(|work| work.next_due);
        // Lanes that are not known yet may have work from the beginning of the cursor's span on.
        let is_unread = self.read_to < DueCursor::END && self.has_room(request);
        let unread = is_unread.then(|| self.read_to.begins_at().max(request.now));
        ready.into_iter().chain(waiting).filter_map(due).chain(unread).min()
    }

    /// The lanes that are due and whose windows are not full, in turn. Those that are passed have something claimed, so they
    /// are not more than the common window has room for.
    fn open_lanes(&self, request: &ClaimRequest) -> impl Iterator<Item = LaneId> {
        // Lanes stand in order of priority, and windows only get smaller: behind the first that is full none has room.
        let with_room = self
            .ready
            .iter()
            .take_while(|((priority, _), _)| self.has_room_for(*priority, request));
        with_room.map(|(_, id)| *id).filter(|id| self.is_open(*id, request))
    }

    /// Whether anything may be claimed: the most urgent have the largest window.
    fn has_room(&self, request: &ClaimRequest) -> bool {
        self.has_room_for(Priority::Urgent, request)
    }

    fn has_room_for(&self, priority: Priority, request: &ClaimRequest) -> bool {
        request.has_room(priority, self.claimed)
    }

    fn is_open(&self, id: LaneId, request: &ClaimRequest) -> bool {
        self.work
            .get(&id)
            .is_some_and(|work| request.is_open(work.lane.priority, work.claimed, self.claimed))
    }

    fn dequeue(&mut self, id: LaneId) {
        let Some(work) = self.work.get_mut(&id) else { return };
        match (work.readiness, work.next_due) {
            (LaneReadiness::Waiting, Some(at)) => {
                if let Some(waiting) = self.waiting.get_mut(&work.lane.priority) {
                    waiting.remove(&(at, id));
                }
                self.waiting_count -= 1;
            }
            (LaneReadiness::Ready, _) => {
                self.ready.remove(&(work.lane.priority, work.turn));
            }
            (LaneReadiness::Waiting | LaneReadiness::Idle, _) => {}
        }
        work.readiness = LaneReadiness::Idle;
    }
}
