//! One operation of the description, and how it is written.

use std::collections::{BTreeMap, BTreeSet};

use axum::http::Method;
use serde_json::{Map, Value, json};

use super::parameters;
use crate::caller::RouteRule;
use crate::problem_code::ProblemCode::{
    self, BrokenBody, Csrf, DiskFull, ExpiredKey, InternalError, InvalidField, InvalidGzip,
    InvalidHeader, InvalidJson, InvalidParameter, MissingKey, MissingParameter, MissingScope,
    NotFound, NotLocal, Overloaded, RateExceeded, RefusedValue, SlowBody, Starting, StoreFailed,
    StoreUnavailable, TenantConnections, TenantOverloaded, TooLarge, UnknownKey, UnknownParameter,
    UnsupportedCoding, UnsupportedMediaType,
};

pub(super) const JSON: &str = "application/json";
pub(super) const LINES: &str = "application/x-ndjson";

/// A method of a path. Made by [`Operation::new`], and completed by the other functions.
#[derive(Debug)]
pub(super) struct Operation {
    method: Method,
    path: &'static str,
    id: &'static str,
    tag: &'static str,
    summary: &'static str,
    about: &'static str,
    parameters: Vec<Value>,
    /// Media types of its body.
    body: Map<String, Value>,
    answers: BTreeMap<u16, Value>,
    problems: BTreeSet<ProblemCode>,
}

/// A reference to the component `name`.
pub(super) fn component(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

/// An array of lines, each of one of `kinds`. Not `oneOf`: a line of one kind may have the fields of another, and more.
pub(super) fn lines_of(kinds: &[Value]) -> Value {
    json!({ "type": "array", "items": { "anyOf": kinds } })
}

// === impl Operation ===

impl Operation {
    pub(super) fn new(
        (method, path): (Method, &'static str),
        tag: &'static str,
        id: &'static str,
        summary: &'static str,
    ) -> Self {
        let mut operation = Self {
            method,
            path,
            id,
            tag,
            summary,
            about: "",
            parameters: Vec::new(),
            body: Map::new(),
            answers: BTreeMap::new(),
            problems: BTreeSet::new(),
        };
        if let Some(id) = parameters::in_path(path) {
            operation.parameters.push(id);
            operation.problems.insert(NotFound);
        }
        operation
    }

    pub(super) fn is_of(&self, method: &Method, path: &str) -> bool {
        self.method == *method && self.path == path
    }

    /// More than its summary says.
    pub(super) fn about(mut self, about: &'static str) -> Self {
        self.about = about;
        self
    }

    /// Query parameters, which the handler reads by the same names.
    pub(super) fn takes(mut self, names: &[&str]) -> Self {
        self.parameters.extend(names.iter().map(|name| parameters::in_query(name)));
        self.may(&[InvalidParameter, UnknownParameter])
    }

    /// The parameter `name` must be given.
    pub(super) fn requires(self, name: &str) -> Self {
        self.set(name, "required", json!(true)).may(&[MissingParameter])
    }

    /// The parameter `name` has another schema here, and means something else.
    pub(super) fn with(self, name: &str, schema: Value, description: &str) -> Self {
        self.set(name, "schema", schema).set(name, "description", json!(description))
    }

    /// The parameter `name` has values with commas between them, each of `schema`.
    pub(super) fn with_list(self, name: &str, schema: &Value, description: &str) -> Self {
        let list = json!({ "type": "array", "minItems": 1, "items": schema });
        let listed = self.with(name, list, description);
        listed.set(name, "style", json!("form")).set(name, "explode", json!(false))
    }

    /// An example of the parameter `name`. A request with all examples of an operation succeeds.
    pub(super) fn example(self, name: &str, example: &Value) -> Self {
        self.set(name, "example", example.clone())
    }

    pub(super) fn header(mut self, header: Value) -> Self {
        self.parameters.push(header);
        self.may(&[InvalidHeader])
    }

    /// A body of `media_type`, with examples that succeed, by name.
    pub(super) fn body(
        mut self,
        media_type: &str,
        schema: &Value,
        examples: &[(&str, Value)],
    ) -> Self {
        let examples: Map<String, Value> = examples
            .iter()
            .map(|(name, value)| ((*name).to_owned(), json!({ "value": value })))
            .collect();
        let content = json!({ "schema": schema, "examples": examples });
        self.body.insert(media_type.to_owned(), content);
        self.may(&[InvalidJson, BrokenBody, SlowBody, TooLarge, UnsupportedMediaType]).may(&[
            InvalidGzip,
            UnsupportedCoding,
            InvalidField,
            TenantOverloaded,
            Overloaded,
        ])
    }

    /// The answer `status`, by media type.
    pub(super) fn answers(
        mut self,
        status: u16,
        description: &str,
        content: &[(&str, Value)],
    ) -> Self {
        let content: Map<String, Value> = content
            .iter()
            .map(|(media_type, schema)| ((*media_type).to_owned(), json!({ "schema": schema })))
            .collect();
        let mut answer = json!({ "description": description, "headers": headers(status) });
        if let Some(answer) = answer.as_object_mut().filter(|_| !content.is_empty()) {
            answer.insert("content".to_owned(), content.into());
        }
        self.answers.insert(status, answer);
        self
    }

    /// Operations that take what the answer `status` names: each the parameter `id`.
    pub(super) fn leads_to(mut self, status: u16, ids: &[&str]) -> Self {
        let links: Map<String, Value> = ids
            .iter()
            .map(|id| {
                let link =
                    json!({ "operationId": id, "parameters": { "id": "$response.body#/id" } });
                ((*id).to_owned(), link)
            })
            .collect();
        if let Some(answer) = self.answers.get_mut(&status).and_then(Value::as_object_mut) {
            answer.insert("links".to_owned(), links.into());
        }
        self
    }

    /// An answer with JSON that clients poll: they may name the tag of the one that they have.
    pub(super) fn polled(mut self, description: &str, schema: Value) -> Self {
        self.parameters.push(parameters::if_none_match());
        let mut polled = self.json(description, schema).answers(304, "As the client has it.", &[]);
        for answer in polled.answers.values_mut() {
            if let Some(headers) = answer.get_mut("headers").and_then(Value::as_object_mut) {
                let tag = json!({ "$ref": "#/components/headers/ETag" });
                headers.insert("ETag".to_owned(), tag);
            }
        }
        polled
    }

    /// An answer with JSON.
    pub(super) fn json(self, description: &str, schema: Value) -> Self {
        self.answers(200, description, &[(JSON, schema)])
    }

    /// Problems that are answered as well.
    pub(super) fn may(mut self, codes: &[ProblemCode]) -> Self {
        self.problems.extend(codes);
        self
    }

    /// It asks the store.
    pub(super) fn reads(self) -> Self {
        self.may(&[RefusedValue, InternalError, StoreUnavailable, StoreFailed, Overloaded])
    }

    /// It changes something in the store.
    pub(super) fn writes(self) -> Self {
        self.reads().may(&[DiskFull])
    }

    /// Its path, its method, and the rest. `rule` is `None` for a route that needs no key.
    pub(super) fn described(mut self, rule: Option<&RouteRule>) -> (String, String, Value) {
        let mut security = Vec::new();
        if let Some(rule) = rule {
            let scopes: Vec<_> = rule.needs.iter().map(|scope| scope.as_str()).collect();
            security.push(json!({ "key": scopes }));
            if rule.without_key.is_some() {
                security.push(json!({}));
            }
            self.problems.extend([
                MissingKey,
                UnknownKey,
                ExpiredKey,
                Csrf,
                NotLocal,
                RateExceeded,
                TenantOverloaded,
                TenantConnections,
                Starting,
            ]);
            if !scopes.is_empty() {
                self.problems.insert(MissingScope);
            }
        }
        self.answer_problems();
        if rule.is_some() {
            self.tell_rate();
        }
        let mut described = json!({
            "operationId": self.id,
            "tags": [self.tag],
            "summary": self.summary,
            "description": if self.about.is_empty() { self.summary } else { self.about },
            "security": security,
            "parameters": self.parameters,
            "responses": self.answers.into_iter()
                .map(|(status, answer)| (status.to_string(), answer))
                .collect::<Map<_, _>>(),
        });
        if let Some(described) = described.as_object_mut().filter(|_| !self.body.is_empty()) {
            let body = json!({ "required": true, "content": self.body });
            described.insert("requestBody".to_owned(), body);
        }
        (self.path.to_owned(), self.method.as_str().to_lowercase(), described)
    }

    /// Adds to all answers what tells of the rate of a key.
    fn tell_rate(&mut self) {
        let header = |name: &str| json!({ "$ref": format!("#/components/headers/{name}") });
        for answer in self.answers.values_mut() {
            if let Some(headers) = answer.get_mut("headers").and_then(Value::as_object_mut) {
                headers.insert("RateLimit".to_owned(), header("RateLimit"));
                headers.insert("RateLimit-Policy".to_owned(), header("RateLimitPolicy"));
            }
        }
    }

    /// Describes the answers with problems, by status.
    fn answer_problems(&mut self) {
        let mut by_status: BTreeMap<u16, Vec<ProblemCode>> = BTreeMap::new();
        for code in &self.problems {
            by_status.entry(code.status().as_u16()).or_default().push(*code);
        }
        for (status, codes) in by_status {
            let meanings: Vec<_> =
                codes.iter().map(|code| format!("`{code}`: {}", code.title())).collect();
            let answer = json!({
                "description": meanings.join("; "),
                "headers": headers(status),
                "content": { "application/problem+json": { "schema": component("Problem") } },
                "x-problem-codes": codes,
            });
            self.answers.insert(status, answer);
        }
    }

    fn set(mut self, name: &str, key: &str, value: Value) -> Self {
        let named = self.parameters.iter_mut().find(|one| one.get("name") == Some(&json!(name)));
        debug_assert!(named.is_some(), "{} has no parameter {name}", self.id);
        if let Some(parameter) = named.and_then(Value::as_object_mut) {
            parameter.insert(key.to_owned(), value);
        }
        self
    }
}

/// Headers of an answer with `status`, beside those that every answer has.
fn headers(status: u16) -> Map<String, Value> {
    let header = |name: &str| json!({ "$ref": format!("#/components/headers/{name}") });
    let headers = match status {
        201 => Some(("Location", "Location")),
        401 => Some(("WWW-Authenticate", "Authenticate")),
        415 => Some(("Accept-Encoding", "AcceptEncoding")),
        429 | 503 | 507 => Some(("Retry-After", "RetryAfter")),
        _ => None,
    };
    headers.into_iter().map(|(name, of)| (name.to_owned(), header(of))).collect()
}
