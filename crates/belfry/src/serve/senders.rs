//! The sender threads: one single-threaded runtime each, because a connection that never changes its
//! thread costs a third of one that does.

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use pipeline::Deliver;
use tokio::sync::oneshot;
use tokio::task::LocalSet;

use super::failed::Failed;

/// The threads that deliver.
#[derive(Debug, Default)]
pub(super) struct Senders {
    running: FuturesUnordered<oneshot::Receiver<Result<(), Failed>>>,
}

// === impl Senders ===

impl Senders {
    /// Starts as many threads as `deliver` says, each with a seed of its own.
    pub(super) fn start(deliver: &Deliver) -> std::io::Result<Self> {
        let senders = Self::default();
        for (number, seed) in (0..deliver.affinity.threads()).zip(deliver.seed..) {
            let (ended, end) = oneshot::channel();
            // The factor, 2^64 divided by the golden ratio, spreads neighbouring numbers over all bits.
            let deliver =
                Deliver { seed: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15), ..deliver.clone() };
            std::thread::Builder::new().name(format!("sender-{number}")).spawn(move || {
                // The receiver is gone when the process is on its way out.
                let _unheard = ended.send(run(deliver));
            })?;
            senders.running.push(end);
        }
        Ok(senders)
    }

    /// Waits until the next thread ends, and says why if it failed; `None` when none is left.
    pub(super) async fn next(&mut self) -> Option<Result<(), Failed>> {
        let ended = self.running.next().await?;
        let panicked = |_dropped| Err(Failed::while_delivering("a sender thread panicked"));
        // Dropped without an answer: the thread has unwound.
        Some(ended.unwrap_or_else(panicked))
    }
}

fn run(deliver: Deliver) -> Result<(), Failed> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failed::otherwise(error.to_string()))?;
    let sent = LocalSet::new().block_on(&runtime, deliver.run());
    sent.map_err(|error| Failed::otherwise(error.to_string()))
}

#[cfg(test)]
mod tests {
    use store::Ending;

    use super::*;

    #[tokio::test]
    async fn a_delivery_may_be_what_a_sender_panicked_at() {
        let (ended, end) = oneshot::channel();
        std::thread::spawn(move || {
            let _ended = ended;
            panic!("as planned");
        });
        let mut senders = Senders::default();
        senders.running.push(end);
        let failed = senders.next().await.unwrap().unwrap_err();
        assert_eq!(failed.ending(), Ending::Faulted);
    }
}
