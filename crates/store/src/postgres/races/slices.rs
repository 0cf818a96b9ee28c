//! Calls about many at once: the slices of a broadcast and its pause, and the cancellation of a scope.

use std::sync::Arc;

use notification::{BroadcastId, Pause, Pauses, Scope};

use super::super::{pause, release};
use super::book::Book;
use super::calls::{Call, Caller, Heard};
use super::cluster::WRITERS;
use crate::conformance::{at, name};
use crate::{CancelScope, Paused};

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
        let words = "make the next slice".to_owned();
        self.intake(engine, words, release::ReleaseSlice, |book, answer| {
            book.answer(answer);
        })
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

    /// Page by page, as a caller does that goes on until the end.
    pub(super) fn cancel_scope(&mut self, engine: usize) -> Option<Call> {
        const SCOPES: [&str; 4] =
            ["tenant", "channel/channel", "lane/channel/bulk/here", "lane/channel/normal/a"];
        let scope = self.pick(&SCOPES)?;
        let (handle, now) = (self.engines[engine].work.clone(), at(self.book.now));
        let mut request = CancelScope {
            tenant: name("tenant"),
            scope: scope.parse().expect("a scope"),
            from: None,
            is_dry: false,
            now,
        };
        let answer = Box::pin(async move {
            let mut answers = Vec::new();
            loop {
                let answer = handle.run(request.clone()).await;
                let next = answer.iter().flatten().find_map(|page| page.next.clone());
                answers.push(answer);
                if next.is_none() {
                    break;
                }
                request.from = next;
            }
            Box::new(move |book: &mut Book| book.scope_cancelled(answers)) as Heard
        });
        Some(Call { actor: engine * WRITERS + 1, words: format!("cancel {scope}"), answer })
    }
}
