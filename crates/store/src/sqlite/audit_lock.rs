//! The lock between audits and the removal of outcomes.
//!
//! An audit reads batches, chunks and the log in slices, so no batch may go between two of them. Audits, of any process, share the
//! lock of a file in the data directory; a transaction that removes outcomes has it alone, or does not remove any.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use crate::StoreError;

/// The writer's side of the lock.
#[derive(Debug)]
pub(super) struct AuditLock(Arc<File>);

/// While it lives, no audit begins, and none is under way.
#[derive(Debug)]
pub(super) struct NoAudit(Arc<File>);

const LOCK: &str = "audit.lock";

// === impl AuditLock ===

impl AuditLock {
    /// Opens the file in `directory`, which is made when it is missing.
    pub(super) fn open(directory: &Path) -> Result<Self, StoreError> {
        let path = directory.join(LOCK);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(&path);
        let file =
            file.map_err(|error| StoreError::Broken(format!("{}: {error}", path.display())))?;
        Ok(Self(Arc::new(file)))
    }

    /// Holds audits off; `None` while one is under way, or where the file system knows no locks.
    pub(super) fn hold_off(&self) -> Option<NoAudit> {
        self.0.try_lock().is_ok().then(|| NoAudit(Arc::clone(&self.0)))
    }
}

// === impl NoAudit ===

impl Drop for NoAudit {
    fn drop(&mut self) {
        if let Err(error) = self.0.unlock() {
            tracing::error!(%error, "the lock of audits cannot be given back: audits wait until the engine ends");
        }
    }
}

/// Keeps outcomes from being removed in the store in `directory` until the file is dropped. Waits for the transaction under way
/// that does so. A store without the file has no owner that removes any.
pub(super) fn keep_outcomes(directory: &Path) -> Result<Option<File>, StoreError> {
    let Ok(file) = File::open(directory.join(LOCK)) else { return Ok(None) };
    match file.lock_shared() {
        Ok(()) => Ok(Some(file)),
        Err(error) => Err(StoreError::Unavailable(format!(
            "the lock of audits in {}: {error}",
            directory.display()
        ))),
    }
}
