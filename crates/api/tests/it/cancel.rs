//! Notifications of a scope that wait are cancelled, and cancelled ones are sent again.

use axum::http::Method;
use serde_json::{Value, json};

use crate::support::{Fixture, JSON, fixture, notification};

async fn create(fixture: &Fixture, to: &str, more: &str) -> String {
    let created = fixture.post("/v1/notifications", JSON, notification(to, more)).await;
    created.json()["id"].as_str().unwrap().to_owned()
}

async fn call(fixture: &Fixture, path: &str) -> Value {
    fixture.call(Method::POST, path).await.json()
}

#[tokio::test(start_paused = true)]
async fn a_scope_is_named_as_for_a_pause() {
    let fixture = fixture(Vec::new());
    for number in 0..3 {
        create(&fixture, &format!("a{number}"), "").await;
    }
    for (query, scope, cancelled) in [
        ("channel=mail", "channel/mail", 0),
        ("channel=ios&dry_run=true", "channel/ios", 3),
        ("channel=ios&destination=nowhere&priority=bulk", "lane/ios/bulk/nowhere", 0),
        ("all=true", "tenant", 3),
        ("all=true", "tenant", 0),
    ] {
        let answer = call(&fixture, &format!("/v1/cancel?{query}")).await;
        let expect = json!({
            "tenant": "default", "scope": scope, "at": fixture.now().to_string(), "cancelled": cancelled, "under_way": 0,
            "next": null
        });
        assert_eq!(answer, expect, "{query}");
    }
    assert_eq!(fixture.account().await.cancelled, 3);
    for query in ["", "channel=ios&all=true", "channel=ios&priority=bulk", "all=true&after=here"] {
        fixture.call(Method::POST, &format!("/v1/cancel?{query}")).await.problem(400);
    }
    let problem = fixture.call(Method::POST, "/v1/cancel?broadcast=bc_7").await.problem(404);
    assert_eq!(problem["detail"], "there is no broadcast/bc_7");
}

#[tokio::test(start_paused = true)]
async fn a_cancellation_that_is_asked_for_again_has_the_same_answer() {
    let fixture = fixture(Vec::new());
    let id = create(&fixture, "a1", "").await;
    let one = format!("/v1/notifications/{id}/cancel");
    let body = r#"{"channel":"ios","content":{},"recipients":["a1","a2"]}"#;
    let broadcast = fixture.post("/v1/broadcasts", JSON, body).await;
    let two = format!("{}/cancel", broadcast.header("location"));
    // One of the recipients was cancelled by itself before: it is among those that are cancelled.
    let list = fixture.get("/v1/notifications").await.json();
    let of_two = list["items"].as_array().unwrap().iter().find(|item| item["to"] == "a2").unwrap();
    let three = format!("/v1/notifications/{}/cancel", of_two["id"].as_str().unwrap());
    for (path, count) in [(one, 1), (three, 1), (two, 2)] {
        for _ in 0..3 {
            let answer = call(&fixture, &path).await;
            assert_eq!(answer, json!({"cancelled": count, "under_way": 0, "ended": 0}), "{path}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_cancelled_is_sent_again_when_that_is_asked_for() {
    let fixture = fixture(Vec::new());
    let soon = fixture.now().plus(std::time::Duration::from_mins(1));
    let id = create(&fixture, "a1", "").await;
    create(&fixture, "a2", "").await;
    create(&fixture, "a3", &format!(r#","expires_at":"{soon}""#)).await;
    let cancelled = call(&fixture, "/v1/cancel?all=true").await;
    assert_eq!(
        (&cancelled["cancelled"], &cancelled["at"]),
        (&json!(3), &json!(fixture.now().to_string()))
    );
    let since = cancelled["at"].as_str().unwrap();
    tokio::time::advance(std::time::Duration::from_secs(61)).await;
    let nothing = json!({"matched": 0, "requeued": 0, "expired": 0, "not_yet": 0, "content_removed": 0, "replaced": 0, "next": null});
    assert_eq!(call(&fixture, "/v1/requeue").await, nothing, "dead ones are meant");
    let path = format!("/v1/notifications/{id}/requeue");
    fixture.call(Method::POST, &path).await.problem(409);
    let one = call(&fixture, &format!("{path}?state=cancelled")).await;
    assert_eq!(one, json!({"requeued": 1}));
    let problem = fixture.call(Method::POST, &format!("{path}?state=cancelled")).await.problem(409);
    assert_eq!(problem["detail"], "it is in no state that was asked for");
    let rest = json!({"matched": 2, "requeued": 1, "expired": 1, "not_yet": 0, "content_removed": 0, "replaced": 0, "next": null});
    fixture.call(Method::POST, "/v1/requeue?state=cancelled&channel=ios").await.problem(400);
    for query in ["state=cancelled&dry_run=true", "state=dead,cancelled&tenant=default"] {
        let path = format!("/v1/requeue?{query}&since={since}");
        assert_eq!(call(&fixture, &path).await, rest, "{query}");
    }
    let account = fixture.account().await;
    assert_eq!((account.accepted, account.pending, account.cancelled), (3, 2, 1));
    for state in ["delivered", "", "dead,refused", "cancelled,"] {
        fixture.call(Method::POST, &format!("/v1/requeue?state={state}")).await.problem(400);
    }
}
