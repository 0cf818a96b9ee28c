//! Codes of problems, and their pages.

use api::{ProblemCode, Readiness};
use axum::body::Body;
use axum::http::{Method, Request};
use serde_json::json;
use tower::ServiceExt;

use crate::keys::{call, key};
use crate::support::{JSON, LINES, fixture, notification};

#[tokio::test(start_paused = true)]
async fn a_problem_has_a_code_and_its_type_is_a_page_that_is_open_to_all() {
    let fixture = fixture(vec![key("acme", false)]);
    let expect = [
        ("acme", "/v1/nothing", "unknown_path"),
        ("acme", "/v1/notifications/bc_1", "not_found"),
        ("acme", "/v1/notifications?limit=0", "invalid_parameter"),
        ("acme", "/v1/notifications?colour=red", "unknown_parameter"),
        ("acme", "/v1/status", "missing_scope"),
        ("stranger", "/v1/channels", "unknown_key"),
    ];
    for (name, path, code) in expect {
        let answer = call(&fixture, name, Method::GET, path, "").await;
        let problem = answer.problem(answer.status.as_u16());
        assert_eq!(problem["code"], code, "{path}");
        let page = fixture.get(problem["type"].as_str().unwrap()).await;
        assert_eq!(page.status, 200);
        let title = problem["title"].as_str().unwrap();
        let head =
            format!("{title}\n\ncode: {code}\nstatus: {} ", problem["status"].as_u64().unwrap());
        assert!(page.text.starts_with(&head), "{}", page.text);
    }
    let unknown = fixture.get("/problems/none").await.problem(404);
    assert!(unknown["detail"].as_str().unwrap().contains("disk_full"), "{unknown}");
}

#[tokio::test(start_paused = true)]
async fn a_process_that_starts_has_the_pages_and_the_description() {
    let site = api::starting(Readiness::default());
    for (path, status) in
        [("/openapi.json", 200), ("/problems/starting", 200), ("/v1/channels", 503)]
    {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let answer = site.router().clone().oneshot(request).await.unwrap();
        assert_eq!(answer.status(), status, "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_header_that_differs_from_its_field_has_a_code_of_its_own() {
    let fixture = fixture(Vec::new());
    let request = Request::post("/v1/notifications")
        .header("content-type", JSON)
        .header("idempotency-key", "one");
    let body = notification("a1", r#","idempotency_key":"two""#);
    let problem = fixture.send(request.body(body.into()).unwrap()).await.problem(400);
    assert_eq!(problem["code"], "invalid_header");
    fixture.assert_nothing_is_stored().await;
}

#[tokio::test(start_paused = true)]
async fn each_refused_line_of_a_stream_has_its_code() {
    let fixture = fixture(Vec::new());
    let keyed = |to: &str| notification(to, r#","idempotency_key":"k""#);
    let long = format!("\"{}\"", "x".repeat(notification::limits::LINE_BYTES));
    let lines = [&keyed("a1"), &keyed("b2"), "{", r#"{"colour":1}"#, &long].join("\n");
    let answers = fixture.post("/v1/notifications", LINES, lines).await.lines();
    let codes: Vec<_> = answers.iter().map(|answer| answer["error"]["code"].clone()).collect();
    let expect = [
        json!(null),
        json!("idempotency_key_reused"),
        json!("invalid_json"),
        json!("invalid_field"),
        json!("too_large"),
        json!(null),
    ];
    assert_eq!(codes, expect);
}

/// `make docs` writes it.
#[test]
fn the_reference_of_problems_is_up_to_date() {
    let page = std::fs::read_to_string("../../docs/reference/problems.md").unwrap();
    assert!(page == api::problems_markdown(), "docs/reference/problems.md is old: `make docs`");
    for code in ProblemCode::ALL {
        assert!(page.contains(&format!("](#{code})")), "{code}");
    }
}
