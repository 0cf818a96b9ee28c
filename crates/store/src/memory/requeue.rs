//! Notifications that ended undelivered and are sent again.

use std::collections::{BTreeMap, BTreeSet};

use notification::{BatchId, Event, Name, NotificationId, State, Timestamp};

use super::books::{Books, MemoryChunk};
use crate::Requeued;
use crate::rows::requeue::log_line;

impl Books {
    /// Sends those again that stand in one of `states`: what is sent again of a batch is one piece.
    pub(super) fn requeue(
        &mut self,
        ids: &[NotificationId],
        states: &BTreeSet<State>,
        tenant: &Name,
        now: Timestamp,
    ) -> Vec<Requeued> {
        let (mut answers, mut pieces) = (Vec::new(), BTreeMap::<BatchId, BTreeSet<u16>>::new());
        for &id in ids {
            let answer = self.take_back(id, states, tenant, now);
            if answer == Requeued::Requeued {
                pieces.entry(id.batch()).or_default().insert(id.index());
            }
            answers.push(answer);
        }
        for (batch, members) in pieces {
            self.add_piece(MemoryChunk::first(batch, now, members.into_iter().collect()));
        }
        answers
    }

    /// Takes the end of one back that stands in one of `states`.
    fn take_back(
        &mut self,
        id: NotificationId,
        states: &BTreeSet<State>,
        tenant: &Name,
        now: Timestamp,
    ) -> Requeued {
        let Some((batch, index)) = self.place(id) else { return Requeued::Unknown };
        let envelope = &self.batch(batch).envelope;
        if &envelope.lane.tenant != tenant {
            return Requeued::Unknown;
        }
        let is_expired = envelope.expires_at.is_some_and(|expires_at| expires_at <= now);
        let state = self.entry(batch, index).state;
        if !states.contains(&state) || !state.may_be_requeued() {
            return Requeued::OtherState;
        }
        let is_erased = self.recipient(batch, index).is_empty();
        if self.batch(batch).removed > 0 || is_erased {
            return Requeued::ContentRemoved;
        }
        if is_expired {
            return Requeued::Expired;
        }
        self.advance(batch, index, Event::Requeue);
        self.note(batch, index, log_line(state, now));
        Requeued::Requeued
    }
}
