//! Delays before retries: exponential with full jitter
//! (<https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/>).

use std::time::Duration;

/// Doubling delays between `base` and `cap`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    base: Duration,
    cap: Duration,
}

/// Bounds that make no backoff.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackoffError {
    /// `base` must be longer than zero.
    BaseIsZero,
    /// `cap` must not be shorter than `base`.
    CapBelowBase,
}

// === impl Backoff ===

impl Backoff {
    /// Backoff of retries: from 1 s to 15 min.
    pub const DEFAULT: Self = Self { base: Duration::from_secs(1), cap: Duration::from_mins(15) };

    /// Backoff of connections that cannot be made: from 0.5 s to 30 s.
    pub const CONNECT: Self =
        Self { base: Duration::from_millis(500), cap: Duration::from_secs(30) };

    /// A backoff whose first delay is at most `base` and whose longest is at most `cap`.
    pub fn new(base: Duration, cap: Duration) -> Result<Self, BackoffError> {
        if base.is_zero() {
            return Err(BackoffError::BaseIsZero);
        }
        if cap < base {
            return Err(BackoffError::CapBelowBase);
        }
        Ok(Self { base, cap })
    }

    /// The delay after the failed attempt number `attempt` (the first is 1): anything from zero to
    /// `min(cap, base * 2^(attempt - 1))`. When the other side named a time to wait, no less than that, and up to
    /// `base` more; but a short time that it names again and again does not keep the delays from growing.
    pub fn delay(
        &self,
        attempt: u16,
        asked: Option<Duration>,
        random: &mut fastrand::Rng,
    ) -> Duration {
        let own = self.ceiling(attempt).mul_f64(random.f64());
        match asked {
            // The jitter on top parts those that were all told to wait for the same time.
            Some(wait) => own.max(wait.saturating_add(self.base.mul_f64(random.f64()))),
            None => own,
        }
    }

    /// The step of the instants after the failed attempt number `attempt`, when deliveries that fail about the same time are to be
    /// tried again together: a fifth of the longest delay, or of `base` when the other side named a longer one.
    pub fn step(&self, attempt: u16, asked: Option<Duration>) -> Duration {
        let own = self.ceiling(attempt);
        let longest = if asked.is_some_and(|asked| asked >= own) { self.base } else { own };
        longest / 5
    }

    /// The longest possible delay after attempt number `attempt`.
    pub(crate) fn ceiling(&self, attempt: u16) -> Duration {
        // A shift by 32 would overflow; every cap in use is reached long before.
        let doublings = u32::from(attempt.saturating_sub(1)).min(31);
        self.base.saturating_mul(1 << doublings).min(self.cap)
    }
}

// === impl BackoffError ===

impl std::fmt::Display for BackoffError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::BaseIsZero => "the base delay must be longer than zero",
            Self::CapBelowBase => "the longest delay must not be shorter than the base delay",
        })
    }
}

impl std::error::Error for BackoffError {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_delay_stays_under_its_ceiling_and_the_ceiling_under_the_cap(attempt: u16, seed: u64) {
            let backoff = Backoff::new(Duration::from_secs(1), Duration::from_mins(15)).unwrap();
            let delay = backoff.delay(attempt, None, &mut fastrand::Rng::with_seed(seed));
            prop_assert!(delay <= backoff.ceiling(attempt));
            prop_assert!(backoff.ceiling(attempt) <= Duration::from_mins(15));
        }

        #[test]
        fn a_wait_that_was_asked_for_is_kept(attempt: u16, seed: u64, asked_ms in 0u64..100_000) {
            let asked = Duration::from_millis(asked_ms);
            let backoff = Backoff::new(Duration::from_secs(1), Duration::from_mins(15)).unwrap();
            let delay = backoff.delay(attempt, Some(asked), &mut fastrand::Rng::with_seed(seed));
            prop_assert!(delay >= asked);
            prop_assert!(delay <= (asked + Duration::from_secs(1)).max(backoff.ceiling(attempt)));
        }
    }

    #[test]
    fn who_always_asks_for_a_second_is_asked_less_and_less_often() {
        let mut random = fastrand::Rng::with_seed(7);
        let backoff = Backoff::DEFAULT;
        let asked = Some(Duration::from_secs(1));
        let all: Duration =
            (1..=32).map(|attempt| backoff.delay(attempt, asked, &mut random)).sum();
        assert!(all > Duration::from_hours(1), "{all:?}");
    }

    #[test]
    fn ceilings_double_up_to_the_cap() {
        let backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(5)).unwrap();
        let ceilings: Vec<u64> =
            (1..=5).map(|attempt| backoff.ceiling(attempt).as_secs()).collect();
        assert_eq!(ceilings, [1, 2, 4, 5, 5]);
    }

    #[test]
    fn bounds_that_make_no_sense_are_refused() {
        let second = Duration::from_secs(1);
        assert_eq!(Backoff::new(Duration::ZERO, second), Err(BackoffError::BaseIsZero));
        assert_eq!(Backoff::new(second * 2, second), Err(BackoffError::CapBelowBase));
    }
}
