//! Keys that calls make, rotate and revoke.

use api::{Grants, KeyScope};
use axum::body::Body;
use axum::http::{Method, Request};
use flow::Clock;
use notification::Chunk;
use serde_json::{Value, json};
use store::{Claims, ReadStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::keys::{granted, key};
use crate::support::{
    Answer, Fixture, JSON, LINES, chunked_head, connect, fixture, notification, read_until,
    write_chunk,
};

/// Calls with a key.
async fn call(fixture: &Fixture, key: &str, method: Method, path: &str, body: &str) -> Answer {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", JSON)
        .header("authorization", format!("Bearer {key}"));
    fixture.send(request.body(Body::from(body.to_owned())).unwrap()).await
}

/// Posts as the operator.
async fn post(fixture: &Fixture, path: &str, body: &str) -> Answer {
    call(fixture, "bfy_ops", Method::POST, path, body).await
}

/// The status of a call that sends, with a key.
async fn sends(fixture: &Fixture, key: &str) -> u16 {
    let sent = call(fixture, key, Method::POST, "/v1/notifications", &notification("a1", "")).await;
    sent.status.as_u16()
}

fn secret(made: &Answer) -> String {
    assert!(made.status.is_success(), "{}", made.text);
    assert_eq!(made.header("cache-control"), "no-store");
    made.json()["key"].as_str().unwrap().to_owned()
}

async fn items(fixture: &Fixture, query: &str) -> Value {
    let path = format!("/v1/keys{query}");
    call(fixture, "bfy_ops", Method::GET, &path, "").await.json()
}

#[tokio::test(start_paused = true)]
async fn a_key_is_good_from_when_it_is_made_until_it_is_revoked() {
    let fixture = fixture(vec![key("ops", true)]);
    let body = r#"{"name":"shop","tenant":"acme","scopes":["send"],"channels":["ios"],"from":["@A.example"]}"#;
    let made = post(&fixture, "/v1/keys", body).await;
    assert_eq!((made.status.as_u16(), made.header("location")), (201, "/v1/keys/shop"));
    assert_eq!(made.json()["everywhere"], true);
    let shop = secret(&made);
    assert!(shop.starts_with("belfry_"), "{shop}");
    assert_eq!(sends(&fixture, &shop).await, 201);
    call(&fixture, &shop, Method::GET, "/v1/notifications", "").await.problem(403);
    let own = call(&fixture, &shop, Method::GET, "/v1/keys/self", "").await.json();
    let expect = json!({"name": "shop", "tenant": "acme", "scopes": ["send"], "channels": ["ios"],
        "priorities": null, "from": ["@a.example"], "endpoints": null, "not_after": null, "requests_per_minute": null});
    assert_eq!(own, expect);
    let again = post(&fixture, "/v1/keys", body).await.problem(409);
    assert!(again["detail"].as_str().unwrap().contains("rotate it"), "{again}");

    let revoke =
        async || call(&fixture, "bfy_ops", Method::DELETE, "/v1/keys/shop", "").await.json();
    assert_eq!(revoke().await, json!({"revoked": true, "everywhere": true}));
    assert_eq!(sends(&fixture, &shop).await, 401);
    assert_eq!(revoke().await, json!({"revoked": false, "everywhere": true}));
}

#[tokio::test(start_paused = true)]
async fn a_rotated_key_is_good_beside_the_new_one_for_a_while() {
    let fixture = fixture(vec![key("ops", true)]);
    let first = secret(&post(&fixture, "/v1/keys", r#"{"name":"shop","tenant":"acme"}"#).await);
    let second = secret(&post(&fixture, "/v1/keys/shop/rotate", "").await);
    for key in [&first, &second] {
        assert_eq!(sends(&fixture, key).await, 201);
    }
    let shop = items(&fixture, "").await["items"][1].clone();
    assert_eq!(shop["name"], "shop");
    let until = shop["former_until"].as_str().unwrap();
    let now = pipeline::timestamp(Clock::starting_at(crate::support::NOW));
    assert_eq!(until, now.plus(api::limits::FORMER_KEY_USUAL).to_string());
    tokio::time::advance(api::limits::FORMER_KEY_USUAL + std::time::Duration::from_secs(1)).await;
    let late = call(&fixture, &first, Method::GET, "/v1/keys/self", "").await.problem(401);
    assert!(late["detail"].as_str().unwrap().contains("was good until"), "{late}");
    assert_eq!(sends(&fixture, &second).await, 201);

    // At once: the time has passed.
    let path = "/v1/keys/shop/rotate?former_until=2020-01-01T00:00:00Z";
    let third = secret(&post(&fixture, path, "").await);
    assert_eq!(sends(&fixture, &second).await, 401);
    assert_eq!(sends(&fixture, &third).await, 201);
    let far = "/v1/keys/shop/rotate?former_until=2199-01-01T00:00:00Z";
    post(&fixture, far, "").await.problem(400);
    post(&fixture, "/v1/keys/nobodys/rotate", "").await.problem(404);
    post(&fixture, "/v1/keys/No%20Name/rotate", "").await.problem(404);
}

#[tokio::test(start_paused = true)]
async fn no_key_makes_one_that_may_do_more_than_itself() {
    let scopes = [KeyScope::Operate, KeyScope::Read, KeyScope::Send];
    let lesser = Grants::of([KeyScope::Operate, KeyScope::Read]);
    let fixture = fixture(vec![key("ops", true), granted("lesser", "ops", lesser)]);
    let make =
        async |body: &str| call(&fixture, "bfy_lesser", Method::POST, "/v1/keys", body).await;
    let problem =
        make(r#"{"name":"a","tenant":"acme","scopes":["read","send"]}"#).await.problem(403);
    assert_eq!(problem["errors"][0]["pointer"], "/scopes");
    // Neither by the usual scopes, nor by being shown another key's place.
    make(r#"{"name":"a","tenant":"acme"}"#).await.problem(403);
    let body = json!({"name": "b", "tenant": "acme", "scopes": scopes}).to_string();
    secret(&post(&fixture, "/v1/keys", &body).await);
    call(&fixture, "bfy_lesser", Method::POST, "/v1/keys/b/rotate", "").await.problem(403);
    secret(&make(r#"{"name":"a","tenant":"acme","scopes":["read"]}"#).await);
    // It may take one away that may do more.
    let revoked = call(&fixture, "bfy_lesser", Method::DELETE, "/v1/keys/b", "").await;
    assert_eq!(revoked.json()["revoked"], true);
}

#[tokio::test(start_paused = true)]
async fn a_key_beyond_its_rate_is_told_to_wait_and_others_are_not() {
    let fixture = fixture(vec![key("ops", true)]);
    let body = r#"{"name":"shop","tenant":"acme","requests_per_minute":12}"#;
    let shop = secret(&post(&fixture, "/v1/keys", body).await);
    let ask = async |key: &str| call(&fixture, key, Method::GET, "/v1/notifications", "").await;
    for left in [1, 0] {
        let answer = ask(&shop).await;
        assert_eq!(answer.status.as_u16(), 200);
        assert_eq!(answer.header("ratelimit-policy"), r#""key";q=2;w=10"#);
        assert_eq!(answer.header("ratelimit"), format!(r#""key";r={left};t={}"#, 10 - 5 * left));
    }
    let refused = ask(&shop).await;
    refused.problem(429);
    assert_eq!(
        (refused.header("retry-after"), refused.header("ratelimit")),
        ("5", r#""key";r=0;t=10"#)
    );
    assert!(ask("bfy_ops").await.status.is_success());
    // The one after it has the same rate.
    let next = secret(&post(&fixture, "/v1/keys/shop/rotate", "").await);
    ask(&next).await.problem(429);
    tokio::time::advance(std::time::Duration::from_secs(5)).await;
    assert!(ask(&shop).await.status.is_success());
    // What is refused for another reason tells of the rate, too.
    tokio::time::advance(std::time::Duration::from_secs(5)).await;
    let denied = call(&fixture, &next, Method::GET, "/v1/status", "").await;
    denied.problem(403);
    assert_eq!(denied.header("ratelimit"), r#""key";r=0;t=10"#);
}

#[tokio::test(start_paused = true)]
async fn keys_of_the_configuration_are_changed_there() {
    let fixture = fixture(vec![key("ops", true), key("acme", false)]);
    post(&fixture, "/v1/keys", r#"{"name":"acme","tenant":"acme"}"#).await.problem(409);
    for (method, path) in
        [(Method::POST, "/v1/keys/acme/rotate"), (Method::DELETE, "/v1/keys/acme")]
    {
        let problem = call(&fixture, "bfy_ops", method, path, "").await.problem(409);
        assert!(problem["detail"].as_str().unwrap().contains("in the configuration"), "{problem}");
    }
    assert_eq!(sends(&fixture, "bfy_acme").await, 201);
}

#[tokio::test(start_paused = true)]
async fn without_a_configured_key_none_is_made() {
    let fixture = fixture(Vec::new());
    let problem = post(&fixture, "/v1/keys", r#"{"name":"a","tenant":"acme"}"#).await.problem(409);
    assert!(problem["detail"].as_str().unwrap().contains("belfry api-key"), "{problem}");
}

#[tokio::test(start_paused = true)]
async fn keys_are_listed_by_name_page_by_page_and_never_shown() {
    let fixture = fixture(vec![key("ops", true)]);
    let mut secrets = Vec::new();
    for name in ["zoo", "app", "shop"] {
        let body = json!({"name": name, "tenant": "acme", "scopes": ["send"]}).to_string();
        secrets.push(secret(&post(&fixture, "/v1/keys", &body).await));
    }
    let names = |page: &Value| -> Vec<String> {
        let items = page["items"].as_array().unwrap().iter();
        items.map(|item| item["name"].as_str().unwrap().to_owned()).collect()
    };
    let page = items(&fixture, "?limit=3").await;
    assert_eq!(
        (names(&page), &page["next"]),
        (vec!["app".into(), "ops".into(), "shop".into()], &json!("shop"))
    );
    let rest = items(&fixture, "?limit=3&after=shop").await;
    assert_eq!((names(&rest), &rest["next"]), (vec!["zoo".into()], &Value::Null));
    let all = items(&fixture, "").await;
    let expect = json!({"name": "ops", "tenant": "ops", "kept_in": "configuration", "made_at": null, "former_until": null,
        "scopes": KeyScope::ALL, "channels": null, "priorities": null, "from": null, "endpoints": null, "not_after": null, "requests_per_minute": null});
    assert_eq!(all["items"][1], expect);
    assert!(all["items"][0]["made_at"].is_string() && all["items"][0]["kept_in"] == "store");
    for secret in secrets {
        assert!(!all.to_string().contains(&secret));
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_wrong_says_where() {
    let fixture = fixture(vec![key("ops", true)]);
    for (body, pointer) in [
        (r#"{"tenant":"acme"}"#, "/name"),
        (r#"{"name":"a"}"#, "/tenant"),
        (r#"{"name":"No Name","tenant":"acme"}"#, "/name"),
        (r#"{"name":"a","tenant":"acme","scopes":["rule"]}"#, "/scopes/0"),
        (r#"{"name":"a","tenant":"acme","rate":7}"#, "/rate"),
    ] {
        let problem = post(&fixture, "/v1/keys", body).await.problem(422);
        assert_eq!(problem["errors"][0]["pointer"], pointer, "{problem}");
    }
    post(&fixture, "/v1/keys", "{").await.problem(400);
}

/// A stream may last for days.
#[tokio::test]
async fn what_comes_by_a_stream_behind_the_revocation_of_its_key_is_refused() {
    let fixture = fixture(vec![key("ops", true)]);
    let shop = secret(&post(&fixture, "/v1/keys", r#"{"name":"shop","tenant":"acme"}"#).await);
    let server = fixture.listen().await;
    let open = async |path: &str| {
        let head = chunked_head(path, LINES);
        let head = head.replacen("\r\n", &format!("\r\nauthorization: Bearer {shop}\r\n"), 1);
        connect(server.address, &head).await
    };
    let (mut lines, mut broadcast) =
        (open("/v1/notifications").await, open("/v1/broadcasts").await);
    let line = format!("{}\n", notification("a1", ""));
    write_chunk(&mut lines, line.as_bytes()).await;
    read_until(&mut lines, r#"{"line":1,"id":""#).await;
    let mut changes = Claims::<Chunk>::changes(&*fixture.store);
    changes.mark_unchanged();
    write_chunk(&mut broadcast, b"{\"channel\":\"ios\",\"content\":{}}\n\"a1\"\n").await;
    // It is opened.
    changes.changed().await.unwrap();
    call(&fixture, "bfy_ops", Method::DELETE, "/v1/keys/shop", "").await;
    write_chunk(&mut lines, line.as_bytes()).await;
    let text = read_until(&mut lines, "was taken away").await;
    assert!(text.contains(r#"{"line":2,"error":{"status":403"#), "{text}");
    broadcast.write_all(b"0\r\n\r\n").await.unwrap();
    let text = read_until(&mut broadcast, "was taken away").await;
    assert!(text.starts_with("HTTP/1.1 401"), "{text}");
    drop((lines, broadcast));
    server.stop().await;
    let found = fixture.store.totals().await.unwrap();
    assert_eq!(found.accepted, 1);
}

#[tokio::test]
async fn a_stream_of_events_ends_with_its_key_and_a_line_goes_by_what_the_key_is_now() {
    let fixture = fixture(vec![key("ops", true), key("acme", false)]);
    let body = r#"{"name":"shop","tenant":"acme"}"#;
    let shop = secret(&post(&fixture, "/v1/keys", body).await);
    let server = fixture.listen().await;
    let head = format!("authorization: Bearer {shop}\r\n");
    let events =
        format!("GET /v1/events HTTP/1.1\r\nhost: a\r\naccept: text/event-stream\r\n{head}\r\n");
    let mut events = connect(server.address, &events).await;
    // All of its first chunk.
    read_until(&mut events, "\n\n\r\n").await;
    let lines = chunked_head("/v1/notifications", LINES);
    let mut lines =
        connect(server.address, &lines.replacen("\r\n", &format!("\r\n{head}"), 1)).await;
    write_chunk(&mut lines, format!("{}\n", notification("a1", "")).as_bytes()).await;
    read_until(&mut lines, r#"{"line":1,"id":""#).await;
    // At once: the key before the rotation is good no more, though it is known.
    let ended = "/v1/keys/shop/rotate?former_until=2020-01-01T00:00:00Z";
    secret(&post(&fixture, ended, "").await);
    write_chunk(&mut lines, format!("{}\n", notification("a1", "")).as_bytes()).await;
    let text = read_until(&mut lines, "was good until").await;
    assert!(text.contains(r#"{"line":2,"error":{"status":403"#), "{text}");
    // The stream of events ends with the next event of its tenant, which it does not tell.
    let list = call(&fixture, "bfy_acme", Method::GET, "/v1/notifications", "").await.json();
    let cancel = format!("/v1/notifications/{}/cancel", list["items"][0]["id"].as_str().unwrap());
    assert_eq!(call(&fixture, "bfy_acme", Method::POST, &cancel, "").await.status, 200);
    let mut rest = Vec::new();
    events.read_buf(&mut rest).await.unwrap();
    assert_eq!(String::from_utf8(rest).unwrap(), "0\r\n\r\n", "its end, and nothing before it");
    drop((events, lines));
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_page_does_not_end_between_two_keys_of_one_name() {
    let fixture = fixture(vec![key("ops", true)]);
    // As it is when the configuration came to have a name that was stored before.
    let stored = store::StoredKey {
        name: "ops".parse().unwrap(),
        tenant: "acme".parse().unwrap(),
        sha256: [7; 32],
        former: None,
        grants: r#"{"scopes":["send"]}"#.to_owned(),
        made_at: fixture.now(),
    };
    store::KeyStore::change_key(&*fixture.store, store::KeyChange::Add(stored)).await.unwrap();
    let page = items(&fixture, "?limit=1").await;
    assert_eq!((page["items"].as_array().unwrap().len(), &page["next"]), (2, &Value::Null));
}
