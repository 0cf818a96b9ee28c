//! What a caller may ask for, and what then goes over the wire.

use std::sync::Arc;

use super::*;
use notification::{BatchId, ChunkId, Envelope, Epoch, Guarantee, Lane, Timestamp};

const TOKEN: &str = "00fc13adff785122b4ad28809a3420982341241421348097878e577c991de8f0";

fn chunk(priority: Priority, expires_at: Option<Timestamp>) -> Chunk {
    Chunk {
        id: ChunkId(1),
        epoch: Epoch(1),
        lease_until: Timestamp::MAX,
        tenure: 0,
        batch: BatchId(7),
        realm: 1,
        accepted_at: Timestamp::from_millis(1_700_000_000_000),
        envelope: Envelope {
            tenant: "default".parse().unwrap(),
            lane: Lane {
                channel: "ios".parse().unwrap(),
                destination: Arc::from("localhost"),
                priority,
            },
            guarantee: Guarantee::AtLeastOnce,
            due_at: Timestamp::from_millis(0),
            expires_at,
            broadcast: None,
        },
        attempt: 1,
        content: None,
        deliveries: Vec::new(),
    }
}

fn headers(priority: Priority, payload: &str, options: &str) -> HeaderMap {
    let chunk = chunk(priority, Some(Timestamp::from_millis(1_800_000_000_999)));
    let common = Common::new(&chunk, HeaderValue::from_static("bearer x"));
    let encoder = Encoder::new(Authority::from_static("localhost:8443"), "com.example".to_owned());
    let content = Content {
        payload: Bytes::copy_from_slice(payload.as_bytes()),
        options: Bytes::copy_from_slice(options.as_bytes()),
        fallback: None,
    };
    let shared = encoder.encode(&content, &common).unwrap();
    let id = chunk.notification_id(3);
    let request = encoder.request(&shared, &TOKEN.into(), id).unwrap();
    assert_eq!(request.method(), Method::POST);
    assert_eq!(request.uri().to_string(), format!("https://localhost:8443/3/device/{TOKEN}"));
    assert_eq!(request.headers()["apns-id"], id.to_string());
    assert_eq!(shared.payload, payload.as_bytes());
    request.headers().clone()
}

const ALERT: &str = r#"{"aps":{"alert":"hi"}}"#;
const SILENT: &str = r#"{"aps":{"content-available":1},"k":2}"#;

#[test]
fn a_request_has_the_headers_that_apns_wants() {
    let headers = headers(Priority::Normal, ALERT, "");
    let mut names: Vec<_> = headers.iter().map(|(name, value)| (name.as_str(), value)).collect();
    names.sort_unstable_by_key(|(name, _)| *name);
    let id = &headers["apns-id"];
    assert!(id.is_sensitive(), "kept out of the header table");
    let expect = [
        ("apns-expiration", "1800000000"),
        ("apns-id", id.to_str().unwrap()),
        ("apns-priority", "10"),
        ("apns-push-type", "alert"),
        ("apns-topic", "com.example"),
        ("authorization", "bearer x"),
    ];
    assert_eq!(names.len(), expect.len());
    for (header, expect) in names.iter().zip(expect) {
        assert_eq!((header.0, header.1.to_str().unwrap()), expect);
    }
}

#[test]
fn options_and_the_payload_decide_type_and_priority() {
    let check = |priority, payload: &str, options: &str, expect: (&str, &str)| {
        let headers = headers(priority, payload, options);
        let found = (&headers["apns-push-type"], &headers["apns-priority"]);
        assert_eq!(found, (&HeaderValue::from_str(expect.0).unwrap(), &expect.1.parse().unwrap()));
    };
    check(Priority::Urgent, ALERT, "", ("alert", "10"));
    check(Priority::Bulk, ALERT, "", ("alert", "5"));
    check(Priority::Bulk, ALERT, r#"{"priority":10}"#, ("alert", "10"));
    check(Priority::Urgent, ALERT, r#"{"priority":1}"#, ("alert", "1"));
    check(Priority::Urgent, SILENT, "", ("background", "5"));
    check(Priority::Urgent, SILENT, r#"{"push_type":"alert"}"#, ("alert", "10"));
    let both = r#"{"aps":{"content-available":1,"alert":{"title":"x"}}}"#;
    check(Priority::Normal, both, "", ("alert", "10"));
    check(Priority::Normal, r#"{"mdm":"x"}"#, r#"{"push_type":"mdm"}"#, ("mdm", "10"));
    let headers = headers(Priority::Bulk, ALERT, r#"{"topic":"a.voip","collapse_id":"score 1"}"#);
    assert_eq!(headers["apns-topic"], "a.voip");
    assert_eq!(headers["apns-collapse-id"], "score 1");
}

#[test]
fn without_an_expiry_apns_is_told_none() {
    let common = Common::new(&chunk(Priority::Normal, None), HeaderValue::from_static("x"));
    assert_eq!(common.expiration, None);
}

#[test]
fn a_device_token_is_an_even_number_of_hexadecimal_digits() {
    let check =
        |token: &str, valid: bool| assert_eq!(check_token(token).is_ok(), valid, "{token:?}");
    check(TOKEN, true);
    check(&TOKEN.to_uppercase(), true);
    check(&"ab".repeat(100), true);
    check("", false);
    check(&"ab".repeat(31), false);
    check(&"ab".repeat(101), false);
    check(&format!("{TOKEN}a"), false);
    check(&TOKEN.replace('0', "g"), false);
    check(&TOKEN.replacen("00", "é", 1), false);
    check(&TOKEN.replacen("00", "..", 1), false);
    let message = check_token("12").unwrap_err().message;
    assert!(message.contains("64 to 200") && message.contains("2 bytes"), "{message}");
}

#[test]
fn a_content_that_apns_would_refuse_is_refused_with_its_place() {
    let check = |payload: &str, options: &str, expect: Option<(&str, &str)>| match (
        check_payload(payload.as_bytes(), options.as_bytes()),
        expect,
    ) {
        (Ok(()), None) => {}
        (Err(invalid), Some((pointer, message))) => {
            assert_eq!(invalid.pointer, pointer, "{invalid}");
            assert!(invalid.message.contains(message), "{invalid}");
        }
        (found, _) => panic!("{payload:.40} {options}: {found:?}"),
    };
    let sized = |bytes: usize| {
        let frame = r#"{"aps":{"alert":""}}"#;
        format!(r#"{{"aps":{{"alert":"{}"}}}}"#, "x".repeat(bytes - frame.len()))
    };
    check(ALERT, "", None);
    check(" {}", "{}", None);
    check(&sized(4096), "", None);
    check(&sized(4097), "", Some(("", "has 4097 bytes: APNs takes at most 4096")));
    check(&sized(5120), r#"{"push_type":"voip"}"#, None);
    check(
        &sized(5121),
        r#"{"push_type":"voip"}"#,
        Some(("", "5121 bytes: APNs takes at most 5120")),
    );
    check("", "", Some(("", "must be a JSON object")));
    check("[]", "", Some(("", "must be a JSON object")));
    check(r#"["aps"]"#, "", Some(("", "must be a JSON object")));
    check("{", "", Some(("", "is not valid JSON")));
    check("{} x", "", Some(("", "is not valid JSON")));
    check(r#"{"aps":"hi"}"#, "", Some(("/aps", "must be a JSON object")));
    check(r#"{"aps":{"alert":1,"alert":2}}"#, "", Some(("/aps", "duplicate")));
    check(ALERT, "[]", Some(("", "must be a JSON object")));
    check(ALERT, r#"{"sound":1}"#, Some(("/sound", "is unknown")));
    check(ALERT, r#"{"a/b~c":1}"#, Some(("/a~1b~0c", "is unknown")));
    check(ALERT, r#"{"topic":"a b"}"#, Some(("/topic", "bundle identifier")));
    check(ALERT, r#"{"topic":1}"#, Some(("/topic", "must be a text")));
    check(ALERT, r#"{"push_type":"loud"}"#, Some(("/push_type", "must be one of alert")));
    check(ALERT, r#"{"priority":7}"#, Some(("/priority", "must be 1, 5 or 10")));
    check(ALERT, r#"{"priority":"10"}"#, Some(("/priority", "must be 1, 5 or 10")));
    check(ALERT, r#"{"collapse_id":""}"#, Some(("/collapse_id", "1 to 64")));
    check(ALERT, r#"{"collapse_id":"a\nb"}"#, Some(("/collapse_id", "visible")));
    let long = format!(r#"{{"collapse_id":"{}"}}"#, "x".repeat(65));
    check(ALERT, &long, Some(("/collapse_id", "this has 65 bytes")));
    check(SILENT, r#"{"priority":10}"#, Some(("/priority", "must be 5 or 1")));
}

#[test]
fn blocks_are_cut_without_mixing_requests_up() {
    let encoder = Encoder::new(Authority::from_static("localhost"), "t".to_owned());
    let chunk = chunk(Priority::Bulk, None);
    let common = Common::new(&chunk, HeaderValue::from_static("x"));
    let content =
        Content { payload: Bytes::from_static(b"{}"), options: Bytes::new(), fallback: None };
    let shared = encoder.encode(&content, &common).unwrap();
    let requests: Vec<_> = (0..500u16)
        .map(|index| {
            let token = ByteString::from(format!("{index:064x}"));
            encoder.request(&shared, &token, chunk.notification_id(index)).unwrap()
        })
        .collect();
    for (index, request) in (0..500u16).zip(&requests) {
        assert_eq!(request.uri().path(), format!("/3/device/{index:064x}"));
        assert_eq!(request.headers()["apns-id"], chunk.notification_id(index).to_string());
    }
}
