//! The provider token: an ES256 JWT that says which team sends.
//!
//! APNs wants it renewed no more than once every 20 minutes and no less than once every 60; more often is
//! answered with `TooManyProviderTokenUpdates`, which makes the connection useless. So one token serves all threads, and
//! all channels that send with the same key for the same team ([`ProviderTokens`]); the first to need it while it is old makes
//! the next one, under the lock. A file keeps it over restarts, so that a process which cannot stay up does not use up
//! what the team may have.

use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _,
    UnparsedPublicKey,
};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use http::HeaderValue;
use notification::Timestamp;
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject as _;
use serde::Deserialize;

use super::state::StateFile;
use crate::is_stale;
use crate::jwt::jwt;

/// Old enough to be renewed, with ten minutes to spare.
const RENEW_AFTER: Duration = Duration::from_mins(50);
/// Too young to be renewed, whatever APNs says about it.
const RENEW_BEFORE_MIN: Duration = Duration::from_mins(20);

/// The provider tokens of one process: channels with the same team and key share one.
#[derive(Debug, Default)]
pub struct ProviderTokens(Mutex<Vec<Weak<ProviderToken>>>);

/// The key that signs, its identifier, and the team.
#[derive(Debug, Clone, Copy)]
pub(super) struct TokenSigner<'a> {
    /// PKCS#8, PEM.
    pub(super) key_pem: &'a str,
    pub(super) key_id: &'a str,
    pub(super) team_id: &'a str,
}

/// Makes and keeps the provider token. Shared by all threads.
#[derive(Debug)]
pub(super) struct ProviderToken {
    key: EcdsaKeyPair,
    key_id: String,
    team_id: String,
    file: OnceLock<StateFile>,
    state: Mutex<TokenCache>,
}

#[derive(Debug, Default)]
struct TokenCache {
    current: Option<SignedToken>,
    /// The last that APNs called expired: not to be read from the file again.
    rejected: Option<HeaderValue>,
}

#[derive(Debug)]
struct SignedToken {
    authorization: HeaderValue,
    at: Timestamp,
}

#[derive(Debug, Deserialize)]
struct Header {
    kid: String,
}

#[derive(Debug, Deserialize)]
struct JwtClaims {
    iss: String,
    iat: i64,
}

const SCHEME: &str = "bearer ";

// === impl ProviderTokens ===

impl ProviderTokens {
    /// The token of `signer`, the same for all that ask while it is in use. `file` keeps it over restarts.
    pub(super) fn of(
        &self,
        signer: TokenSigner<'_>,
        file: Option<StateFile>,
    ) -> Result<Arc<ProviderToken>, &'static str> {
        let token = ProviderToken::new(signer)?;
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Each reload of the settings may leave tokens behind that no channel has any more.
        known.retain(|token| token.strong_count() > 0);
        let shared = known.iter().filter_map(Weak::upgrade).find(|other| other.is_like(&token));
        let token = shared.unwrap_or_else(|| {
            let token = Arc::new(token);
            known.push(Arc::downgrade(&token));
            token
        });
        if let Some(file) = file {
            // One file is enough: the first that was named.
            drop(token.file.set(file));
        }
        Ok(token)
    }
}

// === impl ProviderToken ===

impl ProviderToken {
    fn new(signer: TokenSigner<'_>) -> Result<Self, &'static str> {
        let der = PrivatePkcs8KeyDer::from_pem_slice(signer.key_pem.as_bytes())
            .map_err(|_| "is not a PEM file with a PRIVATE KEY: use the .p8 file from Apple")?;
        let key =
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der.secret_pkcs8_der())
                .map_err(|_| "is not a P-256 key: use the .p8 file from Apple")?;
        Ok(Self {
            key,
            key_id: signer.key_id.to_owned(),
            team_id: signer.team_id.to_owned(),
            file: OnceLock::new(),
            state: Mutex::default(),
        })
    }

    fn is_like(&self, other: &Self) -> bool {
        let names = |token: &Self| (token.key_id.clone(), token.team_id.clone());
        // Of two keys under one identifier one is a mistake, and must not sign for the channel that has the other.
        names(self) == names(other)
            && self.key.public_key().as_ref() == other.key.public_key().as_ref()
    }

    /// The `authorization` header as of `now`; `None` when the key does not sign.
    pub(super) fn authorization(&self, now: Timestamp) -> Option<HeaderValue> {
        // Held over the signature and the file, once in 50 minutes: threads that come meanwhile
        // would make tokens of their own.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_old = |minted: &SignedToken| is_stale(minted.at, now, RENEW_AFTER);
        if state.current.as_ref().is_none_or(is_old) {
            // Another process may have made one since, or we ourselves before a restart.
            let kept =
                self.load(now).filter(|kept| Some(&kept.authorization) != state.rejected.as_ref());
            state.current = Some(match kept {
                Some(kept) => kept,
                None => self.mint_and_keep(now)?,
            });
        }
        state.current.as_ref().map(|minted| minted.authorization.clone())
    }

    /// APNs calls `authorization` expired: the next call of [`ProviderToken::authorization`] makes a new one, unless
    /// that has happened already or would be too soon.
    pub(super) fn expired(&self, authorization: &HeaderValue, now: Timestamp) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // Answers to requests with the former token still arrive after a renewal, and must not end the new one.
        let is_meant = |minted: &SignedToken| {
            minted.authorization == authorization && now.since(minted.at) >= RENEW_BEFORE_MIN
        };
        if state.current.as_ref().is_some_and(is_meant) {
            state.rejected = state.current.take().map(|minted| minted.authorization);
        }
    }

    fn mint_and_keep(&self, now: Timestamp) -> Option<SignedToken> {
        let minted = self.mint(now)?;
        if let Some(file) = self.file.get()
            && let Some(jwt) = minted.authorization.to_str().ok()?.strip_prefix(SCHEME)
        {
            file.write(jwt);
        }
        Some(minted)
    }

    fn mint(&self, now: Timestamp) -> Option<SignedToken> {
        let header = serde_json::json!({ "alg": "ES256", "kid": self.key_id });
        let claims = serde_json::json!({ "iss": self.team_id, "iat": now.seconds() });
        let sign = |signed: &[u8]| self.key.sign(&SystemRandom::new(), signed);
        SignedToken::new(&jwt(&header, &claims, sign)?, now)
    }

    /// The token in the file, if it is ours and young enough.
    fn load(&self, now: Timestamp) -> Option<SignedToken> {
        let jwt = self.file.get()?.read()?;
        let (signed, signature) = jwt.rsplit_once('.')?;
        let (header, claims) = signed.split_once('.')?;
        let decode = |part: &str| BASE64_URL_SAFE_NO_PAD.decode(part).ok();
        let header: Header = serde_json::from_slice(&decode(header)?).ok()?;
        let claims: JwtClaims = serde_json::from_slice(&decode(claims)?).ok()?;
        // The file can hold any number.
        let at = Timestamp::from_millis(claims.iat.checked_mul(1000)?);
        // Only the signature shows that a token out of a file is of this key, and undamaged.
        let is_ours = header.kid == self.key_id
            && claims.iss == self.team_id
            && UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, self.key.public_key().as_ref())
                .verify(signed.as_bytes(), &decode(signature)?)
                .is_ok();
        // A token of the future was made before the clock was set back, and APNs would not take it.
        let is_young = at <= now && now.since(at) < RENEW_AFTER;
        if is_ours && is_young { SignedToken::new(&jwt, at) } else { None }
    }
}

// === impl SignedToken ===

impl SignedToken {
    fn new(jwt: &str, at: Timestamp) -> Option<Self> {
        let mut authorization = HeaderValue::from_str(&format!("{SCHEME}{jwt}")).ok()?;
        // Apple asks for "literal without indexing"; never-indexed is that, and it keeps logs clean.
        authorization.set_sensitive(true);
        Some(Self { authorization, at })
    }
}

#[cfg(test)]
#[path = "token_tests.rs"]
mod tests;
