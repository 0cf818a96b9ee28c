//! A browser's side of a subscription: its keys, made from its number.

use aws_lc_rs::agreement::{ECDH_P256, PrivateKey};
use aws_lc_rs::digest;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;

const AUTH_BYTES: usize = 16;

/// A subscriber, who can read messages.
#[derive(Debug)]
pub(super) struct Subscriber {
    pub(super) key: PrivateKey,
    /// The uncompressed point.
    pub(super) public: Vec<u8>,
    pub(super) auth: Vec<u8>,
}

impl Subscriber {
    /// The one with this number. (`None` would take a number whose hash is none of the curve's 2^256 - 2^224 or so.)
    pub(super) fn new(number: u64) -> Option<Self> {
        let secret = |purpose: &str| {
            let text = format!("belfry provider-sim, subscription {number}, {purpose}");
            digest::digest(&digest::SHA256, text.as_bytes())
        };
        let key = PrivateKey::from_private_key(&ECDH_P256, secret("key").as_ref()).ok()?;
        let public = key.compute_public_key().ok()?.as_ref().to_vec();
        let auth = secret("auth").as_ref().iter().copied().take(AUTH_BYTES).collect();
        Some(Self { key, public, auth })
    }

    /// The keys as a browser gives them away.
    pub(super) fn to_json(&self) -> serde_json::Value {
        serde_json::json!({
            "p256dh": BASE64_URL_SAFE_NO_PAD.encode(&self.public),
            "auth": BASE64_URL_SAFE_NO_PAD.encode(&self.auth),
        })
    }
}
