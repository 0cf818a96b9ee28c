//! Subscriptions: where the push service of a browser listens, and the keys with which it can read.

use std::fmt;

use aws_lc_rs::agreement::{ECDH_P256, ParsedPublicKey, UnparsedPublicKey};
use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use net::endpoint::Endpoint;
use serde::Deserialize;

use crate::Invalid;
use crate::object::ByName;

/// A point on P-256 in its uncompressed form.
pub(super) const POINT_BYTES: usize = 65;
const AUTH_BYTES: usize = 16;
/// Begins an uncompressed point.
const UNCOMPRESSED: u8 = 4;

/// base64url, with or without padding at its end.
const BASE64_URL: GeneralPurpose = GeneralPurpose::new(
    &alphabet::URL_SAFE,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

const FORM: &str =
    "write https://push.example/...#p256dh=...&auth=... or the browser's PushSubscription as JSON";

/// A browser that wants to be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Subscription {
    pub(super) endpoint: Endpoint,
    pub(super) keys: SubscriptionKeys,
}

/// The keys that a message is encrypted for.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct SubscriptionKeys {
    /// The browser's public key.
    pub(super) p256dh: [u8; POINT_BYTES],
    /// A secret that the push service does not know.
    pub(super) auth: [u8; AUTH_BYTES],
}

/// A subscription as browsers write it; what else they write is of no concern.
#[derive(Debug, Deserialize)]
struct Json {
    endpoint: String,
    keys: ByName<JsonKeys>,
}

#[derive(Debug, Deserialize)]
struct JsonKeys {
    p256dh: String,
    auth: String,
}

// === impl Subscription ===

impl Subscription {
    /// Reads either spelling. Does not look whether the point is on the curve: see [`SubscriptionKeys::check`].
    pub(super) fn parse(text: &str) -> Result<Self, Invalid> {
        if text.starts_with('{') {
            let Json { endpoint, keys } = serde_json::from_str(text)
                .map_err(|error| Invalid::new(format!("is not a subscription: {error}; {FORM}")))?;
            let ByName(JsonKeys { p256dh, auth }) = keys;
            return Self::new(&endpoint, &p256dh, &auth);
        }
        let refuse = || Invalid::new(format!("is not a subscription: {FORM}"));
        let (endpoint, fragment) = text.split_once('#').ok_or_else(refuse)?;
        let (mut p256dh, mut auth) = (None, None);
        for part in fragment.split('&') {
            let earlier = match part.split_once('=') {
                Some(("p256dh", value)) => p256dh.replace(value),
                Some(("auth", value)) => auth.replace(value),
                _ => return Err(refuse()),
            };
            // Readers differ in which of two values they take.
            if earlier.is_some() {
                return Err(refuse());
            }
        }
        Self::new(endpoint, p256dh.ok_or_else(refuse)?, auth.ok_or_else(refuse)?)
    }

    fn new(endpoint: &str, p256dh: &str, auth: &str) -> Result<Self, Invalid> {
        let endpoint = Endpoint::parse(endpoint)?;
        if !endpoint.origin.is_https {
            return Err(Invalid::new("must start with https://"));
        }
        let keys = SubscriptionKeys { p256dh: read("p256dh", p256dh)?, auth: read("auth", auth)? };
        if keys.p256dh.first() != Some(&UNCOMPRESSED) {
            return Err(Invalid::new("has a p256dh that is not an uncompressed point"));
        }
        Ok(Self { endpoint, keys })
    }
}

impl fmt::Display for Subscription {
    /// The one spelling under which it is stored.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Endpoint { origin, path } = &self.endpoint;
        let [p256dh, auth] = [self.keys.p256dh.as_slice(), &self.keys.auth]
            .map(|bytes| BASE64_URL_SAFE_NO_PAD.encode(bytes));
        write!(formatter, "https://{}{path}#p256dh={p256dh}&auth={auth}", origin.authority())
    }
}

// === impl SubscriptionKeys ===

impl SubscriptionKeys {
    /// Checks that the point is on the curve. An agreement checks it, too; here it is told before anything is stored.
    pub(super) fn check(&self) -> Result<(), Invalid> {
        let point = UnparsedPublicKey::new(&ECDH_P256, self.p256dh.as_slice());
        ParsedPublicKey::try_from(&point)
            .map(drop)
            .map_err(|_| Invalid::new("has a p256dh that is not a point on P-256"))
    }
}

impl fmt::Debug for SubscriptionKeys {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("[keys]")
    }
}

fn read<const BYTES: usize>(name: &str, text: &str) -> Result<[u8; BYTES], Invalid> {
    let bytes = BASE64_URL
        .decode(text)
        .map_err(|_| Invalid::new(format!("has a value of {name} that is not base64url")))?;
    let found = bytes.len();
    bytes.try_into().map_err(|_| {
        Invalid::new(format!("has a value of {name} with {found} bytes instead of {BYTES}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const P256DH: &str =
        "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4";
    const AUTH: &str = "BTBZMqHH6r4Tts7J_aSIgg";

    fn json(endpoint: &str, p256dh: &str, auth: &str) -> String {
        serde_json::json!({
            "endpoint": endpoint,
            "expirationTime": null,
            "keys": { "p256dh": p256dh, "auth": auth },
        })
        .to_string()
    }

    #[test]
    fn every_spelling_is_one_subscription() {
        let expect = format!("https://push.example/send/Ab-1?x=Y#p256dh={P256DH}&auth={AUTH}");
        for text in [
            expect.clone(),
            format!("https://PUSH.example:443/send/Ab-1?x=Y#auth={AUTH}==&p256dh={P256DH}="),
            json("https://push.example/send/Ab-1?x=Y", P256DH, AUTH),
            json(
                "https://push.Example:443/send/Ab-1?x=Y",
                &format!("{P256DH}="),
                &format!("{AUTH}=="),
            ),
        ] {
            let subscription = Subscription::parse(&text).unwrap();
            assert_eq!(subscription.to_string(), expect, "{text}");
            subscription.keys.check().unwrap();
        }
        let ported = format!("https://push.example:8443/#p256dh={P256DH}&auth={AUTH}");
        assert_eq!(Subscription::parse(&ported).unwrap().to_string(), ported);
    }

    #[test]
    fn what_is_no_subscription_is_refused_with_words() {
        let point = |bytes: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(bytes);
        let with =
            |p256dh: &str, auth: &str| format!("https://p.example/#p256dh={p256dh}&auth={auth}");
        let compressed = point(&[2; 33]);
        let hybrid = point(&[[6].as_slice(), &[1; 64]].concat());
        let check = |text: &str, expect: &str| {
            let invalid = Subscription::parse(text).unwrap_err();
            assert!(invalid.message.contains(expect), "{text}: {invalid}");
            assert!(!invalid.message.contains(AUTH), "{invalid}");
        };
        check("", "is not a subscription: write https://");
        check("https://p.example/", "is not a subscription");
        check("https://p.example/#", "is not a subscription");
        check("{}", "missing field `endpoint`");
        check(r#"{"endpoint":"https://p.example/"}"#, "missing field `keys`");
        check("[]", "is not a subscription");
        let listed = format!(r#"{{"endpoint":"https://p.example/","keys":["{P256DH}","{AUTH}"]}}"#);
        check(&listed, "expected an object");
        check(&with(P256DH, ""), "auth with 0 bytes instead of 16");
        check(&with(P256DH, "!"), "auth that is not base64url");
        check(&with("BCVx+/", AUTH), "p256dh that is not base64url");
        check(&with(&compressed, AUTH), "p256dh with 33 bytes instead of 65");
        check(&with(&hybrid, AUTH), "not an uncompressed point");
        check(&format!("{}&auth={AUTH}", with(P256DH, AUTH)), "is not a subscription");
        check(&format!("{}&more=x", with(P256DH, AUTH)), "is not a subscription");
        check(&format!("https://p.example/#p256dh={P256DH}"), "is not a subscription");
        check(&with(P256DH, AUTH).replace("https", "http"), "must start with https://");
        check(&json("http://p.example/", P256DH, AUTH), "must start with https://");
        check(&json("https://u:p@p.example/", P256DH, AUTH), "user or password");
        check(&json("https://0x7f.1/", P256DH, AUTH), "looks like an address");
    }

    #[test]
    fn a_point_off_the_curve_is_refused() {
        for bytes in [[4; POINT_BYTES], {
            let mut zero = [0; POINT_BYTES];
            zero[0] = 4;
            zero
        }] {
            let keys = SubscriptionKeys { p256dh: bytes, auth: [0; AUTH_BYTES] };
            assert!(keys.check().unwrap_err().message.contains("not a point on P-256"));
        }
    }

    #[test]
    fn keys_do_not_show() {
        let subscription = Subscription::parse(&json("https://p.example/", P256DH, AUTH)).unwrap();
        assert!(format!("{subscription:?}").contains("keys: [keys]"));
    }
}
