//! Lines of `application/x-ndjson`, beside those that are types of their own.

use notification::NotificationId;
use serde_json::{Value, json};

use super::operation::component;
use super::parameters::position;
use super::types::Types;

/// The components of lines.
pub(super) fn components() -> Vec<(String, Value)> {
    let line =
        json!({ "type": "integer", "minimum": 1, "description": "Line of the request, from 1." });
    let id = Types::new().of::<NotificationId>();
    let components = [
        (
            "AcceptedLine",
            json!({
                "type": "object",
                "description": "The notification of a line is on disk.",
                "required": ["line", "id"],
                "properties": {
                    "line": line,
                    "id": id,
                    "replayed": { "type": "boolean", "description": "True if it was created before, with the same key; else absent." },
                },
            }),
        ),
        (
            "RefusedLine",
            json!({
                "type": "object",
                "description": "A line was refused; the others are not affected.",
                "required": ["line", "error"],
                "properties": { "line": line, "error": component("LineError") },
            }),
        ),
        (
            "BrokenStream",
            json!({
                "type": "object",
                "description": "The last line of a stream that cannot go on. Lines without an answer may or may not be stored: send them again with the same keys.",
                "required": ["error"],
                "properties": { "error": component("LineError") },
            }),
        ),
        (
            "NextPosition",
            json!({
                "type": "object",
                "description": "The last line: `position` of the next request.",
                "required": ["next"],
                "properties": { "next": position() },
            }),
        ),
        (
            "NextLogPosition",
            json!({
                "type": "object",
                "description": "The last line: `position` of the next request.",
                "required": ["next"],
                "properties": { "next": { "type": "integer", "minimum": 0 } },
            }),
        ),
    ];
    components.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect()
}
