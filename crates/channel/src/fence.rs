//! What stands before the first byte of a delivery that must be sent at most once.

use async_trait::async_trait;
use net::exchange::Permit;
use notification::{Delivery, Priority, Report};

use crate::{Job, MayStart};

/// Begins deliveries: marks them durably as about to be sent, in the order of their index.
///
/// Other deliveries may be marked along with the one that is asked for, so it is asked when that one has what it is sent over: a
/// stream, a connection. What waits for one is then not marked, or hardly any of it, and a crash leaves it due and not in doubt.
#[async_trait(?Send)]
pub trait Fence: std::fmt::Debug {
    /// Whether the delivery at `index` is begun and may be sent.
    fn is_begun(&self, index: u16) -> bool;

    /// Waits until the delivery at `index` is begun. The wait may be given up.
    ///
    /// # Errors
    /// What to report instead, when it cannot be begun: it must not be sent.
    async fn begin(&self, index: u16) -> Result<(), Report>;
}

/// A delivery of a job that is about to be sent.
#[derive(Debug, Clone, Copy)]
pub struct Start<'a> {
    job: &'a Job<'a>,
    index: u16,
}

// === impl Start ===

impl<'a> Start<'a> {
    /// The start of `delivery`, which is of `job`.
    pub const fn of(job: &'a Job<'a>, delivery: &Delivery) -> Self {
        Self { job, index: delivery.index }
    }

    /// To be called with the connection or stream in hand over which the delivery is sent, before its first byte; every time it
    /// is tried. Does nothing but for deliveries that must be sent at most once.
    ///
    /// # Errors
    /// What to report instead, when it must not be sent.
    pub async fn begin(self) -> Result<(), Report> {
        let Some(fence) = self.job.fence.filter(|fence| !fence.is_begun(self.index)) else {
            return Ok(());
        };
        fence.begin(self.index).await?;
        // Time has passed.
        self.may_send()
    }

    /// Whether the attempt may start, as of now.
    pub fn may_start(self) -> MayStart {
        self.job.may_start()
    }

    /// The number of the attempt.
    pub const fn attempt_number(self) -> u16 {
        self.job.chunk.attempt
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

    fn may_send(self) -> Result<(), Report> {
        self.may_start().report_otherwise().map_or(Ok(()), Err)
    }

    fn begin(self) -> impl Future<Output = Result<(), Report>> {
        Self::begin(self)
    }
}
