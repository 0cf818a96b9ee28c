//! Other ways to tell somebody the same: each is checked when the notification is submitted.

use std::sync::Arc;

use notification::{Alternative, Fallback};
use serde_json::json;
use store::{Filter, Ledger};

use crate::support::{JSON, fixture, notification};

#[tokio::test(start_paused = true)]
async fn fallbacks_are_rendered_and_stored_with_their_notification() {
    let fixture = fixture(Vec::new());
    let more = r#","variables":{"name":"Ann"},"fallback":[
        {"channel":"hooks","to":"b1@x","content":{"dear": "{{ name }}"},"options":{"topic":"t"}},
        {"channel":"ios","to":"c1","template":"welcome"}]"#;
    let answer = fixture.post("/v1/notifications", JSON, notification("a1", more)).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    let stored = fixture.store.list(Filter::default(), None, 9).await.unwrap().items.remove(0);
    let next = vec![
        Alternative {
            channel: "hooks".parse().unwrap(),
            destination: "x".into(),
            recipient: "b1@x".into(),
            payload: r#"{"dear": "Ann"}"#.into(),
            options: r#"{"topic":"t"}"#.into(),
        },
        Alternative {
            channel: "ios".parse().unwrap(),
            destination: "h".into(),
            recipient: "c1".into(),
            payload: r#"{"hello":"Ann"}"#.into(),
            options: r#"{"topic":"t"}"#.into(),
        },
    ];
    assert_eq!(stored.content.fallback, Some(Arc::new(Fallback { of: None, next })));
    let path = format!("/v1/notifications/{}", stored.id);
    let shown = fixture.get(&path).await.json();
    assert_eq!((&shown["fallback_of"], &shown["fell_back_to"]), (&json!(null), &json!(null)));
}

#[tokio::test(start_paused = true)]
async fn a_fallback_that_cannot_be_is_told_by_its_pointer() {
    let check = async |fallback: &str, pointer: &str, part: &str| {
        let fixture = fixture(Vec::new());
        let body = notification("a1", &format!(r#","variables":{{}},"fallback":{fallback}"#));
        let problem = fixture.post("/v1/notifications", JSON, body).await.problem(422);
        let error = &problem["errors"][0];
        assert_eq!(error["pointer"], pointer, "{error}");
        assert!(error["message"].as_str().unwrap().contains(part), "{error}");
        fixture.assert_nothing_is_stored().await;
    };
    let good = r#"{"channel":"ios","to":"b1","content":{}}"#;
    let second = |bad: &str| format!("[{good},{bad}]");
    check("{}", "/fallback", "must be an array").await;
    check(
        &format!("[{good},{good},{good},{good}]"),
        "/fallback",
        "must have at most 3 items, has 4",
    )
    .await;
    check(&second("5"), "/fallback/1", "expected an object").await;
    check(&second(r#"{"to":"b1","content":{}}"#), "/fallback/1/channel", "is missing").await;
    check(&second(r#"{"channel":"ios","content":{}}"#), "/fallback/1/to", "is missing").await;
    check(&second(r#"{"channel":"ios","to":"b1"}"#), "/fallback/1/content", "is missing").await;
    check(
        &second(r#"{"channel":"sms","to":"b1","content":{}}"#),
        "/fallback/1/channel",
        "there is no channel",
    )
    .await;
    check(&second(r#"{"channel":"ios","to":"zz","content":{}}"#), "/fallback/1/to", "hexadecimal")
        .await;
    check(
        &second(r#"{"channel":"ios","to":"b1","content":{"bad":1}}"#),
        "/fallback/1/content/bad",
        "must not be there",
    )
    .await;
    check(
        &second(r#"{"channel":"ios","to":"b1","content":{},"priority":"bulk"}"#),
        "/fallback/1/priority",
        "is unknown",
    )
    .await;
    check(
        &second(r#"{"channel":"ios","to":"b1","content":{"x":"{{ y }}"}}"#),
        "/variables",
        "`y` is missing",
    )
    .await;
    check(
        &second(r#"{"channel":"ios","to":"b1","content":{"x":"{{ 1 2 }}"}}"#),
        "/fallback/1/content/x",
        "is no template",
    )
    .await;
    let large =
        format!(r#"{{"channel":"ios","to":"b1","content":{{"x":"{}"}}}}"#, "x".repeat(100_000));
    check(
        &format!("[{large},{large},{large}]"),
        "/fallback",
        "must have at most 262144 bytes together, has 3000",
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_key_stands_for_the_fallbacks_too_and_broadcasts_have_none() {
    let fixture = fixture(Vec::new());
    let post = async |to: &str| {
        let more = format!(
            r#","idempotency_key":"k","fallback":[{{"channel":"ios","to":"{to}","content":{{}}}}]"#
        );
        fixture.post("/v1/notifications", JSON, notification("a1", &more)).await
    };
    assert_eq!(post("b1").await.json()["replayed"], false);
    assert_eq!(post("b1").await.json()["replayed"], true);
    post("b2").await.problem(409);
    let broadcast = r#"{"channel":"ios","content":{},"recipients":["a1"],"fallback":[]}"#;
    let problem = fixture.post("/v1/broadcasts", JSON, broadcast).await.problem(422);
    assert_eq!(problem["errors"][0]["pointer"], "/fallback");
}
