//! Secrets at rest: AES-256-GCM under a master key, as one line of text that may stand in a file or be named in a bug report.
//!
//! `sealed:v2:NAME:SETTING:DATA`, where DATA is base64url of nonce (12 bytes), ciphertext and tag (16 bytes). NAME and
//! SETTING, such as `apns.key`, are authenticated with the rest, so a text that was moved to another setting does not open
//! there. A text of the first version (`sealed:v1:NAME:DATA`) names no setting: it is opened only to be sealed anew.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::{fmt, io};

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::rand;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use notification::Name;

use super::settings;

/// Where the master key may stand in the environment.
pub(crate) const VARIABLE: &str = "BELFRY_MASTER_KEY";
/// The prefix of sealed texts.
pub(crate) const PREFIX: &str = "sealed:v2:";
/// The prefix of sealed texts of the first version.
const PREFIX_V1: &str = "sealed:v1:";

/// The master keys of a configuration: one key, or several while one takes the place of another. The first seals,
/// each opens.
pub(crate) struct MasterKey {
    first: RandomizedNonceKey,
    others: Vec<RandomizedNonceKey>,
    /// Where it was found, for people.
    place: String,
}

/// The setting that a text was sealed for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Label {
    /// The credential.
    pub(crate) name: Name,
    /// One of [`SECRET_SETTINGS`](super::settings::SECRET_SETTINGS).
    pub(crate) setting: &'static str,
}

/// Why something is not sealed or opened. Never shows a secret, nor a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SealError {
    /// It is no master key.
    #[error(
        "is not a master key, which begins with bfymk_ and has 49 characters: `belfry credential key FILE` makes one"
    )]
    Key,
    /// The system has no random numbers, or the library refused.
    #[error("cannot be sealed: the system gave no random numbers")]
    Random,
    /// The text has no name or no data.
    #[error("is not a sealed text: `belfry credential seal NAME SETTING` prints one")]
    Form,
    /// It is of the first version.
    #[error(
        "was sealed by an older version, for no setting: give it to `belfry credential seal {0} SETTING` on standard input, which prints it for that setting"
    )]
    Old(String),
    /// The data are too short, or no base64url.
    #[error("is cut short or changed: {0:?} must be sealed anew")]
    Damaged(String),
    /// The data were not sealed with this key, under this name.
    #[error(
        "cannot be opened with the master key in {place}: {name:?} was sealed with another one, or the text was changed since"
    )]
    Wrong {
        /// The name in it.
        name: String,
        /// Where the master key was found.
        place: String,
    },
    /// The sealed bytes are no text.
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
    /// A text stands where a secret of another kind is expected.
    #[error("was sealed for {sealed} and stands at {place}: seal it for that setting")]
    OtherSetting {
        /// The setting in it.
        sealed: &'static str,
        /// The setting where it stands.
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

/// True if `text` is meant to be a sealed one.
pub(crate) fn is_sealed(text: &str) -> bool {
    // Of any version: one that cannot be opened must not pass for the secret itself.
    text.trim_start().starts_with("sealed:")
}

/// The warning about a file with a master key that other users of this machine can read or change.
pub(crate) fn exposure(file: &Path) -> Option<String> {
    let mode = std::fs::metadata(file).ok()?.permissions().mode();
    (mode & 0o007 != 0).then(|| {
        let file = file.display();
        format!("{file}: everybody on this machine can use the master key in it: chmod 600 {file}")
    })
}

// === impl MasterKey ===

impl MasterKey {
    /// The keys that [`generate`] wrote, found at `place`; separated by line ends or spaces.
    pub(crate) fn parse(text: &str, place: impl Into<String>) -> Result<Self, SealError> {
        let mut keys = text.split_whitespace().map(parse_one);
        let first = keys.next().ok_or(SealError::Key)??;
        Ok(Self { first, others: keys.collect::<Result<_, _>>()?, place: place.into() })
    }

    /// Reads the keys in `file`.
    pub(crate) fn read(file: &Path) -> Result<Self, String> {
        let at = |error: &dyn fmt::Display| format!("{}: {error}", file.display());
        let text = std::fs::read_to_string(file).map_err(|error| {
            let advice = if error.kind() == io::ErrorKind::NotFound {
                ": `belfry credential key FILE` makes one"
            } else if error.kind() == io::ErrorKind::PermissionDenied {
                ": have it owned by the user that runs this"
            } else {
                ""
            };
            at(&format!("the master key cannot be read: {error}{advice}"))
        })?;
        Self::parse(&text, file.display().to_string()).map_err(|error| at(&error))
    }

    /// Seals `secret` for `label`.
    pub(crate) fn seal(&self, label: &Label, secret: &str) -> Result<String, SealError> {
        let Label { name, setting } = label;
        let mut data = secret.as_bytes().to_vec();
        let nonce = self.first.seal_in_place_append_tag(aad(label), &mut data);
        let nonce = nonce.map_err(|_| SealError::Random)?;
        let whole = [nonce.as_ref().as_slice(), &data].concat();
        Ok(format!("{PREFIX}{name}:{setting}:{}", URL_SAFE_NO_PAD.encode(whole)))
    }

    /// The secret, and the setting it was sealed for.
    pub(crate) fn open(&self, text: &str) -> Result<(Label, String), SealError> {
        self.open_labelled(text, std::iter::once(&self.first).chain(&self.others))
    }

    /// The secret, if it was sealed with the key that seals now.
    pub(crate) fn open_with_first(&self, text: &str) -> Result<(Label, String), SealError> {
        self.open_labelled(text, std::iter::once(&self.first))
    }

    /// The secret that the first version sealed, and its name; `None` when `text` is of another version.
    pub(crate) fn open_v1(&self, text: &str) -> Option<Result<(Name, String), SealError>> {
        let (name, data) = parts_v1(text)?;
        let aad = || Aad::from(format!("belfry sealed v1 {name}"));
        let keys = std::iter::once(&self.first).chain(&self.others);
        let secret = self.open_data(&name, data, aad, keys);
        Some(secret.map(|secret| (name.clone(), secret)))
    }

    fn open_labelled<'key>(
        &self,
        text: &str,
        keys: impl Iterator<Item = &'key RandomizedNonceKey>,
    ) -> Result<(Label, String), SealError> {
        let (label, data) = parts(text)?;
        let secret = self.open_data(&label.name, data, || aad(&label), keys)?;
        Ok((label, secret))
    }

    fn open_data<'key>(
        &self,
        name: &Name,
        data: &str,
        aad: impl Fn() -> Aad<String>,
        keys: impl Iterator<Item = &'key RandomizedNonceKey>,
    ) -> Result<String, SealError> {
        let damaged = || SealError::Damaged(name.to_string());
        let whole = URL_SAFE_NO_PAD.decode(data).map_err(|_| damaged())?;
        let (nonce, sealed) = whole.split_at_checked(NONCE_LEN).ok_or_else(damaged)?;
        if sealed.len() < TAG_BYTES {
            return Err(damaged());
        }
        for key in keys {
            let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| damaged())?;
            // A copy for each key: a failed opening may leave anything in it.
            let mut data = sealed.to_vec();
            let Ok(opened) = key.open_in_place(nonce, aad(), &mut data) else { continue };
            let secret = std::str::from_utf8(opened);
            return secret.map(str::to_owned).map_err(|_| SealError::NoText(name.to_string()));
        }
        Err(SealError::Wrong { name: name.to_string(), place: self.place.clone() })
    }
}

impl fmt::Debug for MasterKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("[master key]")
    }
}

fn parse_one(text: &str) -> Result<RandomizedNonceKey, SealError> {
    let data = text.strip_prefix(KEY_PREFIX).ok_or(SealError::Key)?;
    let bytes = URL_SAFE_NO_PAD.decode(data).map_err(|_| SealError::Key)?;
    if bytes.len() != KEY_BYTES {
        return Err(SealError::Key);
    }
    RandomizedNonceKey::new(&AES_256_GCM, &bytes).map_err(|_| SealError::Key)
}

fn parts(text: &str) -> Result<(Label, &str), SealError> {
    // Told apart from a text that is wrong: its secret is good, and only has to be sealed anew.
    if let Some((name, _)) = parts_v1(text) {
        return Err(SealError::Old(name.to_string()));
    }
    // In a file it has a line end.
    let rest = text.trim().strip_prefix(PREFIX).ok_or(SealError::Form)?;
    let (name, rest) = rest.split_once(':').ok_or(SealError::Form)?;
    let (setting, data) = rest.split_once(':').ok_or(SealError::Form)?;
    let setting = settings::known(setting).ok_or(SealError::Form)?;
    Ok((Label { name: name.parse().map_err(|_| SealError::Form)?, setting }, data))
}

fn parts_v1(text: &str) -> Option<(Name, &str)> {
    let (name, data) = text.trim().strip_prefix(PREFIX_V1)?.split_once(':')?;
    Some((name.parse().ok()?, data))
}

fn aad(Label { name, setting }: &Label) -> Aad<String> {
    // The version is authenticated, too: data of one version do not open behind the prefix of another.
    Aad::from(format!("belfry sealed v2 {name} {setting}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> MasterKey {
        MasterKey::parse(&generate().unwrap(), "somewhere").unwrap()
    }

    fn label(name: &str) -> Label {
        Label { name: name.parse().unwrap(), setting: "apns.key" }
    }

    #[test]
    fn what_was_sealed_is_opened_with_its_name() {
        let key = key();
        for secret in ["", "s", "canary\nover several lines\n", &"é".repeat(5_000)] {
            let sealed = key.seal(&label("ios"), secret).unwrap();
            assert!(sealed.starts_with("sealed:v2:ios:apns.key:") && !sealed.contains("canary"));
            assert_eq!(key.open(&format!(" {sealed}\n")), Ok((label("ios"), secret.to_owned())));
            assert_ne!(
                key.seal(&label("ios"), secret).unwrap(),
                sealed,
                "a nonce is never used twice"
            );
        }
    }

    #[test]
    fn every_damage_is_found_and_no_message_shows_the_secret() {
        let key = key();
        let sealed = key.seal(&label("ios"), "canary").unwrap();
        let wrong = |name: &str| {
            Err(SealError::Wrong { name: name.to_owned(), place: "somewhere".to_owned() })
        };
        assert_eq!(self::key().open(&sealed), wrong("ios"), "another key");
        assert_eq!(key.open(&sealed.replace(":ios:", ":web:")), wrong("web"));
        for end in 0..sealed.len() {
            let error = key.open(sealed.get(..end).unwrap()).unwrap_err();
            assert!(!error.to_string().contains("canary"));
        }
        for position in "sealed:v2:ios:apns.key:".len()..sealed.len() {
            let mut bytes = sealed.clone().into_bytes();
            bytes[position] = if bytes[position] == b'A' { b'B' } else { b'A' };
            assert!(key.open(std::str::from_utf8(&bytes).unwrap()).is_err(), "byte {position}");
        }
        let moved = key.open(&sealed.replace(":apns.key:", ":webpush.key:"));
        assert_eq!(moved, wrong("ios"), "the setting is sealed too");
        for form in
            ["sealed:v3:ios:apns.key:AAAA", "sealed:v2:ios:AAAA", "sealed:v2:ios:no.key:AAAA"]
        {
            assert_eq!(key.open(form), Err(SealError::Form), "{form}");
        }
    }

    /// As the first version sealed.
    fn seal_v1(key: &MasterKey, name: &str, secret: &str) -> String {
        let mut data = secret.as_bytes().to_vec();
        let aad = Aad::from(format!("belfry sealed v1 {name}"));
        let nonce = key.first.seal_in_place_append_tag(aad, &mut data).unwrap();
        let whole = [nonce.as_ref().as_slice(), &data].concat();
        format!("sealed:v1:{name}:{}", URL_SAFE_NO_PAD.encode(whole))
    }

    #[test]
    fn a_text_of_the_first_version_opens_only_to_be_sealed_anew() {
        let key = key();
        let sealed = seal_v1(&key, "ios", "canary");
        assert_eq!(key.open(&sealed), Err(SealError::Old("ios".to_owned())));
        assert_eq!(key.open_v1(&sealed), Some(Ok(("ios".parse().unwrap(), "canary".to_owned()))));
        let moved = key.open_v1(&sealed.replace(":ios:", ":web:"));
        assert!(matches!(moved, Some(Err(SealError::Wrong { .. }))), "{moved:?}");
        assert_eq!(key.open_v1(&key.seal(&label("ios"), "canary").unwrap()), None);
    }

    #[test]
    fn while_keys_change_the_first_seals_and_each_opens() {
        let [old, new] = [generate().unwrap(), generate().unwrap()];
        let both = MasterKey::parse(&format!("{new}\n{old}\n"), "").unwrap();
        let [old, new] = [old, new].map(|text| MasterKey::parse(&text, "").unwrap());
        let opened = Ok((label("ios"), "canary".to_owned()));
        assert_eq!(both.open(&old.seal(&label("ios"), "canary").unwrap()), opened);
        let sealed = both.seal(&label("ios"), "canary").unwrap();
        assert_eq!(new.open(&sealed), opened);
        assert!(old.open(&sealed).is_err());
    }

    #[test]
    fn a_text_that_is_no_master_key_is_refused_without_showing_it() {
        let good = generate().unwrap();
        for bad in [
            "",
            "canary",
            &format!("{good} canary"),
            "bfymk_",
            "bfymk_canary",
            &format!("bfymk_{}", "A".repeat(44)),
        ] {
            let message = MasterKey::parse(bad, "").unwrap_err().to_string();
            assert!(!message.contains("canary"), "{message}");
        }
        assert_eq!(format!("{:?}", key()), "[master key]");
    }
}
