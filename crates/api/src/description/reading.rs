//! Operations that tell what became of notifications and broadcasts.

use axum::http::Method;
use notification::limits::LIST_ITEMS;
use notification::{BroadcastId, Name, NotificationId, State};
use serde_json::{Value, json};
use store::DeliveryEvent;

use super::operation::{LINES, Operation, component, lines_of};
use super::parameters::{last_event_id, limit};
use super::types::Types;
use crate::account::TenantAccount;
use crate::broadcast_list::BroadcastItem;
use crate::broadcasts::BroadcastAnswer;
use crate::channels::ChannelList;
use crate::limits::{LIST_SLICE, LOG_ENTRIES};
use crate::pauses::PauseList;
use crate::problem_code::ProblemCode::{AccountUnknown, TenantStreams, TooManyStreams};
use crate::templates::TemplateItem;
use crate::view::{ListAnswer, Notification};
use crate::{broadcast_list, events, notifications, scope, templates};

pub(super) fn operations(types: &mut Types) -> Vec<Operation> {
    vec![
        operation("/v1/notifications", "list_notifications", "List notifications")
            .about("In order of their ids, without contents. A page may be short, or empty, although more follow: `next` is `null` at the end.")
            .takes(&notifications::LISTED_BY)
            .with("limit", limit(LIST_SLICE, LIST_ITEMS), "Items of the answer at most.")
            .with("after", types.of::<NotificationId>(), "`next` of the answer before: go on from there.")
            .example("limit", &json!(10))
            .json("Some of them.", types.of::<ListAnswer<Notification>>())
            .reads(),
        operation("/v1/notifications/{id}", "read_notification", "Read a notification")
            .about("With its content, as far as that is kept, and each of its attempts.")
            .takes(&scope::TENANT)
            .polled("The notification.", types.of::<Notification>())
            .reads(),
        operation("/v1/broadcasts", "list_broadcasts", "List broadcasts")
            .about("Without where their notifications stand.")
            .takes(&broadcast_list::PARAMETERS)
            .with("limit", limit(LIST_SLICE, LIST_ITEMS), "Items of the answer at most.")
            .with("after", types.of::<BroadcastId>(), "`next` of the answer before: go on from there.")
            .example("order", &json!("newest"))
            .json("Some of them.", types.of::<ListAnswer<BroadcastItem>>())
            .reads(),
        operation("/v1/broadcasts/{id}", "read_broadcast", "Read a broadcast")
            .about("With the account of its notifications, and when it will be complete.")
            .takes(&scope::TENANT)
            .polled("The broadcast.", types.of::<BroadcastAnswer>())
            .reads(),
        events_of_deliveries(types),
        operation("/v1/account", "read_account", "Read the account of a tenant")
            .about("The caller's; an operator may name another tenant.")
            .takes(&scope::TENANT)
            .example("tenant", &json!("default"))
            .json("The account.", types.of::<TenantAccount>())
            .may(&[AccountUnknown])
            .reads(),
        operation("/v1/channels", "list_channels", "List channels")
            .about("Those that this process is configured with, as of now, with what is paused of a tenant.")
            .takes(&scope::TENANT)
            .polled("The channels.", types.of::<ChannelList>())
            .reads(),
        operation("/v1/templates", "list_templates", "List named templates")
            .about("Those that this process is configured with, as of now, by name, without those that are meant for a channel that the caller's key is not granted.")
            .takes(&templates::PARAMETERS)
            .with("after", types.of::<Name>(), "`next` of the answer before: go on from there.")
            .with("limit", limit(templates::ITEMS, templates::ITEMS), "Items of the answer at most.")
            .json("Some of them.", types.of::<ListAnswer<TemplateItem>>()),
        operation("/v1/pauses", "list_pauses", "List pauses")
            .about("Those of the caller's tenant; with an operator's key those of all, or of the tenant that is named.")
            .takes(&scope::TENANT)
            .json("The pauses.", types.of::<PauseList>())
            .reads(),
    ]
}

fn operation(path: &'static str, id: &'static str, summary: &'static str) -> Operation {
    Operation::new((Method::GET, path), "reading", id, summary)
}

fn events_of_deliveries(types: &mut Types) -> Operation {
    let ends: Vec<_> = State::ALL.iter().filter(|state| state.is_terminal()).collect();
    let ends: Vec<_> = ends.iter().map(|state| state.as_str()).collect();
    let stream = json!({
        "type": "string",
        "description": "Server-sent events: `id` is the position, `data` the JSON of a line.",
    });
    operation("/v1/events", "read_events", "Follow what becomes of notifications")
        .about("In the order of the log, from `position` on. With `Accept: text/event-stream` it is a stream that does not end, without `limit` and `wait`.")
        .takes(&events::PARAMETERS)
        .with("limit", limit(LIST_ITEMS, LOG_ENTRIES), "Events of the answer at most.")
        .with_list("channel", &types.of::<Name>(), "Of these channels.")
        .with_list("state", &json!({ "type": "string", "enum": ends }), "Ends with these states.")
        .example("position", &json!("0"))
        .example("state", &json!(["delivered", "refused"]))
        .header(last_event_id())
        .answers(200, "Events.", &[(LINES, lines(types.of::<DeliveryEvent>())), ("text/event-stream", stream)])
        .may(&[TooManyStreams, TenantStreams])
        .reads()
}

/// Lines with events, and a last one with where to go on.
pub(super) fn lines(event: Value) -> Value {
    lines_of(&[event, component("NextPosition")])
}
