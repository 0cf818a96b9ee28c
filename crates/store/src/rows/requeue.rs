//! Dead notifications that are sent again: what the log says of them, and which may be.

use std::collections::BTreeMap;

use notification::{BatchId, NotificationId, State, Timestamp};

use super::codec::{LogGroup, LogLine, LogRow};
use super::members::Members;
use crate::{Attempted, Requeued};

/// A request by batch: places in the request, and members.
pub(crate) type MembersByBatch = BTreeMap<BatchId, Vec<(usize, NotificationId)>>;

/// A batch of which something is to be requeued.
#[derive(Debug)]
pub(crate) struct Owned {
    pub(crate) id: BatchId,
    pub(crate) accepted_at: Timestamp,
    pub(crate) expires_at: Option<Timestamp>,
    pub(crate) count: u16,
    /// Its dead members, by the log.
    pub(crate) dead: Members,
}

/// Members that died and were requeued, counted; a log that is read by several transactions has no order to rely on.
#[derive(Debug, Default)]
pub(crate) struct Deaths {
    balance: BTreeMap<u16, i32>,
}

/// By batch, in the order of the batches.
pub(crate) fn by_batch(ids: &[NotificationId]) -> MembersByBatch {
    let mut asked = MembersByBatch::new();
    for (place, &id) in ids.iter().enumerate() {
        asked.entry(id.batch()).or_default().push((place, id));
    }
    asked
}

/// The row of the log for requeued members.
pub(crate) fn log_row(members: &Members, now: Timestamp) -> LogRow {
    let mut row = LogRow::new();
    let line = LogLine { detail: "requeued", ..LogLine::unattempted(now, State::Pending) };
    row.push(&line, members.iter());
    row
}

// === impl Owned ===

impl Owned {
    /// Answers what is asked of this batch; returns the members that are pending from now on.
    pub(crate) fn answer(
        &self,
        store_id: u16,
        now: Timestamp,
        asked: &[(usize, NotificationId)],
        answers: &mut [Requeued],
    ) -> Members {
        let mut members = Members::default();
        for &(place, id) in asked {
            let index = id.index();
            // An id also tells the store and the time of acceptance: one that does not fit was never given here.
            let same = NotificationId::new(self.accepted_at, store_id, self.id, index);
            let answer = if same != id || index >= self.count {
                Requeued::Unknown
            } else if !self.dead.contains(index) {
                Requeued::NotDead
            } else if self.expires_at.is_some_and(|expires_at| expires_at <= now) {
                Requeued::Expired
            } else if members.insert(index) {
                Requeued::Requeued
            } else {
                // The second time in one request.
                Requeued::NotDead
            };
            if let Some(slot) = answers.get_mut(place) {
                *slot = answer;
            }
        }
        members
    }
}

// === impl Deaths ===

impl Deaths {
    /// Counts what a line of the log says.
    pub(crate) fn add(&mut self, group: &LogGroup) {
        let change = match (group.attempted.state == State::Dead, group.attempted.is_requeue()) {
            (true, _) => 1,
            (false, true) => -1,
            (false, false) => return,
        };
        for &index in &group.indexes {
            *self.balance.entry(index).or_default() += change;
        }
    }

    /// How many times more than it was requeued each member died.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u16, i32)> {
        self.balance.iter().map(|(&index, &deaths)| (index, deaths))
    }

    /// Those that are dead.
    pub(crate) fn members(&self) -> Members {
        self.iter().filter(|(_, deaths)| *deaths > 0).map(|(index, _)| index).collect()
    }
}

// === impl Attempted ===

impl Attempted {
    /// Whether an operator sent it again: what is pending after an attempt has the attempt's number.
    pub(crate) fn is_requeue(&self) -> bool {
        self.state == State::Pending && self.attempt == 0
    }
}

/// Puts the end of a notification that has no chunk last, where it is read. The log of several processes is in the order of
/// their transactions' numbers, and a transaction may have its number before another one and write after it: what was
/// requeued and cancelled may stand there as cancelled and requeued. So the end is told by counting: one that is no death is
/// final, and so is the death that was not followed by a requeue.
pub(crate) fn put_end_last(attempts: &mut Vec<Attempted>) {
    let is_final = |it: &Attempted| it.state.is_terminal() && it.state != State::Dead;
    let last_death = attempts.iter().rposition(|it| it.state == State::Dead);
    let deaths = attempts.iter().filter(|it| it.state == State::Dead).count();
    let requeues = attempts.iter().filter(|it| it.is_requeue()).count();
    let end = attempts.iter().rposition(is_final);
    if let Some(end) = end.or(last_death.filter(|_| deaths > requeues)) {
        let end = attempts.remove(end);
        attempts.push(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_last_in_whatever_order_the_log_has_it() {
        let attempted = |(state, attempt): (State, u16)| Attempted {
            attempt,
            ..LogLine::unattempted(Timestamp::from_millis(0), state).into()
        };
        let last = |lines: &[(State, u16)]| {
            let mut attempts: Vec<Attempted> = lines.iter().copied().map(attempted).collect();
            put_end_last(&mut attempts);
            attempts.last().map(|it| it.state)
        };
        let (dead, requeued) = ((State::Dead, 1), (State::Pending, 0));
        let (deferred, cancelled) = ((State::Pending, 1), (State::Cancelled, 0));
        assert_eq!(last(&[dead, cancelled, requeued]), Some(State::Cancelled));
        assert_eq!(last(&[requeued, dead, cancelled]), Some(State::Cancelled));
        assert_eq!(last(&[dead, dead, requeued]), Some(State::Dead));
        assert_eq!(last(&[deferred, dead]), Some(State::Dead));
        assert_eq!(last(&[dead, requeued]), Some(State::Pending), "it has not ended");
        assert_eq!(last(&[]), None);
    }
}
