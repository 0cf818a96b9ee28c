//! Requests that wait for a stream: in the order of priority, then of arrival.

use std::cell::Cell;

use notification::Priority;
use tokio::sync::Notify;

/// Waiting requests, by priority.
#[derive(Debug, Default)]
pub(super) struct StreamWaiters {
    urgent: Queue,
    normal: Queue,
    bulk: Queue,
}

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
        match priority {
            Priority::Urgent => &self.urgent,
            Priority::Normal => &self.normal,
            Priority::Bulk => &self.bulk,
        }
    }

    pub(super) fn is_any(&self) -> bool {
        self.in_order().iter().any(|queue| queue.length.get() > 0)
    }

    /// How many requests of this or a higher priority wait.
    pub(super) fn before(&self, priority: Priority) -> usize {
        let queues = Priority::ALL.iter().filter(|other| **other <= priority);
        queues.map(|other| self.queue(*other).length.get()).sum()
    }

    pub(super) fn wake_next(&self) {
        if let Some(queue) = self.in_order().into_iter().find(|queue| queue.length.get() > 0) {
            // Kept if none waits at this very moment: the next one that does is woken by it.
            queue.turn.notify_one();
        }
    }

    pub(super) fn wake_all(&self) {
        for queue in self.in_order() {
            // Kept for none; and none misses it, since a request begins to wait in the same turn in which it has
            // looked.
            queue.turn.notify_waiters();
        }
    }

    fn in_order(&self) -> [&Queue; 3] {
        [&self.urgent, &self.normal, &self.bulk]
    }
}
