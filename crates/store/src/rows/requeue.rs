//! Notifications that ended undelivered and are sent again: their entries in the log, and the conditions.

use std::collections::{BTreeMap, BTreeSet};

use notification::{BatchId, NotificationId, State, Timestamp};

use super::codec::{LogGroup, LogLine, LogRow};
use super::members::Members;
use super::release::{WaitingState, without};
use super::removal::erased;
use crate::{Attempted, Requeued, StoreError};

/// A request by batch: places in the request, and members.
pub(crate) type MembersByBatch = BTreeMap<BatchId, Vec<(usize, NotificationId)>>;

/// A batch of which something is to be requeued, resolved or rescheduled.
#[derive(Debug)]
pub(crate) struct EndedBatch {
    /// Number of the store that has it: a part of its members' identifiers, like the instant of their acceptance.
    pub(crate) store_id: u16,
    pub(crate) id: BatchId,
    pub(crate) accepted_at: Timestamp,
    pub(crate) expires_at: Option<Timestamp>,
    pub(crate) count: u16,
    /// Members whose contents were removed.
    pub(crate) without_content: Members,
    /// Set while it is part of a broadcast and has no chunk yet.
    pub(crate) waiting: Option<WaitingState>,
    /// All entries of the log for it.
    pub(crate) log: Vec<LogGroup>,
}

/// Members that are pending again, by the state that they stood in; none of them twice.
#[derive(Debug, Default)]
pub(crate) struct RequeuedMembers {
    by_state: BTreeMap<State, Members>,
}

/// Balance of each member's ends in states from which it may be requeued, less those that were taken back: by a requeue, or by a
/// resolution. They are counted, since a log that is read by several transactions has no order to rely on.
#[derive(Debug, Default)]
pub(crate) struct EndCounts(BTreeMap<(State, u16), i32>);

/// The log's word for a requeue, by the state that it takes back.
const REQUEUED: [(State, &str); 4] = [
    (State::Dead, "requeued"),
    (State::Cancelled, "requeued, after it was cancelled"),
    (State::Refused, "requeued, after it was refused"),
    (State::InDoubt, "requeued, although it may have arrived"),
];

/// The log's word for a doubt that is taken back without a requeue: the end that an operator found out takes its place.
pub(super) const NO_LONGER_IN_DOUBT: &str = "no longer in doubt";

/// The notifications by batch, in the order of the batches.
pub(crate) fn by_batch(ids: &[NotificationId]) -> MembersByBatch {
    let mut asked = MembersByBatch::new();
    for (place, &id) in ids.iter().enumerate() {
        asked.entry(id.batch()).or_default().push((place, id));
    }
    asked
}

/// Members of a batch of `count` that have no content: all if its contents were `removed`, and else those that were erased, if it has
/// `items` to look for them.
pub(crate) fn without_content(
    count: u16,
    removed: bool,
    items: Option<Vec<u8>>,
) -> Result<Members, StoreError> {
    match items {
        _ if removed => Ok(Members::all(count.into())),
        None => Ok(Members::default()),
        Some(items) => erased(items.into(), count),
    }
}

/// The line of the log for members that stood in `state` and are requeued.
pub(crate) fn log_line(state: State, now: Timestamp) -> LogLine<'static> {
    let detail = REQUEUED.iter().find(|(from, _)| *from == state).map_or("", |(_, word)| word);
    LogLine { detail, ..LogLine::unattempted(now, State::Pending) }
}

// === impl EndedBatch ===

impl EndedBatch {
    /// Answers the requests for this batch, for members that are in one of `states`; returns those that are pending from now on.
    pub(crate) fn answer(
        &self,
        states: &BTreeSet<State>,
        now: Timestamp,
        asked: &[(usize, NotificationId)],
        answers: &mut [Requeued],
    ) -> RequeuedMembers {
        let mut ended = self.ended();
        ended.retain(|state, _| states.contains(state));
        let mut returned = RequeuedMembers::default();
        for &(place, id) in asked {
            let index = id.index();
            let stood_in = ended.iter().find(|(_, members)| members.contains(index));
            let answer = match stood_in {
                _ if !self.has(id) => Requeued::Unknown,
                Some(_) if self.without_content.contains(index) => Requeued::ContentRemoved,
                Some(_) if self.expires_at.is_some_and(|expires_at| expires_at <= now) => {
                    Requeued::Expired
                }
                // Until its batch has passed its slice, it must have no chunk.
                Some(_) if self.waiting.is_some() => Requeued::NotYet,
                Some((&state, _)) if returned.insert(state, index) => Requeued::Requeued,
                // It has not ended, or this is the second time in one request.
                _ => Requeued::OtherState,
            };
            if let Some(slot) = answers.get_mut(place) {
                *slot = answer;
            }
        }
        returned
    }

    /// True if `id` is that of a member. It also holds the store and the time of acceptance: one that does not fit was never given
    /// here.
    pub(super) fn has(&self, id: NotificationId) -> bool {
        let index = id.index();
        let same = NotificationId::new(self.accepted_at, self.store_id, self.id, index);
        same == id && index < self.count
    }

    /// Its members that ended in states from which they may be requeued, and were not requeued or resolved since.
    pub(super) fn ended(&self) -> BTreeMap<State, Members> {
        let mut ends = EndCounts::default();
        self.log.iter().for_each(|group| ends.add(group));
        let mut ended = BTreeMap::<State, Members>::new();
        for (state, index, _) in ends.iter().filter(|(.., ends)| *ends > 0) {
            ended.entry(state).or_default().insert(index);
        }
        // Once a broadcast is withdrawn, its waiting members are cancelled, though the log has no lines for them yet.
        if let Some(waiting) = self.waiting
            && waiting.state() == State::Cancelled
        {
            let cancelled = ended.entry(State::Cancelled).or_default();
            let unsaid = without(self.count.into(), &self.log);
            unsaid.iter().for_each(|index| _ = cancelled.insert(index));
        }
        ended
    }
}

// === impl RequeuedMembers ===

impl RequeuedMembers {
    /// False when it is there.
    fn insert(&mut self, state: State, index: u16) -> bool {
        self.by_state.entry(state).or_default().insert(index)
    }

    /// Members by the state that they were in.
    pub(crate) fn by_state(&self) -> impl Iterator<Item = (State, &Members)> {
        self.by_state.iter().map(|(state, members)| (*state, members))
    }

    /// The row of the log.
    pub(crate) fn log_row(&self, now: Timestamp) -> LogRow {
        let mut row = LogRow::new();
        for (state, members) in self.by_state() {
            row.push(&log_line(state, now), members.iter());
        }
        row
    }

    /// All of them.
    pub(crate) fn into_members(self) -> Members {
        self.by_state.values().flat_map(Members::iter).collect()
    }
}

// === impl EndCounts ===

impl EndCounts {
    /// Counts an entry of the log.
    pub(crate) fn add(&mut self, group: &LogGroup) {
        let (state, change) = match group.attempted.taken_back() {
            Some(state) => (state, -1),
            None if group.attempted.state.may_be_requeued() => (group.attempted.state, 1),
            None => return,
        };
        for &index in &group.indexes {
            *self.0.entry((state, index)).or_default() += change;
        }
    }

    /// Number of times, by state and member, that a member ended in it more often than that was taken back.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (State, u16, i32)> {
        self.0.iter().map(|(&(state, index), &ends)| (state, index, ends))
    }

    /// Members that ended in one of these states, which was not taken back since.
    pub(crate) fn members(&self) -> Members {
        self.iter().filter(|(.., ends)| *ends > 0).map(|(_, index, _)| index).collect()
    }
}

// === impl Attempted ===

impl Attempted {
    /// State of the end that this entry takes back, if it is a requeue or the first line of a resolution: one that is pending
    /// after an attempt has the attempt's number.
    pub(crate) fn taken_back(&self) -> Option<State> {
        let takes_back = self.state == State::Pending && self.attempt == 0;
        let words = REQUEUED.into_iter().chain([(State::InDoubt, NO_LONGER_IN_DOUBT)]);
        let said = words.into_iter().find(|(_, word)| *word == self.detail);
        takes_back.then(|| said.map_or(State::Dead, |(state, _)| state))
    }
}

/// Puts the end of a notification that has no chunk last, where it is read. The log of several processes is in the order of their
/// transactions' numbers, and a transaction may have its number before another one and write after it: a requeue and a later
/// cancellation may stand there in reverse. The end is therefore found by counting: an end that nothing takes back is final,
/// and else it is of the state in which it ended more often than that was taken back.
pub(crate) fn put_end_last(attempts: &mut Vec<Attempted>) {
    let is_final = |it: &Attempted| it.state.is_terminal() && !it.state.may_be_requeued();
    let stays = |state: State| {
        let ends = attempts.iter().filter(|it| it.state == state).count();
        let taken_back = attempts.iter().filter(|it| it.taken_back() == Some(state)).count();
        ends > taken_back
    };
    let is_left = REQUEUED.map(|(state, _)| state).into_iter().find(|state| stays(*state));
    let end = attempts.iter().rposition(is_final);
    let end = end.or_else(|| attempts.iter().rposition(|it| Some(it.state) == is_left));
    if let Some(end) = end {
        let end = attempts.remove(end);
        attempts.push(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempted(state: State, attempt: u16) -> Attempted {
        Attempted { attempt, ..LogLine::unattempted(Timestamp::from_millis(0), state).into() }
    }

    fn requeued(from: State) -> Attempted {
        log_line(from, Timestamp::from_millis(0)).into()
    }

    #[test]
    fn the_end_is_last_in_whatever_order_the_log_has_it() {
        let last = |lines: &[&Attempted]| {
            let mut attempts: Vec<Attempted> = lines.iter().copied().cloned().collect();
            put_end_last(&mut attempts);
            attempts.last().map(|it| it.state)
        };
        let dead = &attempted(State::Dead, 1);
        let (deferred, cancelled) =
            (&attempted(State::Pending, 1), &attempted(State::Cancelled, 0));
        let [of_dead, of_cancelled] = &[State::Dead, State::Cancelled].map(requeued);
        assert_eq!(last(&[dead, cancelled, of_dead]), Some(State::Cancelled));
        assert_eq!(last(&[of_dead, dead, cancelled]), Some(State::Cancelled));
        assert_eq!(last(&[dead, dead, of_dead]), Some(State::Dead));
        assert_eq!(last(&[deferred, dead]), Some(State::Dead));
        assert_eq!(last(&[dead, of_dead]), Some(State::Pending), "it has not ended");
        assert_eq!(last(&[cancelled, dead, of_cancelled]), Some(State::Dead));
        assert_eq!(last(&[dead, cancelled, of_cancelled, of_dead]), Some(State::Pending));
        let delivered = &attempted(State::Delivered, 1);
        assert_eq!(last(&[delivered, cancelled, of_cancelled]), Some(State::Delivered));
        assert_eq!(last(&[]), None);
    }

    #[test]
    fn ends_are_counted_by_member_and_state() {
        let (mut ends, cancelled) = (EndCounts::default(), attempted(State::Cancelled, 0));
        let group = |attempted: &Attempted, indexes: &[u16]| LogGroup {
            attempted: attempted.clone(),
            indexes: indexes.to_vec(),
        };
        ends.add(&group(&requeued(State::Cancelled), &[2, 3]));
        ends.add(&group(&cancelled, &[1, 2]));
        ends.add(&group(&cancelled, &[2]));
        ends.add(&group(&attempted(State::Dead, 1), &[3]));
        let (of_cancelled, of_dead) = (State::Cancelled, State::Dead);
        let expect = [(of_cancelled, 1, 1), (of_cancelled, 2, 1), (of_cancelled, 3, -1)];
        assert_eq!(ends.iter().collect::<Vec<_>>(), [&expect[..], &[(of_dead, 3, 1)]].concat());
        assert_eq!(ends.members().iter().collect::<Vec<_>>(), [1, 2, 3]);
    }
}
