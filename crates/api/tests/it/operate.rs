//! The operators' requests.

use std::time::Duration;

use axum::http::Method;
use serde_json::json;

use notification::{
    Chunk, Content, Disposition, Draft, Envelope, Guarantee, Labels, Lane, OutcomeGroup, Priority,
    Settlement, State,
};
use store::{
    ClaimRequest, Claims, ClusterStatus, FeedCursor, Ingest as _, Operations as _, OutboxStatus,
    ReadStore as _, Settlements, WorkerStatus,
};

use crate::support::{Fixture, JSON, fixture, notification};

/// One notification delivered, one pending.
async fn worked() -> (Fixture, String) {
    let fixture = fixture(Vec::new());
    let first = fixture.post("/v1/notifications", JSON, notification("a1", "")).await;
    let lease = notification::limits::LEASE;
    let (now, items, lowest) = (fixture.now(), 10, Priority::Bulk);
    let (lane_window, total_window) = (items, items);
    let probe_window = None;
    let request =
        ClaimRequest { now, lease, items, lowest, lane_window, total_window, probe_window };
    let claim: store::Claim<Chunk> = fixture.store.claim(request).await.unwrap();
    let groups = vec![OutcomeGroup {
        disposition: Disposition::Ended(State::Delivered),
        status: 200,
        detail: "".into(),
        suppress: false,
        gone_since: [].into(),
        indexes: vec![0],
    }];
    let (chunk, epoch) = (claim.chunks[0].id, claim.chunks[0].epoch);
    let settlement = Settlement {
        chunk,
        epoch,
        at: fixture.now(),
        groups,
        places: 0,
        latency: None,
        rate_per_minute: None,
        fallbacks: Vec::new(),
    };
    fixture.store.settle(vec![settlement]).await.unwrap();
    fixture.post("/v1/notifications", JSON, notification("a2", r#","priority":"bulk""#)).await;
    let id = first.json()["id"].as_str().unwrap().to_owned();
    (fixture, id)
}

#[tokio::test(start_paused = true)]
async fn the_log_is_read_from_a_position_on() {
    let (fixture, id) = worked().await;
    let answer = fixture.get("/v1/log").await;
    let [line, end] = answer.lines().try_into().unwrap();
    assert_eq!(
        line,
        json!({"id": id, "at": fixture.now().to_string(), "attempt": 1, "state": "delivered",
            "status": 200, "detail": ""})
    );
    let rest = fixture.get(&format!("/v1/log?position={}", end["next"])).await;
    assert_eq!(rest.lines(), [json!({"next": end["next"]})]);
}

#[tokio::test(start_paused = true)]
async fn a_lane_is_parked_while_its_channel_is_not_configured() {
    let fixture = fixture(Vec::new());
    fixture.post("/v1/notifications", JSON, notification("a1", "")).await;
    let (destination, priority) = ("h".into(), Priority::Normal);
    let [channel, tenant] = ["removed", "default"].map(|text| text.parse().unwrap());
    let envelope = Envelope {
        lane: Lane { channel, destination, priority, tenant },
        guarantee: Guarantee::AtLeastOnce,
        due_at: fixture.now(),
        expires_at: None,
        broadcast: None,
    };
    let draft = Draft {
        envelope,
        recipient: "somebody".into(),
        content: Content::default(),
        idempotency: None,
        labels: Labels::default(),
        trace: None,
    };
    fixture.store.ingest(vec![draft], fixture.now()).await.unwrap();
    let status = fixture.get("/v1/status").await.json();
    let parked =
        |lane: usize| (&status["lanes"][lane]["channel"], &status["lanes"][lane]["parked"]);
    assert_eq!(parked(0), (&json!("ios"), &json!(false)));
    assert_eq!(parked(1), (&json!("removed"), &json!(true)));
    assert_eq!(
        status["parked"],
        json!([{"channel": "removed", "lanes": 1, "notifications": 1,
            "next_due_at": fixture.now().to_string(), "at_least": false}])
    );
    let metrics = fixture.get("/metrics").await.text;
    assert!(metrics.contains("belfry_parked_notifications{channel=\"removed\"} 1\n"), "{metrics}");
}

#[tokio::test(start_paused = true)]
async fn status_audit_and_metrics_agree() {
    let (fixture, id) = worked().await;
    let status = fixture.get("/v1/status").await.json();
    assert_eq!(status["started_at"], fixture.now().to_string());
    let totals = &status["totals"];
    assert_eq!((&totals["accepted"], &totals["delivered"]), (&json!(2), &json!(1)));
    assert_eq!(
        status["lanes"],
        json!([{"channel": "ios", "destination": "h", "priority": "bulk", "tenant": "default", "claimed": 0,
            "next_due_at": "2026-11-21T08:30:00.000Z", "limit": null, "latency_ms": null, "rate_per_minute": null, "answered_at": null, "closed_until": null, "parked": false, "paused": false}])
    );
    let audit = fixture.get("/v1/audit").await.json();
    assert_eq!((&audit["balanced"], &audit["pending"]), (&json!(true), &json!(1)));
    let metrics = fixture.get("/metrics").await;
    assert!(metrics.header("content-type").starts_with("application/openmetrics-text"));
    for line in [
        "belfry_notifications_accepted_total 2\n",
        "belfry_notifications{state=\"delivered\"} 1\n",
        "belfry_notifications{state=\"dead\"} 0\n",
    ] {
        assert!(metrics.text.contains(line), "{}", metrics.text);
    }
    assert!(metrics.text.ends_with("# EOF\n"));
    let found = fixture.get(&format!("/v1/notifications/{id}")).await.json();
    assert_eq!(found["state"], "delivered");
    assert_eq!(found["attempts"][0]["status"], 200);
    let cancel = format!("/v1/notifications/{id}/cancel");
    let problem = fixture.call(Method::POST, &cancel).await.problem(409);
    assert_eq!(problem["detail"], "too late: 0 under way, 1 ended");
}

#[tokio::test(start_paused = true)]
async fn a_cluster_is_told_with_its_workers_and_how_far_it_lags() {
    let (fixture, _) = worked().await;
    assert_eq!(fixture.get("/v1/status").await.json()["cluster"], json!(null));
    let worker = WorkerStatus {
        id: 3,
        name: "here".to_owned(),
        version: "0.1.0".to_owned(),
        produces: true,
        consumes: false,
        listen: None,
        started_at: fixture.now(),
        alive_for: Duration::from_millis(9_500),
        is_standing_by: true,
        partitions: 40,
        claimed: 7,
        settled: 0,
        settled_per_second: 0.5,
    };
    let dead = WorkerStatus {
        id: 2,
        name: "gone".to_owned(),
        alive_for: Duration::ZERO,
        ..worker.clone()
    };
    let workers = vec![dead, worker];
    let outbox = OutboxStatus { waiting: 7, oldest: Duration::from_millis(61_250), rejected: 1 };
    fixture.store.show_cluster(ClusterStatus { workers, partitions_free: 24, outbox });
    tokio::time::advance(Duration::from_secs(3)).await;
    let status = fixture.get("/v1/status").await.json();
    assert_eq!(
        (&status["oldest_due_at"], &status["lag_seconds"]),
        (&json!("2026-11-21T08:30:00.000Z"), &json!(3.25))
    );
    let cluster = &status["cluster"];
    assert_eq!((&cluster["partitions_free"], &cluster["outbox_rejected"]), (&json!(24), &json!(1)));
    assert_eq!(
        (&cluster["outbox_waiting"], &cluster["outbox_oldest_seconds"]),
        (&json!(7), &json!(61.25))
    );
    assert_eq!(cluster["workers"][0]["alive_for_seconds"], 0.0);
    let mut worker = cluster["workers"][1].clone();
    worker.as_object_mut().unwrap().remove("started_at").unwrap();
    assert_eq!(
        worker,
        json!({"id": 3, "name": "here", "role": "produce", "version": "0.1.0", "listen": null,
            "alive_for_seconds": 9.5, "standing_by": true, "partitions": 40, "claimed": 7, "settled": 0,
            "settled_per_second": 0.5})
    );
    let metrics = fixture.get("/metrics").await;
    for line in [
        "belfry_oldest_due_seconds 3.25\n",
        "belfry_workers 1\n",
        "belfry_partitions_owned 40\n",
        "belfry_partitions_free 24\n",
        "belfry_outbox_rejected 1\n",
        "belfry_outbox_rows 7\n",
        "belfry_outbox_oldest_seconds 61.25\n",
        "belfry_available{part=\"start\"} 0\n",
    ] {
        assert!(metrics.text.contains(line), "{line}{}", metrics.text);
    }
}

#[tokio::test(start_paused = true)]
async fn operators_see_the_sources_of_the_process() {
    let fixture = fixture(Vec::new());
    let sources = fixture.get("/v1/status").await.json()["sources"].clone();
    let expect = json!([{"name": "orders", "read": 0, "accepted": 0, "repeated": 0, "dead_lettered": 0, "acknowledged": 0,
        "waiting_since": null, "waits_for": null}]);
    assert_eq!(sources, expect);
}

#[tokio::test(start_paused = true)]
async fn operators_see_for_how_long_the_feed_of_the_suppression_list_has_stood_still() {
    let fixture = fixture(Vec::new());
    let gauge = async || {
        let metrics = fixture.get("/metrics").await.text;
        let mut lines = metrics.lines();
        lines.find(|line| line.starts_with("belfry_suppression_feed")).map(str::to_owned)
    };
    let feed = async || fixture.get("/v1/status").await.json()["suppression_feed"].clone();
    let expect = json!({"position": "0-0", "waiting_since": null, "lag_seconds": 0.0});
    assert_eq!(feed().await, expect);
    assert_eq!(gauge().await.unwrap(), "belfry_suppression_feed_lag_seconds 0.0");
    let since = fixture.now().to_string();
    fixture.post("/v1/suppressions", JSON, r#"{"channel":"ios","to":["a1","a2"]}"#).await;
    tokio::time::advance(Duration::from_secs(90)).await;
    let expect = json!({"position": "0-0", "waiting_since": since, "lag_seconds": 90.0});
    assert_eq!(feed().await, expect);
    assert_eq!(gauge().await.unwrap(), "belfry_suppression_feed_lag_seconds 90.0");
    let name = || "feed".parse().unwrap();
    let at = fixture.store.feed(name()).await.unwrap();
    let page = fixture.store.suppression_events(at.position, 1).await.unwrap();
    let on = FeedCursor { position: page.next, ..at };
    fixture.store.move_feed(name(), at, on).await.unwrap();
    assert_eq!(feed().await["position"], "0-1");
}

#[tokio::test(start_paused = true)]
async fn a_list_goes_on_where_it_stopped() {
    let fixture = fixture(Vec::new());
    let items = vec![notification("a1", ""); 250].join(",");
    fixture.post("/v1/notifications", JSON, format!("[{items}]")).await;
    let mut path = "/v1/notifications?limit=120".to_owned();
    let mut ids = Vec::new();
    loop {
        let page = fixture.get(&path).await.json();
        let items = page["items"].as_array().unwrap();
        ids.extend(items.iter().map(|item| item["id"].as_str().unwrap().to_owned()));
        let Some(next) = page["next"].as_str() else { break };
        path = format!("/v1/notifications?limit=120&after={next}");
    }
    assert_eq!(ids.len(), 250);
    assert!(ids.is_sorted_by(|one, next| one < next));
    let none = fixture.get("/v1/notifications?state=dead&channel=ios").await.json();
    assert_eq!(none, json!({"items": [], "next": null}));
}

#[tokio::test(start_paused = true)]
async fn a_recipient_is_found_in_either_order() {
    let fixture = fixture(Vec::new());
    for to in ["a1", "b2", "a1"] {
        fixture.post("/v1/notifications", JSON, notification(to, "")).await;
    }
    let ids = async |query: &str| -> Vec<String> {
        let page = fixture.get(&format!("/v1/notifications?{query}")).await.json();
        let items = page["items"].as_array().unwrap();
        items.iter().map(|item| item["id"].as_str().unwrap().to_owned()).collect()
    };
    let all = ids("order=oldest").await;
    assert_eq!((all.len(), ids("").await), (3, all.clone()));
    assert_eq!(ids("to=a1").await, [all[0].clone(), all[2].clone()]);
    assert_eq!(ids("to=a1&order=newest").await, [all[2].clone(), all[0].clone()]);
    let after = &all[2];
    assert_eq!(ids(&format!("to=a1&order=newest&after={after}")).await, all[..1]);
    assert!(ids("to=a1&channel=other").await.is_empty());
    assert!(ids("to=a").await.is_empty());
}
