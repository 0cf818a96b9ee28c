//! The places that the deliveries of one lane book: in the quota of their tenant, and in that of their destination.

use std::sync::Arc;
use std::time::Duration;

use flow::quota::WAIT_MAX;
use flow::{Clock, Quota, QuotaGroup};
use notification::Priority;
use tokio::time::Instant;

/// The quotas that one lane is under; all threads share it.
#[derive(Debug)]
pub struct LaneQuota {
    /// Of all that the tenant sends.
    tenant: LaneTurn,
    /// Of all that is sent to the destination, or with one credential there.
    destination: LaneTurn,
}

/// A quota, for one lane.
#[derive(Debug)]
struct LaneTurn {
    quota: Arc<Quota>,
    /// The lane. Its times are the quota's.
    group: QuotaGroup,
}

/// The places of one delivery. First the tenant's, and when its time has come the destination's: what waits for its tenant holds no
/// place that others could use.
#[derive(Debug)]
pub(crate) struct Booking<'a> {
    of: &'a LaneQuota,
    /// `None` without a limit.
    tenant: Option<BookedPlace<'a>>,
    destination: Option<BookedPlace<'a>>,
    /// True if the destination's is booked, or has no limit.
    is_complete: bool,
}

/// A booked place. Dropping it counts it as used.
#[derive(Debug)]
struct BookedPlace<'a> {
    /// Not to be used before.
    at: Instant,
    of: &'a LaneTurn,
}

/// A place that was not used for so long after its time is not used any more: behind a gate that opens, many places of the past
/// would be used at once. A tenant's is kept while a place in the destination's quota is waited for, up to [`WAIT_MAX`].
const STALE_AFTER: Duration = Duration::from_secs(1);

// === impl LaneQuota ===

impl LaneQuota {
    /// A lane before the quotas of its tenant and its destination, that has booked nothing yet.
    pub fn new(tenant: Arc<Quota>, destination: Arc<Quota>) -> Self {
        Self { tenant: LaneTurn::new(tenant), destination: LaneTurn::new(destination) }
    }

    /// Books for a delivery of `priority` that is to wait for no longer than `wait_max`. `None` when there is no limit.
    ///
    /// # Errors
    /// How long to wait before a place can be booked, in whole seconds: what waits equally long stays one chunk. Nothing is booked then.
    pub(crate) fn book(
        &self,
        clock: Clock,
        priority: Priority,
        wait_max: Duration,
    ) -> Result<Option<Booking<'_>>, Duration> {
        if self.is_open() {
            return Ok(None);
        }
        if !self.tenant.quota.is_open() {
            // No place of the tenant's is used up for a destination that has none.
            self.destination.look(clock, priority, wait_max)?;
        }
        let tenant = self.tenant.book(clock, priority, wait_max)?;
        let booking = Booking { of: self, tenant, destination: None, is_complete: false };
        booking.complete(clock, priority, wait_max).map(Some)
    }

    /// Whether there is no limit.
    pub(crate) fn is_open(&self) -> bool {
        self.tenant.quota.is_open() && self.destination.quota.is_open()
    }

    /// When to look again whether this process has its part of the numbers; `None` if there is nothing to wait for.
    pub(crate) fn awaits_part(&self, now: Instant) -> Option<Instant> {
        let quotas = [&self.tenant.quota, &self.destination.quota];
        quotas.map(|quota| quota.awaits_part(now)).into_iter().flatten().min()
    }

    /// How many of the lane may be sent within `span`, with a burst and at least one.
    pub fn within(&self, span: Duration) -> usize {
        self.tenant.quota.within(span).min(self.destination.quota.within(span))
    }

    /// Lets nothing through to the destination for `span` from `now`: it asked for a pause.
    pub(crate) fn pause(&self, now: Instant, span: Duration) {
        self.destination.quota.pause(now, span);
    }

    /// Learns that an attempt which was sent at `sent_at` was refused for the rate of all attempts to the destination.
    pub(crate) fn refused(&self, now: Instant, sent_at: Instant, retry_after: Duration) {
        self.destination.quota.refused(now, sent_at, retry_after);
    }

    /// The quota of the destination.
    pub fn destination(&self) -> &Arc<Quota> {
        &self.destination.quota
    }

    /// The quota of the tenant.
    pub fn tenant(&self) -> &Arc<Quota> {
        &self.tenant.quota
    }
}

// === impl LaneTurn ===

impl LaneTurn {
    fn new(quota: Arc<Quota>) -> Self {
        Self { quota, group: QuotaGroup::default() }
    }

    /// Books a place; `None` without a limit.
    fn book(
        &self,
        clock: Clock,
        priority: Priority,
        wait_max: Duration,
    ) -> Result<Option<BookedPlace<'_>>, Duration> {
        if self.quota.is_open() {
            return Ok(None);
        }
        let now = clock.monotonic();
        let horizon = self.horizon(priority, now);
        match self.quota.reserve(now, horizon.min(wait_max)) {
            Ok(wait) => {
                self.quota.note_booked(&self.group);
                Ok(Some(BookedPlace { at: now + wait, of: self }))
            }
            Err(wait) => Err(self.come_back(now, wait, horizon, priority)),
        }
    }

    /// Asks whether a place could be booked now.
    fn look(&self, clock: Clock, priority: Priority, wait_max: Duration) -> Result<(), Duration> {
        if self.quota.is_open() {
            return Ok(());
        }
        let now = clock.monotonic();
        let (wait, horizon) = (self.quota.wait(now), self.horizon(priority, now));
        if wait > horizon.min(wait_max) {
            return Err(self.come_back(now, wait, horizon, priority));
        }
        Ok(())
    }

    /// When to come back, as no place is nearer than `wait`: when that comes within the horizon, and in turn. Urgent ones need no turn.
    fn come_back(
        &self,
        now: Instant,
        wait: Duration,
        horizon: Duration,
        priority: Priority,
    ) -> Duration {
        let soon = Duration::from_secs(wait.saturating_sub(horizon).as_secs() + 1);
        if priority == Priority::Urgent {
            return soon;
        }
        let appointed = self.quota.appoint(&self.group, now, soon);
        // Rounded up: a moment too early would find no place, and be sent back again.
        Duration::from_secs(appointed.as_secs() + u64::from(appointed.subsec_nanos() > 0))
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

impl<'a> Booking<'a> {
    /// Goes on to the destination's place, if the time of the tenant's has come. It is to be waited for no longer than `wait_max`.
    ///
    /// # Errors
    /// How long to wait before a place can be booked, in whole seconds. The tenant's counts as used then.
    pub(crate) fn complete(
        mut self,
        clock: Clock,
        priority: Priority,
        wait_max: Duration,
    ) -> Result<Self, Duration> {
        if !self.is_complete && !self.is_early(clock) {
            // Copied out: the place is borrowed from the lane, which outlives this booking.
            let of: &'a LaneQuota = self.of;
            self.destination = of.destination.book(clock, priority, wait_max)?;
            self.is_complete = true;
        }
        Ok(self)
    }

    /// True if nothing is left to be booked.
    pub(crate) fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// When it may be used, or is to be completed; `None` when that may be now.
    pub(crate) fn not_before(&self, clock: Clock) -> Option<Instant> {
        self.at().filter(|_| !self.is_complete || self.is_early(clock))
    }

    /// True if the time of the place that was booked last is still to come.
    pub(crate) fn is_early(&self, clock: Clock) -> bool {
        self.at().is_some_and(|at| clock.monotonic() < at)
    }

    /// True if its time has passed for so long that it may not be used any more.
    pub(crate) fn is_stale(&self, clock: Clock) -> bool {
        self.at().is_some_and(|at| clock.monotonic() > at + STALE_AFTER)
    }

    /// The time of the place that was booked last.
    fn at(&self) -> Option<Instant> {
        self.destination.as_ref().or(self.tenant.as_ref()).map(|place| place.at)
    }

    /// How long it is to be waited for from `since` on.
    pub(crate) fn wait_since(&self, since: Instant) -> Duration {
        self.at().map_or(Duration::ZERO, |at| at.saturating_duration_since(since))
    }
}

impl Drop for BookedPlace<'_> {
    fn drop(&mut self) {
        self.of.quota.note_used(&self.of.group, self.at);
    }
}
