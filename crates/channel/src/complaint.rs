//! What somebody has to look at, said now and then and not with every message.

use std::cell::Cell;
use std::time::Duration;

use flow::Clock;
use tokio::time::Instant;

/// How often the same trouble is worth a line in the log.
const COMPLAINT_EVERY: Duration = Duration::from_mins(1);

/// Says when a complaint is due. One for each kind of trouble and thread.
#[derive(Debug, Default)]
pub(crate) struct Complaint {
    next_at: Cell<Option<Instant>>,
}

// === impl Complaint ===

impl Complaint {
    /// Whether to say it now.
    pub(crate) fn is_due(&self, clock: Clock) -> bool {
        let now = clock.monotonic();
        let is_due = self.next_at.get().is_none_or(|at| at <= now);
        if is_due {
            self.next_at.set(Some(now + COMPLAINT_EVERY));
        }
        is_due
    }
}
