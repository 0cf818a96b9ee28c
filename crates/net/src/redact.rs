//! What we prove ourselves by, taken out of what others say: some servers repeat the request that they complain of.

use std::borrow::Cow;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};

/// Stands in its place.
const HIDDEN: &[u8] = b"[hidden]";
/// So much of a secret is recognized where it is not whole: answers are cut short, by others and by us.
const RECOGNIZED_BYTES: usize = 8;

/// The headers of a request that prove who sends it: `authorization`, and whatever is marked as sensitive.
#[derive(Debug)]
pub(crate) struct Proofs(Vec<HeaderValue>);

// === impl Proofs ===

impl Proofs {
    /// Those among `headers`.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let is_proof =
            |(name, value): &(_, &HeaderValue)| *name == AUTHORIZATION || value.is_sensitive();
        Self(headers.iter().filter(is_proof).map(|(_, value)| value.clone()).collect())
    }

    /// Takes them out of `text`, whole or in part: `Bearer TOKEN` as well as `TOKEN`.
    pub(crate) fn hide(&self, text: &mut Vec<u8>) {
        if text.is_empty() {
            return;
        }
        let mut secrets: Vec<Cow<'_, [u8]>> = Vec::new();
        for proof in &self.0 {
            secrets.push(proof.as_bytes().into());
            let parts = proof.as_bytes().split(|byte| b" ,;=".contains(byte));
            secrets.extend(parts.filter(|part| part.len() >= RECOGNIZED_BYTES).map(Cow::Borrowed));
            secrets.extend(password(proof).map(Cow::Owned));
        }
        if let Some(shown) = without(text, &secrets) {
            *text = shown;
        }
    }
}

/// `text` without what begins like one of `secrets`; `None` when nothing does.
pub(crate) fn without<Secret: AsRef<[u8]>>(text: &[u8], secrets: &[Secret]) -> Option<Vec<u8>> {
    let mut shown = Vec::with_capacity(text.len());
    let (mut rest, mut is_changed) = (text, false);
    while let Some((first, behind)) = rest.split_first() {
        let lengths = secrets.iter().map(|secret| common(rest, secret.as_ref()));
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

    fn hidden(headers: &[(&'static str, &str)], text: &str) -> String {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let mut value: HeaderValue = value.parse().unwrap();
            value.set_sensitive(*name == "x-key");
            map.append(*name, value);
        }
        let mut text = text.as_bytes().to_vec();
        Proofs::of(&map).hide(&mut text);
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn what_proves_us_is_hidden_whole_and_in_part() {
        let headers =
            [("authorization", "Bearer canary.canary"), ("x-key", "k1"), ("x-request", "12345678")];
        let check = |text: &str, expect: &str| assert_eq!(hidden(&headers, text), expect);
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
        assert_eq!(hidden(&vapid, "token eyJ0eXAi.b.c of k"), "token [hidden] of k");
        let basic = BASE64_STANDARD.encode("me:canary");
        let basic = [("authorization", &*format!("Basic {basic}"))];
        assert_eq!(hidden(&basic, "me has canary or bWU6Y2FuYXJ5"), "me has [hidden] or [hidden]");
        assert_eq!(hidden(&[("authorization", "")], "anything"), "anything");
    }
}
