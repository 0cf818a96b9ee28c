//! The task that keeps the search index, in what time intake and deliveries leave (decision 0053).

use std::sync::Arc;
use std::time::Duration;

use store::{ErrorKind, SearchIndex, StoreError};
use tokio::sync::watch;
use tokio::time::sleep;

/// Advances the index after changes of the store; without any it does nothing.
#[derive(Debug)]
pub(super) struct Indexing {
    pub(super) index: Arc<dyn SearchIndex>,
    pub(super) changes: watch::Receiver<u64>,
}

/// Pause between two steps, each of which takes about half as long: a third of a core at most.
const BETWEEN_STEPS: Duration = Duration::from_millis(20);
/// Pause after a change, so that many of them cost one look.
const BETWEEN_LOOKS: Duration = Duration::from_secs(1);
/// Pause after a step that was refused, for want of room on the disk as a rule.
const AFTER_REFUSAL: Duration = Duration::from_secs(10);

// === impl Indexing ===

impl Indexing {
    /// Runs until `stopping`, or until the store is gone.
    pub(super) async fn run(
        mut self,
        mut stopping: watch::Receiver<bool>,
    ) -> Result<(), StoreError> {
        tokio::select! {
            // A sender that is gone stops as well.
            _ = stopping.wait_for(|stopping| *stopping) => Ok(()),
            ended = self.advance() => ended,
        }
    }

    /// Takes step after step, and parks when there are none. To drop this between two steps, or within one, harms nothing.
    async fn advance(&mut self) -> Result<(), StoreError> {
        loop {
            self.changes.mark_unchanged();
            match self.index.advance().await {
                Ok(true) => sleep(BETWEEN_STEPS).await,
                Ok(false) => {
                    if self.changes.changed().await.is_err() {
                        return Ok(());
                    }
                    sleep(BETWEEN_LOOKS).await;
                }
                Err(error) if error.kind() == ErrorKind::Fatal => return Err(error),
                Err(error) => {
                    tracing::debug!(%error, "the search index waits");
                    sleep(AFTER_REFUSAL).await;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use async_trait::async_trait;

    use super::*;

    /// An index with so many steps to take, each of which may be refused.
    #[derive(Debug, Default)]
    struct Steps {
        left: Mutex<usize>,
        taken: watch::Sender<usize>,
        looks: watch::Sender<usize>,
        refuses: watch::Sender<bool>,
    }

    #[async_trait]
    impl SearchIndex for Steps {
        async fn advance(&self) -> Result<bool, StoreError> {
            self.looks.send_modify(|looks| *looks += 1);
            if *self.refuses.borrow() {
                return Err(StoreError::NoSpace("full".to_owned()));
            }
            let mut left = self.left.lock().unwrap();
            if *left == 0 {
                return Ok(false);
            }
            *left -= 1;
            self.taken.send_modify(|taken| *taken += 1);
            Ok(true)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn it_takes_all_steps_and_looks_again_after_a_change_alone() {
        let steps = Arc::new(Steps { left: Mutex::new(3), ..Steps::default() });
        let (change, changes) = watch::channel(0);
        let (stop, stopping) = watch::channel(false);
        let indexing = Indexing { index: Arc::clone(&steps) as _, changes };
        let mut tasks = flow::Tasks::default();
        let run = indexing.run(stopping);
        tasks.spawn("search", async { run.await.unwrap() });
        let mut looks = steps.looks.subscribe();
        looks.wait_for(|looks| *looks == 4).await.unwrap();
        // Time passes only while every task waits: an hour of it, and no look.
        let hour =
            tokio::time::timeout(Duration::from_hours(1), looks.wait_for(|looks| *looks > 4));
        assert!(hour.await.is_err(), "idle");
        *steps.left.lock().unwrap() = 2;
        steps.refuses.send_replace(true);
        change.send_replace(1);
        looks.wait_for(|looks| *looks == 6).await.unwrap();
        assert_eq!(*steps.taken.borrow(), 3, "refused twice");
        steps.refuses.send_replace(false);
        steps.taken.subscribe().wait_for(|taken| *taken == 5).await.unwrap();
        stop.send_replace(true);
        tasks.drain().await;
    }
}
