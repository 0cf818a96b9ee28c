//! Requests that are repeated after their bounds in time have passed: the key goes before the bounds.

use std::time::Duration;

use axum::http::StatusCode;
use serde_json::{Value, json};

use crate::support::{Fixture, JSON, LINES, fixture, notification};

/// Bounds that are right at the time of the fixture, and not an hour later.
const BOUNDS: &str = r#""send_at":"2026-11-21T08:40:00Z","expires_at":"2026-11-21T08:50:00Z""#;

fn keyed(to: &str, key: &str) -> String {
    notification(to, &format!(r#",{BOUNDS},"idempotency_key":"{key}""#))
}

async fn an_hour_later() {
    tokio::time::advance(Duration::from_hours(1)).await;
}

/// The pointer of the field that a 422 names.
async fn refused(fixture: &Fixture, path: &str, media_type: &str, body: String) -> Value {
    let problem = fixture.post(path, media_type, body).await.problem(422);
    problem["errors"][0]["pointer"].clone()
}

#[tokio::test(start_paused = true)]
async fn a_notification_that_was_accepted_is_answered_when_its_times_have_passed() {
    let fixture = fixture(Vec::new());
    let path = "/v1/notifications";
    let first = fixture.post(path, JSON, keyed("a1", "k")).await.json();
    an_hour_later().await;
    let again = fixture.post(path, JSON, keyed("a1", "k")).await;
    assert_eq!(again.status, StatusCode::CREATED, "{}", again.text);
    assert_eq!(again.json(), json!({"id": first["id"], "replayed": true}));
    assert_eq!(
        again.header("location"),
        format!("/v1/notifications/{}", first["id"].as_str().unwrap())
    );

    // Something else under the same key, a key that is new, and none.
    fixture.post(path, JSON, keyed("a2", "k")).await.problem(409);
    let unused = fixture.post(path, JSON, keyed("a1", "unused")).await.problem(422);
    assert_eq!(
        unused["detail"],
        "send_at: 2026-11-21T08:40:00.000Z has passed (it is 2026-11-21T09:30:00.250Z): \
         leave it out to send now"
    );
    let none = notification("a1", &format!(",{BOUNDS}"));
    assert_eq!(refused(&fixture, path, JSON, none).await, "/send_at");
    let expired = r#","expires_at":"2026-11-21T08:50:00Z","idempotency_key":"unused""#;
    assert_eq!(refused(&fixture, path, JSON, notification("a1", expired)).await, "/expires_at");
    // Nothing is stored by a preview, so there is nothing to answer with.
    assert_eq!(refused(&fixture, "/v1/preview", JSON, keyed("a1", "k")).await, "/send_at");
    assert_eq!(fixture.account().await.accepted, 1);
}

#[tokio::test(start_paused = true)]
async fn a_list_is_answered_as_a_whole_or_not_at_all() {
    let fixture = fixture(Vec::new());
    let path = "/v1/notifications";
    let list = |keys: &[&str]| {
        let items: Vec<_> = keys.iter().map(|key| keyed("a1", key)).collect();
        format!("[{}]", items.join(","))
    };
    let first = fixture.post(path, JSON, list(&["a", "b"])).await.json();
    an_hour_later().await;
    let again = fixture.post(path, JSON, list(&["a", "b"])).await.json();
    assert_eq!(again, json!({"accepted": 0, "replayed": 2, "ids": first["ids"]}));
    let with_new = format!("[{},{}]", notification("a2", ""), keyed("a1", "a"));
    let with_new = fixture.post(path, JSON, with_new).await.json();
    assert_eq!((&with_new["accepted"], &with_new["replayed"]), (&json!(1), &json!(1)));
    assert_eq!(refused(&fixture, path, JSON, list(&["a", "c"])).await, "/1/send_at");
    assert_eq!(fixture.account().await.accepted, 3);
}

#[tokio::test(start_paused = true)]
async fn of_a_stream_those_that_were_accepted_are_answered_and_the_others_refused() {
    let fixture = fixture(Vec::new());
    let lines = |keys: &[&str]| keys.iter().map(|key| keyed("a1", key) + "\n").collect::<String>();
    let first = fixture.post("/v1/notifications", LINES, lines(&["a", "b"])).await.lines();
    an_hour_later().await;
    let body = lines(&["a", "c", "b"]) + &keyed("a2", "a");
    let again = fixture.post("/v1/notifications", LINES, body).await.lines();
    assert_eq!(again[0], json!({"line": 1, "id": first[0]["id"], "replayed": true}));
    let error = &again[1]["error"];
    assert_eq!((&error["status"], &error["pointer"]), (&json!(422), &json!("/send_at")));
    assert_eq!(error["code"], "invalid_field");
    assert_eq!(again[2], json!({"line": 3, "id": first[1]["id"], "replayed": true}));
    assert_eq!(again[3]["error"]["code"], "idempotency_key_reused");
    assert_eq!(again[4], json!({"accepted": 0, "replayed": 2, "refused": 2}));
}

#[tokio::test(start_paused = true)]
async fn a_broadcast_that_was_accepted_is_answered_when_its_times_have_passed() {
    let fixture = fixture(Vec::new());
    let path = "/v1/broadcasts";
    let head = |key: &str| {
        format!(r#"{{"channel":"ios","content":{{"n":1}},{BOUNDS},"idempotency_key":"{key}""#)
    };
    let lines = |key: &str| format!("{}}}\n\"a1\"\n\"a2\"\n", head(key));
    let whole = |key: &str| format!(r#"{},"recipients":["a1","a2"]}}"#, head(key));
    let first = fixture.post(path, LINES, lines("k")).await.json();
    an_hour_later().await;
    for (media_type, body) in [(LINES, lines("k")), (JSON, whole("k"))] {
        let again = fixture.post(path, media_type, body).await.json();
        assert_eq!(again, json!({"id": first["id"], "accepted": 2, "replayed": true}));
    }
    assert_eq!(refused(&fixture, path, JSON, whole("unused")).await, "/send_at");
    let unused = fixture.post(path, LINES, lines("unused")).await.problem(422);
    assert_eq!(unused["errors"][0]["line"], 1);
    // The key of a broadcast is that of no notification.
    fixture.post("/v1/notifications", JSON, keyed("a1", "k")).await.problem(409);
}
