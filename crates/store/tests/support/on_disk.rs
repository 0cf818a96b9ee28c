//! SQLite in a directory, whose process ends without notice.

use std::path::Path;

use notification::Timestamp;
use store::conformance::at;
use store::sqlite::{Options, Synchronous};
use store::{Ending, Recovery, Sqlite, Store};
use tempfile::TempDir;

use super::Fast;

/// SQLite in a directory.
pub(crate) struct OnDisk {
    sqlite: Sqlite,
    directory: TempDir,
}

impl Fast for OnDisk {
    fn store(&self) -> &dyn Store {
        &self.sqlite
    }

    /// Copies the files as they are now, without notice to the process, for the next one.
    fn crash(&mut self, ending: Ending, now: Timestamp) -> Option<Recovery> {
        if ending == Ending::Faulted {
            std::io::Write::write_all(&mut self.sqlite.fault_mark().unwrap(), b"X").unwrap();
        }
        let image = tempfile::tempdir().unwrap();
        copy_image(self.directory.path(), image.path());
        let (sqlite, recovery) = open(image.path(), now);
        (self.sqlite, self.directory) = (sqlite, image);
        Some(recovery)
    }

    fn is_exact(&self) -> bool {
        true
    }
}

/// A store that is empty.
pub(crate) fn on_disk() -> OnDisk {
    let directory = tempfile::tempdir().unwrap();
    OnDisk { sqlite: open(directory.path(), at(0)).0, directory }
}

fn open(directory: &Path, now: Timestamp) -> (Sqlite, Recovery) {
    let options = Options { synchronous: Synchronous::Normal, ..Options::new(7) };
    Sqlite::open(directory, options, now).unwrap()
}

fn copy_image(from: &Path, to: &Path) {
    for file in ["belfry.db", "belfry.db-wal", "belfry.lock"] {
        std::fs::copy(from.join(file), to.join(file)).unwrap();
    }
}
