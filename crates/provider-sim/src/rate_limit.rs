//! A server that lets so many requests through in a second, and answers the others 429.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The rate limit of one process, common to its threads and providers: a token bucket with room for a second, or for less.
#[derive(Debug)]
pub(crate) struct SimRateLimit {
    per_second: Option<NonZeroU32>,
    /// Room of the bucket, microseconds; at least one request's.
    room_us: u64,
    /// When the bucket is full again, microseconds since the Unix epoch.
    full_at_us: AtomicU64,
}

const SECOND_US: u64 = 1_000_000;

// === impl SimRateLimit ===

impl SimRateLimit {
    /// A limit of `per_second` whose bucket has room for `room`, and for one request at least: with none, any two keep a distance.
    pub(crate) fn new(per_second: Option<NonZeroU32>, room: Duration) -> Self {
        let room_us = u64::try_from(room.as_micros()).unwrap_or(SECOND_US);
        Self { per_second, room_us, full_at_us: AtomicU64::new(0) }
    }

    /// Takes a token for a request that came at `now_us`; false if there is none.
    pub(crate) fn admits(&self, now_us: u64) -> bool {
        let Some(per_second) = self.per_second else { return true };
        let token_us = SECOND_US / u64::from(per_second.get());
        let room_us = self.room_us.max(token_us);
        let take = |full_at_us: u64| {
            let full_at_us = full_at_us.max(now_us) + token_us;
            (full_at_us <= now_us + room_us).then_some(full_at_us)
        };
        // Relaxed: nothing else is read by it.
        self.full_at_us.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_has_so_many_and_what_was_not_used_is_kept_for_one() {
        let limit = SimRateLimit::new(NonZeroU32::new(10), Duration::from_secs(1));
        let admitted = |now_us| (0..100).filter(|_| limit.admits(now_us)).count();
        assert_eq!(
            [0, 0, 99_999, 100_000, 350_000, 90 * SECOND_US].map(admitted),
            [10, 0, 0, 1, 2, 10]
        );
        assert!((0..100).all(|_| SimRateLimit::new(None, Duration::ZERO).admits(0)));
    }

    #[test]
    fn without_room_each_keeps_its_distance() {
        let limit = SimRateLimit::new(NonZeroU32::new(10), Duration::ZERO);
        let admitted = [0, 0, 99_999, 100_000, 150_000, 90 * SECOND_US].map(|at| limit.admits(at));
        assert_eq!(admitted, [true, false, false, true, false, true]);
    }
}
