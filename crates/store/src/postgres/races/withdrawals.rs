//! The answers to cancellations: of one notification, a broadcast, a scope.

use notification::{BroadcastId, NotificationId, State};

use super::book::Book;
use crate::{CancelPage, CancelTarget, Cancelled, StoreError};

// === impl Book ===

impl Book {
    pub(super) fn cancelled(
        &mut self,
        target: CancelTarget,
        called: u64,
        answer: Result<Option<Cancelled>, StoreError>,
    ) {
        let Some(said) = self.answer(answer) else { return };
        let Some(said) = said else {
            self.find(format!("{target:?} is not known, and was accepted"));
            return;
        };
        let Cancelled { cancelled, under_way, ended } = said;
        self.cancelled += cancelled;
        match target {
            CancelTarget::Notification(id) => {
                if cancelled + under_way + ended != 1 {
                    self.find(format!("{id} is one, and {said:?}"));
                }
                if cancelled == 1 {
                    self.end(id, State::Cancelled);
                } else if ended == 1 && self.taken_back.get(&id).is_none_or(|it| it.last < called) {
                    self.too_late.insert(id);
                }
            }
            CancelTarget::Broadcast(id) => {
                let broadcast = self.broadcasts.entry(id).or_default();
                broadcast.cancelled += cancelled;
                let size = broadcast.sealed;
                if size.is_some_and(|size| size != cancelled + under_way + ended) {
                    self.find(format!("{id} has {size:?}, and {said:?}"));
                }
            }
        }
    }

    /// The answers about a scope, in order.
    pub(super) fn scope_cancelled(&mut self, answers: Vec<Result<Option<CancelPage>, StoreError>>) {
        self.met_a_scope = true;
        for answer in answers {
            match self.answer(answer) {
                Some(Some(page)) => self.cancelled += page.cancelled,
                Some(None) => self.find("a scope is not known, and is no broadcast".to_owned()),
                None => {}
            }
        }
    }

    /// The answer about one member of a broadcast.
    pub(super) fn member_cancelled(
        &mut self,
        broadcast: BroadcastId,
        id: NotificationId,
        called: u64,
        answer: Result<Option<Cancelled>, StoreError>,
    ) {
        if let Ok(Some(said)) = answer {
            self.broadcasts.entry(broadcast).or_default().cancelled += said.cancelled;
        }
        self.cancelled(CancelTarget::Notification(id), called, answer);
    }
}
