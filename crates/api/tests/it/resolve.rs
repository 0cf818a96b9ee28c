//! A notification that is in doubt ends by an operator's word, one by one or by a filter, and is not sent.

use axum::http::Method;
use notification::State;
use serde_json::json;

use crate::provider::{claim, create, end};
use crate::support::{Fixture, fixture};

const ONCE: &str = r#", "guarantee": "at_most_once""#;

async fn in_doubt(fixture: &Fixture, recipients: &[&str]) -> Vec<String> {
    let mut ids = Vec::new();
    for recipient in recipients {
        ids.push(create(fixture, recipient, ONCE).await);
    }
    end(fixture, claim(fixture).await, State::InDoubt, "lost").await;
    ids
}

#[tokio::test(start_paused = true)]
async fn one_in_doubt_is_resolved_once_and_the_note_is_kept() {
    let fixture = fixture(Vec::new());
    let ids = in_doubt(&fixture, &["a1"]).await;
    let path = format!("/v1/notifications/{}/resolve", ids[0]);
    let call = async |query: &str| fixture.call(Method::POST, &format!("{path}?{query}")).await;
    for (query, words) in [
        ("", "parameter as is missing"),
        ("as=gone", "parameter as: "),
        ("as=refused", "resolve it as delivered, or as dead"),
        (&format!("as=dead&note={}", "x".repeat(201)), "at most 200 bytes"),
        ("as=dead&state=in_doubt", "is unknown"),
    ] {
        let problem = call(query).await.problem(400);
        assert!(problem["detail"].as_str().unwrap().contains(words), "{query}: {problem}");
    }
    assert_eq!(fixture.account().await.in_doubt, 1);
    let answer = call("as=delivered&note=they%20have%20it").await.json();
    assert_eq!(answer, json!({"matched": 1, "resolved": 1, "next": null}));
    let problem = call("as=dead").await.problem(409);
    assert_eq!(problem["detail"], "it is not in doubt: there is nothing to resolve");
    let read = fixture.get(&format!("/v1/notifications/{}", ids[0])).await.json();
    assert_eq!(read["state"], "delivered");
    assert_eq!(read["attempts"][1]["detail"], "no longer in doubt");
    assert_eq!(read["attempts"][2]["detail"], "resolved by hand: they have it");
    let account = fixture.account().await;
    assert_eq!((account.accepted, account.delivered, account.in_doubt), (1, 1, 0));
    let unknown = "/v1/notifications/01993c5a-2b7a-8a41-8000-000000010000/resolve?as=dead";
    fixture.call(Method::POST, unknown).await.problem(404);
}

#[tokio::test(start_paused = true)]
async fn a_filter_resolves_what_it_matches_a_bounded_number_at_a_time() {
    let fixture = fixture(Vec::new());
    in_doubt(&fixture, &["a1", "a2", "a3"]).await;
    tokio::time::advance(std::time::Duration::from_secs(1)).await;
    let since = fixture.now();
    let later = in_doubt(&fixture, &["b1", "b2", "b3"]).await;
    create(&fixture, "c1", ONCE).await;
    let resolve = async |query: &str| {
        fixture.call(Method::POST, &format!("/v1/resolve?as=dead&{query}")).await
    };
    let problem = resolve("channel=ios").await.problem(400);
    assert!(problem["detail"].as_str().unwrap().contains("since="), "{problem}");
    let counted = resolve(&format!("since={since}&reason=lost&dry_run=true")).await.json();
    assert_eq!(counted, json!({"matched": 3, "resolved": 3, "next": null}));
    assert_eq!(fixture.account().await.in_doubt, 6, "only counted");
    let some = resolve(&format!("since={since}&limit=2")).await.json();
    assert_eq!((&some["matched"], &some["resolved"]), (&json!(2), &json!(2)));
    let after = some["next"].as_str().unwrap();
    let rest = resolve(&format!("since={since}&limit=2&after={after}")).await.json();
    assert_eq!(rest, json!({"matched": 1, "resolved": 1, "next": null}));
    let account = fixture.account().await;
    assert_eq!((account.dead, account.in_doubt, account.pending), (3, 3, 1));
    // One that did not arrive is dead like others, and can be sent again.
    let path = format!("/v1/notifications/{}/requeue", later[0]);
    assert_eq!(fixture.call(Method::POST, &path).await.json(), json!({"requeued": 1}));
}
