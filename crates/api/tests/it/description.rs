//! The description of the API: complete, as the code is, and with examples that succeed. Whether answers are as it says is looked at
//! for each answer of these tests ([`crate::described`]).

use std::collections::BTreeSet;

use axum::body::Body;
use axum::http::Request;
use serde_json::Value;

use crate::keys::key;
use crate::support::{Answer, Fixture, LINES, fixture};

/// Routes that need no key.
const KEYLESS: [&str; 4] =
    ["GET /healthz", "GET /openapi.json", "GET /problems/{code}", "GET /readyz"];

/// Every operation of the description: its method, its path and the rest.
fn operations(document: &Value) -> Vec<(String, String, Value)> {
    let mut operations = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            operations.push((method.to_uppercase(), path.clone(), operation.clone()));
        }
    }
    operations
}

#[test]
fn every_route_is_described_and_nothing_else() {
    let described: BTreeSet<String> = operations(&api::openapi())
        .into_iter()
        .map(|(method, path, _)| format!("{method} {path}"))
        .collect();
    let mut routes: BTreeSet<String> =
        api::routes().into_iter().map(|(method, path, _)| format!("{method} {path}")).collect();
    routes.extend(KEYLESS.map(str::to_owned));
    assert_eq!(described, routes, "add a route to crates/api/src/description");
}

#[test]
fn an_operation_has_the_scopes_of_its_route() {
    let document = api::openapi();
    for (method, path, rule) in api::routes() {
        let operation = &document["paths"][path][method.as_str().to_lowercase()];
        let scopes: Vec<_> = rule.needs.iter().map(|scope| scope.as_str()).collect();
        let mut expect = vec![serde_json::json!({ "key": scopes })];
        expect.extend(rule.without_key.map(|_answer| serde_json::json!({})));
        assert_eq!(operation["security"], Value::from(expect), "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_engine_serves_its_description_to_all_and_the_reference_is_the_same() {
    let fixture = fixture(vec![key("acme", false)]);
    let served = fixture.get("/openapi.json").await.json();
    assert_eq!(served, api::openapi());
    let kept = std::fs::read_to_string("../../docs/reference/openapi.json").unwrap();
    let kept: Value = serde_json::from_str(&kept).unwrap();
    assert!(kept == served, "docs/reference/openapi.json is old: `make docs`");
}

/// Each request that the examples of an operation make.
fn examples(operation: &Value) -> Vec<(String, Option<(String, String)>)> {
    let mut query = Vec::new();
    for parameter in operation["parameters"].as_array().unwrap() {
        let example = match &parameter["example"] {
            Value::Null => continue,
            Value::Array(values) => {
                values.iter().map(|value| value.as_str().unwrap()).collect::<Vec<_>>().join(",")
            }
            Value::String(text) => text.clone(),
            other @ (Value::Bool(_) | Value::Number(_) | Value::Object(_)) => other.to_string(),
        };
        if parameter["in"] == "query" {
            query.push(format!("{}={example}", parameter["name"].as_str().unwrap()));
        }
    }
    let query = if query.is_empty() { String::new() } else { format!("?{}", query.join("&")) };
    let Some(content) = operation["requestBody"]["content"].as_object() else {
        return vec![(query, None)];
    };
    let mut requests = Vec::new();
    for (media_type, described) in content {
        for example in described["examples"].as_object().unwrap().values() {
            let value = &example["value"];
            let body = if media_type == LINES {
                let lines: Vec<_> =
                    value.as_array().unwrap().iter().map(Value::to_string).collect();
                lines.join("\n")
            } else {
                value.to_string()
            };
            requests.push((query.clone(), Some((media_type.clone(), body))));
        }
    }
    requests
}

async fn send(
    fixture: &Fixture,
    method: &str,
    path: &str,
    body: Option<(String, String)>,
) -> Answer {
    let mut request = Request::builder().method(method).uri(path);
    // Where no keys are configured, nothing is asked for.
    request = request.header("authorization", "Bearer bfy_ops");
    let (media_type, body) = body.unzip();
    if let Some(media_type) = media_type {
        request = request.header("content-type", media_type);
    }
    fixture.send(request.body(Body::from(body.unwrap_or_default())).unwrap()).await
}

/// A fixture with an operator's key, and a stored one that `path` names.
async fn prepared_with_keys(path: &str) -> (Fixture, String) {
    let fixture = fixture(vec![key("ops", true)]);
    let body = (crate::support::JSON.to_owned(), r#"{"name":"shop","tenant":"acme"}"#.to_owned());
    send(&fixture, "POST", "/v1/keys", Some(body)).await;
    (fixture, path.replace("{name}", "shop"))
}

/// A fixture with a notification and a broadcast that wait, and a recipient on the suppression list; the path with the one that it names.
async fn prepared(path: &str) -> (Fixture, String) {
    if path.starts_with("/v1/keys") {
        return prepared_with_keys(path).await;
    }
    let fixture = fixture(Vec::new());
    fixture.set_ready(true);
    let post = async |path: &str, body: &str| {
        fixture.post(path, crate::support::JSON, body.to_owned()).await
    };
    let created = post("/v1/notifications", r#"{"channel":"ios","to":"a1","content":{}}"#).await;
    let created = created.json()["id"].as_str().unwrap().to_owned();
    let broadcast = r#"{"channel":"ios","content":{},"recipients":["a1"]}"#;
    let broadcast =
        post("/v1/broadcasts", broadcast).await.json()["id"].as_str().unwrap().to_owned();
    post("/v1/suppressions", r#"{"channel":"ios","to":"3f1c9a77"}"#).await;
    if path.ends_with("/requeue") {
        post(&format!("/v1/notifications/{created}/cancel"), "").await;
    }
    let named = path.replace("/broadcasts/{id}", &format!("/broadcasts/{broadcast}"));
    (fixture, named.replace("{id}", &created).replace("{code}", "disk_full"))
}

#[tokio::test(start_paused = true)]
async fn every_example_succeeds() {
    for (method, path, operation) in operations(&api::openapi()) {
        for (query, body) in examples(&operation) {
            let (fixture, path) = prepared(&path).await;
            let answer = send(&fixture, &method, &format!("{path}{query}"), body.clone()).await;
            // Nothing is in doubt here.
            let is_refused = path.ends_with("/resolve") && path != "/v1/resolve";
            let expect = if is_refused { 409 } else { answer.status.as_u16().clamp(200, 204) };
            assert_eq!(answer.status, expect, "{method} {path}{query} {body:?}: {}", answer.text);
            if body.is_some_and(|(media_type, _)| media_type == LINES) {
                assert!(!answer.text.contains("error"), "{}", answer.text);
            }
        }
    }
}
