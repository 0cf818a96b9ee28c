//! What every queue must do. Backends and doubles run [`exercise`] in their tests.

#![expect(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "a suite fails by panicking"
)]

use std::future::Future;
use std::sync::Arc;

use notification::{
    BatchId, ByteString, Chunk, ChunkId, Delivery, Envelope, Epoch, Guarantee, Lane, Priority,
    Timestamp,
};

use crate::{Consume, Message, Publish, QueueError};

/// A queue under test, and how to close it.
#[derive(Debug)]
pub struct Subject<Close> {
    /// Its publishing side.
    pub publish: Arc<dyn Publish>,
    /// Its consuming side.
    pub consume: Arc<dyn Consume>,
    /// Closes it.
    pub close: Close,
}

/// A chunk with one delivery, told apart by `number`.
pub fn chunk(number: u64, priority: Priority) -> Arc<Chunk> {
    let name = |text: &str| text.parse().unwrap_or_else(|error| panic!("{error}"));
    Arc::new(Chunk {
        id: ChunkId(number),
        epoch: Epoch(1),
        lease_until: Timestamp::MAX,
        batch: BatchId(number),
        realm: 0,
        accepted_at: Timestamp::from_millis(0),
        envelope: Envelope {
            tenant: name("default"),
            lane: Lane { channel: name("test"), destination: "here".into(), priority },
            guarantee: Guarantee::AtLeastOnce,
            due_at: Timestamp::from_millis(0),
            expires_at: None,
            broadcast: None,
        },
        attempt: 1,
        content: None,
        deliveries: vec![Delivery {
            index: 0,
            recipient: ByteString::from_static("someone"),
            content: None,
        }],
    })
}

/// Runs every case, each on a fresh queue with room for at least 8 chunks.
pub async fn exercise<Close, Made>(make: impl Fn() -> Made)
where
    Close: AsyncFnOnce(),
    Made: Future<Output = Subject<Close>>,
{
    nothing_in_means_nothing_done(make().await).await;
    what_goes_in_comes_out_once(make().await).await;
    urgent_chunks_come_first(make().await).await;
    a_dropped_receipt_gives_the_chunk_out_again(make().await).await;
    consumers_compete(make().await).await;
    a_closed_queue_drains_and_ends(make().await).await;
}

async fn nothing_in_means_nothing_done<Close>(queue: Subject<Close>) {
    assert_eq!(queue.publish.publish(Vec::new()).await, []);
}

async fn what_goes_in_comes_out_once<Close: AsyncFnOnce()>(queue: Subject<Close>) {
    publish(&queue, &[1, 2, 3], Priority::Normal).await;
    let mut seen = Vec::new();
    while seen.len() < 3 {
        for message in queue.consume.receive(2).await {
            seen.push(message.chunk.id.0);
            acknowledge(message).await;
        }
    }
    assert_eq!(seen, [1, 2, 3]);
    (queue.close)().await;
    assert!(queue.consume.receive(1).await.is_empty(), "nothing comes twice");
}

async fn urgent_chunks_come_first<Close>(queue: Subject<Close>) {
    publish(&queue, &[1], Priority::Bulk).await;
    publish(&queue, &[2], Priority::Normal).await;
    publish(&queue, &[3], Priority::Urgent).await;
    let mut seen = Vec::new();
    while seen.len() < 3 {
        for message in queue.consume.receive(1).await {
            seen.push(message.chunk.id.0);
            acknowledge(message).await;
        }
    }
    assert_eq!(seen, [3, 2, 1]);
}

async fn a_dropped_receipt_gives_the_chunk_out_again<Close>(queue: Subject<Close>) {
    publish(&queue, &[7], Priority::Normal).await;
    drop(queue.consume.receive(1).await);
    let mut again = queue.consume.receive(1).await;
    assert_eq!(again[0].chunk.id, ChunkId(7));
    acknowledge(again.remove(0)).await;
}

async fn consumers_compete<Close>(queue: Subject<Close>) {
    publish(&queue, &[1, 2], Priority::Normal).await;
    let (first, second) = tokio::join!(queue.consume.receive(1), queue.consume.receive(1));
    let mut ids = [first[0].chunk.id.0, second[0].chunk.id.0];
    ids.sort_unstable();
    assert_eq!(ids, [1, 2]);
    for message in first.into_iter().chain(second) {
        acknowledge(message).await;
    }
}

async fn a_closed_queue_drains_and_ends<Close: AsyncFnOnce()>(queue: Subject<Close>) {
    publish(&queue, &[1], Priority::Normal).await;
    (queue.close)().await;
    assert_eq!(
        queue.publish.publish(vec![chunk(2, Priority::Normal)]).await,
        [Err(QueueError::Closed)]
    );
    let mut rest = queue.consume.receive(8).await;
    assert_eq!(rest.len(), 1);
    acknowledge(rest.remove(0)).await;
    assert!(queue.consume.receive(8).await.is_empty());
    assert!(queue.consume.receive(8).await.is_empty(), "the end stays the end");
}

async fn publish<Close>(queue: &Subject<Close>, numbers: &[u64], priority: Priority) {
    let chunks = numbers.iter().map(|number| chunk(*number, priority)).collect();
    for answer in queue.publish.publish(chunks).await {
        assert_eq!(answer, Ok(()));
    }
}

async fn acknowledge(message: Message) {
    if let Err((_receipt, error)) = message.receipt.acknowledge().await {
        panic!("{error}");
    }
}
