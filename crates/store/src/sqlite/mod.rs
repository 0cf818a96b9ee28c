//! The store on SQLite: one file, one writer thread, everything in chunks.
//!
//! A *batch* row holds up to [`BATCH_ITEMS`] notifications and is never changed. A *chunk* row names those of them that are due
//! together; claiming, settling and logging touch one row each. A million notifications are a thousand rows a table, so the cost
//! of a row hardly counts.
//!
//! A single thread owns the write connection, and another one makes most of each checkpoint. The writer takes all waiting
//! commands, in turn of intake and work, runs them in one transaction, commits, and answers: commands that arrive meanwhile are
//! the next transaction. There is no timer, and an idle store does nothing. Reads have connections of their own and never wait for
//! the writer.
//!
//! A commit is synced before it is answered, except where opening the store would undo the change anyway: a
//! lease, an open broadcast. Those become durable with the next synced commit; a claim costs no sync.
//!
//! A full disk stops new notifications, and nothing that is under way ([`disk`]). Any other failure of a write or a sync ends the
//! writer: nothing of that transaction is answered as done, every later call is refused at once, and [`Sqlite::failed`] tells the
//! process to exit. Opening anew recovers.
//!
//! [`BATCH_ITEMS`]: notification::limits::BATCH_ITEMS

mod acts;
mod audit;
mod audit_lock;
mod backup;
mod broadcast;
mod broadcasts;
mod cancel;
mod cancel_scope;
mod checkpointer;
#[cfg(test)]
mod checkpointer_tests;
mod claim;
mod compact;
mod disk;
#[cfg(test)]
mod disk_tests;
mod erase;
mod events;
mod files;
mod ingest;
mod keys;
mod list;
mod list_lanes;
mod list_sources;
mod open;
mod operations;
mod owner;
mod pause;
#[cfg(test)]
mod plans_tests;
mod prune;
mod prune_rows;
#[cfg(test)]
mod prune_rows_tests;
#[cfg(test)]
mod prune_tests;
mod read;
mod reader;
mod recover;
mod release;
#[cfg(test)]
mod release_tests;
mod requeue;
mod reschedule;
mod resolve;
mod restored;
mod rows;
mod search;
#[cfg(test)]
mod search_tests;
mod settle;
mod source_shards;
mod suppress;
mod totals;
#[cfg(test)]
mod totals_tests;
mod transaction;
mod wal;
#[cfg(test)]
mod wal_tests;
mod writer;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, mpsc as std_mpsc};
use std::task::Waker;
use std::time::Duration;

use flow::merge::{Closed, Control, Counts, Groups, Merge, MergeHandle};
use notification::{Pauses, Timestamp};
use rusqlite::ErrorCode;
use tokio::sync::watch;

pub use backup::{BackupProgress, back_up};
pub use compact::{Compacted, compact};
pub use open::{Options, Synchronous};
pub use reader::SqliteReader;

use crate::rows::TRANSACTION;
use crate::rows::evidence::EvidenceBook;
use crate::rows::release::Slicing;
use crate::{CommitCounts, Recovery, StoreError, StoredKeys};
use checkpointer::{Checkpointer, LogCopier};
use disk::{FreeSpace, Statvfs};
use files::WalBounds;
use reader::Beside;
use transaction::Transaction;
use wal::WriteAheadLog;
use writer::{Durability, Purpose, Writer, WriterMessage};

/// An open store. It is owned by this process until it is closed or dropped.
#[derive(Debug)]
pub struct Sqlite {
    /// Callers that bring in new notifications.
    intake: MergeHandle<WriterMessage>,
    /// Callers that carry on with accepted ones.
    work: MergeHandle<WriterMessage>,
    control: Control,
    changes: watch::Receiver<u64>,
    failed: watch::Receiver<Option<StoreError>>,
    accepts: watch::Receiver<bool>,
    pauses: watch::Receiver<Arc<Pauses>>,
    keys: watch::Receiver<StoredKeys>,
    /// Held for a step of the search index: each goes by the rows that the one before left.
    indexing: tokio::sync::Mutex<()>,
    reader: SqliteReader,
    directory: PathBuf,
    commits: Arc<CommitCounts>,
    /// The last of all: without callers, the writer ends.
    _ending: WriterEnd,
}

/// Tells that the writer's threads have ended. Dropping it waits for that.
#[derive(Debug)]
struct WriterEnd(Mutex<std_mpsc::Receiver<()>>);

/// Time that dropping a store waits for its writer. Changes that were answered are durable anyway.
const DROP_WAIT: Duration = Duration::from_secs(10);

// === impl Sqlite ===

impl Sqlite {
    /// Opens the store in the data directory `path`, which is created when it is missing, and recovers from the end of the last
    /// process. Blocks on the disk.
    ///
    /// # Errors
    /// [`StoreError::InUse`] when another process owns it, [`StoreError::Schema`] when a newer one wrote it.
    pub fn open(
        path: &Path,
        options: Options,
        now: Timestamp,
    ) -> Result<(Self, Recovery), StoreError> {
        let bounds = (WalBounds::DEFAULT, Slicing::DEFAULT);
        Self::open_within(path, options, (Arc::new(Statvfs), bounds), now)
    }

    /// Counts of its commits.
    pub const fn commits(&self) -> &Arc<CommitCounts> {
        &self.commits
    }

    /// Opens a store on a disk whose room is measured by `free_space`.
    fn open_within(
        path: &Path,
        options: Options,
        (free_space, (bounds, slicing)): (Arc<dyn FreeSpace>, (WalBounds, Slicing)),
        now: Timestamp,
    ) -> Result<(Self, Recovery), StoreError> {
        let mut opened = open::open(path, options, free_space, now)?;
        opened.state.slicing = slicing;
        let Merge { callers: [intake, work], loops, control } =
            Merge::new(options.merging, TRANSACTION);
        // After the migrations: a reader refuses a schema that is not up to date.
        let reader = SqliteReader::open(path, Beside::Writer, opened.state.lanes.evidence())?;
        let log = path.join(files::WAL);
        let nudge = Waker::from(Arc::new(control.clone()));
        let copier = LogCopier::open(path, reader.pool())?;
        let checkpointer = Checkpointer::start(move || copier.copy(), nudge.clone())?;
        let wal = WriteAheadLog::new(log, bounds, reader.pool(), checkpointer, nudge);
        let (changes, changes_receiver) = watch::channel(0);
        let (failed, failed_receiver) = watch::channel(None);
        let accepts = opened.disk.accepts();
        let pauses = opened.state.pauses.subscribe();
        let keys = opened.state.keys.subscribe();
        let commits = Arc::clone(&opened.state.commits);
        let writer = Writer {
            connection: opened.connection,
            state: opened.state,
            wal,
            disk: opened.disk,
            changes,
            failed,
            lock: opened.lock,
            is_held_up: false,
        };
        let store = Self {
            intake,
            work,
            control,
            changes: changes_receiver,
            failed: failed_receiver,
            accepts,
            pauses,
            keys,
            indexing: tokio::sync::Mutex::default(),
            reader,
            directory: path.to_owned(),
            commits,
            _ending: start(writer, loops)?,
        };
        Ok((store, opened.recovery))
    }

    /// Opens the store in `path` for questions only, whether another process owns it or not.
    pub fn open_read_only(path: &Path) -> Result<SqliteReader, StoreError> {
        SqliteReader::open(path, Beside::AnotherProcess, EvidenceBook::default())
    }

    /// The reader of the store. Clones share its connections.
    pub const fn reader(&self) -> &SqliteReader {
        &self.reader
    }

    /// Turns into the reason when the store fails; the process should then exit and start again.
    pub fn failed(&self) -> watch::Receiver<Option<StoreError>> {
        self.failed.clone()
    }

    /// True while the disk has room for more notifications; accepted ones go on without.
    pub fn accepts(&self) -> watch::Receiver<bool> {
        self.accepts.clone()
    }

    /// A file to which a byte is to be written when this process ends by a fault of its own: then the next one can find the
    /// delivery that caused it. Appending allocates nothing, so a signal handler can do it.
    ///
    /// # Errors
    /// When the lock file cannot be opened.
    pub fn fault_mark(&self) -> std::io::Result<std::fs::File> {
        owner::fault_mark(&self.directory)
    }

    /// Finishes earlier requests, closes the files and gives the directory free. Later calls are refused.
    pub async fn close(&self) {
        self.control.close().await;
        let _closed_or_failed = self.refusal().await;
    }

    /// Counts of the commands in its transactions, for measurements.
    pub fn merged(&self) -> Counts {
        self.control.counts()
    }

    /// Runs `work` in the writer's next transaction; the answer is durable.
    async fn write<T: Send + 'static>(
        &self,
        durability: Durability,
        work: impl FnOnce(&mut Transaction<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.run(&self.work, (durability, Purpose::CarryOn), writer::once(work)).await
    }

    /// Runs `work`, which marks or settles what is under way, in the writer's next transaction, and again in another one if that is
    /// undone for want of room: a run that was undone must leave no trace. The answer is durable.
    async fn write_repeatable<T: Send + 'static>(
        &self,
        work: impl FnMut(&mut Transaction<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.run(&self.work, (Durability::Synced, Purpose::Repeatable), work).await
    }

    /// Runs `work` that brings in `items` notifications; refused when the disk is nearly full.
    async fn accept<T: Send + 'static>(
        &self,
        items: usize,
        durability: Durability,
        work: impl FnOnce(&mut Transaction<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.run(&self.intake, (durability, Purpose::Accept(items)), writer::once(work)).await
    }

    async fn run<T: Send + 'static>(
        &self,
        caller: &MergeHandle<WriterMessage>,
        (durability, purpose): (Durability, Purpose),
        work: impl FnMut(&mut Transaction<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let message =
            |answer| WriterMessage { job: writer::job(answer, work), durability, purpose };
        match caller.call(message).await {
            Ok(answer) => answer,
            Err(Closed) => Err(self.refusal().await),
        }
    }

    /// Reason for which the writer does not answer. A writer that failed ends at once, and leaves the reason.
    async fn refusal(&self) -> StoreError {
        let mut failed = self.failed.clone();
        let reason = failed.wait_for(Option::is_some).await.ok().and_then(|reason| reason.clone());
        reason.unwrap_or_else(|| StoreError::Broken("it was closed".to_owned()))
    }
}

// === impl WriterEnd ===

impl Drop for WriterEnd {
    fn drop(&mut self) {
        let ended = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        let _ended_or_late = ended.recv_timeout(DROP_WAIT);
    }
}

/// A thread for each loop. The last that ends closes the files.
fn start(writer: Writer, loops: Vec<Groups<WriterMessage>>) -> Result<WriterEnd, StoreError> {
    // Nothing is ever sent: the loss of the senders is the sign of the end of the threads, whatever it was.
    let (ending, ended) = std_mpsc::sync_channel(1);
    let failed = writer.failed.clone();
    let writer = Arc::new(tokio::sync::Mutex::new(writer));
    for mut groups in loops {
        let (writer, panicked, ending) = (Arc::clone(&writer), failed.clone(), ending.clone());
        let run = move || {
            // Safe to assert: the loop that panicked ends, and the failure that is told below ends the others.
            if catch_unwind(AssertUnwindSafe(|| Writer::run(&writer, &mut groups))).is_err() {
                // Without a reason the store would look closed.
                let reason = StoreError::Broken("its writer panicked".to_owned());
                panicked.send_replace(Some(reason));
            }
            // Waiting callers are refused.
            drop(groups);
            if let Some(writer) = Arc::into_inner(writer) {
                writer.into_inner().end();
            }
            // Last of all: then the files are closed, and the directory is free for the next owner.
            drop((panicked, ending));
        };
        let thread = std::thread::Builder::new().name("store-writer".to_owned());
        thread.spawn(run).map_err(|error| StoreError::Broken(error.to_string()))?;
    }
    Ok(WriterEnd(Mutex::new(ended)))
}

// === impl StoreError ===

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) {
            // By `ReadConnectionPool::interrupt`. The query can be made again.
            return Self::Unavailable("it took so long to read that it was interrupted".to_owned());
        }
        if error.sqlite_error_code() == Some(ErrorCode::DiskFull) {
            return Self::NoSpace(
                "the disk that holds the store is full: free some space".to_owned(),
            );
        }
        Self::Broken(error.to_string())
    }
}
impl From<rusqlite::types::FromSqlError> for StoreError {
    fn from(error: rusqlite::types::FromSqlError) -> Self {
        Self::Damaged(error.to_string())
    }
}
