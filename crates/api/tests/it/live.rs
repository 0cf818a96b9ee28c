//! The status as a stream.

use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use flow::Clock;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tokio::time::timeout;
use tower::ServiceExt as _;

use crate::keys::key;
use crate::support::{Fixture, JSON, NOW, fixture, notification};

const SECOND: Duration = Duration::from_secs(1);

/// Opens a stream of the status with `headers`.
async fn open(fixture: &Fixture, headers: &[(&str, &str)]) -> (StatusCode, Body) {
    let request = Request::get("/v1/status").header("accept", "text/event-stream");
    let request = headers.iter().fold(request, |it, (name, value)| it.header(*name, *value));
    let request = request.body(Body::empty()).unwrap();
    let answer = fixture.site.router().clone().oneshot(request).await.unwrap();
    (answer.status(), answer.into_body())
}

/// The next bytes of a stream; none at its end.
async fn next(body: &mut Body) -> Option<String> {
    let frame = body.frame().await?.unwrap();
    Some(String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap())
}

fn accepted(event: &str) -> Value {
    let data = event.strip_prefix("event: status\ndata: ").unwrap();
    serde_json::from_str::<Value>(data).unwrap()["totals"]["accepted"].clone()
}

async fn accept_one(fixture: &Fixture) {
    // Due later, so that the status does not change by itself.
    let later = r#","send_at":"2026-12-24T17:00:00Z""#;
    fixture.post("/v1/notifications", JSON, notification("a1", later)).await.json();
}

#[tokio::test(start_paused = true)]
async fn a_status_is_told_at_once_and_after_each_change_once_a_second_at_most() {
    let fixture = fixture(Vec::new());
    let (status, mut body) = open(&fixture, &[]).await;
    assert_eq!(status, StatusCode::OK);
    let clock = Clock::starting_at(NOW);
    let begun = clock.monotonic();
    assert_eq!(accepted(&next(&mut body).await.unwrap()), json!(0));
    assert_eq!(clock.monotonic().duration_since(begun), Duration::ZERO);
    accept_one(&fixture).await;
    accept_one(&fixture).await;
    assert_eq!(accepted(&next(&mut body).await.unwrap()), json!(2));
    assert_eq!(clock.monotonic().duration_since(begun), SECOND);
    // Nothing changes: a comment tells that it lives.
    assert_eq!(next(&mut body).await.unwrap(), ":\n\n");
    assert_eq!(clock.monotonic().duration_since(begun), SECOND * 16);
}

#[tokio::test(start_paused = true)]
async fn all_who_follow_share_one_look_a_second() {
    let fixture = fixture(Vec::new());
    let (_, mut first) = open(&fixture, &[]).await;
    assert_eq!(accepted(&next(&mut first).await.unwrap()), json!(0));
    accept_one(&fixture).await;
    tokio::time::advance(SECOND / 2).await;
    let (_, mut second) = open(&fixture, &[]).await;
    // As old as half a second: no look for it alone.
    assert_eq!(accepted(&next(&mut second).await.unwrap()), json!(0));
    assert_eq!(accepted(&next(&mut second).await.unwrap()), json!(1));
    assert_eq!(accepted(&next(&mut first).await.unwrap()), json!(1));
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_the_status_ends_with_its_key_or_with_what_that_is_good_for() {
    for (before, after) in [
        (vec![key("ops", true)], key("other", true)),
        (vec![key("ops", true)], key("ops", false)),
        // The first keys that are configured shut out who came without one.
        (Vec::new(), key("ops", true)),
    ] {
        let fixture = fixture(before);
        let (_, mut body) = open(&fixture, &[("authorization", "Bearer bfy_ops")]).await;
        next(&mut body).await.unwrap();
        fixture.configured_keys.send_replace(api::Keys::new(vec![after]));
        assert_eq!(next(&mut body).await, None);
    }
}

#[tokio::test(start_paused = true)]
async fn as_many_follow_as_there_is_room_for() {
    let fixture = fixture(Vec::new());
    let mut bodies = Vec::new();
    for _ in 0..api::limits::LIVE_STREAMS {
        let (status, body) = open(&fixture, &[]).await;
        assert_eq!(status, StatusCode::OK);
        bodies.push(body);
    }
    assert_eq!(open(&fixture, &[]).await.0, StatusCode::SERVICE_UNAVAILABLE);
    bodies.pop();
    let (status, mut body) = open(&fixture, &[]).await;
    assert_eq!(status, StatusCode::OK);
    assert!(timeout(SECOND, next(&mut body)).await.unwrap().is_some());
}
