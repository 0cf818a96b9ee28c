//! Requests that cannot be accepted: the status, the field, and nothing stored.

use api::limits::FAULTS;
use axum::body::Body;
use axum::http::{Method, Request};
use notification::limits;

use crate::support::{JSON, LINES, fixture, notification};

/// Sends `body` as a single notification; expects `status` and the pointer of the fault, if it has one.
async fn check(body: impl AsRef<[u8]>, status: u16, pointer: Option<&str>) -> String {
    let fixture = fixture(Vec::new());
    let answer = fixture.post("/v1/notifications", JSON, body.as_ref().to_vec()).await;
    let problem = answer.problem(status);
    assert_eq!(problem["errors"][0]["pointer"].as_str(), pointer, "{problem}");
    assert_eq!(answer.header("content-type"), "application/problem+json");
    fixture.assert_nothing_is_stored().await;
    problem["detail"].as_str().unwrap().to_owned()
}

#[tokio::test(start_paused = true)]
async fn what_is_not_json_is_told_by_line_and_column() {
    for (body, expect) in [
        ("", "EOF while parsing a value at line 1 column 0"),
        ("{", "EOF while parsing an object at line 1 column 1"),
        ("{\n\"to\":,}", "expected value at line 2 column 6"),
        ("{\"to\":\"a\"} x", "trailing characters at line 1 column 12"),
        ("{\"to\":\"a\u{0}\"}", "control character"),
        ("{\"content\":1e}", "invalid number at line 1 column 14"),
    ] {
        let detail = check(body, 400, None).await;
        assert!(detail.contains(expect), "{body:?}: {detail}");
    }
    let detail = check(b"{\"to\":\"\xff\"}", 400, None).await;
    assert_eq!(detail, "not UTF-8 from byte 8 on");
    let unfinished = "[".repeat(100_000);
    check(unfinished, 400, None).await;
}

#[tokio::test(start_paused = true)]
async fn a_wrong_field_is_told_by_its_pointer() {
    let with = |more: &str| notification("a1", more);
    let long_name = format!("/{}", "x".repeat(64));
    let cases = [
        ("5".to_owned(), ""),
        ("\"text\"".to_owned(), ""),
        (with(r#","colour":"red""#), "/colour"),
        (with(r#","a/b~":1"#), "/a~1b~0"),
        (with(r#","to":"b2""#), "/to"),
        (with(r#","to":null"#), "/to"),
        (with(r#","priority":5"#), "/priority"),
        (with(r#","priority":"high""#), "/priority"),
        (with(r#","guarantee":"exactly_once""#), "/guarantee"),
        (with(r#","late":"maybe""#), "/late"),
        (with(r#","send_at":1795249800"#), "/send_at"),
        (with(r#","send_at":123456789012345678901234567890e999999"#), "/send_at"),
        (with(r#","send_at":"tomorrow""#), "/send_at"),
        (with(&format!(r#","send_at":"{}""#, "9".repeat(100_000))), "/send_at"),
        (format!("\"{}\"", "x".repeat(100_000)), ""),
        (with(&format!(r#","{}":1"#, "x".repeat(100_000))), &*long_name),
        (with(r#","send_at":"2026-11-21T08:28:59Z""#), "/send_at"),
        (with(r#","send_at":"2027-11-23T08:30:00Z""#), "/send_at"),
        (with(r#","expires_at":"2026-11-21T08:30:00Z""#), "/expires_at"),
        (
            with(r#","send_at":"2026-11-21T09:00:00Z","expires_at":"2026-11-21T09:00:00Z""#),
            "/expires_at",
        ),
        (with(r#","options":[]"#), "/options"),
        (with(r#","options":{"colour":1}"#), "/options/topic"),
        (with(&format!(r#","options":{{"topic":"{}"}}"#, "x".repeat(4096))), "/options"),
        (with(r#","idempotency_key":"""#), "/idempotency_key"),
        (with(&format!(r#","idempotency_key":"{}""#, "k".repeat(256))), "/idempotency_key"),
        (with(r#","idempotency_key":"a\u0000b""#), "/idempotency_key"),
        (notification("", ""), "/to"),
        (notification("zz", ""), "/to"),
        (notification("a\\u0000", ""), "/to"),
        (notification("a\\ud800", ""), "/to"),
        (notification(&"a".repeat(2049), ""), "/to"),
        (r#"{"to":"a1","content":{}}"#.to_owned(), "/channel"),
        (r#"{"channel":"ios","content":{}}"#.to_owned(), "/to"),
        (r#"{"channel":"ios","to":"a1"}"#.to_owned(), "/content"),
        (r#"{"channel":"sms","to":"a1","content":{}}"#.to_owned(), "/channel"),
        (r#"{"channel":"ios","to":"a1","content":null}"#.to_owned(), "/content"),
        (r#"{"channel":"ios","to":"a1","content":"x"}"#.to_owned(), "/content"),
        (r#"{"channel":"ios","to":"a1","content":{"bad":1}}"#.to_owned(), "/content/bad"),
        (
            format!(
                r#"{{"channel":"ios","to":"a1","content":{{"n":{}{}}}}}"#,
                "[".repeat(128),
                "]".repeat(128)
            ),
            "/content",
        ),
        (
            format!(
                r#"{{"channel":"ios","to":"a1","content":{{"n":"{}"}}}}"#,
                "x".repeat(limits::PAYLOAD_BYTES)
            ),
            "/content",
        ),
    ];
    for (body, pointer) in cases {
        let detail = check(&body, 422, Some(pointer)).await;
        assert!(detail.len() < 500, "a message does not repeat what it refuses: {detail}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_says_what_would_be_right() {
    for (body, expect) in [
        (
            r#"{"channel":"sms","to":"a1","content":{}}"#.to_owned(),
            r#"channel: there is no channel "sms": the channels are `hooks`, `ios`"#,
        ),
        (
            notification("a1", r#","send_at":"2026-11-21T08:00:00Z""#),
            "send_at: 2026-11-21T08:00:00.000Z has passed (it is 2026-11-21T08:30:00.250Z): \
             leave it out to send now",
        ),
        (notification("zz", ""), "to: must be hexadecimal digits"),
        (
            notification("a1", r#","priority":"high""#),
            "priority: \"high\" is not `urgent`, `normal` or `bulk`",
        ),
    ] {
        let detail = check(&body, 422, body_pointer(&body)).await;
        assert_eq!(detail, expect);
    }
}

/// The pointer of the fault that `a_message_says_what_would_be_right` plants.
fn body_pointer(body: &str) -> Option<&'static str> {
    [("sms", "/channel"), ("send_at", "/send_at"), ("zz", "/to"), ("high", "/priority")]
        .into_iter()
        .find_map(|(mark, pointer)| body.contains(mark).then_some(pointer))
}

#[tokio::test(start_paused = true)]
async fn of_an_array_every_bad_item_is_named_and_none_is_stored() {
    let fixture = fixture(Vec::new());
    let items = [
        notification("a1", ""),
        notification("zz", ""),
        r#"{"to":1}"#.to_owned(),
        notification("a2", r#","late":"no""#),
        "7".to_owned(),
    ];
    let answer = fixture.post("/v1/notifications", JSON, format!("[{}]", items.join(","))).await;
    let problem = answer.problem(422);
    let pointers: Vec<_> =
        problem["errors"].as_array().unwrap().iter().map(|error| &error["pointer"]).collect();
    assert_eq!(pointers, ["/1/to", "/2/channel", "/3/late", "/4"]);
    fixture.assert_nothing_is_stored().await;

    let many = vec![notification("zz", ""); 500].join(",");
    let answer = fixture.post("/v1/notifications", JSON, format!("[{many}]")).await;
    assert_eq!(answer.problem(422)["errors"].as_array().unwrap().len(), FAULTS);
    fixture.assert_nothing_is_stored().await;

    let many = vec!["1"; limits::REQUEST_ITEMS + 1].join(",");
    let answer = fixture.post("/v1/notifications", JSON, format!("[{many}]")).await;
    let detail = answer.problem(422)["detail"].to_string();
    assert!(detail.contains("at most 10000 items, has 10001"), "{detail}");
}

#[tokio::test(start_paused = true)]
async fn a_broadcast_with_one_bad_recipient_leaves_nothing() {
    let first = r#"{"channel":"ios","content":{}}"#;
    let lines = |more: &str| format!("{first}\n\"a1\"\n{more}\n\"a2\"\n");
    let long = format!("\"{}\"", "a".repeat(limits::LINE_BYTES));
    let with_many = format!("{}\"zz\"", "\"a1\"\n".repeat(20_000));
    let cases = [
        (lines("\"zz\""), 422, 3, ""),
        (lines("{\"to\":\"zz\"}"), 422, 3, "/to"),
        (lines("{\"from\":\"a1\"}"), 422, 3, "/from"),
        (lines("17"), 422, 3, ""),
        (lines(&long), 422, 3, ""),
        (lines(&with_many), 422, 20_003, ""),
        (lines("a1"), 400, 3, ""),
        (String::new(), 400, 0, ""),
        ("{}\n\"a1\"".to_owned(), 422, 1, "/channel"),
        (format!("\n{}", first.replace("ios", "sms")), 422, 2, "/channel"),
        (r#"{"channel":"ios","to":"a1","content":{}}"#.to_owned(), 422, 1, "/to"),
        (first.to_owned(), 422, 0, "/recipients"),
    ];
    for (body, status, line, pointer) in cases {
        let fixture = fixture(Vec::new());
        let answer = fixture.post("/v1/broadcasts", LINES, body).await;
        let problem = answer.problem(status);
        if status == 422 {
            let error = &problem["errors"][0];
            assert_eq!(error["line"].as_u64().unwrap_or(0), line, "{problem}");
            assert_eq!(error["pointer"], pointer, "{problem}");
        } else if line > 0 {
            let detail = problem["detail"].as_str().unwrap();
            assert!(detail.starts_with(&format!("line {line}: ")), "{detail}");
        }
        fixture.assert_nothing_is_stored().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_broadcast_in_one_object_names_each_bad_recipient() {
    let fixture = fixture(Vec::new());
    let check = async |recipients: &str, pointers: &[&str]| {
        let body = format!(r#"{{"channel":"ios","content":{{}},"recipients":{recipients}}}"#);
        let problem = fixture.post("/v1/broadcasts", JSON, body).await.problem(422);
        let errors = problem["errors"].as_array().unwrap();
        let found: Vec<_> = errors.iter().map(|error| &error["pointer"]).collect();
        assert_eq!(found, pointers);
        fixture.assert_nothing_is_stored().await;
    };
    check(r#"["a1","zz",{"to":"yy"},7]"#, &["/recipients/1", "/recipients/2/to", "/recipients/3"])
        .await;
    check("[]", &["/recipients"]).await;
    check("\"a1\"", &["/recipients"]).await;
    check("null", &["/recipients"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_too_large_is_refused_by_the_number() {
    let fixture = fixture(Vec::new());
    let large = " ".repeat(limits::REQUEST_BYTES + 1);
    for path in ["/v1/notifications", "/v1/broadcasts", "/v1/suppressions"] {
        let problem = fixture.post(path, JSON, large.clone()).await.problem(413);
        assert!(problem["detail"].to_string().contains("16777216"), "{problem}");
    }
    let announced = Request::post("/v1/notifications")
        .header("content-type", JSON)
        .header("content-length", "17000000")
        .body(Body::empty())
        .unwrap();
    fixture.send(announced).await.problem(413);
    fixture.assert_nothing_is_stored().await;
}

#[tokio::test(start_paused = true)]
async fn a_wrong_type_method_or_path_is_told_what_is_right() {
    let fixture = fixture(Vec::new());
    for wrong in ["text/plain", "", "application/jsonx"] {
        let answer = fixture.post("/v1/notifications", wrong, notification("a1", "")).await;
        let detail = answer.problem(415)["detail"].to_string();
        assert!(detail.contains("application/json or application/x-ndjson"), "{detail}");
    }
    let answer = fixture.call(Method::DELETE, "/v1/notifications").await;
    answer.problem(405);
    assert_eq!(answer.header("allow"), "GET,HEAD,POST");
    fixture.get("/v1/nothing").await.problem(404);
    fixture.get("/v1/notifications/nonsense").await.problem(404);
    for (path, expect) in [
        ("/v1/notifications?limit=0", "parameter limit: must be 1 to 1000"),
        ("/v1/notifications?limit=1001", "parameter limit: must be 1 to 1000"),
        ("/v1/notifications?limit=x", "parameter limit: invalid digit"),
        // Not passed over where there is one at most.
        ("/v1/notifications?key=k&limit=0", "parameter limit: must be 1 to 1000"),
        ("/v1/notifications?key=k&after=x", "parameter after: "),
        ("/v1/notifications?state=gone", "parameter state: \\\"gone\\\" is not"),
        ("/v1/notifications?order=up", "\\\"up\\\" is no order: newest or oldest"),
        ("/v1/notifications?colour=red", "the parameters are channel, state"),
        ("/v1/notifications?limit=1&limit=2", "given twice"),
        ("/v1/notifications?channel=a%00", "no control characters"),
        ("/v1/suppressions", "parameter channel is missing"),
        ("/v1/log?position=-1", "parameter position"),
    ] {
        let detail = fixture.get(path).await.problem(400)["detail"].to_string();
        assert!(detail.contains(expect), "{path}: {detail}");
    }
    // PostgreSQL takes no text with this character: it would end the store.
    for path in [
        "/v1/cancel?all=true&after=lane.0.0.0.%00",
        "/v1/pause?channel=x&priority=bulk&destination=%00",
        "/v1/resume?channel=x&priority=bulk&destination=%00",
    ] {
        fixture.call(Method::POST, path).await.problem(400);
    }
    fixture.call(Method::DELETE, "/v1/suppressions?channel=ios&to=%00").await.problem(400);
    fixture.assert_nothing_is_stored().await;
}
