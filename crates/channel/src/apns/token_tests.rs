//! How a token is made, shared and kept.

use super::*;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

fn key_pem() -> String {
    rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap().serialize_pem()
}

fn signer(key_pem: &str) -> TokenSigner<'_> {
    TokenSigner { key_pem, key_id: "KEY0123456", team_id: "TEAM012345" }
}

fn token() -> ProviderToken {
    ProviderToken::new(signer(&key_pem())).unwrap()
}

fn at(minutes: u64) -> Timestamp {
    Timestamp::from_millis(1_700_000_000_000).plus(Duration::from_mins(minutes))
}

/// A token of a process that starts now, kept in `directory`.
fn kept(signer: TokenSigner<'_>, directory: &Path) -> Arc<ProviderToken> {
    let file = StateFile::new(directory, signer.team_id, signer.key_id);
    ProviderTokens::default().of(signer, Some(file)).unwrap()
}

fn only_file(directory: &Path) -> std::path::PathBuf {
    let mut files = fs::read_dir(directory).unwrap();
    let file = files.next().unwrap().unwrap().path();
    assert!(files.next().is_none(), "something was left behind");
    file
}

#[test]
fn a_token_says_who_signed_what_and_when_and_verifies_by_another_library() {
    use p256::ecdsa::signature::Verifier as _;
    use p256::ecdsa::{Signature, VerifyingKey};

    let token = token();
    let authorization = token.authorization(at(0)).unwrap();
    assert!(authorization.is_sensitive());
    let jwt = authorization.to_str().unwrap().strip_prefix("bearer ").unwrap();
    let parts: Vec<&str> = jwt.split('.').collect();
    let json = |part: &str| -> serde_json::Value {
        serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap()
    };
    assert_eq!(json(parts[0]), serde_json::json!({ "alg": "ES256", "kid": "KEY0123456" }));
    assert_eq!(json(parts[1]), serde_json::json!({ "iss": "TEAM012345", "iat": 1_700_000_000 }));
    let key = VerifyingKey::from_sec1_bytes(token.key.public_key().as_ref()).unwrap();
    let signature = BASE64_URL_SAFE_NO_PAD.decode(parts[2]).unwrap();
    let signature = Signature::from_slice(&signature).unwrap();
    let signed = format!("{}.{}", parts[0], parts[1]);
    assert!(key.verify(signed.as_bytes(), &signature).is_ok());
    assert!(key.verify(b"something else", &signature).is_err());
}

#[test]
fn a_token_is_kept_for_fifty_minutes() {
    let token = token();
    let first = token.authorization(at(0)).unwrap();
    assert_eq!(token.authorization(at(49)).unwrap(), first);
    assert_ne!(token.authorization(at(50)).unwrap(), first);
}

#[test]
fn a_token_from_the_future_is_not_used_after_the_clock_was_set_back() {
    let key = key_pem();
    let token = ProviderToken::new(signer(&key)).unwrap();
    let first = token.authorization(at(30)).unwrap();
    assert_eq!(token.authorization(at(29)).unwrap(), first, "clocks are mended by seconds");
    assert_ne!(token.authorization(at(5)).unwrap(), first);
}

#[test]
fn an_expired_answer_renews_once_and_never_within_twenty_minutes() {
    let token = token();
    let first = token.authorization(at(0)).unwrap();
    token.expired(&first, at(19));
    assert_eq!(token.authorization(at(19)).unwrap(), first, "too soon");
    token.expired(&first, at(20));
    let second = token.authorization(at(20)).unwrap();
    assert_ne!(second, first);
    token.expired(&first, at(45));
    assert_eq!(token.authorization(at(45)).unwrap(), second, "said of the old one");
}

#[test]
fn channels_with_the_same_team_and_key_share_one_token() {
    let tokens = ProviderTokens::default();
    let (one, other) = (key_pem(), key_pem());
    let first = tokens.of(signer(&one), None).unwrap();
    let check = |signer: TokenSigner<'_>, is_shared: bool| {
        let token = tokens.of(signer, None).unwrap();
        assert_eq!(Arc::ptr_eq(&token, &first), is_shared, "{signer:?}");
    };
    check(signer(&one), true);
    check(signer(&other), false);
    check(TokenSigner { key_id: "KEY9999999", ..signer(&one) }, false);
    check(TokenSigner { team_id: "TEAM999999", ..signer(&one) }, false);
}

#[test]
fn a_restart_goes_on_with_the_token_of_before_for_as_long_as_it_is_young() {
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state");
    let key = key_pem();
    let first = kept(signer(&key), &state).authorization(at(0)).unwrap();
    for minutes in [0, 10, 49] {
        let again = kept(signer(&key), &state).authorization(at(minutes)).unwrap();
        assert_eq!(again, first, "after {minutes} minutes");
        assert!(again.is_sensitive());
    }
    let second = kept(signer(&key), &state).authorization(at(50)).unwrap();
    assert_ne!(second, first);
    assert_eq!(kept(signer(&key), &state).authorization(at(51)).unwrap(), second);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&state), mode(&only_file(&state))), (0o700, 0o600));
}

#[test]
fn a_token_that_is_not_ours_is_not_used() {
    let directory = tempfile::tempdir().unwrap();
    let (one, other) = (key_pem(), key_pem());
    let first = kept(signer(&one), directory.path()).authorization(at(0)).unwrap();
    let file = only_file(directory.path());
    let jwt = fs::read_to_string(&file).unwrap();
    let check = |key: &str, text: &str, now: Timestamp, is_used: bool| {
        fs::write(&file, text).unwrap();
        let found = kept(signer(key), directory.path()).authorization(now).unwrap();
        assert_eq!(found == first, is_used, "{text}");
    };
    check(&one, &jwt, at(1), true);
    check(&other, &jwt, at(1), false);
    check(&one, "", at(1), false);
    check(&one, "a.b.c", at(1), false);
    check(&one, &jwt.replacen('.', ".x", 1), at(1), false);
    check(&one, &"x".repeat(10_000), at(1), false);
    check(&one, &jwt, Timestamp::from_millis(1_600_000_000_000), false);
    fs::write(&file, &jwt).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    assert_ne!(kept(signer(&one), directory.path()).authorization(at(1)).unwrap(), first);
}

#[test]
fn a_token_that_apns_called_expired_is_not_read_again() {
    let directory = tempfile::tempdir().unwrap();
    let key = key_pem();
    let token = kept(signer(&key), directory.path());
    let first = token.authorization(at(0)).unwrap();
    token.expired(&first, at(30));
    assert_ne!(token.authorization(at(30)).unwrap(), first);
}

#[test]
fn what_is_no_key_is_refused() {
    let refused = |key_pem: &str| ProviderToken::new(signer(key_pem)).unwrap_err();
    assert!(refused("nonsense").contains("PEM"));
    let other = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    assert!(refused(&other.serialize_pem()).contains("P-256"));
}
