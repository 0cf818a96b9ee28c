//! Time is injected: everything that asks what time it is asks a [`Clock`].

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

/// Tells the wall time and measures spans. Cheap to copy; never goes backwards.
///
/// The wall time is read once, at creation, and carried on by the monotonic clock, so that a step of the
/// system's clock cannot make a lease end early or a span negative. In a test under `start_paused` it
/// stands still with tokio's time.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    wall_at_start: Duration,
    start: Instant,
}

// === impl Clock ===

impl Clock {
    /// A clock that shows the system's wall time.
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the clock")]
    pub fn system() -> Self {
        let wall_at_start = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { wall_at_start, start: Instant::now() }
    }

    /// A clock that shows `wall`, a span since the Unix epoch, now. For tests, with tokio's time paused.
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the clock")]
    pub fn starting_at(wall: Duration) -> Self {
        Self { wall_at_start: wall, start: Instant::now() }
    }

    /// The wall time, as a span since the Unix epoch.
    pub fn wall(&self) -> Duration {
        self.wall_at_start + self.monotonic().duration_since(self.start)
    }

    /// An instant for measuring spans and for tokio's timers.
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the clock")]
    pub fn monotonic(&self) -> Instant {
        Instant::now()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_clock_moves_with_paused_time_only() {
        let clock = Clock::starting_at(Duration::from_secs(1_000));
        assert_eq!(clock.wall(), Duration::from_secs(1_000));
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(clock.wall(), Duration::from_secs(1_005));
    }
}
