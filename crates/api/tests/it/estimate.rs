//! When a broadcast will be complete, as it is told while it is sent.

use std::time::Duration;

use axum::http::Method;
use notification::{Chunk, Disposition, OutcomeGroup, Priority, Settlement, State, Timestamp};
use serde_json::{Value, json};
use store::{Claim, ClaimRequest, Claims, Settlements as _};

use crate::support::{Fixture, JSON, fixture};

const RECIPIENTS: u16 = 1_000;
const SECOND: Duration = Duration::from_secs(1);

/// A broadcast that expires then, its path and its one chunk, which is claimed.
async fn broadcast(fixture: &Fixture, expires_at: Option<Timestamp>) -> (String, Chunk) {
    let recipients: Vec<String> = (0..RECIPIENTS).map(|number| format!("{number:04}")).collect();
    let mut body = json!({"channel": "ios", "content": {}, "recipients": recipients});
    if let Some(expires_at) = expires_at {
        body["expires_at"] = json!(expires_at.to_string());
    }
    let created = fixture.post("/v1/broadcasts", JSON, body.to_string()).await.json();
    let [chunk] = claim_all(fixture).await.try_into().unwrap();
    (format!("/v1/broadcasts/{}", created["id"].as_str().unwrap()), chunk)
}

pub(crate) async fn claim_all(fixture: &Fixture) -> Vec<Chunk> {
    let items = usize::MAX;
    let request = ClaimRequest {
        now: fixture.now(),
        lease: notification::limits::LEASE,
        items,
        lowest: Priority::Bulk,
        lane_window: items,
        total_window: items,
        probe_window: None,
    };
    let claim: Claim<Chunk> = fixture.store.claim(request).await.unwrap();
    claim.chunks
}

/// Settles `indexes` of a chunk alike.
async fn settle(
    fixture: &Fixture,
    chunk: &Chunk,
    indexes: std::ops::Range<u16>,
    disposition: Disposition,
) {
    let group = OutcomeGroup {
        disposition,
        status: 200,
        detail: "".into(),
        suppress: false,
        gone_since: [].into(),
        indexes: indexes.collect(),
    };
    let (at, groups) = (fixture.now(), vec![group]);
    let (chunk, epoch) = (chunk.id, chunk.epoch);
    let settlement = Settlement {
        chunk,
        epoch,
        at,
        groups,
        places: 4,
        latency: None,
        rate_per_minute: None,
        fallbacks: Vec::new(),
    };
    fixture.store.settle(vec![settlement]).await.unwrap();
}

async fn estimate(fixture: &Fixture, path: &str) -> Value {
    fixture.get(path).await.json()["estimate"].clone()
}

fn instant(text: &Value) -> Timestamp {
    text.as_str().unwrap().parse().unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_broadcast_is_told_from_how_it_went() {
    let fixture = fixture(Vec::new());
    let (path, chunk) = broadcast(&fixture, None).await;
    assert_eq!(estimate(&fixture, &path).await["state"], "early", "nothing has ended");
    let delivered = Disposition::Ended(State::Delivered);
    for number in 0..30 {
        tokio::time::advance(SECOND).await;
        settle(&fixture, &chunk, number * 10..number * 10 + 10, delivered).await;
    }
    // Ten a second, and 700 are left.
    let end = fixture.now().plus(70 * SECOND);
    let running = estimate(&fixture, &path).await;
    assert_eq!(running["state"], "running");
    let (earliest, latest) = (instant(&running["earliest"]), instant(&running["latest"]));
    assert!(earliest <= end && end <= latest, "{running}");
    assert!(latest.since(earliest) < 60 * SECOND, "it says something: {running}");
    assert!(running["least_seconds"].as_f64() <= running["most_seconds"].as_f64());

    fixture.call(Method::POST, "/v1/pause?channel=ios").await;
    let since = fixture.now();
    tokio::time::advance(600 * SECOND).await;
    let paused = estimate(&fixture, &path).await;
    assert_eq!((&paused["state"], &paused["since"]), (&json!("paused"), &json!(since.to_string())));
    assert_eq!((&paused["earliest"], &paused["latest"]), (&Value::Null, &Value::Null));
    assert_eq!(paused["most_seconds"], running["most_seconds"], "once it is resumed");
    fixture.call(Method::POST, "/v1/resume?channel=ios").await;

    let stalled = estimate(&fixture, &path).await;
    assert_eq!((&stalled["state"], &stalled["latest"]), (&json!("stalled"), &Value::Null));
    // The time is known to a span of the series.
    assert!(instant(&stalled["since"]).since(since) <= 2 * SECOND, "{stalled}");

    // What is left waits for a retry, whose time is known.
    let retry_at = fixture.now().plus(300 * SECOND);
    settle(&fixture, &chunk, 300..995, delivered).await;
    settle(&fixture, &chunk, 995..1_000, Disposition::Retry { at: retry_at }).await;
    let tail = estimate(&fixture, &path).await;
    let (earliest, latest) = (instant(&tail["earliest"]), instant(&tail["latest"]));
    assert!(earliest.since(retry_at) <= 10 * SECOND && retry_at <= earliest, "{tail}");
    assert!(latest.since(retry_at) <= 60 * SECOND, "{tail}");
}

#[tokio::test(start_paused = true)]
async fn many_destinations_with_little_for_each_are_looked_at_together() {
    let fixture = fixture(Vec::new());
    for destinations in [20, 40] {
        let recipients: Vec<String> = (0..RECIPIENTS)
            .map(|number| format!("{number:04}@h{}", number % destinations))
            .collect();
        let body = json!({"channel": "ios", "content": {}, "recipients": recipients}).to_string();
        let created = fixture.post("/v1/broadcasts", JSON, body).await.json();
        let path = format!("/v1/broadcasts/{}", created["id"].as_str().unwrap());
        let chunks = claim_all(&fixture).await;
        assert_eq!(chunks.len(), usize::from(destinations));
        let delivered = Disposition::Ended(State::Delivered);
        // Four a second: the same number in every lane, in turn.
        for (number, chunk) in (0..120).zip(chunks.iter().cycle()) {
            if number % 4 == 0 {
                tokio::time::advance(SECOND).await;
            }
            let index = number / destinations;
            settle(&fixture, chunk, index..index + 1, delivered).await;
        }
        let end = fixture.now().plus(220 * SECOND);
        let told = estimate(&fixture, &path).await;
        assert_eq!(told["state"], "running", "{destinations}: {told}");
        assert!(instant(&told["earliest"]) <= end && end <= instant(&told["latest"]), "{told}");
        assert!(instant(&told["latest"]) <= end.plus(220 * SECOND), "{told}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_left_when_it_expires_ends_then() {
    let fixture = fixture(Vec::new());
    let expires_at = fixture.now().plus(60 * SECOND);
    let (path, chunk) = broadcast(&fixture, Some(expires_at)).await;
    for number in 0..30 {
        tokio::time::advance(SECOND).await;
        settle(&fixture, &chunk, number..number + 1, Disposition::Ended(State::Delivered)).await;
    }
    // One a second, and 970 are left.
    let answer = fixture.get(&path).await.json();
    assert_eq!(answer["expires_at"], expires_at.to_string());
    let estimate = &answer["estimate"];
    assert_eq!(instant(&estimate["earliest"]), expires_at);
    assert_eq!(instant(&estimate["latest"]), expires_at.plus(60 * SECOND));
}

#[tokio::test(start_paused = true)]
async fn before_it_is_created_the_time_follows_from_what_went_before() {
    let fixture = fixture(Vec::new());
    let path = "/v1/estimate?channel=ios&recipients=1000";
    let unknown = fixture.get(path).await.json();
    assert_eq!((&unknown["least_seconds"], &unknown["ahead"]), (&Value::Null, &json!(0)));
    assert!(unknown["unknown"].as_str().unwrap().starts_with("nothing went there"), "{unknown}");

    let (_, chunk) = broadcast(&fixture, None).await;
    for number in 0..30 {
        tokio::time::advance(SECOND).await;
        let first = number * 10;
        settle(&fixture, &chunk, first..first + 10, Disposition::Ended(State::Delivered)).await;
    }
    let told = fixture.get(path).await.json();
    assert_eq!((&told["destination"], &told["ahead"]), (&json!("h"), &json!(700)));
    assert_eq!(told["unknown"], Value::Null, "{told}");
    // Ten a second: 100 s if they go first, 170 s behind all that is under way.
    let seconds = |field: &str| told[field].as_f64().unwrap();
    assert!((70.0..=100.0).contains(&seconds("least_seconds")), "{told}");
    assert!((170.0..=240.0).contains(&seconds("most_seconds")), "{told}");
    let elsewhere = fixture.get(&format!("{path}&destination=elsewhere")).await.json();
    assert!(elsewhere["unknown"].is_string());
    fixture.call(Method::POST, "/v1/pause?channel=ios").await;
    assert_eq!(fixture.get(path).await.json()["unknown"], "the channel is paused");
    for (query, detail) in [
        ("recipients=1", "parameter channel is missing"),
        ("channel=ios", "parameter recipients is missing"),
        ("channel=gone&recipients=1", "parameter channel: there is no channel gone"),
    ] {
        let problem = fixture.get(&format!("/v1/estimate?{query}")).await.problem(400);
        assert_eq!(problem["detail"], detail);
    }
}

#[tokio::test(start_paused = true)]
async fn of_a_scheduled_broadcast_the_beginning_is_told_and_of_a_complete_one_nothing() {
    let fixture = fixture(Vec::new());
    let begin = fixture.now().plus(Duration::from_hours(1)).to_string();
    let body = json!({"channel": "ios", "content": {}, "recipients": ["a1"], "send_at": begin})
        .to_string();
    let created = fixture.post("/v1/broadcasts", JSON, body).await.json();
    let path = format!("/v1/broadcasts/{}", created["id"].as_str().unwrap());
    let scheduled = estimate(&fixture, &path).await;
    assert_eq!((&scheduled["state"], &scheduled["earliest"]), (&json!("scheduled"), &json!(begin)));
    assert_eq!(scheduled["latest"], Value::Null);
    fixture.call(Method::POST, &format!("{path}/cancel")).await;
    assert_eq!(estimate(&fixture, &path).await["state"], "complete");
}
