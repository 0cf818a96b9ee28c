//! A limit on log lines about the same trouble.

use std::cell::Cell;
use std::time::Duration;

use tokio::time::Instant;

use crate::Clock;

/// Admits one line per span. One is for one kind of trouble and one thread.
#[derive(Debug)]
pub struct LogThrottle {
    span: Duration,
    next_at: Cell<Option<Instant>>,
}

// === impl LogThrottle ===

impl LogThrottle {
    /// Admits the first line at once, and then one per `span` at most.
    pub const fn new(span: Duration) -> Self {
        Self { span, next_at: Cell::new(None) }
    }

    /// True if a line may be written now; it then counts as written.
    pub fn admits(&self, clock: Clock) -> bool {
        let now = clock.monotonic();
        let is_due = self.next_at.get().is_none_or(|at| at <= now);
        if is_due {
            self.next_at.set(Some(now + self.span));
        }
        is_due
    }
}

impl Default for LogThrottle {
    /// A throttle of one line per minute.
    fn default() -> Self {
        Self::new(Duration::from_mins(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_line_is_admitted_once_per_span() {
        let (throttle, clock) = (LogThrottle::default(), Clock::starting_at(Duration::ZERO));
        assert!(throttle.admits(clock));
        tokio::time::advance(Duration::from_secs(59)).await;
        assert!(!throttle.admits(clock));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(throttle.admits(clock));
        assert!(!throttle.admits(clock));
    }
}
