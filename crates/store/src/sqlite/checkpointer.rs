//! Checkpoints on a thread of their own, beside the writer.
//!
//! To copy a log of [`WalBounds::checkpoint`](super::files::WalBounds::checkpoint) pages to the database and to sync that takes up to
//! a tenth of a second, in which a writer that does it itself answers no caller. This thread does it while the writer goes on, until
//! little is left; the writer then makes a short checkpoint, with which it has caught up with itself, so that SQLite begins the log anew
//! (decision 0086).

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, SyncSender, TryRecvError};
use std::task::Waker;
use std::thread::{self, JoinHandle};

use rusqlite::Connection;

use super::files::DATABASE;
use super::open::Synchronous;
use super::reader::ReadConnectionPool;
use super::wal::{WriteAheadLog, checkpoint};
use crate::StoreError;

/// A thread that makes checkpoints when it is asked to. Dropping it waits for the one under way.
#[derive(Debug)]
pub(super) struct Checkpointer {
    /// `None` once it is to end.
    asks: Option<SyncSender<()>>,
    ended: Receiver<Result<(), StoreError>>,
    is_under_way: bool,
    thread: Option<JoinHandle<()>>,
}

/// Pages that may be left to the writer: 2 MiB, which it copies and syncs in a few milliseconds.
const LEFT: i64 = 256;
/// Times that the log is copied for one request: each leaves what was written meanwhile.
const PASSES: usize = 4;

// === impl Checkpointer ===

impl Checkpointer {
    /// Has a thread run `copy` whenever it is asked to, and wake `nudge` when it has ended.
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
        // A thread that is gone is told of by the result that does not come.
        self.is_under_way = self.asks.as_ref().is_some_and(|asks| {
            let _asked_or_gone = asks.send(());
            true
        });
    }

    pub(super) const fn is_under_way(&self) -> bool {
        self.is_under_way
    }

    /// True if the checkpoint under way has ended; `waits` for it, if it is to.
    ///
    /// # Errors
    /// When it failed.
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

    /// Ends the thread, with the checkpoint under way.
    ///
    /// # Errors
    /// When that failed.
    pub(super) fn end(&mut self) -> Result<(), StoreError> {
        if self.is_under_way {
            self.has_ended(true)?;
        }
        self.asks = None;
        Ok(())
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        self.asks = None;
        if let Some(thread) = self.thread.take() {
            let _ended_or_panicked = thread.join();
        }
    }
}

/// Copies the log of the store in `directory` to the database, over a connection of its own, and syncs that. The readers of the process
/// are `readers`, who keep the database open for it.
///
/// # Errors
/// When the database cannot be opened.
pub(super) fn copying(
    directory: &Path,
    readers: Arc<ReadConnectionPool>,
) -> Result<impl FnMut() -> Result<(), StoreError> + Send + use<>, StoreError> {
    let connection = Connection::open(directory.join(DATABASE))?;
    // A checkpoint syncs the log before it copies anything, and without this would not.
    connection.pragma_update(None, "synchronous", Synchronous::Normal.as_str())?;
    Ok(move || copy(&connection, readers.database()))
}

fn copy(connection: &Connection, database: &File) -> Result<(), StoreError> {
    let mut before = -1;
    for _ in 0..PASSES {
        checkpoint(connection, "PRAGMA wal_checkpoint(PASSIVE)")?;
        // SQLite syncs the database only with a checkpoint that has caught up with the writer, and counts no page as safe before.
        database.sync_data().map_err(|error| StoreError::Broken(error.to_string()))?;
        let (pages, copied) = WriteAheadLog::pages_now(connection)?;
        // Without progress a reader is in the way.
        if pages - copied <= LEFT || copied == before {
            break;
        }
        before = copied;
    }
    Ok(())
}
