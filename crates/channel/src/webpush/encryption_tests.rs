//! The example of RFC 8291, and another implementation that reads what we write.

use aws_lc_rs::agreement::{ECDH_P256, PrivateKey};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use web_push_native::p256::SecretKey;
use web_push_native::{Auth, decrypt};

use super::*;

fn bytes<const N: usize>(text: &str) -> [u8; N] {
    BASE64_URL_SAFE_NO_PAD.decode(text).unwrap().try_into().unwrap()
}

/// A browser, as the other implementation has it.
fn browser(random: &mut fastrand::Rng) -> (SecretKey, Auth, SubscriptionKeys) {
    let secret = std::iter::repeat_with(|| {
        SecretKey::from_slice(&random.u128(..).to_be_bytes().repeat(2)).ok()
    });
    let secret = secret.flatten().next().unwrap();
    let auth = random.u128(..).to_be_bytes();
    let point = secret.public_key().to_sec1_bytes();
    let keys = SubscriptionKeys { p256dh: (*point).try_into().unwrap(), auth };
    (secret, Auth::clone_from_slice(&auth), keys)
}

/// RFC 8291, section 5 and appendix A.
#[test]
fn the_example_of_the_standard_is_encrypted_as_it_says() {
    let keys = SubscriptionKeys {
        p256dh: bytes(
            "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4",
        ),
        auth: bytes("BTBZMqHH6r4Tts7J_aSIgg"),
    };
    let key: [u8; 32] = bytes("yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw");
    let ephemeral = Ephemeral {
        key: PrivateKey::from_private_key(&ECDH_P256, &key).unwrap(),
        salt: bytes("DGv6ra1nlYgDCS1FRnbzlw"),
    };
    let plaintext = b"When I grow up, I want to be a watermelon";
    let body = encrypt(plaintext, &keys, &ephemeral, 1).unwrap();
    let expect = "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27ml\
                  mlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A_yl95bQpu6cVPT\
                  pK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN";
    assert_eq!(BASE64_URL_SAFE_NO_PAD.encode(body), expect);
}

#[test]
fn another_implementation_reads_what_we_write() {
    let mut random = fastrand::Rng::with_seed(1);
    let lengths = [0, 1, 15, 16, 127, 128, 129, 3_840, 3_841, PLAINTEXT_BYTES_MAX];
    for length in lengths
        .into_iter()
        .chain((0..200).map(|_| random.usize(0..=PLAINTEXT_BYTES_MAX)).collect::<Vec<_>>())
    {
        let (secret, auth, keys) = browser(&mut random);
        let plaintext: Vec<u8> = (0..length).map(|_| random.u8(..)).collect();
        let ephemeral = Ephemeral::generate().unwrap();
        let body = encrypt(&plaintext, &keys, &ephemeral, 128).unwrap();
        assert!(body.len() <= BODY_BYTES_MAX, "{length}");
        assert_eq!(decrypt(body, &secret, &auth).unwrap(), plaintext, "{length}");
    }
}

#[test]
fn a_length_is_hidden_as_far_as_there_is_room() {
    let (_, _, keys) = browser(&mut fastrand::Rng::with_seed(2));
    let check = |bytes: usize, pad_to: usize, expect: usize| {
        let ephemeral = Ephemeral::generate().unwrap();
        let body = encrypt(&vec![7; bytes], &keys, &ephemeral, pad_to).unwrap();
        assert_eq!(body.len(), HEADER_BYTES + expect + 17, "{bytes} {pad_to}");
    };
    check(0, 128, 0);
    check(1, 128, 128);
    check(128, 128, 128);
    check(129, 128, 256);
    check(100, 1, 100);
    check(100, 0, 100);
    check(3_900, 128, 3_968);
    check(3_969, 128, 3_993);
    check(3_993, 128, 3_993);
}

#[test]
fn two_messages_have_nothing_in_common() {
    let (_, _, keys) = browser(&mut fastrand::Rng::with_seed(3));
    let body = || encrypt(b"the same", &keys, &Ephemeral::generate().unwrap(), 1).unwrap();
    let (one, other) = (body(), body());
    assert_ne!(one[..SALT_BYTES], other[..SALT_BYTES]);
    assert_ne!(one[21..HEADER_BYTES], other[21..HEADER_BYTES]);
    assert_ne!(one[HEADER_BYTES..], other[HEADER_BYTES..]);
}

#[test]
fn what_cannot_be_encrypted_is_an_error() {
    let (_, _, keys) = browser(&mut fastrand::Rng::with_seed(4));
    let ephemeral = Ephemeral::generate().unwrap();
    assert!(encrypt(&[0; PLAINTEXT_BYTES_MAX + 1], &keys, &ephemeral, 1).is_err());
    let off_the_curve = SubscriptionKeys { p256dh: [4; POINT_BYTES], ..keys };
    assert!(encrypt(b"x", &off_the_curve, &ephemeral, 1).is_err());
}
