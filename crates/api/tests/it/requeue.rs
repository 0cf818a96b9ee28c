//! Notifications that ended undelivered are sent again, one by one or by a filter.

use axum::http::Method;
use notification::State;
use serde_json::{Value, json};

use crate::provider::{claim, create, end};
use crate::support::{Fixture, fixture};

/// Settles everything that is due: dead with these words.
async fn give_up(fixture: &Fixture, words: &'static str) {
    end(fixture, claim(fixture).await, State::Dead, words).await;
}

async fn requeue(fixture: &Fixture, query: &str) -> Value {
    fixture.call(Method::POST, &format!("/v1/requeue?{query}")).await.json()
}

#[tokio::test(start_paused = true)]
async fn one_is_requeued_once_and_only_when_it_is_dead() {
    let fixture = fixture(Vec::new());
    let id = create(&fixture, "a1", "").await;
    let path = format!("/v1/notifications/{id}/requeue");
    let problem = fixture.call(Method::POST, &path).await.problem(409);
    assert_eq!(
        problem["detail"],
        "it is not dead: what was given up is sent again, and with state=cancelled what was cancelled"
    );
    give_up(&fixture, "").await;
    assert_eq!(fixture.call(Method::POST, &path).await.json(), json!({"requeued": 1}));
    fixture.call(Method::POST, &path).await.problem(409);
    let read = fixture.get(&format!("/v1/notifications/{id}")).await.json();
    assert_eq!(
        (&read["state"], &read["attempts"][1]["detail"]),
        (&json!("pending"), &json!("requeued"))
    );
    let unknown = format!("/v1/notifications/{}/requeue", "01993c5a-2b7a-8a41-8000-000000010000");
    fixture.call(Method::POST, &unknown).await.problem(404);
    assert_eq!((fixture.account().await.dead, fixture.account().await.pending), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn what_expired_stays_dead_and_the_answer_says_why() {
    let fixture = fixture(Vec::new());
    let soon = fixture.now().plus(std::time::Duration::from_mins(1));
    let id = create(&fixture, "a1", &format!(r#","expires_at":"{soon}""#)).await;
    give_up(&fixture, "").await;
    tokio::time::advance(std::time::Duration::from_secs(61)).await;
    let path = format!("/v1/notifications/{id}/requeue");
    let problem = fixture.call(Method::POST, &path).await.problem(409);
    assert_eq!(problem["detail"], "its expires_at has passed: send a new one");
    let all = requeue(&fixture, "").await;
    assert_eq!(
        all,
        json!({"matched": 1, "requeued": 0, "expired": 1, "not_yet": 0, "content_removed": 0, "replaced": 0, "next": null})
    );
}

#[tokio::test(start_paused = true)]
async fn a_filter_requeues_what_it_matches_a_bounded_number_at_a_time() {
    let fixture = fixture(Vec::new());
    for number in 0..5 {
        create(&fixture, &format!("a{number}"), "").await;
    }
    give_up(&fixture, "timed out").await;
    let first_died = fixture.now();
    tokio::time::advance(std::time::Duration::from_secs(1)).await;
    create(&fixture, "b1", "").await;
    give_up(&fixture, "503 down").await;
    create(&fixture, "c1", "").await;
    let later = fixture.now();
    for (query, matched) in [
        ("dry_run=true".to_owned(), 6),
        ("dry_run=true&channel=ios".to_owned(), 6),
        ("dry_run=true&channel=hooks".to_owned(), 0),
        ("dry_run=true&reason=503".to_owned(), 1),
        ("dry_run=true&reason=timed%20out".to_owned(), 5),
        (format!("dry_run=true&since={later}"), 1),
        (format!("dry_run=true&until={later}&since={first_died}"), 5),
        ("dry_run=true&destination=nowhere".to_owned(), 0),
    ] {
        let answer = requeue(&fixture, &query).await;
        assert_eq!(
            (&answer["matched"], &answer["requeued"]),
            (&json!(matched), &json!(matched)),
            "{query}"
        );
        assert_eq!(fixture.account().await.dead, 6, "only counted: {query}");
    }
    let some = requeue(&fixture, "reason=timed&limit=3").await;
    assert_eq!(some["requeued"], 3);
    let after = some["next"].as_str().unwrap();
    let rest = requeue(&fixture, &format!("reason=timed&limit=3&after={after}")).await;
    assert_eq!((&rest["requeued"], &rest["next"]), (&json!(2), &json!(null)));
    let account = fixture.account().await;
    assert_eq!((account.accepted, account.dead, account.pending), (7, 1, 6));
    fixture.call(Method::POST, "/v1/requeue?limit=1001").await.problem(400);
    fixture.call(Method::POST, "/v1/requeue?since=yesterday").await.problem(400);
    fixture.call(Method::POST, "/v1/requeue?state=expired").await.problem(400);
}

#[tokio::test(start_paused = true)]
async fn what_was_refused_is_sent_again_unless_a_fallback_was() {
    let fixture = fixture(Vec::new());
    let refused = create(&fixture, "a1", "").await;
    let fallback = r#", "fallback": [{"channel": "hooks", "to": "b2@h", "content": {"n": 2}}]"#;
    let replaced = create(&fixture, "a2", fallback).await;
    let since = fixture.now();
    end(&fixture, claim(&fixture).await, State::Refused, "bad certificate").await;
    fixture.call(Method::POST, "/v1/requeue?state=refused").await.problem(400);
    let path = format!("/v1/notifications/{replaced}/requeue?state=refused");
    let problem = fixture.call(Method::POST, &path).await.problem(409);
    assert!(problem["detail"].as_str().unwrap().contains("fallback"), "{problem}");
    let answer =
        requeue(&fixture, &format!("state=refused&since={since}&reason=certificate")).await;
    assert_eq!(
        (&answer["matched"], &answer["requeued"], &answer["replaced"]),
        (&json!(2), &json!(1), &json!(1))
    );
    let account = fixture.account().await;
    assert_eq!((account.accepted, account.refused, account.pending), (3, 1, 2));
    let read = fixture.get(&format!("/v1/notifications/{refused}")).await.json();
    assert_eq!(read["attempts"][1]["detail"], "requeued, after it was refused");
    end(&fixture, claim(&fixture).await, State::Delivered, "").await;
    let account = fixture.account().await;
    assert_eq!((account.delivered, account.refused, account.pending), (2, 1, 0));
}

#[tokio::test(start_paused = true)]
async fn what_is_in_doubt_is_sent_again_only_with_the_callers_word() {
    let fixture = fixture(Vec::new());
    let id = create(&fixture, "a1", r#", "guarantee": "at_most_once""#).await;
    end(&fixture, claim(&fixture).await, State::InDoubt, "").await;
    let path = format!("/v1/notifications/{id}/requeue?state=in_doubt");
    let problem = fixture.call(Method::POST, &path).await.problem(400);
    assert!(problem["detail"].as_str().unwrap().contains("may_repeat"), "{problem}");
    fixture.call(Method::POST, "/v1/requeue?state=dead,in_doubt").await.problem(400);
    assert_eq!(fixture.account().await.in_doubt, 1);
    let path = format!("{path}&may_repeat=true");
    assert_eq!(fixture.call(Method::POST, &path).await.json(), json!({"requeued": 1}));
    let read = fixture.get(&format!("/v1/notifications/{id}")).await.json();
    assert_eq!(read["attempts"][1]["detail"], "requeued, although it may have arrived");
    end(&fixture, claim(&fixture).await, State::Delivered, "").await;
    let account = fixture.account().await;
    assert_eq!((account.accepted, account.delivered, account.in_doubt), (1, 1, 0));
}
