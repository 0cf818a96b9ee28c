//! The proof of the sender's identity: RFC 8292 (VAPID). A token, an ES256 JWT, is good for one origin and at most
//! 24 hours; it is made once and serves all threads and all subscriptions of that origin.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use aws_lc_rs::agreement::{ECDH_P256, PrivateKey};
use aws_lc_rs::encoding::{AsBigEndian as _, EcPrivateKeyBin};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use http::HeaderValue;
use net::redact::Secret;
use notification::Timestamp;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;

use crate::is_stale;
use crate::jwt::jwt;

/// How long a token is good: half of what the standard allows, so that clocks may differ.
const LIFE: Duration = Duration::from_hours(12);
/// Old enough to be renewed: what is sent with it stays good for hours in the push service's own queues.
const RENEW_AFTER: Duration = Duration::from_hours(6);
/// Tokens kept. There are a handful of push services, but an endpoint can name any origin.
const TOKENS_MAX: usize = 1_024;

/// A key pair that was just made, as a configuration and a web page take it.
#[derive(Debug)]
pub struct VapidKey {
    /// The private key, for the setting `key`.
    pub private: Secret,
    /// The public key, for `applicationServerKey` when a page subscribes.
    pub public: String,
}

/// Makes and keeps tokens. Shared by all threads.
#[derive(Debug)]
pub(super) struct Vapid {
    key: EcdsaKeyPair,
    /// As the header has it.
    public: String,
    subject: String,
    tokens: Mutex<HashMap<String, VapidToken>>,
}

/// The proof of the sender's identity for one push service.
#[derive(Debug, Clone)]
pub(super) struct Proof {
    /// The `authorization` header.
    pub(super) authorization: HeaderValue,
    is_accepted: Arc<OnceLock<()>>,
}

#[derive(Debug)]
struct VapidToken {
    proof: Proof,
    at: Timestamp,
}

// === impl VapidKey ===

impl VapidKey {
    /// A fresh pair; `None` when the system has no random numbers.
    pub fn generate() -> Option<Self> {
        let key = PrivateKey::generate(&ECDH_P256).ok()?;
        let public = key.compute_public_key().ok()?;
        let private: EcPrivateKeyBin<'_> = key.as_be_bytes().ok()?;
        Some(Self {
            private: Secret::new(BASE64_URL_SAFE_NO_PAD.encode(private.as_ref())),
            public: BASE64_URL_SAFE_NO_PAD.encode(public.as_ref()),
        })
    }
}

// === impl Vapid ===

impl Vapid {
    /// Tokens in the name of `subject`, signed with `key`: PEM (PKCS#8 or SEC 1), or the base64url of the number itself.
    pub(super) fn new(key: &str, subject: &str) -> Result<Self, &'static str> {
        let key = if key.contains("-----BEGIN") { from_pem(key) } else { from_number(key) }?;
        Ok(Self {
            public: BASE64_URL_SAFE_NO_PAD.encode(key.public_key()),
            key,
            subject: subject.to_owned(),
            tokens: Mutex::default(),
        })
    }

    /// The proof for requests to `audience`, an origin, as of `now`; `None` when the key does not sign.
    pub(super) fn proof(&self, audience: &str, now: Timestamp) -> Option<Proof> {
        // Held over the signature, once in hours: threads that come meanwhile would make tokens of their own.
        let mut tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        let earlier = tokens.get(audience);
        if let Some(token) = earlier
            && !is_stale(token.at, now, RENEW_AFTER)
        {
            return Some(token.proof.clone());
        }
        // It was the key that the service accepted, and the next token has the same.
        let is_accepted = earlier.map(|token| Arc::clone(&token.proof.is_accepted));
        let is_accepted = is_accepted.unwrap_or_default();
        if tokens.len() >= TOKENS_MAX {
            let oldest = tokens.iter().min_by_key(|(_, token)| token.at);
            let oldest = oldest.map(|(audience, _)| audience.clone());
            oldest.and_then(|audience| tokens.remove(&audience));
        }
        let proof = Proof { authorization: self.mint(audience, now)?, is_accepted };
        tokens.insert(audience.to_owned(), VapidToken { proof: proof.clone(), at: now });
        Some(proof)
    }

    fn mint(&self, audience: &str, now: Timestamp) -> Option<HeaderValue> {
        let header = serde_json::json!({ "typ": "JWT", "alg": "ES256" });
        let claims = serde_json::json!({
            "aud": audience,
            "exp": now.plus(LIFE).seconds(),
            "sub": self.subject,
        });
        let sign = |signed: &[u8]| self.key.sign(&SystemRandom::new(), signed);
        let token = jwt(&header, &claims, sign)?;
        let authorization = format!("vapid t={token}, k={}", self.public);
        let mut authorization = HeaderValue::from_str(&authorization).ok()?;
        // Keeps it out of logs, and out of the tables of header compression.
        authorization.set_sensitive(true);
        Some(authorization)
    }
}

// === impl Proof ===

impl Proof {
    /// The push service has accepted it.
    pub(super) fn accepted(&self) {
        // Every acceptance comes here, on every thread: all but the first only read.
        self.is_accepted.get_or_init(|| ());
    }

    /// True if the push service has accepted our key since the start, or since it was forgotten.
    pub(super) fn is_accepted(&self) -> bool {
        self.is_accepted.get().is_some()
    }
}

fn from_pem(text: &str) -> Result<EcdsaKeyPair, &'static str> {
    let der = PrivateKeyDer::from_pem_slice(text.as_bytes())
        .map_err(|_| "is not a PEM file with a private key")?;
    EcdsaKeyPair::from_private_key_der(&ECDSA_P256_SHA256_FIXED_SIGNING, der.secret_der())
        .map_err(|_| "is not a P-256 key: `belfry vapid-key` makes one")
}

fn from_number(text: &str) -> Result<EcdsaKeyPair, &'static str> {
    let number = BASE64_URL_SAFE_NO_PAD
        .decode(text.trim())
        .map_err(|_| "is neither PEM nor base64url: `belfry vapid-key` makes one")?;
    let key = PrivateKey::from_private_key(&ECDH_P256, &number)
        .map_err(|_| "is not the 32 bytes of a P-256 key: `belfry vapid-key` makes one")?;
    let refuse = "is not a P-256 key: `belfry vapid-key` makes one";
    let public = key.compute_public_key().map_err(|_| refuse)?;
    EcdsaKeyPair::from_private_key_and_public_key(
        &ECDSA_P256_SHA256_FIXED_SIGNING,
        &number,
        public.as_ref(),
    )
    .map_err(|_| refuse)
}

#[cfg(test)]
#[path = "vapid_tests.rs"]
mod tests;
