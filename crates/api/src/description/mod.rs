//! The description of the API in OpenAPI 3.1, which the engine serves as `/openapi.json`, and `docs/reference/openapi.json` keeps.
//!
//! Answers are described by the types that are serialized ([`types`]), parameters by the lists that handlers read them with, scopes by the
//! table of routes, bounds by the constants that are checked, problems by the table of their codes. Bodies of requests have readers of
//! their own, so their schemas stand in [`inputs`], and a test compares the fields. **A new route is described where its like is**: in
//! [`sending`], [`reading`], [`changing`], [`suppressing`], [`operating`], [`keeping`] or [`keyless`]. Until then a test fails.

mod callbacks;
mod changing;
mod inputs;
mod keeping;
mod keyless;
mod lines;
mod operating;
mod operation;
mod parameters;
mod reading;
mod sending;
mod suppressing;
mod types;

use axum::http::Method;
use notification::LatePolicy;
use serde_json::{Map, Value, json};

use crate::caller::RouteRule;
use crate::problem::Details;
use operation::Operation;
use types::Types;

const ABOUT: &str = "\
Belfry delivers notifications: an application says what to tell whom, on which channel and when. This is its HTTP API; \
docs/reference/http-api.md, beside the source, tells it as prose.

- A 201, or an answer line with an `id`, means that the notification is on disk.
- Fields that are absent and fields that are `null` are the same in requests. Unknown fields and parameters are refused, and so is what is given twice.
- Lengths of texts are bounded in bytes of UTF-8; `maxLength` has the same number, in characters.
- `application/x-ndjson` is a sequence of lines, each a JSON value. Its schemas are those of the array of all lines, as OpenAPI 3.2 defines it for sequential media types.
- Bodies may be gzip (`Content-Encoding: gzip`), and answers to GET of 1 KiB or more are, where `Accept-Encoding` allows it. Bounds of bodies count what comes out.
- Errors are problem details (RFC 9457) with a `code` for programs. `x-problem-codes` names those of each answer. Further ones may come.
- Every answer of an engine that has started has `x-request-id`, that of the request if it had one.
- A process that only delivers (`belfry consume`) has `/v1/status`, `/v1/keys/self`, `/metrics` and the routes without a key, and answers others with 404 `unknown_path`. \
Where operators have an address of their own, routes that take `operate` are answered there alone, and with 404 `unknown_path` elsewhere. \
A method that a path does not have is a 405 `method_not_allowed`, and `Allow` names those that it has.
- Where no API keys are configured, requests from the same machine need none.";

/// The description of the API, in which the routes that need a key have `rules`.
pub(crate) fn document(rules: &[(Method, &'static str, RouteRule)]) -> Value {
    let mut types = Types::new();
    let mut paths: Map<String, Value> = Map::new();
    for operation in operations(&mut types) {
        let rule = rules.iter().find(|(method, path, _)| operation.is_of(method, path));
        let (path, method, described) = operation.described(rule.map(|(.., rule)| rule));
        let of_path = paths.entry(path).or_insert_with(|| json!({}));
        if let Some(of_path) = of_path.as_object_mut() {
            of_path.insert(method, described);
        }
    }
    let webhooks = callbacks::webhooks(&mut types);
    json!({
        "openapi": "3.1.1",
        "info": {
            "title": "Belfry",
            "version": env!("CARGO_PKG_VERSION"),
            "summary": "Delivers notifications, and can say of each where it stands",
            "description": ABOUT,
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "servers": [{ "url": "http://localhost:8473", "description": "As an engine listens unless it is configured otherwise" }],
        "tags": TAGS.iter().map(|(name, description)| json!({ "name": name, "description": description })).collect::<Vec<_>>(),
        "paths": paths,
        "webhooks": webhooks,
        "components": components(types),
    })
}

/// The groups of operations.
const TAGS: [(&str, &str); 6] = [
    ("sending", "Notifications and broadcasts are handed in."),
    ("reading", "What became of them."),
    ("changing", "Cancelled, rescheduled, paused, sent again, resolved, erased."),
    ("suppressions", "Recipients that are not tried."),
    ("operating", "The state of the engine, for operators."),
    ("keyless", "Open to all: health, and the description of the API."),
];

fn operations(types: &mut Types) -> Vec<Operation> {
    let mut all = sending::operations(types);
    all.extend(reading::operations(types));
    all.extend(changing::operations(types));
    all.extend(suppressing::operations(types));
    all.extend(operating::operations(types));
    all.extend(keeping::operations(types));
    all.extend(keyless::operations());
    all
}

fn components(mut types: Types) -> Value {
    // Named by all answers with a problem, and by what is handed in.
    let _components = (types.of::<Details<'_>>(), types.of::<LatePolicy>());
    let mut schemas = types.into_components();
    schemas.extend(inputs::components());
    schemas.extend(lines::components());
    json!({
        "schemas": schemas,
        "headers": {
            "Location": {
                "description": "Path of what was created.",
                "schema": { "type": "string", "format": "uri-reference" },
            },
            "ETag": {
                "description": "Tag of the answer, for `If-None-Match`.",
                "schema": { "type": "string" },
            },
            "RateLimit": {
                "description": "What is left, where the key has a rate: `\"key\";r=87;t=2`, so many requests, and all of them after so many seconds. With a 429, the share of the tenant that is exhausted: `\"reads\";r=0;t=1`.",
                "schema": { "type": "string" },
            },
            "RateLimitPolicy": {
                "description": "The rate, where the key has one: `\"key\";q=100;w=10`, so many requests in so many seconds. With a 429, the share of the tenant that is exhausted: `\"reads\";q=64;qu=\"concurrent-requests\"`.",
                "schema": { "type": "string" },
            },
            "RetryAfter": {
                "description": "Seconds after which to come back.",
                "schema": { "type": "integer", "minimum": 0 },
            },
            "AcceptEncoding": {
                "description": "The content coding that is taken, where another one was sent.",
                "schema": { "type": "string", "const": "gzip" },
            },
            "Authenticate": {
                "description": "The scheme that is asked for.",
                "schema": { "type": "string", "const": "Bearer" },
            },
        },
        "securitySchemes": {
            "key": {
                "type": "http",
                "scheme": "bearer",
                "description": "An API key, `belfry_...`, as `belfry api-key` makes it. The scopes that an operation needs are listed with it.",
            },
        },
    })
}
