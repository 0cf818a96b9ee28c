//! A copy of a store, made while its owner writes.
//!
//! The copy is that of one instant: a read transaction is held while pages are copied, in whatever order. The writer goes on
//! meanwhile, and its write-ahead log grows, since no part of it may be written anew that the copy still needs. A copy that takes
//! so long that the log comes near its bound ([`limits::WAL_BYTES`]), from which on nothing more is accepted, is given up.
//!
//! The copy says in itself that it is one: a store that is opened from it is an earlier state, and `restored` has what follows.

use std::fs::{DirBuilder, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use notification::{Timestamp, limits};
use rusqlite::backup::{Backup, Progress, StepResult};
use rusqlite::{Connection, OpenFlags};

use super::files::{BUSY_TIMEOUT, DATABASE, PAGE_BYTES, WAL, sync_directory};
use super::open::open_reading;
use super::restored;
use crate::StoreError;

/// Bytes of a store that are copied, and those that it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BackupProgress {
    /// Bytes that are copied.
    pub copied: u64,
    /// Bytes that there are.
    pub all: u64,
}

/// A copy that is not whole yet has this name, and is no store.
const PARTIAL: &str = "belfry.db.partial";
/// Pages of a step, 8 MiB: after each the log is looked at.
const STEP_PAGES: i32 = 1024;
/// Size of the log at which a copy is given up.
const LOG_MAX: u64 = limits::WAL_BYTES / 4 * 3;

/// Copies the store in `directory`, owned by another process or not, into the directory `to`, which is made if it is missing and may
/// have no store. `tell` is called as the copy grows. The copy is on the disk when this returns.
///
/// # Errors
/// When one of the two cannot be used, `to` has no room, or the copy took too long for the write-ahead log; `to` has no store then.
pub fn back_up(
    directory: &Path,
    to: &Path,
    now: Timestamp,
    mut tell: impl FnMut(BackupProgress),
) -> Result<BackupProgress, StoreError> {
    let source = open_reading(directory)?;
    let whole = to.join(DATABASE);
    if whole.exists() {
        let text = format!("{} has a store already: name another directory", to.display());
        return Err(StoreError::Refused(text));
    }
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700).create(to).map_err(|error| cannot_write(to, &error))?;
    let partial = PartialCopy::new(to)?;
    let full = |error| {
        // It is the copy's disk: the source is only read.
        let is_full = matches!(error, StoreError::NoSpace(_));
        let text = || format!("the disk that holds {} is full", to.display());
        if is_full { StoreError::NoSpace(text()) } else { error }
    };
    let copied = copy(&source, &partial.0, &directory.join(WAL), &mut tell).map_err(full)?;
    drop(source);
    mark(&partial.0, now).map_err(full)?;
    partial.become_store(to)?;
    Ok(copied)
}

/// A file that is removed when it is dropped, if it is still there.
#[derive(Debug)]
pub(super) struct PartialCopy(pub(super) PathBuf);

fn copy(
    source: &Connection,
    to: &Path,
    log: &Path,
    tell: &mut impl FnMut(BackupProgress),
) -> Result<BackupProgress, StoreError> {
    // The first read fixes the instant, until the connection is closed.
    source.execute_batch("BEGIN")?;
    source.query_row("SELECT count(*) FROM sqlite_schema", [], |_row| Ok(()))?;
    let mut copy = Connection::open(to)?;
    copy.busy_timeout(BUSY_TIMEOUT)?;
    let backup = Backup::new(source, &mut copy)?;
    let log_bytes = || std::fs::metadata(log).map_or(0, |log| log.len());
    // One that was long before and is written from its beginning again keeps its length.
    let log_max = LOG_MAX.max(log_bytes());
    loop {
        match backup.step(STEP_PAGES)? {
            StepResult::Done => break,
            StepResult::More => {}
            // The source is read already, and the copy is new: another process has opened it.
            StepResult::Busy | StepResult::Locked | _ => {
                let text = format!("another process uses {}: end it", to.display());
                return Err(StoreError::Unavailable(text));
            }
        }
        tell(progress(backup.progress()));
        let log_bytes = log_bytes();
        if log_bytes > log_max {
            return Err(StoreError::Unavailable(format!(
                "so much was written while it was copied that the write-ahead log has {} MiB, and the copy was given up before \
                 notifications are refused for it: try again when less comes in, or write it to a faster disk",
                log_bytes / (1024 * 1024)
            )));
        }
    }
    let all = progress(backup.progress()).all;
    let done = BackupProgress { copied: all, all };
    tell(done);
    Ok(done)
}

/// Notes in the copy that it is one.
fn mark(copy: &Path, now: Timestamp) -> Result<(), StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(copy, flags)?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    restored::mark(&connection, now)?;
    // The log of this change is written to the database, and removed.
    connection.close().map_err(|(_connection, error)| StoreError::from(error))
}

fn progress(progress: Progress) -> BackupProgress {
    let bytes = |pages: i32| (i64::from(pages) * PAGE_BYTES).cast_unsigned();
    BackupProgress {
        copied: bytes(progress.pagecount - progress.remaining),
        all: bytes(progress.pagecount),
    }
}

pub(super) fn cannot_write(place: &Path, error: &std::io::Error) -> StoreError {
    StoreError::Refused(format!("cannot write {}: {error}", place.display()))
}

// === impl PartialCopy ===

impl PartialCopy {
    /// An empty file in `directory`, in place of what a copy that ended half-way has left there. No other user may read it: it will
    /// have recipients and contents.
    pub(super) fn new(directory: &Path) -> Result<Self, StoreError> {
        let path = directory.join(PARTIAL);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(cannot_write(&path, &error));
            }
            _removed_or_none => {}
        }
        let mut options = OpenOptions::new();
        let made = options.write(true).create_new(true).mode(0o600).open(&path);
        made.map_err(|error| cannot_write(&path, &error))?;
        Ok(Self(path))
    }

    /// Takes the place of the database in `directory`, durably.
    pub(super) fn become_store(self, directory: &Path) -> Result<(), StoreError> {
        let whole = directory.join(DATABASE);
        std::fs::rename(&self.0, &whole).map_err(|error| cannot_write(&whole, &error))?;
        sync_directory(directory).map_err(|error| cannot_write(directory, &error))
    }
}

impl Drop for PartialCopy {
    fn drop(&mut self) {
        let _removed_or_renamed = std::fs::remove_file(&self.0);
    }
}

#[cfg(test)]
#[path = "backup_tests.rs"]
mod tests;
