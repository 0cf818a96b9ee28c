//! API keys of callers, kept as hashes only.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use aws_lc_rs::{digest, rand};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use notification::Name;
use store::KeyHash;

use crate::grants::Grants;

/// The prefix of every key, so that scanners of leaked secrets recognize it.
const PREFIX: &str = "belfry_";
const RANDOM_BYTES: usize = 32;

/// One key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiKey {
    /// Its name, for operators.
    pub name: Name,
    /// Whose notifications it creates and sees.
    pub tenant: Name,
    /// SHA-256 of the key's text.
    pub sha256: KeyHash,
    /// The calls that it is good for.
    pub grants: Grants,
}

/// Keys, found by their hashes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Keys(HashMap<KeyHash, Arc<ApiKey>>);

/// Why a key or an address cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// A hash is not one.
    #[error("{0:?} is not the SHA-256 of a key in 64 hexadecimal digits")]
    Hash(String),
    /// Without a key, any machine could call.
    #[error(
        "refusing to listen on {0} without an API key: listen on 127.0.0.1, or add a key with `belfry api-key`"
    )]
    Open(SocketAddr),
    /// The system has no random numbers.
    #[error("the system gave no random numbers")]
    Random,
}

/// A new key, to be shown once.
pub fn generate() -> Result<String, KeyError> {
    let mut random = [0; RANDOM_BYTES];
    rand::fill(&mut random).map_err(|_| KeyError::Random)?;
    Ok(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(random)))
}

/// SHA-256 of `key` in hexadecimal digits, as the configuration keeps it.
pub fn hash(key: &str) -> String {
    sha256(key).iter().fold(String::new(), |digits, byte| format!("{digits}{byte:02x}"))
}

/// The inverse of how [`hash`] writes: 64 hexadecimal digits.
pub fn parse_hash(text: &str) -> Result<KeyHash, KeyError> {
    let refuse = || KeyError::Hash(text.chars().take(80).collect());
    // Checked digit by digit: `from_str_radix` would take a sign, too.
    if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(refuse());
    }
    let mut hash = [0; 32];
    for (byte, digits) in hash.iter_mut().zip(text.as_bytes().chunks(2)) {
        let digits = std::str::from_utf8(digits).map_err(|_| refuse())?;
        *byte = u8::from_str_radix(digits, 16).map_err(|_| refuse())?;
    }
    Ok(hash)
}

/// Checks that a server may listen on `address`: beyond loopback only with keys.
pub fn check_listen(address: SocketAddr, keys: &Keys) -> Result<(), KeyError> {
    // An IPv4 address may be written as IPv6: `::ffff:127.0.0.1` is loopback.
    if keys.is_empty() && !address.ip().to_canonical().is_loopback() {
        return Err(KeyError::Open(address));
    }
    Ok(())
}

/// The hash by which a key is known. A generated key has 256 random bits: a fast hash without a salt is enough, and a slow one would cost
/// every request.
pub(crate) fn sha256(key: &str) -> KeyHash {
    // It has as many bytes: there is no other case.
    digest::digest(&digest::SHA256, key.as_bytes()).as_ref().try_into().unwrap_or_default()
}

// === impl Keys ===

impl Keys {
    /// All of `keys`; without any, every caller that reaches the server may do everything.
    pub fn new(keys: Vec<ApiKey>) -> Self {
        Self(keys.into_iter().map(|key| (key.sha256, Arc::new(key))).collect())
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The key with this hash. The time that this takes tells nothing of use: it depends on a hash that a caller cannot choose.
    pub(crate) fn find(&self, hash: &KeyHash) -> Option<Arc<ApiKey>> {
        self.0.get(hash).map(Arc::clone)
    }

    /// All of them, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &ApiKey> {
        self.0.values().map(|key| &**key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_key_is_known_by_its_hash_only() {
        let (key, other) = (generate().unwrap(), generate().unwrap());
        assert!(key.starts_with("belfry_") && key.len() == 7 + 43 && key != other);
        assert_eq!(parse_hash(&hash(&key)), Ok(sha256(&key)));
        assert!(parse_hash("abc").is_err() && parse_hash(&"é".repeat(32)).is_err());
    }

    #[test]
    fn a_digest_is_64_hexadecimal_digits() {
        let mut expect = [0; 32];
        expect[31] = 0xaf;
        assert_eq!(parse_hash(&format!("{}aF", "0".repeat(62))), Ok(expect));
        for bad in ["", "0", &"0".repeat(63), &"0".repeat(66), &"g".repeat(64)] {
            assert!(parse_hash(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn beyond_loopback_a_key_is_needed() {
        let check = |address: &str, keys: &Keys| check_listen(address.parse().unwrap(), keys);
        let name = |text: &str| text.parse().unwrap();
        let grants = Grants::default();
        let key = ApiKey { name: name("ci"), tenant: name("acme"), sha256: [0; 32], grants };
        for loopback in ["127.0.0.1:80", "127.8.8.8:80", "[::1]:80", "[::ffff:127.0.0.1]:80"] {
            assert_eq!(check(loopback, &Keys::default()), Ok(()));
        }
        for open in ["0.0.0.0:80", "[::]:80", "192.168.1.1:80"] {
            let refused = check(open, &Keys::default()).unwrap_err();
            assert!(refused.to_string().contains("belfry api-key"), "{refused}");
            assert_eq!(check(open, &Keys::new(vec![key.clone()])), Ok(()));
        }
    }
}
