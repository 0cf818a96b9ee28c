//! Work that waits for channels that are not configured, counted on demand, up to a bound.

use notification::{Name, Timestamp};

use crate::ParkedChannel;

/// Chunks that wait for a channel, and lanes of it in which nothing does, that are looked at: some tens of milliseconds.
pub(crate) const COUNTED_MAX: i64 = 10_000;

/// The counts of one channel.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    /// Chunks that wait, and lanes without one.
    pub(crate) rows: u64,
    /// Lanes in which something waits.
    pub(crate) lanes: u64,
    pub(crate) notifications: u64,
    pub(crate) next_due_at: Option<Timestamp>,
}

// === impl Counted ===

impl Counted {
    /// `None` when nothing waits.
    pub(crate) fn of(self, channel: Name) -> Option<ParkedChannel> {
        let Self { rows, lanes, notifications, next_due_at } = self;
        let is_at_least = rows >= COUNTED_MAX.cast_unsigned();
        let next_due_at = next_due_at?;
        Some(ParkedChannel { channel, lanes, notifications, next_due_at, is_at_least })
    }
}
