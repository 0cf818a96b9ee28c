//! Requests of callers, and the bytes that go over the wire.

use super::*;
use crate::test_support::content_check;
use http::HeaderMap;
use notification::{Timestamp, sample};

const TOKEN: &str = "00fc13adff785122b4ad28809a3420982341241421348097878e577c991de8f0";

fn chunk(priority: Priority, expires_at: Option<Timestamp>) -> Chunk {
    let mut chunk = sample::chunk(Timestamp::from_millis(1_700_000_000_000), [""; 0]);
    chunk.envelope.lane.priority = priority;
    chunk.envelope.expires_at = expires_at;
    chunk
}

fn headers(priority: Priority, payload: &str, options: &str) -> HeaderMap {
    let chunk = chunk(priority, Some(Timestamp::from_millis(1_800_000_000_999)));
    headers_of(&chunk, false, payload, options)
}

fn headers_of(chunk: &Chunk, collapses_on_retry: bool, payload: &str, options: &str) -> HeaderMap {
    let authority = Authority::from_static("localhost:8443");
    let encoder = ApnsEncoder::new(authority, "com.example".to_owned(), collapses_on_retry);
    let content = Content {
        payload: Bytes::copy_from_slice(payload.as_bytes()),
        options: Bytes::copy_from_slice(options.as_bytes()),
        fallback: None,
    };
    let shared = encoder.encode(&content, &chunk.envelope).unwrap();
    let address = encoder.address(Some(HeaderValue::from_static("bearer x")));
    let delivery = Delivery { index: 3, recipient: TOKEN.into(), content: None };
    let head = ApnsHead { address: &address, encoded: &shared, chunk, delivery: &delivery };
    assert!(head.is_writable());
    assert_eq!(address.get(":authority").unwrap(), "localhost:8443");
    assert_eq!(head.path().concat(), format!("/3/device/{TOKEN}").as_bytes());
    let headers = head.headers().unwrap();
    assert_eq!(headers["apns-id"], chunk.notification_id(3).to_string());
    assert_eq!(shared.payload, payload.as_bytes());
    headers
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
    let badge = r#"{"aps":{"content-available":1,"badge":2}}"#;
    check(Priority::Urgent, badge, "", ("alert", "10"));
    check(Priority::Bulk, "{}", r#"{"push_type":"pushtotalk"}"#, ("pushtotalk", "10"));
    let both = r#"{"aps":{"content-available":1,"alert":{"title":"x"}}}"#;
    check(Priority::Normal, both, "", ("alert", "10"));
    check(Priority::Normal, r#"{"mdm":"x"}"#, r#"{"push_type":"mdm"}"#, ("mdm", "10"));
    let headers = headers(Priority::Bulk, ALERT, r#"{"topic":"a.b","collapse_id":"score 1"}"#);
    assert_eq!(headers["apns-topic"], "a.b");
    assert_eq!(headers["apns-collapse-id"], "score 1");
}

#[test]
fn the_topic_ends_in_what_its_type_needs() {
    for (push_type, suffix) in PUSH_TYPES {
        let payload = match *push_type {
            "background" => SILENT,
            "liveactivity" => r#"{"aps":{"event":"end","timestamp":1}}"#,
            _ => "{}",
        };
        let options = format!(r#"{{"push_type":"{push_type}"}}"#);
        let topic = headers(Priority::Normal, payload, &options)["apns-topic"].clone();
        assert_eq!(topic, format!("com.example{suffix}"));
        let options = format!(r#"{{"push_type":"{push_type}","topic":"a.b{suffix}"}}"#);
        let topic = headers(Priority::Normal, payload, &options)["apns-topic"].clone();
        assert_eq!(topic, format!("a.b{suffix}"));
    }
}

#[test]
fn an_expiration_is_the_earlier_of_what_is_asked_and_what_is_of_use() {
    let expiration = |expires_at: Option<i64>, options: &str| {
        let chunk = chunk(Priority::Normal, expires_at.map(Timestamp::from_millis));
        let headers = headers_of(&chunk, false, ALERT, options);
        headers.get("apns-expiration").map(|value| value.to_str().unwrap().to_owned())
    };
    let check = |expires_at: Option<i64>, options: &str, expect: Option<&str>| {
        assert_eq!(expiration(expires_at, options).as_deref(), expect, "{expires_at:?} {options}");
    };
    check(None, "", None);
    check(Some(5_999), "", Some("5"));
    check(Some(1), "", Some("1"));
    check(None, r#"{"expiration":0}"#, Some("0"));
    check(Some(5_999), r#"{"expiration":0}"#, Some("0"));
    check(Some(5_999), r#"{"expiration":4}"#, Some("4"));
    check(Some(5_999), r#"{"expiration":9}"#, Some("5"));
}

#[test]
fn what_may_come_twice_collapses_with_itself_where_that_is_wanted() {
    let check = |guarantee, wanted: bool, payload: &str, options: &str, expect: Option<&str>| {
        let mut chunk = chunk(Priority::Normal, None);
        chunk.envelope.guarantee = guarantee;
        let headers = headers_of(&chunk, wanted, payload, options);
        let found = headers.get("apns-collapse-id").map(|value| value.to_str().unwrap());
        let id = headers["apns-id"].to_str().unwrap();
        assert_eq!(found, expect.map(|text| if text == "own" { id } else { text }), "{options}");
    };
    let (least, most) = (Guarantee::AtLeastOnce, Guarantee::AtMostOnce);
    check(least, false, ALERT, "", None);
    check(least, true, ALERT, "", Some("own"));
    check(least, true, SILENT, "", Some("own"));
    check(least, true, ALERT, r#"{"collapse_id":"x"}"#, Some("x"));
    check(least, true, "{}", r#"{"push_type":"voip"}"#, None);
    check(most, true, ALERT, "", None);
}

#[test]
fn a_device_token_is_stored_in_lower_case() {
    assert!(matches!(canonical_token(TOKEN), Cow::Borrowed(TOKEN)));
    assert_eq!(canonical_token(&TOKEN.to_uppercase()), TOKEN);
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
    let check = content_check(check_payload);
    let sized = |bytes: usize| {
        let frame = r#"{"aps":{"alert":""}}"#;
        format!(r#"{{"aps":{{"alert":"{}"}}}}"#, "x".repeat(bytes - frame.len()))
    };
    check(ALERT, "", None);
    check(" {}", "{}", None);
    check(&sized(4096), "", None);
    check(&sized(4097), "", Some(("", "has 4097 bytes, 1 more than the 4096 that APNs takes")));
    check(&sized(5120), r#"{"push_type":"voip"}"#, None);
    check(&sized(5121), r#"{"push_type":"voip"}"#, Some(("", "5121 bytes, 1 more than the 5120")));
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
    check("{}", r#"{"push_type":"pushtotalk","priority":5}"#, Some(("/priority", "must be 10")));
    check(ALERT, r#"{"push_type":"background"}"#, Some(("/push_type", "does not match")));
    check("{}", r#"{"push_type":"background"}"#, Some(("/push_type", "does not match")));
    let loud = r#"{"aps":{"content-available":1,"sound":"x"}}"#;
    check(loud, r#"{"push_type":"background"}"#, Some(("/push_type", "nor sound")));
    check(ALERT, r#"{"push_type":"liveactivity"}"#, Some(("/push_type", "event and timestamp")));
    let voip = r#"{"push_type":"voip","topic":"a.b"}"#;
    check("{}", voip, Some(("/topic", "must end with .voip for a voip notification")));
    check(ALERT, r#"{"expiration":-1}"#, Some(("/expiration", "must be seconds")));
    check(ALERT, r#"{"expiration":"0"}"#, Some(("/expiration", "must be seconds")));
}

#[test]
fn what_requests_share_is_one() {
    let encoder = ApnsEncoder::new(Authority::from_static("localhost"), "t".to_owned(), false);
    let envelope = chunk(Priority::Bulk, None).envelope;
    let shared = |payload: &'static str, options: &'static str| {
        let (payload, options) = (Bytes::from_static(payload.as_bytes()), options.into());
        let content = Content { payload, options, fallback: None };
        encoder.encode(&content, &envelope).unwrap().shared
    };
    let (first, second) = (shared(ALERT, ""), shared("{}", ""));
    assert!(Rc::ptr_eq(&first, &second), "its payload is not in the head");
    assert!(!Rc::ptr_eq(&first, &shared(SILENT, "")));
    let token = || Some(HeaderValue::from_static("bearer x"));
    assert!(Rc::ptr_eq(&encoder.address(token()), &encoder.address(token())));
    assert!(!Rc::ptr_eq(&encoder.address(token()), &encoder.address(None)));
}

#[test]
fn a_recipient_that_makes_no_path_is_not_sent() {
    let encoder = ApnsEncoder::new(Authority::from_static("localhost"), "t".to_owned(), false);
    let chunk = chunk(Priority::Bulk, None);
    let content =
        Content { payload: Bytes::from_static(b"{}"), options: Bytes::new(), fallback: None };
    let shared = encoder.encode(&content, &chunk.envelope).unwrap();
    for (token, is_writable) in [(TOKEN, true), ("a b", false), ("a#b", false), ("a\u{e9}", false)]
    {
        let address = encoder.address(None);
        let delivery = Delivery { index: 0, recipient: token.into(), content: None };
        let head =
            ApnsHead { address: &address, encoded: &shared, chunk: &chunk, delivery: &delivery };
        assert_eq!(head.is_writable(), is_writable, "{token}");
    }
}
