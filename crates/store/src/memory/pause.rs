//! Pauses.

use std::sync::Arc;

use notification::{BroadcastId, Envelope, Name, Pause, Scope, limits};

use super::books::Books;
use crate::Paused;
use crate::rows::paused::PUT_AWAY;

impl Books {
    pub(super) fn pause(&mut self, pause: Pause) -> Paused {
        let known = self.pauses.since(&pause.tenant, &pause.scope);
        if known.is_none() && self.pauses.len() >= limits::PAUSES {
            return Paused::TooMany;
        }
        if let Scope::Broadcast(id) = &pause.scope
            && self.broadcast(*id).is_none_or(|status| status.tenant != pause.tenant)
        {
            return Paused::Unknown;
        }
        let since = known.unwrap_or(pause.since);
        if known.is_none() {
            self.pauses = Arc::new(self.pauses.iter().chain([pause]).collect());
        }
        Paused::InForce { since, is_everywhere: true }
    }

    pub(super) fn resume(&mut self, tenant: &Name, scope: &Scope) -> bool {
        let was_paused = self.pauses.since(tenant, scope).is_some();
        let rest = self.pauses.iter().filter(|it| (&it.tenant, &it.scope) != (tenant, scope));
        self.pauses = Arc::new(rest.collect());
        if let Scope::Broadcast(id) = scope
            && was_paused
        {
            self.fetch_back(*id);
        }
        was_paused
    }

    /// Makes the chunks of a broadcast due again that were put away.
    fn fetch_back(&mut self, id: BroadcastId) {
        for piece in self.chunks.values_mut().filter(|piece| piece.lease_until.is_none()) {
            let Some(batch) = self.batches.get(&piece.batch) else { continue };
            let Envelope { broadcast, due_at, expires_at, .. } = batch.envelope;
            let until = expires_at.map_or(PUT_AWAY, |expires_at| expires_at.min(PUT_AWAY));
            if broadcast == Some(id) && piece.due_at >= until {
                piece.due_at = due_at;
            }
        }
    }
}
