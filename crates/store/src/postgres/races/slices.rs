//! Calls about what a broadcast has as a whole: its slices, and its pause.

use std::sync::Arc;

use notification::{BroadcastId, Pause, Pauses, Scope};

use super::super::{pause, release};
use super::calls::{Call, Caller};
use crate::Paused;
use crate::conformance::{at, name};

/// All of them, with or without the pause of a broadcast.
pub(super) fn with_pause(pauses: &Pauses, id: BroadcastId, is_paused: bool) -> Arc<Pauses> {
    let scope = Scope::Broadcast(id);
    let others = pauses.iter().filter(|pause| pause.scope != scope);
    let this =
        is_paused.then(|| Pause { tenant: name("tenant"), scope: scope.clone(), since: at(0) });
    Arc::new(others.chain(this).collect())
}

// === impl Caller ===

impl Caller<'_> {
    pub(super) fn release(&mut self, engine: usize) -> Call {
        self.intake(
            engine,
            "make the next slice".to_owned(),
            release::ReleaseSlice,
            |book, answer| {
                book.answer(answer);
            },
        )
    }

    pub(super) fn write_off(&mut self, engine: usize) -> Call {
        let words = "write the next slice off".to_owned();
        self.work(engine, words, release::LogWithdrawn, |book, answer| {
            book.answer(answer);
        })
    }

    /// Processes learn of it some time after it is committed, as by their beats.
    pub(super) fn pause(&mut self, engine: usize) -> Option<Call> {
        let id = self.sealed()?;
        let scope = Scope::Broadcast(id);
        let request = pause::AddPause(Pause { tenant: name("tenant"), scope, since: at(0) });
        let view = self.engines[engine].pauses.clone();
        Some(self.work(engine, format!("pause {id}"), request, move |book, answer| {
            if let Some((Paused::InForce { .. }, _)) = book.answer(answer) {
                view.send_modify(|pauses| *pauses = with_pause(pauses, id, true));
            }
        }))
    }

    /// Likewise.
    pub(super) fn resume(&mut self, engine: usize) -> Option<Call> {
        let id = self.sealed()?;
        let (tenant, scope) = (name("tenant"), Scope::Broadcast(id));
        let view = self.engines[engine].pauses.clone();
        let request = pause::EndPause { tenant, scope };
        Some(self.work(engine, format!("resume {id}"), request, move |book, answer| {
            if book.answer(answer).is_some() {
                view.send_modify(|pauses| *pauses = with_pause(pauses, id, false));
            }
        }))
    }
}
