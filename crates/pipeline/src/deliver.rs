//! Deliver: takes chunks from the queue, lets them through their lane's gate, and reports the outcome of each delivery.
//! Independent of the backends; it reads the pauses from the store and writes the mark before the first byte of an at-most-once
//! delivery.

mod attempt_spans;
mod chunk;
mod destination_limits;
mod fence;
mod lane_gates;
mod lane_quotas;
mod load_metrics;
mod open_channels;
mod quota_shares;
mod thread_affinity;

use std::rc::Rc;
use std::sync::Arc;

use channel::ChannelError;
use flow::{Clock, WorkerDeadline};
use notification::{Chunk, Pauses, Priority};
use queue::Consume;
use store::Begin;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::Channels;
use crate::metrics::Metrics;
use crate::report::ReportMessage;
use crate::spans::SpanSink;
use chunk::Route;
pub use destination_limits::{ChannelLoad, DestinationLimits};
use lane_gates::LaneGates;
pub use lane_quotas::{LaneQuotas, QuotaNumbers};
pub use load_metrics::LoadMetrics;
use open_channels::OpenChannels;
pub use quota_shares::QuotaShares;
pub use thread_affinity::ThreadAffinity;
use thread_affinity::{ArrivedChunk, ChunkOrigin, ThreadInbox};

/// The stage on one sender thread: its connections to the other stages, its channels and its quotas.
#[derive(Debug, Clone)]
pub struct Deliver {
    /// Queue of chunks to be delivered.
    pub queue: Arc<dyn Consume<Arc<Chunk>>>,
    /// Store of the marks of at-most-once deliveries and of the pauses.
    pub begin: Arc<dyn Begin>,
    /// The channels. After a change, new attempts go over the new channels; those under way end on the channel they began on.
    pub channels: watch::Receiver<Channels>,
    /// Channel to settle.
    pub reports: mpsc::Sender<ReportMessage>,
    /// Turns true when no attempt may start any more.
    pub stopping: watch::Receiver<bool>,
    /// Time until which this worker may start attempts.
    pub worker_deadline: WorkerDeadline,
    /// The limits on attempts under way, for all sender threads of the process.
    pub limits: Arc<DestinationLimits>,
    /// The quotas, likewise.
    pub quotas: Arc<LaneQuotas>,
    /// Counts attempts and connections.
    pub metrics: Metrics,
    /// Takes the spans of attempts; `None` if nothing is traced.
    pub spans: Option<Arc<dyn SpanSink>>,
    /// Clock of the process.
    pub clock: Clock,
    /// Seed of this thread's generators.
    pub seed: u64,
    /// Sender threads of the process, with this one.
    pub affinity: Arc<ThreadAffinity>,
}

/// The parts of a sender thread that all its chunks share.
#[derive(Debug)]
struct SenderThread {
    channels: OpenChannels,
    lane_gates: LaneGates,
    begin: Arc<dyn Begin>,
    reports: mpsc::Sender<ReportMessage>,
    stopping: watch::Receiver<bool>,
    pauses: watch::Receiver<Arc<Pauses>>,
    worker_deadline: WorkerDeadline,
    spans: Option<Arc<dyn SpanSink>>,
    clock: Clock,
    affinity: Arc<ThreadAffinity>,
}

/// Chunks taken from the queue at once: one, so that the threads share them.
const RECEIVE_CHUNKS: usize = 1;

// === impl Deliver ===

impl Deliver {
    /// Runs until the queue is closed and every chunk is reported. Must run inside a
    /// [`tokio::task::LocalSet`] on a single-threaded runtime: connections stay on their thread.
    ///
    /// # Errors
    /// When a channel cannot be opened; before anything is taken from the queue.
    pub async fn run(self) -> Result<(), ChannelError> {
        // Of its own: what this loop has seen is still news to the channels that the thread has open.
        let (queue, mut channels) = (Arc::clone(&self.queue), self.channels.clone());
        let thread = Rc::new(self.open()?);
        let mut inbox = thread.affinity.open_inbox();
        let mut chunks = JoinSet::new();
        loop {
            // Not `biased`: a branch that is always ready, such as a full queue, would have those behind it wait for ever.
            let messages = tokio::select! {
                arrived = inbox.receive() => {
                    thread.take(&inbox, arrived, &mut chunks);
                    continue;
                }
                // Chunks of every priority are taken: the gates bound the attempts, and urgent ones are received first.
                messages = queue.receive(Priority::Bulk, RECEIVE_CHUNKS) => messages,
                Some(ended) = chunks.join_next() => { log_panic(ended); continue }
                Ok(()) = channels.changed() => {
                    // In a task: closing a replaced channel waits for its servers, and chunks are received meanwhile.
                    let thread = Rc::clone(&thread);
                    chunks.spawn_local(async move { thread.channels.follow().await });
                    continue;
                }
            };
            // Without settle no report is written: unsettled deliveries stay as they are in the store.
            if messages.is_empty() || thread.reports.is_closed() {
                break;
            }
            for message in messages {
                thread.take(
                    &inbox,
                    ArrivedChunk { message, from: ChunkOrigin::Queue },
                    &mut chunks,
                );
            }
        }
        // Chunks that were handed over are held by no other thread: they are sent before this one ends.
        for message in inbox.close() {
            let route = Route::of(&thread, &message.item);
            chunks.spawn_local(chunk::deliver(Rc::clone(&thread), message, route));
        }
        while let Some(ended) = chunks.join_next().await {
            log_panic(ended);
        }
        thread.channels.close().await;
        Ok(())
    }

    fn open(self) -> Result<SenderThread, ChannelError> {
        let counts = self.metrics.of_thread();
        Ok(SenderThread {
            channels: OpenChannels::open(self.channels, counts, (self.clock, self.seed))?,
            lane_gates: LaneGates::new(self.limits, self.quotas),
            pauses: self.begin.watch_pauses(),
            begin: self.begin,
            reports: self.reports,
            stopping: self.stopping,
            worker_deadline: self.worker_deadline,
            spans: self.spans,
            clock: self.clock,
            affinity: self.affinity,
        })
    }
}

// === impl SenderThread ===

impl SenderThread {
    /// Sends a chunk, unless another thread is to do it.
    fn take(self: &Rc<Self>, inbox: &ThreadInbox, arrived: ArrivedChunk, chunks: &mut JoinSet<()>) {
        // Here, and once for a chunk: whether it is another thread's depends on the limit that its destination has by now.
        let route = Route::of(self, &arrived.message.item);
        // Without a route, any thread hands it back to the store.
        let has_one_thread = route.as_ref().is_some_and(Route::has_one_thread);
        if let Some(message) = inbox.keep(arrived, has_one_thread) {
            chunks.spawn_local(chunk::deliver(Rc::clone(self), message, route));
        }
    }
}

/// A chunk's task panics only by a defect outside of sending: its receipt went back to the queue when it unwound.
fn log_panic(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "a chunk's task panicked; the chunk is given out again");
    }
}
