//! Operations on the suppression list, which is that of all tenants.

use axum::http::Method;
use notification::limits::LIST_ITEMS;
use serde_json::json;
use store::{Suppression, SuppressionEvent};

use super::operation::{JSON, LINES, Operation, component};
use super::parameters::limit;
use super::reading::lines;
use super::types::Types;
use crate::limits::{LIST_SLICE, LOG_ENTRIES};
use crate::problem_code::ProblemCode::{MissingParameter, NotFound};
use crate::suppressions::{self, LiftAnswer, SuppressAnswer};
use crate::view::ListAnswer;

pub(super) fn operations(types: &mut Types) -> Vec<Operation> {
    let suppression = types.of::<Suppression>();
    let exported = json!({ "type": "array", "items": suppression });
    vec![
        operation(Method::GET, "/v1/suppressions", "list_suppressions", "List recipients that are not tried")
            .about("A page of those of `channel`, which must be given; with `Accept: application/x-ndjson` the whole list, of one channel or of all, as lines, without `after` and `limit`.")
            .takes(&suppressions::LIST_PARAMETERS)
            .with("limit", limit(LIST_SLICE, LIST_ITEMS), "Items of the answer at most.")
            .example("channel", &json!("ios"))
            .answers(200, "Some of them, or all.", &[(JSON, types.of::<ListAnswer<Suppression>>()), (LINES, exported)])
            .may(&[MissingParameter])
            .reads(),
        operation(Method::POST, "/v1/suppressions", "suppress", "Put recipients on the list")
            .body(JSON, &component("Suppress"), &[
                ("one", json!({ "channel": "ios", "to": "3f1c9a77", "reason": "asked to" })),
                ("several", json!({ "channel": "ios", "to": ["3f1c9a77", "4a00d219"] })),
            ])
            .json("They are on it.", types.of::<SuppressAnswer>())
            .writes(),
        operation(Method::DELETE, "/v1/suppressions", "lift_one", "Take a recipient off the list")
            .takes(&suppressions::LIFT_PARAMETERS)
            .requires("channel")
            .requires("to")
            .example("channel", &json!("ios"))
            .example("to", &json!("3f1c9a77"))
            .answers(204, "It is off the list.", &[])
            .may(&[NotFound])
            .writes(),
        operation(Method::POST, "/v1/suppressions/lift", "lift", "Have recipients tried again")
            .body(JSON, &component("Lift"), &[
                ("registered", json!({ "channel": "ios", "to": "3f1c9a77", "registered_at": "2026-11-20T08:30:00Z" })),
            ])
            .json("The counts.", types.of::<LiftAnswer>())
            .writes(),
        operation(Method::GET, "/v1/suppressions/events", "read_suppression_events", "Follow changes of the list")
            .about("In order, from `position` on.")
            .takes(&suppressions::EVENT_PARAMETERS)
            .with("limit", limit(LIST_ITEMS, LOG_ENTRIES), "Changes of the answer at most.")
            .example("position", &json!("0"))
            .answers(200, "Changes.", &[(LINES, lines(types.of::<SuppressionEvent>()))])
            .reads(),
    ]
}

fn operation(
    method: Method,
    path: &'static str,
    id: &'static str,
    summary: &'static str,
) -> Operation {
    Operation::new((method, path), "suppressions", id, summary)
}
