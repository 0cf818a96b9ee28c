//! Settings from the command line.

use channel::Secret;

/// Settings from the command line; they override the environment and the file.
#[derive(Debug, Clone, Default)]
pub(crate) struct Flags {
    /// `--store`: a URL, or a directory.
    pub(crate) store: Option<Secret>,
    /// `--queue`: a URL.
    pub(crate) queue: Option<Secret>,
}
