//! Access tokens: given for assertions that the account signed (RFC 7523), good for a while.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use aws_lc_rs::rand;
use aws_lc_rs::signature::ParsedPublicKey;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::TOKEN_PATH;
use crate::exchange::{Request, SimAnswer, SimContent};
use crate::fields::Fields;

const GRANT_TYPE: &str = "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer";
const SCOPE: &str = "https://www.googleapis.com/auth/firebase.messaging";
/// How long an assertion may be good, and how far two clocks may disagree.
const ASSERTION_SECONDS_MAX: u64 = 3600;
const SKEW_SECONDS: u64 = 300;
const US_PER_SECOND: u64 = 1_000_000;
/// Tokens are forgotten beyond this many.
const TOKENS_MAX: usize = 1024;

/// The tokens that are good, and the accounts they are given to.
#[derive(Debug)]
pub(super) struct FcmTokens {
    key: ParsedPublicKey,
    lifetime: Duration,
    /// When each ends, in microseconds since the Unix epoch.
    until_us: Mutex<HashMap<Vec<u8>, u64>>,
}

/// The `authorization` header that a thread saw last: mostly all requests bring the same.
#[derive(Debug, Default)]
pub(super) struct Bearer(RefCell<Option<(Vec<u8>, u64)>>);

// === impl FcmTokens ===

impl FcmTokens {
    /// For assertions signed for `key`.
    pub(super) fn new(key: ParsedPublicKey, lifetime: Duration) -> Self {
        Self { key, lifetime, until_us: Mutex::default() }
    }

    /// Answers a request for one.
    pub(super) fn exchange(&self, request: &Request<'_>, now_us: u64) -> SimAnswer {
        let refuse = |description: &str| {
            let body = json!({ "error": "invalid_grant", "error_description": description });
            SimAnswer::new(StatusCode::BAD_REQUEST, Bytes::from(body.to_string()))
        };
        let SimContent::Whole(body) = request.content else { return refuse("too long") };
        if request.method != Method::POST {
            return SimAnswer::new(StatusCode::METHOD_NOT_ALLOWED, Bytes::new());
        }
        let form = str::from_utf8(body).unwrap_or_default();
        let assertion = form.split('&').find_map(|field| field.strip_prefix("assertion="));
        let Some(assertion) =
            assertion.filter(|_| form.split('&').any(|field| field == GRANT_TYPE))
        else {
            return refuse("grant_type and assertion are needed");
        };
        if let Err(reason) = self.verify(assertion, now_us / US_PER_SECOND) {
            return refuse(reason);
        }
        match self.issue(now_us) {
            Some(token) => {
                let seconds = self.lifetime.as_secs();
                let body =
                    json!({ "access_token": token, "expires_in": seconds, "token_type": "Bearer" });
                SimAnswer::new(StatusCode::OK, Bytes::from(body.to_string()))
            }
            None => SimAnswer::new(StatusCode::INTERNAL_SERVER_ERROR, Bytes::new()),
        }
    }

    fn verify(&self, assertion: &str, now: u64) -> Result<(), &'static str> {
        let parts = || {
            let (signed, signature) = assertion.rsplit_once('.')?;
            let (header, claims) = signed.split_once('.')?;
            let signature = BASE64_URL_SAFE_NO_PAD.decode(signature).ok()?;
            Some((signed, signature, part(header)?, part(claims)?))
        };
        let (signed, signature, header, claims) = parts().ok_or("Invalid JWT: not one")?;
        let is_signed = header.get("alg").is_some_and(|alg| alg == "RS256")
            && self.key.verify_sig(signed.as_bytes(), &signature).is_ok();
        if !is_signed {
            return Err("Invalid JWT Signature.");
        }
        // A claim that is missing is 0, and then the times below do not fit.
        let number = |name: &str| claims.get(name).and_then(Value::as_u64).unwrap_or_default();
        let (issued, expires) = (number("iat"), number("exp"));
        let is_timely = issued <= now + SKEW_SECONDS
            && expires + SKEW_SECONDS >= now
            && expires.saturating_sub(issued) <= ASSERTION_SECONDS_MAX;
        if !is_timely {
            return Err("Invalid JWT: Token must be a short-lived token");
        }
        let text = |name: &str| claims.get(name).and_then(Value::as_str).unwrap_or_default();
        if text("iss").is_empty() || text("scope") != SCOPE {
            return Err("Invalid JWT: iss and scope are needed");
        }
        // By which name a client reaches this machine is not known here.
        if !text("aud").starts_with("https://") || !text("aud").ends_with(TOKEN_PATH) {
            return Err("Invalid JWT: the audience is another");
        }
        Ok(())
    }

    fn issue(&self, now_us: u64) -> Option<String> {
        let mut bytes = [0; 24];
        rand::fill(&mut bytes).ok()?;
        let token = format!("ya29.{}", BASE64_URL_SAFE_NO_PAD.encode(bytes));
        let lifetime_us = u64::try_from(self.lifetime.as_micros()).unwrap_or(u64::MAX);
        let mut until_us = self.until_us.lock().unwrap_or_else(PoisonError::into_inner);
        if until_us.len() >= TOKENS_MAX {
            // A client whose token is refused asks for another one.
            until_us.clear();
        }
        let header = format!("Bearer {token}").into_bytes();
        until_us.insert(header, now_us.saturating_add(lifetime_us));
        Some(token)
    }
}

// === impl Bearer ===

impl Bearer {
    /// True if the request brings a token that is good.
    pub(super) fn is_known(&self, tokens: &FcmTokens, headers: &Fields, now_us: u64) -> bool {
        let Some(authorization) = headers.get("authorization") else { return false };
        let mut last = self.0.borrow_mut();
        // The lock that all threads share is taken once for each new token.
        if last.as_ref().is_none_or(|(known, _)| known != authorization) {
            let all = tokens.until_us.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(until_us) = all.get(authorization) else { return false };
            *last = Some((authorization.to_owned(), *until_us));
        }
        last.as_ref().is_some_and(|(_, until_us)| now_us < *until_us)
    }
}

fn part(text: &str) -> Option<Value> {
    serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(text).ok()?).ok()
}
