//! Requests of callers, and the bytes that go over the wire.

use super::*;
use crate::test_support::content_check;
use std::time::Duration;

const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_999);

fn content(payload: &str, options: &str) -> Content {
    Content {
        payload: Bytes::copy_from_slice(payload.as_bytes()),
        options: Bytes::copy_from_slice(options.as_bytes()),
        fallback: None,
    }
}

fn body(recipient: &str, content: &Content, expires_at: Option<Timestamp>) -> Value {
    let encoder = FcmEncoder::new(Authority::from_static("localhost:8444"), "shop").unwrap();
    let shared = FcmContent::new(content, expires_at, NOW).unwrap();
    let body = encoder.body(&shared, FcmTarget::parse(recipient).unwrap());
    serde_json::from_slice(&body).unwrap()
}

#[test]
fn a_request_has_the_headers_that_fcm_wants() {
    let encoder = FcmEncoder::new(Authority::from_static("localhost:8444"), "shop").unwrap();
    let head = encoder.head(HeaderValue::from_static("Bearer x"));
    assert!(head.is_writable());
    assert_eq!(head.address().get(":authority").unwrap(), "localhost:8444");
    assert_eq!(head.address().get(":path").unwrap(), "/v1/projects/shop/messages:send");
    let headers = head.headers().unwrap();
    assert_eq!(headers.len(), 2);
    assert_eq!(headers[AUTHORIZATION], "Bearer x");
    assert_eq!(headers[CONTENT_TYPE], "application/json");
}

#[test]
fn a_message_gets_its_target() {
    let message = content(r#" {"data":{"k":"v"}, "notification":{"title":"{}"}} "#, "");
    assert_eq!(
        body("abc:def-_1", &message, None),
        serde_json::json!({
            "message": { "token": "abc:def-_1", "data": { "k": "v" }, "notification": { "title": "{}" } }
        })
    );
    assert_eq!(
        body("/topics/news", &content("{}", r#"{"validate_only":true}"#), None),
        serde_json::json!({ "validate_only": true, "message": { "topic": "news" } })
    );
    assert_eq!(
        body("t", &content("{}", r#"{"validate_only":false}"#), None),
        serde_json::json!({ "message": { "token": "t" } })
    );
}

#[test]
fn an_expiry_is_told_to_each_platform_unless_the_content_says_otherwise() {
    let expires_at = Some(NOW.plus(Duration::from_secs(90)));
    assert_eq!(
        body("t", &content("{}", ""), expires_at),
        serde_json::json!({ "message": {
            "token": "t",
            "android": { "ttl": "90s" },
            "apns": { "headers": { "apns-expiration": "1800000090" } },
            "webpush": { "headers": { "TTL": "90" } },
        } })
    );
    let own = r#"{"android":{"ttl":"5s","priority":"HIGH"},"apns":{"headers":{"apns-expiration":"0"}},"webpush":{"headers":{"ttl":"7"}}}"#;
    let mut expect: Value = serde_json::from_str(own).unwrap();
    expect["token"] = "t".into();
    assert_eq!(body("t", &content(own, ""), expires_at)["message"], expect);
    let far = Some(NOW.plus(Duration::from_hours(24 * 365)));
    assert_eq!(body("t", &content("{}", ""), far)["message"]["android"]["ttl"], "2419200s");
}

#[test]
fn a_recipient_is_a_token_or_a_topic() {
    let check = |recipient: &str, expect: Option<FcmTarget<'_>>| {
        assert_eq!(FcmTarget::parse(recipient).ok(), expect, "{recipient:?}");
    };
    let token = "dQw4w9WgXcQ:APA91bH-x_y.z";
    check(token, Some(FcmTarget::Token(token)));
    check("/topics/a-b_c.d~e%f9", Some(FcmTarget::Topic("a-b_c.d~e%f9")));
    check(&format!("/topics/{}", "x".repeat(900)), Some(FcmTarget::Topic(&"x".repeat(900))));
    check(&format!("/topics/{}", "x".repeat(901)), None);
    check("/topics/", None);
    check("/topics/a b", None);
    check("/topics/a\"", None);
    check("/topic/a", None);
    check("", None);
    check("a b", None);
    check("a\"", None);
    check("a\\", None);
    check("a\n", None);
    check("ä", None);
}

#[test]
fn a_content_that_fcm_would_refuse_is_refused_with_its_place() {
    let check = content_check(check_content);
    let sized = |bytes: usize| {
        let text = "x".repeat(bytes - "k".len() - "title".len() - "hi".len());
        format!(r#"{{"data":{{"k":"{text}"}},"notification":{{"title":"hi"}}}}"#)
    };
    check("{}", "", None);
    check(r#"{"fcm_options":{"analytics_label":"a"}}"#, "{}", None);
    check(&sized(4096), "", None);
    check(&sized(4097), "", Some(("", "has 4097 bytes")));
    check(&sized(5000), "", Some(("", "904 more than the 4096 that FCM takes")));
    check("", "", Some(("", "is not valid JSON")));
    check("[]", "", Some(("", "must be a message")));
    check(r#"{"token":"x"}"#, "", Some(("/token", "must be left out")));
    check(r#"{"condition":"x"}"#, "", Some(("/condition", "must be left out")));
    check(r#"{"message":{}}"#, "", Some(("/message", "is unknown: a message takes data,")));
    check(r#"{"notification":"hi"}"#, "", Some(("/notification", "must be a JSON object")));
    check(r#"{"data":{"n":12}}"#, "", Some(("/data/n", "must be a text")));
    check(r#"{"data":{"from":"x"}}"#, "", Some(("/data/from", "keeps for itself")));
    check(r#"{"data":{"google.a/b":"x"}}"#, "", Some(("/data/google.a~1b", "keeps for itself")));
    check(r#"{"data":{"collapse_key":"x"}}"#, "", None);
    check("{}", "[]", Some(("", "must be a JSON object")));
    check("{}", r#"{"validate_only":1}"#, Some(("/validate_only", "must be true or false")));
    check("{}", r#"{"ttl":1}"#, Some(("/ttl", "is unknown")));
}

#[test]
fn a_topic_takes_half_as_much() {
    let size = |bytes: usize, target: FcmTarget<'_>| {
        let payload = format!(r#"{{"data":{{"k":"{}"}}}}"#, "x".repeat(bytes - 1));
        let encoded = FcmContent::new(&content(&payload, ""), None, NOW).unwrap();
        encoded.check_size(target).map_err(|invalid| invalid.message)
    };
    assert_eq!(size(2049, FcmTarget::Token("t")), Ok(()));
    assert_eq!(size(2048, FcmTarget::Topic("t")), Ok(()));
    let message = size(2049, FcmTarget::Topic("t")).unwrap_err();
    assert!(message.contains("1 more than the 2048"), "{message}");
}

#[test]
fn blocks_are_cut_without_mixing_bodies_up() {
    let encoder = FcmEncoder::new(Authority::from_static("localhost"), "p").unwrap();
    let shared = FcmContent::new(&content(r#"{"data":{"k":"v"}}"#, ""), None, NOW).unwrap();
    let tokens: Vec<String> = (0..2000).map(|number| format!("token-{number}")).collect();
    let bodies: Vec<Bytes> =
        tokens.iter().map(|token| encoder.body(&shared, FcmTarget::Token(token))).collect();
    for (token, body) in tokens.iter().zip(&bodies) {
        let expect = format!(r#"{{"message":{{"token":"{token}","data":{{"k":"v"}}}}}}"#);
        assert_eq!(body, expect.as_bytes());
    }
}

#[test]
fn an_access_token_is_shown_nowhere() {
    let mut authorization = HeaderValue::from_static("Bearer canary");
    authorization.set_sensitive(true);
    let encoder = FcmEncoder::new(Authority::from_static("localhost:8444"), "shop").unwrap();
    let head = encoder.head(authorization);
    assert_eq!(head.address().get(AUTHORIZATION.as_str()).unwrap(), "Bearer canary", "it is sent");
    assert!(!format!("{head:?}").contains("canary"), "{head:?}");
}
