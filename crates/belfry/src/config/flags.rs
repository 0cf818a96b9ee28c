//! What the command line says of the configuration.

use channel::Secret;

/// What the command line says of the configuration; goes before the environment and the file.
#[derive(Debug, Clone, Default)]
pub(crate) struct Flags {
    /// `--store`: a URL, or a directory.
    pub(crate) store: Option<Secret>,
    /// `--queue`: a URL.
    pub(crate) queue: Option<Secret>,
}
