//! Opens a message as a browser does (RFC 8188 with the keys of RFC 8291), step by step as the standards write it.

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::agreement::{ECDH_P256, UnparsedPublicKey, agree};
use aws_lc_rs::hmac;

use super::subscriber::Subscriber;

const SALT_BYTES: usize = 16;
const KEY_BYTES: usize = 16;
const NONCE_BYTES: usize = 12;
const TAG_BYTES: usize = 16;
const POINT_BYTES: usize = 65;
/// Ends the content of the last record; before it may only come zeros.
const LAST_RECORD: u8 = 2;

/// The content of `body`; `None` when it was not made for `subscriber`, or not in the form that RFC 8291 allows.
pub(super) fn open(body: &[u8], subscriber: &Subscriber) -> Option<Vec<u8>> {
    let (salt, rest) = body.split_at_checked(SALT_BYTES)?;
    let (record_size, rest) = rest.split_first_chunk::<4>()?;
    let (&key_id_bytes, rest) = rest.split_first()?;
    let (sender_public, record) = rest.split_at_checked(usize::from(key_id_bytes))?;
    let record_size = usize::try_from(u32::from_be_bytes(*record_size)).ok()?;
    // One record only, of at least a tag and a delimiter.
    if sender_public.len() != POINT_BYTES || record.len() > record_size || record.len() <= TAG_BYTES
    {
        return None;
    }
    let (key, nonce) = keys(salt, sender_public, subscriber)?;
    let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &key).ok()?);
    let nonce = Nonce::try_assume_unique_for_key(&nonce).ok()?;
    let mut record = record.to_vec();
    let mut content = &*key.open_in_place(nonce, Aad::empty(), &mut record).ok()?;
    while let Some((&last, before)) = content.split_last() {
        match last {
            0 => content = before,
            LAST_RECORD => return Some(before.to_vec()),
            _ => return None,
        }
    }
    None
}

/// The key and the nonce of the only record.
fn keys(salt: &[u8], sender_public: &[u8], subscriber: &Subscriber) -> Option<(Vec<u8>, Vec<u8>)> {
    let theirs = UnparsedPublicKey::new(&ECDH_P256, sender_public);
    let prk_key =
        agree(&subscriber.key, theirs, (), |ecdh| Ok(mac(&subscriber.auth, &[ecdh]))).ok()?;
    let key_info = [b"WebPush: info\0".as_slice(), &subscriber.public, sender_public, &[1]];
    let ikm = mac(&prk_key, &key_info);
    let prk = mac(salt, &[&ikm]);
    // Both are shorter than one block of the hash, so the first block of HKDF is all of them (RFC 5869, section 2.3).
    let cut = |info: &[u8], bytes| {
        let mut okm = mac(&prk, &[info, b"\0\x01"]);
        okm.truncate(bytes);
        okm
    };
    Some((
        cut(b"Content-Encoding: aes128gcm", KEY_BYTES),
        cut(b"Content-Encoding: nonce", NONCE_BYTES),
    ))
}

fn mac(key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, key));
    for part in parts {
        context.update(part);
    }
    context.sign().as_ref().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws_lc_rs::agreement::PrivateKey;
    use base64::Engine as _;
    use base64::prelude::BASE64_URL_SAFE_NO_PAD;

    fn bytes(text: &str) -> Vec<u8> {
        BASE64_URL_SAFE_NO_PAD.decode(text).unwrap()
    }

    /// RFC 8291, section 5.
    fn example() -> (Vec<u8>, Subscriber) {
        let body = bytes(
            "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27ml\
             mlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A_yl95bQpu6cVPT\
             pK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN",
        );
        let key = bytes("q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94");
        let key = PrivateKey::from_private_key(&ECDH_P256, &key).unwrap();
        let public = key.compute_public_key().unwrap().as_ref().to_vec();
        (body, Subscriber { key, public, auth: bytes("BTBZMqHH6r4Tts7J_aSIgg") })
    }

    #[test]
    fn the_example_of_the_standard_is_opened() {
        let (body, subscriber) = example();
        assert_eq!(open(&body, &subscriber).unwrap(), b"When I grow up, I want to be a watermelon");
    }

    #[test]
    fn whatever_is_changed_or_cut_off_is_noticed() {
        let (body, subscriber) = example();
        for i in 0..body.len() {
            let mut changed = body.clone();
            changed[i] ^= 1;
            // Of the record size only that it is large enough matters.
            if !(16..20).contains(&i) {
                assert_eq!(open(&changed, &subscriber), None, "{i}");
            }
            assert_eq!(open(&body[..i], &subscriber), None, "{i}");
        }
        assert_eq!(open(&body, &Subscriber::new(1).unwrap()), None);
    }
}
