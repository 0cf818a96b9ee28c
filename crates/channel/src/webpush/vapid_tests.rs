//! Tokens, read by another library.

use std::collections::HashSet;

use aws_lc_rs::encoding::{AsDer as _, EcPrivateKeyRfc5915Der};
use base64::prelude::BASE64_STANDARD;
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use serde_json::Value;

use super::*;

const NOW_SECONDS: u64 = 1_800_000_000;

fn vapid() -> Vapid {
    let key = VapidKey::generate().unwrap();
    Vapid::new(key.private.expose(), "mailto:ops@example.com").unwrap()
}

fn at(minutes: u64) -> Timestamp {
    let start = Timestamp::from_millis(i64::try_from(NOW_SECONDS * 1_000).unwrap());
    start.plus(Duration::from_mins(minutes))
}

/// The claims of a header, whose signature another library has verified.
fn read(authorization: &HeaderValue) -> Value {
    let text = authorization.to_str().unwrap().strip_prefix("vapid t=").unwrap();
    let (token, public) = text.split_once(", k=").unwrap();
    let point = BASE64_URL_SAFE_NO_PAD.decode(public).unwrap();
    assert_eq!((point.len(), point[0]), (65, 4));
    let [x, y] = [&point[1..33], &point[33..]].map(|part| BASE64_URL_SAFE_NO_PAD.encode(part));
    let key = DecodingKey::from_ec_components(&x, &y).unwrap();
    let mut validation = Validation::new(Algorithm::ES256);
    // The test has a time of its own.
    validation.validate_exp = false;
    validation.set_audience(&["https://push.example"]);
    let token = jsonwebtoken::decode::<Value>(token, &key, &validation).unwrap();
    assert_eq!(token.header.typ.as_deref(), Some("JWT"));
    token.claims
}

#[test]
fn another_library_verifies_who_sends_whereto_and_until_when() {
    let vapid = vapid();
    let Proof { authorization, .. } = vapid.proof("https://push.example", at(0)).unwrap();
    assert!(authorization.is_sensitive());
    let expect = serde_json::json!({
        "aud": "https://push.example",
        "exp": NOW_SECONDS + 12 * 3600,
        "sub": "mailto:ops@example.com",
    });
    assert_eq!(read(&authorization), expect);
}

#[test]
fn a_token_is_kept_for_half_its_life_and_for_its_origin() {
    let vapid = vapid();
    let token = |origin, minutes| vapid.proof(origin, at(minutes)).unwrap().authorization;
    let first = token("https://push.example", 0);
    assert_eq!(token("https://push.example", 359), first);
    assert_ne!(token("https://push.example", 360), first);
    assert_ne!(token("https://other.example", 0), first);
}

#[test]
fn a_key_that_was_accepted_stays_so_with_the_next_token_and_for_its_origin() {
    let vapid = vapid();
    let proof = |origin, minutes| vapid.proof(origin, at(minutes)).unwrap();
    let first = proof("https://push.example", 0);
    assert!(!first.is_accepted());
    first.accepted();
    assert!(proof("https://push.example", 1).is_accepted());
    assert!(proof("https://push.example", 360).is_accepted());
    assert!(!proof("https://other.example", 0).is_accepted());
}

#[test]
fn the_tokens_kept_are_bounded_and_the_oldest_goes() {
    let vapid = vapid();
    let origins: Vec<_> = (0..=TOKENS_MAX).map(|i| format!("https://{i}.example")).collect();
    let made: Vec<_> = (0..)
        .zip(&origins)
        .map(|(i, origin)| {
            vapid.proof(origin, at(0).plus(Duration::from_millis(i))).unwrap().authorization
        })
        .collect();
    assert_eq!(vapid.tokens.lock().unwrap().len(), TOKENS_MAX);
    assert_eq!(made.iter().collect::<HashSet<_>>().len(), origins.len());
    let again = |i: usize| vapid.proof(&origins[i], at(1)).unwrap().authorization == made[i];
    assert!(again(1) && again(TOKENS_MAX) && !again(0));
}

#[test]
fn a_key_is_read_in_every_usual_form() {
    let pem = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap().serialize_pem();
    let from_file = Vapid::new(&pem, "mailto:a@b.c").unwrap();
    let number: EcPrivateKeyBin<'_> = from_file.key.private_key().as_be_bytes().unwrap();
    let number = BASE64_URL_SAFE_NO_PAD.encode(number.as_ref());
    assert_eq!(Vapid::new(&number, "mailto:a@b.c").unwrap().public, from_file.public);
    let der: EcPrivateKeyRfc5915Der<'_> = from_file.key.private_key().as_der().unwrap();
    let body = BASE64_STANDARD.encode(der.as_ref());
    let sec1 = format!("-----BEGIN EC PRIVATE KEY-----\n{body}\n-----END EC PRIVATE KEY-----\n");
    assert_eq!(Vapid::new(&sec1, "mailto:a@b.c").unwrap().public, from_file.public);
}

#[test]
fn what_is_no_key_is_refused_without_showing_it() {
    let other = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap().serialize_pem();
    let zero = BASE64_URL_SAFE_NO_PAD.encode([0; 32]);
    let check = |key: &str, expect: &str| {
        let message = Vapid::new(key, "mailto:a@b.c").unwrap_err();
        assert!(message.contains(expect), "{message}");
    };
    check("canary!", "neither PEM nor base64url");
    check("c2hvcnQ", "not the 32 bytes");
    check(&zero, "not the 32 bytes");
    check(&other, "not a P-256 key");
    check("-----BEGIN NONSENSE-----", "not a PEM file");
}
