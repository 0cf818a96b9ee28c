//! The signatures of Standard Webhooks, over identifier, time of the attempt, and payload: `v1`, HMAC-SHA256 with a
//! secret that both sides know, and `v1a`, Ed25519 with a key that only we have.

use std::sync::Arc;

use aws_lc_rs::hmac;
use aws_lc_rs::signature::Ed25519KeyPair;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use net::redact::Secret;

const SECRET_PREFIX: &str = "whsec_";
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;
const KEY_PREFIX: &str = "whsk_";
const SEED_BYTES: usize = 32;

/// Signs with one or more keys.
#[derive(Debug, Clone)]
pub(super) struct WebhookSigner {
    keys: Arc<[WebhookKey]>,
}

#[derive(Debug)]
enum WebhookKey {
    Secret(Box<hmac::Key>),
    Pair(Ed25519KeyPair),
}

// === impl WebhookSigner ===

impl WebhookSigner {
    /// Signs with each of `secrets`, which may be of both kinds.
    pub(super) fn new(secrets: &[Secret]) -> Result<Self, String> {
        let keys = secrets.iter().map(|secret| WebhookKey::read(secret.expose()));
        Ok(Self { keys: keys.collect::<Result<_, String>>()? })
    }

    /// The value of `webhook-signature`: one signature by each key, separated by spaces.
    pub(super) fn sign(&self, id: &str, timestamp: &str, payload: &[u8]) -> String {
        let mut signatures = String::new();
        for key in &*self.keys {
            if !signatures.is_empty() {
                signatures.push(' ');
            }
            let parts = [id.as_bytes(), b".", timestamp.as_bytes(), b".", payload];
            match key {
                WebhookKey::Secret(key) => {
                    let mut context = hmac::Context::with_key(key);
                    for part in parts {
                        context.update(part);
                    }
                    signatures.push_str("v1,");
                    BASE64_STANDARD.encode_string(context.sign(), &mut signatures);
                }
                WebhookKey::Pair(pair) => {
                    // Ed25519 reads a message twice, and so wants it in one piece.
                    signatures.push_str("v1a,");
                    BASE64_STANDARD.encode_string(pair.sign(&parts.concat()), &mut signatures);
                }
            }
        }
        signatures
    }
}

// === impl WebhookKey ===

impl WebhookKey {
    fn read(text: &str) -> Result<Self, String> {
        let refuse = || format!("must be {SECRET_PREFIX} or {KEY_PREFIX} and base64");
        let decode = |text| BASE64_STANDARD.decode(text).map_err(|_| refuse());
        if let Some(text) = text.strip_prefix(SECRET_PREFIX) {
            let bytes = decode(text)?;
            if !SECRET_BYTES.contains(&bytes.len()) {
                let (least, most) = (SECRET_BYTES.start(), SECRET_BYTES.end());
                let found = bytes.len();
                return Err(format!(
                    "of {SECRET_PREFIX} must hold {least} to {most} bytes; this one holds {found}"
                ));
            }
            return Ok(Self::Secret(Box::new(hmac::Key::new(hmac::HMAC_SHA256, &bytes))));
        }
        let bytes = decode(text.strip_prefix(KEY_PREFIX).ok_or_else(refuse)?)?;
        // Libraries write the seed alone, or with the public key behind it.
        let pair = match bytes.split_at_checked(SEED_BYTES) {
            Some((seed, [])) => Ed25519KeyPair::from_seed_unchecked(seed),
            Some((seed, public)) => Ed25519KeyPair::from_seed_and_public_key(seed, public),
            None => Ed25519KeyPair::from_seed_unchecked(&bytes),
        };
        pair.map(Self::Pair).map_err(|_| {
            format!(
                "of {KEY_PREFIX} must hold an Ed25519 key: its seed of {SEED_BYTES} bytes, or the seed and its public key"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signer(secrets: &[&str]) -> Result<WebhookSigner, String> {
        WebhookSigner::new(&secrets.iter().copied().map(Secret::new).collect::<Vec<_>>())
    }

    #[test]
    fn the_example_of_the_standard_is_signed_as_it_says() {
        let signer = signer(&["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]).unwrap();
        let signature =
            signer.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", br#"{"test": 2432232314}"#);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn several_secrets_give_several_signatures() {
        let old = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        let new = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
        let both = signer(&[new, old]).unwrap().sign("id", "1", b"{}");
        let each: Vec<_> =
            [new, old].iter().map(|one| signer(&[one]).unwrap().sign("id", "1", b"{}")).collect();
        assert_eq!(both, each.join(" "));
    }

    #[test]
    fn an_ed25519_signature_is_verified_by_another_library() {
        let theirs = ed25519_dalek::SigningKey::from_bytes(&[9; 32]);
        let seed = format!("whsk_{}", BASE64_STANDARD.encode(theirs.to_bytes()));
        let pair = format!("whsk_{}", BASE64_STANDARD.encode(theirs.to_keypair_bytes()));
        for key in [seed, pair] {
            let text = signer(&[&key]).unwrap().sign("msg_1", "1614265330", b"{}");
            let bytes = BASE64_STANDARD.decode(text.strip_prefix("v1a,").unwrap()).unwrap();
            let signature = ed25519_dalek::Signature::from_slice(&bytes).unwrap();
            let signed = b"msg_1.1614265330.{}";
            theirs.verifying_key().verify_strict(signed, &signature).unwrap();
        }
    }

    #[test]
    fn both_kinds_sign_side_by_side() {
        let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        let key = &format!("whsk_{}", BASE64_STANDARD.encode([9; 32]));
        let both = signer(&[key, secret]).unwrap().sign("id", "1", b"{}");
        let kinds: Vec<_> = both.split(' ').map(|one| one.split_once(',').unwrap().0).collect();
        assert_eq!(kinds, ["v1a", "v1"]);
    }

    #[test]
    fn a_secret_of_the_wrong_form_or_size_is_refused_without_showing_it() {
        for bad in [
            "",
            "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "whsec_",
            "whsec_###",
            "whsec_c2hvcnQ=",
            "whsk_",
            "whsk_c2hvcnQ=",
            "whpk_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
            &format!("whsec_{}", BASE64_STANDARD.encode([0; 65])),
            &format!("whsk_{}", BASE64_STANDARD.encode([0; 31])),
            &format!("whsk_{}", BASE64_STANDARD.encode([7; 64])),
        ] {
            let message = signer(&[bad]).unwrap_err();
            assert!(bad.len() < 7 || !message.contains(bad), "{message}");
        }
    }
}
