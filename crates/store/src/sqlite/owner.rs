//! The owner of a directory, one at a time, and the record of its end.
//!
//! The lock file holds one record: the owner while it lives, and a note that it ended in order once it has. Any text behind the
//! record is a note that the owner failed. The next owner can thus tell the ends apart. The record has one length and is
//! overwritten in place, which needs no space on a full disk.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::{Ending, StoreError};

/// The lock of a data directory, held until this is dropped.
#[derive(Debug)]
pub(super) struct Owner {
    file: File,
    machine: String,
    is_signed: bool,
}

const LOCK: &str = "belfry.lock";
/// Bytes of the record, padded: a process's number and the system's name for this run of the machine.
const RECORD: usize = 64;
/// The record of an owner that ended in order.
const ENDED: &str = "ended";

// === impl Owner ===

impl Owner {
    /// Takes `directory` for this process, and says how the owner before it ended.
    pub(super) fn take(directory: &Path) -> Result<(Self, Ending), StoreError> {
        let path = directory.join(LOCK);
        let mut options = OpenOptions::new();
        // Not truncated: the record says how the owner before ended.
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let failed =
            |error: std::io::Error| StoreError::Broken(format!("{}: {error}", path.display()));
        let mut file = options.open(&path).map_err(failed)?;
        let locked = file.try_lock();
        // Read even if another process has the lock: it names that process.
        let mut record = String::new();
        let is_read = file.read_to_string(&mut record).is_ok();
        match locked {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                // While the other one starts, the record is still that of the owner before.
                let is_number = |word: &&str| is_read && word.parse::<u32>().is_ok();
                let owner = record.split_whitespace().next().filter(is_number).unwrap_or("?");
                return Err(StoreError::InUse(format!(
                    "{} is in use by another belfry (pid {owner}): stop that one, or name another data directory",
                    directory.display()
                )));
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let machine = machine();
        let ending = ending_of(&record, &machine);
        Ok((Self { file, machine, is_signed: false }, ending))
    }

    /// Puts this process down as the owner, once the end of the one before is recovered.
    pub(super) fn sign(&mut self) {
        self.is_signed = true;
        if let Err(error) = self.write(&format!("{} {}", std::process::id(), self.machine)) {
            tracing::warn!(%error, "the lock file cannot be written: the next start cannot tell how this process ends");
        }
    }

    /// Replaces the record, and whatever follows it.
    fn write(&mut self, record: &str) -> std::io::Result<()> {
        // Not synced: after a power cut the machine's id is another one, which says enough.
        self.file.rewind()?;
        writeln!(self.file, "{record:<width$}", width = RECORD - 1)?;
        self.file.set_len(RECORD as u64)
    }

    fn end(&mut self) -> std::io::Result<()> {
        // The start came to nothing: the record of the owner before stays for the next one.
        if !self.is_signed {
            return Ok(());
        }
        // The writer panicked, and its thread is unwinding.
        if std::thread::panicking() {
            self.file.seek(std::io::SeekFrom::End(0))?;
            return self.file.write_all(b"X");
        }
        // A byte in the fault mark must outlive an end that looks orderly.
        let has_failed = self.file.metadata()?.len() > RECORD as u64;
        if has_failed { Ok(()) } else { self.write(ENDED) }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::warn!(%error, "the lock file cannot be written: the next start takes this end for a crash");
        }
    }
}

/// A file to which a byte is written when the process of this `directory`'s owner ends by a fault.
pub(super) fn fault_mark(directory: &Path) -> std::io::Result<File> {
    OpenOptions::new().append(true).open(directory.join(LOCK))
}

/// Ending of the owner that left `record`, as it looks on `machine`.
fn ending_of(record: &str, machine: &str) -> Ending {
    let (owner, fault) = record.split_at_checked(RECORD).unwrap_or((record, ""));
    let is_of_this_run = owner.split_whitespace().nth(1) == Some(machine);
    match (owner.trim() == ENDED, fault.is_empty(), is_of_this_run) {
        (_, false, _) => Ending::Faulted,
        (false, true, true) => Ending::Killed,
        // In order; or the machine ended with it; or an older version or a copy that has no record.
        (true, true, _) | (false, true, false) => Ending::Left,
    }
}

/// The system's id of this run of the machine: another one after every start.
fn machine() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    id.map_or_else(|_| "unknown".to_owned(), |id| id.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signed(directory: &Path) -> (Owner, Ending) {
        let (mut owner, ending) = Owner::take(directory).unwrap();
        owner.sign();
        (owner, ending)
    }

    #[test]
    fn the_next_owner_knows_how_the_last_one_ended() {
        let directory = tempfile::tempdir().unwrap();
        let take = || signed(directory.path());
        let path = directory.path().join(LOCK);
        let (owner, ending) = take();
        assert_eq!(ending, Ending::Left, "there was none");
        let alive = std::fs::read(&path).unwrap();
        assert_eq!(alive.len(), RECORD);
        drop(owner);
        assert_eq!(take().1, Ending::Left, "it ended in order");
        // A killed process leaves the record that it wrote while it lived.
        std::fs::write(&path, &alive).unwrap();
        assert_eq!(take().1, Ending::Killed);
        let of_another_run = format!("{:<63}\n", "4711 another-run-of-the-machine");
        std::fs::write(&path, of_another_run).unwrap();
        assert_eq!(take().1, Ending::Left, "the machine ended with it");
        std::fs::write(&path, "4711\n").unwrap();
        assert_eq!(take().1, Ending::Left, "an older version says nothing");
    }

    #[test]
    fn a_fault_is_known_whether_the_process_ends_at_once_or_in_order() {
        let directory = tempfile::tempdir().unwrap();
        let take = || signed(directory.path());
        let path = directory.path().join(LOCK);
        for ends_at_once in [true, false] {
            let (owner, _) = take();
            fault_mark(directory.path()).unwrap().write_all(b"X").unwrap();
            let left = std::fs::read(&path).unwrap();
            drop(owner);
            if ends_at_once {
                std::fs::write(&path, left).unwrap();
            }
            assert_eq!(take().1, Ending::Faulted);
        }
        assert_eq!(take().1, Ending::Left, "it is told once");
        let (owner, _) = take();
        let panicked = std::thread::spawn(move || {
            let _owner = owner;
            panic!("as planned");
        });
        assert!(panicked.join().is_err());
        assert_eq!(take().1, Ending::Faulted, "a panic of the writer");
    }
}
