//! The places in a destination's quota that the deliveries of one lane book.

use std::sync::Arc;
use std::time::Duration;

use flow::quota::WAIT_MAX;
use flow::{Clock, Quota, QuotaGroup};
use notification::Priority;
use tokio::time::Instant;

/// The quota of a destination, for one lane; all threads share it.
#[derive(Debug)]
pub struct LaneQuota {
    /// Of all that is sent to the destination.
    pub quota: Arc<Quota>,
    /// The lane. Its times are the quota's.
    group: QuotaGroup,
}

/// A booked place. Dropping it counts it as used.
#[derive(Debug)]
pub(crate) struct Booking<'a> {
    /// Not to be used before.
    at: Instant,
    of: &'a LaneQuota,
}

/// A place that was not used for so long after its time is not used any more: behind a gate that opens, many places of the past
/// would be used at once.
const STALE_AFTER: Duration = Duration::from_secs(1);

// === impl LaneQuota ===

impl LaneQuota {
    /// A lane before `quota` that has booked nothing yet.
    pub fn new(quota: Arc<Quota>) -> Self {
        Self { quota, group: QuotaGroup::default() }
    }

    /// Books a place for a delivery of `priority` that is to wait for no longer than `wait_max`.
    ///
    /// # Errors
    /// How long to wait before a place can be booked, in whole seconds: what waits equally long stays one chunk.
    pub(crate) fn book(
        &self,
        clock: Clock,
        priority: Priority,
        wait_max: Duration,
    ) -> Result<Booking<'_>, Duration> {
        let now = clock.monotonic();
        let horizon = self.horizon(priority, now);
        match self.quota.reserve(now, horizon.min(wait_max)) {
            Ok(wait) => {
                self.quota.note_booked(&self.group);
                Ok(Booking { at: now + wait, of: self })
            }
            Err(wait) => Err(Duration::from_secs(wait.saturating_sub(horizon).as_secs() + 1)),
        }
    }

    /// How far ahead a place may be booked. Lanes that have one, or had one of the last, leave those further ahead to the
    /// others, and all of them to urgent ones: otherwise a backlog, which books the next place as soon as there is one, would
    /// have them all.
    fn horizon(&self, priority: Priority, now: Instant) -> Duration {
        let eighths = match (priority, self.quota.has_served(&self.group, now)) {
            (Priority::Urgent, false) => 8,
            (Priority::Urgent, true) => 7,
            (Priority::Normal | Priority::Bulk, false) => 6,
            (Priority::Normal, true) => 3,
            (Priority::Bulk, true) => 2,
        };
        WAIT_MAX * eighths / 8
    }
}

// === impl Booking ===

impl Booking<'_> {
    /// When it may be used, if that is still to come.
    pub(crate) fn not_before(&self, clock: Clock) -> Option<Instant> {
        (clock.monotonic() < self.at).then_some(self.at)
    }

    /// Whether its time has passed for so long that it may not be used any more.
    pub(crate) fn is_stale(&self, clock: Clock) -> bool {
        clock.monotonic() > self.at + STALE_AFTER
    }

    /// How long it was waited for since `since`.
    pub(crate) fn wait_since(&self, since: Instant) -> Duration {
        self.at.saturating_duration_since(since)
    }
}

impl Drop for Booking<'_> {
    fn drop(&mut self) {
        self.of.quota.note_used(&self.of.group, self.at);
    }
}
