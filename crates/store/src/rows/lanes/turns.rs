//! The order of turns: proven lanes in turn, and between them one by one those that are not.

#[cfg(feature = "postgres")]
use notification::limits;
use notification::{Priority, Timestamp};

use super::super::codes::LaneId;
use super::super::due::DueCursor;
use super::super::evidence::LaneHealth;
use super::super::room::DueLane;
use super::{LaneReadiness, Lanes, Probe, ProbeKind};
use crate::ClaimRequest;

/// The lane whose turn it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Turn {
    pub(crate) lane: LaneId,
    /// Deliveries of its next chunk that it may be given.
    pub(crate) deliveries: usize,
}

// === impl Lanes ===

impl Lanes {
    /// Up to `count` lanes that are due and whose windows are not full: those whose turn it is, lanes of every tenant, and probes.
    #[cfg(feature = "postgres")]
    pub(crate) fn open(&self, request: &ClaimRequest, count: usize) -> Vec<LaneId> {
        let probes = self.probes.iter().map(|probe| probe.lane);
        let probes = probes.take_while(|lane| self.room_of(*lane, request) > 0);
        let ready_count = if self.probes.is_empty() { count } else { count / 2 };
        let mut open = Vec::new();
        for &priority in Priority::ALL {
            // In turn, all lanes of a tenant come before those of the next: alone they could fill the page, and each of the
            // other tenants would need a look of its own.
            let left = ready_count - open.len();
            let in_turn = self.open_lanes(priority, self.ready.in_turn(priority), request);
            let mut of_priority: Vec<LaneId> =
                in_turn.take(left / 2).map(|turn| turn.lane).collect();
            let of_all = self.ready.interleaved(priority, left);
            for turn in self.open_lanes(priority, of_all, request) {
                if of_priority.len() == left {
                    break;
                }
                if !of_priority.contains(&turn.lane) {
                    of_priority.push(turn.lane);
                }
            }
            open.append(&mut of_priority);
        }
        open.into_iter().chain(probes).take(count).collect()
    }

    /// The lane whose turn it is, among those whose windows are not full. Urgent ones go first. Of the others, normal ones have three
    /// deliveries for one of a bulk lane, while both have some.
    pub(crate) fn next(&mut self, request: &ClaimRequest) -> Option<Turn> {
        self.admit(request);
        let turn = self.next_of(Priority::Urgent, request).or_else(|| {
            let normal = self.next_of(Priority::Normal, request);
            let bulk = self.next_of(Priority::Bulk, request);
            if self.normal_ahead > 0 { bulk.or(normal) } else { normal.or(bulk) }
        })?;
        let health = request.health(self.evidence.of(turn.lane));
        // Deliveries that a lane holds from before it failed are counted with its probes: they are fewer than those.
        let is_failing = matches!(health, LaneHealth::Failing { .. });
        if let Some(work) = self.work.get_mut(&turn.lane)
            && (work.load.weight == 0 || is_failing)
        {
            self.total.remove(work.counted, work.load.weight);
            work.counted = health.into();
            self.total.add(work.counted, work.load.weight);
        }
        Some(turn)
    }

    /// The next of one priority: one time one that is proven, and one time one that is not. Probes are small, so that is much the
    /// larger part for those that are proven.
    fn next_of(&mut self, priority: Priority, request: &ClaimRequest) -> Option<Turn> {
        let ready = loop {
            let ready = self.first_open(priority, request);
            // A lane may have stopped being proven since it was put there.
            match ready.filter(|turn| turn.deliveries == 0) {
                Some(turn) => {
                    self.dequeue(turn.lane);
                    self.sort(turn.lane, request);
                }
                None => break ready,
            }
        };
        let probe = self.open_probe(priority, request);
        if self.turns.is_multiple_of(2) { probe.or(ready) } else { ready.or(probe) }
    }

    /// Sorts the lanes whose time has come.
    fn admit(&mut self, request: &ClaimRequest) {
        let mut due = Vec::new();
        for waiting in self.waiting.values_mut() {
            while let Some(&(at, id)) = waiting.first()
                && at <= request.now
            {
                waiting.pop_first();
                self.waiting_count -= 1;
                due.push(id);
            }
        }
        for id in due {
            self.sort(id, request);
        }
    }

    /// Puts a lane that is due, and stands nowhere, where it belongs.
    fn sort(&mut self, id: LaneId, request: &ClaimRequest) {
        let Some(lane) = self.due_lane(id, request) else { return };
        let probe = |kind, order| Probe { priority: lane.priority, kind, order, lane: id };
        let readiness = match lane.health {
            _ if request.is_full(lane) => LaneReadiness::Full,
            LaneHealth::Proven { .. } => LaneReadiness::Ready,
            LaneHealth::Failing { closed_until, .. } if request.now < closed_until => {
                return self.wait(id, closed_until);
            }
            LaneHealth::Failing { closed_until, has_answered, .. } => {
                let kind = if has_answered { ProbeKind::Failing } else { ProbeKind::Silent };
                LaneReadiness::Probe(probe(kind, closed_until.millis()))
            }
            LaneHealth::Unproven => {
                LaneReadiness::Probe(probe(ProbeKind::Unproven, -lane.due_at.millis()))
            }
        };
        let Some(work) = self.work.get_mut(&id) else { return };
        work.readiness = readiness;
        if readiness == LaneReadiness::Ready {
            // By turn, and not by due time: a lane with an old backlog would come first again and again.
            self.ready.insert(&work.lane, work.turn, id);
        } else if let LaneReadiness::Probe(probe) = readiness {
            self.probes.insert(probe);
        }
    }

    /// Notes that the lane was not read to its end, and had its turn with the chunks that were passed: that counts as a chunk for
    /// its tenant.
    #[cfg(feature = "postgres")]
    pub(crate) fn passed(&mut self, id: LaneId, next_due: Option<Timestamp>) {
        if let Some(work) = self.work.get(&id) {
            self.ready.count(&work.lane, limits::BATCH_ITEMS);
        }
        self.served(id, next_due);
    }

    /// The lane had its turn: it goes behind the other lanes of its priority and tenant.
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
        let first = |priority: &Priority| {
            let ready = self.first_open(*priority, request);
            ready.or_else(|| self.open_probe(*priority, request))
        };
        let due = |turn: Turn| self.work.get(&turn.lane).and_then(|work| work.next_due);
        let has_room = |priority| {
            request.has_room(priority, self.total) || request.has_probes(priority, self.total)
        };
        let waiting = self.waiting.iter().filter(|(priority, _)| has_room(**priority));
        let waiting = waiting.filter_map(|(_, lanes)| {
            // A lane that is full waits for a settlement, which wakes the claim itself: by its due time it would be woken in
            // vain, again and again.
            let may_open =
                |id| self.due_lane(id, request).is_some_and(|lane| !request.is_full(lane));
            lanes.iter().find(|(_, id)| may_open(*id)).map(|(at, _)| *at)
        });
        // Lanes that are not known yet may have work from the beginning of the cursor's span on.
        let is_unread = self.read_to < DueCursor::END && request.has_any_room(self.total);
        let unread = is_unread.then(|| self.read_to.begins_at().max(request.now));
        let turn = Priority::ALL.iter().find_map(first);
        turn.and_then(due).into_iter().chain(waiting).chain(unread).min()
    }

    fn first_open(&self, priority: Priority, request: &ClaimRequest) -> Option<Turn> {
        self.open_lanes(priority, self.ready.in_turn(priority), request).next()
    }

    /// Turns for those of `lanes`, ready ones of a priority, that have room; a turn of 0 deliveries for those that are to be
    /// sorted anew. Lanes that are passed have deliveries claimed, so they are not more than the common window has room for.
    fn open_lanes(
        &self,
        priority: Priority,
        lanes: impl Iterator<Item = LaneId>,
        request: &ClaimRequest,
    ) -> impl Iterator<Item = Turn> {
        let has_room = request.has_room(priority, self.total);
        let turn = |id: LaneId| {
            let lane = self.due_lane(id, request)?;
            let deliveries = request.room_of(lane, self.total);
            let is_ready =
                matches!(lane.health, LaneHealth::Proven { .. }) && !request.is_full(lane);
            (deliveries > 0 || !is_ready)
                .then_some(Turn { lane: id, deliveries: if is_ready { deliveries } else { 0 } })
        };
        lanes.take_while(move |_| has_room).filter_map(turn)
    }

    /// The lane of a priority to be probed next. The first of each kind has the most room.
    fn open_probe(&self, priority: Priority, request: &ClaimRequest) -> Option<Turn> {
        [ProbeKind::Unproven, ProbeKind::Failing, ProbeKind::Silent].into_iter().find_map(|kind| {
            let from = Probe { priority, kind, order: i64::MIN, lane: LaneId::MIN };
            let first = self.probes.range(from..).next()?;
            let is_meant = (first.priority, first.kind) == (priority, kind);
            let lane = is_meant.then_some(first.lane)?;
            let turn = Turn { lane, deliveries: self.room_of(lane, request) };
            (turn.deliveries > 0).then_some(turn)
        })
    }

    fn room_of(&self, id: LaneId, request: &ClaimRequest) -> usize {
        self.due_lane(id, request).map_or(0, |lane| request.room_of(lane, self.total))
    }

    /// The lane, if it has something due.
    fn due_lane(&self, id: LaneId, request: &ClaimRequest) -> Option<DueLane> {
        let work = self.work.get(&id)?;
        let (priority, load, due_at) = (work.lane.priority, work.load, work.next_due?);
        let health = request.health(self.evidence.of(id));
        Some(DueLane { priority, due_at, load, health })
    }
}
