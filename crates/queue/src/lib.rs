//! The queue seam: a channel of pointers between dispatch and deliver.
//!
//! The store is the truth. A queue may lose or repeat an item at any time, and no promise breaks: a lost item is due again when
//! its lease ends, and a repeated one is refused by its epoch. A queue adds speed and distribution.
//!
//! Within one process the items are chunks ([`MemoryQueue`]); through a broker they are tickets, which are exchanged
//! for their chunks in the store. A backend implements its broker's protocol and is small; the common part of both is in the
//! module `broker`.

#[cfg(feature = "broker")]
pub mod broker;
#[cfg(feature = "conformance")]
pub mod conformance;
#[cfg(feature = "kafka")]
pub mod kafka;
pub mod memory;
#[cfg(feature = "nats")]
pub mod nats;
#[cfg(feature = "rabbitmq")]
pub mod rabbitmq;
#[cfg(feature = "sqs")]
pub mod sqs;
#[cfg(feature = "broker")]
pub mod ticket;

mod wake;

use std::sync::Arc;

use async_trait::async_trait;
use notification::{Chunk, Priority, Ticket};
use tokio::sync::watch;

#[cfg(feature = "broker")]
pub use broker::{Broker, BrokerOptions};
pub use memory::MemoryQueue;

/// An item of a queue: a chunk within a process, a ticket through a broker.
pub trait Item: Send + Sync + std::fmt::Debug + 'static {
    /// The priority: urgent items are received first.
    fn priority(&self) -> Priority;

    /// Its weight while it is under way: its deliveries, and [`notification::limits::CHUNK_WEIGHT`].
    fn weight(&self) -> usize;

    /// Bytes of notifications that it holds.
    fn bytes(&self) -> usize;
}

/// Takes items. For dispatch and collect alone.
#[async_trait]
pub trait Publish<T: Item>: Send + Sync + std::fmt::Debug {
    /// Publishes items in order and answers per item, in order. Waits while the queue is full: that is
    /// back-pressure. An empty list is no work.
    async fn publish(&self, items: Vec<T>) -> Vec<Result<(), QueueError>>;

    /// The lowest priority of which more items should be claimed now; `None` while the queue is full. An item that is in
    /// memory already may still be taken without waiting then.
    fn capacity(&self) -> watch::Receiver<Option<Priority>>;
}

/// Gives items. For collect and deliver.
#[async_trait]
pub trait Consume<T: Item>: Send + Sync + std::fmt::Debug {
    /// Waits for at least one item of the priority `lowest` or above and gives up to `items` of those that arrived,
    /// urgent ones first. Several consumers compete. An empty list means that the queue is closed and everything in it
    /// was given out. Dropping the future loses nothing.
    async fn receive(&self, lowest: Priority, items: usize) -> Vec<Message<T>>;
}

/// An item and the handle that acknowledges it.
#[derive(Debug)]
pub struct Message<T> {
    /// The chunk or ticket.
    pub item: T,
    /// Acknowledges the item, once the store no longer needs the queue to remember it.
    pub receipt: Receipt,
}

/// The queue's handle on one item. Dropped without acknowledgement, the item is given out again.
#[derive(Debug)]
#[must_use = "a receipt that is dropped gives its item back to the queue"]
pub struct Receipt(Box<dyn Acknowledge>);

/// The acknowledgement of one item, by a backend.
#[async_trait]
pub trait Acknowledge: Send + std::fmt::Debug {
    /// Removes the item from the queue.
    async fn acknowledge(&mut self) -> Result<(), QueueError>;
}

/// A failure of a queue.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QueueError {
    /// The queue was closed: the item was not taken, and its lease will end.
    #[error("the queue is closed")]
    Closed,
    /// A broker did not take it or did not say so: its lease will end, and it is published again.
    #[error("the broker did not confirm it: {0}")]
    Unconfirmed(String),
    /// The configuration cannot work: the broker's address, its credentials, or a queue of another kind.
    #[error("{0}")]
    Refused(String),
}

// === impl Item ===

impl Item for Arc<Chunk> {
    fn priority(&self) -> Priority {
        self.envelope.lane.priority
    }

    fn weight(&self) -> usize {
        self.deliveries.len() + notification::limits::CHUNK_WEIGHT
    }

    fn bytes(&self) -> usize {
        Chunk::bytes(self)
    }
}

impl Item for Ticket {
    fn priority(&self) -> Priority {
        self.priority
    }

    fn weight(&self) -> usize {
        usize::from(self.count) + notification::limits::CHUNK_WEIGHT
    }

    fn bytes(&self) -> usize {
        // Its chunk is in the store and not in memory.
        0
    }
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
