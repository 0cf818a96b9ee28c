//! The life of one chunk in deliver.

use std::panic::AssertUnwindSafe;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use channel::{Job, MayStart, Reports, Sender};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use notification::{Chunk, Delivery, Guarantee, Report, limits};
use queue::Message;
use store::{Begun, Mark, StoreError};
use tokio::sync::mpsc;

use super::Thread;
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
            Guarantee::AtLeastOnce => self.send_some(chunk, &chunk.deliveries).await,
            Guarantee::AtMostOnce => self.send_fenced(chunk).await,
        }
    }

    /// Marks a slice of deliveries as begun, durably, before the first of its bytes; and the next one when
    /// the gate has a place for it.
    async fn send_fenced(self, chunk: &Chunk) {
        let mut under_way = FuturesUnordered::new();
        let turn = self.entrance.turn.lock().await;
        for slice in chunk.deliveries.chunks(limits::BEGIN_ITEMS) {
            // Begun and not sent would be in doubt if the process ended then.
            if let MayStart::No { after } = self.job(chunk, slice).may_start() {
                self.reporter.hand_back(slice, after).await;
                continue;
            }
            match alongside(&mut under_way, self.begin_when_there_is_a_place(chunk, slice)).await {
                Ok(Begun::Granted) => under_way.push(self.send_some(chunk, slice)),
                // Whoever holds the chunk now reports the rest of it.
                Ok(Begun::Stale) => break,
                Err(error) => {
                    tracing::error!(%error, "nothing was sent: it cannot be marked as begun");
                    break;
                }
            }
        }
        drop(turn);
        while under_way.next().await.is_some() {}
    }

    async fn begin_when_there_is_a_place(
        self,
        chunk: &Chunk,
        slice: &[Delivery],
    ) -> Result<Begun, StoreError> {
        drop(self.entrance.gate.enter().await);
        self.begin(chunk, slice).await
    }

    async fn begin(self, chunk: &Chunk, slice: &[Delivery]) -> Result<Begun, StoreError> {
        let Some(last) = slice.last() else { return Ok(Begun::Stale) };
        let mark = Mark { chunk: chunk.id, epoch: chunk.epoch, through: last.index };
        let answers = self.thread.begin.begin(vec![mark]).await?;
        Ok(answers.first().copied().unwrap_or(Begun::Stale))
    }

    async fn send_some(self, chunk: &Chunk, deliveries: &[Delivery]) {
        self.sender.send(self.job(chunk, deliveries)).await;
    }

    fn job<'job>(&'job self, chunk: &'job Chunk, deliveries: &'job [Delivery]) -> Job<'job> {
        Job {
            chunk,
            deliveries,
            gate: &self.entrance.gate,
            reports: self.reporter,
            clock: self.thread.clock,
            stopping: &self.thread.stopping,
            tenure: &self.thread.tenure,
        }
    }
}

/// Waits for `future` while what is under way goes on: first, so that it takes its places in the gate before
/// `future` looks for one.
async fn alongside<T>(
    under_way: &mut FuturesUnordered<impl Future<Output = ()>>,
    future: impl Future<Output = T>,
) -> T {
    tokio::pin!(future);
    loop {
        tokio::select! {
            biased;
            Some(()) = under_way.next(), if !under_way.is_empty() => {}
            output = &mut future => return output,
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
