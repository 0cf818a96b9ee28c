//! Deliver: takes chunks from the queue, lets them through their lane's gate, and reports what came of
//! them. Knows no backend, reads no store; the one thing it writes is the mark before the first byte of
//! an at-most-once delivery.

mod chunk;
mod fence;
mod lanes;
mod ways;

use std::rc::Rc;
use std::sync::Arc;

use channel::{ChannelError, Tools};
use flow::{Clock, WorkerDeadline};
use notification::{Chunk, Priority};
use queue::Consume;
use store::Begin;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::Channels;
use crate::report::Reported;
use lanes::Lanes;
use ways::Ways;

/// What one sender thread needs.
#[derive(Debug, Clone)]
pub struct Deliver {
    /// Where chunks come from.
    pub queue: Arc<dyn Consume<Arc<Chunk>>>,
    /// The fence of at-most-once deliveries.
    pub begin: Arc<dyn Begin>,
    /// The ways out. What is sent from a change on goes by the new ones; what is under way ends as it began.
    pub channels: watch::Receiver<Channels>,
    /// Where reports go.
    pub reports: mpsc::Sender<Reported>,
    /// Turns true when no attempt may start any more.
    pub stopping: watch::Receiver<bool>,
    /// Until when this worker may start attempts.
    pub worker_deadline: WorkerDeadline,
    /// The time.
    pub clock: Clock,
    /// Seeds this thread's generators.
    pub seed: u64,
}

/// What all chunks on one thread share.
#[derive(Debug)]
struct Thread {
    ways: Ways,
    lanes: Lanes,
    begin: Arc<dyn Begin>,
    reports: mpsc::Sender<Reported>,
    stopping: watch::Receiver<bool>,
    worker_deadline: WorkerDeadline,
    clock: Clock,
}

/// Chunks taken from the queue at once: one, so that the threads share what is there.
const RECEIVE_CHUNKS: usize = 1;

// === impl Deliver ===

impl Deliver {
    /// Runs until the queue is closed and every chunk is reported. Must run inside a
    /// [`tokio::task::LocalSet`] on a single-threaded runtime: connections stay on their thread.
    ///
    /// # Errors
    /// When a channel cannot be opened; before anything is taken from the queue.
    pub async fn run(self) -> Result<(), ChannelError> {
        let (queue, mut channels) = (Arc::clone(&self.queue), self.channels.clone());
        let thread = Rc::new(self.open()?);
        let mut chunks = JoinSet::new();
        loop {
            let messages = tokio::select! {
                messages = queue.receive(Priority::Bulk, RECEIVE_CHUNKS) => messages,
                Some(ended) = chunks.join_next() => { tell_panic(ended); continue }
                Ok(()) = channels.changed() => {
                    let thread = Rc::clone(&thread);
                    chunks.spawn_local(async move { thread.ways.follow().await });
                    continue;
                }
            };
            // Without settle nothing can come of them: the store will say what is unsettled.
            if messages.is_empty() || thread.reports.is_closed() {
                break;
            }
            for message in messages {
                chunks.spawn_local(chunk::deliver(Rc::clone(&thread), message));
            }
        }
        while let Some(ended) = chunks.join_next().await {
            tell_panic(ended);
        }
        thread.ways.close().await;
        Ok(())
    }

    fn open(self) -> Result<Thread, ChannelError> {
        let tools = Tools { clock: self.clock, seed: self.seed };
        Ok(Thread {
            ways: Ways::open(self.channels, tools)?,
            lanes: Lanes::default(),
            begin: self.begin,
            reports: self.reports,
            stopping: self.stopping,
            worker_deadline: self.worker_deadline,
            clock: self.clock,
        })
    }
}

/// A chunk's task panics only by a defect outside of sending: its receipt went back to the queue when it unwound.
fn tell_panic(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "a chunk's task panicked; the chunk is given out again");
    }
}
