//! Recipients are erased, with all that is stored about them.

use axum::http::Method;
use notification::State;
use serde_json::{Value, json};

use crate::provider::{claim, create, end};
use crate::support::{Fixture, JSON, fixture};

async fn erase(fixture: &Fixture, query: &str) -> Value {
    fixture.call(Method::DELETE, &format!("/v1/recipients?{query}")).await.json()
}

async fn read(fixture: &Fixture, id: &str) -> Value {
    fixture.get(&format!("/v1/notifications/{id}")).await.json()
}

fn answer(erased: u64, cancelled: u64, under_way: u64, suppressions: u64) -> Value {
    json!({"erased": erased, "cancelled": cancelled, "under_way": under_way, "suppressions": suppressions, "next": null})
}

#[tokio::test(start_paused = true)]
async fn what_ended_is_erased_what_waits_is_cancelled_and_what_is_sent_is_left_for_later() {
    let fixture = fixture(Vec::new());
    let sent = create(&fixture, "a1", "").await;
    end(&fixture, claim(&fixture).await, State::Delivered, "").await;
    let under_way = create(&fixture, "a1", "").await;
    let chunks = claim(&fixture).await;
    let waits = create(&fixture, "a1", r#", "priority": "bulk""#).await;
    let other = create(&fixture, "b2", "").await;
    assert_eq!(erase(&fixture, "to=a1").await, answer(2, 1, 1, 0));
    let (sent, waits) = (read(&fixture, &sent).await, read(&fixture, &waits).await);
    assert_eq!(
        (&sent["to"], &sent["content"], &sent["state"]),
        (&Value::Null, &Value::Null, &json!("delivered"))
    );
    assert_eq!((&waits["to"], &waits["state"]), (&Value::Null, &json!("cancelled")));
    assert_eq!(read(&fixture, &under_way).await["to"], "a1");
    end(&fixture, chunks, State::Delivered, "").await;
    assert_eq!(erase(&fixture, "to=a1").await, answer(1, 0, 0, 0));
    assert_eq!(erase(&fixture, "to=a1").await, answer(0, 0, 0, 0), "nothing is left");
    assert_eq!(read(&fixture, &other).await["to"], "b2");
    assert!(fixture.account().await.is_balanced());
}

#[tokio::test(start_paused = true)]
async fn the_suppression_list_is_an_operators() {
    let fixture = fixture(Vec::new());
    let body = r#"{"channel": "ios", "to": ["a1", "b2"], "reason": "asked to"}"#;
    fixture.post("/v1/suppressions", JSON, body.to_owned()).await.json();
    assert_eq!(erase(&fixture, "to=a1&suppressions=false").await, answer(0, 0, 0, 0));
    assert_eq!(erase(&fixture, "to=a1").await, answer(0, 0, 0, 1));
    let listed = fixture.get("/v1/suppressions?channel=ios").await.json();
    assert_eq!(listed["items"].as_array().unwrap().len(), 1);
    fixture.call(Method::DELETE, "/v1/recipients").await.problem(400);
    fixture.call(Method::DELETE, "/v1/recipients?to=").await.problem(400);
    fixture.call(Method::DELETE, "/v1/recipients?to=a1&dry=1").await.problem(400);
}

#[tokio::test(start_paused = true)]
async fn fallbacks_are_of_the_one_who_is_erased() {
    let fixture = fixture(Vec::new());
    let fallback = r#", "fallback": [{"channel": "hooks", "to": "c3@h", "content": {"n": 2}}]"#;
    let refused = create(&fixture, "a1", fallback).await;
    end(&fixture, claim(&fixture).await, State::Refused, "").await;
    let stands_in = read(&fixture, &refused).await["fallback_id"].as_str().unwrap().to_owned();
    assert_eq!(read(&fixture, &stands_in).await["to"], "c3@h");
    // It waits, and would be sent to an address that was not named.
    assert_eq!(erase(&fixture, "to=a1").await, answer(2, 1, 0, 0));
    let gone = read(&fixture, &stands_in).await;
    assert_eq!((&gone["to"], &gone["state"]), (&Value::Null, &json!("cancelled")));
    // Nothing fell back here: the address is in the notification alone.
    let delivered = create(&fixture, "a1", fallback).await;
    end(&fixture, claim(&fixture).await, State::Delivered, "").await;
    assert_eq!(erase(&fixture, "to=c3@h").await, answer(1, 0, 0, 0));
    assert_eq!(read(&fixture, &delivered).await["to"], Value::Null);
}
