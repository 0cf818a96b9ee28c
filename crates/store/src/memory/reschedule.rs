//! Another time for what waits.

use std::collections::BTreeSet;

use notification::{BatchId, BroadcastId, NotificationId, State, Timestamp};

use super::books::Books;
use crate::{CancelTarget, Reschedule, RescheduleCounts, Rescheduled};

impl Books {
    pub(super) fn reschedule(&mut self, request: &Reschedule) -> Rescheduled {
        match request.target {
            CancelTarget::Notification(id) => self.reschedule_one(id, request),
            CancelTarget::Broadcast(id) => self.reschedule_broadcast(id, request),
        }
    }

    fn reschedule_one(&mut self, id: NotificationId, request: &Reschedule) -> Rescheduled {
        let Some((batch, index)) = self.place(id) else { return Rescheduled::Unknown };
        let envelope = &self.batch(batch).envelope;
        if envelope.lane.tenant != request.tenant {
            return Rescheduled::Unknown;
        }
        if let Some(refusal) = request.refusal(envelope.expires_at) {
            return refusal;
        }
        let (due_at, is_of_broadcast) = (request.due_at(), envelope.broadcast.is_some());
        let counts = self.move_member(batch, index, due_at);
        // Alone in its batch, it takes the batch along.
        if let Some(batch) = self.batches.get_mut(&batch)
            && counts.rescheduled > 0
            && batch.entries.len() == 1
            && !is_of_broadcast
        {
            batch.envelope.due_at = due_at;
        }
        Rescheduled::Counted(counts)
    }

    fn reschedule_broadcast(&mut self, id: BroadcastId, request: &Reschedule) -> Rescheduled {
        let of_tenant = self.broadcasts.get(&id).filter(|it| it.draft.tenant == request.tenant);
        let (Some(broadcast), Some(members)) = (of_tenant, self.members_of(id)) else {
            return Rescheduled::Unknown;
        };
        if let Some(refusal) = request.refusal(broadcast.draft.expires_at) {
            return refusal;
        }
        let (due_at, mut counted) = (request.due_at(), RescheduleCounts::default());
        let batches: BTreeSet<BatchId> = members.iter().map(|(batch, _)| *batch).collect();
        // Whole pieces, which stay apart even when they are due at one time now.
        for piece in self.chunks.values_mut().filter(|piece| batches.contains(&piece.batch)) {
            let count = piece.members.len() as u64;
            if piece.lease_until.is_some() {
                counted.under_way += count;
            } else {
                piece.due_at = due_at;
                counted.rescheduled += count;
            }
        }
        counted.ended = members.len() as u64 - counted.rescheduled - counted.under_way;
        if counted.rescheduled > 0 {
            if let Some(broadcast) = self.broadcasts.get_mut(&id) {
                broadcast.draft.due_at = due_at;
            }
            let batches = self.batches.values_mut();
            for batch in batches.filter(|batch| batch.envelope.broadcast == Some(id)) {
                batch.envelope.due_at = due_at;
            }
        }
        Rescheduled::Counted(counted)
    }

    /// Makes one member due at `due_at` if it waits; what became of it.
    fn move_member(&mut self, batch: BatchId, index: u16, due_at: Timestamp) -> RescheduleCounts {
        let state = self.entry(batch, index).state;
        if state.is_terminal() {
            return RescheduleCounts::ONE_ENDED;
        }
        if state != State::Pending {
            return RescheduleCounts::ONE_UNDER_WAY;
        }
        if let Some(id) = self.chunk_with(batch, index)
            && let Some(piece) = self.chunks.get(&id)
            && piece.due_at != due_at
        {
            let moved = piece.part(due_at, vec![index]);
            self.take_members(id, &[index]);
            self.due_again(moved);
        }
        RescheduleCounts::ONE
    }
}
