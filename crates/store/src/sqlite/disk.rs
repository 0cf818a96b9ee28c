//! Room on the disk: a full disk stops new notifications, and nothing that is under way (decision 0019).
//!
//! Below [`limits::DISK_LOW`] nothing more is accepted, until [`limits::DISK_RESUME`] are free again. Accepted notifications are
//! delivered and settled meanwhile, at last from a reserve: a file beside the database whose blocks are given back to the disk a
//! step at a time, whenever less is free than a transaction may take. It is filled again when there is room.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use notification::limits;
use rusqlite::Connection;
use tokio::sync::watch;

use crate::{StoreError, StoreSpace};

/// Measures the free space of a disk.
pub(super) trait FreeSpace: Send + Sync + std::fmt::Debug {
    /// Bytes that this process may still write to the disk that holds `directory`.
    ///
    /// # Errors
    /// When the file system does not report it.
    fn free_bytes(&self, directory: &Path) -> io::Result<u64>;
}

/// The free space of a file system.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Statvfs;

/// The work that the disk has room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DiskSpace {
    /// All work.
    Plenty,
    /// Only work on accepted notifications.
    Low,
    /// Only work that is under way: most of the reserve is used up.
    Spent,
}

/// The disk under an open store.
#[derive(Debug)]
pub(super) struct Disk {
    directory: PathBuf,
    free_space: Arc<dyn FreeSpace>,
    reserve: Reserve,
    room: DiskSpace,
    /// True while notifications are accepted, for the readiness of the process.
    accepts: watch::Sender<bool>,
}

#[derive(Debug)]
struct Reserve {
    file: File,
    bytes: u64,
}

const RESERVE: &str = "belfry.reserve";
/// Bytes written at once where a file system cannot allocate.
const BLOCK: usize = 1024 * 1024;

/// The room that the store in `directory` takes. Pages that are free are used again before the file grows.
pub(super) fn space(connection: &Connection, directory: &Path) -> Result<StoreSpace, StoreError> {
    let pragma = |name: &str| {
        let value = connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
        value.map(i64::cast_unsigned)
    };
    let (pages, free_pages) = (pragma("page_count")?, pragma("freelist_count")?);
    let page_bytes = pragma("page_size")?;
    let disk = Statvfs.free_bytes(directory);
    let disk = disk.map_err(|error| StoreError::Unavailable(error.to_string()))?;
    Ok(StoreSpace {
        used: pages.saturating_sub(free_pages) * page_bytes,
        left: Some(disk.saturating_sub(limits::DISK_LOW) + free_pages * page_bytes),
    })
}

// === impl Statvfs ===

impl FreeSpace for Statvfs {
    fn free_bytes(&self, directory: &Path) -> io::Result<u64> {
        // Not `f_bfree`: the blocks that are kept for root are no use to another user.
        let disk = rustix::fs::statvfs(directory)?;
        Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
    }
}

// === impl Disk ===

impl Disk {
    /// Looks at the disk that holds `directory`, and makes room for recovery if it is full.
    pub(super) fn open(
        directory: &Path,
        free_space: Arc<dyn FreeSpace>,
    ) -> Result<Self, StoreError> {
        let path = directory.join(RESERVE);
        let mut options = OpenOptions::new();
        // Not truncated: on a full disk what is left of the reserve is the room in which the start recovers.
        let options = options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let failed = |error: io::Error| StoreError::Broken(format!("{}: {error}", path.display()));
        let file = options.open(&path).map_err(failed)?;
        let bytes = file.metadata().map_err(failed)?.len();
        let mut disk = Self {
            directory: directory.to_owned(),
            free_space,
            reserve: Reserve { file, bytes },
            // As if there had been room before, so that a start goes by the lower of both marks.
            room: DiskSpace::Plenty,
            accepts: watch::Sender::new(true),
        };
        disk.look(0)?;
        Ok(disk)
    }

    /// Follows whether notifications are accepted.
    pub(super) fn accepts(&self) -> watch::Receiver<bool> {
        self.accepts.subscribe()
    }

    /// Refusal of new notifications; `None` while they are accepted.
    pub(super) fn refusal(&self) -> Option<StoreError> {
        (self.room != DiskSpace::Plenty).then(|| StoreError::NoSpace(refusal_words()))
    }

    /// Makes room for the next transaction, as far as the reserve goes. `owed` bytes are those by which the database has yet to
    /// grow, when its log is copied to it.
    pub(super) fn look(&mut self, owed: u64) -> Result<DiskSpace, StoreError> {
        let mut free = self.free()?;
        while free < limits::DISK_TRANSACTION && self.reserve.bytes > 0 {
            self.reserve.give_back(limits::DISK_STEP).map_err(|error| self.failed(&error))?;
            // Measured, and not added up: a neighbour may have taken the bytes that were given back.
            free = self.free()?;
        }
        let room = self.judge(free, owed);
        if room == DiskSpace::Plenty && self.reserve.bytes < limits::DISK_RESERVE {
            let missing = limits::DISK_RESERVE - self.reserve.bytes;
            // Not at the price of the next refusal.
            if free.saturating_sub(owed) >= limits::DISK_RESUME + missing {
                self.refill();
            }
        }
        self.tell(room, free);
        Ok(room)
    }

    fn judge(&self, free: u64, owed: u64) -> DiskSpace {
        let mark = match self.room {
            DiskSpace::Plenty => limits::DISK_LOW,
            DiskSpace::Low | DiskSpace::Spent => limits::DISK_RESUME,
        };
        // The bytes that the database is owed do not count here: a checkpoint can wait for room, and a settlement cannot.
        if free < limits::DISK_TRANSACTION && self.reserve.bytes <= limits::DISK_RESERVE_LAST {
            DiskSpace::Spent
        } else if free.saturating_sub(owed) < mark {
            DiskSpace::Low
        } else {
            DiskSpace::Plenty
        }
    }

    fn refill(&mut self) {
        match self.reserve.fill() {
            Ok(()) => tracing::info!(bytes = self.reserve.bytes, "disk reserve filled"),
            // Another process was faster: the next look finds it.
            Err(error) => tracing::warn!(%error, "the disk reserve cannot be filled"),
        }
    }

    fn tell(&mut self, room: DiskSpace, free: u64) {
        if std::mem::replace(&mut self.room, room) == room {
            return;
        }
        match room {
            DiskSpace::Plenty => tracing::info!(free, "the disk has room again: accepting"),
            DiskSpace::Low => tracing::warn!(
                free,
                "the disk is nearly full: nothing more is accepted; what was accepted is delivered"
            ),
            DiskSpace::Spent => tracing::error!(
                free,
                "the disk is full and the reserve is used up: nothing more is started; free some space"
            ),
        }
        self.accepts.send_replace(room == DiskSpace::Plenty);
    }

    fn free(&self) -> Result<u64, StoreError> {
        self.free_space.free_bytes(&self.directory).map_err(|error| self.failed(&error))
    }

    fn failed(&self, error: &io::Error) -> StoreError {
        StoreError::Broken(format!("{}: {error}", self.directory.display()))
    }
}

// === impl Reserve ===

impl Reserve {
    fn give_back(&mut self, step: u64) -> io::Result<()> {
        let bytes = self.bytes.saturating_sub(step);
        self.file.set_len(bytes)?;
        // Some file systems give blocks free with their next transaction.
        self.file.sync_all()?;
        self.bytes = bytes;
        Ok(())
    }

    /// Fills the reserve, or leaves it as it was.
    fn fill(&mut self) -> io::Result<()> {
        let filled = self.allocate().and_then(|()| self.file.sync_all());
        match filled {
            Ok(()) => self.bytes = limits::DISK_RESERVE,
            // Most likely the disk is full now: the bytes taken of it are given back at once.
            Err(_) => self.file.set_len(self.bytes)?,
        }
        filled
    }

    fn allocate(&mut self) -> io::Result<()> {
        let mode = rustix::fs::FallocateFlags::empty();
        match rustix::fs::fallocate(&self.file, mode, 0, limits::DISK_RESERVE) {
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => self.write_noise(),
            allocated => Ok(allocated?),
        }
    }

    /// Writes what no file system can compress or leave out.
    fn write_noise(&mut self) -> io::Result<()> {
        let mut noise = vec![0; BLOCK];
        let mut random = fastrand::Rng::with_seed(self.bytes);
        io::Seek::seek(&mut self.file, io::SeekFrom::Start(self.bytes))?;
        let mut left = limits::DISK_RESERVE - self.bytes;
        while left > 0 {
            random.fill(&mut noise);
            let bytes = left.min(BLOCK as u64);
            let part = noise.get(..usize::try_from(bytes).unwrap_or(BLOCK)).unwrap_or(&noise);
            self.file.write_all(part)?;
            left -= bytes;
        }
        Ok(())
    }
}

fn refusal_words() -> String {
    format!(
        "the disk that holds the store is nearly full, and nothing was stored: free some space ({} MiB start it again). What \
         was accepted before is delivered meanwhile",
        limits::DISK_RESUME / (1024 * 1024)
    )
}
