//! Spans in nanoseconds, as quotas count them.

use std::time::Duration;

/// The nanoseconds of `span`; the greatest number if there are more.
pub(super) fn nanos_of(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
