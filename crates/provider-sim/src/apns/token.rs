//! Provider tokens: ES256 JSON web tokens, each verified once and then known by its text.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, ParsedPublicKey};
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use http::StatusCode;
use rustls::pki_types::SubjectPublicKeyInfoDer;
use rustls::pki_types::pem::PemObject;
use serde_json::Value;

use super::ApnsRejection;
use crate::Error;

const LIFETIME_SECONDS: u64 = 3600;
/// How far the clocks of two machines may disagree.
const FUTURE_SECONDS_MAX: u64 = 300;
/// Known tokens are forgotten beyond this many; one team needs two an hour.
const KNOWN_MAX: usize = 1024;
const US_PER_SECOND: u64 = 1_000_000;

const MISSING: ApnsRejection = (StatusCode::FORBIDDEN, "MissingProviderToken");
const INVALID: ApnsRejection = (StatusCode::FORBIDDEN, "InvalidProviderToken");
const EXPIRED: ApnsRejection = (StatusCode::FORBIDDEN, "ExpiredProviderToken");
const TOO_MANY: ApnsRejection = (StatusCode::TOO_MANY_REQUESTS, "TooManyProviderTokenUpdates");

/// The provider tokens a serving thread has seen.
#[derive(Debug)]
pub(super) struct ApnsTokens {
    public_key: Option<ParsedPublicKey>,
    interval_us: u64,
    known: RefCell<KnownToken>,
}

#[derive(Debug, Default)]
struct KnownToken {
    /// The one used last: mostly all requests bring the same.
    last: Option<(Vec<u8>, u64)>,
    /// Valid `authorization` headers, and when they were issued (seconds).
    issued_s: HashMap<Vec<u8>, u64>,
    /// When each team brought a new token last (microseconds).
    renewed_us: HashMap<String, u64>,
}

struct ApnsClaims {
    team: String,
    issued_s: u64,
}

impl ApnsTokens {
    pub(super) fn new(public_key: Option<&Path>, interval: Duration) -> Result<Self, Error> {
        let interval_us = u64::try_from(interval.as_micros()).unwrap_or(u64::MAX);
        let public_key = public_key.map(read_public_key).transpose()?;
        Ok(Self { public_key, interval_us, known: RefCell::default() })
    }

    /// Checks the value of an `authorization` header.
    pub(super) fn verify(&self, authorization: &[u8], now_us: u64) -> Result<(), ApnsRejection> {
        let mut known = self.known.borrow_mut();
        let issued_s = match &known.last {
            Some((last, issued_s)) if last == authorization => *issued_s,
            _ => {
                let issued_s = match known.issued_s.get(authorization) {
                    Some(issued_s) => *issued_s,
                    None => self.admit(&mut known, authorization, now_us)?,
                };
                known.last = Some((authorization.to_owned(), issued_s));
                issued_s
            }
        };
        // On every request: a token that is known grows old all the same.
        check_age(issued_s, now_us)
    }

    /// Verifies a token not seen before, and remembers it when it is good.
    fn admit(
        &self,
        known: &mut KnownToken,
        authorization: &[u8],
        now_us: u64,
    ) -> Result<u64, ApnsRejection> {
        let token = bearer(authorization).ok_or(MISSING)?;
        let ApnsClaims { team, issued_s } = self.claims(token).ok_or(INVALID)?;
        // Before it counts as a renewal: a token that is refused is none.
        check_age(issued_s, now_us)?;
        let renewed_us = known.renewed_us.get(&team);
        if renewed_us
            .is_some_and(|renewed_us| now_us.saturating_sub(*renewed_us) < self.interval_us)
        {
            return Err(TOO_MANY);
        }
        // Both together: with its renewal remembered and its token forgotten, a team that does nothing wrong would be
        // turned away.
        if known.issued_s.len() >= KNOWN_MAX {
            known.issued_s.clear();
            known.renewed_us.clear();
        }
        known.renewed_us.insert(team, now_us);
        known.issued_s.insert(authorization.to_owned(), issued_s);
        Ok(issued_s)
    }

    /// The claims of a well-formed and, given a key, well-signed token.
    fn claims(&self, token: &str) -> Option<ApnsClaims> {
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, claims) = signed.split_once('.')?;
        let header = json(header)?;
        if header.get("alg")? != "ES256" || header.get("kid")?.as_str()?.is_empty() {
            return None;
        }
        let signature = BASE64_URL_SAFE_NO_PAD.decode(signature).ok()?;
        if let Some(public_key) = &self.public_key {
            public_key.verify_sig(signed.as_bytes(), &signature).ok()?;
        }
        let claims = json(claims)?;
        let team = claims.get("iss")?.as_str()?.to_owned();
        Some(ApnsClaims { team, issued_s: claims.get("iat")?.as_u64()? })
    }
}

fn bearer(authorization: &[u8]) -> Option<&str> {
    let (scheme, token) = str::from_utf8(authorization).ok()?.split_once(' ')?;
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

fn check_age(issued_s: u64, now_us: u64) -> Result<(), ApnsRejection> {
    let now = now_us / US_PER_SECOND;
    if issued_s > now + FUTURE_SECONDS_MAX {
        Err(INVALID)
    } else if issued_s + LIFETIME_SECONDS < now {
        Err(EXPIRED)
    } else {
        Ok(())
    }
}

fn json(part: &str) -> Option<Value> {
    serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(part).ok()?).ok()
}

fn read_public_key(path: &Path) -> Result<ParsedPublicKey, Error> {
    let failed = |reason: String| Error::PublicKey { path: path.to_owned(), reason };
    let key =
        SubjectPublicKeyInfoDer::from_pem_file(path).map_err(|error| failed(error.to_string()))?;
    ParsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, key.as_ref())
        .map_err(|_| failed("it is not a P-256 public key".to_owned()))
}
