//! Connections as they are with providers, in the codec of others (python3-hpack): what it has written is read here, and what is
//! written here is read there, while what the table may have changes.

use std::fmt::Write as _;
use std::rc::Rc;

use fastrand::Rng;
use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::{HpackDecoder, HpackEncoder};
use crate::http2::testing::TestHead;
use crate::request_head::{SharedHead, SharedHeads};

/// Name, value, and whether the value is sensitive.
type HeaderField = (String, String, bool);

/// Answers of a connection, and requests.
const MESSAGES: usize = 60;

/// Table sizes in the course of a connection: before message N the N-th entry is set, if there is one. Several at a time follow
/// one another without a message between.
const TABLES: [&[(usize, &[usize])]; 6] = [
    &[],
    &[(0, &[0])],
    &[(0, &[256])],
    &[(5, &[100]), (20, &[4_096]), (40, &[600])],
    &[(10, &[0, 4_096]), (30, &[64, 0, 200])],
    &[(10, &[200, 4_096]), (11, &[0]), (12, &[4_096]), (30, &[33]), (31, &[1_000, 70])],
];

fn field(name: &str, value: impl Into<String>) -> HeaderField {
    (name.to_owned(), value.into(), false)
}

fn uuid(random: &mut Rng) -> String {
    let part = |digits| text_of(random, b"0123456789ABCDEF", digits);
    [8, 4, 4, 4, 12].map(part).join("-")
}

fn text_of(random: &mut Rng, letters: &[u8], length: usize) -> String {
    (0..length).map(|_| char::from(*random.choice(letters).unwrap())).collect()
}

fn text(random: &mut Rng, length: usize) -> String {
    (0..length).map(|_| random.alphanumeric()).collect()
}

/// An hour in which something happens every second.
fn date(number: usize) -> HeaderField {
    field("date", format!("Tue, 24 Nov 2026 10:{:02}:{:02} GMT", number / 60 % 60, number % 60))
}

fn apns_answer(number: usize, random: &mut Rng) -> Vec<HeaderField> {
    let status = random.choice(["200", "200", "200", "400", "410", "429", "503"]).unwrap();
    let mut fields = vec![field(":status", status), field("apns-id", uuid(random))];
    if number.is_multiple_of(2) {
        fields.push(field("apns-unique-id", uuid(random).to_lowercase()));
    }
    fields
}

fn fcm_answer(number: usize, random: &mut Rng) -> Vec<HeaderField> {
    let status = random.choice(["200", "200", "404", "429", "500"]).unwrap();
    let mut fields = vec![
        field(":status", status),
        field("content-type", "application/json; charset=UTF-8"),
        field("vary", "X-Origin"),
        field("vary", "Referer"),
        field("vary", "Origin,Accept-Encoding"),
        date(number),
        field("server", "scaffolding on HTTPServer2"),
        field("cache-control", "private"),
        field("x-xss-protection", "0"),
        field("x-frame-options", "SAMEORIGIN"),
        field("x-content-type-options", "nosniff"),
        field("alt-svc", "h3=\":443\"; ma=2592000,h3-29=\":443\"; ma=2592000"),
    ];
    if status == "429" {
        fields.push(field("retry-after", random.u8(1..120).to_string()));
    }
    fields
}

fn web_push_answer(number: usize, random: &mut Rng) -> Vec<HeaderField> {
    let status = random.choice(["201", "201", "404", "410", "413"]).unwrap();
    let mut fields = vec![
        field(":status", status),
        field("server", "nginx"),
        date(number),
        field("content-length", random.u16(..400).to_string()),
        field("access-control-allow-origin", "*"),
        field(
            "access-control-expose-headers",
            "location,www-authenticate,ttl,topic,urgency,crypto-key,encryption",
        ),
        field("strict-transport-security", "max-age=31536000;includeSubDomains"),
        field("via", "1.1 google"),
        field("alt-svc", "clear"),
    ];
    if status == "201" {
        let place =
            format!("https://updates.push.services.mozilla.com/m/gAAAA{}", text(random, 180));
        fields.extend([field("location", place), field("ttl", "60")]);
    }
    // A cookie is what a proxy marks as sensitive.
    fields.push(("set-cookie".to_owned(), format!("route={}; Secure", text(random, 32)), true));
    fields
}

/// Whatever may stand in a field: no value, one of all letters, one larger than the table.
fn odd_answer(number: usize, random: &mut Rng) -> Vec<HeaderField> {
    let letters: String = (b' '..=b'~').map(char::from).collect();
    let mut fields = vec![
        field(":status", random.u16(100..1_000).to_string()),
        field("x-empty", ""),
        field("x-letters", letters.trim()),
        field(&format!("x-{}", text(random, 20).to_lowercase()), "of its own"),
    ];
    if number % 9 == 8 {
        let length = random.choice([4_063, 4_064, 5_000]).unwrap();
        fields.push(field("x-large", "z".repeat(length - "x-large".len())));
    }
    fields
}

fn words(fields: &[HeaderField]) -> String {
    let hex = |text: &str| {
        text.bytes().fold(String::new(), |mut hex, byte| {
            write!(hex, "{byte:02x}").unwrap();
            hex
        })
    };
    let word = |(name, value, never): &HeaderField| {
        format!("{}:{}:{}", hex(name), hex(value), u8::from(*never))
    };
    fields.iter().map(word).collect::<Vec<_>>().join(" ")
}

/// The sizes of a table that are said before message `number`.
fn sizes(table: &[(usize, &'static [usize])], number: usize) -> &'static [usize] {
    table.iter().find(|(at, _)| *at == number).map_or(&[], |(_, sizes)| sizes)
}

#[test]
fn what_another_codec_has_written_is_read() {
    let mut stories = Vec::new();
    let mut lines = String::new();
    for answer in [apns_answer, fcm_answer, web_push_answer, odd_answer] {
        for (table, coded) in TABLES.iter().flat_map(|table| [(table, 0), (table, 1)]) {
            let mut random = Rng::with_seed(7);
            let story: Vec<_> = (0..MESSAGES).map(|number| answer(number, &mut random)).collect();
            writeln!(lines, "encoder").unwrap();
            for (number, fields) in story.iter().enumerate() {
                for bytes in sizes(table, number) {
                    writeln!(lines, "table {bytes}").unwrap();
                }
                writeln!(lines, "encode {coded} {}", words(fields)).unwrap();
            }
            stories.push(story);
        }
    }
    let blocks = testbed::hpack::run(&lines).unwrap();
    assert_eq!(blocks.len(), stories.len() * MESSAGES);
    let mut blocks = blocks.iter();
    for story in &stories {
        let mut decoder = HpackDecoder::default();
        for fields in story {
            let block = super::tests::bytes(blocks.next().unwrap());
            let expected: Vec<_> =
                fields.iter().map(|(name, value, _)| (name.clone(), value.clone())).collect();
            assert_eq!(super::tests::read(&mut decoder, &block).unwrap(), expected);
            decoder.check();
        }
    }
}

/// A request with its credential, and all that it says.
fn request(
    kind: usize,
    number: usize,
    heads: &SharedHeads,
    random: &mut Rng,
) -> (TestHead, Vec<HeaderField>) {
    let (host, path, own) = match kind {
        0 => (
            "api.push.apple.com",
            format!("/3/device/{}", text(random, 64).to_lowercase()),
            vec![
                field("apns-topic", "com.example.app"),
                field("apns-push-type", "alert"),
                field("apns-id", uuid(random)),
                field("apns-expiration", "1795600000"),
            ],
        ),
        1 => (
            "fcm.googleapis.com",
            "/v1/projects/example/messages:send".to_owned(),
            vec![field("content-type", "application/json")],
        ),
        _ => (
            "updates.push.services.mozilla.com",
            format!("/wpush/v2/{}", text(random, 180)),
            vec![
                field("ttl", random.choice(["60", "3600"]).unwrap()),
                field("content-encoding", "aes128gcm"),
                field("urgency", random.choice(["low", "normal", "high"]).unwrap()),
            ],
        ),
    };
    // A provider token is renewed now and then.
    let credential = format!("bearer {}", number / 25);
    let mut fields = vec![
        field(":method", "POST"),
        field(":scheme", "https"),
        field(":path", path.clone()),
        field(":authority", host),
        ("authorization".to_owned(), credential, true),
    ];
    fields.extend(own);
    let mut shared = HeaderMap::new();
    for (name, value, is_sensitive) in &fields[4..] {
        let mut value = HeaderValue::from_str(value).unwrap();
        value.set_sensitive(*is_sensitive);
        shared.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), value);
    }
    let mut request = TestHead::new(&path, shared);
    request.address = heads.unique(SharedHead::address(&Authority::from_static(host), None));
    // Some of them are equal, and become one.
    request.shared = heads.unique(Rc::try_unwrap(request.shared).unwrap());
    (request, fields)
}

#[test]
fn what_is_written_here_is_read_by_another_codec() {
    let mut expected = Vec::new();
    let mut lines = String::new();
    for (kind, table) in (0..3).flat_map(|kind| TABLES.map(|table| (kind, table))) {
        let (mut random, mut encoder) = (Rng::with_seed(8), HpackEncoder::default());
        let heads = SharedHeads::default();
        writeln!(lines, "decoder").unwrap();
        for number in 0..MESSAGES {
            for bytes in sizes(table, number) {
                encoder.allow(*bytes);
                writeln!(lines, "allow {bytes}").unwrap();
            }
            let (request, fields) = request(kind, number, &heads, &mut random);
            let mut block = Vec::new();
            encoder.encode(&request, &mut block);
            let hex = block.iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"));
            writeln!(lines, "decode {hex}").unwrap();
            expected.push(words(&fields));
        }
    }
    assert_eq!(testbed::hpack::run(&lines).unwrap(), expected);
}
