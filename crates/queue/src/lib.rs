//! The queue seam: a channel of pointers between dispatch and deliver.
//!
//! The store is the truth. A queue may lose or repeat a chunk at any time, and no promise breaks: a lost
//! one is due again when its lease ends, and a repeated one is refused by its epoch. What a queue adds is
//! speed and distribution.

#[cfg(feature = "conformance")]
pub mod conformance;
pub mod memory;

use std::sync::Arc;

use async_trait::async_trait;
use notification::Chunk;

pub use memory::Memory;

/// Takes chunks. For dispatch, and nobody else.
#[async_trait]
pub trait Publish: Send + Sync + std::fmt::Debug {
    /// Publishes chunks in order and answers per chunk, in order. Waits while the queue is full: that is
    /// back-pressure. An empty list is no work.
    async fn publish(&self, chunks: Vec<Arc<Chunk>>) -> Vec<Result<(), QueueError>>;
}

/// Gives chunks. For deliver.
#[async_trait]
pub trait Consume: Send + Sync + std::fmt::Debug {
    /// Waits for at least one chunk and gives up to `chunks` of them, urgent ones first. Several consumers
    /// compete. An empty list means that the queue is closed and everything in it was given out.
    async fn receive(&self, chunks: usize) -> Vec<Message>;
}

/// A chunk and the handle that acknowledges it.
#[derive(Debug)]
pub struct Message {
    /// What to deliver.
    pub chunk: Arc<Chunk>,
    /// What to acknowledge with, once every delivery has its outcome in the store.
    pub receipt: Receipt,
}

/// The queue's handle on one chunk. Dropped without acknowledgement, the chunk is given out again.
#[derive(Debug)]
#[must_use = "a receipt that is dropped gives its chunk back to the queue"]
pub struct Receipt(Box<dyn Acknowledge>);

/// What a backend does to acknowledge one chunk.
#[async_trait]
pub trait Acknowledge: Send + std::fmt::Debug {
    /// Tells the queue to forget the chunk.
    async fn acknowledge(&mut self) -> Result<(), QueueError>;
}

/// What can go wrong in a queue.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QueueError {
    /// The queue was closed: the chunk was not taken, and its lease will end.
    #[error("the queue is closed")]
    Closed,
}

// === impl Receipt ===

impl Receipt {
    /// A receipt that acknowledges by `handle`.
    pub fn new(handle: impl Acknowledge + 'static) -> Self {
        Self(Box::new(handle))
    }

    /// Acknowledges, once; handed back with the error when that failed.
    pub async fn acknowledge(mut self) -> Result<(), (Self, QueueError)> {
        match self.0.acknowledge().await {
            Ok(()) => Ok(()),
            Err(error) => Err((self, error)),
        }
    }
}
