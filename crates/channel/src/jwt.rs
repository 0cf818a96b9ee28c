//! Signed tokens (RFC 7519), by which a sender proves to a provider who it is.

use aws_lc_rs::error::Unspecified;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde_json::Value;

/// The token with `header` and `claims`, which `sign` signs; `None` when the key does not sign.
pub(crate) fn jwt<Signature: AsRef<[u8]>>(
    header: &Value,
    claims: &Value,
    sign: impl FnOnce(&[u8]) -> Result<Signature, Unspecified>,
) -> Option<String> {
    let encode = |part: &Value| BASE64_URL_SAFE_NO_PAD.encode(part.to_string());
    let signed = format!("{}.{}", encode(header), encode(claims));
    let signature = sign(signed.as_bytes()).ok()?;
    Some(format!("{signed}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature)))
}

/// The signature of `message` by an RSA key, with SHA-256.
pub(crate) fn sign_rsa(key: &RsaKeyPair, message: &[u8]) -> Result<Vec<u8>, Unspecified> {
    // A signature has as many bytes as the key's modulus (RFC 8017, section 8.2.1).
    let mut signature = vec![0; key.public_modulus_len()];
    key.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), message, &mut signature)?;
    Ok(signature)
}
