//! Operations by which notifications and broadcasts are handed in.

use axum::http::Method;
use serde_json::{Value, json};

use super::operation::{JSON, LINES, Operation, component, lines_of};
use super::parameters::idempotency_key;
use super::types::Types;
use crate::broadcasts::BroadcastCreated;
use crate::create::{Many, NotificationCreated, PreviewAnswer};
use crate::problem_code::ProblemCode::{
    DiskFull, IdempotencyKeyReused, NotGranted, Overloaded, TenantOverloaded, UploadEnded,
};
use crate::stream::{LineCounts, LineError};

pub(super) fn operations(types: &mut Types) -> Vec<Operation> {
    vec![notifications(types), preview(types), broadcasts(types)]
}

fn operation(path: &'static str, id: &'static str, summary: &'static str) -> Operation {
    Operation::new((Method::POST, path), "sending", id, summary)
}

fn notifications(types: &mut Types) -> Operation {
    // Named by the lines that have it.
    let _component = types.of::<LineError>();
    let one = component("NotificationSubmission");
    let answer_lines = [
        component("AcceptedLine"),
        component("RefusedLine"),
        types.of::<LineCounts>(),
        component("BrokenStream"),
    ];
    let created = json!({ "oneOf": [types.of::<NotificationCreated>(), types.of::<Many>()] });
    operation("/v1/notifications", "create_notifications", "Create one notification, many, or a stream of them")
        .about(
            "An object is one notification. An array is up to 10,000, in at most 16 MiB, taken all or none. A stream has one object per line, of at most \
             272 KiB, each taken or refused by itself and answered in order while the stream goes on; its last line is the counts, or the problem that ended it.",
        )
        .header(idempotency_key())
        .body(JSON, &component("NotificationSubmissions"), &[
            ("one", notification()),
            ("scheduled", scheduled()),
            ("several", json!([notification(), scheduled()])),
        ])
        .body(LINES, &json!({ "type": "array", "items": one }), &[("lines", json!([notification(), scheduled()]))])
        .answers(200, "A line for each line of the stream, and the counts.", &[(LINES, lines_of(&answer_lines))])
        .answers(201, "On disk. `Location` is there for one.", &[(JSON, created)])
        .leads_to(201, &[
            "read_notification",
            "cancel_notification",
            "reschedule_notification",
            "requeue_notification",
            "resolve_notification",
        ])
        .may(&[IdempotencyKeyReused, NotGranted])
        .writes()
}

fn preview(types: &mut Types) -> Operation {
    operation("/v1/preview", "preview_notification", "Show what a notification would send")
        .about("Rendered, with its length, and whether its channel takes it. Nothing is stored.")
        .body(JSON, &component("NotificationSubmission"), &[("one", notification())])
        .json("What would be sent.", types.of::<PreviewAnswer>())
        .may(&[NotGranted])
}

fn broadcasts(types: &mut Types) -> Operation {
    let head = component("BroadcastHead");
    let recipient = component("BroadcastRecipient");
    let lines = json!({
        "type": "array",
        "minItems": 1,
        "prefixItems": [head],
        "items": recipient,
        "description": "The first line is the broadcast, each further one a recipient.",
    });
    operation("/v1/broadcasts", "create_broadcast", "Create a broadcast: one content, many recipients")
        .about(
            "Accepted whole or not at all: nothing is sent before the last recipient is stored. As JSON it has up to 10,000 recipients with it; as lines any number follow it.",
        )
        .header(idempotency_key())
        .body(JSON, &component("BroadcastSubmission"), &[("whole", broadcast(json!({ "recipients": recipients() })))])
        .body(LINES, &lines, &[("lines", Value::Array([vec![broadcast(json!({}))], recipients()].concat()))])
        .answers(201, "On disk.", &[(JSON, types.of::<BroadcastCreated>())])
        .leads_to(201, &["read_broadcast", "cancel_broadcast", "reschedule_broadcast"])
        .may(&[IdempotencyKeyReused, NotGranted, UploadEnded, TenantOverloaded, Overloaded, DiskFull])
        .writes()
}

/// A notification that the tests' channel takes.
pub(super) fn notification() -> Value {
    json!({ "channel": "ios", "to": "3f1c9a77", "content": { "aps": { "alert": "It is noon" } } })
}

fn scheduled() -> Value {
    json!({
        "channel": "ios",
        "to": "4a00d219",
        "content": { "aps": { "alert": "It is noon" } },
        "guarantee": "at_most_once",
        "priority": "bulk",
        "idempotency_key": "noon-4a00d219",
        "external_id": "ann",
        "tags": ["noon"],
        "metadata": { "campaign": 7 },
    })
}

fn broadcast(more: Value) -> Value {
    let mut broadcast = json!({ "channel": "ios", "content": { "aps": { "alert": "It is noon" } }, "priority": "bulk" });
    if let (Some(broadcast), Value::Object(more)) = (broadcast.as_object_mut(), more) {
        broadcast.extend(more);
    }
    broadcast
}

fn recipients() -> Vec<Value> {
    vec![json!("3f1c9a77"), json!({ "to": "4a00d219", "external_id": "ann" })]
}
