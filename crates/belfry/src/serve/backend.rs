//! The store behind the engine.

use std::io::Write as _;
use std::sync::Arc;

use flow::tasks::Ended;
use flow::{Clock, WorkerDeadline};
use store::postgres::{self, Postgres};
use store::sqlite::Sqlite;
use store::{CommitCounts, Ending, ReadStore, Recovery, Store, StoreError, TenantReads};
use tokio::sync::watch;
use tokio::time::sleep;

use super::{Role, START_PATIENCE, START_RETRY};
use crate::config::{Config, ServerUrl, StorePlace};
use crate::exit::{CliError, FailureKind};

/// The store of this process.
#[derive(Debug, Clone)]
pub(super) enum Backend {
    /// For this process alone.
    Sqlite(Arc<Sqlite>),
    /// Shared by all processes that name the same database.
    Postgres {
        /// The store.
        store: Arc<Postgres>,
        /// The name of this process among them.
        worker: String,
    },
}

// === impl Backend ===

impl Backend {
    /// Opens the store: recovers what a former process left in it, or joins those who share it. A database that cannot be
    /// reached is tried again for [`START_PATIENCE`].
    pub(super) async fn open(
        role: Role,
        config: &Config,
        listen: Option<String>,
        clock: Clock,
        seed: u64,
    ) -> anyhow::Result<Self> {
        match config.store.place() {
            StorePlace::Directory(directory) => {
                let options = config.store.options(seed);
                // On this thread: callers are served on others meanwhile, and nothing else runs yet.
                let (store, recovery) =
                    Sqlite::open(directory, options, pipeline::timestamp(clock))?;
                let Recovery { returned, suspected, in_doubt, quarantined, abandoned_broadcasts } =
                    recovery;
                tracing::info!(
                    returned,
                    suspected,
                    in_doubt,
                    quarantined,
                    abandoned_broadcasts,
                    "store opened"
                );
                Ok(Self::Sqlite(Arc::new(store)))
            }
            StorePlace::Server(url) => {
                let worker = worker_name(seed);
                let options = postgres::Options {
                    url: url.expose(),
                    ca_file: config.store.ca_file.clone(),
                    name: worker.clone(),
                    version: env!("CARGO_PKG_VERSION").to_owned(),
                    produces: role.produces(),
                    consumes: role.consumes(),
                    listen,
                    seed,
                };
                let store = reach(url, options, clock).await?;
                tracing::info!(%url, worker, "store opened");
                Ok(Self::Postgres { store: Arc::new(store), worker })
            }
        }
    }

    /// The store that all stages share.
    pub(super) fn store(&self) -> Arc<dyn Store> {
        match self {
            Self::Sqlite(store) => Arc::clone(store) as _,
            Self::Postgres { store, .. } => Arc::clone(store) as _,
        }
    }

    /// The reader of the store.
    pub(super) fn reads(&self) -> Arc<dyn ReadStore> {
        match self {
            Self::Sqlite(store) => Arc::new(store.reader().clone()),
            Self::Postgres { store, .. } => Arc::new(store.reader().clone()),
        }
    }

    /// The reader of the store for tenants.
    pub(super) fn tenant_reads(&self) -> Arc<dyn TenantReads> {
        match self {
            Self::Sqlite(store) => Arc::new(store.reader().clone()),
            Self::Postgres { store, .. } => Arc::new(store.reader().clone()),
        }
    }

    /// The condition under which it can work, by its name for readiness, and whether it is met: a database that can be reached, or room on the
    /// disk for more.
    pub(super) fn available(&self) -> (&'static str, watch::Receiver<bool>) {
        match self {
            Self::Sqlite(store) => ("disk", store.accepts()),
            Self::Postgres { store, .. } => ("database", store.available()),
        }
    }

    /// The name of this process among those that share the store.
    pub(super) fn worker(&self) -> Option<&str> {
        match self {
            Self::Sqlite(_) => None,
            Self::Postgres { worker, .. } => Some(worker),
        }
    }

    /// The clock of all processes that share the store.
    pub(super) fn clock(&self, own: Clock) -> Clock {
        self.shared().map_or(own, |store| store.clock())
    }

    /// Until when this process, as a worker, may start attempts.
    pub(super) fn worker_deadline(&self) -> WorkerDeadline {
        self.shared().map_or(WorkerDeadline::unlimited(), |store| store.worker_deadline())
    }

    /// Tells when it failed for good, and why.
    pub(super) fn failed(&self) -> watch::Receiver<Option<StoreError>> {
        match self {
            Self::Sqlite(store) => store.failed(),
            Self::Postgres { store, .. } => store.failed(),
        }
    }

    /// Tells when one of its tasks has ended; `None` for one that has none.
    pub(super) fn ended(&self) -> Option<watch::Receiver<Option<Ended>>> {
        self.shared().map(|store| store.ended())
    }

    /// Sets whether this process takes its share; if not, those who share the store have all of it at once.
    pub(super) fn set_working(&self, is_working: bool) {
        if let Some(store) = self.shared() {
            store.set_working(is_working);
        }
    }

    /// Counts of its commits.
    pub(super) fn commits(&self) -> Arc<CommitCounts> {
        match self {
            Self::Sqlite(store) => Arc::clone(store.commits()),
            Self::Postgres { store, .. } => Arc::clone(store.commits()),
        }
    }

    /// Leaves it in good order.
    pub(super) async fn close(&self) {
        self.end(Ending::Left).await;
    }

    /// [`Backend::close`] for a process that ends so.
    pub(super) async fn end(&self, ending: Ending) {
        match self {
            Self::Sqlite(store) => {
                // Before the close, which notes an end in order: a byte behind that note says that there was a fault.
                if ending == Ending::Faulted
                    && let Err(error) = store.fault_mark().and_then(|mut mark| mark.write_all(b"X"))
                {
                    tracing::warn!(%error, "the next start takes this fault for an end in order");
                }
                store.close().await;
            }
            Self::Postgres { store, .. } => store.end(ending).await,
        }
    }

    /// The store, if several processes share it: then it has tickets for chunks, a ledger that divides quotas among processes, and an
    /// outbox.
    pub(super) fn shared(&self) -> Option<&Arc<Postgres>> {
        match self {
            Self::Sqlite(_) => None,
            Self::Postgres { store, .. } => Some(store),
        }
    }
}

/// Opens the database, again and again while that may help.
async fn reach(
    url: &ServerUrl,
    options: postgres::Options,
    clock: Clock,
) -> Result<Postgres, CliError> {
    let fail = |message| CliError::new(FailureKind::Failed, message);
    let start = clock.monotonic();
    loop {
        let reason = match Postgres::open(options.clone(), clock).await {
            Ok(store) => return Ok(store),
            Err(StoreError::Unavailable(reason)) => reason,
            Err(error) => return Err(fail(format!("cannot open the store at {url}: {error}"))),
        };
        // Before the wait: what comes behind it would be too late.
        if clock.monotonic().duration_since(start) + START_RETRY > START_PATIENCE {
            let seconds = START_PATIENCE.as_secs();
            return Err(fail(format!("the store was not reached within {seconds} s: {reason}")));
        }
        tracing::warn!(%url, reason, "the store is not reached yet: trying again");
        sleep(START_RETRY).await;
    }
}

/// Host and process: unique at any time. Containers may share a host's name, and all have process 1, so there
/// it is chance that tells them apart.
fn worker_name(seed: u64) -> String {
    let system = rustix::system::uname();
    let host = system.nodename().to_string_lossy();
    match std::process::id() {
        1 => format!("{host}-{:06x}", seed & 0xff_ffff),
        process => format!("{host}-{process}"),
    }
}
