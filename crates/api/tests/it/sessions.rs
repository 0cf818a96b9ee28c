//! Sessions of the dashboard: a key becomes a cookie, and the cookie is good for what the key is.

use api::{Grants, KeyScope, Keys};
use axum::body::Body;
use axum::http::{Method, Request};
use http_body_util::BodyExt as _;
use serde_json::json;
use tower::ServiceExt as _;

use crate::keys::{call, granted, key};
use crate::support::{Answer, Fixture, fixture};

/// A browser that has logged in.
struct Browser {
    cookie: String,
    csrf: String,
}

/// A fixture with the key `ops` of an operator.
fn operated() -> Fixture {
    fixture(vec![key("ops", true)])
}

async fn log_in(fixture: &Fixture, name: &str) -> Browser {
    let answer = call(fixture, name, Method::POST, "/v1/session", "").await;
    let session = answer.json();
    let set_cookie = answer.header("set-cookie");
    assert!(set_cookie.contains("; HttpOnly; SameSite=Strict; "), "{set_cookie}");
    let (cookie, _) = set_cookie.split_once(';').unwrap();
    Browser { cookie: cookie.to_owned(), csrf: session["csrf"].as_str().unwrap().to_owned() }
}

impl Browser {
    async fn call(&self, fixture: &Fixture, method: Method, path: &str) -> Answer {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("cookie", &self.cookie)
            .header("x-belfry-csrf", &self.csrf);
        fixture.send(request.body(Body::empty()).unwrap()).await
    }
}

/// Checks that a browser has no session any more, which is no error to ask.
async fn assert_has_none(fixture: &Fixture, browser: &Browser) {
    let session = browser.call(fixture, Method::GET, "/v1/session").await.json();
    let none = [&session["name"], &session["tenant"], &session["csrf"], &session["expires_at"]];
    assert_eq!(none, [&json!(null); 4]);
    assert_eq!((&session["open"], &session["scopes"]), (&json!(false), &json!([])));
    browser.call(fixture, Method::GET, "/v1/status").await.problem(401);
}

#[tokio::test(start_paused = true)]
async fn a_session_stands_for_its_key_until_it_is_ended() {
    let fixture = operated();
    let browser = log_in(&fixture, "ops").await;
    let session = browser.call(&fixture, Method::GET, "/v1/session").await.json();
    assert_eq!((&session["name"], &session["open"]), (&json!("ops"), &json!(false)));
    assert_eq!(session["csrf"], json!(browser.csrf));
    assert_eq!(session["expires_at"], json!("2026-11-21T20:30:00.250Z"));
    assert!(browser.call(&fixture, Method::GET, "/v1/status").await.status.is_success());
    assert!(browser.call(&fixture, Method::POST, "/v1/prune").await.status.is_success());
    // The act is that of the key.
    let acts = browser.call(&fixture, Method::GET, "/v1/acts").await.json();
    assert_eq!(acts["items"][0]["key"], json!("ops"));
    let ended = browser.call(&fixture, Method::DELETE, "/v1/session").await;
    assert_eq!(ended.status, 204);
    assert!(ended.header("set-cookie").contains("Max-Age=0"));
    browser.call(&fixture, Method::GET, "/v1/status").await.problem(401);
}

#[tokio::test(start_paused = true)]
async fn a_session_ends_with_its_time_and_with_its_key() {
    let fixture = operated();
    let browser = log_in(&fixture, "ops").await;
    tokio::time::advance(api::limits::SESSION_LASTS).await;
    browser.call(&fixture, Method::GET, "/v1/status").await.problem(401);
    let browser = log_in(&fixture, "ops").await;
    fixture.configured_keys.send_replace(Keys::new(vec![key("other", true)]));
    browser.call(&fixture, Method::GET, "/v1/status").await.problem(401);
    // A key that comes back does not bring it back.
    fixture.configured_keys.send_replace(Keys::new(vec![key("ops", true)]));
    browser.call(&fixture, Method::GET, "/v1/status").await.problem(401);
}

#[tokio::test(start_paused = true)]
async fn who_logs_in_anew_leaves_no_session_behind_and_may_always_log_out() {
    let fixture = operated();
    let first = log_in(&fixture, "ops").await;
    let request = Request::post("/v1/session")
        .header("cookie", &first.cookie)
        .header("authorization", "Bearer bfy_ops");
    fixture.send(request.body(Body::empty()).unwrap()).await.json();
    assert_has_none(&fixture, &first).await;
    let second = log_in(&fixture, "ops").await;
    let scopes = [KeyScope::Read];
    let narrowed = granted("ops", "ops", Grants::of(scopes));
    fixture.configured_keys.send_replace(Keys::new(vec![narrowed]));
    assert_eq!(second.call(&fixture, Method::DELETE, "/v1/session").await.status, 204);
    fixture.configured_keys.send_replace(Keys::new(vec![key("ops", true)]));
    assert_has_none(&fixture, &second).await;
}

#[tokio::test(start_paused = true)]
async fn streams_end_with_the_session_that_they_began_by() {
    for path in ["/v1/status", "/v1/events"] {
        let fixture = operated();
        let browser = log_in(&fixture, "ops").await;
        let request = Request::get(path)
            .header("accept", "text/event-stream")
            .header("cookie", &browser.cookie)
            .body(Body::empty())
            .unwrap();
        let answer = fixture.site.router().clone().oneshot(request).await.unwrap();
        let mut body = answer.into_body();
        body.frame().await.unwrap().unwrap();
        browser.call(&fixture, Method::DELETE, "/v1/session").await;
        assert!(body.frame().await.is_none(), "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_changes_nothing_without_its_token() {
    let fixture = operated();
    let browser = log_in(&fixture, "ops").await;
    let forged = Browser { csrf: "forged".to_owned(), ..browser };
    let problem = forged.call(&fixture, Method::POST, "/v1/prune").await.problem(403);
    assert_eq!(problem["code"], json!("csrf"));
    assert!(forged.call(&fixture, Method::GET, "/v1/status").await.status.is_success());
}

#[tokio::test(start_paused = true)]
async fn a_session_begins_with_a_key_of_an_operator_alone() {
    let fixture = fixture(vec![key("ops", true), key("acme", false)]);
    call(&fixture, "acme", Method::POST, "/v1/session", "").await.problem(403);
    call(&fixture, "wrong", Method::POST, "/v1/session", "").await.problem(401);
    let browser = log_in(&fixture, "ops").await;
    let problem = browser.call(&fixture, Method::POST, "/v1/session").await.problem(401);
    assert_eq!(problem["code"], json!("missing_key"));
    // A key that is sent is the one that counts.
    let request = Request::get("/v1/status")
        .header("cookie", &browser.cookie)
        .header("authorization", "Bearer bfy_acme");
    fixture.send(request.body(Body::empty()).unwrap()).await.problem(403);
}

#[tokio::test(start_paused = true)]
async fn a_session_is_good_for_the_scopes_of_its_key() {
    let scopes = [KeyScope::Read, KeyScope::Operate];
    let fixture = fixture(vec![granted("looks", "ops", Grants::of(scopes))]);
    let browser = log_in(&fixture, "looks").await;
    assert!(browser.call(&fixture, Method::GET, "/v1/status").await.status.is_success());
    browser.call(&fixture, Method::POST, "/v1/cancel?all=true").await.problem(403);
}

#[tokio::test(start_paused = true)]
async fn where_operators_have_an_address_sessions_are_good_there_alone() {
    let mut fixture = operated();
    fixture.site = fixture.operators.clone();
    let browser = log_in(&fixture, "ops").await;
    assert!(browser.call(&fixture, Method::GET, "/v1/account").await.status.is_success());
    fixture.site = fixture.public.clone();
    browser.call(&fixture, Method::GET, "/v1/account").await.problem(401);
    let router = fixture.site.router().clone();
    let asked = Request::get("/v1/session").header("cookie", &browser.cookie);
    let answer = router.oneshot(asked.body(Body::empty()).unwrap()).await.unwrap();
    assert_eq!(answer.status(), 404);
}

#[tokio::test(start_paused = true)]
async fn a_browser_without_a_session_may_ask_whether_it_has_one_and_a_wrong_key_may_not() {
    let fixture = operated();
    let stranger = Browser { cookie: "a=b".to_owned(), csrf: String::new() };
    assert_has_none(&fixture, &stranger).await;
    call(&fixture, "wrong", Method::GET, "/v1/session", "").await.problem(401);
}

#[tokio::test(start_paused = true)]
async fn without_configured_keys_there_is_nothing_to_log_in_with() {
    let fixture = fixture(Vec::new());
    for method in [Method::GET, Method::POST] {
        let answer = fixture.call(method, "/v1/session").await;
        let session = answer.json();
        assert_eq!((&session["open"], &session["csrf"]), (&json!(true), &json!(null)));
        assert!(!answer.headers.contains_key("set-cookie"));
    }
}
