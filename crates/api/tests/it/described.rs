//! Holds every answer against the description of the API: its status, its media type, its schema, and the code of a problem.

use std::collections::HashMap;
use std::sync::LazyLock;

use axum::http::Method;
use jsonschema::Validator;
use serde_json::{Value, json};

use crate::support::Answer;

/// The description, in which objects have no other fields than are described: additions are to be described as well.
static DOCUMENT: LazyLock<Value> = LazyLock::new(|| {
    let mut document = api::openapi();
    for schema in document["components"]["schemas"].as_object_mut().unwrap().values_mut() {
        close(schema);
    }
    document
});

/// Validators of all answers, by method, path, status and media type.
static VALIDATORS: LazyLock<HashMap<(String, String, String, String), Validator>> =
    LazyLock::new(|| {
        let mut validators = HashMap::new();
        for (path, methods) in DOCUMENT["paths"].as_object().unwrap() {
            for (method, operation) in methods.as_object().unwrap() {
                for (status, answer) in operation["responses"].as_object().unwrap() {
                    let Some(content) = answer["content"].as_object() else { continue };
                    for (media_type, described) in content {
                        let schema = json!({
                            "$schema": "https://json-schema.org/draft/2020-12/schema",
                            "allOf": [described["schema"]],
                            "components": DOCUMENT["components"],
                        });
                        let validator = jsonschema::options()
                            .should_validate_formats(true)
                            .build(&schema)
                            .unwrap_or_else(|error| panic!("{path} {status}: {error}"));
                        let key = (
                            method.to_uppercase(),
                            path.clone(),
                            status.clone(),
                            media_type.clone(),
                        );
                        validators.insert(key, validator);
                    }
                }
            }
        }
        validators
    });

/// Forbids fields that are not described.
fn close(schema: &mut Value) {
    match schema {
        // Its fields are those beside the alternatives and those of one of them.
        Value::Object(fields)
            if fields.contains_key("properties") && fields.contains_key("oneOf") =>
        {
            fields.insert("unevaluatedProperties".to_owned(), json!(false));
        }
        Value::Object(fields) => {
            fields.values_mut().for_each(close);
            if fields.get("properties").is_some_and(Value::is_object)
                && fields.get("type") == Some(&json!("object"))
            {
                fields.entry("additionalProperties").or_insert(json!(false));
            }
        }
        Value::Array(items) => items.iter_mut().for_each(close),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The described path that `path` is one of.
fn template(path: &str) -> Option<&'static str> {
    let is_of = |template: &str| {
        template.split('/').count() == path.split('/').count()
            && template
                .split('/')
                .zip(path.split('/'))
                .all(|(named, given)| named == given || named.starts_with('{'))
    };
    let paths = DOCUMENT["paths"].as_object().unwrap().keys().map(String::as_str);
    // `/v1/keys/self` goes before a path that has a parameter there.
    paths.filter(|template| is_of(template)).min_by_key(|template| template.matches('{').count())
}

/// Asserts that `answer` is described for `method` and `path`. Paths and methods that are not described are answered with 404 and 405.
pub(crate) fn check(method: &Method, path: &str, answer: &Answer) {
    let Some(template) = template(path) else { return };
    let operation = &DOCUMENT["paths"][template][method.as_str().to_lowercase()];
    if operation.is_null() {
        return;
    }
    let status = answer.status.as_u16().to_string();
    let of = format!("{method} {template} {status}");
    let described = &operation["responses"][&status];
    assert!(!described.is_null(), "{of} is not described: {}", answer.text);
    let media_type = answer.header("content-type").split(';').next().unwrap_or_default();
    if described["content"].is_null() {
        assert_eq!((media_type, answer.text.as_str()), ("", ""), "{of} has a body");
        return;
    }
    let key = (method.to_string(), template.to_owned(), status.clone(), media_type.to_owned());
    let validator = VALIDATORS.get(&key);
    let validator = validator.unwrap_or_else(|| panic!("{of}: {media_type} is not described"));
    let body = match media_type {
        "application/json" | "application/problem+json" => answer.json(),
        "application/x-ndjson" => Value::Array(answer.lines()),
        _ => Value::String(answer.text.clone()),
    };
    let faults: Vec<_> = validator
        .iter_errors(&body)
        .map(|fault| format!("{}: {fault}", fault.instance_path()))
        .collect();
    assert!(faults.is_empty(), "{of}: {faults:?} in {body}");
    if media_type == "application/problem+json" {
        let codes = described["x-problem-codes"].as_array().unwrap();
        assert!(codes.contains(&body["code"]), "{of}: {} is not among {codes:?}", body["code"]);
    }
}
