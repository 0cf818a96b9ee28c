//! The life of one chunk in deliver.

use std::panic::AssertUnwindSafe;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use channel::{Job, Reports, Sender};
use futures_util::FutureExt;
use notification::{Chunk, Delivery, Guarantee, Report};
use queue::Message;
use tokio::sync::mpsc;

use super::Thread;
use super::fence::{Fence, FencedReports};
use super::lanes::Entrance;
use crate::report::Reported;

/// When a channel is missing from the configuration, its notifications wait; this long between looks.
const MISSING_CHANNEL_WAIT: Duration = Duration::from_mins(1);

/// Sends the deliveries of one chunk and reports each of them.
pub(super) async fn deliver(thread: Rc<Thread>, message: Message<Arc<Chunk>>) {
    let Message { item: chunk, receipt } = message;
    let reporter = Reporter { chunk: Arc::clone(&chunk), reports: thread.reports.clone() };
    let lane = &chunk.envelope.lane;
    if let Some(way) = thread.ways.get(&lane.channel) {
        let entrance = thread.lanes.entrance(lane, way.channel.concurrency());
        let sender = way.sender.as_ref();
        let run = Run { thread: &thread, sender, entrance: &entrance, reporter: &reporter };
        // A defect, not an attempt's: what was not reported stays leased, and is due again when the lease ends.
        if AssertUnwindSafe(run.send(&chunk)).catch_unwind().await.is_err() {
            tracing::error!(chunk = chunk.id.0, channel = %lane.channel, "sending a chunk panicked; it waits out its lease");
        }
    } else {
        tracing::error!(channel = %lane.channel, "channel is not configured: its notifications wait");
        reporter.hand_back(&chunk.deliveries, MISSING_CHANNEL_WAIT).await;
    }
    // Settle is gone only when the process is on its way out: the store will say what is unsettled.
    let _unsettled = thread.reports.send(Reported::Done(receipt)).await;
    thread.ways.close_retired().await;
}

/// What sending one chunk takes.
#[derive(Clone, Copy)]
struct Run<'a> {
    thread: &'a Thread,
    sender: &'a dyn Sender,
    entrance: &'a Entrance,
    reporter: &'a Reporter,
}

/// Sends reports of one chunk to settle.
#[derive(Debug)]
struct Reporter {
    chunk: Arc<Chunk>,
    reports: mpsc::Sender<Reported>,
}

// === impl Run ===

impl Run<'_> {
    async fn send(self, chunk: &Chunk) {
        match chunk.envelope.guarantee {
            Guarantee::AtLeastOnce => self.sender.send(self.job(chunk)).await,
            Guarantee::AtMostOnce => self.send_fenced(chunk).await,
        }
    }

    /// Sends behind the chunk's fence. Of one lane, one chunk at a time is between its first and its last slice.
    async fn send_fenced(self, chunk: &Chunk) {
        let fence = Fence::new(self.thread.begin.as_ref(), chunk);
        let job = self.job(chunk);
        let reports = FencedReports { fence: &fence, job };
        let turn = self.entrance.turn.lock().await;
        let end_turn = async {
            fence.last_asked().await;
            drop(turn);
            std::future::pending::<()>().await;
        };
        let fenced = Job { fence: Some(&fence), reports: &reports, ..job };
        tokio::select! {
            biased;
            () = self.sender.send(fenced) => {}
            _never = fence.mark() => {}
            () = end_turn => {}
        }
    }

    fn job<'job>(&'job self, chunk: &'job Chunk) -> Job<'job> {
        Job {
            chunk,
            deliveries: &chunk.deliveries,
            gate: &self.entrance.gate,
            fence: None,
            reports: self.reporter,
            clock: self.thread.clock,
            stopping: &self.thread.stopping,
            tenure: &self.thread.tenure,
        }
    }
}

// === impl Reporter ===

impl Reporter {
    async fn hand_back(&self, deliveries: &[Delivery], after: Duration) {
        let reports =
            deliveries.iter().map(|delivery| (delivery.index, Report::HandedBack { after }));
        self.report(reports.collect()).await;
    }
}

#[async_trait(?Send)]
impl Reports for Reporter {
    async fn report(&self, reports: Vec<(u16, Report)>) {
        let message = Reported::Deliveries { chunk: Arc::clone(&self.chunk), reports };
        if self.reports.send(message).await.is_err() {
            tracing::warn!(
                "settle is gone: these reports are lost, and a restart recovers the chunk"
            );
        }
    }
}
