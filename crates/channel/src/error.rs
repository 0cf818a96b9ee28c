//! Why a recipient, a content or a setting is not acceptable.

use net::endpoint::Malformed;
use net::tls;

/// Why a recipient or a content is not acceptable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Invalid {
    /// JSON pointer below the field that was checked; empty when it is the field itself.
    pub pointer: String,
    /// The mistake, and what would be right.
    pub message: String,
}

/// Why a channel cannot be built or opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChannelError {
    /// A setting makes no sense.
    #[error("{setting}: {message}")]
    Setting {
        /// The setting's name within the channel's table.
        setting: &'static str,
        /// The mistake, and what would be right.
        message: String,
    },
    /// A file cannot be read or has the wrong content.
    #[error("{path}: {message}")]
    File {
        /// Which file.
        path: String,
        /// The mistake, and what would be right.
        message: String,
    },
    /// Several things are wrong; none of them is this variant.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Several(Vec<ChannelError>),
}

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
        Self::Setting { setting, message: message.into() }
    }

    /// Each thing that is wrong, one at least.
    pub fn each(self) -> Vec<Self> {
        match self {
            Self::Several(errors) => errors,
            error @ (Self::Setting { .. } | Self::File { .. }) => vec![error],
        }
    }

    /// This and what `other` says beyond it.
    pub(crate) fn and(self, other: Self) -> Self {
        let mut errors = self.each();
        for error in other.each() {
            // One mistake can be found twice: two TLS clients of a channel read the same `ca_file`.
            if !errors.contains(&error) {
                errors.push(error);
            }
        }
        match errors.len() {
            1 => errors.remove(0),
            _ => Self::Several(errors),
        }
    }
}

impl From<tls::TlsError> for ChannelError {
    fn from(error: tls::TlsError) -> Self {
        let tls::TlsError { subject, message } = error;
        match subject {
            tls::TlsSource::File(path) => Self::File { path, message },
            tls::TlsSource::Setting(setting) => Self::Setting { setting, message },
        }
    }
}
