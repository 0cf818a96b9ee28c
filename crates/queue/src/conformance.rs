//! The conformance suite of queues. Backends and doubles run [`exercise`] in their tests.

#![expect(clippy::indexing_slicing, clippy::panic, reason = "a suite fails by panicking")]

use std::future::Future;
use std::sync::Arc;

use futures_util::FutureExt;
use notification::{Chunk, ChunkId, Epoch, Priority, Ticket, Timestamp, sample};

use crate::{Consume, Item, Message, Publish, QueueError};

/// A queue under test, and how to close it.
#[derive(Debug)]
pub struct TestedQueue<T, Close> {
    /// Its publishing side.
    pub publish: Arc<dyn Publish<T>>,
    /// Its consuming side.
    pub consume: Arc<dyn Consume<T>>,
    /// Closes it.
    pub close: Close,
}

/// Items that can be made up, with one delivery each.
pub trait SampleItem: Item {
    /// An item, told apart by `number`.
    fn sample(number: u64, priority: Priority) -> Self;

    /// Number that distinguishes samples.
    fn number(&self) -> u64;
}

impl SampleItem for Arc<Chunk> {
    fn sample(number: u64, priority: Priority) -> Self {
        let mut chunk = sample::chunk(Timestamp::from_millis(0), ["recipient"]);
        (chunk.id, chunk.envelope.lane.priority) = (ChunkId(number), priority);
        Self::new(chunk)
    }

    fn number(&self) -> u64 {
        self.id.0
    }
}

impl SampleItem for Ticket {
    fn sample(number: u64, priority: Priority) -> Self {
        let (chunk, lease_until) = (ChunkId(number), Timestamp::from_millis(4_102_444_800_000));
        Self { chunk, epoch: Epoch(1), priority, lease_until, count: 1 }
    }

    fn number(&self) -> u64 {
        self.chunk.0
    }
}

/// Runs every case, each on a fresh queue with room for at least 8 items.
pub async fn exercise<T: SampleItem, Close, Made>(make: impl Fn() -> Made)
where
    Close: AsyncFnOnce(),
    Made: Future<Output = TestedQueue<T, Close>>,
{
    make().await.nothing_in_means_nothing_done().await;
    make().await.what_goes_in_comes_out_once().await;
    make().await.urgent_items_pass_what_is_not_wanted_yet().await;
    make().await.what_is_not_wanted_wakes_nobody().await;
    make().await.a_dropped_receipt_gives_the_item_out_again().await;
    make().await.a_receive_that_is_given_up_loses_nothing().await;
    make().await.consumers_compete().await;
    make().await.a_closed_queue_drains_and_ends().await;
}

// === impl TestedQueue ===

impl<T: SampleItem, Close: AsyncFnOnce()> TestedQueue<T, Close> {
    async fn nothing_in_means_nothing_done(self) {
        assert_eq!(self.publish.publish(Vec::new()).await, []);
        assert_eq!(*self.publish.capacity().borrow(), Some(Priority::Bulk));
        (self.close)().await;
    }

    async fn what_goes_in_comes_out_once(self) {
        self.publish(&[1, 2, 3], Priority::Normal).await;
        let mut seen = Vec::new();
        while seen.len() < 3 {
            for message in self.consume.receive(Priority::Bulk, 2).await {
                seen.push(message.item.number());
                acknowledge(message).await;
            }
        }
        assert_eq!(seen, [1, 2, 3]);
        (self.close)().await;
        assert!(self.consume.receive(Priority::Bulk, 1).await.is_empty(), "nothing comes twice");
    }

    async fn urgent_items_pass_what_is_not_wanted_yet(self) {
        self.publish(&[1], Priority::Bulk).await;
        self.publish(&[2], Priority::Normal).await;
        self.publish(&[3], Priority::Urgent).await;
        for (lowest, expect) in [(Priority::Urgent, 3), (Priority::Normal, 2), (Priority::Bulk, 1)]
        {
            let mut messages = self.consume.receive(lowest, 8).await;
            let numbers: Vec<u64> = messages.iter().map(|message| message.item.number()).collect();
            assert_eq!(numbers, [expect], "{lowest:?}");
            acknowledge(messages.remove(0)).await;
        }
        (self.close)().await;
    }

    async fn what_is_not_wanted_wakes_nobody(self) {
        self.publish(&[1], Priority::Bulk).await;
        drop(self.consume.receive(Priority::Bulk, 1).await);
        let urgent = self.consume.receive(Priority::Urgent, 1);
        tokio::pin!(urgent);
        assert!(urgent.as_mut().now_or_never().is_none(), "it came back, and is not wanted");
        let mut wanted = self.consume.receive(Priority::Bulk, 1).await;
        assert!(urgent.as_mut().now_or_never().is_none(), "it is with somebody else");
        self.publish(&[2], Priority::Urgent).await;
        let mut messages = urgent.await;
        assert_eq!((wanted[0].item.number(), messages[0].item.number()), (1, 2));
        acknowledge(wanted.remove(0)).await;
        acknowledge(messages.remove(0)).await;
        (self.close)().await;
    }

    async fn a_dropped_receipt_gives_the_item_out_again(self) {
        self.publish(&[7], Priority::Normal).await;
        drop(self.consume.receive(Priority::Bulk, 1).await);
        let mut again = self.consume.receive(Priority::Bulk, 1).await;
        assert_eq!(again[0].item.number(), 7);
        acknowledge(again.remove(0)).await;
        (self.close)().await;
    }

    async fn a_receive_that_is_given_up_loses_nothing(self) {
        let given_up = self.consume.receive(Priority::Bulk, 1);
        assert!(given_up.now_or_never().is_none(), "there is nothing yet");
        self.publish(&[5], Priority::Normal).await;
        let mut messages = self.consume.receive(Priority::Bulk, 1).await;
        assert_eq!(messages[0].item.number(), 5);
        acknowledge(messages.remove(0)).await;
        (self.close)().await;
    }

    async fn consumers_compete(self) {
        self.publish(&[1, 2], Priority::Normal).await;
        let receive = || self.consume.receive(Priority::Bulk, 1);
        let (first, second) = tokio::join!(receive(), receive());
        let mut ids = [first[0].item.number(), second[0].item.number()];
        ids.sort_unstable();
        assert_eq!(ids, [1, 2]);
        for message in first.into_iter().chain(second) {
            acknowledge(message).await;
        }
        (self.close)().await;
    }

    async fn a_closed_queue_drains_and_ends(self) {
        self.publish(&[1], Priority::Normal).await;
        let mut held = self.consume.receive(Priority::Bulk, 8).await;
        assert_eq!(held.len(), 1);
        (self.close)().await;
        assert_eq!(
            self.publish.publish(vec![T::sample(2, Priority::Normal)]).await,
            [Err(QueueError::Closed)]
        );
        acknowledge(held.remove(0)).await;
        assert!(self.consume.receive(Priority::Bulk, 8).await.is_empty());
        assert!(self.consume.receive(Priority::Bulk, 8).await.is_empty(), "the end stays the end");
    }

    async fn publish(&self, numbers: &[u64], priority: Priority) {
        let items = numbers.iter().map(|number| T::sample(*number, priority)).collect();
        for answer in self.publish.publish(items).await {
            assert_eq!(answer, Ok(()));
        }
    }
}

async fn acknowledge<T>(message: Message<T>) {
    if let Err((_receipt, error)) = message.receipt.acknowledge().await {
        panic!("{error}");
    }
}
