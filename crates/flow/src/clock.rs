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
        Self { source: Source::System }
    }

    /// A clock that shows `wall`, a span since the Unix epoch, now. For tests, with tokio's time paused.
    pub fn starting_at(wall: Duration) -> Self {
        Self { source: Source::Tokio { wall_at_start: wall, start: Instant::now() } }
    }

    /// The wall time, as a span since the Unix epoch.
    pub fn wall(&self) -> Duration {
        match self.source {
            Source::System => SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
            Source::Tokio { wall_at_start, start } => wall_at_start + start.elapsed(),
        }
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
}
