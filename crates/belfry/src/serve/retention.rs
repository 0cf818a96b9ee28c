//! Retention while the engine runs: one step after the other, with as much time for all else between two of them as each takes.

use std::sync::Arc;
use std::time::Duration;

use flow::{Clock, LogThrottle};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use store::{ErrorKind, Prune, PruneStep, Removed, RetainedPart, Retention, StoreError};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

/// Removes what has outlived its lifetime.
#[derive(Debug)]
pub(super) struct RetentionTask {
    pub(super) store: Arc<dyn Prune>,
    pub(super) retention: Arc<Retention>,
    /// Counter that is raised with each change of the store.
    pub(super) changes: watch::Receiver<u64>,
    pub(super) clock: Clock,
    pub(super) metrics: RetentionMetrics,
}

/// Counts of what was removed, by what it was.
#[derive(Debug, Clone, Default)]
pub(super) struct RetentionMetrics(Family<RemovedLabels, Counter>);

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RemovedLabels {
    what: &'static str,
}

/// Time between two looks while nothing is due, at most: what is accepted meanwhile may be due sooner than what was there.
const LOOK_EVERY: Duration = Duration::from_hours(1);
/// Time between two looks while nothing is due, at least.
const LOOK_AT_MOST_EVERY: Duration = Duration::from_secs(1);
/// Time until the next try when a step came to nothing.
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(15);
/// Time between two log lines about steps that come to nothing.
const WARN_EVERY: Duration = Duration::from_mins(5);

// === impl RetentionTask ===

impl RetentionTask {
    /// Runs until `stopping` turns true.
    ///
    /// # Errors
    /// When the store failed.
    pub(super) async fn run(
        mut self,
        mut stopping: watch::Receiver<bool>,
    ) -> Result<(), StoreError> {
        let (throttle, mut removed) = (LogThrottle::new(WARN_EVERY), Removed::default());
        while !*stopping.borrow() {
            self.changes.mark_unchanged();
            let (now, began) = (pipeline::timestamp(self.clock), self.clock.monotonic());
            let next = match self.store.prune(&self.retention, now).await {
                Ok(step) => {
                    removed.add(&step.removed);
                    self.metrics.add(&step.removed);
                    if !step.goes_on {
                        log(&std::mem::take(&mut removed));
                    }
                    self.next_step(&step, began)
                }
                Err(error) if error.kind() == ErrorKind::Fatal => return Err(error),
                Err(error) => {
                    // The store itself logs that it is away.
                    if error.kind() != ErrorKind::Unavailable && throttle.admits(self.clock) {
                        tracing::error!(%error, "retention waits: nothing is removed");
                    }
                    Some(self.clock.monotonic() + TRY_AGAIN_AFTER)
                }
            };
            tokio::select! {
                () = self.wait(next) => {}
                _ = stopping.wait_for(|stopping| *stopping) => {}
            }
        }
        Ok(())
    }

    /// Time of the next step after one that began at `began`; `None` when nothing is stored that could be due.
    fn next_step(&self, step: &PruneStep, began: Instant) -> Option<Instant> {
        let now = self.clock.monotonic();
        if step.goes_on {
            return Some(now + now.duration_since(began));
        }
        let until = step.next_at?.since(pipeline::timestamp(self.clock));
        // A lifetime that is shorter than an hour is to be kept within an eighth of it.
        let shortest = self.retention.shortest(RetainedPart::Content).unwrap_or(LOOK_EVERY);
        let longest = (shortest / 8).clamp(LOOK_AT_MOST_EVERY, LOOK_EVERY);
        Some(now + until.clamp(LOOK_AT_MOST_EVERY, longest))
    }

    async fn wait(&mut self, next: Option<Instant>) {
        if let Some(next) = next {
            return sleep_until(next).await;
        }
        if self.changes.changed().await.is_err() {
            // The store is closing, and so is everything else.
            std::future::pending::<()>().await;
        }
        sleep(LOOK_AT_MOST_EVERY).await;
    }
}

// === impl RetentionMetrics ===

impl RetentionMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register("belfry_removed", "What retention has removed", self.0.clone());
    }

    fn add(&self, removed: &Removed) {
        for (what, count) in removed.counts() {
            self.0.get_or_create(&RemovedLabels { what }).inc_by(count);
        }
    }
}

fn log(removed: &Removed) {
    if *removed != Removed::default() {
        let counts = removed.counts().into_iter().filter(|(_, count)| *count > 0);
        let counts: Vec<String> = counts.map(|(what, count)| format!("{count} {what}")).collect();
        tracing::info!("retention removed {}", counts.join(", "));
    }
}
