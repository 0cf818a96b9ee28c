//! Requests that wait for a stream: in the order of priority, then of arrival.

use std::cell::Cell;

use notification::Priority;
use tokio::sync::Notify;

/// Waiting requests: a queue for each priority, the highest first.
#[derive(Debug, Default)]
pub(super) struct StreamWaiters([Queue; 3]);

/// Waiting requests of one priority, the first to come first.
#[derive(Debug, Default)]
pub(super) struct Queue {
    pub(super) length: Cell<usize>,
    /// Wakes one when it is its turn.
    pub(super) turn: Notify,
}

// === impl StreamWaiters ===

impl StreamWaiters {
    pub(super) fn queue(&self, priority: Priority) -> &Queue {
        let [urgent, normal, bulk] = &self.0;
        match priority {
            Priority::Urgent => urgent,
            Priority::Normal => normal,
            Priority::Bulk => bulk,
        }
    }

    pub(super) fn is_any(&self) -> bool {
        self.0.iter().any(|queue| queue.length.get() > 0)
    }

    /// How many requests of this or a higher priority wait.
    pub(super) fn before(&self, priority: Priority) -> usize {
        let queues = Priority::ALL.iter().filter(|other| **other <= priority);
        queues.map(|other| self.queue(*other).length.get()).sum()
    }

    pub(super) fn wake_next(&self) {
        if let Some(queue) = self.0.iter().find(|queue| queue.length.get() > 0) {
            // Kept if none waits at this very moment: the next one that does is woken by it.
            queue.turn.notify_one();
        }
    }

    pub(super) fn wake_all(&self) {
        for queue in &self.0 {
            // Kept for none; and none misses it, since a request begins to wait in the same turn in which it has
            // looked.
            queue.turn.notify_waiters();
        }
    }
}
