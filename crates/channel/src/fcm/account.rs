//! A service account: its identity, and the assertions it signs (RFC 7523, RS256).

use std::fmt;

use aws_lc_rs::signature::RsaKeyPair;
use notification::Timestamp;
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject as _;
use serde::Deserialize;

use crate::jwt::{jwt, sign_rsa};

/// A service account, as the JSON file that Google hands out describes it.
pub(super) struct ServiceAccount {
    pub(super) project_id: String,
    pub(super) token_uri: String,
    client_email: String,
    key_id: String,
    key: RsaKeyPair,
}

/// The file's content. What it holds besides is of no use here.
#[derive(Deserialize)]
struct File {
    #[serde(rename = "type")]
    kind: String,
    project_id: String,
    private_key_id: String,
    private_key: String,
    client_email: String,
    token_uri: String,
}

const SCOPE: &str = "https://www.googleapis.com/auth/firebase.messaging";
/// How long an assertion is good: the longest that Google takes.
const ASSERTION_SECONDS: i64 = 3600;

// === impl ServiceAccount ===

impl ServiceAccount {
    /// Reads the file's content.
    pub(super) fn read(json: &str) -> Result<Self, String> {
        // The message of the parser could show a piece of the key.
        let file: File = serde_json::from_str(json).map_err(|error| {
            format!(
                "is not a service account's key (JSON with type, project_id, private_key_id, private_key, client_email \
                 and token_uri): line {}, column {}",
                error.line(),
                error.column()
            )
        })?;
        if file.kind != "service_account" {
            return Err(
                "is of another type than service_account: make a key for one in the console"
                    .to_owned(),
            );
        }
        let key = PrivatePkcs8KeyDer::from_pem_slice(file.private_key.as_bytes())
            .ok()
            .and_then(|der| RsaKeyPair::from_pkcs8(der.secret_pkcs8_der()).ok())
            .ok_or("has a private_key that is not an RSA key in PEM")?;
        Ok(Self {
            project_id: file.project_id,
            token_uri: file.token_uri,
            client_email: file.client_email,
            key_id: file.private_key_id,
            key,
        })
    }

    /// The assertion that is exchanged for an access token at `audience`; `None` when the key does not sign.
    pub(super) fn assertion(&self, audience: &str, now: Timestamp) -> Option<String> {
        let issued = now.seconds();
        let header = serde_json::json!({ "alg": "RS256", "typ": "JWT", "kid": self.key_id });
        let claims = serde_json::json!({
            "iss": self.client_email,
            "scope": SCOPE,
            "aud": audience,
            "iat": issued,
            "exp": issued + ASSERTION_SECONDS,
        });
        jwt(&header, &claims, |signed| sign_rsa(&self.key, signed))
    }
}

impl fmt::Debug for ServiceAccount {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ServiceAccount")
            .field("project_id", &self.project_id)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use base64::Engine as _;
    use base64::prelude::BASE64_URL_SAFE_NO_PAD;

    use super::*;
    use std::sync::LazyLock;

    static KEY: LazyLock<rcgen::KeyPair> = LazyLock::new(|| {
        rcgen::KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, rcgen::RsaKeySize::_2048).unwrap()
    });

    /// The JSON file of an account, with some members changed.
    pub(in crate::fcm) fn account_json(more: &serde_json::Value) -> String {
        let mut json = serde_json::json!({
            "type": "service_account",
            "project_id": "shop-1a2b3",
            "private_key_id": "0123456789abcdef",
            "private_key": KEY.serialize_pem(),
            "client_email": "push@shop-1a2b3.iam.gserviceaccount.com",
            "client_id": "1",
            "token_uri": "https://oauth2.googleapis.com/token",
        });
        for (name, value) in more.as_object().unwrap() {
            json[name] = value.clone();
        }
        json.to_string()
    }

    /// The content of a JWT, if the arithmetic of RFC 8017 (section 8.2.2) says that the owner of `key` signed it.
    fn verify(jwt: &str, key: &RsaKeyPair) -> Option<[serde_json::Value; 2]> {
        use aws_lc_rs::signature::KeyPair as _;
        use num_bigint::BigUint;
        use sha2::Digest as _;

        const SHA256_PREFIX: &[u8] = &[
            0x30, 0x31, 0x30, 0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02,
            0x01, 0x05, 0x00, 0x04, 0x20,
        ];
        let decode = |text: &str| BASE64_URL_SAFE_NO_PAD.decode(text).unwrap();
        let (signed, signature) = jwt.rsplit_once('.').unwrap();
        let number = |bytes: &[u8]| BigUint::from_bytes_be(bytes);
        // A sequence of two integers, of 257 bytes (the first of them zero) and of 3.
        let public = key.public_key().as_ref();
        assert_eq!((public.len(), &public[4..9]), (270, [2, 0x82, 1, 1, 0].as_slice()));
        let (modulus, exponent) = (&public[9..265], &public[267..]);
        let digest = sha2::Sha256::digest(signed);
        let padding = vec![0xff; modulus.len() - 3 - SHA256_PREFIX.len() - digest.len()];
        let expect = [&[0, 1], &*padding, &[0], SHA256_PREFIX, &digest].concat();
        let found = number(&decode(signature)).modpow(&number(exponent), &number(modulus));
        let (header, claims) = signed.split_once('.').unwrap();
        let parts = [header, claims].map(|part| serde_json::from_slice(&decode(part)).unwrap());
        (found == number(&expect)).then_some(parts)
    }

    #[test]
    fn an_assertion_says_what_google_wants_and_verifies_by_another_library() {
        let account = ServiceAccount::read(&account_json(&serde_json::json!({}))).unwrap();
        let now = Timestamp::from_millis(1_700_000_000_999);
        let jwt = account.assertion("https://oauth2.googleapis.com/token", now).unwrap();
        let [header, claims] = verify(&jwt, &account.key).unwrap();
        let kid = "0123456789abcdef";
        assert_eq!(header, serde_json::json!({ "alg": "RS256", "typ": "JWT", "kid": kid }));
        let expect = serde_json::json!({
            "iss": "push@shop-1a2b3.iam.gserviceaccount.com",
            "scope": "https://www.googleapis.com/auth/firebase.messaging",
            "aud": "https://oauth2.googleapis.com/token",
            "iat": 1_700_000_000,
            "exp": 1_700_003_600,
        });
        assert_eq!(claims, expect);
        let later = account.assertion("x", now).unwrap();
        let mixed =
            format!("{}.{}", jwt.rsplit_once('.').unwrap().0, later.rsplit_once('.').unwrap().1);
        assert_eq!(verify(&mixed, &account.key), None, "a signature of something else");
    }

    #[test]
    fn what_is_no_account_is_refused_without_showing_it() {
        let check = |json: &str, expect: &str| {
            let message = ServiceAccount::read(json).unwrap_err();
            assert!(message.contains(expect) && !message.contains("PRIVATE"), "{message}");
        };
        check("", "is not a service account's key");
        check("-----BEGIN PRIVATE KEY-----", "is not a service account's key");
        check(&account_json(&serde_json::json!({ "type": "authorized_user" })), "another type");
        check(&account_json(&serde_json::json!({ "private_key": "x" })), "not an RSA key");
        check(
            &account_json(&serde_json::json!({ "private_key": 7 })),
            "is not a service account's key",
        );
        let elliptic = rcgen::KeyPair::generate().unwrap().serialize_pem();
        check(&account_json(&serde_json::json!({ "private_key": elliptic })), "not an RSA key");
    }
}
