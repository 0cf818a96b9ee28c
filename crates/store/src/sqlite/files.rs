//! The files of a store: their names and sizes.

use std::fs::File;
use std::io;
use std::path::Path;
use std::time::Duration;

/// Sizes of the log at which it is copied to the database, and at which readers make way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WalBounds {
    /// Pages written since the last checkpoint at which the next one is made.
    pub(super) checkpoint: i64,
    /// Pages at which readers make way, so that the log starts anew.
    pub(super) max: i64,
}

/// The database within the data directory.
pub(super) const DATABASE: &str = "belfry.db";
pub(super) const WAL: &str = "belfry.db-wal";
pub(super) const PAGE_BYTES: i64 = 8192;
/// Longest wait of a transaction for a process that opens the database and reads its index. Checkpoints never wait.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

// === impl WalBounds ===

impl WalBounds {
    pub(super) const DEFAULT: Self =
        Self { checkpoint: 64 * 1024 * 1024 / PAGE_BYTES, max: 256 * 1024 * 1024 / PAGE_BYTES };

    pub(super) const fn checkpoint_bytes(self) -> u64 {
        (self.checkpoint * PAGE_BYTES).cast_unsigned()
    }

    pub(super) const fn max_bytes(self) -> u64 {
        (self.max * PAGE_BYTES).cast_unsigned()
    }
}

/// Makes the names of the files in `directory` durable.
pub(super) fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}
