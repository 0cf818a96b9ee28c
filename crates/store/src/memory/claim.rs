//! Claims, ends of leases, and recovery from a crash.

use std::collections::HashMap;
use std::time::Duration;

use notification::{
    Chunk, ChunkId, Draft, Epoch, Event, Guarantee, Lane, State, Ticket, Timestamp, limits,
};

use super::books::{Books, MemoryChunk};
use crate::rows::blame::{self, Fate, InFlight, ProcessEnd};
use crate::rows::claim_load::ClaimLoad;
use crate::rows::codec::LogLine;
use crate::rows::evidence::{AttemptEvidence, LaneHealth};
use crate::rows::pace::Paces;
use crate::rows::paused::put_away_until;
use crate::rows::room::{DueLane, LaneLoad, TotalLoad};
use crate::{Claim, ClaimRequest, Ending, Mark, MarkAnswer, Recovery, Suppression};

/// The chunks that are claimed and unsettled: all together, and of each lane.
#[derive(Default)]
struct ClaimedLoads<'a> {
    total: TotalLoad,
    by_lane: HashMap<&'a Lane, LaneLoad>,
}

impl Books {
    pub(super) fn claim(&mut self, request: ClaimRequest) -> Claim<Chunk> {
        let lease_until = request.now.plus(request.lease);
        self.claim_as(
            request,
            |books, id| books.end_what_must_not_be_sent(id, request.now),
            |books, id, piece| books.chunk(id, piece, lease_until),
        )
    }

    pub(super) fn issue(&mut self, request: ClaimRequest) -> Claim<Ticket> {
        let ticket = |books: &Self, chunk, piece: &MemoryChunk| Ticket {
            chunk,
            epoch: piece.epoch,
            priority: books.lane_of(piece).priority,
            lease_until: request.now.plus(request.lease),
            count: u16::try_from(piece.members.len()).unwrap_or(u16::MAX),
        };
        // Nothing ends here: the chunk of a ticket is looked at when it is taken.
        self.claim_as(request, |_, _| false, ticket)
    }

    /// Claims due chunks but those `ended` now, each `as_what`.
    fn claim_as<T>(
        &mut self,
        request: ClaimRequest,
        mut ended: impl FnMut(&mut Self, ChunkId) -> bool,
        as_what: impl Fn(&Self, ChunkId, &MemoryChunk) -> T,
    ) -> Claim<T> {
        let now = request.now;
        for id in self.leased(|until| until <= now) {
            self.end_lease(id, now, "lease ended");
        }
        let mut chunks = Vec::new();
        let mut load = ClaimLoad::new(&request);
        while let Some((id, deliveries)) = self.next_due(request) {
            // Whole if it is paused: cut to what its lane may send, a paused broadcast would become a chunk for each delivery.
            if !self.is_paused(id) {
                self.cut(id, deliveries);
            }
            if ended(self, id) {
                continue;
            }
            let Some(piece) = self.chunks.get(&id).cloned() else { continue };
            let of_piece = piece.load(self.chunk(id, &piece, now).bytes());
            if !load.fits(of_piece) {
                break;
            }
            load.add(of_piece);
            // Before it is leased: which window a lane counts against is settled while it has nothing claimed.
            self.count(&piece, request);
            let piece = self.lease(id, piece, now.plus(request.lease));
            chunks.push(as_what(self, id, &piece));
            let turn = self.next_number();
            let lane = self.lane_of(&piece).clone();
            // Probes have no turns among those of tenants.
            if matches!(self.health(&lane, request), LaneHealth::Proven { .. }) {
                let before = self.given_to(&lane);
                self.served_last.insert(lane.priority, before);
                let given = before + piece.members.len();
                self.given.insert((lane.priority, lane.tenant.clone()), given);
            }
            if let Some(evidence) = self.evidence.get_mut(&lane) {
                evidence.note_probe(now);
            }
            self.last_served.insert(lane, turn);
        }
        Claim { chunks, next_at: self.next_at(request) }
    }

    pub(super) fn take(
        &mut self,
        ticket: &Ticket,
        now: Timestamp,
        lease: Duration,
    ) -> Option<Chunk> {
        let piece = self.chunks.get(&ticket.chunk)?.clone();
        if piece.epoch != ticket.epoch || piece.lease_until.is_none_or(|until| until <= now) {
            return None;
        }
        // The lifecycle claims only what is pending, and the ticket has claimed it.
        self.end_lease(ticket.chunk, now, "");
        if self.end_what_must_not_be_sent(ticket.chunk, now) {
            return None;
        }
        let piece = self.chunks.get(&ticket.chunk)?.clone();
        let lease_until = now.plus(lease);
        let piece = self.lease(ticket.chunk, piece, lease_until);
        Some(self.chunk(ticket.chunk, &piece, lease_until))
    }

    fn lease(&mut self, id: ChunkId, mut piece: MemoryChunk, until: Timestamp) -> MemoryChunk {
        piece.epoch = Epoch(piece.epoch.0 + 1);
        piece.lease_until = Some(until);
        // Once, since it takes building the chunk: the windows ask for the weight of every leased one with each look.
        let bytes = self.chunk(id, &piece, until).bytes();
        piece.bytes_weight = limits::weight_of_bytes(piece.members.len(), bytes);
        for &index in &piece.members {
            self.advance(piece.batch, index, Event::Claim);
        }
        self.chunks.insert(id, piece.clone());
        piece
    }

    /// The chunk whose turn it is, if one is due, and how many of its deliveries may be claimed.
    fn next_due(&self, request: ClaimRequest) -> Option<(ChunkId, usize)> {
        let claimed = self.claimed_loads();
        let due = self.chunks.iter().filter(|(_, piece)| {
            piece.lease_until.is_none()
                && piece.due_at <= request.now
                && self.room_of(piece, request, &claimed) > 0
        });
        let turn = |(id, piece): &(&ChunkId, &MemoryChunk)| {
            let lane = self.lane_of(piece);
            let served = self.last_served.get(lane).copied().unwrap_or(0);
            let given = (self.given_to(lane), lane.tenant.clone());
            (lane.priority, given, served, lane.clone(), piece.due_at, **id)
        };
        due.min_by_key(turn).map(|(&id, piece)| (id, self.room_of(piece, request, &claimed)))
    }

    /// Deliveries that the lane's tenant was given, or as many as the one that was served last.
    fn given_to(&self, lane: &Lane) -> usize {
        let given = self.given.get(&(lane.priority, lane.tenant.clone())).copied();
        let served_last = self.served_last.get(&lane.priority).copied();
        given.max(served_last).unwrap_or(0)
    }

    /// True if the chunk is put away, as a whole, when it comes up.
    fn is_paused(&self, id: ChunkId) -> bool {
        let piece = self.chunks.get(&id);
        piece.is_some_and(|piece| self.pauses.covers(&self.batch(piece.batch).envelope))
    }

    /// Leaves `count` members in a chunk that has more; the rest are one of their own.
    fn cut(&mut self, id: ChunkId, count: usize) {
        let Some(piece) = self.chunks.get_mut(&id).filter(|piece| piece.members.len() > count)
        else {
            return;
        };
        let rest = piece.members.split_off(count);
        let rest = piece.part(piece.due_at, rest);
        self.add_piece(rest);
    }

    /// Sets the window against which the lane counts from now on, if it has nothing claimed.
    fn count(&mut self, piece: &MemoryChunk, request: ClaimRequest) {
        let lane = self.lane_of(piece).clone();
        let health = self.health(&lane, request);
        let has_nothing_claimed = !self.claimed_loads().by_lane.contains_key(&lane);
        if has_nothing_claimed || matches!(health, LaneHealth::Failing { .. }) {
            self.counted.insert(lane, health.into());
        }
    }

    pub(super) fn note_attempts(&mut self, lane: Lane, attempts: AttemptEvidence) {
        if attempts.answered > 0 {
            self.counted.remove(&lane);
            let is_busy = attempts.places > 0 && self.claimed_items(&lane) >= attempts.places;
            self.paces.note(&lane, attempts.at, attempts.answered, is_busy);
        }
        self.evidence.entry(lane).or_default().note(attempts);
    }

    /// Settles expired and suppressed deliveries, and puts away paused ones; true when nothing of the chunk is left.
    fn end_what_must_not_be_sent(&mut self, id: ChunkId, now: Timestamp) -> bool {
        let Some(piece) = self.chunks.get(&id).cloned() else { return true };
        let envelope = self.batch(piece.batch).envelope.clone();
        let is_expired = envelope.expires_at.is_some_and(|expires_at| expires_at <= now);
        let later = put_away_until(&self.pauses, &self.pauses, &envelope, now);
        // Expiry first: what is paused expires on time.
        if let Some(later) = later.filter(|_| !is_expired) {
            self.chunks.insert(id, MemoryChunk { due_at: later, ..piece });
            return true;
        }
        let event = if is_expired { Event::Expire } else { Event::Suppress };
        let mut fallbacks = Vec::new();
        let mut ended = Vec::new();
        for index in piece.members {
            let recipient = self.recipient(piece.batch, index).clone();
            let detail = match self.suppressions.get(&(envelope.lane.channel.clone(), recipient)) {
                _ if is_expired => String::new(),
                Some(listed) => Suppression::log_detail(&listed.reason, listed.since),
                None => continue,
            };
            ended.push(index);
            let state = self.advance(piece.batch, index, event);
            let line = LogLine { detail: &detail, ..LogLine::unattempted(now, state) };
            self.note(piece.batch, index, line);
            if event == Event::Suppress {
                let (id, trace) = (self.id(piece.batch, index), self.trace(piece.batch, index));
                let content = self.content(piece.batch, index);
                fallbacks.extend(Draft::in_place_of(id, trace, &envelope, content, now));
            }
        }
        self.accept_fallbacks(fallbacks, now);
        self.take_members(id, &ended) == 0
    }

    /// Ends the current claim: its holder may not act for it any more.
    fn end_lease(&mut self, id: ChunkId, now: Timestamp, detail: &str) -> (u64, u64) {
        let Some(piece) = self.chunks.get(&id).cloned() else { return (0, 0) };
        let guarantee = self.batch(piece.batch).envelope.guarantee;
        let mut in_doubt = Vec::new();
        for &index in &piece.members {
            let state = self.advance(piece.batch, index, Event::LoseLease);
            if state == State::InDoubt {
                debug_assert!(piece.has_begun(index, guarantee));
                let attempt = piece.attempt;
                self.note(
                    piece.batch,
                    index,
                    LogLine { at: now, attempt, state, status: 0, detail },
                );
                in_doubt.push(index);
            }
        }
        let remaining = self.take_members(id, &in_doubt);
        if let Some(piece) = self.chunks.get_mut(&id) {
            piece.lease_until = None;
            piece.begun_through = None;
        }
        (remaining as u64, in_doubt.len() as u64)
    }

    pub(super) fn begin(&mut self, mark: Mark) -> MarkAnswer {
        let Some(mut piece) = self.chunks.get(&mark.chunk).cloned() else {
            return MarkAnswer::Stale;
        };
        if piece.epoch != mark.epoch || piece.lease_until.is_none() {
            return MarkAnswer::Stale;
        }
        let guarantee = self.batch(piece.batch).envelope.guarantee;
        if guarantee == Guarantee::AtMostOnce {
            if piece.begun_through >= Some(mark.through) {
                return MarkAnswer::Stale;
            }
            for &index in piece.members.iter().filter(|&&index| index <= mark.through) {
                if !piece.has_begun(index, guarantee) {
                    self.advance(piece.batch, index, Event::Begin);
                }
            }
            piece.begun_through = Some(mark.through);
            self.chunks.insert(mark.chunk, piece);
        }
        MarkAnswer::Granted
    }

    /// The last owner is gone: every lease is void, every open broadcast is abandoned.
    pub(super) fn recover(&mut self, ending: Ending, now: Timestamp) -> Recovery {
        // The evidence of destinations is in the memory of a process.
        self.evidence.clear();
        self.paces = Paces::default();
        self.counted.clear();
        let mut recovery = Recovery::default();
        let (mut returned, mut in_flight) = (Vec::new(), Vec::new());
        for id in self.leased(|_| true) {
            // Before the lease is ended, by which it is forgotten.
            let claimed_at = self.chunks.get(&id).and_then(|piece| piece.lease_until);
            let (_, in_doubt) = self.end_lease(id, now, "process ended");
            recovery.in_doubt += in_doubt;
            let Some(piece) = self.chunks.get(&id) else { continue };
            returned.push(id);
            in_flight.push(InFlight {
                crashes: piece.crashes,
                claimed_at: claimed_at.unwrap_or(now).minus(limits::LEASE),
                count: piece.members.len(),
            });
        }
        if blame::clears_others(ending, &in_flight) {
            let waiting = self.chunks.iter_mut().filter(|(id, _)| !returned.contains(id));
            for (_, piece) in waiting {
                piece.crashes = piece.crashes.min(limits::CRASHES_BEFORE_SUSPICION);
            }
        }
        let fates = blame::judge(ProcessEnd { ending, before: now, now }, &in_flight);
        for (id, fate) in returned.into_iter().zip(fates) {
            recovery.count(&fate, self.chunks.get(&id).map_or(0, |piece| piece.members.len()));
            self.follow(id, fate, now);
        }
        let open = |(_, broadcast): &(_, &super::books::Broadcast)| broadcast.sealed_at.is_none();
        let open: Vec<_> = self.broadcasts.iter().filter(open).map(|(&id, _)| id).collect();
        for id in open {
            recovery.abandoned_broadcasts += u64::from(self.abandon_broadcast(id).is_ok());
        }
        recovery
    }

    fn follow(&mut self, id: ChunkId, fate: Fate, now: Timestamp) {
        let Some(mut piece) = self.chunks.remove(&id) else { return };
        match fate {
            Fate::Quarantined => {
                self.quarantine(&piece, now);
                return;
            }
            Fate::Returned => {}
            Fate::Counted(crashes) => piece.crashes = crashes,
            Fate::Suspected { crashes, parts } => {
                piece.crashes = crashes;
                let mut members = std::mem::take(&mut piece.members);
                for (part, (taken, due_at)) in parts.into_iter().enumerate() {
                    let rest = members.split_off(taken);
                    let part_members = std::mem::replace(&mut members, rest);
                    if part == 0 {
                        (piece.members, piece.due_at) = (part_members, due_at);
                    } else {
                        self.add_piece(piece.part(due_at, part_members));
                    }
                }
            }
        }
        self.chunks.insert(id, piece);
    }

    /// Quarantines a piece: it was claimed when the process ended, and is dead instead of losing its lease.
    fn quarantine(&mut self, piece: &MemoryChunk, now: Timestamp) {
        let detail = blame::QUARANTINED;
        for &index in &piece.members {
            self.advance(piece.batch, index, Event::Claim);
            let state = self.advance(piece.batch, index, Event::Quarantine);
            let attempt = piece.attempt;
            self.note(piece.batch, index, LogLine { at: now, attempt, state, status: 0, detail });
        }
    }

    fn next_at(&self, request: ClaimRequest) -> Option<Timestamp> {
        let ready = self.chunks.values().filter(|piece| piece.lease_until.is_none());
        let claimed = self.claimed_loads();
        let at = |piece: &MemoryChunk| {
            if self.room_of(piece, request, &claimed) > 0 {
                return Some(piece.due_at);
            }
            let opens_at = self.opens_at(self.lane_of(piece), request)?;
            // By the rules of that instant: while it is closed the lane has no room.
            let then = ClaimRequest { now: opens_at, ..request };
            (self.room_of(piece, then, &claimed) > 0).then(|| piece.due_at.max(opens_at))
        };
        let leases = self.chunks.values().filter_map(|piece| piece.lease_until);
        ready.filter_map(at).chain(leases).min()
    }

    /// Time until which the lane is closed because every attempt fails.
    fn opens_at(&self, lane: &Lane, request: ClaimRequest) -> Option<Timestamp> {
        match self.health(lane, request) {
            LaneHealth::Failing { closed_until, .. } => Some(closed_until),
            LaneHealth::Proven { .. } | LaneHealth::Unproven => None,
        }
    }

    /// Number of deliveries of a ready chunk that may be claimed beside what is claimed.
    fn room_of(
        &self,
        piece: &MemoryChunk,
        request: ClaimRequest,
        claimed: &ClaimedLoads<'_>,
    ) -> usize {
        let lane = self.lane_of(piece);
        let is_parked =
            self.offered.as_ref().is_some_and(|offered| !offered.contains(&lane.channel));
        if is_parked || self.pauses.covers_lane(lane) {
            return 0;
        }
        let load = claimed.by_lane.get(lane).copied().unwrap_or_default();
        let (priority, due_at, health) = (lane.priority, piece.due_at, self.health(lane, request));
        request.room_of(DueLane { priority, due_at, load, health }, claimed.total)
    }

    fn health(&self, lane: &Lane, request: ClaimRequest) -> LaneHealth {
        request.health(self.evidence.get(lane).copied().unwrap_or_default())
    }

    /// Loads of all that is claimed: one walk over the chunks, for a question about each of them.
    fn claimed_loads(&self) -> ClaimedLoads<'_> {
        let mut claimed = ClaimedLoads::default();
        for piece in self.chunks.values().filter(|piece| piece.lease_until.is_some()) {
            let lane = self.lane_of(piece);
            let weight = piece.members.len() + limits::CHUNK_WEIGHT + piece.bytes_weight;
            claimed.total.add(self.counted.get(lane).copied().unwrap_or_default(), weight);
            let load = claimed.by_lane.entry(lane).or_default();
            load.deliveries += piece.members.len();
            load.weight += weight;
        }
        claimed
    }

    fn leased(&self, which: impl Fn(Timestamp) -> bool) -> Vec<ChunkId> {
        let leased = self.chunks.iter().filter(|(_, piece)| piece.lease_until.is_some_and(&which));
        leased.map(|(&id, _)| id).collect()
    }

    pub(super) fn lane_of(&self, piece: &MemoryChunk) -> &Lane {
        &self.batch(piece.batch).envelope.lane
    }
}
