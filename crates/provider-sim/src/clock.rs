//! The only place where this crate reads the time.

use std::time::{SystemTime, UNIX_EPOCH};

/// Wall-clock time in microseconds since the Unix epoch.
#[expect(
    clippy::disallowed_methods,
    reason = "an independent process with its own books: the engine's clock is what it checks"
)]
pub(crate) fn unix_us() -> u64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH);
    elapsed.map_or(0, |elapsed| u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX))
}
