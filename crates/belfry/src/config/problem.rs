//! Problems of a configuration.

use std::fmt;

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mistake {
    /// The key, such as `channels.ios.team_id`; empty when it is the file as a whole.
    pub(super) path: String,
    /// The mistake, and what would be right.
    pub(super) message: String,
}

// === impl Mistake ===

impl Mistake {
    /// `message` about the key at `path`.
    pub(super) fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: path.into(), message: message.into() }
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            return formatter.write_str(&self.message);
        }
        write!(formatter, "{}: {}", self.path, self.message)
    }
}
