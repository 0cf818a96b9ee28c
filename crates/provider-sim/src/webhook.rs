//! The checks of a webhook receiver after Standard Webhooks 1.0.0. Every POST path is an endpoint.

use std::borrow::Cow;

use aws_lc_rs::hmac;
use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::{Method, StatusCode};

use crate::Error;
use crate::exchange::{Finding, Request, SimAnswer, SimContent, Trouble};
use crate::fields::Fields;

const SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;
const PUBLIC_KEY_BYTES: usize = 32;
/// How old or how far ahead a signed timestamp may be.
const TOLERANCE_SECONDS: u64 = 300;
const US_PER_SECOND: u64 = 1_000_000;

/// The webhook side of a provider.
#[derive(Debug)]
pub(crate) struct Webhook {
    secret: Option<Box<hmac::Key>>,
    public_key: Option<UnparsedPublicKey<Vec<u8>>>,
}

impl Webhook {
    /// Longest body that is taken.
    pub(crate) const CONTENT_BYTES_MAX: usize = 1 << 20;

    /// `secret` is `whsec_` and base64, `public_key` is `whpk_` and base64. A signature for each that is given must be
    /// there; without one every signature passes.
    pub(crate) fn new(secret: Option<&str>, public_key: Option<&str>) -> Result<Self, Error> {
        Ok(Self {
            secret: secret.map(parse_secret).transpose()?,
            public_key: public_key.map(parse_public_key).transpose()?,
        })
    }

    pub(crate) fn examine<'a>(&self, request: &Request<'a>, now_us: u64) -> Finding<'a> {
        let id = request.headers.text("webhook-id");
        let status = match request.content {
            _ if request.method != Method::POST => Some(StatusCode::METHOD_NOT_ALLOWED),
            SimContent::TooLong => Some(StatusCode::PAYLOAD_TOO_LARGE),
            // What is signed has a dot behind the identifier, which therefore has none.
            SimContent::Whole(_) if id.is_empty() || id.contains('.') => {
                Some(StatusCode::BAD_REQUEST)
            }
            SimContent::Whole(body) if !self.is_signed(request.headers, id, body, now_us) => {
                Some(StatusCode::UNAUTHORIZED)
            }
            SimContent::Whole(_) => None,
        };
        let rejection = status.map(|status| SimAnswer::new(status, Bytes::new()));
        let id = Cow::Borrowed(id);
        Finding { id, recipient: request.path, authenticated: true, rejection }
    }

    pub(crate) const fn trouble(trouble: Trouble) -> SimAnswer {
        let status = match trouble {
            Trouble::Gone => StatusCode::GONE,
            Trouble::Throttled => StatusCode::TOO_MANY_REQUESTS,
            Trouble::InternalError => StatusCode::INTERNAL_SERVER_ERROR,
            Trouble::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        };
        SimAnswer::new(status, Bytes::new())
    }

    /// For each of our keys one of the signatures is right, and its time is now.
    fn is_signed(&self, headers: &Fields, id: &str, body: &[u8], now_us: u64) -> bool {
        if self.secret.is_none() && self.public_key.is_none() {
            return true;
        }
        let timestamp = headers.text("webhook-timestamp");
        let Ok(timestamp_s) = timestamp.parse::<u64>() else {
            return false;
        };
        if timestamp_s.abs_diff(now_us / US_PER_SECOND) > TOLERANCE_SECONDS {
            return false;
        }
        let signed = [id.as_bytes(), b".", timestamp.as_bytes(), b".", body].concat();
        let signatures = headers.text("webhook-signature");
        // A sender that changes its key signs with both for a while, and one right signature is enough.
        let any = |version: &str, is_right: &dyn Fn(Vec<u8>) -> bool| {
            let signatures = signatures.split(' ').filter_map(|one| one.strip_prefix(version));
            signatures.filter_map(|one| BASE64_STANDARD.decode(one).ok()).any(is_right)
        };
        let symmetric = self
            .secret
            .as_ref()
            .is_none_or(|secret| any("v1,", &|tag| hmac::verify(secret, &signed, &tag).is_ok()));
        let asymmetric = self
            .public_key
            .as_ref()
            .is_none_or(|key| any("v1a,", &|signature| key.verify(&signed, &signature).is_ok()));
        symmetric && asymmetric
    }
}

fn parse_secret(secret: &str) -> Result<Box<hmac::Key>, Error> {
    let encoded = secret.strip_prefix("whsec_").ok_or(Error::WebhookSecret)?;
    let bytes = BASE64_STANDARD.decode(encoded).map_err(|_| Error::WebhookSecret)?;
    if !SECRET_BYTES.contains(&bytes.len()) {
        return Err(Error::WebhookSecret);
    }
    Ok(Box::new(hmac::Key::new(hmac::HMAC_SHA256, &bytes)))
}

fn parse_public_key(key: &str) -> Result<UnparsedPublicKey<Vec<u8>>, Error> {
    let encoded = key.strip_prefix("whpk_").ok_or(Error::WebhookPublicKey)?;
    let bytes = BASE64_STANDARD.decode(encoded).map_err(|_| Error::WebhookPublicKey)?;
    if bytes.len() != PUBLIC_KEY_BYTES {
        return Err(Error::WebhookPublicKey);
    }
    Ok(UnparsedPublicKey::new(&ED25519, bytes))
}
