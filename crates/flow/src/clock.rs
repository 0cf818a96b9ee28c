//! Time is injected: everything that asks what time it is asks a [`Clock`].

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

/// Tells the wall time and measures spans. Cheap to copy.
///
/// The wall time follows the system's, so that a machine that was suspended, or whose clock was set, sends
/// when it should and signs with the right time. It may step; spans are measured by [`Clock::monotonic`]. A
/// step forward ends leases early: what was in flight then may be repeated, unless it is fenced.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    source: Source,
    ahead_millis: i64,
}

#[derive(Debug, Clone, Copy)]
enum Source {
    System,
    /// Moves with tokio's time, which a test can pause.
    Tokio {
        wall_at_start: Duration,
        start: Instant,
    },
}

// === impl Clock ===

#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the clock")]
impl Clock {
    /// A clock that shows the system's wall time.
    pub const fn system() -> Self {
        Self { source: Source::System, ahead_millis: 0 }
    }

    /// A clock that shows `wall`, a span since the Unix epoch, now. For tests, with tokio's time paused.
    pub fn starting_at(wall: Duration) -> Self {
        let source = Source::Tokio { wall_at_start: wall, start: Instant::now() };
        Self { source, ahead_millis: 0 }
    }

    /// This clock with its wall time `ahead_millis` later, or earlier when negative: the processes of a cluster follow
    /// one clock, whatever the ones of their machines show. Spans stay what they are.
    #[must_use]
    pub const fn shifted(self, ahead_millis: i64) -> Self {
        Self { ahead_millis: self.ahead_millis.saturating_add(ahead_millis), ..self }
    }

    /// The wall time, as a span since the Unix epoch.
    pub fn wall(&self) -> Duration {
        let wall = match self.source {
            Source::System => SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
            Source::Tokio { wall_at_start, start } => wall_at_start + start.elapsed(),
        };
        let shift = Duration::from_millis(self.ahead_millis.unsigned_abs());
        if self.ahead_millis < 0 { wall.saturating_sub(shift) } else { wall + shift }
    }

    /// An instant for measuring spans and for tokio's timers.
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

    #[tokio::test(start_paused = true)]
    async fn a_shifted_clock_shows_another_wall_time_and_measures_the_same_spans() {
        let clock = Clock::starting_at(Duration::from_secs(1_000));
        let (ahead, behind) = (clock.shifted(1_500), clock.shifted(1_500).shifted(-2_000));
        assert_eq!(ahead.wall(), Duration::from_millis(1_001_500));
        assert_eq!(behind.wall(), Duration::from_millis(999_500));
        assert_eq!(ahead.monotonic(), clock.monotonic());
    }
}
