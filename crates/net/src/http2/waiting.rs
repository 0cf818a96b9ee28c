//! Who waits for a stream: in the order of priority, then of arrival.

use std::cell::Cell;

use notification::Priority;
use tokio::sync::Notify;

/// Who waits, by priority.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    urgent: Line,
    normal: Line,
    bulk: Line,
}

/// Who waits of one priority.
#[derive(Debug, Default)]
pub(super) struct Line {
    pub(super) length: Cell<usize>,
    pub(super) turn: Notify,
}

// === impl Waiting ===

impl Waiting {
    pub(super) fn line(&self, priority: Priority) -> &Line {
        match priority {
            Priority::Urgent => &self.urgent,
            Priority::Normal => &self.normal,
            Priority::Bulk => &self.bulk,
        }
    }

    pub(super) fn anyone(&self) -> bool {
        self.in_order().iter().any(|line| line.length.get() > 0)
    }

    /// Whether nobody of the same or a higher priority waits.
    pub(super) fn none_before(&self, priority: Priority) -> bool {
        let lines = Priority::ALL.iter().filter(|other| **other <= priority);
        lines.map(|other| self.line(*other)).all(|line| line.length.get() == 0)
    }

    pub(super) fn wake_next(&self) {
        if let Some(line) = self.in_order().into_iter().find(|line| line.length.get() > 0) {
            line.turn.notify_one();
        }
    }

    pub(super) fn wake_all(&self) {
        for line in self.in_order() {
            line.turn.notify_waiters();
        }
    }

    fn in_order(&self) -> [&Line; 3] {
        [&self.urgent, &self.normal, &self.bulk]
    }
}
