//! The places of a quota over time, in nanoseconds since its beginning.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use super::nanos::nanos_of;
use super::turns::Turns;
use crate::LearnedRate;

/// The demand before a quota since it was last read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Demand {
    /// Places that were reserved.
    pub reserved: u64,
    /// True if a place was looked for.
    pub is_asked: bool,
    /// True if a place was further away than [`SHORT_WAIT`].
    pub is_short: bool,
}

#[derive(Debug)]
pub(super) struct Schedule {
    pub(super) pace: QuotaRate,
    /// `Some` while there is no pace to go by: this process has no part of the number yet.
    pub(super) closed: Option<ClosedQuota>,
    /// `Some` from the first refusal for the rate on, where there is no number.
    pub(super) learned: Option<Box<LearnedRate>>,
    /// `Some` while the learned rate is shared with other processes.
    pub(super) turns: Option<Box<Turns>>,
    /// Time in which others had their turns: what is learned has its own time, which stands still meanwhile.
    pub(super) learning_lag_nanos: u64,
    /// End of the part of a number that is gone by.
    pub(super) part_until_nanos: u64,
    /// Longest time from one appointed return to the next: a small part is often raised before long.
    pub(super) turn_nanos_max: u64,
    pub(super) demand: Demand,
    /// Time at which all reserved places have gone through, if they go evenly.
    pub(super) booked_until_nanos: u64,
    /// The end of the last pause; 0 when there was none.
    pub(super) paused_until_nanos: u64,
    /// Last appointed time of return of all groups without a place.
    pub(super) appointed_until_nanos: u64,
}

/// A quota that this process has no part of.
#[derive(Debug, Default)]
pub(super) struct ClosedQuota {
    /// Notified when a place is looked for.
    pub(super) wake: Arc<Notify>,
    pub(super) asked_at_nanos: Option<u64>,
    /// True when it was asked for, and the answer was that there is none for now.
    pub(super) is_answered: bool,
}

/// Rate and burst of a quota. Both are zero where there is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct QuotaRate {
    pub(super) interval_nanos: u64,
    /// A whole number of intervals.
    pub(super) burst_nanos: u64,
}

/// Longest wait of a chunk for its quota before it makes room for others.
pub const WAIT_MAX: Duration = Duration::from_secs(5);
/// A wait for a place from which on a part of a number is too small for the demand.
pub const SHORT_WAIT: Duration = Duration::from_secs(1);
/// Time until there may be a place where this process has no part of the number: longer than anything waits.
const CLOSED_WAIT: Duration = WAIT_MAX.saturating_add(Duration::from_secs(1));
pub(super) const MINUTE_NANOS: u64 = 60_000_000_000;
/// Time whose messages may go at once under a learned rate.
const LEARNED_BURST_NANOS: u64 = 100_000_000;
/// A learned rate is followed in steps of so many to the whole.
const LEARNED_STEPS: u64 = 500;

// === impl Schedule ===

impl Schedule {
    /// Time until which everything is booked, at least `now`: places that passed unused are gone, and a quiet hour does not allow
    /// more than a burst.
    pub(super) fn booked(&self, now: u64) -> u64 {
        let mut booked = self.booked_until_nanos.max(now);
        if self.paused_until_nanos > 0 {
            let QuotaRate { interval_nanos, burst_nanos } = self.pace;
            // The burst counts as used up at the end of a pause: waiting attempts go evenly, not in a rush.
            booked = booked.max(self.paused_until_nanos + burst_nanos - interval_nanos);
        }
        booked
    }

    /// Time until which everything is booked with one more place, and the time until that place.
    fn next(&self, now: u64) -> (u64, Duration) {
        if self.closed.is_some() || now >= self.part_until_nanos {
            return (self.booked(now), CLOSED_WAIT);
        }
        if let Some(turns) = self.turns.as_ref().filter(|turns| turns.are_in_force(now)) {
            let Some(at) = turns.place(now.max(self.paused_until_nanos)) else {
                return (self.booked(now), turns.wait(now));
            };
            return (at + self.pace.burst_nanos, Duration::from_nanos(at.saturating_sub(now)));
        }
        let booked = self.booked(now) + self.pace.interval_nanos;
        (booked, Duration::from_nanos(booked.saturating_sub(now + self.pace.burst_nanos)))
    }

    /// [`Self::next`], for one that wants the place.
    pub(super) fn look(&mut self, now: u64) -> (u64, Duration) {
        self.follow_learned(now);
        let (booked, wait) = self.next(now);
        self.demand.is_asked = true;
        self.demand.is_short |= wait >= SHORT_WAIT;
        if !wait.is_zero() {
            let at = self.learning_time(now);
            if let Some(learned) = &mut self.learned {
                learned.hold_back(at);
            }
        }
        if let Some(turns) = &mut self.turns {
            turns.looked(now);
        }
        (booked, wait)
    }

    /// Reserves the place that was [looked](Self::look) for.
    pub(super) fn book(&mut self, now: u64, booked: u64, wait: Duration) {
        self.booked_until_nanos = booked;
        if let Some(turns) = self.turns.as_mut().filter(|turns| turns.are_in_force(now)) {
            turns.take_place(now + nanos_of(wait));
        }
    }

    /// Learns that `count` attempts were answered and not refused for their rate.
    pub(super) fn accepted(&mut self, now: u64, count: u32) {
        let at = self.learning_time(now);
        if let Some(learned) = &mut self.learned {
            learned.accept(at, count);
        }
        if let Some(turns) = &mut self.turns {
            turns.accept(count);
        }
        self.follow_learned(now);
    }

    /// Learns of a refusal for the rate; see [`LearnedRate::refuse`].
    pub(super) fn refused(&mut self, now: u64, sent_at: u64, retry_after: Duration) {
        let is_numbered = self.learned.is_none() && self.pace != QuotaRate::UNLIMITED;
        if is_numbered || self.closed.is_some() {
            return;
        }
        let at = self.learning_time(now);
        let sent_at = at.saturating_sub(Duration::from_nanos(now.saturating_sub(sent_at)));
        let learned = self.learned.get_or_insert_with(|| Box::new(LearnedRate::new(at)));
        let pause = match &mut self.turns {
            None => learned.refuse(at, sent_at, retry_after),
            Some(turns) => turns.refuse(learned, (at, sent_at), retry_after, now),
        };
        self.follow_learned(now);
        if !pause.is_zero() {
            self.paused_until_nanos = self.paused_until_nanos.max(now + nanos_of(pause));
        }
    }

    /// Goes by the learned rate as it is by now.
    pub(super) fn follow_learned(&mut self, now: u64) {
        let Some(learned) = &self.learned else { return };
        let share = self.turns.as_ref().map_or(1.0, |turns| turns.share());
        let of_share = |rate: f64| QuotaRate::of_learned(rate * share);
        let pace = learned.per_second().map_or(QuotaRate::UNLIMITED, of_share);
        let at = Duration::from_nanos(now - self.learning_lag_nanos.min(now));
        if learned.is_over(at) || self.turns.as_ref().is_some_and(|turns| turns.are_over(now)) {
            (self.learned, self.turns) = (None, None);
            self.change(QuotaRate::UNLIMITED, now);
        } else if pace.differs_from(self.pace) {
            self.change(pace, now);
        }
    }

    pub(super) fn is_open(&self, now: u64) -> bool {
        self.closed.is_none() && self.pace == QuotaRate::UNLIMITED && self.booked(now) == now
    }

    /// Time between two messages of all processes; zero without a limit.
    pub(super) fn whole_interval_nanos(&self) -> u64 {
        let rate = self.learned.as_ref().and_then(|learned| learned.per_second());
        rate.map_or(self.pace.interval_nanos, |rate| QuotaRate::of_learned(rate).interval_nanos)
    }

    pub(super) fn change(&mut self, pace: QuotaRate, now: u64) {
        let (before, booked) = (self.pace, self.booked_until_nanos.max(now));
        if pace == before {
            return;
        }
        self.pace = pace;
        // The last place that was reserved, or as if one had been.
        let last = booked - before.burst_nanos;
        self.booked_until_nanos = if before == QuotaRate::UNLIMITED {
            // Used places were not counted: no burst.
            now + pace.burst_nanos - pace.interval_nanos
        } else if last + before.interval_nanos <= now {
            // As many may go at once as before, but no more than the new burst.
            let free = (now - last) / before.interval_nanos;
            now + pace.burst_nanos - free.saturating_mul(pace.interval_nanos).min(pace.burst_nanos)
        } else {
            (last + pace.interval_nanos).max(now) + pace.burst_nanos - pace.interval_nanos
        };
    }
}

// === impl QuotaRate ===

impl QuotaRate {
    pub(super) const UNLIMITED: Self = Self { interval_nanos: 0, burst_nanos: 0 };

    pub(super) fn of(count: Option<NonZeroU32>) -> Self {
        count.map_or(Self::UNLIMITED, |count| Self::of_part(whole(count), count))
    }

    /// The pace of a learned rate, in messages a second. What goes at once is less than of a number: a destination that counts by
    /// shorter spans would refuse the rest.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "rates are positive, and so slow or fast that it matters they are not"
    )]
    fn of_learned(per_second: f64) -> Self {
        let interval_nanos = ((1e9 / per_second) as u64).max(1);
        let burst = (LEARNED_BURST_NANOS / interval_nanos).max(1);
        Self { interval_nanos, burst_nanos: burst * interval_nanos }
    }

    /// True if it differs by so much that it is worth a change, in which parts of intervals are lost.
    fn differs_from(self, other: Self) -> bool {
        let [own, other] = [self, other].map(|rate| rate.interval_nanos);
        own.abs_diff(other).saturating_mul(LEARNED_STEPS) > own.min(other)
    }

    /// The pace of a `part` of [`whole`], with as much of the burst, and at least one.
    pub(super) fn of_part(part: u64, count: NonZeroU32) -> Self {
        let part = part.clamp(1, whole(count));
        let burst = (burst(count) * part / whole(count)).max(1);
        // Rounded up, so that no minute gets one too many.
        let interval_nanos = (MINUTE_NANOS * 1_000).div_ceil(part);
        Self { interval_nanos, burst_nanos: burst * interval_nanos }
    }
}

/// All that may go evenly under a number, in thousandths of a message a minute. One minute can hold a burst and a whole minute of
/// evenly spaced ones, so those are fewer by the burst. A quota of one is all burst: it has one all the same.
pub fn whole(count: NonZeroU32) -> u64 {
    (u64::from(count.get()) - burst(count)).max(1) * 1_000
}

/// Messages that may go at once.
fn burst(count: NonZeroU32) -> u64 {
    (u64::from(count.get()) / 60).max(1)
}
