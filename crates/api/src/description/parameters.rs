//! Parameters by their names, as most routes have them. What a route has otherwise stands with its operation.

use notification::limits::{KEY_BYTES, LIST_ITEMS, RECIPIENT_BYTES};
use notification::{BroadcastId, Name, NotificationId, Priority, State, Timestamp};
use serde_json::{Value, json};

use super::types::Types;
use crate::limits::LONG_POLL;

/// The parameter in `path`, if it has one.
pub(super) fn in_path(path: &str) -> Option<Value> {
    let (name, schema, description) = match path {
        _ if path.starts_with("/v1/notifications/{id}") => {
            ("id", Types::new().of::<NotificationId>(), "Identifier of a notification.")
        }
        _ if path.starts_with("/v1/broadcasts/{id}") => {
            ("id", Types::new().of::<BroadcastId>(), "Identifier of a broadcast.")
        }
        _ if path.starts_with("/v1/keys/{name}") => {
            ("name", Types::new().of::<Name>(), "Name of an API key.")
        }
        "/problems/{code}" => ("code", json!({ "type": "string" }), "Code of a problem."),
        _ => return None,
    };
    Some(
        json!({ "name": name, "in": "path", "required": true, "schema": schema, "description": description }),
    )
}

/// The query parameter `name`.
pub(super) fn in_query(name: &str) -> Value {
    let (schema, description) = texts(name).unwrap_or_else(|| others(name));
    json!({ "name": name, "in": "query", "schema": schema, "description": description })
}

/// `Idempotency-Key`
pub(super) fn idempotency_key() -> Value {
    json!({
        "name": "Idempotency-Key",
        "in": "header",
        "schema": { "type": "string", "minLength": 1, "maxLength": KEY_BYTES },
        "description": "As `idempotency_key` in the body, for a single notification or a broadcast.",
    })
}

/// `If-None-Match`
pub(super) fn if_none_match() -> Value {
    json!({
        "name": "If-None-Match",
        "in": "header",
        "schema": { "type": "string" },
        "description": "Tags (`ETag`) of answers that the client has, with commas between them.",
    })
}

/// `Last-Event-ID`
pub(super) fn last_event_id() -> Value {
    json!({
        "name": "Last-Event-ID",
        "in": "header",
        "schema": { "type": "string", "pattern": "^([0-9]{1,19}(-[0-9]{1,19})?)?$" },
        "description": "Of a stream: go on after here. It goes before `position`. An empty one is none.",
    })
}

/// A position as it may be given: the start is written `0` as well.
pub(super) fn position() -> Value {
    json!({ "type": "string", "pattern": "^[0-9]{1,19}(-[0-9]{1,19})?$" })
}

/// Whole numbers from 1 to `most`; `usual` when none is given.
pub(super) fn limit(usual: usize, most: usize) -> Value {
    json!({ "type": "integer", "minimum": 1, "maximum": most, "default": usual })
}

/// A text that is looked for. Others are refused, since nothing that is stored has such a value.
pub(super) fn text() -> Value {
    json!({ "type": "string", "maxLength": RECIPIENT_BYTES, "pattern": "^[^\\u0000-\\u001f\\u007f]*$" })
}

fn texts(name: &str) -> Option<(Value, &'static str)> {
    let description = match name {
        "to" => "Device token, endpoint, address.",
        "external_id" => "External id, a label.",
        "tag" => "One tag, a label.",
        "key" => "Idempotency key: what it was used for.",
        "reason" => "A part of the last `detail` of the log.",
        "destination" => {
            "Host of the provider or of the recipients, as the lanes of the status have it."
        }
        "after" => "`next` of the answer before: go on from there.",
        "note" => "How it was found out. At most 200 bytes.",
        _ => return None,
    };
    Some((text(), description))
}

fn others(name: &str) -> (Value, &'static str) {
    let mut types = Types::new();
    let words = |words: Vec<&'static str>| json!({ "type": "string", "enum": words });
    let flag = || json!({ "type": "boolean", "default": false });
    match name {
        "channel" => (types.of::<Name>(), "Name of a channel."),
        "tenant" => (types.of::<Name>(), "Another tenant than the caller's: takes `operate`."),
        "broadcast" => (types.of::<BroadcastId>(), "Identifier of a broadcast."),
        "state" => {
            (words(State::ALL.iter().map(|it| it.as_str()).collect()), "State in which they are.")
        }
        "priority" => {
            (words(Priority::ALL.iter().map(|it| it.as_str()).collect()), "Their priority.")
        }
        "order" => {
            (words(vec!["oldest", "newest"]), "Which come first; the oldest ones, if absent.")
        }
        "former_until" => (
            types.of::<Timestamp>(),
            "The last instant at which the key before it is good, at most 90 days ahead; in 24 hours, if absent.",
        ),
        "since" => (types.of::<Timestamp>(), "From this instant on."),
        "until" => (types.of::<Timestamp>(), "Before this instant."),
        "limit" => (limit(LIST_ITEMS, LIST_ITEMS), "Items of the answer at most."),
        "position" => {
            (position(), "Go on after here: `next` of the answer before. `0` is the start.")
        }
        "wait" => {
            let most = LONG_POLL.as_secs();
            let schema = json!({ "type": "integer", "minimum": 0, "maximum": most, "default": 0 });
            (schema, "Seconds to wait until there is something.")
        }
        "dry_run" => (flag(), "Count only."),
        "all" => (flag(), "All that the tenant has."),
        "may_repeat" => (flag(), "What is in doubt may arrive twice. Needed to send it again."),
        "attempts" => (flag(), "Attempts, too, that another one follows."),
        "suppressions" => (
            json!({ "type": "boolean" }),
            "Also off the suppression list, which takes `operate`; with it that is so unless it is `false`.",
        ),
        "as" => (words(vec!["delivered", "dead"]), "What became of it."),
        "recipients" => (json!({ "type": "integer", "minimum": 1 }), "How many notifications."),
        _ => {
            debug_assert!(false, "the parameter {name} is not described");
            (json!({}), "")
        }
    }
}
