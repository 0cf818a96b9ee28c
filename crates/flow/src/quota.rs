//! How many in a minute: a token bucket, as the generic cell rate algorithm writes it down in one number.
//!
//! Pure arithmetic, time passed in. All threads of a process share one without a lock, and find it by its destination.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Lets through so many in any minute, wherever that minute begins: a sixtieth of them at once, the rest evenly.
#[derive(Debug)]
pub struct Quota {
    interval_nanos: u64,
    burst_nanos: u64,
    /// The origin of the times: the first `now` that was passed in.
    start: OnceLock<Instant>,
    /// When all that was reserved so far has gone through, if it goes evenly.
    booked_until_nanos: AtomicU64,
}

/// Those who have their turn together before a quota, on all threads.
#[derive(Debug, Default)]
pub struct QuotaGroup {
    /// Places that they have reserved and not used.
    booked: AtomicUsize,
    /// The last one that they used, as [`Quota::nanos`] has it; 0 when there is none.
    used_nanos: AtomicU64,
}

/// The quotas of one process, by destination. All channels that send to one destination at the same rate share a quota; different
/// rates have separate ones.
#[derive(Debug, Default)]
pub struct Quotas(Mutex<QuotasByDestination>);

#[derive(Debug, Default)]
struct QuotasByDestination {
    quotas: HashMap<(Arc<str>, NonZeroU32), Arc<Quota>>,
    /// With so many, those in which nothing is booked are forgotten.
    quotas_max: usize,
}

/// How long what is to be sent waits for its quota, at most, before it makes room for others.
pub const WAIT_MAX: Duration = Duration::from_secs(5);
const MINUTE_NANOS: u64 = 60_000_000_000;
/// Quotas that are kept, at least: webhooks may go to very many hosts.
const QUOTAS_KEPT: usize = 4_096;

// === impl Quotas ===

impl Quotas {
    /// The quota of `destination`, at most `per_minute` in any minute.
    pub fn of(&self, destination: &Arc<str>, per_minute: NonZeroU32, now: Instant) -> Arc<Quota> {
        let mut book = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if book.quotas.len() >= book.quotas_max.max(QUOTAS_KEPT) {
            // What was reserved must not be forgotten: the next one would let as much through again.
            book.quotas.retain(|_, quota| Arc::strong_count(quota) > 1 || quota.is_booked(now));
            // Not at each further one, when most of them must stay.
            book.quotas_max = 2 * book.quotas.len();
        }
        let key = (Arc::clone(destination), per_minute);
        let quota =
            book.quotas.entry(key).or_insert_with(|| Arc::new(Quota::per_minute(per_minute)));
        Arc::clone(quota)
    }
}

// === impl Quota ===

impl Quota {
    /// At most `count` in any minute.
    pub fn per_minute(count: NonZeroU32) -> Self {
        let count = u64::from(count.get());
        // One minute can hold a burst and a whole minute of evenly spaced ones, so those are fewer by the burst.
        let burst = (count / 60).max(1);
        // Rounded up, so that no minute gets one too many. A quota of one is all burst: nothing is left to divide by.
        let interval_nanos = MINUTE_NANOS.div_ceil((count - burst).max(1));
        Self {
            interval_nanos,
            burst_nanos: burst * interval_nanos,
            start: OnceLock::new(),
            booked_until_nanos: AtomicU64::new(0),
        }
    }

    /// Reserves the next place and says how long it is until then.
    ///
    /// # Errors
    /// When that is longer than `wait_max`: how long it would be. Nothing is reserved then.
    pub fn reserve(&self, now: Instant, wait_max: Duration) -> Result<Duration, Duration> {
        let now = self.nanos(now);
        let place = |booked: u64| {
            // Places that passed unused are gone: a quiet hour does not allow more than a burst.
            let booked = booked.max(now) + self.interval_nanos;
            (booked, Duration::from_nanos(booked.saturating_sub(now + self.burst_nanos)))
        };
        let reserve = |booked: u64| {
            let (booked, wait) = place(booked);
            (wait <= wait_max).then_some(booked)
        };
        // Relaxed: nothing else is published by this number.
        let reserved =
            self.booked_until_nanos.fetch_update(Ordering::Relaxed, Ordering::Relaxed, reserve);
        match reserved {
            Ok(booked) => Ok(place(booked).1),
            Err(booked) => Err(place(booked).1),
        }
    }

    /// Whether `group` has a place, or had one of the last two.
    pub fn has_served(&self, group: &QuotaGroup, now: Instant) -> bool {
        let used = group.used_nanos.load(Ordering::Relaxed);
        let ago = self.nanos(now).saturating_sub(used);
        let lately = (2 * self.interval_nanos).max(nanos_of(WAIT_MAX));
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

    /// How many it lets through within `span`, with a burst and at least one.
    pub fn within(&self, span: Duration) -> usize {
        let evenly = nanos_of(span) / self.interval_nanos;
        let burst = self.burst_nanos / self.interval_nanos;
        usize::try_from(evenly.saturating_add(burst)).unwrap_or(usize::MAX)
    }

    /// Lets nothing through for `span` from `now`: the provider asked for a pause. What was reserved stays so.
    pub fn pause(&self, now: Instant, span: Duration) {
        // A quarter of the range, so that the sums of such spans do not overflow.
        let span = nanos_of(span).min(u64::MAX / 4);
        // The burst counts as used up at the end of the pause: what waited goes evenly, not in a rush.
        let until = self.nanos(now) + span + self.burst_nanos - self.interval_nanos;
        self.booked_until_nanos.fetch_max(until, Ordering::Relaxed);
    }

    /// Whether something that was reserved, or a pause, still counts.
    fn is_booked(&self, now: Instant) -> bool {
        self.booked_until_nanos.load(Ordering::Relaxed) > self.nanos(now)
    }

    fn nanos(&self, now: Instant) -> u64 {
        let start = *self.start.get_or_init(|| now);
        nanos_of(now.saturating_duration_since(start)).min(u64::MAX / 4)
    }
}

fn nanos_of(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Clock;
    use proptest::prelude::*;

    const LONG: Duration = Duration::from_hours(24);

    fn per_minute(count: u32) -> Quota {
        Quota::per_minute(NonZeroU32::new(count).unwrap())
    }

    fn start() -> Instant {
        Clock::starting_at(Duration::ZERO).monotonic()
    }

    proptest! {
        #[test]
        fn no_minute_gets_more_than_the_quota(
            count in 1_u32..2_000,
            arrivals in prop::collection::vec(0_u64..20_000, 1..200),
        ) {
            let (quota, start) = (per_minute(count), start());
            let mut now = start;
            let mut through = Vec::new();
            for pause_millis in arrivals {
                now += Duration::from_millis(pause_millis);
                for _ in 0..=count / 20 {
                    through.push(now + quota.reserve(now, LONG).unwrap());
                }
            }
            through.sort_unstable();
            let many = usize::try_from(count).unwrap();
            for window in through.windows(many + 1) {
                let span = window[many] - window[0];
                prop_assert!(span >= Duration::from_mins(1), "{} within {span:?}", many + 1);
            }
        }
    }

    #[test]
    fn a_minute_of_demand_uses_nearly_all_of_the_quota() {
        let (quota, start) = (per_minute(600_000), start());
        let within = (0..600_000)
            .filter(|_| quota.reserve(start, LONG).unwrap() < Duration::from_mins(1))
            .count();
        assert!((595_000..=600_000).contains(&within), "{within}");
    }

    #[test]
    fn a_wait_beyond_the_bound_is_answered_with_its_length_and_reserves_nothing() {
        let (quota, start) = (per_minute(60), start());
        assert_eq!(quota.reserve(start, Duration::ZERO), Ok(Duration::ZERO));
        let wait = quota.reserve(start, Duration::ZERO).unwrap_err();
        assert_eq!(quota.reserve(start, Duration::ZERO), Err(wait), "nothing was reserved");
        assert!(wait > Duration::from_secs(1) && wait < Duration::from_millis(1_020), "{wait:?}");
        assert_eq!(quota.reserve(start, wait), Ok(wait));
        assert_eq!(quota.reserve(start + wait * 2, Duration::ZERO), Ok(Duration::ZERO));
    }

    #[test]
    fn a_span_has_its_part_of_the_quota_and_a_burst() {
        let span = Duration::from_secs(5);
        assert_eq!(per_minute(1).within(span), 1);
        assert_eq!(per_minute(60).within(span), 4 + 1);
        assert_eq!(per_minute(6_000).within(span), 491 + 100);
    }

    #[test]
    fn a_pause_holds_all_and_ends_without_a_rush() {
        let (quota, start) = (per_minute(6_000), start());
        quota.pause(start, Duration::from_mins(1));
        quota.pause(start, Duration::from_secs(1));
        let wait = quota.reserve(start, LONG).unwrap();
        assert_eq!(wait, Duration::from_mins(1));
        let next = quota.reserve(start, LONG).unwrap().checked_sub(wait).unwrap();
        assert!(next > Duration::from_millis(10) && next < Duration::from_millis(11), "{next:?}");
    }

    #[test]
    fn a_destination_has_one_quota_for_as_long_as_it_counts() {
        let (quotas, start, rate) = (Quotas::default(), start(), NonZeroU32::new(60).unwrap());
        let of = |destination: &str, now| quotas.of(&Arc::from(destination), rate, now);
        let used = of("used", start);
        assert!(Arc::ptr_eq(&used, &of("used", start)));
        assert!(!Arc::ptr_eq(&used, &of("other", start)));
        let share = quotas.of(&Arc::from("used"), NonZeroU32::new(30).unwrap(), start);
        assert!(!Arc::ptr_eq(&used, &share), "a share of its own");
        of("booked", start).pause(start, Duration::from_mins(1));
        let crowd = |name, now| {
            (0..QUOTAS_KEPT).for_each(|number| drop(of(&format!("{name} {number}"), now)));
        };
        crowd("first", start);
        let is_kept = |destination: &str| {
            quotas.0.lock().unwrap().quotas.contains_key(&(Arc::from(destination), rate))
        };
        assert!(is_kept("booked"), "while it counts");
        crowd("second", start + Duration::from_mins(2));
        assert!(!is_kept("booked"), "it counts no more");
        assert!(Arc::ptr_eq(&used, &of("used", start)), "it is kept while it is used");
        assert!(quotas.0.lock().unwrap().quotas.len() < QUOTAS_KEPT, "the others are forgotten");
    }

    #[test]
    fn a_quota_of_one_lets_one_through_a_minute() {
        let (quota, start) = (per_minute(1), start());
        assert_eq!(quota.reserve(start, LONG), Ok(Duration::ZERO));
        assert_eq!(quota.reserve(start, LONG), Ok(Duration::from_mins(1)));
    }
}
