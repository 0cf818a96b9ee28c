//! Secrets at rest: AES-256-GCM under a master key, as one line of text that may stand in a file or be named in a bug report.
//!
//! `sealed:v1:NAME:DATA`, where DATA is base64url of nonce (12 bytes), ciphertext and tag (16 bytes). NAME is
//! authenticated with the rest, so a text that was put under another name does not open there.

use std::fmt;
use std::path::Path;

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::rand;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use notification::Name;

/// What sealed texts begin with.
pub(crate) const PREFIX: &str = "sealed:v1:";

/// The key that opens all sealed texts of a configuration.
pub(crate) struct MasterKey {
    key: RandomizedNonceKey,
}

/// Why something is not sealed or opened. Never shows a secret, nor a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SealError {
    /// It is no master key.
    #[error("is not a master key: `belfry credential key FILE` makes one")]
    Key,
    /// The system has no random numbers, or the library refused.
    #[error("cannot be sealed: the system gave no random numbers")]
    Random,
    /// The text has no name or no data.
    #[error("is not a sealed text: `belfry credential seal NAME` prints one")]
    Form,
    /// The data are too short, or no base64url.
    #[error("is cut short or changed: {0:?} must be sealed anew")]
    Damaged(String),
    /// The data were not sealed with this key, under this name.
    #[error(
        "cannot be opened: {0:?} was sealed with another master key, or the text was changed since"
    )]
    Wrong(String),
    /// What was sealed is no text.
    #[error("holds no text: {0:?} must be sealed anew")]
    NoText(String),
    /// A text stands where another is expected.
    #[error("was sealed as {sealed:?} and stands under {place:?}: seal it under that name")]
    Misplaced {
        /// The name in it.
        sealed: String,
        /// The name of the place.
        place: String,
    },
}

const KEY_PREFIX: &str = "bfymk_";
const KEY_BYTES: usize = 32;
const TAG_BYTES: usize = 16;

/// A new master key as a text.
pub(crate) fn generate() -> Result<String, SealError> {
    let mut bytes = [0; KEY_BYTES];
    rand::fill(&mut bytes).map_err(|_| SealError::Random)?;
    Ok(format!("{KEY_PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes)))
}

/// Whether `text` is meant to be a sealed one.
pub(crate) fn is_sealed(text: &str) -> bool {
    text.trim_start().starts_with("sealed:")
}

// === impl MasterKey ===

impl MasterKey {
    /// The key that [`generate`] wrote as `text`.
    pub(crate) fn parse(text: &str) -> Result<Self, SealError> {
        let data = text.trim().strip_prefix(KEY_PREFIX).ok_or(SealError::Key)?;
        let bytes = URL_SAFE_NO_PAD.decode(data).map_err(|_| SealError::Key)?;
        if bytes.len() != KEY_BYTES {
            return Err(SealError::Key);
        }
        let key = RandomizedNonceKey::new(&AES_256_GCM, &bytes).map_err(|_| SealError::Key)?;
        Ok(Self { key })
    }

    /// Reads the key in `file`.
    pub(crate) fn read(file: &Path) -> Result<Self, String> {
        let at = |error: &dyn fmt::Display| format!("{}: {error}", file.display());
        let text = std::fs::read_to_string(file)
            .map_err(|error| at(&format!("the master key cannot be read: {error}")))?;
        Self::parse(&text).map_err(|error| at(&error))
    }

    /// Seals `secret` under `name`.
    pub(crate) fn seal(&self, name: &Name, secret: &str) -> Result<String, SealError> {
        let mut data = secret.as_bytes().to_vec();
        let nonce = self.key.seal_in_place_append_tag(aad(name.as_str()), &mut data);
        let nonce = nonce.map_err(|_| SealError::Random)?;
        let whole = [nonce.as_ref().as_slice(), &data].concat();
        Ok(format!("{PREFIX}{name}:{}", URL_SAFE_NO_PAD.encode(whole)))
    }

    /// What was sealed, and the name under which it was.
    pub(crate) fn open(&self, text: &str) -> Result<(Name, String), SealError> {
        let (name, data) = parts(text)?;
        let damaged = || SealError::Damaged(name.to_string());
        let mut whole = URL_SAFE_NO_PAD.decode(data).map_err(|_| damaged())?;
        if whole.len() < NONCE_LEN + TAG_BYTES {
            return Err(damaged());
        }
        let mut sealed = whole.split_off(NONCE_LEN);
        let nonce = Nonce::try_assume_unique_for_key(&whole).map_err(|_| damaged())?;
        let opened = self.key.open_in_place(nonce, aad(name.as_str()), &mut sealed);
        let opened = opened.map_err(|_| SealError::Wrong(name.to_string()))?;
        let secret =
            std::str::from_utf8(opened).map_err(|_| SealError::NoText(name.to_string()))?;
        let secret = secret.to_owned();
        Ok((name, secret))
    }
}

impl fmt::Debug for MasterKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("[master key]")
    }
}

fn parts(text: &str) -> Result<(Name, &str), SealError> {
    let rest = text.trim().strip_prefix(PREFIX).ok_or(SealError::Form)?;
    let (name, data) = rest.split_once(':').ok_or(SealError::Form)?;
    Ok((name.parse().map_err(|_| SealError::Form)?, data))
}

fn aad(name: &str) -> Aad<String> {
    Aad::from(format!("belfry sealed v1 {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> MasterKey {
        MasterKey::parse(&generate().unwrap()).unwrap()
    }

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    #[test]
    fn what_was_sealed_is_opened_with_its_name() {
        let key = key();
        for secret in ["", "s", "canary\nover several lines\n", &"é".repeat(5_000)] {
            let sealed = key.seal(&name("ios"), secret).unwrap();
            assert!(sealed.starts_with("sealed:v1:ios:") && !sealed.contains("canary"));
            assert_eq!(key.open(&format!(" {sealed}\n")), Ok((name("ios"), secret.to_owned())));
            assert_ne!(
                key.seal(&name("ios"), secret).unwrap(),
                sealed,
                "a nonce is never used twice"
            );
        }
    }

    #[test]
    fn every_damage_is_found_and_no_message_shows_the_secret() {
        let key = key();
        let sealed = key.seal(&name("ios"), "canary").unwrap();
        let wrong = Err(SealError::Wrong("ios".to_owned()));
        assert_eq!(self::key().open(&sealed), wrong, "another key");
        let renamed = sealed.replace(":ios:", ":web:");
        assert_eq!(key.open(&renamed), Err(SealError::Wrong("web".to_owned())));
        for end in 0..sealed.len() {
            let error = key.open(sealed.get(..end).unwrap()).unwrap_err();
            assert!(!error.to_string().contains("canary"));
        }
        for position in "sealed:v1:ios:".len()..sealed.len() {
            let mut bytes = sealed.clone().into_bytes();
            bytes[position] = if bytes[position] == b'A' { b'B' } else { b'A' };
            assert!(key.open(std::str::from_utf8(&bytes).unwrap()).is_err(), "byte {position}");
        }
        assert_eq!(key.open("sealed:v2:ios:AAAA"), Err(SealError::Form));
    }

    #[test]
    fn a_text_that_is_no_master_key_is_refused_without_showing_it() {
        for bad in ["", "canary", "bfymk_", "bfymk_canary", &format!("bfymk_{}", "A".repeat(44))] {
            let message = MasterKey::parse(bad).unwrap_err().to_string();
            assert!(!message.contains("canary"), "{message}");
        }
        assert_eq!(format!("{:?}", key()), "[master key]");
    }
}
