//! Calls that take an end back, and their answers: a requeue, and a resolution of what is in doubt.

use notification::{Chunk, Disposition, Guarantee, NotificationId, State};

use super::super::resolve;
use super::book::Book;
use super::calls::{Call, Caller};
use crate::conformance::{at, name};
use crate::{Requeued, Resolution, Resolved};

/// Calls that took the end of a notification back: that sent it again, or resolved it.
#[derive(Debug, Default)]
pub(super) struct TakenBack {
    pub(super) under_way: usize,
    /// Moment of the last such call, or of its answer.
    pub(super) last: u64,
    /// Number of answers that an end is taken back.
    pub(super) done: usize,
    /// Its ends after which it was said to have ended again, while the call that sent it again was under way.
    pub(super) ahead: usize,
    /// Its ends that were not said when it was said to be sent again: they are answered later, or never.
    pub(super) behind: usize,
}

// === impl Caller ===

impl Caller<'_> {
    /// Settles something that was claimed as in doubt.
    pub(super) fn doubt(&mut self, held: (usize, Chunk, Vec<u16>)) -> Option<Call> {
        let is_once = held.1.envelope.guarantee == Guarantee::AtMostOnce;
        is_once.then(|| self.settle(held, Some(Disposition::Ended(State::InDoubt)))).flatten()
    }

    /// Resolves a notification that is in doubt by an answer, or any other now and then; often one that another call resolves or
    /// sends again.
    pub(super) fn resolve(&mut self, engine: usize) -> Option<Call> {
        let ended = self.book.ended.iter().filter(|(_, (state, _))| *state == State::InDoubt);
        let mut known: Vec<_> = ended.map(|(id, _)| *id).collect();
        let contested: Vec<_> =
            known.iter().copied().filter(|id| self.book.may_be_taken_back(*id)).collect();
        if known.is_empty() || self.random.u8(..6) == 0 {
            known = self.book.seen();
        } else if !contested.is_empty() && self.random.bool() {
            known = contested;
        }
        let id = *self.pick(&known)?;
        let state = *self.pick(&[State::Delivered, State::Dead])?;
        let request = resolve::ResolveNotifications {
            ids: vec![id],
            resolution: Resolution::new(state, "asked").unwrap(),
            tenant: name("tenant"),
            now: at(self.book.now),
        };
        let called = self.book.taking_back(id);
        Some(self.work(engine, format!("resolve {id} as {state}"), request, move |book, answer| {
            let answer = book.answer(answer).and_then(|answers| answers.first().copied());
            book.resolved((id, state), called, answer);
        }))
    }
}

// === impl Book ===

impl Book {
    /// A call is made that sends `id` again, or resolves it: when.
    pub(super) fn taking_back(&mut self, id: NotificationId) -> u64 {
        let moment = self.call();
        self.forget_time(id);
        let taken_back = self.taken_back.entry(id).or_default();
        (taken_back.under_way, taken_back.last) = (taken_back.under_way + 1, moment);
        moment
    }

    /// Such a call, made at `called`, is answered: whether it was the only one meanwhile, and the moment.
    fn taken_back(&mut self, id: NotificationId, called: u64) -> (bool, u64) {
        let moment = self.call();
        let taken_back = self.taken_back.entry(id).or_default();
        let is_alone = taken_back.under_way == 1 && taken_back.last == called;
        (taken_back.under_way, taken_back.last) = (taken_back.under_way.saturating_sub(1), moment);
        (is_alone, moment)
    }

    /// The answer to a call that sends `id` again.
    pub(super) fn requeued(&mut self, id: NotificationId, called: u64, answer: Option<Requeued>) {
        let (is_alone, _) = self.taken_back(id, called);
        let had_ended = is_alone && self.ended.get(&id).is_some_and(|ended| ended.1 < called);
        match answer {
            Some(Requeued::Requeued) => {}
            Some(Requeued::Unknown) => return self.find(format!("{id} is said to be unknown")),
            Some(Requeued::OtherState) if had_ended && self.ended[&id].0.may_be_requeued() => {
                let state = self.ended[&id].0;
                return self
                    .find(format!("{id} is said not to be {state}, and was said to be before"));
            }
            Some(Requeued::NotYet) if self.accepted.contains(&id) => {
                return self.find(format!("{id} is said to wait, and is of no broadcast"));
            }
            Some(
                Requeued::OtherState
                | Requeued::NotYet
                | Requeued::Expired
                | Requeued::ContentRemoved,
            )
            | None => return,
        }
        let taken_back = self.taken_back.entry(id).or_default();
        taken_back.done += 1;
        self.begun.remove(&id);
        self.too_late.remove(&id);
        if self.unordered.contains(&id) {
            return;
        }
        if taken_back.ahead > 0 {
            taken_back.ahead -= 1;
            return;
        }
        match self.ended.remove(&id) {
            Some((state, said)) if !state.may_be_requeued() && said < called => {
                self.find(format!("{id} was sent again, and was said to be {state:?} before"));
            }
            Some(_) => {}
            None => taken_back.behind += 1,
        }
    }

    /// True if a call without an answer may have taken the end of `id` back.
    pub(super) fn may_be_taken_back(&self, id: NotificationId) -> bool {
        self.taken_back.get(&id).is_some_and(|taken_back| taken_back.under_way > 0)
    }

    /// The answer to a resolution of `id` as `state` that was made at `called`.
    fn resolved(
        &mut self,
        (id, state): (NotificationId, State),
        called: u64,
        answer: Option<Resolved>,
    ) {
        let is_settling = self.is_settling(id);
        let (is_alone, moment) = self.taken_back(id, called);
        let known = self.ended.get(&id).filter(|(_, said)| *said < called).map(|ended| ended.0);
        match answer {
            Some(Resolved::Resolved) => {}
            Some(Resolved::Unknown) => return self.find(format!("{id} is said to be unknown")),
            Some(Resolved::OtherState) if is_alone && known == Some(State::InDoubt) => {
                return self
                    .find(format!("{id} is said not to be in doubt, and was said to be before"));
            }
            Some(Resolved::OtherState) | None => return,
        }
        let taken_back = self.taken_back.entry(id).or_default();
        taken_back.done += 1;
        if !is_alone || is_settling || taken_back.is_ahead_or_behind() {
            // Answers come in another order than what they say has happened in: of two ends the last one is not known.
            self.unordered.insert(id);
            self.ended.remove(&id);
            return;
        }
        if let Some(before) = known.filter(|before| *before != State::InDoubt) {
            self.find(format!("{id} was resolved, and was said to be {before:?} before"));
        }
        self.ended.insert(id, (state, moment));
    }

    /// True if the answer to a settlement that may have ended `id` is still to come.
    fn is_settling(&self, id: NotificationId) -> bool {
        self.held.iter().any(|held| held.chunk.batch == id.batch() && held.settling > 0)
    }
}

// === impl TakenBack ===

impl TakenBack {
    /// True if an end was said before or after that it was taken back, and not in the order in which it happened.
    fn is_ahead_or_behind(&self) -> bool {
        self.ahead > 0 || self.behind > 0
    }
}
