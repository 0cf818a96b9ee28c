//! Outcomes and withdrawals.

use std::collections::BTreeMap;

use notification::{
    BatchId, BroadcastId, ChunkId, Disposition, Event, Guarantee, Lane, Name, NotificationId,
    OutcomeGroup, Scope, Settlement, State, Timestamp,
};

use super::books::{Books, MemoryChunk};
use crate::rows::codec::LogLine;
use crate::rows::evidence::AttemptEvidence;
use crate::{CancelPage, CancelScope, CancelTarget, Cancelled, Settled, Suppression};

impl Books {
    pub(super) fn settle(&mut self, settlements: &[Settlement]) -> Vec<Settled> {
        let mut attempts = BTreeMap::<Lane, AttemptEvidence>::new();
        for settlement in settlements {
            let Some((piece, _)) = self.settled_by(settlement) else { continue };
            let (lane, of_this) = (self.lane_of(&piece).clone(), AttemptEvidence::of(settlement));
            let known = attempts.entry(lane);
            known.and_modify(|known| known.merge(of_this)).or_insert(of_this);
        }
        // Before some of its load is freed, as in the databases: a lane was busy by what it held when it was answered.
        for (lane, attempts) in attempts {
            self.note_attempts(lane, attempts);
        }
        settlements.iter().map(|settlement| self.settle_one(settlement)).collect()
    }

    /// The chunk and the members that a settlement settles; `None` when it is stale.
    fn settled_by(&self, settlement: &Settlement) -> Option<(MemoryChunk, Vec<u16>)> {
        let piece = self.chunks.get(&settlement.chunk)?;
        let indexes: Vec<u16> =
            settlement.groups.iter().flat_map(|group| group.indexes.iter().copied()).collect();
        let all_unsettled = indexes.iter().all(|index| piece.members.contains(index));
        let is_held = piece.epoch == settlement.epoch && piece.lease_until.is_some();
        (is_held && all_unsettled).then(|| (piece.clone(), indexes))
    }

    fn settle_one(&mut self, settlement: &Settlement) -> Settled {
        let Some((piece, indexes)) = self.settled_by(settlement) else { return Settled::Stale };
        for group in &settlement.groups {
            self.settle_group(&piece, group, settlement.at);
        }
        for again in piece.due_again(settlement) {
            self.due_again(again);
        }
        let remaining = self.take_members(settlement.chunk, &indexes);
        self.accept_fallbacks(settlement.fallbacks.clone(), settlement.at);
        Settled::Applied { remaining }
    }

    /// Makes members due again: those that are due at one instant after as many attempts are one chunk.
    pub(super) fn due_again(&mut self, again: MemoryChunk) {
        let joins = |ready: &&mut MemoryChunk| {
            ready.lease_until.is_none()
                && (ready.batch, ready.due_at, ready.attempt, ready.crashes)
                    == (again.batch, again.due_at, again.attempt, again.crashes)
        };
        let Some(ready) = self.chunks.values_mut().find(joins) else {
            self.add_piece(again);
            return;
        };
        ready.members.extend(again.members);
        ready.members.sort_unstable();
    }

    fn settle_group(&mut self, piece: &MemoryChunk, group: &OutcomeGroup, at: Timestamp) {
        let envelope = self.batch(piece.batch).envelope.clone();
        let event = event_of(group.disposition);
        let is_unattempted = group.disposition == Disposition::Ended(State::Expired);
        let attempt = if is_unattempted { 0 } else { piece.attempt };
        for &index in &group.indexes {
            let is_attempt = !is_unattempted && event != Event::HandBack;
            // At least once needs no durable mark, so the store learns of the beginning from the end.
            if is_attempt && envelope.guarantee == Guarantee::AtLeastOnce {
                self.advance(piece.batch, index, Event::Begin);
            }
            let state = self.advance(piece.batch, index, event);
            if event != Event::HandBack {
                let (status, detail) = (group.status, &*group.detail);
                self.note(piece.batch, index, LogLine { at, attempt, state, status, detail });
            }
            if group.suppress {
                let recipient = self.recipient(piece.batch, index).clone();
                let whose = (envelope.lane.channel.clone(), recipient);
                let (suppression, gone_since) = Suppression::of_group(group, whose, index, at);
                self.suppress(suppression, gone_since, at);
            }
        }
    }

    pub(super) fn cancel(
        &mut self,
        target: CancelTarget,
        tenant: &Name,
        now: Timestamp,
    ) -> Option<Cancelled> {
        let wanted = match target {
            CancelTarget::Notification(id) => vec![self.place(id)?],
            CancelTarget::Broadcast(id) => self.members_of(id)?,
        };
        let owner = match target {
            CancelTarget::Notification(id) => &self.batch(id.batch()).envelope.lane.tenant,
            CancelTarget::Broadcast(id) => &self.broadcasts.get(&id)?.draft.tenant,
        };
        if owner != tenant {
            return None;
        }
        let mut cancelled = Cancelled::default();
        for (batch, index) in wanted {
            let state = self.entry(batch, index).state;
            if state.is_terminal() {
                cancelled.ended += 1;
            } else if state == State::Pending {
                self.cancel_pending(batch, index, now);
                cancelled.cancelled += 1;
            } else {
                cancelled.under_way += 1;
            }
        }
        Some(cancelled)
    }

    /// Cancels all that waits of a scope, at once.
    pub(super) fn cancel_scope(&mut self, request: &CancelScope) -> Option<CancelPage> {
        let CancelScope { tenant, scope, from: _, is_dry, now } = request;
        if let Scope::Broadcast(id) = scope
            && self.broadcast(*id).is_none_or(|status| status.tenant != *tenant)
        {
            return None;
        }
        let mut page = CancelPage::default();
        let is_meant = |piece: &MemoryChunk| {
            let envelope = &self.batch(piece.batch).envelope;
            envelope.lane.tenant == *tenant && scope.has(envelope)
        };
        let pieces: Vec<MemoryChunk> =
            self.chunks.values().filter(|piece| is_meant(piece)).cloned().collect();
        for MemoryChunk { batch, members, lease_until, .. } in pieces {
            let items = members.len() as u64;
            if lease_until.is_some() {
                page.under_way += items;
                continue;
            }
            page.cancelled += items;
            for index in members.into_iter().filter(|_| !is_dry) {
                self.cancel_pending(batch, index, *now);
            }
        }
        Some(page)
    }

    fn cancel_pending(&mut self, batch: BatchId, index: u16, now: Timestamp) {
        self.advance(batch, index, Event::Cancel);
        self.note(batch, index, LogLine::unattempted(now, State::Cancelled));
        if let Some(chunk) = self.chunk_with(batch, index) {
            self.take_members(chunk, &[index]);
        }
    }

    /// Batch and index of an accepted notification.
    pub(super) fn place(&self, id: NotificationId) -> Option<(BatchId, u16)> {
        let batch = self.batches.get(&id.batch()).filter(|batch| self.is_accepted(batch))?;
        batch.entries.get(usize::from(id.index()))?;
        (self.id(id.batch(), id.index()) == id).then_some((id.batch(), id.index()))
    }

    /// All notifications of a sealed broadcast.
    pub(super) fn members_of(&self, id: BroadcastId) -> Option<Vec<(BatchId, u16)>> {
        self.broadcasts.get(&id)?.sealed_at?;
        let batches = self.batches.iter().filter(|(_, batch)| batch.envelope.broadcast == Some(id));
        let members = batches.flat_map(|(&number, batch)| {
            (0..=u16::MAX).take(batch.entries.len()).map(move |index| (number, index))
        });
        Some(members.collect())
    }

    pub(super) fn chunk_with(&self, batch: BatchId, index: u16) -> Option<ChunkId> {
        let holds = |piece: &MemoryChunk| piece.batch == batch && piece.members.contains(&index);
        self.chunks.iter().find(|(_, piece)| holds(piece)).map(|(&id, _)| id)
    }
}

/// The event by which a delivery is settled so.
#[expect(clippy::panic, reason = "what the table does not allow is a bug, found here")]
fn event_of(disposition: Disposition) -> Event {
    match disposition {
        Disposition::Retry { .. } => Event::Defer,
        Disposition::HandedBack { .. } => Event::HandBack,
        Disposition::Ended(State::Delivered) => Event::Accept,
        Disposition::Ended(State::Refused) => Event::Refuse,
        Disposition::Ended(State::Expired) | Disposition::TooLate => Event::Expire,
        Disposition::Ended(State::InDoubt) => Event::LoseAnswer,
        Disposition::Ended(State::Dead) => Event::Exhaust,
        Disposition::Ended(state) => panic!("no attempt ends as {state}"),
    }
}
