//! The fence of one at-most-once chunk: deliveries that have a stream are marked as begun, a slice at a time.
//!
//! A sender requests each delivery when it holds the stream or connection for it. The mark then rises to the end of that
//! delivery's slice of [`limits::BEGIN_ITEMS`], slice after slice and never over one: a chunk that the queue gave out twice is
//! marked at the same places by both runs, so one of them is refused at its first mark and sends nothing. In doubt after a crash
//! is all that was on the wire, and the part of the last slice that had no stream yet.
//!
//! Only a run that was granted a mark is certain to be the only one. A run therefore requests its first mark before it reports
//! anything, except deliveries that must not start any more.

use std::cell::Cell;
use std::convert::Infallible;
use std::time::Duration;

use async_trait::async_trait;
use channel::{Attempt, Job, Reports};
use notification::{Chunk, Report, limits};
use store::{Begin, Mark, MarkAnswer, StoreError};
use tokio::sync::Notify;
use tokio::time::Instant;

/// Begins the deliveries of one chunk.
#[derive(Debug)]
pub(super) struct ChunkFence<'a> {
    store: &'a dyn Begin,
    chunk: &'a Chunk,
    /// Deliveries from the first that are begun.
    begun: Cell<usize>,
    /// Deliveries from the first up to the last that was requested.
    asked: Cell<usize>,
    /// True once a mark was refused: none is granted after it.
    is_refused: Cell<bool>,
    /// Wakes the marking when a delivery is requested.
    work: Notify,
    /// Wakes the senders when a mark is granted or refused.
    answer: Notify,
    /// Wakes the next chunk when the last slice is requested.
    last_asked: Notify,
}

/// Reports of a chunk behind its fence.
#[derive(Debug)]
pub(super) struct FencedReports<'a> {
    pub(super) fence: &'a ChunkFence<'a>,
    /// The job without the fence.
    pub(super) job: Job<'a>,
}

/// Time after which deliveries that could not be begun are tried again.
const REFUSED_DELAY: Duration = Duration::from_secs(1);
/// Time to the next request for a mark that was not granted because this worker was overdue. It renews its lease or is reaped in
/// about [`limits::WORKER_BEAT`].
const OVERDUE_WAIT: Duration = Duration::from_millis(200);

// === impl ChunkFence ===

impl<'a> ChunkFence<'a> {
    pub(super) fn new(store: &'a dyn Begin, chunk: &'a Chunk) -> Self {
        Self {
            store,
            chunk,
            begun: Cell::new(0),
            asked: Cell::new(0),
            is_refused: Cell::new(false),
            work: Notify::new(),
            answer: Notify::new(),
            last_asked: Notify::new(),
        }
    }

    /// Marks the requested deliveries. To be run beside the senders that request them.
    pub(super) async fn mark(&self) -> Infallible {
        loop {
            // A run that was refused marks nothing more: its senders are told, and end by themselves.
            while self.is_refused.get() || self.asked.get() <= self.begun.get() {
                self.work.notified().await;
            }
            // One slice, however many were asked for: both runs of a chunk that was given out twice stop at the same
            // marks.
            let end = self.chunk.deliveries.len().min(self.begun.get() + limits::BEGIN_ITEMS);
            match self.mark_to(end).await {
                Ok(MarkAnswer::Granted) => self.begun.set(end),
                // The rest of the chunk belongs to the run that holds it now.
                Ok(MarkAnswer::Stale) => {
                    let (chunk, epoch) = (self.chunk.id.0, self.chunk.epoch.0);
                    tracing::warn!(chunk, epoch, "not begun: the chunk moved on");
                    self.is_refused.set(true);
                }
                // Without a mark this run may not report, and the worker may go on: then no other would send the chunk.
                Ok(MarkAnswer::Overdue) => tokio::time::sleep(OVERDUE_WAIT).await,
                // Whether the mark was written is not known, so nothing is sent on it.
                Err(error) => {
                    tracing::error!(%error, "nothing was sent: it cannot be marked as begun");
                    self.is_refused.set(true);
                }
            }
            // Also after a refusal, or those that wait for a mark would wait for ever.
            self.answer.notify_waiters();
        }
    }

    /// True if a mark was granted: this run of the chunk is the only one.
    pub(super) fn has_begun(&self) -> bool {
        self.begun.get() > 0
    }

    /// Waits until a delivery of the last slice is requested: the next chunk may begin.
    pub(super) async fn last_asked(&self) {
        self.last_asked.notified().await;
    }

    /// True if this run of the chunk may report: unless another run was granted the mark that this one was refused. Waits until
    /// the delivery at `index` is begun, by which that is decided.
    async fn is_owned(&self, index: Option<u16>) -> bool {
        if let Some(index) = index {
            // Its answer shows below.
            let _begun = channel::Fence::begin(self, index).await;
        }
        self.has_begun() || !self.is_refused.get()
    }

    async fn mark_to(&self, end: usize) -> Result<MarkAnswer, StoreError> {
        let slice = self.chunk.deliveries.get(..end).unwrap_or_default();
        let Some(last) = slice.last() else { return Ok(MarkAnswer::Stale) };
        let mark = Mark { chunk: self.chunk.id, epoch: self.chunk.epoch, through: last.index };
        let answers = self.store.begin(vec![mark]).await?;
        // A store that does not answer grants nothing.
        Ok(answers.first().copied().unwrap_or(MarkAnswer::Stale))
    }

    /// Deliveries from the first up to the one at `index`.
    fn up_to(&self, index: u16) -> usize {
        self.chunk.deliveries.partition_point(|delivery| delivery.index <= index)
    }
}

#[async_trait(?Send)]
impl channel::Fence for ChunkFence<'_> {
    fn is_begun(&self, index: u16) -> bool {
        self.up_to(index) <= self.begun.get()
    }

    async fn begin(&self, index: u16) -> Result<(), Report> {
        let wanted = self.up_to(index);
        // A mark covers all deliveries up to it, so a request below an earlier one needs no mark of its own.
        if wanted > self.asked.get() {
            self.asked.set(wanted);
            // Kept where the marking does not wait at this moment, as it does not while it writes.
            self.work.notify_one();
            let slices = |deliveries: usize| deliveries.div_ceil(limits::BEGIN_ITEMS);
            if slices(wanted) == slices(self.chunk.deliveries.len()) {
                self.last_asked.notify_one();
            }
        }
        loop {
            // Made before the look: it hears of every answer from here on, also before it is first polled.
            let answer = self.answer.notified();
            if self.is_begun(index) {
                return Ok(());
            }
            if self.is_refused.get() {
                return Err(Report::HandedBack { after: REFUSED_DELAY });
            }
            answer.await;
        }
    }
}

// === impl FencedReports ===

#[async_trait(?Send)]
impl Reports for FencedReports<'_> {
    async fn report(&self, reports: Vec<(u16, Report)>) {
        // An attempt has an outcome, also if nothing was sent, and only begun deliveries have outcomes.
        let attempted = reports.iter().filter(|(_, report)| matches!(report, Report::Attempted(_)));
        let index = attempted.map(|(index, _)| *index).max().or_else(|| {
            let first = self.job.deliveries.first();
            first.filter(|first| self.job.may_start(first).is_ok()).map(|first| first.index)
        });
        // If not, the run that has the mark reports them.
        if self.fence.is_owned(index).await {
            self.job.reports.report(reports).await;
        }
    }

    fn ended(&self, index: u16, since: Instant, attempt: &Attempt) {
        self.job.reports.ended(index, since, attempt);
    }
}

#[cfg(test)]
#[path = "fence_tests.rs"]
mod tests;
