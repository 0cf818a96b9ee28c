//! Why a recipient, a content or a setting is not acceptable.

use net::endpoint::Malformed;
use net::setting::SettingError;

/// Why a recipient or a content is not acceptable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Invalid {
    /// JSON pointer below the field that was checked; empty when it is the field itself.
    pub pointer: String,
    /// The mistake, and what would be right.
    pub message: String,
}

/// Why a channel cannot be built or opened: each thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub struct ChannelError(Vec<SettingError>);

// === impl Invalid ===

impl Invalid {
    /// The checked field itself is wrong.
    pub fn new(message: impl Into<String>) -> Self {
        Self { pointer: String::new(), message: message.into() }
    }

    /// The part at `pointer` is wrong.
    pub fn at(pointer: impl Into<String>, message: impl Into<String>) -> Self {
        Self { pointer: pointer.into(), message: message.into() }
    }

    /// The part that the member names `path` lead to is wrong.
    pub(crate) fn within(path: &[&str], message: impl Into<String>) -> Self {
        // In this order, or the `~` of each `~1` would be escaped again (RFC 6901, section 3).
        let escaped = path.iter().map(|name| name.replace('~', "~0").replace('/', "~1"));
        Self::at(escaped.fold(String::new(), |pointer, name| pointer + "/" + &name), message)
    }
}

impl From<Malformed> for Invalid {
    fn from(malformed: Malformed) -> Self {
        Self::new(malformed.to_string())
    }
}

// === impl ChannelError ===

impl ChannelError {
    /// The setting of this name makes no sense.
    pub fn setting(setting: &'static str, message: impl Into<String>) -> Self {
        SettingError::Setting { setting, message: message.into() }.into()
    }

    /// Each thing that is wrong, one at least.
    pub fn each(self) -> Vec<SettingError> {
        self.0
    }

    /// This and what `other` says beyond it.
    pub(crate) fn and(mut self, other: Self) -> Self {
        for error in other.0 {
            // One mistake can be found twice: two TLS clients of a channel read the same `ca_file`.
            if !self.0.contains(&error) {
                self.0.push(error);
            }
        }
        self
    }
}

impl From<SettingError> for ChannelError {
    fn from(error: SettingError) -> Self {
        Self(vec![error])
    }
}
