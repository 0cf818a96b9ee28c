//! The store on PostgreSQL, for several processes at once: the same rows as on SQLite, a batch, a chunk and a log row for up to a
//! thousand notifications each.
//!
//! Every process has two writers, each with a connection of its own: *intake* takes notifications in, *work* claims and settles.
//! Requests that arrived during a writer's last commit are its next transaction; it locks the rows it needs, decides in memory,
//! and writes set by set. No lock is held across a send.
//!
//! The processes divide the work by *partitions*, which they lease by staying alive ([`membership`]); changes that concern other
//! processes are notified ([`listener`]), and missed ones are found by looking again. A chunk is kept from being sent twice by
//! none of that, but by its epoch, which every write names.
//!
//! A connection may be lost at any moment, in the middle of a commit too: then the server is queried for the outcome of the
//! transaction, and one that was not committed is done again. Callers wait, or get the answer that certainly nothing happened.

mod acts;
mod ahead;
mod audit;
mod broadcast;
mod broadcasts;
mod cancel;
mod cancel_scope;
mod choose;
mod chunk_tenants;
#[cfg(test)]
mod chunk_tenants_tests;
mod claim;
mod columns;
mod commit;
mod connection;
mod erase;
mod errors;
mod events;
mod growth;
mod history;
mod ingest;
mod keys;
mod lane_rows;
#[cfg(test)]
mod lane_rows_tests;
mod lane_tenants;
mod lease;
mod leave;
mod list;
mod list_batches;
mod list_lanes;
mod list_sources;
mod listed;
#[cfg(test)]
mod listed_tests;
mod listener;
mod membership;
#[cfg(test)]
mod membership_tests;
mod notices;
mod notify;
#[cfg(test)]
mod notify_tests;
mod operations;
mod outbox;
mod pause;
mod pause_points;
mod pause_view;
mod placement;
#[cfg(test)]
mod plans_tests;
mod prune;
mod prune_rows;
#[cfg(test)]
mod prune_tests;
mod quota_ledger;
#[cfg(test)]
mod races;
mod rate_ledger;
mod read;
#[cfg(test)]
mod read_tests;
mod reader;
mod reap;
#[cfg(test)]
mod reap_tests;
mod release;
#[cfg(test)]
mod release_tests;
mod request;
mod requeue;
mod reschedule;
mod resolve;
mod restored;
mod schema;
mod search;
#[cfg(test)]
mod search_tests;
mod settle;
mod settle_rate;
#[cfg(test)]
mod setup_tests;
mod source_shards;
mod store_id;
mod suppress;
mod time;
mod tls;
mod totals;
mod totals_changes;
#[cfg(test)]
mod totals_tests;
mod transaction;
mod writer;
mod writer_state;
mod xid;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use flow::tasks::Ended;
use flow::{Clock, Tasks, WorkerDeadline};
use notification::Pauses;
use tokio::sync::{Mutex, MutexGuard, Notify, watch};

pub use reader::PostgresReader;

use crate::rows::evidence::EvidenceBook;
use crate::rows::lanes::Lanes;
use crate::rows::release::Slicing;
use crate::{CommitCounts, StoreError, StoredKeys};
use connection::Connector;
use listener::Listener;
use membership::{Intent, Worker, WorkerParts};
use notify::NotifyPolicy;
use quota_ledger::LedgerLink;
use release::Releaser;
use request::WriterHandle;
use search::IndexLink;
use time::DatabaseTime;
use writer::{Notices, Writer};
use writer_state::{Membership, WriterState};

/// Options under which a store is opened.
#[derive(Debug, Clone)]
pub struct Options {
    /// Address of the database: `postgres://role:password@host:port/database?sslmode=require`.
    pub url: String,
    /// Root certificates to trust besides the machine's own, PEM.
    pub ca_file: Option<PathBuf>,
    /// Name of this process in the cluster's status, made of host and process, for example.
    pub name: String,
    /// Its version, for the same.
    pub version: String,
    /// True if the process owns partitions and claims from them.
    pub produces: bool,
    /// True if the process delivers.
    pub consumes: bool,
    /// Address of its API, for the status.
    pub listen: Option<String>,
    /// Seed of its generator.
    pub seed: u64,
}

/// An open store, and this process's membership in the cluster that shares it.
#[derive(Debug)]
pub struct Postgres {
    intake: WriterHandle,
    work: WriterHandle,
    reader: PostgresReader,
    changes: watch::Receiver<u64>,
    failed: watch::Receiver<Option<StoreError>>,
    available: watch::Receiver<bool>,
    membership: watch::Receiver<Membership>,
    outbox: watch::Receiver<u64>,
    pauses: watch::Receiver<Arc<Pauses>>,
    keys: watch::Receiver<StoredKeys>,
    ledger: LedgerLink,
    index: Box<IndexLink>,
    intent: watch::Sender<Intent>,
    worker_deadline: WorkerDeadline,
    time: DatabaseTime,
    commits: Arc<CommitCounts>,
    ended: watch::Receiver<Option<Ended>>,
    /// Dropped with the store, and then nothing of it runs any more.
    tasks: Mutex<Tasks>,
}

/// The parts that both writers share.
struct WriterParts {
    connector: Connector,
    store_id: u16,
    time: DatabaseTime,
    notify: Arc<NotifyPolicy>,
    membership: watch::Receiver<Membership>,
    available: watch::Sender<bool>,
    failed: watch::Sender<Option<StoreError>>,
    changes: watch::Sender<u64>,
    settled: Arc<AtomicU64>,
    commits: Arc<CommitCounts>,
    slicing: Slicing,
    waiting: Arc<Notify>,
    evidence: EvidenceBook,
    pauses: watch::Receiver<Arc<Pauses>>,
}

/// Held by every transaction that writes to the log, so that its reader can tell which ones are not complete yet. The function
/// `log_horizon` of the schema finds it by its numbers.
const LOG_WRITERS: &str = "SELECT pg_advisory_xact_lock_shared(4782301, 1)";
/// Batches of notices waiting for the writer that claims.
const NOTICES: usize = 1_024;

// === impl Options ===

impl Options {
    /// The store at `url`, for a process without a name that claims and delivers.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            ca_file: None,
            name: String::new(),
            version: String::new(),
            produces: true,
            consumes: true,
            listen: None,
            seed: 0,
        }
    }
}

// === impl Postgres ===

impl Postgres {
    /// Connects, brings the schema up to date, and joins the cluster.
    ///
    /// # Errors
    /// [`StoreError::Refused`] or [`StoreError::Schema`], which say what to do.
    pub async fn open(options: Options, clock: Clock) -> Result<Self, StoreError> {
        Self::open_slicing(options, clock, Slicing::DEFAULT).await
    }

    async fn open_slicing(
        options: Options,
        clock: Clock,
        slicing: Slicing,
    ) -> Result<Self, StoreError> {
        let connector = Connector::new(&options.url, &options.name, options.ca_file.as_deref())?;
        connector.prepare().await?;
        let (mut random, version) =
            (fastrand::Rng::with_seed(options.seed), options.version.clone());
        let time = DatabaseTime::new(clock);
        // Before the writers: a claim needs the worker's number, its partitions and the pauses.
        let mut worker = Worker::join(&connector, &options, time, random.fork()).await?;
        let (worker_deadline, keys) = (worker.deadline.clone(), worker.keys.view.subscribe());
        let ledger = LedgerLink::new(connector.clone(), worker.peers.subscribe());
        let (membership_sender, membership) = watch::channel(worker.membership.clone());
        let ((changes, is_changed), (failed, failing)) = (watch::channel(0), watch::channel(None));
        let (available, is_available) = watch::channel(true);
        let (settled, waiting) = (Arc::new(AtomicU64::new(0)), Arc::new(Notify::new()));
        let parts = WriterParts {
            store_id: worker.store_id,
            connector: connector.clone(),
            time,
            notify: Arc::clone(&worker.notify),
            membership: membership.clone(),
            available: available.clone(),
            failed,
            changes: changes.clone(),
            settled: Arc::clone(&settled),
            commits: Arc::default(),
            slicing,
            waiting: Arc::clone(&waiting),
            evidence: EvidenceBook::default(),
            pauses: worker.pauses.view.subscribe(),
        };
        let ((sender, receiver), mut tasks) = (notices::channel(NOTICES), Tasks::default());
        let forward = Notices::Forward(sender.clone());
        let intake = parts.start(&mut tasks, "store-intake", forward, random.fork());
        let work = parts.start(&mut tasks, "store-work", Notices::Claimer(receiver), random.fork());
        let (intent, intended) = watch::channel(Intent::Work);
        let (cluster, (outbox, outbox_changed)) = (Arc::new(Notify::new()), watch::channel(0));
        let listener = Listener {
            connector: connector.clone(),
            notices: sender,
            changes: changes.clone(),
            cluster: Arc::clone(&cluster),
            outbox,
            membership: membership.clone(),
            clock,
            random: random.fork(),
        };
        tasks.spawn("store-listener", listener.run());
        Releaser::new(&intake, &work, &waiting).start(&mut tasks, slicing);
        worker.stats = Some(WorkerParts { settled, work: work.clone(), changes, waiting });
        tasks.spawn("store-worker", worker.run(membership_sender, available, cluster, intended));
        Ok(Self {
            index: Box::new(IndexLink::new(connector.clone(), time, &version)),
            reader: PostgresReader::connect(connector, parts.evidence).await?,
            intake,
            work,
            changes: is_changed,
            failed: failing,
            available: is_available,
            membership,
            outbox: outbox_changed,
            pauses: parts.pauses,
            keys,
            ledger,
            intent,
            worker_deadline,
            time,
            commits: parts.commits,
            ended: tasks.ended(),
            tasks: Mutex::new(tasks),
        })
    }

    /// The reader of the store. Clones share its connections.
    pub const fn reader(&self) -> &PostgresReader {
        &self.reader
    }

    /// Counts of its commits.
    pub const fn commits(&self) -> &Arc<CommitCounts> {
        &self.commits
    }

    /// Turns into the reason when the store fails for good; the process should then exit and start again.
    pub fn failed(&self) -> watch::Receiver<Option<StoreError>> {
        self.failed.clone()
    }

    /// Turns into the first of its tasks that ended before the store was closed; the process should then exit and start again.
    pub fn ended(&self) -> watch::Receiver<Option<Ended>> {
        self.ended.clone()
    }

    /// Tasks of the store, for tests of their supervision.
    pub async fn tasks(&self) -> MutexGuard<'_, Tasks> {
        self.tasks.lock().await
    }

    /// True while the database can be reached.
    pub fn available(&self) -> watch::Receiver<bool> {
        self.available.clone()
    }

    /// Time until which this process, as a worker, may start attempts.
    pub fn worker_deadline(&self) -> WorkerDeadline {
        self.worker_deadline.clone()
    }

    /// The database's time, by which all processes that share the store go.
    pub fn clock(&self) -> Clock {
        self.time.clock()
    }

    /// Number of partitions that this process owns.
    pub fn partitions(&self) -> usize {
        self.membership.borrow().partitions.len()
    }

    /// Sets whether this process takes its share of the work. A process that can do no more, because it is about to end or cannot
    /// hand on its claims, gives its partitions to the other workers at once, and finishes the work it holds.
    pub fn set_working(&self, is_working: bool) {
        self.intent.send_replace(if is_working { Intent::Work } else { Intent::Finish });
    }
}

// === impl WriterParts ===

impl WriterParts {
    fn start(
        &self,
        tasks: &mut Tasks,
        name: &'static str,
        notices: Notices,
        random: fastrand::Rng,
    ) -> WriterHandle {
        let (handle, commands) = WriterHandle::new(self.failed.subscribe(), self.time.clock());
        // Intake writes nothing to the log, and its long transactions must not hold up the log's readers.
        let logs = matches!(notices, Notices::Claimer(_));
        let (notify, membership) = (Arc::clone(&self.notify), self.membership.clone());
        let mut state = WriterState::new(self.store_id, membership, self.time, notify, logs);
        state.claiming.lanes = Lanes::knowing(self.evidence.clone());
        (state.slicing, state.pauses) = (self.slicing, self.pauses.clone());
        state.commits = Arc::clone(&self.commits);
        let mut writer = Writer {
            connector: self.connector.clone(),
            state,
            commands,
            available: self.available.clone(),
            failed: self.failed.clone(),
            clock: self.time.clock(),
            random,
            session: None,
            notices,
            changes: self.changes.clone(),
            settled: Arc::clone(&self.settled),
            waiting: Arc::clone(&self.waiting),
        };
        tasks.spawn(name, async move { writer.run().await });
        handle
    }
}
