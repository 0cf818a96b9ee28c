//! Yields between pieces of CPU work. An encryption takes some seventy microseconds of a thread that also moves the bytes of
//! all its connections, and hundreds of attempts can be ready for one at the same moment. They take turns; after some of
//! them the thread yields to its other tasks, among them the write that carries what was encrypted.

use std::cell::Cell;

use tokio::sync::Semaphore;

/// Encryptions before the thread yields: about a millisecond, which is little beside any round trip. Fewer would cost a write
/// to the socket each time: with 4, that was a tenth of all.
const AT_A_TIME: usize = 16;

/// Lets attempts of one thread work one after the other, in the order in which they came, and yields now and then.
#[derive(Debug)]
pub(super) struct EncryptionTurns {
    turn: Semaphore,
    taken: Cell<usize>,
}

// === impl EncryptionTurns ===

impl EncryptionTurns {
    pub(super) fn new() -> Self {
        Self { turn: Semaphore::new(1), taken: Cell::new(0) }
    }

    /// Does `work` when it is the caller's turn.
    pub(super) async fn run<Output>(&self, work: impl FnOnce() -> Output) -> Output {
        // It is never closed.
        let _turn = self.turn.acquire().await;
        if self.taken.get() >= AT_A_TIME {
            // With the turn in hand, so that no other attempt works in the meantime.
            tokio::task::yield_now().await;
            self.taken.set(0);
        }
        self.taken.set(self.taken.get() + 1);
        work()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::future::join;
    use std::cell::RefCell;

    #[tokio::test]
    async fn others_go_on_after_a_few() {
        let turns = EncryptionTurns::new();
        let log = RefCell::new(Vec::new());
        let working = futures_util::future::join_all((0..40).map(|number| {
            let log = &log;
            turns.run(move || log.borrow_mut().push(number))
        }));
        let other = async {
            for _ in 0..2 {
                log.borrow_mut().push(99);
                tokio::task::yield_now().await;
            }
        };
        join(working, other).await;
        let expect: Vec<_> = (0..16).chain([99]).chain(16..32).chain([99]).chain(32..40).collect();
        assert_eq!(log.into_inner(), expect);
    }
}
