//! The `v1` signature of Standard Webhooks: HMAC-SHA256 over identifier, time of the attempt, and payload.

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use crate::settings::Secret;

const PREFIX: &str = "whsec_";
const KEY_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// Signs with one or more keys.
#[derive(Debug, Clone)]
pub(super) struct Signer {
    keys: Vec<hmac::Key>,
}

// === impl Signer ===

impl Signer {
    /// Signs with each of `secrets`.
    pub(super) fn new(secrets: &[Secret]) -> Result<Self, String> {
        let key = |secret: &Secret| {
            let bytes = secret
                .expose()
                .strip_prefix(PREFIX)
                .and_then(|text| BASE64_STANDARD.decode(text).ok())
                .ok_or_else(|| format!("must be {PREFIX} and base64"))?;
            if !KEY_BYTES.contains(&bytes.len()) {
                let (least, most) = (KEY_BYTES.start(), KEY_BYTES.end());
                let found = bytes.len();
                return Err(format!("must hold {least} to {most} bytes; this one holds {found}"));
            }
            Ok(hmac::Key::new(hmac::HMAC_SHA256, &bytes))
        };
        Ok(Self { keys: secrets.iter().map(key).collect::<Result<_, String>>()? })
    }

    /// The value of `webhook-signature`: one signature by each key, separated by spaces.
    pub(super) fn sign(&self, id: &str, timestamp: &str, payload: &[u8]) -> String {
        let mut signatures = String::new();
        for key in &self.keys {
            let mut context = hmac::Context::with_key(key);
            for part in [id.as_bytes(), b".", timestamp.as_bytes(), b".", payload] {
                context.update(part);
            }
            if !signatures.is_empty() {
                signatures.push(' ');
            }
            signatures.push_str("v1,");
            BASE64_STANDARD.encode_string(context.sign(), &mut signatures);
        }
        signatures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signer(secrets: &[&str]) -> Result<Signer, String> {
        Signer::new(&secrets.iter().copied().map(Secret::new).collect::<Vec<_>>())
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
    fn a_secret_of_the_wrong_form_or_size_is_refused_without_showing_it() {
        for bad in [
            "",
            "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "whsec_",
            "whsec_###",
            "whsec_c2hvcnQ=",
            &format!("whsec_{}", BASE64_STANDARD.encode([0; 65])),
        ] {
            let message = signer(&[bad]).unwrap_err();
            assert!(bad.len() < 7 || !message.contains(bad), "{message}");
        }
    }
}
