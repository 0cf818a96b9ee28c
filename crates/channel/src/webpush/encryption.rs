//! The encryption of one message for one subscription: RFC 8291, which is the content coding `aes128gcm` of
//! RFC 8188 with a single record and keys that only the two ends can derive.
//!
//! ```text
//! salt 16 | record size 4 | length of the key 1 | our key 65 | plaintext, 0x02, padding | tag 16
//! ```
//!
//! Salt and key pair are fresh for every message. That costs two multiplications on the curve per message,
//! which is most of what a Web Push costs: see `bench/README.md`.

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::agreement::{ECDH_P256, PrivateKey, UnparsedPublicKey, agree};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::{hkdf, rand};

use super::subscription::{POINT_BYTES, SubscriptionKeys};

/// The longest plaintext: what is left of the 4,096 bytes that every push service takes (RFC 8030, section
/// 7.2) after the header, the delimiter and the tag.
pub(super) const PLAINTEXT_BYTES_MAX: usize =
    BODY_BYTES_MAX - HEADER_BYTES - DELIMITER_BYTES - TAG_BYTES;

const BODY_BYTES_MAX: usize = 4_096;
const SALT_BYTES: usize = 16;
const HEADER_BYTES: usize = SALT_BYTES + 4 + 1 + POINT_BYTES;
const DELIMITER_BYTES: usize = 1;
const TAG_BYTES: usize = 16;
const SECRET_BYTES: usize = 32;
/// Larger than any record of ours, so that it is the last one (RFC 8291, section 4).
const RECORD_BYTES: u32 = 4_096;
/// Ends the plaintext of the last record (RFC 8188, section 2).
const LAST_RECORD: u8 = 2;

/// The random parts of one message.
#[derive(Debug)]
pub(super) struct Ephemeral {
    key: PrivateKey,
    salt: [u8; SALT_BYTES],
}

/// The length of a nonce, as `hkdf` wants to have it.
#[derive(Debug, Clone, Copy)]
struct NonceLength;

// === impl Ephemeral ===

impl Ephemeral {
    /// A fresh one. Fails when the system has no random numbers.
    pub(super) fn generate() -> Result<Self, Unspecified> {
        let mut salt = [0; SALT_BYTES];
        rand::fill(&mut salt)?;
        Ok(Self { key: PrivateKey::generate(&ECDH_P256)?, salt })
    }
}

// === impl NonceLength ===

impl hkdf::KeyType for NonceLength {
    fn len(&self) -> usize {
        aws_lc_rs::aead::NONCE_LEN
    }
}

/// Encrypts `plaintext` for the subscription with `keys`, padded to a multiple of `pad_to` bytes as far as there is
/// room. The result is the body of a request.
///
/// Fails when the subscription's point is not on the curve, or the plaintext is too long.
pub(super) fn encrypt(
    plaintext: &[u8],
    keys: &SubscriptionKeys,
    ephemeral: &Ephemeral,
    pad_to: usize,
) -> Result<Vec<u8>, Unspecified> {
    let padded_bytes = padded(plaintext.len(), pad_to)?;
    let public = ephemeral.key.compute_public_key()?;
    let secret = shared_secret(keys, &ephemeral.key, public.as_ref())?;
    let random = hkdf::Salt::new(hkdf::HKDF_SHA256, &ephemeral.salt).extract(&secret);
    let key = random.expand(&[b"Content-Encoding: aes128gcm\0"], &AES_128_GCM)?;
    let key = LessSafeKey::new(UnboundKey::from(key));
    let mut nonce = [0; aws_lc_rs::aead::NONCE_LEN];
    random.expand(&[b"Content-Encoding: nonce\0"], NonceLength)?.fill(&mut nonce)?;

    let mut body = Vec::with_capacity(HEADER_BYTES + padded_bytes + DELIMITER_BYTES + TAG_BYTES);
    body.extend_from_slice(&ephemeral.salt);
    body.extend_from_slice(&RECORD_BYTES.to_be_bytes());
    // 65 bytes of an uncompressed point: their number fits into the one byte that it has.
    body.extend(u8::try_from(public.as_ref().len()));
    body.extend_from_slice(public.as_ref());
    body.extend_from_slice(plaintext);
    body.push(LAST_RECORD);
    // Zeros behind the delimiter are the padding (RFC 8188, section 2).
    body.resize(HEADER_BYTES + padded_bytes + DELIMITER_BYTES, 0);
    let record = body.get_mut(HEADER_BYTES..).ok_or(Unspecified)?;
    // Salt and key pair are fresh, so this nonce meets this key once.
    let nonce = Nonce::assume_unique_for_key(nonce);
    let tag = key.seal_in_place_separate_tag(nonce, Aad::empty(), record)?;
    body.extend_from_slice(tag.as_ref());
    Ok(body)
}

/// The keys that both ends derive from each other's keys and the subscription's secret (RFC 8291, section 3.4).
fn shared_secret(
    keys: &SubscriptionKeys,
    ours: &PrivateKey,
    our_public: &[u8],
) -> Result<[u8; SECRET_BYTES], Unspecified> {
    let theirs = UnparsedPublicKey::new(&ECDH_P256, keys.p256dh.as_slice());
    agree(ours, theirs, Unspecified, |agreed| {
        let mut secret = [0; SECRET_BYTES];
        let info = [b"WebPush: info\0".as_slice(), &keys.p256dh, our_public];
        hkdf::Salt::new(hkdf::HKDF_SHA256, &keys.auth)
            .extract(agreed)
            .expand(&info, hkdf::HKDF_SHA256)?
            .fill(&mut secret)?;
        Ok(secret)
    })
}

/// How long a plaintext of `bytes` becomes.
fn padded(bytes: usize, pad_to: usize) -> Result<usize, Unspecified> {
    if bytes > PLAINTEXT_BYTES_MAX {
        return Err(Unspecified);
    }
    Ok(bytes.next_multiple_of(pad_to.max(1)).min(PLAINTEXT_BYTES_MAX))
}

#[cfg(test)]
#[path = "encryption_tests.rs"]
mod tests;
