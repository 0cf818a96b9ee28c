//! Keys, and the requests that they allow.

use api::{ApiKey, Grants, KeyScope, hash, parse_hash};
use axum::body::Body;
use axum::http::{Method, Request};
use serde_json::json;

use crate::support::{Answer, Fixture, JSON, fixture, notification};

/// The key of `tenant`, with the scopes of a tenant or with all.
pub(crate) fn key(tenant: &str, is_operator: bool) -> ApiKey {
    let scopes = if is_operator { &KeyScope::ALL[..] } else { &KeyScope::OF_TENANT };
    granted(tenant, tenant, Grants::of(scopes.iter().copied()))
}

/// The key `name` of `tenant`.
pub(crate) fn granted(name: &str, tenant: &str, grants: Grants) -> ApiKey {
    let sha256 = parse_hash(&hash(&format!("bfy_{name}"))).unwrap();
    ApiKey { name: name.parse().unwrap(), tenant: tenant.parse().unwrap(), sha256, grants }
}

/// Calls with the key `name`.
pub(crate) async fn call(
    fixture: &Fixture,
    name: &str,
    method: Method,
    path: &str,
    body: &str,
) -> Answer {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", JSON)
        .header("authorization", format!("Bearer bfy_{name}"));
    fixture.send(request.body(Body::from(body.to_owned())).unwrap()).await
}

#[tokio::test(start_paused = true)]
async fn without_a_known_key_nothing_but_health_is_answered() {
    let fixture = fixture(vec![key("acme", false)]);
    for authorization in ["", "Bearer", "Bearer bfy_wrong", "Basic bfy_acme", "bfy_acme"] {
        for path in ["/v1/notifications", "/v1/status", "/metrics", "/v1/audit"] {
            let request = Request::get(path).header("authorization", authorization);
            let answer = fixture.send(request.body(Body::empty()).unwrap()).await;
            answer.problem(401);
            assert_eq!(answer.header("www-authenticate"), "Bearer");
        }
    }
    fixture.post("/v1/notifications", JSON, notification("a1", "")).await.problem(401);
    fixture.assert_nothing_is_stored().await;
    assert!(fixture.get("/healthz").await.status.is_success());
    let problem = fixture.get("/readyz").await.problem(503);
    assert_eq!(problem["detail"], "not ready, waiting for: start");
    fixture.set_ready(true);
    assert!(fixture.get("/readyz").await.status.is_success());
}

#[tokio::test(start_paused = true)]
async fn a_tenant_sees_and_cancels_its_own_only() {
    let fixture = fixture(vec![key("acme", false), key("globex", false)]);
    let body = notification("a1", r#","idempotency_key":"k""#);
    let created = call(&fixture, "acme", Method::POST, "/v1/notifications", &body).await;
    let path = created.header("location").to_owned();
    let broadcast = r#"{"channel":"ios","content":{},"recipients":["a1"]}"#;
    let broadcast = call(&fixture, "acme", Method::POST, "/v1/broadcasts", broadcast).await;
    let expect = format!("/v1/broadcasts/{}", broadcast.json()["id"].as_str().unwrap());
    let broadcast = broadcast.header("location").to_owned();
    assert_eq!(broadcast, expect);

    for own in [&path, &broadcast] {
        assert!(call(&fixture, "acme", Method::GET, own, "").await.status.is_success());
        call(&fixture, "globex", Method::GET, own, "").await.problem(404);
        let cancel = format!("{own}/cancel");
        call(&fixture, "globex", Method::POST, &cancel, "").await.problem(404);
    }
    let list = call(&fixture, "globex", Method::GET, "/v1/notifications", "").await.json();
    assert_eq!(list["items"].as_array().unwrap().len(), 0);
    let list = call(&fixture, "acme", Method::GET, "/v1/notifications", "").await.json();
    assert_eq!(list["items"].as_array().unwrap().len(), 2);
    let other = call(&fixture, "globex", Method::POST, "/v1/notifications", &body).await.json();
    assert_eq!(other["replayed"], false, "a key belongs to its tenant");
    let cancel = format!("{path}/cancel");
    let cancelled = call(&fixture, "acme", Method::POST, &cancel, "").await.json();
    assert_eq!(cancelled["cancelled"], 1);
}

#[tokio::test(start_paused = true)]
async fn what_concerns_everybody_needs_an_operator() {
    let fixture = fixture(vec![key("acme", false), key("ops", true)]);
    for path in ["/v1/status", "/v1/audit", "/v1/log", "/v1/suppressions?channel=ios"] {
        call(&fixture, "acme", Method::GET, path, "").await.problem(403);
        let answer = call(&fixture, "ops", Method::GET, path, "").await;
        assert!(answer.status.is_success(), "{path}: {}", answer.text);
    }
    let metrics = call(&fixture, "acme", Method::GET, "/metrics", "").await;
    assert!(metrics.status.is_success());
}

#[tokio::test(start_paused = true)]
async fn without_keys_no_web_page_of_another_site_is_answered() {
    let fixture = fixture(Vec::new());
    let check = async |header: &str, value: &str, status: u16| {
        let request = Request::post("/v1/broadcasts/bc_1/cancel").header(header, value);
        let answer = fixture.send(request.body(Body::empty()).unwrap()).await;
        answer.problem(status);
    };
    for local in ["localhost", "LOCALHOST:8473", "127.0.0.1:8473", "127.1.2.3", "[::1]:8473"] {
        check("host", local, 404).await;
    }
    for foreign in ["evil.example:8473", "localhost.evil.example", "10.0.0.1", "", "[::2]"] {
        check("host", foreign, 403).await;
    }
    check("origin", "http://localhost:8473", 404).await;
    check("origin", "https://evil.example", 403).await;
    check("origin", "null", 403).await;
    // Of another port, as far as the browser says.
    check("sec-fetch-site", "same-origin", 404).await;
    check("sec-fetch-site", "same-site", 403).await;
    // HTTP/2 has the authority in place of `Host`.
    for (authority, status) in [("localhost:8473", 404), ("evil.example:8473", 403)] {
        let request = Request::post(format!("http://{authority}/v1/broadcasts/bc_1/cancel"));
        fixture.send(request.body(Body::empty()).unwrap()).await.problem(status);
    }
}

#[tokio::test(start_paused = true)]
async fn a_tenant_pauses_its_own_and_an_operator_anybodys() {
    let fixture = fixture(vec![key("acme", false), key("globex", false), key("ops", true)]);
    let broadcast = r#"{"channel":"ios","content":{},"recipients":["a1"]}"#;
    let broadcast = call(&fixture, "acme", Method::POST, "/v1/broadcasts", broadcast).await;
    let id = broadcast.json()["id"].as_str().unwrap().to_owned();
    let own = format!("/v1/broadcasts/{id}");
    let post = async |tenant, path: &str| call(&fixture, tenant, Method::POST, path, "").await;

    post("globex", &format!("/v1/pause?broadcast={id}")).await.problem(404);
    let now = fixture.now().to_string();
    let paused = post("acme", &format!("/v1/pause?broadcast={id}")).await.json();
    let scope = format!("broadcast/{id}");
    let expect = json!({"tenant": "acme", "scope": scope, "since": now, "everywhere": true});
    assert_eq!(paused, expect);
    let found = call(&fixture, "acme", Method::GET, &own, "").await.json();
    assert_eq!((&found["paused_since"], &found["pending"]), (&json!(now), &json!(1)));

    let lane = "channel=ios&destination=https%3A%2F%2Fa.example&priority=bulk";
    for (tenant, query) in
        [("acme", lane), ("globex", "channel=ios"), ("ops", "all=true&tenant=acme")]
    {
        assert!(post(tenant, &format!("/v1/pause?{query}")).await.status.is_success(), "{query}");
    }
    post("acme", "/v1/pause?all=true&tenant=globex").await.problem(403);
    for wrong in
        ["", "priority=bulk", "all=false", "channel=ios&all=true", "broadcast=bc_1&channel=ios"]
    {
        post("acme", &format!("/v1/pause?{wrong}")).await.problem(400);
    }
    let list = async |tenant| {
        let list = call(&fixture, tenant, Method::GET, "/v1/pauses", "").await.json();
        let items = list["items"].as_array().unwrap().clone();
        items.into_iter().map(|item| item["scope"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(list("acme").await, ["tenant", "lane/ios/bulk/https://a.example", &scope]);
    assert_eq!(list("globex").await, ["channel/ios"]);
    assert_eq!(list("ops").await.len(), 4);
    let status = call(&fixture, "ops", Method::GET, "/v1/status", "").await.json();
    assert_eq!(status["pauses"].as_array().unwrap().len(), 4);
    assert_eq!(
        (&status["lanes"][0]["paused"], &status["oldest_due_at"]),
        (&json!(true), &json!(null))
    );
    for (name, pauses) in [("acme", 3), ("globex", 1), ("ops", 4)] {
        let metrics = call(&fixture, name, Method::GET, "/metrics", "").await;
        let shown = format!("belfry_pauses {pauses}\n");
        assert!(metrics.text.contains(&shown), "{name}: {}", metrics.text);
    }

    for was_paused in [true, false] {
        let resumed = post("acme", &format!("/v1/resume?broadcast={id}")).await.json();
        assert_eq!(resumed, json!({"resumed": was_paused}));
    }
    let found = call(&fixture, "acme", Method::GET, &own, "").await.json();
    assert_eq!(found["paused_since"], json!(null));
}
