//! Wall time in the form of the vocabulary.

use std::time::Duration;

use flow::Clock;
use notification::{Timestamp, limits};

/// True if a token that says it was made at `made` is to be replaced: it is too old, or its time lies ahead because the
/// clock was set back, and the provider would not take it.
pub(crate) fn is_stale(made: Timestamp, now: Timestamp, renew_after: Duration) -> bool {
    now.since(made) >= renew_after || made.since(now) > limits::CLOCK_TOLERANCE
}

/// The wall time as the vocabulary has it.
pub fn timestamp(clock: Clock) -> Timestamp {
    Timestamp::from_unix(clock.wall())
}
