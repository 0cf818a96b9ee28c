//! Operations that change what was handed in, or how it is sent.

use axum::http::Method;
use notification::NotificationId;
use serde_json::{Value, json};

use super::operation::{JSON, Operation, component};
use super::types::Types;
use crate::cancel::CancelAllAnswer;
use crate::notifications::CancelAnswer;
use crate::pauses::{PauseAnswer, ResumeAnswer};
use crate::problem_code::ProblemCode::{
    ContentRemoved, Expired, MissingParameter, MissingScope, NotFound, NotGranted, NotReleased,
    Overtaken, Replaced, TooLate, TooManyPauses, WrongState,
};
use crate::recipients::ErasureAnswer;
use crate::requeue::{ManyAnswer, RequeuedOne};
use crate::reschedule::RescheduleAnswer;
use crate::resolve::ResolveAnswer;
use crate::{cancel, matching, recipients, requeue, resolve, scope};

pub(super) fn operations(types: &mut Types) -> Vec<Operation> {
    let mut all = cancelling(types);
    all.extend(rescheduling(types));
    all.extend(pausing(types));
    all.extend(requeueing(types));
    all.extend(resolving(types));
    all.push(erasing(types));
    all
}

fn operation(path: &'static str, id: &'static str, summary: &'static str) -> Operation {
    Operation::new((Method::POST, path), "changing", id, summary)
}

fn cancelling(types: &mut Types) -> Vec<Operation> {
    let answer = types.of::<CancelAnswer>();
    vec![
        operation("/v1/notifications/{id}/cancel", "cancel_notification", "Cancel a notification that was not sent")
            .about("One that is cancelled already has the same answer.")
            .takes(&scope::TENANT)
            .json("It is cancelled.", answer.clone())
            .may(&[TooLate])
            .writes(),
        operation("/v1/broadcasts/{id}/cancel", "cancel_broadcast", "Cancel what was not sent of a broadcast")
            .about("A cancellation that is asked for again has the same answer.")
            .takes(&scope::TENANT)
            .json("What is left of it is cancelled.", answer)
            .may(&[TooLate])
            .writes(),
        operation("/v1/cancel", "cancel_many", "Cancel what waits of a broadcast, a lane, a channel, a tenant, or of what a search finds")
            .about("Name a scope (`broadcast`; `channel`; `channel`, `destination` and `priority`; `all=true`), or search by `to`, `external_id` or `tag`, with `channel` or `broadcast` perhaps. A call takes a second or two at most: pass `next` as `after` to go on.")
            .takes(&cancel::parameters())
            .example("channel", &json!("ios"))
            .json("The counts of this call.", types.of::<CancelAllAnswer>())
            .may(&[NotFound, MissingScope])
            .writes(),
    ]
}

fn rescheduling(types: &mut Types) -> Vec<Operation> {
    let answer = types.of::<RescheduleAnswer>();
    let body = component("NewTime");
    let example = [("later", json!({ "send_at": "2026-12-24T18:00:00Z" }))];
    vec![
        operation(
            "/v1/notifications/{id}/reschedule",
            "reschedule_notification",
            "Give a notification that was not sent another time",
        )
        .takes(&scope::TENANT)
        .body(JSON, &body, &example)
        .json("It waits for the new time.", answer.clone())
        .may(&[TooLate, NotReleased, Overtaken])
        .writes(),
        operation(
            "/v1/broadcasts/{id}/reschedule",
            "reschedule_broadcast",
            "Give what was not sent of a broadcast another time",
        )
        .takes(&scope::TENANT)
        .body(JSON, &body, &example)
        .json("What is left of it waits for the new time.", answer)
        .may(&[TooLate, NotReleased, Overtaken])
        .writes(),
    ]
}

fn pausing(types: &mut Types) -> Vec<Operation> {
    vec![
        operation("/v1/pause", "pause", "Send nothing of a broadcast, a lane, a channel or a tenant for now")
            .about("Once this has answered with `everywhere`, nothing of it begins in any process until it is resumed. Name a scope: `broadcast`; `channel`; `channel`, `destination` and `priority`; `all=true`.")
            .takes(&scope::NAMES)
            .example("channel", &json!("ios"))
            .json("It is paused.", types.of::<PauseAnswer>())
            .may(&[NotFound, MissingScope, TooManyPauses])
            .writes(),
        operation("/v1/resume", "resume", "Send again what was paused")
            .about("Name the scope that was paused.")
            .takes(&scope::NAMES)
            .example("channel", &json!("ios"))
            .json("Whether it was paused.", types.of::<ResumeAnswer>())
            .may(&[MissingScope])
            .writes(),
    ]
}

/// States from which notifications are sent again.
fn with_states(operation: Operation) -> Operation {
    let states = json!({ "type": "string", "enum": ["dead", "cancelled", "refused", "in_doubt"] });
    operation
        .with_list(
            "state",
            &states,
            "States in which they are; `dead`, if absent. What is `in_doubt` takes `may_repeat`.",
        )
        .example("state", &json!(["cancelled"]))
}

/// The parameters of requests that mean what a filter matches.
fn matching_many(operation: Operation, names: &[&str], types: &mut Types) -> Operation {
    let names = [&matching::NAMES[..], names].concat();
    let after: Value = types.of::<NotificationId>();
    operation
        .takes(&names)
        .with("after", after, "`next` of the answer before: go on from there.")
        .with(
            "since",
            json!({ "type": "string", "format": "date-time" }),
            "Of those that ended at this instant or after it.",
        )
        .with(
            "until",
            json!({ "type": "string", "format": "date-time" }),
            "Of those that ended before this instant.",
        )
        .example("since", &json!("2026-11-01T00:00:00Z"))
        .may(&[MissingParameter, MissingScope])
}

fn requeueing(types: &mut Types) -> Vec<Operation> {
    let one = operation(
        "/v1/notifications/{id}/requeue",
        "requeue_notification",
        "Send a notification again that ended undelivered",
    )
    .takes(&requeue::NAMES_OF_ONE)
    .json("It is pending again.", types.of::<RequeuedOne>())
    .may(&[
        MissingParameter,
        WrongState,
        NotReleased,
        ContentRemoved,
        Expired,
        Replaced,
        NotGranted,
    ])
    .writes();
    let many = operation("/v1/requeue", "requeue_many", "Send those again that ended undelivered and match a filter")
        .about("Other states than `dead` take a `broadcast`, or `since`. Pass `next` as `after` to go on: an answer may be short, or empty, although more follow.");
    let many = matching_many(many, &requeue::NAMES, types)
        .json("The counts of this call.", types.of::<ManyAnswer>())
        .may(&[NotGranted])
        .writes();
    vec![with_states(one), with_states(many)]
}

fn resolving(types: &mut Types) -> Vec<Operation> {
    let note = json!({ "type": "string", "maxLength": store::Resolution::NOTE_BYTES, "pattern": "^[^\\u0000-\\u001f\\u007f-\\u009f]*$" });
    let answer = types.of::<ResolveAnswer>();
    let read = |operation: Operation| {
        operation
            .with(
                "note",
                note.clone(),
                "How it was found out; leave names and addresses out of it.",
            )
            .requires("as")
            .example("as", &json!("delivered"))
    };
    let one = operation(
        "/v1/notifications/{id}/resolve",
        "resolve_notification",
        "Write down what became of a notification that is in doubt",
    )
    .about("Nothing is sent.")
    .takes(&resolve::NAMES_OF_ONE)
    .json("It has ended.", answer.clone())
    .may(&[WrongState])
    .writes();
    let many = operation(
        "/v1/resolve",
        "resolve_many",
        "Write down what became of those in doubt that match a filter",
    )
    .about("Nothing is sent. It takes a `broadcast`, or `since`.");
    let many = matching_many(many, &resolve::NAMES, types)
        .json("The counts of this call.", answer)
        .writes();
    vec![read(one), read(many)]
}

fn erasing(types: &mut Types) -> Operation {
    let text = json!({ "type": "string", "minLength": 1, "maxLength": notification::limits::RECIPIENT_BYTES, "pattern": "^[^\\u0000-\\u001f\\u007f]*$" });
    Operation::new((Method::DELETE, "/v1/recipients"), "changing", "erase_recipient", "Erase what is stored about a recipient")
        .about("By address (`to`), or by `external_id`, and not both. A call takes about a second at most: pass `next` as `after` to go on.")
        .takes(&recipients::PARAMETERS)
        .with("to", text.clone(), "Address of the recipient.")
        .with("external_id", text, "External id of the notifications.")
        .with("after", types.of::<NotificationId>(), "`next` of the answer before: go on from there.")
        .example("to", &json!("3f1c9a77"))
        .json("The counts of this call.", types.of::<ErasureAnswer>())
        .may(&[MissingScope])
        .writes()
}
