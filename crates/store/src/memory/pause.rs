//! Pauses.

use std::sync::Arc;

use notification::{Name, Pause, PauseScope, limits};

use super::books::Books;
use crate::Paused;

impl Books {
    pub(super) fn pause(&mut self, pause: Pause) -> Paused {
        let known = self.pauses.since(&pause.tenant, &pause.scope);
        if known.is_none() && self.pauses.len() >= limits::PAUSES {
            return Paused::TooMany;
        }
        let since = known.unwrap_or(pause.since);
        if known.is_none() {
            self.pauses = Arc::new(self.pauses.iter().chain([pause]).collect());
        }
        Paused::InForce { since, is_everywhere: true }
    }

    pub(super) fn resume(&mut self, tenant: &Name, scope: &PauseScope) -> bool {
        let was_paused = self.pauses.since(tenant, scope).is_some();
        let rest = self.pauses.iter().filter(|it| (&it.tenant, &it.scope) != (tenant, scope));
        self.pauses = Arc::new(rest.collect());
        was_paused
    }
}
