//! Tokens of senders (VAPID, RFC 8292): each is verified once and then found by its text.

use std::cell::RefCell;
use std::collections::HashMap;

use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use http::StatusCode;
use serde_json::Value;

use super::PushRejection;
use crate::Error;

const LIFETIME_SECONDS_MAX: u64 = 24 * 3600;
const POINT_BYTES: usize = 65;
/// Known tokens are forgotten beyond this many.
const KNOWN_MAX: usize = 1024;
const US_PER_SECOND: u64 = 1_000_000;

const MISSING: PushRejection = (StatusCode::UNAUTHORIZED, "a VAPID token is needed");
const INVALID: PushRejection = (StatusCode::FORBIDDEN, "the VAPID token is not valid");
/// In the words of a large service, which senders go by.
const OTHER_KEY: PushRejection = (
    StatusCode::FORBIDDEN,
    "the VAPID credentials in the authorization header do not correspond to the credentials used to create the subscriptions.",
);
const OTHER_AUDIENCE: PushRejection =
    (StatusCode::FORBIDDEN, "the VAPID token is for another origin");
const WRONG_TIME: PushRejection =
    (StatusCode::FORBIDDEN, "the VAPID token is expired, or good for more than 24 hours");
const NO_CONTACT: PushRejection =
    (StatusCode::FORBIDDEN, "the VAPID token names nobody to write to (mailto: or https:)");

/// The tokens a serving thread has seen.
#[derive(Debug)]
pub(super) struct VapidTokens {
    public_key: Option<String>,
    known: RefCell<HashMap<String, VapidClaims>>,
}

#[derive(Debug, Clone)]
struct VapidClaims {
    audience: String,
    expires_s: u64,
}

impl VapidTokens {
    pub(super) fn new(public_key: Option<&str>) -> Result<Self, Error> {
        let is_point = |key: &str| decode(key).is_some_and(|point| point.len() == POINT_BYTES);
        if public_key.is_some_and(|key| !is_point(key)) {
            return Err(Error::WebPushKey);
        }
        Ok(Self { public_key: public_key.map(str::to_owned), known: RefCell::default() })
    }

    /// Checks the value of an `authorization` header that came to `authority`.
    pub(super) fn verify(
        &self,
        authorization: &str,
        authority: &str,
        now_us: u64,
    ) -> Result<(), PushRejection> {
        let mut known = self.known.borrow_mut();
        if !known.contains_key(authorization) {
            let claims = self.admit(authorization)?;
            if known.len() >= KNOWN_MAX {
                known.clear();
            }
            known.insert(authorization.to_owned(), claims);
        }
        let claims = known.get(authorization).ok_or(INVALID)?;
        // On every request: a token that is known may be brought to another origin, and grows old all the same.
        if claims.audience.strip_prefix("https://") != Some(authority) {
            return Err(OTHER_AUDIENCE);
        }
        let left_s = claims.expires_s.checked_sub(now_us / US_PER_SECOND).ok_or(WRONG_TIME)?;
        // In the second that it names a token is over already (RFC 7519, section 4.1.4).
        if left_s == 0 || left_s > LIFETIME_SECONDS_MAX {
            return Err(WRONG_TIME);
        }
        Ok(())
    }

    /// The claims of a well-formed and well-signed token.
    fn admit(&self, authorization: &str) -> Result<VapidClaims, PushRejection> {
        let parameters = authorization.strip_prefix("vapid ").ok_or(MISSING)?;
        let parameter = |name: &str| {
            let mut parameters = parameters.split(',').filter_map(|one| one.trim().split_once('='));
            parameters.find(|(other, _)| *other == name).map(|(_, value)| value)
        };
        let (token, key) = parameter("t").zip(parameter("k")).ok_or(MISSING)?;
        if self.public_key.as_ref().is_some_and(|expected| expected != key) {
            return Err(OTHER_KEY);
        }
        let claims = claims(token, key).ok_or(INVALID)?;
        let contact = claims.get("sub").and_then(Value::as_str).unwrap_or_default();
        if !contact.starts_with("mailto:") && !contact.starts_with("https:") {
            return Err(NO_CONTACT);
        }
        let audience = claims.get("aud").and_then(Value::as_str).ok_or(INVALID)?.to_owned();
        let expires_s = claims.get("exp").and_then(Value::as_u64).ok_or(INVALID)?;
        Ok(VapidClaims { audience, expires_s })
    }
}

fn claims(token: &str, key: &str) -> Option<Value> {
    let (signed, signature) = token.rsplit_once('.')?;
    let (header, claims) = signed.split_once('.')?;
    let header: Value = serde_json::from_slice(&decode(header)?).ok()?;
    if header.get("alg")? != "ES256" {
        return None;
    }
    UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, decode(key)?)
        .verify(signed.as_bytes(), &decode(signature)?)
        .ok()?;
    serde_json::from_slice(&decode(claims)?).ok()
}

fn decode(text: &str) -> Option<Vec<u8>> {
    BASE64_URL_SAFE_NO_PAD.decode(text).ok()
}
