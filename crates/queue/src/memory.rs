//! The in-process queue: bounded, urgent first, and gone with the process, which loses nothing.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use notification::{Chunk, Priority};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::{Acknowledge, Consume, Message, Publish, QueueError, Receipt};

/// A queue in memory. Cloning gives another handle on the same one.
#[derive(Debug, Clone)]
pub struct Memory {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// One place per chunk that is queued or unacknowledged.
    places: Arc<Semaphore>,
    state: Mutex<State>,
    arrived: Notify,
}

#[derive(Debug, Default)]
struct State {
    by_priority: [VecDeque<Queued>; Priority::ALL.len()],
    unacknowledged: usize,
    closed: bool,
}

#[derive(Debug)]
struct Queued {
    chunk: Arc<Chunk>,
    /// Freed when the chunk is acknowledged.
    _place: OwnedSemaphorePermit,
}

#[derive(Debug)]
struct Handle {
    queue: Memory,
    /// Present until acknowledged.
    queued: Option<Queued>,
}

// === impl Memory ===

impl Memory {
    /// A queue for `chunks` that are queued or unacknowledged, at least 1.
    pub fn new(chunks: usize) -> Self {
        let inner = Inner {
            places: Arc::new(Semaphore::new(chunks.max(1))),
            state: Mutex::default(),
            arrived: Notify::new(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Takes no more chunks. Consumers get what is queued or comes back, and then the end.
    pub fn close(&self) {
        self.state().closed = true;
        self.inner.places.close();
        self.inner.arrived.notify_waiters();
    }

    fn put(&self, queued: Queued) {
        let lane = usize::from(queued.chunk.envelope.lane.priority.code());
        if let Some(queue) = self.state().by_priority.get_mut(lane) {
            queue.push_back(queued);
        }
        self.inner.arrived.notify_one();
    }

    /// What is there now; `None` while there is nothing and more may come.
    fn take(&self, chunks: usize) -> Option<Vec<Message>> {
        let mut state = self.state();
        let mut messages = Vec::new();
        while messages.len() < chunks {
            let Some(queued) = state.by_priority.iter_mut().find_map(VecDeque::pop_front) else {
                break;
            };
            let chunk = Arc::clone(&queued.chunk);
            let handle = Handle { queue: self.clone(), queued: Some(queued) };
            messages.push(Message { chunk, receipt: Receipt::new(handle) });
        }
        state.unacknowledged += messages.len();
        if state.by_priority.iter().any(|queue| !queue.is_empty()) {
            self.inner.arrived.notify_one();
        }
        let ended = state.closed && state.unacknowledged == 0;
        (ended || !messages.is_empty()).then_some(messages)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every critical section leaves the state whole, even if it panicked.
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Publish for Memory {
    async fn publish(&self, chunks: Vec<Arc<Chunk>>) -> Vec<Result<(), QueueError>> {
        let mut answers = Vec::with_capacity(chunks.len());
        for chunk in chunks {
            let place = Arc::clone(&self.inner.places).acquire_owned().await;
            answers.push(place.map_err(|_closed| QueueError::Closed).map(|place| {
                self.put(Queued { chunk, _place: place });
            }));
        }
        answers
    }
}

#[async_trait]
impl Consume for Memory {
    async fn receive(&self, chunks: usize) -> Vec<Message> {
        loop {
            let arrived = self.inner.arrived.notified();
            tokio::pin!(arrived);
            // Registers before looking, so that nothing that comes in between is missed.
            arrived.as_mut().enable();
            if let Some(messages) = self.take(chunks.max(1)) {
                return messages;
            }
            arrived.await;
        }
    }
}

// === impl Handle ===

#[async_trait]
impl Acknowledge for Handle {
    async fn acknowledge(&mut self) -> Result<(), QueueError> {
        self.queued = None;
        Ok(())
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let mut state = self.queue.state();
        state.unacknowledged = state.unacknowledged.saturating_sub(1);
        let ended = state.closed && state.unacknowledged == 0;
        drop(state);
        if let Some(queued) = self.queued.take() {
            self.queue.put(queued);
        }
        if ended {
            self.queue.inner.arrived.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[tokio::test]
    async fn a_full_queue_makes_the_publisher_wait_until_something_is_acknowledged() {
        let queue = Memory::new(1);
        let chunk = crate::conformance::chunk(1, Priority::Normal);
        assert_eq!(queue.publish(vec![Arc::clone(&chunk)]).await, [Ok(())]);
        let second = queue.publish(vec![chunk]);
        tokio::pin!(second);
        assert!(second.as_mut().now_or_never().is_none());
        let mut messages = queue.receive(1).await;
        assert!(second.as_mut().now_or_never().is_none(), "received is not acknowledged");
        messages.remove(0).receipt.acknowledge().await.unwrap();
        assert_eq!(second.await, [Ok(())]);
    }
}
