//! A store is written anew, without the room and the bytes of what was removed from it.
//!
//! Rows that are removed or changed leave bytes in free pages, in the unused part of pages and in the write-ahead log, until these are
//! used again. A copy of the rows has none of them. It takes the place of the database in one step, so an end at any moment leaves
//! one of the two.

use std::fs::File;
use std::path::Path;

use rusqlite::{Connection, OpenFlags};

use super::backup::{PartialCopy, cannot_write};
use super::files::{BUSY_TIMEOUT, DATABASE, WAL};
use super::open::open_reading;
use super::owner::Owner;
use crate::StoreError;

/// Sizes of a store, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compacted {
    /// Its size before, with its write-ahead log.
    pub before: u64,
    /// Its size after.
    pub after: u64,
}

/// Writes the store in `directory` anew, which no other process may use. Its volume must have room for all rows once more. From then
/// on it gives pages back to the file system, also if it was made before stores did.
///
/// # Errors
/// When there is no store of this version, another process uses it, or there is no room; then nothing has changed.
pub fn compact(directory: &Path) -> Result<Compacted, StoreError> {
    // First: a directory without a store is told as that, and gets no lock file.
    drop(open_reading(directory)?);
    // Its record stays as the owner before has left it, for the next start.
    let (_owner, _ending) = Owner::take(directory)?;
    let path = directory.join(DATABASE);
    let size = |path: &Path| std::fs::metadata(path).map_or(0, |file| file.len());
    let before = size(&path) + size(&directory.join(WAL));
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(&path, flags)?;
    leave_log(&connection, directory)?;
    connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    let partial = PartialCopy::new(directory)?;
    connection.execute("VACUUM INTO ?1", [partial.0.to_string_lossy()])?;
    let after = size(&partial.0);
    let synced = File::open(&partial.0).and_then(|file| file.sync_all());
    synced.map_err(|error| cannot_write(&partial.0, &error))?;
    partial.become_store(directory)?;
    Ok(Compacted { before, after })
}

/// Brings the write-ahead log into the database and removes it, which takes that no other process has either open.
fn leave_log(connection: &Connection, directory: &Path) -> Result<(), StoreError> {
    connection.busy_timeout(BUSY_TIMEOUT)?;
    let mode = connection.query_row("PRAGMA journal_mode = DELETE", [], |row| row.get(0));
    let is_left = matches!(&mode, Ok::<String, _>(mode) if mode == "delete");
    let is_busy = |error: &rusqlite::Error| {
        matches!(
            error.sqlite_error_code(),
            Some(rusqlite::ErrorCode::DatabaseBusy | rusqlite::ErrorCode::DatabaseLocked)
        )
    };
    match mode {
        Err(error) if !is_busy(&error) => Err(error.into()),
        _ if is_left => Ok(()),
        _ => Err(StoreError::InUse(format!(
            "another process reads the store in {}: end it",
            directory.display()
        ))),
    }
}

#[cfg(test)]
#[path = "compact_tests.rs"]
mod tests;
