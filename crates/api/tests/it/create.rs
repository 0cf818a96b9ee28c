//! Requests that can be accepted, and the notifications that come of them.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use notification::{BroadcastId, Draft, Timestamp, limits};
use pipeline::ingest::Reservation;
use serde_json::json;
use store::{
    Admission, BroadcastDraft, BroadcastOpened, Ingest, Memory, RecipientGroup, StoreError,
};

use crate::support::{Answer, Fixture, JSON, LINES, fixture, fixture_over, notification};

async fn post(fixture: &Fixture, body: &str, key: &str) -> Answer {
    let request = Request::post("/v1/notifications")
        .header("content-type", "application/json; charset=utf-8")
        .header("idempotency-key", key);
    fixture.send(request.body(Body::from(body.to_owned())).unwrap()).await
}

#[tokio::test(start_paused = true)]
async fn one_notification_is_stored_as_it_was_given() {
    let fixture = fixture(Vec::new());
    let body = r#" {"channel":"ios","to":"a\u0031","content":{"n" : 1.0,"text":"\u00e9é"},
        "options":{"topic":"x"},"guarantee":"at_most_once","priority":"urgent",
        "send_at":"2026-11-21T10:30:00+01:00","expires_at":"2026-11-21T12:00:00Z","late":"skip"} "#;
    let answer = fixture.post("/v1/notifications", JSON, body).await;
    assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.text);
    let id = answer.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(answer.json(), json!({"id": id, "replayed": false}));
    assert_eq!(answer.header("location"), format!("/v1/notifications/{id}"));

    let found = fixture.get(answer.header("location")).await;
    assert!(found.text.contains(r#""content":{"n" : 1.0,"text":"\u00e9é"}"#), "{}", found.text);
    let mut found = found.json();
    found.as_object_mut().unwrap().remove("content");
    assert_eq!(
        found,
        json!({
            "id": id, "channel": "ios", "destination": "h", "to": "a1", "state": "pending",
            "guarantee": "at_most_once", "priority": "urgent",
            "accepted_at": "2026-11-21T08:30:00.250Z",
            "due_at": "2026-11-21T09:30:00.000Z", "expires_at": "2026-11-21T09:31:00.000Z",
            "broadcast": null, "fallback_of": null, "fallback_id": null, "next_attempt_at": "2026-11-21T09:30:00.000Z", "attempts": [],
            "options": {"topic": "x"},
        })
    );
}

#[tokio::test(start_paused = true)]
async fn a_notification_that_is_not_scheduled_is_due_in_the_second_it_was_accepted() {
    let fixture = fixture(Vec::new());
    let answer = fixture.post("/v1/notifications", JSON, notification("a1", "")).await;
    let found = fixture.get(answer.header("location")).await.json();
    assert_eq!(found["due_at"], "2026-11-21T08:30:00.000Z");
    assert_eq!(found["accepted_at"], fixture.now().to_string());
    assert_eq!(
        (&found["guarantee"], &found["priority"]),
        (&json!("at_least_once"), &json!("normal"))
    );
}

#[tokio::test(start_paused = true)]
async fn the_same_key_twice_is_one_notification_and_for_something_else_a_conflict() {
    let fixture = fixture(Vec::new());
    let body = notification("a1", r#","idempotency_key":"k""#);
    let first = fixture.post("/v1/notifications", JSON, body.clone()).await.json();
    tokio::time::advance(Duration::from_secs(100)).await;
    let again = post(&fixture, &notification("a1", ""), "k").await;
    assert_eq!(again.status, StatusCode::CREATED);
    assert_eq!(again.json(), json!({"id": first["id"], "replayed": true}));
    assert_eq!(post(&fixture, &body, "k").await.json()["replayed"], true);

    for other in [notification("a2", ""), notification("a1", r#","priority":"bulk""#)] {
        let problem = post(&fixture, &other, "k").await.problem(409);
        assert_eq!(problem["errors"][0]["pointer"], "/idempotency_key");
    }
    let problem = post(&fixture, &body, "other").await.problem(400);
    assert!(problem["detail"].to_string().contains("differ"), "{problem}");
    assert_eq!(fixture.account().await.accepted, 1);
}

#[tokio::test(start_paused = true)]
async fn an_array_is_accepted_whole() {
    let fixture = fixture(Vec::new());
    let keyed = |to: &str| notification(to, r#","idempotency_key":"k""#);
    let body = format!("[{},{},{}]", notification("a1", ""), keyed("a2"), keyed("a2"));
    let answer = fixture.post("/v1/notifications", JSON, body).await;
    assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.text);
    let many = answer.json();
    assert_eq!((&many["accepted"], &many["replayed"]), (&json!(2), &json!(1)));
    assert_eq!(many["ids"][1], many["ids"][2]);

    let body = format!("[{},{}]", notification("a3", ""), keyed("a3"));
    let problem = fixture.post("/v1/notifications", JSON, body).await.problem(409);
    assert_eq!(problem["errors"][0]["pointer"], "/1/idempotency_key");
    let answer = fixture.post("/v1/notifications", JSON, "[]").await;
    assert_eq!(answer.json(), json!({"accepted": 0, "replayed": 0, "ids": []}));
    assert_eq!(fixture.account().await.accepted, 2);
    let keyed = post(&fixture, &format!("[{}]", notification("a1", "")), "k").await;
    keyed.problem(400);
}

#[tokio::test(start_paused = true)]
async fn a_stream_answers_every_line_and_counts_them() {
    let fixture = fixture(Vec::new());
    let long = notification(&"a".repeat(limits::LINE_BYTES), "");
    let lines = [
        notification("a1", r#","idempotency_key":"k""#),
        "not json".to_owned(),
        String::new(),
        notification("zz", ""),
        notification("a1", r#","idempotency_key":"k""#),
        long,
        notification("a2", r#","idempotency_key":"k""#),
        notification("a3", ""),
    ];
    let answer = fixture.post("/v1/notifications", LINES, lines.join("\r\n")).await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(answer.header("content-type"), LINES);
    let answers = answer.lines();
    let [first, syntax, token, again, long, conflict, last, counts] = answers.as_slice() else {
        panic!("{}", answer.text)
    };
    assert_eq!(first["line"], 1);
    assert_eq!((&syntax["line"], &syntax["error"]["status"]), (&json!(2), &json!(400)));
    assert_eq!(
        token,
        &json!({"line": 4, "error": {"status": 422, "pointer": "/to",
            "detail": "must be hexadecimal digits", "code": "invalid_field"}})
    );
    assert_eq!(again, &json!({"line": 5, "id": first["id"], "replayed": true}));
    assert_eq!((&long["line"], &long["error"]["status"]), (&json!(6), &json!(413)));
    assert_eq!((&conflict["line"], &conflict["error"]["status"]), (&json!(7), &json!(409)));
    assert_eq!(last["line"], 8);
    assert_eq!(counts, &json!({"accepted": 2, "replayed": 1, "refused": 4}));
    assert_eq!(fixture.account().await.accepted, 2);
}

#[tokio::test(start_paused = true)]
async fn a_long_stream_is_answered_in_order() {
    let fixture = fixture(Vec::new());
    let lines = 3 * limits::STREAM_ITEMS + 7;
    let body = format!("{}\n", notification("a1", "")).repeat(lines);
    let answers = fixture.post("/v1/notifications", LINES, body).await.lines();
    assert_eq!(answers.len(), lines + 1);
    assert!((1..=lines).zip(&answers).all(|(number, answer)| answer["line"] == number));
    assert_eq!(answers[lines], json!({"accepted": lines, "replayed": 0, "refused": 0}));
    assert_eq!(fixture.account().await.accepted, lines as u64);
    let empty = fixture.post("/v1/notifications", LINES, "").await;
    assert_eq!(empty.lines(), [json!({"accepted": 0, "replayed": 0, "refused": 0})]);
}

#[tokio::test(start_paused = true)]
async fn a_broadcast_is_one_content_for_all_its_recipients() {
    let fixture = fixture(Vec::new());
    let recipients = limits::STREAM_RECIPIENTS + 3;
    let head = r#"{"channel":"ios","content":{"n":1},"priority":"bulk","idempotency_key":"k"}"#;
    let body = format!("{head}\n{{\"to\":\"a1@x\"}}\n{}", "\"b2\"\n".repeat(recipients - 1));
    let answer = fixture.post("/v1/broadcasts", LINES, body.clone()).await;
    assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.text);
    let id = answer.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(answer.json(), json!({"id": id, "accepted": recipients, "replayed": false}));
    assert_eq!(fixture.account().await.accepted, recipients as u64);

    let again = fixture.post("/v1/broadcasts", LINES, body).await.json();
    assert_eq!(again, json!({"id": id, "accepted": recipients, "replayed": true}));
    let other = format!("{}\n\"a1\"", head.replace("bulk", "normal"));
    fixture.post("/v1/broadcasts", LINES, other).await.problem(409);

    let found = fixture.get(&format!("/v1/broadcasts/{id}")).await.json();
    assert_eq!((&found["accepted"], &found["pending"]), (&json!(recipients), &json!(recipients)));
    let list = fixture.get(&format!("/v1/notifications?broadcast={id}&limit=1000")).await.json();
    let items = list["items"].as_array().unwrap();
    assert_eq!(items.len(), 1000);
    assert!(items.iter().all(|item| item["broadcast"] == *id && item["content"].is_null()));
    assert!(list["next"].is_string());

    let cancel = format!("/v1/broadcasts/{id}/cancel");
    let cancelled = fixture.call(Method::POST, &cancel).await.json();
    assert_eq!(cancelled, json!({"cancelled": recipients, "under_way": 0, "ended": 0}));
    assert_eq!(fixture.call(Method::POST, &cancel).await.json(), cancelled, "again");
}

#[tokio::test(start_paused = true)]
async fn a_broadcast_may_bring_its_recipients_with_it() {
    let fixture = fixture(Vec::new());
    let body = r#"{"recipients":["a1",{"to":"a2"}],"channel":"ios","content":{}}"#;
    let answer = fixture.post("/v1/broadcasts", JSON, body).await;
    assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.text);
    assert_eq!(answer.json()["accepted"], 2);
    assert_eq!(fixture.account().await.pending, 2);
}

#[tokio::test(start_paused = true)]
async fn when_the_bytes_are_used_up_the_answer_is_to_come_back() {
    let fixture = fixture(Vec::new());
    let whose = |name: &str| name.parse().unwrap();
    let rest = limits::INGEST_BYTES - limits::INGEST_TENANT_BYTES - limits::INGEST_RESERVE;
    let mut all = Vec::new();
    for (tenant, bytes) in [("a", limits::INGEST_TENANT_BYTES), ("b", rest)] {
        let mut held = Reservation::default();
        fixture.intake.reserve(&whose(tenant), bytes, &mut held).unwrap();
        all.push(held);
    }
    let one = fixture.post("/v1/notifications", JSON, notification("a1", "")).await;
    assert_eq!(one.status, StatusCode::CREATED, "there is a reserve for single ones");
    let mut held = Reservation::default();
    while fixture.intake.reserve(&whose("c"), limits::INGEST_SMALL, &mut held).is_ok() {
        all.push(std::mem::take(&mut held));
    }
    let stream = fixture.post("/v1/notifications", LINES, notification("a1", "")).await;
    assert_eq!(stream.lines()[0]["error"]["status"], 503, "{}", stream.text);
    let lines = format!("{}\n\"a1\"", r#"{"channel":"ios","content":{}}"#);
    for (path, content_type, body) in [
        ("/v1/notifications", JSON, notification("a1", "")),
        ("/v1/broadcasts", LINES, lines.clone()),
    ] {
        let answer = fixture.post(path, content_type, body).await;
        answer.problem(503);
        assert_eq!(answer.header("retry-after"), "1");
    }
    assert_eq!(fixture.account().await.accepted, 1);
    drop(all);
    fixture.post("/v1/broadcasts", LINES, lines).await;
    assert_eq!(fixture.account().await.accepted, 2);
    let mut all_given_back = Vec::new();
    for (tenant, bytes) in [("default", limits::INGEST_TENANT_BYTES), ("b", rest)] {
        let mut held = Reservation::default();
        let reserved = fixture.intake.reserve(&whose(tenant), bytes, &mut held);
        all_given_back.push((reserved, held));
    }
    assert!(
        all_given_back.iter().all(|(reserved, _)| reserved.is_ok()),
        "everything was given back"
    );
}

#[tokio::test(start_paused = true)]
async fn a_tenant_with_too_much_under_way_is_told_that_it_is_its_own() {
    let fixture = fixture(Vec::new());
    let mut held = Reservation::default();
    let tenant = "default".parse().unwrap();
    fixture.intake.reserve(&tenant, limits::INGEST_TENANT_BYTES, &mut held).unwrap();
    let answer = fixture.post("/v1/notifications", JSON, notification("a1", "")).await;
    answer.problem(429);
    assert_eq!(answer.header("retry-after"), "1");
    let stream = fixture.post("/v1/notifications", LINES, notification("a1", "")).await;
    assert_eq!(stream.lines()[0]["error"]["status"], 429, "{}", stream.text);
    fixture.assert_nothing_is_stored().await;
}

/// A store whose disk failed.
#[derive(Debug)]
struct Broken;

fn broken<T>() -> Result<T, StoreError> {
    Err(StoreError::Broken("disk full at /secret".to_owned()))
}

#[async_trait]
impl Ingest for Broken {
    async fn ingest(&self, _: Vec<Draft>, _: Timestamp) -> Result<Vec<Admission>, StoreError> {
        broken()
    }

    async fn open_broadcast(
        &self,
        _: BroadcastDraft,
        _: Timestamp,
    ) -> Result<BroadcastOpened, StoreError> {
        Ok(BroadcastOpened::Opened(BroadcastId(1)))
    }

    async fn add_recipients(
        &self,
        _: BroadcastId,
        _: Vec<RecipientGroup>,
        _: Timestamp,
    ) -> Result<(), StoreError> {
        broken()
    }

    async fn seal_broadcast(&self, _: BroadcastId, _: Timestamp) -> Result<u64, StoreError> {
        broken()
    }

    async fn abandon_broadcast(&self, _: BroadcastId) -> Result<(), StoreError> {
        broken()
    }
}

#[tokio::test(start_paused = true)]
async fn a_broken_store_is_never_taken_for_an_acceptance() {
    let fixture = fixture_over(Arc::new(Broken), Arc::new(Memory::new()), Vec::new());
    let broadcast = r#"{"channel":"ios","content":{},"recipients":["a1"]}"#;
    for (path, body) in
        [("/v1/notifications", notification("a1", "")), ("/v1/broadcasts", broadcast.to_owned())]
    {
        let problem = fixture.post(path, JSON, body).await.problem(503);
        assert!(!problem.to_string().contains("secret"), "{problem}");
    }
    let stream = fixture.post("/v1/notifications", LINES, notification("a1", "")).await;
    let [only] = stream.lines().try_into().unwrap();
    assert_eq!(only["error"]["status"], 503);
    assert!(only["accepted"].is_null());
}
