//! A quota per minute: a token bucket, as the generic cell rate algorithm writes it down in one number.
//!
//! Pure arithmetic, time passed in. All threads of a process share a quota.

mod schedule;

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use schedule::{ClosedQuota, MINUTE_NANOS, QuotaRate, Schedule, nanos_of};
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
    /// True while this process has no part of the number. Read without the lock: most processes have all of it.
    is_closed: AtomicBool,
    /// True while a rate is learned. Read without the lock: few destinations refuse attempts for it.
    is_learning: AtomicBool,
    schedule: Mutex<Schedule>,
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
            schedule: Mutex::new(Schedule {
                pace,
                closed: None,
                learned: None,
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
        (schedule.part_until_nanos, schedule.turn_nanos_max) = (u64::MAX, u64::MAX);
        self.is_closed.store(false, Ordering::Relaxed);
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
        schedule.learned = None;
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
        schedule.booked_until_nanos = booked;
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
        if let Some(learned) = &mut schedule.learned {
            learned.accept(Duration::from_nanos(now), u32::try_from(count).unwrap_or(u32::MAX));
        }
        schedule.follow_learned(now);
        self.show(&schedule, now);
        schedule.learned.as_ref()?;
        let per_minute = MINUTE_NANOS.checked_div(schedule.pace.interval_nanos)?;
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
    }

    fn schedule(&self) -> MutexGuard<'_, Schedule> {
        self.schedule.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn nanos(&self, now: Instant) -> u64 {
        let start = *self.start.get_or_init(|| now);
        ORIGIN_NANOS + nanos_of(now.saturating_duration_since(start)).min(u64::MAX / 4)
    }
}

#[cfg(test)]
#[path = "quota_tests.rs"]
mod tests;
