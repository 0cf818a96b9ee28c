//! The examples of RFC 7541, round trips, and blocks that are cut off or corrupted.

use std::rc::Rc;

use http::{HeaderMap, HeaderName, HeaderValue};

use super::encoder::KNOWN_MAX;
use super::huffman::tests::encode as huffman;
use super::{HpackDecoder, HpackEncoder, TABLE_BYTES};
use crate::http2::testing::{TestHead, shared};
use crate::request_head::{RequestHead as _, SharedHead};

type HeaderField = (String, String);

/// Appendices C.3 and C.4: the blocks of three requests, plain and coded.
pub(in crate::http2) const STANDARD_REQUESTS: [[&str; 3]; 2] = [
    [
        "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "8286 84be 5808 6e6f 2d63 6163 6865",
        "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
    ],
    [
        "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
        "8286 84be 5886 a8eb 1064 9cbf",
        "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
    ],
];

/// Appendices C.5 and C.6: those of three answers, with a table of 256 bytes that overflows.
pub(in crate::http2) const STANDARD_ANSWERS: [[&str; 3]; 2] = [
    [
        "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3120 474d 546e \
         1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "4803 3330 37c1 c0bf",
        "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d 54c0 5a04 677a 6970 7738 666f 6f3d \
         4153 444a 4b48 514b 425a 584f 5157 454f 5049 5541 5851 5745 4f49 553b 206d 6178 2d61 6765 3d33 3630 303b 2076 6572 7369 6f6e 3d31",
    ],
    [
        "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
        "4883 640e ffc1 c0bf",
        "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 821d d7f2 e6c7 b335 dfdf cd5b \
         3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed 4ee5 b106 3d50 07",
    ],
];

pub(in crate::http2) fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

pub(super) fn read(
    decoder: &mut HpackDecoder,
    block: &[u8],
) -> Result<Vec<HeaderField>, &'static str> {
    let mut fields = Vec::new();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    decoder.decode(block, |name, value, _| {
        fields.push((text(name), text(value)));
        false
    })?;
    Ok(fields)
}

fn check(decoder: &mut HpackDecoder, hex: &str, expect: &[(&str, &str)]) {
    let expect: Vec<HeaderField> =
        expect.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    assert_eq!(read(decoder, &bytes(hex)).unwrap(), expect);
}

/// Appendix C.2: literals of each kind, and an index.
#[test]
fn the_standards_fields_are_read() {
    let check = |hex, name, value| check(&mut HpackDecoder::default(), hex, &[(name, value)]);
    check(
        "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572",
        "custom-key",
        "custom-header",
    );
    check("040c 2f73 616d 706c 652f 7061 7468", ":path", "/sample/path");
    check("1008 7061 7373 776f 7264 0673 6563 7265 74", "password", "secret");
    check("82", ":method", "GET");
}

#[test]
fn the_standards_requests_are_read() {
    for blocks in STANDARD_REQUESTS {
        let mut decoder = HpackDecoder::default();
        let (method, authority) = ((":method", "GET"), (":authority", "www.example.com"));
        let (http, root) = ((":scheme", "http"), (":path", "/"));
        check(&mut decoder, blocks[0], &[method, http, root, authority]);
        check(
            &mut decoder,
            blocks[1],
            &[method, http, root, authority, ("cache-control", "no-cache")],
        );
        let (https, index) = ((":scheme", "https"), (":path", "/index.html"));
        check(
            &mut decoder,
            blocks[2],
            &[method, https, index, authority, ("custom-key", "custom-value")],
        );
    }
}

#[test]
fn the_standards_answers_are_read() {
    for blocks in STANDARD_ANSWERS {
        let mut decoder = HpackDecoder::default();
        check(&mut decoder, "3fe1 01", &[]);
        let (private, date) =
            (("cache-control", "private"), ("date", "Mon, 21 Oct 2013 20:13:21 GMT"));
        let location = ("location", "https://www.example.com");
        check(&mut decoder, blocks[0], &[(":status", "302"), private, date, location]);
        check(&mut decoder, blocks[1], &[(":status", "307"), private, date, location]);
        let cookie = "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1";
        check(
            &mut decoder,
            blocks[2],
            &[
                (":status", "200"),
                private,
                ("date", "Mon, 21 Oct 2013 20:13:22 GMT"),
                location,
                ("content-encoding", "gzip"),
                ("set-cookie", cookie),
            ],
        );
        let last = read(&mut decoder, &[0xc1]);
        assert_eq!(last, Err("an index is behind the table"), "three entries are left");
    }
}

#[test]
fn faults_are_named() {
    let check = |hex: &str, expect| {
        assert_eq!(read(&mut HpackDecoder::default(), &bytes(hex)), Err(expect), "{hex}");
    };
    check("80", "an index is 0");
    check("be", "an index is behind the table");
    check("7e00", "an index is behind the table");
    check("ff ffff ffff 0f", "an integer is too large");
    check("ff", "a block breaks off");
    check("40", "a block breaks off");
    check("4001", "a string is longer than its block");
    check("4001 61 7f ffff 01", "a string is longer than its block");
    check("4081 ff 00", "a string's Huffman code is wrong");
    check("3fe2 1f", "the table grows beyond what was granted");
    check("82 20", "the table changes its size behind a field");
    assert_eq!(
        read(&mut HpackDecoder::default(), &bytes("20 3fe1 1f")).unwrap(),
        [],
        "down to nothing and up again"
    );
}

/// A field larger than the table empties it, and is read nevertheless.
#[test]
fn a_field_larger_than_the_table_empties_it() {
    let mut decoder = HpackDecoder::default();
    check(&mut decoder, "4001 61 01 62", &[("a", "b")]);
    check(&mut decoder, "be", &[("a", "b")]);
    let large = "7a".repeat(TABLE_BYTES);
    check(&mut decoder, &format!("4001 61 7f 81 1f {large}"), &[("a", &"z".repeat(TABLE_BYTES))]);
    assert!(read(&mut decoder, &[0xbe]).is_err());
}

fn request(headers: &[(&str, &str, bool)]) -> TestHead {
    let mut fields = HeaderMap::new();
    for (name, value, is_sensitive) in headers {
        let mut value = HeaderValue::from_str(value).unwrap();
        value.set_sensitive(*is_sensitive);
        fields.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), value);
    }
    TestHead::new("/3/device/1", fields)
}

fn written(encoder: &mut HpackEncoder, request: &TestHead) -> Vec<u8> {
    let mut block = Vec::new();
    encoder.encode(request, &mut block);
    block
}

fn fields_of(request: &TestHead) -> Vec<HeaderField> {
    let value = |value: &HeaderValue| value.to_str().unwrap().to_owned();
    let mut fields = vec![
        (":method".to_owned(), "POST".to_owned()),
        (":scheme".to_owned(), "https".to_owned()),
        (":path".to_owned(), request.path.clone()),
        (":authority".to_owned(), value(request.address.get(":authority").unwrap())),
    ];
    let headers = request.headers().unwrap();
    fields.extend(headers.iter().map(|(name, other)| (name.to_string(), value(other))));
    fields
}

#[test]
fn what_repeats_becomes_an_index_and_what_is_sensitive_never_does() {
    let (mut encoder, mut decoder) = (HpackEncoder::default(), HpackDecoder::default());
    let same = [("authorization", "bearer x", true), ("apns-topic", "com.example.app", false)];
    let mut lengths = Vec::new();
    for number in 0..5 {
        let mut request = request(&same);
        request.path = format!("/3/device/{number}");
        let block = written(&mut encoder, &request);
        assert_eq!(read(&mut decoder, &block).unwrap(), fields_of(&request));
        // Never indexed, its name the 23rd of the static table.
        let credential = [&[0x1f, 23 - 15, 8], b"bearer x".as_slice()].concat();
        assert!(block.windows(credential.len()).any(|part| part == credential), "{block:x?}");
        lengths.push(block.len());
    }
    let literals = credential_bytes() + "/3/device/0".len() + 2;
    assert_eq!(
        lengths[2..],
        [2 + 1 + literals + 1; 3],
        "all but path and credential are a byte each"
    );
}

fn credential_bytes() -> usize {
    3 + "bearer x".len()
}

/// The rule of the smallest and the last size (RFC 7541, section 4.2).
#[test]
fn a_table_that_shrank_and_grew_is_told_so() {
    let (mut encoder, mut decoder) = (HpackEncoder::default(), HpackDecoder::default());
    let request = request(&[("a", "b", false)]);
    for _ in 0..3 {
        read(&mut decoder, &written(&mut encoder, &request)).unwrap();
    }
    encoder.allow(0);
    encoder.allow(100);
    let block = written(&mut encoder, &request);
    assert_eq!(block[..3], [0x20, 0x3f, 100 - 31]);
    assert_eq!(read(&mut decoder, &block).unwrap(), fields_of(&request));
    encoder.allow(1 << 20);
    assert_eq!(
        written(&mut encoder, &request)[..3],
        bytes("3fe1 1f"),
        "never beyond our own bound"
    );
}

#[test]
fn requests_come_back_whatever_the_table_may_hold() {
    let mut random = fastrand::Rng::with_seed(1);
    for _ in 0..300 {
        let (mut encoder, mut decoder) = (HpackEncoder::default(), HpackDecoder::default());
        for _ in 0..40 {
            if random.u8(..8) == 0 {
                encoder.allow(random.usize(..300));
            }
            let value = |random: &mut fastrand::Rng| "v".repeat(random.usize(..60));
            let headers: Vec<_> = (0..random.usize(..6))
                .map(|place| {
                    (
                        ["a", "content-type", "x-b", "age", "b", "c"][place],
                        value(&mut random),
                        random.bool(),
                    )
                })
                .collect();
            let headers: Vec<_> =
                headers.iter().map(|(name, value, never)| (*name, &**value, *never)).collect();
            let request = request(&headers);
            // Twice and thrice, so that some of it is indexed.
            for _ in 0..random.usize(1..4) {
                let block = written(&mut encoder, &request);
                assert_eq!(read(&mut decoder, &block).unwrap(), fields_of(&request));
            }
        }
    }
}

/// Parts that are shared by some requests and not by others, in any order, with fields of their own, over tables of any size.
#[test]
fn what_is_shared_comes_back_in_any_order() {
    let mut random = fastrand::Rng::with_seed(4);
    for _ in 0..200 {
        let (mut encoder, mut decoder) = (HpackEncoder::default(), HpackDecoder::default());
        let fields = |random: &mut fastrand::Rng, count: usize| {
            let mut fields = HeaderMap::new();
            for _ in 0..count {
                let name = random.choice(["a", "content-type", "x-b", "age", "b", "c"]).unwrap();
                let value = "v".repeat(random.usize(..300));
                let mut value = HeaderValue::from_str(&value).unwrap();
                value.set_sensitive(random.u8(..4) == 0);
                fields.append(HeaderName::from_static(name), value);
            }
            fields
        };
        let addresses: Vec<_> =
            (0..2).map(|_| TestHead::new("/", HeaderMap::new()).address).collect();
        // More than the encoder knows at a time.
        let parts: Vec<_> = (0..KNOWN_MAX + 4)
            .map(|_| {
                let count = random.usize(..4);
                shared(fields(&mut random, count))
            })
            .collect();
        for _ in 0..100 {
            if random.u8(..20) == 0 {
                encoder.allow(random.usize(..5_000));
            }
            let most = if random.bool() { 2 } else { parts.len() };
            let own = random.usize(..3);
            let head = TestHead {
                address: Rc::clone(random.choice(&addresses).unwrap()),
                shared: Rc::clone(random.choice(&parts[..most]).unwrap()),
                path: format!("/{}", random.u32(..)),
                own: fields(&mut random, own),
            };
            let block = written(&mut encoder, &head);
            let (mut read, mut sent) = (read(&mut decoder, &block).unwrap(), fields_of(&head));
            // A map has fields of one name together.
            read.sort();
            sent.sort();
            assert_eq!(read, sent);
        }
    }
}

/// Two broadcasts by turns have nothing at the same place, and are told apart all the same.
#[test]
fn what_is_shared_becomes_an_index_though_others_come_between() {
    let (mut encoder, mut decoder) = (HpackEncoder::default(), HpackDecoder::default());
    let heads = ["com.example.one", "com.example.two"].map(|topic| {
        let mut head = request(&[("apns-topic", topic, false)]);
        head.own.insert("apns-id", HeaderValue::from_static("1"));
        head
    });
    let mut lengths = Vec::new();
    for _ in 0..4 {
        for head in &heads {
            let block = written(&mut encoder, head);
            assert_eq!(read(&mut decoder, &block).unwrap(), fields_of(head));
            lengths.push(block.len());
        }
    }
    let own = 2 + "/3/device/1".len() + 2 + "apns-id".len() + 1 + "1".len();
    assert_eq!(lengths[4..], [2 + 1 + 1 + own; 4], "address and topic are a byte each");
}

/// The table is full when the second broadcast comes: its field takes the place of the first one's, which has to win it back.
#[test]
fn what_was_pushed_out_of_a_full_table_becomes_an_index_again() {
    let (mut encoder, mut decoder) = (HpackEncoder::default(), HpackDecoder::default());
    let topic = |letter: &str| {
        let name = HeaderName::from_static("apns-topic");
        let value = HeaderValue::from_str(&letter.repeat(1_000)).unwrap();
        shared(HeaderMap::from_iter([(name, value)]))
    };
    let mut head = request(&[]);
    let mut lengths = |topic: &Rc<SharedHead>, count: usize| -> Vec<usize> {
        head.shared = Rc::clone(topic);
        let blocks = (0..count).map(|_| {
            let block = written(&mut encoder, &head);
            assert_eq!(read(&mut decoder, &block).unwrap(), fields_of(&head));
            block.len()
        });
        blocks.collect()
    };
    // Three such fields fill the table, beside the authority.
    let first = topic("a");
    for topic in [&first, &topic("b"), &topic("c"), &topic("d")] {
        lengths(topic, 3);
    }
    let indexed = 2 + 2 + "/3/device/1".len() + 1 + 1;
    let again = lengths(&first, 4);
    assert!(again[..2].iter().all(|length| *length > 1_000), "{again:?}");
    assert_eq!(again[2..], [indexed; 2], "address and topic are a byte each");
    // Two by turns, which have nothing at the same place in two requests one after the other.
    let turns = [topic("e"), topic("f")];
    for _ in 0..4 {
        for topic in &turns {
            lengths(topic, 1);
        }
    }
    assert_eq!(turns.each_ref().map(|topic| lengths(topic, 1)), [[indexed], [indexed]]);
}

/// A valid block of every form, and the fields that it holds.
fn any_block(random: &mut fastrand::Rng) -> Vec<u8> {
    let string = |random: &mut fastrand::Rng| {
        let text: Vec<u8> = (0..random.usize(..40)).map(|_| random.u8(b' '..=b'~')).collect();
        let (bits, text) = if random.bool() { (0x80, huffman(&text)) } else { (0, text) };
        [&[bits | u8::try_from(text.len()).unwrap()], text.as_slice()].concat()
    };
    let mut block = if random.u8(..4) == 0 { bytes("20 3fe1 1f") } else { Vec::new() };
    for _ in 0..random.usize(1..8) {
        match random.u8(..4) {
            0 => block.push(0x80 | random.u8(1..62)),
            1 => block.extend([vec![0x40 | random.u8(1..62)], string(random)].concat()),
            2 => block.extend([vec![0x40], string(random), string(random)].concat()),
            _ => block.extend([vec![random.u8(..2) << 4], string(random), string(random)].concat()),
        }
    }
    block
}

#[test]
fn a_block_that_is_cut_or_corrupted_gives_an_error_or_fields() {
    let mut random = fastrand::Rng::with_seed(2);
    for _ in 0..400 {
        let block = any_block(&mut random);
        let whole = read(&mut HpackDecoder::default(), &block).unwrap();
        for length in 0..block.len() {
            if let Ok(fields) = read(&mut HpackDecoder::default(), &block[..length]) {
                assert_eq!(fields, whole[..fields.len()]);
            }
            let mut corrupted = block.clone();
            corrupted[length] ^= random.u8(1..);
            let mut decoder = HpackDecoder::default();
            let mut kept = 0;
            let _fields = decoder.decode(&corrupted, |name, value, _| {
                kept += name.len() + value.len();
                false
            });
            assert!(
                kept <= 200 * (1 + block.len()),
                "a byte stands for a short field of the table"
            );
        }
    }
}
