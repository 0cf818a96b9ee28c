//! Secrets stay out of logs: a text whose `Debug` form hides it, and the removal of credentials from answers. Some servers
//! repeat the request that they refuse, credentials included, and the beginning of an answer is kept.

use std::borrow::Cow;
use std::fmt;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};
use serde::Deserialize;

/// Replaces a secret.
const HIDDEN: &[u8] = b"[hidden]";
/// The least part of a secret that is recognized, bytes. Secrets are not always whole: servers cut what they repeat, and
/// answers are cut here.
const RECOGNIZED_BYTES: usize = 8;

/// A text that must not be seen: its `Debug` form hides it.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

/// The headers of a request that prove who sends it: `authorization`, and each that is marked as sensitive.
#[derive(Debug)]
pub struct CredentialHeaders(Vec<HeaderValue>);

// === impl Secret ===

impl Secret {
    /// Hides `text`.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text, for what has to send or use it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("[secret]")
    }
}

// === impl CredentialHeaders ===

impl CredentialHeaders {
    /// The credentials among `headers`.
    pub fn of(headers: &HeaderMap) -> Self {
        let is_credential =
            |(name, value): &(_, &HeaderValue)| *name == AUTHORIZATION || value.is_sensitive();
        Self(headers.iter().filter(is_credential).map(|(_, value)| value.clone()).collect())
    }

    /// Removes them from `text`, whole or in part: `Bearer TOKEN` as well as `TOKEN`.
    pub fn remove_from(&self, text: &mut Vec<u8>) {
        if text.is_empty() {
            return;
        }
        let mut secrets: Vec<Cow<'_, [u8]>> = Vec::new();
        for header in &self.0 {
            secrets.push(header.as_bytes().into());
            // Servers repeat a token without its scheme, or one of its parts, so each part is a secret of its own.
            let parts = header.as_bytes().split(|byte| b" ,;=".contains(byte));
            secrets.extend(parts.filter(|part| part.len() >= RECOGNIZED_BYTES).map(Cow::Borrowed));
            // It is sent encoded, and a server that has read it may show it decoded.
            secrets.extend(password(header).map(Cow::Owned));
        }
        if let Some(shown) = without(text, &secrets) {
            *text = shown;
        }
    }
}

/// `text` without each part that begins like one of `secrets`; `None` when there is none.
pub fn without<Secret: AsRef<[u8]>>(text: &[u8], secrets: &[Secret]) -> Option<Vec<u8>> {
    let mut shown = Vec::with_capacity(text.len());
    let (mut rest, mut is_changed) = (text, false);
    while let Some((first, behind)) = rest.split_first() {
        let lengths = secrets.iter().map(|secret| common(rest, secret.as_ref()));
        // The longest, since secrets may begin alike, as tokens do.
        match lengths.max().unwrap_or(0) {
            0 => {
                shown.push(*first);
                rest = behind;
            }
            length => {
                shown.extend_from_slice(HIDDEN);
                rest = rest.get(length..).unwrap_or_default();
                is_changed = true;
            }
        }
    }
    is_changed.then_some(shown)
}

/// How much of `secret` stands at the beginning of `text`; 0 when it is too little to tell.
fn common(text: &[u8], secret: &[u8]) -> usize {
    let length = text.iter().zip(secret).take_while(|(byte, other)| byte == other).count();
    if length >= secret.len().min(RECOGNIZED_BYTES) { length } else { 0 }
}

/// The password in a header of the scheme `Basic` (RFC 7617).
fn password(header: &HeaderValue) -> Option<Vec<u8>> {
    let (scheme, encoded) = header.to_str().ok()?.split_once(' ')?;
    let decoded = BASE64_STANDARD.decode(encoded.trim()).ok();
    let decoded = decoded.filter(|_| scheme.eq_ignore_ascii_case("basic"))?;
    let colon = decoded.iter().position(|byte| *byte == b':')?;
    decoded.get(colon + 1..).filter(|password| !password.is_empty()).map(<[u8]>::to_vec)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redacted(headers: &[(&'static str, &str)], text: &str) -> String {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let mut value: HeaderValue = value.parse().unwrap();
            value.set_sensitive(*name == "x-key");
            map.append(*name, value);
        }
        let mut text = text.as_bytes().to_vec();
        CredentialHeaders::of(&map).remove_from(&mut text);
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn a_secret_does_not_show() {
        assert_eq!(format!("{:?}", Secret::new("canary")), "[secret]");
    }

    #[test]
    fn credentials_are_removed_whole_and_in_part() {
        let headers =
            [("authorization", "Bearer canary.canary"), ("x-key", "k1"), ("x-request", "12345678")];
        let check = |text: &str, expect: &str| assert_eq!(redacted(&headers, text), expect);
        check("", "");
        check("no such user", "no such user");
        check("bad: Bearer canary.canary!", "bad: [hidden]!");
        check("canary.canary twice: canary.canary", "[hidden] twice: [hidden]");
        check("cut short: canary.ca", "cut short: [hidden]");
        check("canary.", "canary.");
        check("k1k12", "[hidden][hidden]2");
        check("request 12345678", "request 12345678");
    }

    #[test]
    fn every_scheme_has_parts_of_its_own() {
        let vapid = [("authorization", "vapid t=eyJ0eXAi.b.c, k=BPublicKey")];
        assert_eq!(redacted(&vapid, "token eyJ0eXAi.b.c of k"), "token [hidden] of k");
        let basic = BASE64_STANDARD.encode("me:canary");
        let basic = [("authorization", &*format!("Basic {basic}"))];
        assert_eq!(
            redacted(&basic, "me has canary or bWU6Y2FuYXJ5"),
            "me has [hidden] or [hidden]"
        );
        assert_eq!(redacted(&[("authorization", "")], "anything"), "anything");
    }
}
