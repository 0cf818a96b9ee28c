//! Jobs: some deliveries of one chunk, and when each of them may start.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use flow::{Clock, Gate, WorkerDeadline};
use net::exchange::Permit;
use notification::{Chunk, Delivery, Pauses, Priority, Report, Timestamp, limits};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::Attempt;
use crate::fence::Fence;
use crate::lane_quota::LaneQuota;
use crate::time::timestamp;

/// Some deliveries of one chunk, to be sent now.
#[derive(Debug, Clone, Copy)]
pub struct Job<'a> {
    /// The chunk they belong to.
    pub chunk: &'a Chunk,
    /// Those to send: all of the chunk's, or a run of them.
    pub deliveries: &'a [Delivery],
    /// Admits attempts.
    pub gate: &'a Gate,
    /// How many may be sent to the destination in a minute; `None` when there is no bound.
    pub quota: Option<&'a LaneQuota>,
    /// Begins each delivery before its first byte; `None` where one may be sent more than once.
    pub fence: Option<&'a dyn Fence>,
    /// Takes the reports.
    pub reports: &'a dyn Reports,
    /// The time.
    pub clock: Clock,
    /// Turns true when no attempt may start any more: the process is being stopped.
    pub stopping: &'a watch::Receiver<bool>,
    /// Pauses: attempts within their scopes are not started.
    pub pauses: &'a watch::Receiver<Arc<Pauses>>,
    /// Until when this process, as a worker, may start attempts.
    pub worker_deadline: &'a WorkerDeadline,
}

/// Takes reports, a batch at a time. Waits when settle cannot keep up: that is back-pressure.
#[async_trait(?Send)]
pub trait Reports: std::fmt::Debug {
    /// Takes reports of deliveries by their index.
    async fn report(&self, reports: Vec<(u16, Report)>);

    /// Told of each attempt that ends, in front of its report: the index of its delivery, and when it was let in. For counts and traces
    /// alone. It is called for every delivery, so it must cost little. Default: nothing.
    fn ended(&self, _index: u16, _since: Instant, _attempt: &Attempt) {}
}

/// A delivery of a job that is about to be sent.
#[derive(Debug, Clone, Copy)]
pub struct Start<'a> {
    job: &'a Job<'a>,
    index: u16,
}

/// Age of the kernel's last tick that is reckoned with: ten times what it is on a machine that is not overloaded.
const TICK_AGE_MAX: Duration = Duration::from_millis(100);

// === impl Job ===

impl Job<'_> {
    /// Whether an attempt at `delivery` may start now.
    ///
    /// # Errors
    /// The report instead: the notification's time is over, or it is handed back, since too little is left of the lease, the process is
    /// being stopped, it is paused, or another worker may be taking over from it.
    pub fn may_start(&self, delivery: &Delivery) -> Result<(), Report> {
        self.may_start_with(delivery.index, limits::LEASE_MARGIN)
    }

    /// Whether an attempt at the delivery at `index` may start now that needs `margin` of the lease.
    pub(crate) fn may_start_with(&self, index: u16, margin: Duration) -> Result<(), Report> {
        // As of the kernel's last tick, which is cheap: margins are seconds, and a tick is milliseconds.
        let now = Timestamp::from_unix(self.clock.recent_wall());
        // First of all: expiry is final, and to hand it back would only have it found expired by the next claim.
        if self.chunk.expires_at(index).is_some_and(|at| self.is_past(at, now)) {
            return Err(Report::Expired);
        }
        // Before the pauses: a process that was cut off learns what was paused meanwhile before its deadline is moved.
        let is_alive = self.worker_deadline.allows(self.chunk.worker, self.clock);
        if now.plus(margin) >= self.chunk.lease_until
            || *self.stopping.borrow()
            || self.pauses.borrow().covers(&self.chunk.envelope)
        {
            // Due at once: the next claim gives it a whole lease, in this process or in another, or leaves what is paused.
            return Err(Report::HandedBack { after: Duration::ZERO });
        }
        if !is_alive {
            // Claimed again at once, it would go to and fro until this process is sure that it is alive.
            return Err(Report::HandedBack { after: limits::WORKER_BEAT });
        }
        Ok(())
    }

    /// True if `at` is past. `recent`, the time at the kernel's last tick, says so while it is far from `at`: near it the exact time is
    /// asked, which costs three times as much, or a wait that ended at the expiry could be followed by an attempt.
    fn is_past(&self, at: Timestamp, recent: Timestamp) -> bool {
        at <= recent || (at <= recent.plus(TICK_AGE_MAX) && at <= timestamp(self.clock))
    }

    /// How long it is until `delivery` expires; `None` when it never does.
    pub(crate) fn expires_in(&self, delivery: &Delivery) -> Option<Duration> {
        let now = timestamp(self.clock);
        // A millisecond more than is left of a whole one, or the time would be over a moment before it is.
        let expires_at = self.chunk.expires_at(delivery.index);
        expires_at.map(|at| at.since(now) + Duration::from_millis(1))
    }

    /// The priority of the job's lane.
    pub fn priority(&self) -> Priority {
        self.chunk.envelope.lane.priority
    }
}

// === impl Start ===

impl<'a> Start<'a> {
    /// The start of `delivery`, which is of `job`.
    pub const fn of(job: &'a Job<'a>, delivery: &Delivery) -> Self {
        Self { job, index: delivery.index }
    }

    /// To be called with the connection or stream in hand over which the delivery is sent, right before its first byte; every
    /// time it is tried. Asks once more whether it may be sent: what it was let in for may have passed while it waited. Of a
    /// delivery that must be sent at most once, it waits for the mark.
    ///
    /// # Errors
    /// The report instead, when it must not be sent.
    pub async fn begin(self) -> Result<(), Report> {
        // Before the mark: what is not sent must not be marked as sent.
        self.may_send()?;
        let Some(fence) = self.job.fence.filter(|fence| !fence.is_begun(self.index)) else {
            return Ok(());
        };
        fence.begin(self.index).await?;
        // Time has passed.
        self.may_send()
    }

    /// Asks whether it may be sent, as of now.
    ///
    /// # Errors
    /// The report instead, when it must not be sent.
    pub(crate) fn may_send(self) -> Result<(), Report> {
        self.job.may_start_with(self.index, limits::LEASE_MARGIN)
    }
}

impl Permit for Start<'_> {
    type Refusal = Report;

    fn priority(self) -> Priority {
        self.job.priority()
    }

    fn is_at_most_once(self) -> bool {
        self.job.fence.is_some()
    }

    fn begin(self) -> impl Future<Output = Result<(), Report>> {
        Self::begin(self)
    }
}
