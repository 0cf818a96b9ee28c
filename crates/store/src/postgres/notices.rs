//! Notices on their way to the writer that claims. Nobody waits to be heard: what finds no room is forgotten, and then
//! everything is looked at.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::mpsc;

use super::desk::Notice;

/// The end of those who know something.
#[derive(Debug, Clone)]
pub(super) struct Teller {
    notices: mpsc::Sender<Vec<Notice>>,
    is_forgotten: Arc<AtomicBool>,
}

/// The end of the writer that claims.
#[derive(Debug)]
pub(super) struct Hearer {
    notices: mpsc::Receiver<Vec<Notice>>,
    is_forgotten: Arc<AtomicBool>,
}

/// Both ends of a way for `most` batches of notices.
pub(super) fn channel(most: usize) -> (Teller, Hearer) {
    let (sender, receiver) = mpsc::channel(most);
    let is_forgotten = Arc::new(AtomicBool::new(false));
    let teller = Teller { notices: sender, is_forgotten: Arc::clone(&is_forgotten) };
    (teller, Hearer { notices: receiver, is_forgotten })
}

// === impl Teller ===

impl Teller {
    /// Tells; to a writer that is gone, nothing.
    pub(super) fn tell(&self, notices: Vec<Notice>) {
        if let Err(mpsc::error::TrySendError::Full(_)) = self.notices.try_send(notices) {
            self.is_forgotten.store(true, Ordering::Relaxed);
        }
    }
}

// === impl Hearer ===

impl Hearer {
    /// The next that came, if any.
    pub(super) fn next(&mut self) -> Option<Vec<Notice>> {
        if self.is_forgotten.swap(false, Ordering::Relaxed) {
            return Some(vec![Notice::Everything]);
        }
        self.notices.try_recv().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_finds_no_room_stands_for_everything() {
        let (teller, mut hearer) = channel(1);
        teller.tell(vec![Notice::Freed(1, 2, 3)]);
        teller.tell(vec![Notice::Freed(4, 5, 6)]);
        assert_eq!(hearer.next(), Some(vec![Notice::Everything]));
        assert_eq!(hearer.next(), Some(vec![Notice::Freed(1, 2, 3)]));
        assert_eq!(hearer.next(), None);
    }
}
