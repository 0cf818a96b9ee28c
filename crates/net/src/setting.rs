//! Texts of settings, such as keys, that may stand in a file instead, and what is wrong with one.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use crate::redact::Secret;

/// The text of a setting.
#[derive(Debug, Clone, Copy)]
pub enum SettingText<'a> {
    /// It is in a file.
    File(&'a Path),
    /// It is in the setting of this name.
    Text(&'static str, &'a Secret),
}

/// A setting or a file that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    /// A setting makes no sense.
    #[error("{setting}: {message}")]
    Setting {
        /// Its name.
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
}

// === impl SettingText ===

impl<'a> SettingText<'a> {
    /// The text of `setting`, or of its file; `None` when both are set, or neither.
    pub fn of(
        setting: &'static str,
        text: Option<&'a Secret>,
        file: Option<&'a PathBuf>,
    ) -> Option<Self> {
        match (text, file) {
            (Some(text), None) => Some(Self::Text(setting, text)),
            (None, Some(path)) => Some(Self::File(path)),
            (None, None) | (Some(_), Some(_)) => None,
        }
    }

    /// The text itself.
    ///
    /// # Errors
    /// When the file cannot be read: with the words `failure`, and why.
    pub fn read(self, failure: &str) -> Result<Cow<'a, str>, SettingError> {
        match self {
            Self::File(path) => std::fs::read_to_string(path)
                .map(Cow::Owned)
                .map_err(|error| self.refuse(format!("{failure}: {error}"))),
            Self::Text(_, text) => Ok(Cow::Borrowed(text.expose())),
        }
    }

    /// That it is wrong, and why.
    pub fn refuse(self, message: impl Into<String>) -> SettingError {
        let message = message.into();
        match self {
            Self::File(path) => SettingError::File { path: path.display().to_string(), message },
            Self::Text(setting, _) => SettingError::Setting { setting, message },
        }
    }
}
