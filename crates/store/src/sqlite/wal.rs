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
use std::time::Duration;

use notification::limits;
use rusqlite::Connection;
use tokio::sync::OwnedSemaphorePermit;

use super::checkpointer::Checkpointer;
use super::files::{BUSY_TIMEOUT, PAGE_BYTES, WalBounds};
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

// === impl WriteAheadLog ===

impl WriteAheadLog {
    pub(super) fn new(
        path: PathBuf,
        bounds: WalBounds,
        (readers, checkpointer): (Arc<ReadConnectionPool>, Checkpointer),
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
        self.pages = Self::pages_now(connection)?;
        let (pages, copied) = self.pages;
        if pages < self.tried_at {
            // SQLite has begun it anew by itself, for no reader was in the way.
            self.begun_anew();
        }
        if self.checkpointer.is_under_way() {
            // On a slow disk the log could grow faster than it is copied.
            if !self.checkpointer.has_ended(pages >= self.max)? {
                return Ok(());
            }
            // The rest, which was written meanwhile: a log that is copied as a whole begins anew.
            checkpoint(connection, "PRAGMA wal_checkpoint(PASSIVE)")?;
            // Even if a reader was in the way of a part: not every transaction is to pay for another try.
            self.tried_at = pages;
        }
        if pages >= self.max {
            self.make_room(connection, pages)?;
        } else if pages - copied.max(self.tried_at) >= self.bounds.checkpoint {
            self.checkpointer.begin();
        }
        Ok(())
    }

    /// Ends the thread of the checkpoints.
    pub(super) fn end(&mut self) -> Result<(), StoreError> {
        self.checkpointer.end()
    }

    /// Pages of the log, and how many of them are in the database; a transaction that writes anything changes them.
    pub(super) fn pages_now(connection: &Connection) -> Result<(i64, i64), StoreError> {
        // It copies nothing.
        let mut measure = connection.prepare_cached("PRAGMA wal_checkpoint(NOOP)")?;
        Ok(measure.query_row([], |row| Ok((row.get(1)?, row.get(2)?)))?)
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

// === impl YieldingReaders ===

impl std::fmt::Debug for YieldingReaders {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("YieldingReaders")
            .field("since", &self.since)
            .finish_non_exhaustive()
    }
}
