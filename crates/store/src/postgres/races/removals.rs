//! Calls that remove something of what has ended.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::super::{erase, prune};
use super::calls::{Call, Caller};
use crate::conformance::{at, name};
use crate::{Erased, Lifetimes, Retention, TenantRetention};

impl Caller<'_> {
    /// Removes the contents of all that has ended, an hour later: batches that are young are left alone.
    pub(super) fn prune(&mut self, engine: usize) -> Call {
        let lifetimes = Lifetimes { content: Some(Duration::ZERO), ..Lifetimes::FOR_EVER };
        let default = TenantRetention { lifetimes, by_state: BTreeMap::new() };
        let retention = Arc::new(Retention { default, ..Retention::for_ever() });
        let now = at(self.book.now).plus(Duration::from_hours(1));
        let request = prune::PruneRows { retention, now };
        self.work(engine, "remove contents".to_owned(), request, |book, answer| {
            book.answer(answer);
        })
    }

    /// Erases one that was accepted.
    pub(super) fn erase(&mut self, engine: usize) -> Option<Call> {
        let accepted: Vec<_> = self.book.accepted.iter().copied().collect();
        let ids = vec![*self.pick(&accepted)?];
        let (id, tenant) = (ids[0], name("tenant"));
        let request = erase::EraseNotifications { ids, tenant };
        Some(self.work(engine, format!("erase {id}"), request, move |book, answer| {
            let answer = book.answer(answer).and_then(|answers| answers.first().copied());
            if answer == Some(Erased::Erased) {
                book.erased.insert(id);
            }
        }))
    }
}
