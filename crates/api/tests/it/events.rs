//! Delivery events, by a bounded wait and as a stream.

use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::support::{Fixture, fixture, notification};

const JSON: &str = "application/json";

/// Ends `count` notifications for `a0`, `a1`, ...: they are accepted, and cancelled.
async fn end(fixture: &Fixture, count: usize) -> Vec<String> {
    let mut ids = Vec::new();
    for number in 0..count {
        let body = notification(&format!("a{number}"), "");
        let created = fixture.post("/v1/notifications", JSON, body).await.json();
        let id = created["id"].as_str().unwrap().to_owned();
        fixture.post(&format!("/v1/notifications/{id}/cancel"), JSON, "").await;
        ids.push(id);
    }
    ids
}

/// Opens a stream of events.
async fn open(fixture: &Fixture, path: &str, last: Option<&str>) -> Body {
    let mut request =
        Request::get(path).header("host", "localhost").header("accept", "text/event-stream");
    if let Some(last) = last {
        request = request.header("last-event-id", last);
    }
    let answer = fixture.site.router().clone().oneshot(request.body(Body::empty()).unwrap());
    let answer = answer.await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    assert_eq!(answer.headers()["content-type"], "text/event-stream");
    answer.into_body()
}

/// The next bytes of a stream.
async fn next(body: &mut Body) -> String {
    let frame = body.frame().await.unwrap().unwrap();
    String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap()
}

/// Recipients of the events among some bytes of a stream, and the last place that they name.
fn read(bytes: &str) -> (Vec<String>, String) {
    let events = bytes.lines().filter_map(|line| line.strip_prefix("data: "));
    let to = |data: &str| {
        let event: Value = serde_json::from_str(data).unwrap();
        event["to"].as_str().unwrap().to_owned()
    };
    let last = bytes.lines().filter_map(|line| line.strip_prefix("id: ")).next_back();
    (events.map(to).collect(), last.unwrap_or_default().to_owned())
}

#[tokio::test(start_paused = true)]
async fn events_are_read_from_a_position_on_and_filtered() {
    let fixture = fixture(Vec::new());
    let ids = end(&fixture, 3).await;
    let lines = fixture.get("/v1/events?limit=2").await.lines();
    let [first, _, place] = &lines[..] else { panic!("{lines:?}") };
    let expect = json!({"position": first["position"], "id": ids[0], "channel": "ios", "to": "a0",
        "at": fixture.now().to_string(), "attempt": 0, "state": "cancelled", "status": 0, "detail": ""});
    assert_eq!(*first, expect);
    let position = place["next"].as_str().unwrap();
    let rest = fixture.get(&format!("/v1/events?position={position}")).await.lines();
    assert_eq!((rest.len(), &rest[0]["id"]), (2, &json!(ids[2])));
    let count =
        async |filter: &str| fixture.get(&format!("/v1/events?{filter}")).await.lines().len() - 1;
    assert_eq!(count("channel=hooks").await, 0);
    assert_eq!(count("channel=hooks,ios&state=cancelled,dead").await, 3);
    assert_eq!(count("state=dead").await, 0);
    for bad in ["position=x", "wait=26", "state=pending", "state=x", "attempts=1", "limit=0"] {
        fixture.get(&format!("/v1/events?{bad}")).await.problem(400);
    }
}

#[tokio::test(start_paused = true)]
async fn who_waits_is_answered_with_the_first_event() {
    let fixture = fixture(Vec::new());
    let start = fixture.now();
    let later = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        end(&fixture, 1).await;
    };
    let (answer, ()) = tokio::join!(fixture.get("/v1/events?wait=20"), later);
    assert_eq!(answer.lines().len(), 2);
    assert!(fixture.now().since(start) < Duration::from_secs(6));
}

#[tokio::test(start_paused = true)]
async fn a_stream_begins_now_goes_on_after_its_last_event_and_has_heartbeats() {
    let fixture = fixture(Vec::new());
    end(&fixture, 2).await;
    let mut stream = open(&fixture, "/v1/events", None).await;
    let (_, begins) = read(&next(&mut stream).await);
    // Nothing that was there before; a comment while nothing comes.
    assert_eq!(next(&mut stream).await, ":\n\n");
    end(&fixture, 3).await;
    let mut told = Vec::new();
    let mut last = String::new();
    while told.len() < 3 {
        let (more, place) = read(&next(&mut stream).await);
        told.extend(more);
        last = if place.is_empty() { last } else { place };
    }
    assert_eq!(told, ["a0", "a1", "a2"]);
    drop(stream);
    end(&fixture, 1).await;
    // What a browser remembers goes before what its address says.
    let path = format!("/v1/events?position={begins}");
    let mut stream = open(&fixture, &path, Some(&last)).await;
    next(&mut stream).await;
    assert_eq!(read(&next(&mut stream).await).0, ["a0"]);
    let mut stream = open(&fixture, &path, None).await;
    next(&mut stream).await;
    assert_eq!(read(&next(&mut stream).await).0.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn so_many_streams_are_open_at_a_time() {
    let fixture = fixture(Vec::new());
    let mut streams = Vec::new();
    for _ in 0..api::limits::EVENT_STREAMS {
        streams.push(open(&fixture, "/v1/events", None).await);
    }
    let one_more = || {
        let request = Request::get("/v1/events").header("host", "localhost");
        let request = request.header("accept", "text/event-stream").body(Body::empty()).unwrap();
        fixture.site.router().clone().oneshot(request)
    };
    assert_eq!(one_more().await.unwrap().status(), StatusCode::SERVICE_UNAVAILABLE);
    streams.pop();
    assert_eq!(one_more().await.unwrap().status(), StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn feeds_of_events_are_shown_with_their_lag() {
    let fixture = fixture(Vec::new());
    end(&fixture, 1).await;
    tokio::time::advance(Duration::from_secs(90)).await;
    let feeds = fixture.get("/v1/status").await.json()["feeds"].clone();
    assert_eq!((&feeds[0]["name"], &feeds[0]["lag_seconds"]), (&json!("outcomes"), &json!(90.0)));
    let metrics = fixture.get("/metrics").await.text;
    assert!(metrics.contains("belfry_feed_lag_seconds{feed=\"outcomes\"} 90.0"), "{metrics}");
    assert!(metrics.contains("belfry_feed_lag_seconds{feed=\"feed\"} 0.0"), "{metrics}");
}

#[tokio::test(start_paused = true)]
async fn a_last_event_that_is_none_is_refused_without_a_stream_too() {
    let fixture = fixture(Vec::new());
    for (accept, last) in [
        ("text/event-stream", &b"{}"[..]),
        ("application/x-ndjson", b"{}"),
        ("application/x-ndjson", b"\xc2\x84"),
        ("text/event-stream", b"\xff"),
    ] {
        let request =
            Request::get("/v1/events").header("accept", accept).header("last-event-id", last);
        let problem = fixture.send(request.body(Body::empty()).unwrap()).await.problem(400);
        assert_eq!(problem["code"], "invalid_header");
    }
}
