//! The one thread that writes. Commands that arrived while the last commit ran are the next transaction ([`flow::merge`]).

use flow::merge::{Groups, Weighted};
use rusqlite::Connection;
use std::fs::File;
use tokio::sync::{Mutex, oneshot, watch};

use Durability::WithTheNext;

use super::checkpointer::{checkpoint, log_pages};
use super::disk::{Disk, DiskSpace};
use super::open::Synchronous;
use super::owner::Owner;
use super::release::SliceResult;
use super::transaction::{Committed, Transaction, WriterState};
use super::wal::WriteAheadLog;
use crate::{CommitCounts, ErrorKind, StoreError};

/// A request of a caller to the writer.
pub(super) struct WriterMessage {
    pub(super) job: Box<dyn WriterJob>,
    pub(super) durability: Durability,
    pub(super) purpose: Purpose,
}

/// The purpose of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// The job brings in this number of recipients, and is refused when the disk is nearly full.
    Accept(usize),
    /// The job marks or settles what is under way, and can be run again: what a run that was undone leaves in memory does no harm.
    Repeatable,
    /// Any other job.
    CarryOn,
}

/// The effect of a power cut on a change. The end of the process alone harms neither kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Durability {
    /// The change is on the disk before it is answered.
    Synced,
    /// A power cut may undo the change, as opening the store would: leases, open broadcasts. The next
    /// commit that is synced covers it.
    WithTheNext,
}

/// A part of a transaction; keeps the answer until the transaction is durable.
pub(super) trait WriterJob: Send {
    /// An error ends the transaction, and nothing of it was done.
    fn run(&mut self, transaction: &mut Transaction<'_>) -> Result<(), StoreError>;

    /// Answers with the result, or with the reason for which it was not done.
    fn answer(self: Box<Self>, undone: Option<&StoreError>);
}

/// A job that answers one caller. Dropped unused, it gives the caller the answer that the store failed.
struct CallerJob<F, T> {
    run: F,
    result: Option<Result<T, StoreError>>,
    answer: oneshot::Sender<Result<T, StoreError>>,
}

/// The commands of one transaction, and its result.
struct TransactionOutcome {
    /// Commands to be answered.
    commands: Vec<WriterMessage>,
    committed: Result<Committed, StoreError>,
}

/// The write side of an open store.
#[derive(Debug)]
pub(super) struct Writer {
    pub(super) connection: Connection,
    pub(super) state: WriterState,
    pub(super) wal: WriteAheadLog,
    pub(super) disk: Disk,
    pub(super) changes: watch::Sender<u64>,
    pub(super) failed: watch::Sender<Option<StoreError>>,
    /// Held as long as this lives.
    pub(super) lock: Owner,
    /// True if the disk had no room for the next slice of a broadcast.
    pub(super) is_held_up: bool,
}

// === impl Writer ===

impl Writer {
    /// Performs group after group, until it is closed or the store fails. Commands that are handed in while a broadcast has
    /// slices to be made are performed between two of them.
    pub(super) fn run(writer: &Mutex<Self>, groups: &mut Groups<WriterMessage>) {
        let mut has_slice = writer.blocking_lock().has_slice();
        while if has_slice { groups.goes_on() } else { groups.ready_blocking() } {
            let mut writer = writer.blocking_lock();
            // With a loop for each kind, it may have been the other one.
            if writer.has_failed() {
                return;
            }
            // In this order: callers have their answers before a slice or a checkpoint takes its time.
            let done = writer
                .perform(groups.take_blocking())
                .and_then(|()| writer.slice())
                .and_then(|()| writer.keep_log_short());
            if let Err(error) = done {
                writer.fail(&error);
                return;
            }
            has_slice = writer.has_slice();
        }
    }

    /// Closes the files and gives the directory free; in order, unless the store failed.
    pub(super) fn end(self) {
        if !self.has_failed()
            && let Err(error) = self.close()
        {
            tracing::error!(%error, "the store could not be closed in order: nothing is lost");
        }
    }

    fn keep_log_short(&mut self) -> Result<(), StoreError> {
        let kept = self.wal.keep_short(&self.connection);
        self.state.commits.set_wal_bytes(self.wal.bytes());
        kept
    }

    fn has_failed(&self) -> bool {
        self.failed.borrow().is_some()
    }

    fn has_slice(&self) -> bool {
        self.state.waits && self.state.slicing.goes_on && !self.is_held_up
    }

    /// Makes the next slice of a broadcast, if one waits. A slice without room on the disk is tried again after the next command,
    /// which a claim brings soon.
    fn slice(&mut self) -> Result<(), StoreError> {
        if !self.has_slice() {
            return Ok(());
        }
        // Once more: the transaction of the callers has taken room.
        self.state.room = self.disk.look(self.wal.owed())?;
        self.is_held_up = self.state.room == DiskSpace::Spent || self.wal.refusal().is_some();
        if self.is_held_up {
            return Ok(());
        }
        // Chunks that a power cut undoes are made again; log entries are synced below.
        self.set_synced(false)?;
        let mut transaction = Transaction::begin(&self.connection, &mut self.state)?;
        let made = transaction.make_slice().and_then(|made| Ok((made, transaction.commit()?)));
        match made {
            Err(StoreError::NoSpace(_)) => {
                self.is_held_up = true;
                self.undo()
            }
            Err(error) => Err(error),
            Ok((made, committed)) => {
                if made == SliceResult::Log {
                    self.sync_log()?;
                }
                self.wake(committed.woke);
                Ok(())
            }
        }
    }

    /// Performs a transaction for new notifications and what can be run again, and one for the rest: the disk may be too full for
    /// new ones, and what can be run again is part of the second transaction then. No caller is answered before all of it is
    /// durable: the second makes the first so, if it is synced and writes anything.
    fn perform(&mut self, commands: Vec<WriterMessage>) -> Result<(), StoreError> {
        if commands.is_empty() {
            return Ok(());
        }
        self.is_held_up = false;
        // With every transaction: the disk is shared with programs that fill it at any time.
        self.state.room = self.disk.look(self.wal.owed())?;
        let refusal = self.disk.refusal().or_else(|| self.wal.refusal());
        // Without new ones all of it is one transaction, the second.
        let joins = refusal.is_none() && commands.iter().any(WriterMessage::accepts);
        let (mut incoming, mut ongoing): (Vec<_>, Vec<_>) =
            commands.into_iter().partition(|it| it.accepts() || joins && it.is_repeatable());
        // New ones last: a settlement with fallbacks writes what is packed before it.
        incoming.sort_by_key(WriterMessage::accepts);
        let wants_sync = incoming.iter().any(WriterMessage::wants_sync);
        let mut first = match refusal {
            Some(refusal) => TransactionOutcome { commands: incoming, committed: Err(refusal) },
            None => self.transaction(incoming, wants_sync && ongoing.is_empty())?,
        };
        ongoing.splice(0..0, first.take_repeatable());
        // Asked for only where it matters: most groups are one transaction.
        let is_owed = wants_sync && first.committed.is_ok() && !ongoing.is_empty();
        let before = is_owed.then(|| self.pages_written()).transpose()?;
        let is_synced = is_owed || ongoing.iter().any(WriterMessage::wants_sync);
        let second = self.transaction(ongoing, is_synced)?;
        // It had the reserve, too. If that was not enough, only a restart with more room helps.
        let committed = second.committed.clone()?;
        // A commit that writes nothing syncs nothing. Unsynced otherwise: a claim that ended a notification.
        let is_left = match before {
            Some(pages) if self.state.is_synced => pages == self.pages_written()?,
            _ => false,
        };
        if is_left || committed.counted && !self.state.is_synced {
            self.sync_log()?;
        }
        let woke = committed.woke || first.committed.as_ref().is_ok_and(|it| it.woke);
        first.answer();
        second.answer();
        self.wake(woke);
        Ok(())
    }

    /// Pages of the log. Not how many are in the database: a checkpoint beside the writer changes that at any time.
    fn pages_written(&self) -> Result<i64, StoreError> {
        Ok(log_pages(&self.connection)?.0)
    }

    /// Makes earlier commits durable: a reader of the log must never see an end undone.
    fn sync_log(&self) -> Result<(), StoreError> {
        let begun_at = CommitCounts::begin();
        let synced = File::open(&self.wal.path).and_then(|wal| wal.sync_data());
        synced.map_err(|error| StoreError::Broken(error.to_string()))?;
        self.state.commits.committed(begun_at, true);
        Ok(())
    }

    /// Tells the stage that claims that there may be more.
    fn wake(&self, woke: bool) {
        if woke {
            self.changes.send_modify(|change| *change += 1);
        }
    }

    /// Runs `commands` in one transaction. When the disk is too full for it, nothing of it was done, and the store goes on.
    fn transaction(
        &mut self,
        mut commands: Vec<WriterMessage>,
        is_synced: bool,
    ) -> Result<TransactionOutcome, StoreError> {
        if commands.is_empty() {
            return Ok(TransactionOutcome { commands, committed: Ok(Committed::default()) });
        }
        self.set_synced(is_synced)?;
        let committed = match self.commit(&mut commands) {
            Err(StoreError::NoSpace(words)) => {
                self.undo()?;
                Err(StoreError::NoSpace(words))
            }
            Err(error) => return Err(error),
            Ok(committed) => Ok(committed),
        };
        Ok(TransactionOutcome { commands, committed })
    }

    /// Undoes a transaction without room on the disk.
    fn undo(&mut self) -> Result<(), StoreError> {
        // A commit that finds no room rolls back by itself.
        if !self.connection.is_autocommit() {
            self.connection.execute_batch("ROLLBACK")?;
        }
        // Their numbers will be given to other lanes, and claims that go by them would be sent to the wrong destination.
        self.state.forget_new_lanes();
        Ok(())
    }

    fn commit(&mut self, commands: &mut [WriterMessage]) -> Result<Committed, StoreError> {
        let mut transaction = Transaction::begin(&self.connection, &mut self.state)?;
        for command in &mut *commands {
            command.job.run(&mut transaction)?;
        }
        let committed = transaction.commit()?;
        self.state.commits.requests.observe(commands.len() as u64);
        Ok(committed)
    }

    /// Sets whether the next commits reach the disk before they return.
    fn set_synced(&mut self, synced: bool) -> Result<(), StoreError> {
        if self.state.may_sync && synced != self.state.is_synced {
            let level = if synced { Synchronous::Full } else { Synchronous::Normal };
            self.connection.pragma_update(None, "synchronous", level.as_str())?;
            self.state.is_synced = synced;
        }
        Ok(())
    }

    fn fail(&self, error: &StoreError) {
        tracing::error!(%error, "the store failed: it takes no more work until a restart");
        let broken = if matches!(error, StoreError::Broken(_)) {
            error.clone()
        } else {
            // An error of another kind would have callers try again, or take the fault for theirs.
            StoreError::Broken(error.to_string())
        };
        self.failed.send_replace(Some(broken));
    }

    fn close(self) -> Result<(), StoreError> {
        // In this order: what is declared last is dropped first, should a step fail.
        let Self { lock, mut wal, connection, .. } = self;
        wal.end()?;
        checkpoint(&connection, "PRAGMA wal_checkpoint(TRUNCATE)")?;
        connection.close().map_err(|(_, error)| error)?;
        // It may have the last handle on the readers' pool: see `ReadConnectionPool::sync_database`.
        drop(wal);
        // Last: the next owner must find the files closed.
        drop(lock);
        Ok(())
    }
}

// === impl TransactionOutcome ===

impl TransactionOutcome {
    /// Takes out the commands that are to be run again: what can be, of a transaction that was undone.
    fn take_repeatable(&mut self) -> Vec<WriterMessage> {
        if self.committed.is_ok() {
            return Vec::new();
        }
        self.commands.extract_if(.., |it| it.is_repeatable()).collect()
    }

    fn answer(self) {
        let undone = self.committed.err();
        for command in self.commands {
            command.job.answer(undone.as_ref());
        }
    }
}

// === impl WriterMessage ===

impl WriterMessage {
    fn accepts(&self) -> bool {
        matches!(self.purpose, Purpose::Accept(_))
    }

    fn is_repeatable(&self) -> bool {
        matches!(self.purpose, Purpose::Repeatable)
    }

    fn wants_sync(&self) -> bool {
        self.durability != WithTheNext
    }
}

impl Weighted for WriterMessage {
    /// Notifications that this brings in.
    fn weight(&self) -> usize {
        match self.purpose {
            Purpose::Accept(items) => items,
            Purpose::Repeatable | Purpose::CarryOn => 0,
        }
    }
}

impl std::fmt::Debug for WriterMessage {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("WriterMessage")
            .field("purpose", &self.purpose)
            .finish_non_exhaustive()
    }
}

// === impl CallerJob ===

impl<F, T> WriterJob for CallerJob<F, T>
where
    F: FnMut(&mut Transaction<'_>) -> Result<T, StoreError> + Send,
    T: Send,
{
    fn run(&mut self, transaction: &mut Transaction<'_>) -> Result<(), StoreError> {
        self.result = Some(unless_undone((self.run)(transaction))?);
        Ok(())
    }

    fn answer(self: Box<Self>, undone: Option<&StoreError>) {
        let result = undone.cloned().map_or(self.result, |error| Some(Err(error)));
        if let Some(result) = result {
            let _caller_may_be_gone = self.answer.send(result);
        }
    }
}

/// Work, and where its result goes once it is durable.
pub(super) fn job<T: Send + 'static>(
    answer: oneshot::Sender<Result<T, StoreError>>,
    work: impl FnMut(&mut Transaction<'_>) -> Result<T, StoreError> + Send + 'static,
) -> Box<dyn WriterJob> {
    Box::new(CallerJob { run: work, result: None, answer })
}

/// Work that is run once at most, as it uses up what it was given.
pub(super) fn once<T>(
    work: impl FnOnce(&mut Transaction<'_>) -> Result<T, StoreError> + Send + 'static,
) -> impl FnMut(&mut Transaction<'_>) -> Result<T, StoreError> + Send + 'static {
    let mut work = Some(work);
    move |transaction| match work.take() {
        Some(work) => work(transaction),
        None => Err(StoreError::Broken("work that can be run once was run again".to_owned())),
    }
}

/// A refusal is an answer; a failure that ends the transaction is an error.
fn unless_undone<T>(result: Result<T, StoreError>) -> Result<Result<T, StoreError>, StoreError> {
    match result {
        Err(error) if error.kind() == ErrorKind::Fatal => Err(error),
        // It may have written a part of its rows, and a transaction is undone as a whole only.
        Err(error @ StoreError::NoSpace(_)) => Err(error),
        result => Ok(result),
    }
}
