//! The write-ahead log is kept short by checkpoints that wait for no reader. Most of each is made on a thread of its own
//! ([`Checkpointer`]), and the writer waits for it only where the log would become too long.
//!
//! SQLite writes the log from its beginning again once all of it is in the database and no reader needs it. A reader that stays
//! too long keeps it growing. The writer therefore has the readers of its own process make way when the log has
//! [`WalBounds::max`] pages: no new read begins until those under way have ended, and those that are still there when the log has
//! grown by [`WalBounds::checkpoint`] more are interrupted. The writer goes on meanwhile. Readers of other processes make way of
//! their own accord ([`super::reader`]); one that does not lets the log grow, until nothing more is accepted.

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use notification::limits;
use rusqlite::Connection;
use tokio::sync::OwnedSemaphorePermit;

use super::checkpointer::{Checkpointer, checkpoint, log_pages};
use super::files::{PAGE_BYTES, WalBounds};
use super::reader::ReadConnectionPool;
use crate::StoreError;

/// The log, as its writer sees it.
#[derive(Debug)]
pub(super) struct WriteAheadLog {
    pub(super) path: PathBuf,
    bounds: WalBounds,
    readers: Arc<ReadConnectionPool>,
    checkpointer: Checkpointer,
    /// Has the writer look again when the last reader is gone.
    nudge: Waker,
    /// Pages of the log at the last checkpoint.
    tried_at: i64,
    /// Pages of the log now, and those of them that are in the database.
    pages: (i64, i64),
    /// Pages of the log at which readers make way next.
    max: i64,
    making_way: Option<YieldingReaders>,
    /// Pages of the log when a reader of another process was last told of.
    told_at: i64,
}

/// State of readers of this process that are to make way.
struct YieldingReaders {
    /// Pages of the log at which they were.
    since: i64,
    all_gone: Pin<Box<dyn Future<Output = OwnedSemaphorePermit> + Send>>,
}

/// Pages that the writer copies itself at most, 16 MiB: the thread leaves less than that, and one transaction may write some MiB more.
pub(super) const REST_MAX: i64 = 16 * 1024 * 1024 / PAGE_BYTES;

// === impl WriteAheadLog ===

impl WriteAheadLog {
    pub(super) fn new(
        path: PathBuf,
        bounds: WalBounds,
        readers: Arc<ReadConnectionPool>,
        checkpointer: Checkpointer,
        nudge: Waker,
    ) -> Self {
        let (max, making_way) = (bounds.max, None);
        Self {
            path,
            bounds,
            readers,
            checkpointer,
            nudge,
            tried_at: 0,
            pages: (0, 0),
            max,
            making_way,
            told_at: 0,
        }
    }

    /// Copies the log to the database when it is long. Errors count: a failed sync here is as bad as one in a commit, which
    /// is why SQLite's own checkpoints, which hide them, are off.
    pub(super) fn keep_short(&mut self, connection: &Connection) -> Result<(), StoreError> {
        self.pages = log_pages(connection)?;
        let (pages, copied) = self.pages;
        if pages < self.tried_at {
            // SQLite has begun it anew by itself, for no reader was in the way.
            self.begun_anew();
        }
        if self.checkpointer.is_under_way() {
            return self.follow(connection);
        }
        if pages >= self.max {
            self.make_room(connection, pages)?;
        } else if pages - copied.max(self.tried_at) >= self.bounds.checkpoint {
            self.checkpointer.begin();
        }
        Ok(())
    }

    /// Copies what the thread has left, once it has ended: all of the log is in the database then.
    fn follow(&mut self, connection: &Connection) -> Result<(), StoreError> {
        let (pages, copied) = self.pages;
        // On a slow disk more could be written than is copied.
        let is_long = pages >= self.max || pages - copied >= 2 * self.bounds.checkpoint;
        if !self.checkpointer.has_ended(is_long)? {
            return Ok(());
        }
        self.pages = log_pages(connection)?;
        let (pages, copied) = self.pages;
        // More is left where a reader was in the way. Not every transaction is to pay for another try.
        if pages - copied <= REST_MAX {
            checkpoint(connection, "PRAGMA wal_checkpoint(PASSIVE)")?;
        }
        self.tried_at = pages;
        Ok(())
    }

    /// Ends the thread of the checkpoints.
    pub(super) fn end(&mut self) -> Result<(), StoreError> {
        self.checkpointer.end()
    }

    /// Refusal of new notifications while the log is too large; `None` otherwise.
    pub(super) fn refusal(&self) -> Option<StoreError> {
        let bytes = self.bytes();
        (bytes >= limits::WAL_BYTES).then(|| {
            StoreError::NoSpace(format!(
                "another process has read the database for so long that the write-ahead log has {} MiB, and nothing was \
                 stored: end it. What was accepted before is delivered meanwhile",
                bytes / (1024 * 1024)
            ))
        })
    }

    /// Bytes of the log as it was looked at last.
    pub(super) const fn bytes(&self) -> u64 {
        (self.pages.0 * PAGE_BYTES).cast_unsigned()
    }

    /// Bytes that the database grows by when the rest of the log is copied to it, at most.
    pub(super) fn owed(&self) -> u64 {
        let (pages, copied) = self.pages;
        ((pages - copied) * PAGE_BYTES).cast_unsigned()
    }

    /// Lets the log start anew as soon as no reader is in the way, and does not wait for that.
    fn make_room(&mut self, connection: &Connection, pages: i64) -> Result<(), StoreError> {
        let making_way = self.making_way.get_or_insert_with(|| YieldingReaders {
            since: pages,
            all_gone: Box::pin(self.readers.shut()),
        });
        let Poll::Ready(none_reads) =
            making_way.all_gone.as_mut().poll(&mut Context::from_waker(&self.nudge))
        else {
            if pages - making_way.since >= self.bounds.checkpoint {
                self.readers.interrupt();
            }
            return Ok(());
        };
        let is_busy = checkpoint(connection, "PRAGMA wal_checkpoint(TRUNCATE)")?;
        self.making_way = None;
        // Held until here: a reader that began in between would keep the log from beginning anew.
        drop(none_reads);
        if !is_busy {
            self.begun_anew();
            return Ok(());
        }
        // A reader of another process is in the way: those of this one may read until the log has grown by as much again.
        self.tried_at = pages;
        self.max = pages + self.bounds.checkpoint;
        if pages >= 2 * self.told_at {
            self.told_at = pages;
            let megabytes = pages * PAGE_BYTES / 1_000_000;
            tracing::warn!(
                megabytes,
                "another process reads the database in one long transaction, and the write-ahead log grows: end it"
            );
        }
        Ok(())
    }

    fn begun_anew(&mut self) {
        (self.tried_at, self.told_at) = (0, 0);
        (self.max, self.making_way) = (self.bounds.max, None);
    }
}

// === impl YieldingReaders ===

impl std::fmt::Debug for YieldingReaders {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("YieldingReaders")
            .field("since", &self.since)
            .finish_non_exhaustive()
    }
}
