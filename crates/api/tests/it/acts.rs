//! The trail of acts.

use axum::http::Method;
use serde_json::{Value, json};
use store::{ActFilter, ReadStore};

use crate::keys::{call, key};
use crate::support::{Fixture, fixture, notification};

/// The acts that the key `name` sees, newest first.
async fn acts(fixture: &Fixture, name: &str, query: &str) -> Vec<Value> {
    let list = call(fixture, name, Method::GET, &format!("/v1/acts{query}"), "").await.json();
    list["items"].as_array().unwrap().clone()
}

#[tokio::test(start_paused = true)]
async fn who_has_done_what_is_written_down_with_what_came_of_it() {
    let fixture = fixture(vec![key("acme", false), key("ops", true)]);
    let created =
        call(&fixture, "acme", Method::POST, "/v1/notifications", &notification("a1", "")).await;
    let id = created.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(acts(&fixture, "ops", "").await, Vec::<Value>::new(), "handing in is no act");

    let path = format!("/v1/notifications/{id}/cancel");
    let cancelled = call(&fixture, "acme", Method::POST, &path, "").await;
    let [act] = &acts(&fixture, "acme", "").await[..] else { panic!("one act") };
    assert_eq!(act["request"], cancelled.header("x-request-id"));
    let expect = json!({"key": "acme", "caller": "acme", "tenant": "acme", "asked": path, "status": 200,
        "call": "POST /v1/notifications/{id}/cancel", "answer": {"cancelled": 1, "under_way": 0, "ended": 0}});
    for (field, value) in expect.as_object().unwrap() {
        assert_eq!(act[field], *value, "{field}");
    }
    assert!(act["at"].is_string() && act["ended_at"].is_string());

    // By an operator for a tenant, with what the body asked for, and one that was refused.
    let asked = "/v1/pause?channel=ios&tenant=acme";
    call(&fixture, "ops", Method::POST, asked, "").await;
    let body = r#"{"channel":"ios","to":["a1","a2"]}"#;
    call(&fixture, "ops", Method::POST, "/v1/suppressions", body).await;
    call(&fixture, "ops", Method::POST, "/v1/notifications/nobody/cancel", "").await.problem(404);
    let all = acts(&fixture, "ops", "").await;
    let brief = |act: &Value| {
        json!([act["key"], act["caller"], act["tenant"], act["status"], act["answer"]])
    };
    let all: Vec<Value> = all.iter().map(brief).collect();
    assert_eq!(all[0], json!(["ops", "ops", "ops", 404, null]));
    assert_eq!(all[1], json!(["ops", "ops", "ops", 200, {"channel": "ios", "suppressed": 2}]));
    let paused = &all[2];
    assert_eq!(
        (&paused[1], &paused[2], &paused[4]["scope"]),
        (&json!("ops"), &json!("acme"), &json!("channel/ios"))
    );
    assert_eq!(all.len(), 4);
    // A tenant sees what concerns it, and nothing else.
    let own = acts(&fixture, "acme", "").await;
    assert_eq!(
        own.iter().map(|act| act["asked"].clone()).collect::<Vec<_>>(),
        [json!(asked), json!(path)]
    );
    call(&fixture, "acme", Method::GET, "/v1/acts?tenant=ops", "").await.problem(403);
    assert_eq!(acts(&fixture, "ops", "?tenant=acme").await, own);
    assert_eq!(acts(&fixture, "ops", "?key=acme").await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_trail_has_neither_recipients_nor_keys() {
    let fixture = fixture(vec![key("ops", true)]);
    let made =
        call(&fixture, "ops", Method::POST, "/v1/keys", r#"{"name":"shop","tenant":"acme"}"#).await;
    let rotated = call(&fixture, "ops", Method::POST, "/v1/keys/shop/rotate", "").await;
    call(&fixture, "ops", Method::DELETE, "/v1/recipients?to=a-bob", "").await;
    call(&fixture, "ops", Method::DELETE, "/v1/suppressions?channel=ios&to=a-bob", "").await;
    let body = r#"{"channel":"ios","to":"a-bob","reason":"bob asked"}"#;
    call(&fixture, "ops", Method::POST, "/v1/suppressions", body).await;
    let page = fixture.store.acts(ActFilter::default(), None, 99).await.unwrap();
    assert_eq!(page.items.len(), 5);
    let text = format!("{page:?}");
    assert!(!text.contains("bob"), "{text}");
    for answer in [made, rotated] {
        assert!(!text.contains(answer.json()["key"].as_str().unwrap()), "{text}");
    }
    let all = acts(&fixture, "ops", "").await;
    assert_eq!(all[4]["answer"]["scopes"].as_array().unwrap().len(), 5, "{}", all[4]);
}

#[tokio::test(start_paused = true)]
async fn an_act_is_among_those_of_the_tenant_that_it_concerns_and_a_refused_one_among_its_callers()
{
    let fixture = fixture(vec![key("acme", false), key("globex", false), key("ops", true)]);
    call(&fixture, "ops", Method::POST, "/v1/keys", r#"{"name":"shop","tenant":"acme"}"#).await;
    call(&fixture, "ops", Method::POST, "/v1/keys/shop/rotate", "").await;
    call(&fixture, "ops", Method::DELETE, "/v1/keys/shop", "").await;
    let own = acts(&fixture, "acme", "").await;
    let calls: Vec<&Value> = own.iter().map(|act| &act["asked"]).collect();
    assert_eq!(calls, ["/v1/keys/shop", "/v1/keys/shop/rotate", "/v1/keys"]);
    let refused = "/v1/pause?all=true&tenant=acme";
    call(&fixture, "globex", Method::POST, refused, "").await.problem(403);
    assert_eq!(acts(&fixture, "acme", "").await.len(), 3);
    assert_eq!(acts(&fixture, "globex", "").await[0]["asked"], refused);
}

#[tokio::test(start_paused = true)]
async fn acts_are_listed_page_by_page() {
    let fixture = fixture(vec![key("acme", false)]);
    for _ in 0..5 {
        call(&fixture, "acme", Method::POST, "/v1/pause?channel=ios", "").await;
    }
    let (mut after, mut seen) = (String::new(), Vec::new());
    loop {
        let list = call(&fixture, "acme", Method::GET, &format!("/v1/acts?limit=2{after}"), "")
            .await
            .json();
        seen.extend(
            list["items"].as_array().unwrap().iter().map(|act| act["id"].as_u64().unwrap()),
        );
        match list["next"].as_u64() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    assert_eq!(seen, [5, 4, 3, 2, 1]);
}
