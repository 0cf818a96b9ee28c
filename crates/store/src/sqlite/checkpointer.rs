//! Checkpoints on a thread of their own, beside the writer.
//!
//! To copy a log of [`WalBounds::checkpoint`](super::files::WalBounds::checkpoint) pages to the database and to sync it takes up to a
//! tenth of a second, in which a writer that did so would answer no caller. This thread does it while the writer goes on, until few
//! pages are left. The writer copies these, and the log begins anew (decision 0086).

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, SyncSender, TryRecvError};
use std::task::Waker;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rusqlite::Connection;

use super::files::{BUSY_TIMEOUT, DATABASE};
use super::reader::ReadConnectionPool;
use crate::StoreError;

/// A thread that makes a checkpoint when it is asked for one. Dropping it waits for the one under way.
#[derive(Debug)]
pub(super) struct Checkpointer {
    /// `None` once the thread is to end.
    asks: Option<SyncSender<()>>,
    ended: Receiver<Result<(), StoreError>>,
    is_under_way: bool,
    thread: Option<JoinHandle<()>>,
}

/// Copies the log of a store to its database, over a connection of its own.
#[derive(Debug)]
pub(super) struct LogCopier {
    /// Closed before the pool, which closes a descriptor of the database: see [`ReadConnectionPool::sync_database`].
    connection: Connection,
    readers: Arc<ReadConnectionPool>,
}

/// Pages that may be left to the writer, 2 MiB: it copies and syncs them in a few milliseconds.
const FEW_PAGES: i64 = 256;
/// Times that the log is copied for one request: each leaves what was written meanwhile.
const PASSES: usize = 4;

// === impl Checkpointer ===

impl Checkpointer {
    /// Has a thread run `copy` whenever it is asked to, and wake `nudge` when that has ended.
    pub(super) fn start(
        mut copy: impl FnMut() -> Result<(), StoreError> + Send + 'static,
        nudge: Waker,
    ) -> Result<Self, StoreError> {
        let (asks, asked) = mpsc::sync_channel(1);
        let (ends, ended) = mpsc::sync_channel(1);
        let run = move || {
            while asked.recv().is_ok() && ends.send(copy()).is_ok() {
                nudge.wake_by_ref();
            }
        };
        let thread = thread::Builder::new().name("checkpointer".to_owned());
        let thread = thread.spawn(run).map_err(|error| StoreError::Broken(error.to_string()))?;
        Ok(Self { asks: Some(asks), ended, is_under_way: false, thread: Some(thread) })
    }

    /// Begins a checkpoint; none is under way.
    pub(super) fn begin(&mut self) {
        if let Some(asks) = &self.asks {
            // If the thread has panicked, `has_ended` says so.
            let _asked_or_gone = asks.send(());
            self.is_under_way = true;
        }
    }

    pub(super) const fn is_under_way(&self) -> bool {
        self.is_under_way
    }

    /// True if the checkpoint under way has ended. If it `waits`, it has.
    ///
    /// # Errors
    /// When the checkpoint failed.
    pub(super) fn has_ended(&mut self, waits: bool) -> Result<bool, StoreError> {
        let ended = if waits {
            self.ended.recv().map_err(|_gone| TryRecvError::Disconnected)
        } else {
            self.ended.try_recv()
        };
        match ended {
            Err(TryRecvError::Empty) => Ok(false),
            Err(TryRecvError::Disconnected) => {
                Err(StoreError::Broken("the thread of the checkpoints panicked".to_owned()))
            }
            Ok(result) => {
                self.is_under_way = false;
                result.map(|()| true)
            }
        }
    }

    /// Ends the thread, after the checkpoint under way.
    ///
    /// # Errors
    /// When the checkpoint failed.
    pub(super) fn end(&mut self) -> Result<(), StoreError> {
        let ended = if self.is_under_way { self.has_ended(true).map(drop) } else { Ok(()) };
        self.asks = None;
        if let Some(thread) = self.thread.take() {
            let _ended_or_panicked = thread.join();
        }
        ended
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        let _failed_or_not = self.end();
    }
}

// === impl LogCopier ===

impl LogCopier {
    /// For the store in `directory`, which is open, with `readers`.
    pub(super) fn open(
        directory: &Path,
        readers: Arc<ReadConnectionPool>,
    ) -> Result<Self, StoreError> {
        let connection = Connection::open(directory.join(DATABASE))?;
        // Opens the log, which SQLite would do with the first checkpoint.
        log_pages(&connection)?;
        Ok(Self { connection, readers })
    }

    /// Copies the log until few pages are left, or a reader is in the way.
    ///
    /// # Errors
    /// When it could not be copied, or the database could not be synced.
    pub(super) fn copy(&self) -> Result<(), StoreError> {
        let mut before = None;
        for _ in 0..PASSES {
            checkpoint(&self.connection, "PRAGMA wal_checkpoint(PASSIVE)")?;
            // SQLite does so itself with a checkpoint that leaves nothing, as the writer's does, for which little is left then.
            self.readers.sync_database()?;
            // Negative where the writer has changed the header at this very moment.
            let (pages, copied) = log_pages(&self.connection)?;
            let is_done = pages >= 0 && pages - copied <= FEW_PAGES;
            if is_done || before == Some(copied) {
                break;
            }
            before = (copied >= 0).then_some(copied);
        }
        Ok(())
    }
}

/// A checkpoint that waits for no reader; whether one was in its way, or a full disk.
pub(super) fn checkpoint(connection: &Connection, pragma: &str) -> Result<bool, StoreError> {
    // A checkpoint waits for readers as long as this says, and all writes wait with it.
    connection.busy_timeout(Duration::ZERO)?;
    let is_busy = connection.query_row(pragma, [], |row| row.get(0));
    // Before the result is looked at: transactions need it also after an error.
    connection.busy_timeout(BUSY_TIMEOUT)?;
    match is_busy.map_err(StoreError::from) {
        // The disk is too full for the database to grow; the log has it all.
        Err(StoreError::NoSpace(_)) => Ok(true),
        is_busy => is_busy,
    }
}

/// Pages of the log, and how many of them are in the database; a transaction that writes anything changes them. Beside the writer both are
/// negative at times.
pub(super) fn log_pages(connection: &Connection) -> Result<(i64, i64), StoreError> {
    // It copies nothing.
    let mut measure = connection.prepare_cached("PRAGMA wal_checkpoint(NOOP)")?;
    Ok(measure.query_row([], |row| Ok((row.get(1)?, row.get(2)?)))?)
}
