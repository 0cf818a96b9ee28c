//! A quota per minute: a token bucket, as the generic cell rate algorithm writes it down in one number.
//!
//! Pure arithmetic, time passed in. All threads of a process share a quota.

mod booked_turns;
mod nanos;
mod schedule;
mod sharing;
mod turns;

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::shared_rate::{TurnAnswer, TurnAsk};
use nanos::nanos_of;
use schedule::{ClosedQuota, MINUTE_NANOS, QuotaRate, Schedule};
pub use schedule::{Demand, SHORT_WAIT, WAIT_MAX, whole};

/// Lets through a number of attempts in any minute, wherever that minute begins: a sixtieth of them at once, the rest evenly.
/// Without a number it lets everything through, but for pauses, and goes by a [`LearnedRate`](crate::LearnedRate) where attempts are
/// refused for their rate.
#[derive(Debug)]
pub struct Quota {
    /// The origin of the times: the first `now` that was passed in.
    start: OnceLock<Instant>,
    /// True without a number and a pause. Read without the lock: most quotas have no number.
    is_open: AtomicBool,
    /// True while this process has no part of the number, or sends in turns with others. Read without the lock: most processes have
    /// all of it.
    is_closed: AtomicBool,
    /// True while a rate is learned. Read without the lock: few destinations refuse attempts for it.
    is_learning: AtomicBool,
    /// Where its key is put when it learns a rate.
    announced: OnceLock<(Arc<LearningQuotas>, Arc<str>)>,
    schedule: Mutex<Schedule>,
}

/// Keys of the quotas of a process that learn a rate: the task that shares rates with other processes looks at no other ones.
#[derive(Debug, Default)]
pub struct LearningQuotas {
    keys: Mutex<BTreeSet<Arc<str>>>,
    /// Notified when something is to be told to other processes, or a turn is wanted.
    pub wake: Arc<Notify>,
}

/// A part of a number that one of several processes goes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuotaPart {
    /// Thousandths of a message a minute, at most [`whole`] of the number.
    pub amount: u64,
    /// The number.
    pub of: NonZeroU32,
    /// Messages that may go at once, if the quota was closed before.
    pub tokens: Tokens,
    /// No place is reserved from then on, unless it is prolonged.
    pub until: Instant,
}

/// Messages that may go at once when a part of a number begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tokens {
    /// None.
    None,
    /// One.
    One,
    /// As many as after an hour of silence.
    Full,
}

/// A group that takes turns with others before a quota, on all threads.
#[derive(Debug, Default)]
pub struct QuotaGroup {
    /// Places that the group has reserved and not used.
    booked: AtomicUsize,
    /// Time of the last place that the group used, as [`Quota::nanos`] has it; 0 when there is none.
    used_nanos: AtomicU64,
    /// Appointed time of return, after the last refusal of a place; 0 without one.
    appointed_nanos: AtomicU64,
}

/// Times of reserved places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bookings {
    /// Time until the last of them; zero if it has passed.
    pub last_in: Duration,
    /// Time since the last of them; zero if it is still to come.
    pub last_ago: Duration,
    /// Time until as much may go at once as after an hour of silence.
    pub full_in: Duration,
}

/// How long a part of the number is waited for before deliveries go back: an answer of the database, usually.
const SHARE_PATIENCE: Duration = Duration::from_millis(500);
/// How soon it is looked again whether there is a part.
const SHARE_LOOK: Duration = Duration::from_millis(20);
/// Longest time from one appointed return to the next where the number is divided, in intervals of the whole number.
const TURN_INTERVALS: u64 = 4;
/// Longest time between the first and the last appointed return: numbers change.
const APPOINTMENT_MAX: Duration = Duration::from_mins(1);
/// The first time that was passed in, nanoseconds: bursts reach back from it.
const ORIGIN_NANOS: u64 = 1_440 * MINUTE_NANOS;

// === impl Quota ===

impl Quota {
    /// A quota of `count` in any minute; `None` is no limit.
    pub fn new(count: Option<NonZeroU32>) -> Self {
        let pace = QuotaRate::of(count);
        Self {
            start: OnceLock::new(),
            is_open: AtomicBool::new(pace == QuotaRate::UNLIMITED),
            is_closed: AtomicBool::new(false),
            is_learning: AtomicBool::new(false),
            announced: OnceLock::new(),
            schedule: Mutex::new(Schedule {
                pace,
                closed: None,
                learned: None,
                turns: None,
                learning_lag_nanos: 0,
                part_until_nanos: u64::MAX,
                turn_nanos_max: u64::MAX,
                demand: Demand::default(),
                booked_until_nanos: 0,
                paused_until_nanos: 0,
                appointed_until_nanos: 0,
            }),
        }
    }

    /// Lets through `count` in any minute from `now` on. Reserved places stay reserved, and used ones count on: no minute gets
    /// more than the greater of two numbers that hold within it.
    pub fn change(&self, count: Option<NonZeroU32>, now: Instant) {
        let now = self.nanos(now);
        let mut schedule = self.schedule();
        schedule.closed = None;
        if count.is_some() {
            schedule.turns = None;
        }
        (schedule.part_until_nanos, schedule.turn_nanos_max) = (u64::MAX, u64::MAX);
        // Without a number, what was learned holds on.
        if count.is_some() || schedule.learned.is_none() {
            schedule.learned = None;
            schedule.change(QuotaRate::of(count), now);
        }
        self.show(&schedule, now);
    }

    /// Lets nothing through from `now` on but reserved places, until it [goes by a part](Self::go_by) of its number; `wake` is
    /// notified when a place is looked for.
    pub fn close(&self, wake: &Arc<Notify>) {
        let mut schedule = self.schedule();
        (schedule.learned, schedule.turns) = (None, None);
        self.is_learning.store(false, Ordering::Relaxed);
        schedule.closed = Some(ClosedQuota { wake: Arc::clone(wake), ..ClosedQuota::default() });
        self.is_closed.store(true, Ordering::Relaxed);
        self.is_open.store(false, Ordering::Relaxed);
    }

    /// Notes that a part was asked for, and that there is none for now: deliveries need not wait for the answer.
    pub fn stay_closed(&self) {
        if let Some(closed) = &mut self.schedule().closed {
            closed.is_answered = true;
        }
    }

    /// Goes by a part of a number from `now` on. A closed quota has its tokens at once, as far as it has not used them itself.
    /// Reserved places stay reserved.
    pub fn go_by(&self, part: QuotaPart, now: Instant) {
        let (now, until_nanos) = (self.nanos(now), self.nanos(part.until));
        let mut schedule = self.schedule();
        let pace = QuotaRate::of_part(part.amount, part.of);
        let was_closed = schedule.closed.take().is_some();
        self.is_closed.store(false, Ordering::Relaxed);
        if was_closed && schedule.pace == QuotaRate::UNLIMITED {
            schedule.pace = pace;
        }
        schedule.change(pace, now);
        schedule.part_until_nanos = until_nanos;
        schedule.turn_nanos_max = TURN_INTERVALS * QuotaRate::of(Some(part.of)).interval_nanos;
        if was_closed {
            let used = match part.tokens {
                Tokens::None => pace.burst_nanos,
                Tokens::One => pace.burst_nanos - pace.interval_nanos,
                Tokens::Full => 0,
            };
            schedule.booked_until_nanos = schedule.booked_until_nanos.max(now + used);
        }
        self.is_open.store(false, Ordering::Relaxed);
    }

    /// When it is to be looked again whether this process has a part of the number; `None` if it has, or if it is not worth waiting
    /// for.
    pub fn awaits_part(&self, now: Instant) -> Option<Instant> {
        if !self.is_closed.load(Ordering::Relaxed) {
            return None;
        }
        let nanos = self.nanos(now);
        let mut schedule = self.schedule();
        schedule.demand.is_asked = true;
        if schedule.goes_by_turns(nanos) {
            let patience = nanos_of(SHARE_PATIENCE);
            return schedule.awaits_turn(nanos, patience).then(|| now + SHARE_LOOK);
        }
        let closed = schedule.closed.as_mut().filter(|closed| !closed.is_answered)?;
        let asked_at = *closed.asked_at_nanos.get_or_insert_with(|| {
            closed.wake.notify_one();
            nanos
        });
        (nanos < asked_at + nanos_of(SHARE_PATIENCE)).then(|| now + SHARE_LOOK)
    }

    /// The demand since this was last called.
    pub fn take_demand(&self) -> Demand {
        std::mem::take(&mut self.schedule().demand)
    }

    /// Times of the places that were reserved, as seen from `now`.
    pub fn bookings(&self, now: Instant) -> Bookings {
        let now = self.nanos(now);
        let schedule = self.schedule();
        let last = schedule.booked_until_nanos.saturating_sub(schedule.pace.burst_nanos);
        let span = |until: u64, from: u64| Duration::from_nanos(until.saturating_sub(from));
        Bookings {
            last_in: span(last, now),
            last_ago: span(now, last),
            full_in: span(schedule.booked_until_nanos, now),
        }
    }

    /// True if everything may go at once: there is no number, and no pause.
    pub fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Relaxed)
    }

    /// Reserves the next place; returns the time until then.
    ///
    /// # Errors
    /// The time until the next place, if that is longer than `wait_max`. Nothing is reserved then.
    pub fn reserve(&self, now: Instant, wait_max: Duration) -> Result<Duration, Duration> {
        let now = self.nanos(now);
        let mut schedule = self.schedule();
        let (booked, wait) = schedule.look(now);
        if wait > wait_max {
            return Err(wait);
        }
        schedule.book(now, booked, wait);
        schedule.demand.reserved += 1;
        // Still under the lock: later, this could undo what a pause has said meanwhile.
        if schedule.is_open(now) {
            self.show(&schedule, now);
        }
        Ok(wait)
    }

    /// Time until the next place.
    pub fn wait(&self, now: Instant) -> Duration {
        let now = self.nanos(now);
        let (_, wait) = self.schedule().look(now);
        wait
    }

    /// Appoints a time of return for `group`, for which there was no place: after `least`, and later by one interval for each
    /// group that was appointed before. If all returned at once, all but a few would return in vain. At most [`APPOINTMENT_MAX`]
    /// more than `least`.
    pub fn appoint(&self, group: &QuotaGroup, now: Instant, least: Duration) -> Duration {
        let (now, least) = (self.nanos(now), nanos_of(least).min(u64::MAX / 4));
        let mut schedule = self.schedule();
        let appointed = group.appointed_nanos.load(Ordering::Relaxed);
        if appointed >= now + least {
            return Duration::from_nanos(appointed - now);
        }
        let latest = now + least + nanos_of(APPOINTMENT_MAX);
        // When there is a part again, it may be a large one.
        let interval = if schedule.closed.is_some() { 0 } else { schedule.pace.interval_nanos };
        let interval = interval.min(schedule.turn_nanos_max);
        let next = schedule.appointed_until_nanos + interval;
        let appointed = next.clamp(now + least, latest);
        schedule.appointed_until_nanos = appointed;
        group.appointed_nanos.store(appointed, Ordering::Relaxed);
        Duration::from_nanos(appointed - now)
    }

    /// True if `group` has booked a place, or used one of the last two.
    pub fn has_served(&self, group: &QuotaGroup, now: Instant) -> bool {
        let used = group.used_nanos.load(Ordering::Relaxed);
        let ago = self.nanos(now).saturating_sub(used);
        let lately = (2 * self.schedule().pace.interval_nanos).max(nanos_of(WAIT_MAX));
        group.booked.load(Ordering::Relaxed) > 0 || (used > 0 && ago < lately)
    }

    /// Counts a place that was reserved for `group`.
    pub fn note_booked(&self, group: &QuotaGroup) {
        group.booked.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a place of `group` at the time `at` as used.
    pub fn note_used(&self, group: &QuotaGroup, at: Instant) {
        group.booked.fetch_sub(1, Ordering::Relaxed);
        group.used_nanos.fetch_max(self.nanos(at).max(1), Ordering::Relaxed);
    }

    /// Places within `span`, with a burst; `usize::MAX` without a number.
    pub fn within(&self, span: Duration) -> usize {
        let QuotaRate { interval_nanos, burst_nanos } = self.schedule().pace;
        if interval_nanos == 0 {
            return usize::MAX;
        }
        let evenly = nanos_of(span) / interval_nanos;
        let burst = burst_nanos / interval_nanos;
        usize::try_from(evenly.saturating_add(burst)).unwrap_or(usize::MAX)
    }

    /// Lets nothing through for `span` from `now`, at the provider's request. Reserved places stay reserved.
    pub fn pause(&self, now: Instant, span: Duration) {
        // A quarter of the range, so that sums of two spans do not overflow.
        let until = self.nanos(now) + nanos_of(span).min(u64::MAX / 4);
        let mut schedule = self.schedule();
        schedule.paused_until_nanos = schedule.paused_until_nanos.max(until);
        self.is_open.store(false, Ordering::Relaxed);
    }

    /// Learns that an attempt which was sent at `sent_at` was refused for the rate of attempts, for `retry_after`. Where there is a
    /// number, that alone holds.
    pub fn refused(&self, now: Instant, sent_at: Instant, retry_after: Duration) {
        let (now, sent_at) = (self.nanos(now), self.nanos(sent_at));
        let mut schedule = self.schedule();
        schedule.refused(now, sent_at, retry_after);
        let was_learning = self.is_learning.load(Ordering::Relaxed);
        self.show(&schedule, now);
        if let Some((learning, key)) = self.announced.get()
            && (!was_learning || schedule.has_news())
        {
            learning.insert(key);
        }
    }

    /// Has the quota put `key` into `learning` when it learns a rate.
    pub fn announce(&self, key: &Arc<str>, learning: &Arc<LearningQuotas>) {
        self.announced.get_or_init(|| (Arc::clone(learning), Arc::clone(key)));
    }

    /// The question to the ledger of shared rates; `None` if there is nothing to tell, and no turn is wanted.
    pub fn turn_ask(&self, wake: &Arc<Notify>, now: Instant) -> Option<TurnAsk> {
        let now = self.nanos(now);
        let mut schedule = self.schedule();
        let ask = schedule.turn_ask(wake, now);
        self.show(&schedule, now);
        ask
    }

    /// Goes by the answer to what was asked at `asked_at`.
    pub fn hear_turn(&self, answer: &TurnAnswer, asked_at: Instant, now: Instant) {
        let (asked_at, now) = (self.nanos(asked_at), self.nanos(now));
        let mut schedule = self.schedule();
        schedule.hear_turn(answer, asked_at, now);
        self.show(&schedule, now);
    }

    /// Learns alone from now on.
    pub fn learn_alone(&self, now: Instant) {
        let now = self.nanos(now);
        let mut schedule = self.schedule();
        schedule.learn_alone(now);
        self.show(&schedule, now);
    }

    /// True while a rate is learned.
    pub fn is_learning(&self) -> bool {
        self.is_learning.load(Ordering::Relaxed)
    }

    /// Learns that `count` attempts were answered and not refused for their rate. Returns the rate that is gone by, in messages a
    /// minute; `None` if none is known.
    pub fn accepted(&self, now: Instant, count: usize) -> Option<NonZeroU32> {
        let now = self.nanos(now);
        let mut schedule = self.schedule();
        schedule.accepted(now, u32::try_from(count).unwrap_or(u32::MAX));
        self.show(&schedule, now);
        schedule.learned.as_ref()?;
        let interval = schedule.whole_interval_nanos();
        let per_minute = MINUTE_NANOS.checked_div(interval)?;
        NonZeroU32::new(u32::try_from(per_minute.max(1)).unwrap_or(u32::MAX))
    }

    /// True if a reserved place or a pause is still ahead.
    pub fn is_booked(&self, now: Instant) -> bool {
        let now = self.nanos(now);
        self.schedule().booked(now) > now
    }

    /// Has those see the state of the schedule that read it without the lock.
    fn show(&self, schedule: &Schedule, now: u64) {
        self.is_open.store(schedule.is_open(now), Ordering::Relaxed);
        self.is_learning.store(schedule.learned.is_some(), Ordering::Relaxed);
        let is_closed = schedule.closed.is_some() || schedule.turns.is_some();
        self.is_closed.store(is_closed, Ordering::Relaxed);
    }

    fn schedule(&self) -> MutexGuard<'_, Schedule> {
        self.schedule.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn nanos(&self, now: Instant) -> u64 {
        let start = *self.start.get_or_init(|| now);
        ORIGIN_NANOS + nanos_of(now.saturating_duration_since(start)).min(u64::MAX / 4)
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        if let Some((learning, key)) = self.announced.get() {
            learning.remove(key);
        }
    }
}

// === impl LearningQuotas ===

impl LearningQuotas {
    fn insert(&self, key: &Arc<str>) {
        self.keys().insert(Arc::clone(key));
        self.wake.notify_one();
    }

    /// Takes out a key whose quota learns no rate any more.
    pub fn remove(&self, key: &Arc<str>) {
        self.keys().remove(key);
    }

    /// Up to `count` keys behind `after`, in order, and then from the first one on.
    pub fn next(&self, after: Option<&Arc<str>>, count: usize) -> Vec<Arc<str>> {
        let keys = self.keys();
        let is_behind = |key: &&Arc<str>| after.is_none_or(|after| *key > after);
        let behind = after.map_or_else(
            || keys.range::<Arc<str>, _>(..),
            |after| keys.range::<Arc<str>, _>((Excluded(after), Unbounded)),
        );
        let before = keys.iter().take_while(|key| !is_behind(key));
        behind.chain(before).take(count).cloned().collect()
    }

    fn keys(&self) -> MutexGuard<'_, BTreeSet<Arc<str>>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
#[path = "quota_tests.rs"]
mod tests;
