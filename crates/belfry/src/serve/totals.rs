//! The task that gives what an older version counted without its tenant to the tenants (decision 0077): at start, and again while
//! there is something. It reads all of the store where there is something, and one row where there is nothing. In a cluster it goes
//! on looking, for processes of an older version count without tenants whenever one is there.

use std::sync::Arc;
use std::time::Duration;

use flow::{Clock, LogThrottle};
use notification::Name;
use store::{ErrorKind, Operations, ReadStore, StoreError, assign_totals};
use tokio::sync::watch;
use tokio::time::sleep;

/// Assigns the totals of tenants.
#[derive(Debug)]
pub(super) struct TotalsTask {
    pub(super) reads: Arc<dyn ReadStore>,
    pub(super) operations: Arc<dyn Operations>,
    /// The name of this process among those that share the store.
    pub(super) worker: Option<String>,
    /// Any tenant.
    pub(super) tenant: Name,
    pub(super) clock: Clock,
}

/// Time between two looks, at least.
const LOOK_EVERY: Duration = Duration::from_mins(1);
/// The pause after a look, as a multiple of the time that it took: a tenth of the time at most goes to counting.
const PAUSE_PER_PASS: u32 = 10;
/// Time between two log lines about passes that come to nothing.
const WARN_EVERY: Duration = Duration::from_hours(1);

// === impl TotalsTask ===

impl TotalsTask {
    /// Runs until `stopping`.
    ///
    /// # Errors
    /// When the store failed.
    pub(super) async fn run(self, mut stopping: watch::Receiver<bool>) -> Result<(), StoreError> {
        tokio::select! {
            // A sender that is gone stops as well.
            _ = stopping.wait_for(|stopping| *stopping) => Ok(()),
            ended = self.look_again_and_again() => ended,
        }
    }

    async fn look_again_and_again(&self) -> Result<(), StoreError> {
        let throttle = LogThrottle::new(WARN_EVERY);
        loop {
            let began = self.clock.monotonic();
            match self.pass().await {
                // No other process counts here.
                Ok(true) if self.worker.is_none() => std::future::pending().await,
                Ok(true) => {}
                Ok(false) => {
                    if throttle.admits(self.clock) {
                        tracing::warn!(
                            "some notifications are counted for no tenant: none sees its account until they are assigned, which is \
                             tried again"
                        );
                    }
                }
                Err(error) if error.kind() == ErrorKind::Fatal => return Err(error),
                // The store itself logs that it is away.
                Err(error) => tracing::debug!(%error, "the totals of tenants are not assigned"),
            }
            sleep(pause_after(self.clock.monotonic().duration_since(began))).await;
        }
    }

    /// Looks once; false if something is unassigned still, and this process was to assign it.
    async fn pass(&self) -> Result<bool, StoreError> {
        let is_assigned = self.reads.tenant_totals(self.tenant.clone()).await?.is_some();
        if is_assigned || !self.is_its_turn().await? {
            return Ok(true);
        }
        tracing::info!("counting what an older version has counted for no tenant");
        let is_assigned = assign_totals(&*self.reads, &*self.operations, &self.tenant).await?;
        if is_assigned {
            tracing::info!("every notification is counted for its tenant");
        }
        Ok(is_assigned)
    }

    /// True if no other process is to do it. Of those that share a store it is the first that is alive and of this version, for an
    /// older one does not. Two that take each other for gone both count, and only one of them assigns.
    async fn is_its_turn(&self) -> Result<bool, StoreError> {
        let (Some(own), Some(cluster)) = (&self.worker, self.reads.cluster().await?) else {
            return Ok(true);
        };
        let mut workers = cluster.workers.iter();
        let first = workers.find(|worker| {
            let is_alive = !worker.alive_for.is_zero();
            is_alive && worker.produces && worker.version == env!("CARGO_PKG_VERSION")
        });
        Ok(first.is_some_and(|first| first.name == *own))
    }
}

/// The pause after a look that took so long.
fn pause_after(pass: Duration) -> Duration {
    pass.saturating_mul(PAUSE_PER_PASS).max(LOOK_EVERY)
}

#[cfg(test)]
mod tests {
    use notification::Timestamp;
    use store::{ClusterStatus, Memory, WorkerStatus};

    use super::*;

    fn task(store: &Arc<Memory>, worker: Option<&str>) -> TotalsTask {
        TotalsTask {
            reads: Arc::clone(store) as _,
            operations: Arc::clone(store) as _,
            worker: worker.map(str::to_owned),
            tenant: "default".parse().unwrap(),
            clock: Clock::system(),
        }
    }

    fn worker(name: &str) -> WorkerStatus {
        WorkerStatus {
            id: 1,
            name: name.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            produces: true,
            consumes: true,
            listen: None,
            started_at: Timestamp::from_millis(0),
            alive_for: Duration::from_secs(5),
            is_standing_by: false,
            partitions: 1,
            claimed: 0,
            settled: 0,
            settled_per_second: 0.0,
        }
    }

    async fn is_assigned(store: &Memory) -> bool {
        store.tenant_totals("shop".parse().unwrap()).await.unwrap().is_some()
    }

    #[tokio::test]
    async fn what_is_without_its_tenant_is_assigned_by_one_pass() {
        let store = Arc::new(Memory::new());
        store.unassign_totals();
        assert!(!is_assigned(&store).await);
        assert_eq!(task(&store, None).pass().await, Ok(true));
        assert!(is_assigned(&store).await);
    }

    #[tokio::test]
    async fn of_processes_that_share_a_store_the_first_that_can_does_it() {
        let store = Arc::new(Memory::new());
        store.unassign_totals();
        let workers = vec![
            WorkerStatus { version: "0.0.1".to_owned(), ..worker("older") },
            WorkerStatus { alive_for: Duration::ZERO, ..worker("gone") },
            WorkerStatus { produces: false, ..worker("consumer") },
            worker("first"),
            worker("second"),
        ];
        store.show_cluster(ClusterStatus { workers, ..ClusterStatus::default() });
        for other in ["older", "gone", "consumer", "second"] {
            assert_eq!(task(&store, Some(other)).pass().await, Ok(true), "left to the first");
            assert!(!is_assigned(&store).await, "{other}");
        }
        assert_eq!(task(&store, Some("first")).pass().await, Ok(true));
        assert!(is_assigned(&store).await);
    }

    /// Time passes only while every task waits.
    #[tokio::test(start_paused = true)]
    async fn in_a_cluster_it_looks_again_for_what_an_older_process_counts_later() {
        for (worker, looks) in [(Some("one"), 2), (None, 1)] {
            let store = Arc::new(Memory::new());
            let mut changes = store::Claims::<notification::Chunk>::changes(&*store);
            let (stop, stopping) = watch::channel(false);
            let (run, mut tasks) = (task(&store, worker).run(stopping), flow::Tasks::default());
            tasks.spawn("totals", async { run.await.unwrap() });
            for _ in 0..looks {
                store.unassign_totals();
                changes.mark_unchanged();
                changes.changed().await.unwrap();
                assert!(is_assigned(&store).await);
            }
            store.unassign_totals();
            changes.mark_unchanged();
            let hour = tokio::time::timeout(Duration::from_hours(1), changes.changed()).await;
            assert_eq!(hour.is_ok(), worker.is_some(), "alone it is done for good");
            stop.send_replace(true);
            tasks.drain().await;
        }
    }

    #[test]
    fn a_tenth_of_the_time_at_most_goes_to_counting() {
        assert_eq!(pause_after(Duration::from_secs(1)), Duration::from_mins(1));
        assert_eq!(pause_after(Duration::from_mins(30)), Duration::from_hours(5));
    }
}
