//! Evidence of a lane's destination, from its settlements, and the health that it gives the lane (decision 0026).

use std::collections::HashMap;
use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use notification::{Disposition, Settlement, State, Timestamp};

use super::codes::LaneId;
use super::pace::Paces;
use super::period::PeriodCounts;
use crate::LaneEvidence;

/// Evidence from settlements of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AttemptEvidence {
    /// Time of the settlements.
    pub(crate) at: Timestamp,
    /// Deliveries that ended with an answer of the destination, whatever it was.
    pub(crate) answered: usize,
    /// True if an attempt at any other delivery had no answer.
    pub(crate) has_failed: bool,
    /// Due time of the first of those deliveries that were handed back to be tried later.
    pub(crate) handed_back_until: Option<Timestamp>,
    /// [`Settlement::places`].
    pub(crate) places: usize,
    /// [`Settlement::latency`].
    pub(crate) latency: Option<Duration>,
    /// [`Settlement::rate_per_minute`].
    pub(crate) rate_per_minute: Option<NonZeroU32>,
}

/// Evidence of a lane's destination. The default is none.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Evidence {
    answered_at: Option<Timestamp>,
    /// Set while every attempt fails.
    failing: Option<Failing>,
    places: usize,
    latency: Option<Duration>,
    rate_per_minute: Option<NonZeroU32>,
    /// Answered deliveries by the second.
    rate: PeriodCounts,
}

#[derive(Debug, Clone, Copy)]
struct Failing {
    /// Time before which no attempt is made.
    closed_until: Timestamp,
    /// The wait between the last failure and `closed_until`.
    wait: Duration,
}

/// Bounds of a lane by its evidence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LaneHealth {
    /// The destination answers: the lane may hold `window` deliveries.
    Proven { window: usize },
    /// The destination has answered no attempt in the last [`PROVEN_FOR`].
    Unproven,
    /// Every attempt fails, and the next one is not made before `closed_until`; `at_a_time` may then be under way. The destination has
    /// answered within [`LATELY`], or has not.
    Failing { closed_until: Timestamp, at_a_time: usize, has_answered: bool },
}

/// The evidence of many lanes: the writer that claims notes it, readers show it. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct EvidenceBook {
    book: Arc<Mutex<EvidenceState>>,
}

#[derive(Debug, Default)]
struct EvidenceState {
    lanes: HashMap<LaneId, Evidence>,
    /// Number of lanes at which those without evidence are dropped.
    lanes_max: usize,
    paces: Paces<LaneId>,
}

/// Time for which an answer proves that a destination answers.
const PROVEN_FOR: Duration = Duration::from_mins(1);
/// Deliveries of a lane that is not proven which are tried at a time, at most.
pub(crate) const PROBE_ITEMS: usize = 16;
/// Failures so soon after an answer are no sign: of a busy lane some always fail.
const TROUBLE_AFTER: Duration = Duration::from_secs(1);
/// Time from the first failure to the next attempt; it doubles with each that fails.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// The longest wait of a lane whose destination answered within [`LATELY`]: it finds the end of an outage as soon. Its next probe
/// does not wait for the end of the last one, which may take [`notification::limits::ATTEMPT_TIMEOUT`]: [`LATELY_PROBES`] are
/// under way at a time, at most, which is one more than begin in that time.
const LATELY_WAIT: Duration = Duration::from_secs(2);
const LATELY: Duration = Duration::from_mins(15);
const LATELY_PROBES: usize = 16;
/// The longest wait: a destination that is gone costs an attempt each minute.
const WAIT_MAX: Duration = Duration::from_mins(1);
/// Lanes whose evidence is kept even when they have no work.
const EVIDENCE_KEPT: usize = 65_536;

// === impl AttemptEvidence ===

impl AttemptEvidence {
    /// Evidence from one settlement.
    pub(crate) fn of(settlement: &Settlement) -> Self {
        let mut attempts = Self {
            at: settlement.at,
            answered: 0,
            has_failed: false,
            handed_back_until: None,
            places: settlement.places,
            latency: settlement.latency,
            rate_per_minute: settlement.rate_per_minute,
        };
        for group in &settlement.groups {
            match group.disposition {
                Disposition::Ended(State::Delivered | State::Refused) => {
                    attempts.answered += group.indexes.len();
                }
                // A delivery that may go at once is handed back for another reason: the process ends, or its lease.
                Disposition::HandedBack { at: due_at } if due_at > attempts.at => {
                    attempts.add_handed_back(Some(due_at));
                }
                // It was not sent, so it says nothing of the destination.
                Disposition::HandedBack { .. } | Disposition::Ended(State::Expired) => {}
                Disposition::Retry { .. } | Disposition::TooLate | Disposition::Ended(_) => {
                    attempts.has_failed = true;
                }
            }
        }
        attempts
    }

    /// Adds the evidence of another settlement of the same transaction.
    pub(crate) fn merge(&mut self, other: Self) {
        self.at = self.at.max(other.at);
        self.answered += other.answered;
        self.has_failed |= other.has_failed;
        self.add_handed_back(other.handed_back_until);
        self.places = self.places.max(other.places);
        self.latency = self.latency.max(other.latency);
        self.rate_per_minute = self.rate_per_minute.max(other.rate_per_minute);
    }

    fn add_handed_back(&mut self, until: Option<Timestamp>) {
        self.handed_back_until = self.handed_back_until.into_iter().chain(until).min();
    }

    pub(crate) fn tell_nothing(&self) -> bool {
        self.answered == 0 && !self.has_failed && self.handed_back_until.is_none()
    }
}

// === impl Evidence ===

impl Evidence {
    pub(crate) fn note(&mut self, attempts: AttemptEvidence) {
        self.forget_what_lies_ahead(attempts.at);
        // Before failures: of a busy destination some attempts always fail, and an answer beside them proves that it is there.
        if attempts.answered > 0 {
            // The notices of other processes may come in another order than their settlements.
            self.answered_at = self.answered_at.max(Some(attempts.at));
            self.failing = None;
            self.places = attempts.places;
            self.latency = attempts.latency;
            self.rate_per_minute = attempts.rate_per_minute;
            self.rate.add(attempts.at.seconds(), attempts.answered);
        } else if attempts.has_failed {
            self.note_failure(attempts.at);
        } else if let Some(until) = attempts.handed_back_until {
            self.note_handed_back(attempts.at, until);
        }
    }

    /// Drops times far ahead, after a clock was set back: they would hold until it has caught up.
    fn forget_what_lies_ahead(&mut self, now: Timestamp) {
        let is_ahead = |at: Timestamp| at.since(now) > WAIT_MAX;
        self.answered_at = self.answered_at.filter(|at| !is_ahead(*at));
        self.failing = self.failing.filter(|failing| !is_ahead(failing.closed_until));
        if is_ahead(Timestamp::from_millis(self.rate.period.saturating_mul(1_000))) {
            self.rate = PeriodCounts::default();
        }
    }

    fn note_failure(&mut self, at: Timestamp) {
        if self.failing.is_some() || !self.has_answered_within(TROUBLE_AFTER, at) {
            self.close(at);
        }
    }

    /// Notes that all of it was handed back, because another lane's probe of the destination was under way or a quota was used
    /// up: more would come back as well. A lane that waits for a quota has an appointed turn, and is not closed for longer.
    fn note_handed_back(&mut self, at: Timestamp, until: Timestamp) {
        let turn = Some(until.since(at)).filter(|turn| *turn > FIRST_WAIT);
        self.close_for(at, turn.unwrap_or(WAIT_MAX));
    }

    /// Closes it, for twice as long as the last time if it was not answered since.
    fn close(&mut self, at: Timestamp) {
        self.close_for(at, WAIT_MAX);
    }

    fn close_for(&mut self, at: Timestamp, at_most: Duration) {
        let longest = if self.has_answered_within(LATELY, at) { LATELY_WAIT } else { WAIT_MAX };
        let wait = match self.failing {
            // Attempts under way when it was closed are no new evidence.
            Some(failing) if at < failing.closed_until => return,
            Some(failing) => (2 * failing.wait).min(longest).min(at_most),
            None => FIRST_WAIT,
        };
        self.failing = Some(Failing { closed_until: at.plus(wait), wait });
    }

    /// Notes a claim of the lane at `now`. It is a probe if the lane fails; the next one of a lane that answered lately comes
    /// soon, whatever its result. Returns until when the lane was closed before, if that has changed.
    pub(crate) fn note_probe(&mut self, now: Timestamp) -> Option<Timestamp> {
        let was_lately = self.has_answered_within(LATELY, now);
        let failing = self.failing.as_mut().filter(|_| was_lately)?;
        let closed_until = failing.closed_until.max(now.plus(LATELY_WAIT));
        let before = std::mem::replace(&mut failing.closed_until, closed_until);
        (before < closed_until).then_some(before)
    }

    fn has_answered_within(&self, time: Duration, now: Timestamp) -> bool {
        self.answered_at.is_some_and(|answered_at| now.since(answered_at) < time)
    }

    pub(crate) fn health(&self, now: Timestamp) -> LaneHealth {
        if let Some(Failing { closed_until, .. }) = self.failing {
            // No wait is longer: the clock was set back.
            let is_bogus = closed_until.since(now) > WAIT_MAX;
            let closed_until = if is_bogus { now } else { closed_until };
            // More than its places would wait for each other.
            let probes =
                if self.places == 0 { LATELY_PROBES } else { self.places.min(LATELY_PROBES) };
            let has_answered = self.has_answered_within(LATELY, now);
            let at_a_time = if has_answered { probes } else { 1 };
            return LaneHealth::Failing { closed_until, at_a_time, has_answered };
        }
        match self.answered_at {
            Some(at) if now.since(at) < PROVEN_FOR => LaneHealth::Proven { window: self.window() },
            _ => LaneHealth::Unproven,
        }
    }

    /// Twice the attempts that may be under way, so that a place that is freed finds the next delivery; and the deliveries
    /// settled in a tenth of a second, in which a claim is made and published.
    fn window(&self) -> usize {
        // Nothing is known of its places: the windows of the claim alone count.
        if self.places == 0 {
            return usize::MAX;
        }
        let of_places = self.places.saturating_mul(2);
        // Never less than a lane is given of whose destination nothing is known.
        of_places.saturating_add(self.rate.highest() as usize / 10).max(PROBE_ITEMS)
    }

    /// True if it is worth keeping for a lane without work.
    fn tells_something(&self, now: Timestamp) -> bool {
        !matches!(self.health(now), LaneHealth::Unproven)
    }
}

impl From<Evidence> for LaneEvidence {
    fn from(evidence: Evidence) -> Self {
        let Evidence { answered_at, failing, places, latency, rate_per_minute, .. } = evidence;
        let closed_until = failing.map(|failing| failing.closed_until);
        let limit = NonZeroUsize::new(places);
        Self { answered_at, closed_until, limit, latency, rate_per_minute }
    }
}

// === impl EvidenceBook ===

impl EvidenceBook {
    pub(crate) fn of(&self, lane: LaneId) -> Evidence {
        self.lock().lanes.get(&lane).copied().unwrap_or_default()
    }

    /// [`Evidence::note_probe`].
    pub(crate) fn note_probe(&self, lane: LaneId, now: Timestamp) -> Option<Timestamp> {
        self.lock().lanes.get_mut(&lane)?.note_probe(now)
    }

    /// Takes a probe back that was noted at `now` and not made: the lane is closed until `before` again, which
    /// [`Self::note_probe`] returned.
    #[cfg(feature = "postgres")]
    pub(crate) fn take_back_probe(&self, lane: LaneId, before: Timestamp, now: Timestamp) {
        let mut book = self.lock();
        let failing = book.lanes.get_mut(&lane).and_then(|evidence| evidence.failing.as_mut());
        // A settlement that another writer noted meanwhile has closed the lane for reasons of its own, which stay.
        if let Some(failing) =
            failing.filter(|failing| failing.closed_until == now.plus(LATELY_WAIT))
        {
            failing.closed_until = before;
        }
    }

    pub(crate) fn note(&self, lane: LaneId, attempts: AttemptEvidence) {
        self.lock().lanes.entry(lane).or_default().note(attempts);
    }

    /// Notes the pace of a lane from a settlement; `is_busy` if it had more to send.
    pub(crate) fn note_pace(&self, lane: LaneId, attempts: AttemptEvidence, is_busy: bool) {
        self.lock().paces.note(&lane, attempts.at, attempts.answered, is_busy);
    }

    /// The paces of lanes: see [`Paces::known`].
    pub(crate) fn paces(&self) -> Vec<(LaneId, Vec<u32>, Timestamp)> {
        let book = self.lock();
        book.paces.known().map(|(lane, answered, at)| (*lane, answered.to_vec(), at)).collect()
    }

    /// Drops lanes when there are very many: those without work first that have no evidence, and then all of those.
    pub(crate) fn trim(&self, now: Timestamp, has_work: impl Fn(LaneId) -> bool) {
        let mut book = self.lock();
        if book.lanes.len() <= book.lanes_max.max(EVIDENCE_KEPT) {
            return;
        }
        book.lanes.retain(|lane, evidence| has_work(*lane) || evidence.tells_something(now));
        if book.lanes.len() > EVIDENCE_KEPT {
            book.lanes.retain(|lane, _| has_work(*lane));
        }
        // Twice what is left, so that the walk over all of them comes once for as many new ones.
        book.lanes_max = 2 * book.lanes.len();
    }

    fn lock(&self) -> MutexGuard<'_, EvidenceState> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
#[path = "evidence_tests.rs"]
mod tests;
