//! A file that keeps one provider token over restarts.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// Longer than any token.
const BYTES_MAX: u64 = 4096;

/// Where the token of one key is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StateFile {
    directory: PathBuf,
    name: String,
}

// === impl StateFile ===

impl StateFile {
    /// In `directory`, which is made when it is needed, for the key of this name.
    pub(super) fn new(directory: &Path, team_id: &str, key_id: &str) -> Self {
        Self { directory: directory.to_owned(), name: format!("apns-{team_id}-{key_id}.token") }
    }

    /// The token it holds; `None` when it cannot be read, or accounts other than its owner's could have written it.
    pub(super) fn read(&self) -> Option<String> {
        let metadata = fs::metadata(self.path()).ok()?;
        if metadata.permissions().mode() & 0o077 != 0 {
            tracing::warn!(path = %self.path().display(), "not used: others than its owner may read or write it");
            return None;
        }
        // Looked at before it is read: whatever lies there by mistake must not be loaded as a whole.
        let text =
            (metadata.len() <= BYTES_MAX).then(|| fs::read_to_string(self.path()).ok())??;
        Some(text.trim_end().to_owned())
    }

    /// Replaces what it holds, whole or not at all. A failure costs a token at the next restart, and no more.
    pub(super) fn write(&self, text: &str) {
        if let Err(error) = self.try_write(text) {
            tracing::warn!(path = %self.path().display(), %error, "the provider token is not kept");
        }
    }

    fn try_write(&self, text: &str) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.directory)?;
        // With the process in its name, since several may share the directory: each writes
        // its own, and the rename decides.
        let unfinished = self.directory.join(format!(".{}.{}", self.name, std::process::id()));
        let mut options = OpenOptions::new();
        let mut file: File =
            options.write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
        file.write_all(text.as_bytes())?;
        // Before the rename: a crash leaves the former token or this one, and no empty file under its name.
        file.sync_all()?;
        fs::rename(unfinished, self.path())
    }

    fn path(&self) -> PathBuf {
        self.directory.join(&self.name)
    }
}
