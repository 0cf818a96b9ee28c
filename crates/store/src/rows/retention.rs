//! Retention of a batch: what may be removed of it, and when to look at it again.
//!
//! A batch is one row, so its members go together: a part of it is removed when the lifetime of the last of them is over.

use std::collections::BTreeMap;
use std::time::Duration;

use notification::{BatchId, Name, State, Timestamp};

use super::codec::LogGroup;
use super::codes::LaneId;
use super::requeue::EndCounts;
use crate::{RetainedPart, Retention};

/// A batch, as retention sees it.
#[derive(Debug)]
pub(crate) struct BatchToPrune {
    pub(crate) id: BatchId,
    pub(crate) lane: LaneId,
    pub(crate) tenant: Name,
    pub(crate) channel: Name,
    pub(crate) broadcast: Option<i64>,
    pub(crate) count: usize,
    /// Number of its parts that were removed.
    pub(crate) removed: u8,
    /// Due time of what is pending of it first; `None` when all of it has ended.
    pub(crate) pending: Option<Timestamp>,
    /// All entries of the log for it.
    pub(crate) log: Vec<LogGroup>,
}

/// The result of a look at a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PruneLook {
    /// This part is to be removed now, with those that go before it.
    Remove(RetainedPart),
    /// Nothing is due; another look is.
    Again(Timestamp),
    /// The part is gone already.
    Gone,
}

/// A walk over a table in the order of its key, which is begun anew each day.
#[derive(Debug)]
pub(crate) struct DailyWalk<K> {
    /// The last key that was looked at; `None` when no walk is under way.
    pub(crate) passed: Option<K>,
    pub(crate) begun_at: Timestamp,
}

/// Tenant and name of an idempotency key.
pub(crate) type KeyPlace = (String, String);

/// The first rows of a table in order of time, and how many of them are over.
#[derive(Debug)]
pub(crate) struct OldRows {
    /// Number of rows from the first on that may go. The last row of all is not among them.
    pub(crate) count: usize,
    /// True if more may go behind them.
    pub(crate) goes_on: bool,
    /// Time at which the next one may go.
    pub(crate) next_at: Option<Timestamp>,
}

/// Batches that one step looks at: some ten milliseconds.
pub(crate) const BATCHES_PER_STEP: usize = 256;
/// Bytes of items after which a step ends.
pub(crate) const BYTES_PER_STEP: usize = 2 * 1024 * 1024;
/// Idempotency keys, lanes, changes of the suppression list or rejects that one step looks at.
pub(crate) const ROWS_PER_STEP: usize = 512;
/// Time after which outcomes are looked at again that were due and had to stay: an audit needed them, or they have the last row of
/// the log.
pub(crate) const KEPT_FOR: Duration = Duration::from_secs(30);
/// Time between two walks over the idempotency keys or the lanes, from begin to begin, at least.
const WALKED_EVERY: Duration = Duration::from_hours(24);
/// Numbers of batches for which a lane is kept, from that of the batch on that is written to it: its row is changed once for as many,
/// at most.
pub(crate) const LANE_KEPT_FOR: u64 = 65_536;
/// A walk is behind the lifetime by an eighth of it, at most by this: so most batches have ended when it comes to them.
const BEHIND_MAX: Duration = Duration::from_hours(1);
/// Times between two looks at a batch.
const LOOK_AGAIN: (Duration, Duration) = (Duration::from_mins(1), Duration::from_hours(30 * 24));
/// Shortest time between two looks at a batch that is pending, where lifetimes are short.
const LOOK_AGAIN_SOONEST: Duration = Duration::from_secs(1);
/// Longest time between two looks at a batch that is pending: it may end long before the time for which it is scheduled.
const LOOK_AGAIN_PENDING: Duration = Duration::from_hours(24);

/// The time up to which batches must have been accepted so that a walk for `part` looks at them; `None` if it is kept for ever.
pub(crate) fn walk_until(
    retention: &Retention,
    part: RetainedPart,
    now: Timestamp,
) -> Option<Timestamp> {
    let lifetime = retention.shortest(part)?;
    Some(now.minus(lifetime.saturating_add((lifetime / 8).min(BEHIND_MAX))))
}

/// The time at which a batch that was accepted at `accepted_at` is looked at by the walk for `part`.
pub(crate) fn walked_at(
    retention: &Retention,
    part: RetainedPart,
    accepted_at: Timestamp,
) -> Option<Timestamp> {
    let lifetime = retention.shortest(part)?;
    Some(accepted_at.plus(lifetime.saturating_add((lifetime / 8).min(BEHIND_MAX))))
}

/// The state of the column `part` in the database.
pub(crate) const fn code(part: RetainedPart) -> u8 {
    match part {
        RetainedPart::Content => 0,
        RetainedPart::Recipient => 1,
        RetainedPart::Outcome => 2,
    }
}

/// Name of the walk for `part` in the database.
pub(crate) const fn walk_name(part: RetainedPart) -> &'static str {
    match part {
        RetainedPart::Content => "contents",
        RetainedPart::Recipient => "recipients",
        RetainedPart::Outcome => "outcomes",
    }
}

// === impl BatchToPrune ===

impl BatchToPrune {
    /// Looks whether `part` is to be removed.
    pub(crate) fn look(
        &self,
        retention: &Retention,
        part: RetainedPart,
        now: Timestamp,
    ) -> PruneLook {
        if self.removed > code(part) {
            return PruneLook::Gone;
        }
        let (shortest, longest) = LOOK_AGAIN;
        if let Some(due_at) = self.pending {
            let lifetime = retention.shortest(part).unwrap_or_default();
            let soonest = (lifetime / 8).clamp(LOOK_AGAIN_SOONEST, shortest);
            let wait = due_at.plus(lifetime).since(now).clamp(soonest, LOOK_AGAIN_PENDING);
            return PruneLook::Again(now.plus(wait));
        }
        if self.ends().is_none() {
            let batch = self.id.0;
            tracing::error!(
                batch,
                "not every notification of a batch has ended once: nothing of it is removed; run `belfry audit`"
            );
            return PruneLook::Again(now.plus(longest));
        }
        let is_over = |part: &RetainedPart| {
            self.over_at(retention, *part).is_some_and(|over_at| over_at <= now)
        };
        if is_over(&part) {
            let last = RetainedPart::ALL.into_iter().rev().find(is_over);
            return PruneLook::Remove(last.unwrap_or(part));
        }
        // Again and again on the way, and not at its end only: the lifetime may be changed to a shorter one.
        let left = self.over_at(retention, part).map_or(longest, |over_at| over_at.since(now));
        let wait = if left <= shortest * 4 { left } else { left / 4 };
        PruneLook::Again(now.plus(wait.clamp(shortest.min(left), longest)))
    }

    /// The number of members that ended, by state; `None` unless each member has ended exactly once.
    pub(crate) fn ends(&self) -> Option<BTreeMap<State, u64>> {
        let mut members = vec![0_u8; self.count];
        let mut ends = BTreeMap::new();
        let mut end = |state: State, index: u16| {
            *ends.entry(state).or_default() += 1;
            let member = members.get_mut(usize::from(index))?;
            *member = member.saturating_add(1);
            Some(())
        };
        let mut requeueable = EndCounts::default();
        for group in &self.log {
            requeueable.add(group);
            let state = group.attempted.state;
            if state.is_terminal() && !state.may_be_requeued() {
                for &index in &group.indexes {
                    end(state, index)?;
                }
            }
        }
        for (state, index, times) in requeueable.iter() {
            for _ in 0..times.max(0) {
                end(state, index)?;
            }
        }
        members.iter().all(|&times| times == 1).then_some(ends)
    }

    /// The time at which the lifetime of `part` is over for all members; `None` if it never is.
    fn over_at(&self, retention: &Retention, part: RetainedPart) -> Option<Timestamp> {
        let of_tenant = retention.of(&self.tenant);
        let mut over_at = Timestamp::from_millis(0);
        // Ends that were taken back count as well, which keeps a part too long rather than too short.
        for group in self.log.iter().filter(|group| group.attempted.state.is_terminal()) {
            let lifetime = of_tenant.lifetimes(group.attempted.state).of(part)?;
            over_at = over_at.max(group.attempted.at.plus(lifetime));
        }
        Some(over_at)
    }
}

// === impl OldRows ===

impl OldRows {
    /// Of the first rows of a table, of these times, one more than [`ROWS_PER_STEP`] if there are as many.
    pub(crate) fn of(times: &[Timestamp], lifetime: Duration, now: Timestamp) -> Self {
        let until = now.minus(lifetime);
        let old = times.iter().take_while(|at| **at <= until).count();
        let count = old.min(times.len().saturating_sub(1));
        let goes_on = count == ROWS_PER_STEP;
        let next = times.get(count).filter(|_| count + 1 < times.len());
        Self { count, goes_on, next_at: next.map(|at| at.plus(lifetime)) }
    }
}

// === impl DailyWalk ===

impl<K> DailyWalk<K> {
    /// No walk was begun yet.
    pub(crate) const NONE: Self = Self { passed: None, begun_at: Timestamp::from_millis(0) };

    /// Time at which the next walk begins, if none is under way and it is not time. Rows have a `lifetime`.
    pub(crate) fn waits_until(&self, lifetime: Duration, now: Timestamp) -> Option<Timestamp> {
        let next = self.begun_at.plus(WALKED_EVERY.min(lifetime));
        (self.passed.is_none() && next > now).then_some(next)
    }

    /// Notes that the rows up to `last` were looked at, or all; true if there may be more.
    pub(crate) fn pass(&mut self, last: Option<K>, now: Timestamp) -> bool {
        if self.passed.is_none() {
            self.begun_at = now;
        }
        self.passed = last;
        self.passed.is_some()
    }
}

#[cfg(test)]
mod tests {
    use notification::sample::name;

    use super::*;
    use crate::{Attempted, Lifetimes, TenantRetention};

    const DAY: Duration = Duration::from_hours(24);

    fn at(days: u32) -> Timestamp {
        Timestamp::from_millis(0).plus(DAY * days)
    }

    fn group(state: State, day: u32, indexes: &[u16]) -> LogGroup {
        let (status, detail) = (0, String::new());
        let attempted = Attempted { at: at(day), attempt: 1, state, status, detail };
        LogGroup { attempted, indexes: indexes.to_vec() }
    }

    fn batch(count: usize, log: Vec<LogGroup>) -> BatchToPrune {
        let (tenant, channel) = (name("tenant"), name("channel"));
        let (broadcast, removed, pending) = (None, 0, None);
        let (id, lane) = (BatchId(1), 1);
        BatchToPrune { id, lane, tenant, channel, broadcast, count, removed, pending, log }
    }

    /// Contents for 7 days, and 30 of those that are dead; recipients for 30 days, outcomes for 90.
    fn retention() -> Retention {
        let days = |content: u32| Lifetimes {
            content: Some(DAY * content),
            recipient: Some(DAY * 30),
            outcome: Some(DAY * 90),
        };
        let by_state = BTreeMap::from([(State::Dead, days(30))]);
        let default = TenantRetention { lifetimes: days(7), by_state };
        Retention { default, ..Retention::for_ever() }
    }

    #[test]
    fn a_part_goes_when_the_lifetime_of_its_last_member_is_over() {
        let log = vec![group(State::Delivered, 0, &[0, 2]), group(State::Dead, 1, &[1])];
        let batch = batch(3, log);
        let look = |part, day| batch.look(&retention(), part, at(day));
        let (content, recipient, outcome) =
            (RetainedPart::Content, RetainedPart::Recipient, RetainedPart::Outcome);
        assert!(
            matches!(look(content, 30), PruneLook::Again(_)),
            "one is dead since the first day"
        );
        assert_eq!(look(content, 31), PruneLook::Remove(recipient), "both are over");
        assert_eq!(look(content, 91), PruneLook::Remove(outcome));
        assert!(matches!(look(outcome, 90), PruneLook::Again(_)));
        let gone = BatchToPrune { removed: 1, ..batch };
        assert_eq!(gone.look(&retention(), content, at(31)), PruneLook::Gone);
        assert_eq!(gone.look(&retention(), recipient, at(31)), PruneLook::Remove(recipient));
    }

    #[test]
    fn what_is_pending_or_does_not_balance_stays() {
        let log = vec![group(State::Delivered, 0, &[0])];
        let waits = BatchToPrune { pending: Some(at(300)), ..batch(2, log.clone()) };
        let again = waits.look(&retention(), RetainedPart::Outcome, at(200));
        assert_eq!(again, PruneLook::Again(at(201)));
        let (lost, twice) = (batch(2, log.clone()), batch(1, [log.clone(), log].concat()));
        for damaged in [lost, twice, batch(1, Vec::new())] {
            assert_eq!(damaged.ends(), None);
            let look = damaged.look(&retention(), RetainedPart::Content, at(200));
            assert_eq!(look, PruneLook::Again(at(230)));
        }
    }

    #[test]
    fn ends_that_a_requeue_took_back_are_not_counted() {
        let requeued = super::super::requeue::log_line(State::Dead, at(1));
        let requeued = LogGroup { attempted: requeued.into(), indexes: vec![0] };
        let log = vec![group(State::Dead, 0, &[0]), requeued, group(State::Delivered, 2, &[0])];
        let ends = batch(1, log).ends();
        assert_eq!(ends, Some(BTreeMap::from([(State::Delivered, 1)])));
    }

    #[test]
    fn a_look_comes_in_time_and_again_on_the_way() {
        let batch = batch(1, vec![group(State::Delivered, 0, &[0])]);
        let mut now = at(1);
        let mut looks = 0;
        while let PruneLook::Again(next) = batch.look(&retention(), RetainedPart::Outcome, now) {
            assert!(now < next && next <= at(90), "{next}");
            (now, looks) = (next, looks + 1);
        }
        assert_eq!(now, at(90));
        assert!(looks < 50, "{looks}");
    }

    #[test]
    fn a_walk_is_a_little_behind_the_shortest_lifetime() {
        let hour = Duration::from_hours(1);
        let until = |part| walk_until(&retention(), part, at(100));
        assert_eq!(until(RetainedPart::Content), Some(at(93).minus(hour)));
        assert_eq!(
            walked_at(&retention(), RetainedPart::Content, at(93).minus(hour)),
            Some(at(100))
        );
        assert_eq!(walk_until(&Retention::for_ever(), RetainedPart::Outcome, at(100)), None);
    }
}
