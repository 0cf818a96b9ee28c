//! A request that reads the store a slice at a time is answered after a while with what it has, and its caller goes on behind that.

use std::time::Duration;

use flow::Clock;
use tokio::time::Instant;

use crate::ApiState;

/// The time for which a request goes on with another slice.
#[derive(Debug)]
pub(crate) struct AnswerTime {
    clock: Clock,
    /// The end of the last slice, or the beginning of the first.
    last: Instant,
    until: Instant,
}

/// Time of a list. On a slow disk a page has fewer items than were asked for: a person waits for it.
const LIST: Duration = Duration::from_millis(30);
/// Time of a request that changes what it finds.
const WORK: Duration = Duration::from_secs(1);

// === impl AnswerTime ===

impl AnswerTime {
    /// The time of a list, from now on.
    pub(crate) fn of_list(shared: &ApiState) -> Self {
        Self::new(shared, LIST)
    }

    /// The time of a request that changes what it finds, from now on.
    pub(crate) fn of_work(shared: &ApiState) -> Self {
        Self::new(shared, WORK)
    }

    fn new(shared: &ApiState, span: Duration) -> Self {
        let clock = shared.intake.clock();
        let now = clock.monotonic();
        Self { clock, last: now, until: now + span }
    }

    /// True if there is no time for another slice like the one that has just ended: the request is answered with what it has.
    pub(crate) fn is_over(&mut self) -> bool {
        let now = self.clock.monotonic();
        let took = now - self.last;
        self.last = now;
        now + took > self.until
    }
}
