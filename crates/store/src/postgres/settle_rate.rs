//! The rate at which a worker settles, for the status of the cluster.

use notification::limits;
use tokio::time::Instant;

/// Rate of settlements of this process, as of the last beats.
#[derive(Debug)]
pub(super) struct SettleRate {
    measured_at: Instant,
    settled: u64,
    per_second: f32,
}

// === impl SettleRate ===

impl SettleRate {
    pub(super) fn new(now: Instant) -> Self {
        Self { measured_at: now, settled: 0, per_second: 0.0 }
    }

    /// Deliveries per second since the last measurement; the former rate while less than half a beat has passed.
    pub(super) fn measure(&mut self, now: Instant, settled: u64) -> f32 {
        let passed = now.saturating_duration_since(self.measured_at);
        if passed >= limits::WORKER_BEAT / 2 {
            #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
            let more = settled.saturating_sub(self.settled) as f32;
            let per_second = more / passed.as_secs_f32();
            *self = Self { measured_at: now, settled, per_second };
        }
        self.per_second
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use flow::Clock;

    use super::*;

    #[test]
    fn a_pace_is_measured_over_the_time_that_passed() {
        let start = Clock::system().monotonic();
        let mut pace = SettleRate::new(start);
        let mut check = |millis, settled, expect: f32| {
            let measured = pace.measure(start + Duration::from_millis(millis), settled);
            assert!((measured - expect).abs() < 0.1, "{measured} after {millis} ms");
        };
        check(4_000, 400, 100.0);
        check(4_001, 500, 100.0);
        check(6_000, 600, 100.0);
        check(8_000, 600, 0.0);
    }
}
