//! Lists: the broadcasts of a caller, and the channels.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Method, Request};
use serde_json::{Value, json};

use crate::keys::{call, key};
use crate::support::{Fixture, JSON, fixture, notification};

/// Creates a broadcast of `channel` to so many, with `more` fields, and returns its identifier.
async fn broadcast(fixture: &Fixture, channel: &str, recipients: usize, more: &str) -> String {
    let to = vec![r#""a1""#; recipients].join(",");
    let body = format!(r#"{{"channel":"{channel}","content":{{}},"recipients":[{to}]{more}}}"#);
    let created = fixture.post("/v1/broadcasts", JSON, body).await.json();
    created["id"].as_str().unwrap().to_owned()
}

fn ids(page: &Value) -> Vec<String> {
    let items = page["items"].as_array().unwrap();
    items.iter().map(|item| item["id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn broadcasts_are_listed_with_their_size_and_their_pause() {
    let fixture = fixture(Vec::new());
    let more = r#","priority":"bulk","guarantee":"at_most_once","send_at":"2026-11-21T09:30:00Z","expires_at":"2026-11-22T00:00:00Z""#;
    let first = broadcast(&fixture, "ios", 3, more).await;
    let second = broadcast(&fixture, "hooks", 1, "").await;
    let pause = format!("/v1/pause?broadcast={second}");
    assert!(fixture.call(Method::POST, &pause).await.status.is_success());
    let now = fixture.now().to_string();
    let expect = json!({"items": [
        {"id": first, "channel": "ios", "priority": "bulk", "guarantee": "at_most_once", "accepted_at": now,
            "due_at": "2026-11-21T09:30:00.000Z", "expires_at": "2026-11-22T00:00:00.000Z", "accepted": 3, "paused_since": null},
        {"id": second, "channel": "hooks", "priority": "normal", "guarantee": "at_least_once", "accepted_at": now,
            "due_at": "2026-11-21T08:30:00.000Z", "expires_at": null, "accepted": 1, "paused_since": now}
    ], "next": null});
    assert_eq!(fixture.get("/v1/broadcasts").await.json(), expect);
}

#[tokio::test(start_paused = true)]
async fn a_list_of_broadcasts_goes_on_where_it_stopped_in_either_order() {
    let fixture = fixture(Vec::new());
    let (mut all, mut times) = (Vec::new(), Vec::new());
    for number in 0..5 {
        let channel = if number % 2 == 0 { "ios" } else { "hooks" };
        times.push(fixture.now());
        all.push(broadcast(&fixture, channel, 1, "").await);
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    let list = async |query: &str| fixture.get(&format!("/v1/broadcasts?{query}")).await.json();
    let mut newest = Vec::new();
    let mut page = list("order=newest&limit=2").await;
    loop {
        newest.extend(ids(&page));
        let Some(next) = page["next"].as_str() else { break };
        page = list(&format!("order=newest&limit=2&after={next}")).await;
    }
    newest.reverse();
    assert_eq!((&newest, &ids(&list("order=oldest").await)), (&all, &all));
    assert_eq!(ids(&list("channel=hooks").await), [all[1].clone(), all[3].clone()]);
    let (since, until) = (times[1], times[3]);
    assert_eq!(ids(&list(&format!("since={since}&until={until}")).await), all[1..3]);
    for wrong in ["limit=0", "limit=1001", "order=up", "after=7", "state=pending"] {
        fixture.get(&format!("/v1/broadcasts?{wrong}")).await.problem(400);
    }
}

#[tokio::test(start_paused = true)]
async fn a_tenant_lists_its_own_broadcasts_and_every_channel() {
    let fixture = fixture(vec![key("acme", false), key("globex", false)]);
    let body = r#"{"channel":"ios","content":{},"recipients":["a1"]}"#;
    let created = call(&fixture, "acme", Method::POST, "/v1/broadcasts", body).await.json();
    let list = async |tenant: &str, path: &str| {
        call(&fixture, tenant, Method::GET, path, "").await.json()["items"].clone()
    };
    assert_eq!(list("acme", "/v1/broadcasts").await[0]["id"], created["id"]);
    assert_eq!(list("globex", "/v1/broadcasts").await, json!([]));
    let paused = call(&fixture, "acme", Method::POST, "/v1/pause?channel=ios", "").await.json();
    let channels = |since: &Value| {
        json!([
            {"name": "hooks", "kind": "webhook", "messages_per_minute": 600, "paused_since": null},
            {"name": "ios", "kind": "apns", "messages_per_minute": null, "paused_since": since}
        ])
    };
    assert_eq!(list("acme", "/v1/channels").await, channels(&paused["since"]));
    assert_eq!(list("globex", "/v1/channels").await, channels(&Value::Null));
}

/// They are the operator's to replace.
#[tokio::test(start_paused = true)]
async fn credentials_of_channels_are_told_to_operators() {
    let fixture = fixture(vec![key("acme", false), key("ops", true)]);
    let list = async |name: &str| {
        call(&fixture, name, Method::GET, "/v1/channels", "").await.json()["items"].clone()
    };
    let (operators, others) = (list("ops").await, list("acme").await);
    let end = json!([{"what": "client certificate", "expires_at": "2030-03-17T17:46:40.000Z"}]);
    assert_eq!(operators[0]["credentials"], end);
    assert_eq!(
        (&operators[1]["credentials"], &others[0]["credentials"]),
        (&json!(null), &json!(null))
    );
}

#[tokio::test(start_paused = true)]
async fn a_list_is_answered_in_time_with_what_it_has_and_goes_on_behind_that() {
    let fixture = fixture(Vec::new());
    broadcast(&fixture, "ios", 56, "").await;
    // Slices of 8 and 16: a third would not be over within 30 ms.
    fixture.store.slow_lists(Duration::from_millis(15));
    let (mut after, mut found) = (String::new(), Vec::new());
    for expect in [24, 24, 8] {
        let from = fixture.now();
        let page = fixture.get(&format!("/v1/notifications?limit=1000{after}")).await.json();
        assert_eq!(ids(&page).len(), expect);
        assert_eq!(fixture.now().millis() - from.millis(), 30);
        found.extend(ids(&page));
        after = page["next"].as_str().map_or_else(String::new, |next| format!("&after={next}"));
    }
    let different: BTreeSet<&String> = found.iter().collect();
    assert_eq!((different.len(), after.as_str()), (56, ""));
}

#[tokio::test(start_paused = true)]
async fn a_search_that_cancels_is_answered_in_time_and_goes_on_behind_what_it_cancelled() {
    let fixture = fixture(Vec::new());
    broadcast(&fixture, "ios", 450, r#","send_at":"2026-11-21T09:30:00Z""#).await;
    fixture.store.slow_lists(Duration::from_millis(400));
    let mut after = String::new();
    for expect in [200, 200, 50] {
        let path = format!("/v1/cancel?to=a1&channel=ios{after}");
        let answer = fixture.call(Method::POST, &path).await.json();
        assert_eq!(answer["cancelled"], expect);
        after = answer["next"].as_str().map_or_else(String::new, |next| format!("&after={next}"));
    }
    assert_eq!(after, "");
}

#[tokio::test(start_paused = true)]
async fn what_a_client_has_already_is_not_sent_again() {
    let fixture = fixture(Vec::new());
    let created = fixture.post("/v1/notifications", JSON, notification("a1", "")).await;
    let path = created.header("location").to_owned();
    let broadcast = r#"{"channel":"ios","content":{},"recipients":["a1"]}"#;
    let broadcast = fixture.post("/v1/broadcasts", JSON, broadcast.to_owned()).await;
    let broadcast = broadcast.header("location").to_owned();
    let ask = async |path: &str, known: &str| {
        let request = Request::get(path).header("if-none-match", known);
        fixture.send(request.body(Body::empty()).unwrap()).await
    };
    for path in [&*path, &broadcast, "/v1/channels", "/openapi.json"] {
        let first = ask(path, "\"other\"").await;
        let tag = first.header("etag").to_owned();
        assert_eq!(first.status, 200, "{path}");
        let again = ask(path, &tag).await;
        assert_eq!(
            (again.status.as_u16(), again.text.as_str(), again.header("etag")),
            (304, "", &*tag)
        );
    }
    let tag = ask(&path, "").await.header("etag").to_owned();
    fixture.post(&format!("{path}/cancel"), JSON, String::new()).await;
    assert_eq!(ask(&path, &tag).await.status, 200, "it has changed");
}
