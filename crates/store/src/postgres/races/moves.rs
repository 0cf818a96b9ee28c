//! Calls that give what waits another time, and their answers.

use notification::{BroadcastId, NotificationId, Timestamp};

use super::super::reschedule;
use super::book::Book;
use super::calls::{Call, Caller, Heard, LEASE};
use super::cluster::WRITERS;
use crate::conformance::{at, name};
use crate::{CancelTarget, Reschedule, RescheduleCounts, Rescheduled, StoreError};

/// The time that a notification was given.
#[derive(Debug, Default)]
pub(super) struct GivenTime {
    under_way: usize,
    /// Moment of the last such call, or of its answer.
    last: u64,
    /// The time, and when it was answered, if no other call can have given it another one.
    said: Option<(Timestamp, u64)>,
}

/// The times that calls give, from now on, milliseconds: one that has passed, and some that pass within a schedule or do not.
const AHEAD: [i64; 4] = [-1, 10, 20_000, 90_000];

// === impl Caller ===

impl Caller<'_> {
    /// Gives one that was accepted another time, mostly one that waits, or a broadcast.
    pub(super) fn reschedule(&mut self, engine: usize) -> Option<Call> {
        let now = self.book.now;
        let send_at = at(now + *self.pick(&AHEAD)?);
        let request = |target| Reschedule { target, tenant: name("tenant"), send_at, now: at(now) };
        if let Some(id) = self.sealed()
            && self.random.bool()
        {
            let (handle, request) =
                (self.engines[engine].work.clone(), request(CancelTarget::Broadcast(id)));
            let answer = Box::pin(async move {
                let answer = handle.reschedule_broadcast(id, request).await;
                Box::new(move |book: &mut Book| book.all_moved(id, answer)) as Heard
            });
            let words = format!("reschedule {id} to {send_at}");
            return Some(Call { actor: engine * WRITERS + 1, words, answer });
        }
        let mut known: Vec<_> = self.book.accepted.iter().copied().collect();
        if self.random.u8(..4) > 0 {
            known.retain(|id| self.book.may_be_ready(*id));
        }
        let id = *self.pick(&known)?;
        let request = request(CancelTarget::Notification(id));
        let (called, due_at) = (self.book.moving(id), request.due_at());
        let request = reschedule::RescheduleNotification { id, request };
        let words = format!("reschedule {id} to {send_at}");
        Some(self.work(engine, words, request, move |book, answer| {
            book.moved((id, due_at), called, answer);
        }))
    }
}

// === impl Book ===

impl Book {
    /// A call is made that may give `id` another time: when.
    fn moving(&mut self, id: NotificationId) -> u64 {
        let moment = self.call();
        let given = self.given.entry(id).or_default();
        (given.under_way, given.last, given.said) = (given.under_way + 1, moment, None);
        moment
    }

    fn moved(
        &mut self,
        (id, due_at): (NotificationId, Timestamp),
        called: u64,
        answer: Result<Rescheduled, StoreError>,
    ) {
        let moment = self.call();
        let is_sent_again = self.may_be_taken_back(id)
            || self.taken_back.get(&id).is_some_and(|taken_back| taken_back.last > called);
        let given = self.given.entry(id).or_default();
        let is_alone = given.under_way == 1 && given.last == called && !is_sent_again;
        (given.under_way, given.last) = (given.under_way.saturating_sub(1), moment);
        match self.answer(answer) {
            Some(Rescheduled::Counted(RescheduleCounts::ONE)) => {
                if let Some((state, said)) = self.ended.get(&id)
                    && *said < called
                    && !is_sent_again
                {
                    let finding = format!("{id} has a new time, and was said to be {state:?}");
                    self.findings.push(finding);
                }
                let given = self.given.entry(id).or_default();
                given.said = is_alone.then_some((due_at, moment));
            }
            Some(Rescheduled::Expired { expires_at }) if expires_at <= due_at => {}
            Some(Rescheduled::Counted(
                RescheduleCounts::ONE_UNDER_WAY | RescheduleCounts::ONE_ENDED,
            ))
            | None => {}
            Some(other) => self.find(format!("{id} is one, accepted, and no part: {other:?}")),
        }
    }

    /// A notification is claimed by a call made at `called` under this lease: it must be due, if it was given another time before.
    pub(super) fn check_time(&mut self, id: NotificationId, called: u64, lease_until: Timestamp) {
        let said = self.given.get(&id).and_then(|given| given.said);
        if let Some((due_at, said)) = said
            && said < called
            && due_at > lease_until.minus(LEASE)
        {
            self.find(format!("{id} is claimed before {due_at}, its new time"));
        }
    }

    /// A call is made that may send `id` again, whatever its time was.
    pub(super) fn forget_time(&mut self, id: NotificationId) {
        if let Some(given) = self.given.get_mut(&id) {
            given.said = None;
        }
    }

    fn all_moved(&mut self, id: BroadcastId, answer: Result<Rescheduled, StoreError>) {
        let Some(said) = self.answer(answer) else { return };
        let size = self.broadcasts.entry(id).or_default().sealed;
        match said {
            Rescheduled::Counted(RescheduleCounts { rescheduled, under_way, ended }) => {
                if size.is_some_and(|size| size != rescheduled + under_way + ended) {
                    self.find(format!("{id} has {size:?}, and {said:?}"));
                }
            }
            Rescheduled::Overtaken => {}
            Rescheduled::Expired { .. } | Rescheduled::NotYet | Rescheduled::Unknown => {
                self.find(format!("{id} is sealed, and {said:?}"));
            }
        }
    }
}
