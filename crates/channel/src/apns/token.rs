//! The provider token: an ES256 JWT that says which team sends.
//!
//! APNs wants it renewed no more than once every 20 minutes and no less than once every 60; more often is
//! answered with `TooManyProviderTokenUpdates`, which makes the connection useless. So one token serves all
//! threads, and whoever needs it first while it is old makes the next one, under the lock.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use http::HeaderValue;
use notification::Timestamp;
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject as _;

/// Old enough to be renewed, with ten minutes to spare.
const RENEW_AFTER: Duration = Duration::from_mins(50);
/// Too young to be renewed, whatever APNs says about it.
const RENEW_BEFORE_MIN: Duration = Duration::from_mins(20);

/// Makes and keeps the provider token. Shared by all threads.
#[derive(Debug)]
pub(super) struct Token {
    key: EcdsaKeyPair,
    key_id: String,
    team_id: String,
    current: Mutex<Option<Minted>>,
}

#[derive(Debug)]
struct Minted {
    authorization: HeaderValue,
    at: Timestamp,
}

// === impl Token ===

impl Token {
    /// A token of `team_id`, signed with the PKCS#8 key in `key_pem`.
    pub(super) fn new(key_pem: &str, key_id: &str, team_id: &str) -> Result<Self, &'static str> {
        let der = PrivatePkcs8KeyDer::from_pem_slice(key_pem.as_bytes())
            .map_err(|_| "is not a PEM file with a PRIVATE KEY: use the .p8 file from Apple")?;
        let key =
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der.secret_pkcs8_der())
                .map_err(|_| "is not a P-256 key: use the .p8 file from Apple")?;
        Ok(Self {
            key,
            key_id: key_id.to_owned(),
            team_id: team_id.to_owned(),
            current: Mutex::new(None),
        })
    }

    /// The `authorization` header as of `now`; `None` when the key does not sign.
    pub(super) fn authorization(&self, now: Timestamp) -> Option<HeaderValue> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let is_old = |minted: &Minted| now.since(minted.at) >= RENEW_AFTER;
        if current.as_ref().is_none_or(is_old) {
            *current = Some(self.mint(now)?);
        }
        current.as_ref().map(|minted| minted.authorization.clone())
    }

    /// APNs calls `authorization` expired: the next call of [`Token::authorization`] makes a new one, unless
    /// that has happened already or would be too soon.
    pub(super) fn expired(&self, authorization: &HeaderValue, now: Timestamp) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let is_meant = |minted: &Minted| {
            minted.authorization == authorization && now.since(minted.at) >= RENEW_BEFORE_MIN
        };
        if current.as_ref().is_some_and(is_meant) {
            *current = None;
        }
    }

    fn mint(&self, now: Timestamp) -> Option<Minted> {
        let header = serde_json::json!({ "alg": "ES256", "kid": self.key_id }).to_string();
        let claims = serde_json::json!({ "iss": self.team_id, "iat": now.seconds() }).to_string();
        let mut token = String::from("bearer ");
        let prefix_bytes = token.len();
        BASE64_URL_SAFE_NO_PAD.encode_string(header, &mut token);
        token.push('.');
        BASE64_URL_SAFE_NO_PAD.encode_string(claims, &mut token);
        let signed = token.as_bytes().get(prefix_bytes..)?;
        let signature = self.key.sign(&SystemRandom::new(), signed).ok()?;
        token.push('.');
        BASE64_URL_SAFE_NO_PAD.encode_string(signature, &mut token);
        let mut authorization = HeaderValue::from_str(&token).ok()?;
        // Apple asks for "literal without indexing"; never-indexed is that, and it keeps logs clean.
        authorization.set_sensitive(true);
        Some(Minted { authorization, at: now })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, KeyPair as _, UnparsedPublicKey};

    fn token() -> Token {
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
        Token::new(&key.serialize_pem(), "KEY0123456", "TEAM012345").unwrap()
    }

    fn at(minutes: u64) -> Timestamp {
        Timestamp::from_millis(1_700_000_000_000).plus(Duration::from_mins(minutes))
    }

    #[test]
    fn a_token_says_who_signed_what_and_when_and_verifies() {
        let token = token();
        let authorization = token.authorization(at(0)).unwrap();
        assert!(authorization.is_sensitive());
        let jwt = authorization.to_str().unwrap().strip_prefix("bearer ").unwrap();
        let (signed, signature) = jwt.rsplit_once('.').unwrap();
        let (header, claims) = signed.split_once('.').unwrap();
        let json = |part: &str| -> serde_json::Value {
            serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap()
        };
        assert_eq!(json(header), serde_json::json!({ "alg": "ES256", "kid": "KEY0123456" }));
        assert_eq!(json(claims), serde_json::json!({ "iss": "TEAM012345", "iat": 1_700_000_000 }));
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, token.key.public_key())
            .verify(signed.as_bytes(), &BASE64_URL_SAFE_NO_PAD.decode(signature).unwrap())
            .unwrap();
    }

    #[test]
    fn a_token_is_kept_for_fifty_minutes() {
        let token = token();
        let first = token.authorization(at(0)).unwrap();
        assert_eq!(token.authorization(at(49)).unwrap(), first);
        assert_ne!(token.authorization(at(50)).unwrap(), first);
    }

    #[test]
    fn an_expired_answer_renews_once_and_never_within_twenty_minutes() {
        let token = token();
        let first = token.authorization(at(0)).unwrap();
        token.expired(&first, at(19));
        assert_eq!(token.authorization(at(19)).unwrap(), first, "too soon");
        token.expired(&first, at(20));
        let second = token.authorization(at(20)).unwrap();
        assert_ne!(second, first);
        token.expired(&first, at(45));
        assert_eq!(token.authorization(at(45)).unwrap(), second, "said of the old one");
    }

    #[test]
    fn what_is_no_key_is_refused() {
        assert!(Token::new("nonsense", "k", "t").unwrap_err().contains("PEM"));
        let other = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        assert!(Token::new(&other.serialize_pem(), "k", "t").unwrap_err().contains("P-256"));
    }
}
