//! The in-process queue: bounded, urgent first, and gone with the process, which loses nothing.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use notification::{Priority, limits};
use tokio::sync::{Notify, watch};

use crate::wake::seen;
use crate::{Acknowledge, Consume, Item, Message, Publish, QueueError, Receipt};

/// A queue in memory. Cloning gives another handle on the same one.
#[derive(Debug)]
pub struct MemoryQueue<T> {
    inner: Arc<SharedQueue<T>>,
}

#[derive(Debug)]
struct SharedQueue<T> {
    weight_max: usize,
    state: Mutex<QueueState<T>>,
    /// Wakes all consumers, since they may wait for different priorities.
    arrived: Notify,
    capacity: watch::Sender<Option<Priority>>,
}

#[derive(Debug)]
struct QueueState<T> {
    by_priority: [VecDeque<T>; Priority::ALL.len()],
    /// Weight of all items that are queued or unacknowledged.
    weight: usize,
    /// Bytes of all items that are queued or unacknowledged.
    bytes: usize,
    unacknowledged: usize,
    closed: bool,
}

#[derive(Debug)]
struct ItemReceipt<T: Item + Clone> {
    queue: MemoryQueue<T>,
    /// Present until acknowledged.
    item: Option<T>,
}

// === impl MemoryQueue ===

impl<T: Item + Clone> MemoryQueue<T> {
    /// A queue for items that weigh `weight_max` together, unacknowledged ones included, or one more. Items that are not urgent
    /// leave an eighth of it to those that are. When they hold [`limits::CLAIMED_BYTES`], it has no room for more, and still
    /// takes items: its publisher would hold the bytes otherwise.
    pub fn new(weight_max: usize) -> Self {
        let state = QueueState {
            by_priority: Default::default(),
            weight: 0,
            bytes: 0,
            unacknowledged: 0,
            closed: false,
        };
        let inner = SharedQueue {
            weight_max,
            state: Mutex::new(state),
            arrived: Notify::new(),
            capacity: watch::Sender::new(Some(Priority::Bulk)),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Takes no more items. Consumers receive the items that are queued or come back, and then the end.
    pub fn close(&self) {
        self.state().closed = true;
        // Publishers wait for a change of the capacity: this wakes them although it is the same.
        self.inner.capacity.send_modify(|_| ());
        self.inner.arrived.notify_waiters();
    }

    /// Takes the item; gives it back when there is no room for it now.
    fn try_put(&self, item: T) -> Result<Option<T>, QueueError> {
        let mut state = self.state();
        // Under the lock of the insertion: consumers that have received the end would not see later items.
        if state.closed {
            return Err(QueueError::Closed);
        }
        // A full queue has no lowest priority, and `None` is below all of them.
        if lowest(state.weight, self.inner.weight_max) < Some(item.priority()) {
            return Ok(Some(item));
        }
        // Weight and bytes are given back at the acknowledgement, not at the receipt: a received chunk is still in memory.
        state.weight += item.weight();
        state.bytes += item.bytes();
        state.push(item);
        self.publish_capacity(&state);
        drop(state);
        self.inner.arrived.notify_waiters();
        Ok(None)
    }

    /// The items to receive now; `None` while there are none and more may come.
    fn take(&self, lowest: Priority, items: usize) -> Option<Vec<Message<T>>> {
        let mut state = self.state();
        let mut messages = Vec::new();
        while messages.len() < items
            && let Some(item) = state.pop(lowest)
        {
            let receipt = ItemReceipt { queue: self.clone(), item: Some(item.clone()) };
            messages.push(Message { item, receipt: Receipt::new(receipt) });
        }
        state.unacknowledged += messages.len();
        // An unacknowledged item may come back, so until then there is no end.
        let ended = state.closed && state.unacknowledged == 0;
        (ended || !messages.is_empty()).then_some(messages)
    }

    fn publish_capacity(&self, state: &QueueState<T>) {
        let capacity = state.capacity(self.inner.weight_max);
        self.inner
            .capacity
            .send_if_modified(|published| std::mem::replace(published, capacity) != capacity);
    }

    fn state(&self) -> MutexGuard<'_, QueueState<T>> {
        // Every critical section leaves the state whole, even if it panicked.
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Clone for MemoryQueue<T> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

#[async_trait]
impl<T: Item + Clone> Publish<T> for MemoryQueue<T> {
    async fn publish(&self, items: Vec<T>) -> Vec<Result<(), QueueError>> {
        let mut answers = Vec::with_capacity(items.len());
        for item in items {
            answers.push(self.put(item).await);
        }
        answers
    }

    fn capacity(&self) -> watch::Receiver<Option<Priority>> {
        self.inner.capacity.subscribe()
    }
}

impl<T: Item + Clone> MemoryQueue<T> {
    async fn put(&self, mut item: T) -> Result<(), QueueError> {
        let mut capacity = self.inner.capacity.subscribe();
        loop {
            // Before the look, so that room made in between ends the wait.
            capacity.mark_unchanged();
            let Some(back) = self.try_put(item)? else { return Ok(()) };
            item = back;
            // The sender lives in this queue.
            capacity.changed().await.map_err(|_gone| QueueError::Closed)?;
        }
    }
}

#[async_trait]
impl<T: Item + Clone> Consume<T> for MemoryQueue<T> {
    async fn receive(&self, lowest: Priority, items: usize) -> Vec<Message<T>> {
        seen(&self.inner.arrived, || self.take(lowest, items.max(1))).await
    }
}

// === impl QueueState ===

impl<T: Item> QueueState<T> {
    /// The lowest priority that there is room for.
    fn capacity(&self, weight_max: usize) -> Option<Priority> {
        lowest(self.weight, weight_max).min(lowest(self.bytes, limits::CLAIMED_BYTES))
    }

    fn push(&mut self, item: T) {
        if let Some(queue) = self.by_priority.get_mut(usize::from(item.priority().code())) {
            queue.push_back(item);
        }
    }

    fn pop(&mut self, lowest: Priority) -> Option<T> {
        let admitted = usize::from(lowest.code()) + 1;
        self.by_priority.iter_mut().take(admitted).find_map(VecDeque::pop_front)
    }
}

/// The lowest priority that may have more while `used` of `max` is in use: an eighth is left to urgent items.
fn lowest(used: usize, max: usize) -> Option<Priority> {
    if used < max - max / 8 {
        Some(Priority::Bulk)
    } else if used < max {
        Some(Priority::Urgent)
    } else {
        None
    }
}

// === impl ItemReceipt ===

#[async_trait]
impl<T: Item + Clone> Acknowledge for ItemReceipt<T> {
    async fn acknowledge(&mut self) -> Result<(), QueueError> {
        // Taken, so that dropping the receipt gives nothing back.
        if let Some(item) = self.item.take() {
            let mut state = self.queue.state();
            state.weight = state.weight.saturating_sub(item.weight());
            state.bytes = state.bytes.saturating_sub(item.bytes());
            self.queue.publish_capacity(&state);
        }
        Ok(())
    }
}

impl<T: Item + Clone> Drop for ItemReceipt<T> {
    fn drop(&mut self) {
        let mut state = self.queue.state();
        // Here, once for every receipt, and not at the acknowledgement: a receipt that is dropped without one counts as well.
        state.unacknowledged = state.unacknowledged.saturating_sub(1);
        let came_back = self.item.is_some();
        if let Some(item) = self.item.take() {
            // Its weight and bytes stay counted: it is in memory as before.
            state.push(item);
        }
        let has_ended = state.closed && state.unacknowledged == 0;
        drop(state);
        if came_back || has_ended {
            self.queue.inner.arrived.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::conformance::SampleItem;
    use notification::{Bytes, Chunk, Content, Ticket};

    /// Room for `tickets` of one delivery each.
    fn queue(tickets: usize) -> MemoryQueue<Ticket> {
        MemoryQueue::new(tickets * (1 + limits::CHUNK_WEIGHT))
    }

    #[tokio::test]
    async fn a_full_queue_makes_the_publisher_wait_until_something_is_acknowledged() {
        let queue = queue(1);
        let item = Ticket::sample(1, Priority::Urgent);
        assert_eq!(queue.publish(vec![item]).await, [Ok(())]);
        assert_eq!(*queue.capacity().borrow(), None);
        let second = queue.publish(vec![item]);
        tokio::pin!(second);
        assert!(second.as_mut().now_or_never().is_none());
        let mut messages = queue.receive(Priority::Bulk, 1).await;
        assert!(second.as_mut().now_or_never().is_none(), "received is not acknowledged");
        messages.remove(0).receipt.acknowledge().await.unwrap();
        assert_eq!(second.await, [Ok(())]);
    }

    #[test]
    fn a_closed_queue_takes_nothing() {
        let queue = queue(8);
        queue.close();
        // Where it is inserted, so that no close can come between the look and that.
        let refused = queue.try_put(Ticket::sample(1, Priority::Normal));
        assert_eq!(refused, Err(QueueError::Closed));
    }

    #[tokio::test]
    async fn a_closed_queue_gives_out_what_is_in_it() {
        let queue = queue(8);
        queue.publish(vec![Ticket::sample(1, Priority::Normal)]).await;
        queue.close();
        drop(queue.receive(Priority::Bulk, 8).await);
        let mut rest = queue.receive(Priority::Bulk, 8).await;
        assert!(queue.receive(Priority::Bulk, 8).now_or_never().is_none(), "it may come back");
        rest.remove(0).receipt.acknowledge().await.unwrap();
        assert!(queue.receive(Priority::Bulk, 8).await.is_empty());
    }

    #[tokio::test]
    async fn three_thousand_chunks_of_a_mebibyte_are_fetched_as_fast_as_their_bytes_go() {
        let queue: MemoryQueue<Arc<Chunk>> = MemoryQueue::new(limits::QUEUE_WEIGHT);
        let payload = Bytes::from(vec![b'1'; limits::BATCH_BYTES]);
        let (mut held, mut most, mut left) = (VecDeque::new(), 0, 3_000);
        while left > 0 {
            // As dispatch does: it claims while there is room, and all of a claim is taken without waiting.
            while left > 0 && queue.capacity().borrow().is_some() {
                for _ in 0..limits::CLAIM_BYTES.div_ceil(limits::BATCH_BYTES).min(left) {
                    let mut chunk =
                        Chunk::clone(&Arc::<Chunk>::sample(left as u64, Priority::Urgent));
                    let payload = payload.clone();
                    chunk.content = Some(Content { payload, ..Content::default() });
                    assert!(queue.publish(vec![Arc::new(chunk)]).now_or_never().is_some());
                    left -= 1;
                }
                held.extend(queue.receive(Priority::Bulk, usize::MAX).await);
                most = most.max(held.iter().map(|message| message.item.bytes()).sum());
            }
            // A provider that answers one of them.
            let message = held.pop_front().unwrap();
            message.receipt.acknowledge().await.unwrap();
        }
        assert!(most >= limits::CLAIMED_BYTES, "{most}");
        assert!(most <= limits::CLAIMED_BYTES + limits::CLAIM_BYTES + 100_000, "{most}");
    }

    #[tokio::test]
    async fn an_eighth_is_left_to_what_is_urgent() {
        let queue = queue(8);
        for number in 0..7 {
            let item = Ticket::sample(number, Priority::Bulk);
            assert_eq!(queue.publish(vec![item]).now_or_never(), Some(vec![Ok(())]));
        }
        assert_eq!(*queue.capacity().borrow(), Some(Priority::Urgent));
        let [normal, urgent] =
            [Priority::Normal, Priority::Urgent].map(|priority| Ticket::sample(9, priority));
        assert_eq!(queue.publish(vec![normal]).now_or_never(), None);
        assert_eq!(queue.publish(vec![urgent]).now_or_never(), Some(vec![Ok(())]));
        let first = queue.receive(Priority::Bulk, 1).await;
        assert_eq!(first.first().map(|message| message.item), Some(urgent));
    }
}
