//! Schemas of the bodies of requests. Their readers are no types that a schema could be made from
//! (`pipeline::ingest::parse`), so these stand here, with the bounds of the readers; a test compares the fields.

use notification::limits::{
    EXTERNAL_ID_BYTES, KEY_BYTES, RECIPIENT_BYTES, REQUEST_ITEMS, TAG_BYTES, TAGS,
};
use notification::{Name, Priority, Timestamp};
use pipeline::ingest::limits::FALLBACKS;
use serde_json::{Map, Value, json};

use super::operation::component;
use super::types::Types;
use crate::grants::KeyScope;

/// The components of bodies.
pub(super) fn components() -> Vec<(String, Value)> {
    let notification = submission(Map::from_iter([("to".to_owned(), to())]), &["channel", "to"]);
    let recipients = json!({
        "type": "array",
        "minItems": 1,
        "maxItems": REQUEST_ITEMS,
        "items": component("BroadcastRecipient"),
        "description": "At most 10,000: send more as lines.",
    });
    let whole = Map::from_iter([("recipients".to_owned(), recipients)]);
    let components = [
        ("NotificationSubmission", notification),
        ("NotificationSubmissions", one_or_several()),
        ("Fallback", fallback(Map::from_iter([("to".to_owned(), to())]), &["channel", "to"])),
        ("BroadcastHead", submission_of_broadcast(Map::new(), &["channel"])),
        ("BroadcastSubmission", submission_of_broadcast(whole, &["channel", "recipients"])),
        ("BroadcastFallback", fallback(Map::new(), &["channel"])),
        ("BroadcastRecipient", recipient()),
        ("NewTime", new_time()),
        ("Suppress", suppress()),
        ("Lift", lift()),
        ("KeyDraft", key_draft()),
    ];
    components.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect()
}

/// Adds that the object has `content`, or `template` in its place.
fn with_content(mut object: Value) -> Value {
    if let Some(object) = object.as_object_mut() {
        let template =
            json!({ "required": ["template"], "properties": { "template": { "type": "string" } } });
        let content = json!({ "required": ["content"], "properties": { "content": { "not": { "type": "null" } } } });
        object.insert("if".to_owned(), template);
        object.insert("else".to_owned(), content);
    }
    object
}

fn submission(more: Map<String, Value>, required: &[&str]) -> Value {
    let fallback = json!({
        "type": ["array", "null"],
        "maxItems": FALLBACKS,
        "items": component("Fallback"),
        "description": "Contents for the same person on other channels: the first is sent once the notification is refused or suppressed. Together at most 256 KiB.",
    });
    let mut properties = fields();
    properties.insert("fallback".to_owned(), fallback);
    properties.extend(more);
    with_content(object(&properties, required, "A notification, as it is handed in."))
}

/// The body that creates notifications. A component, since some generators give methods to named types alone.
fn one_or_several() -> Value {
    let one = component("NotificationSubmission");
    let several = json!({ "type": "array", "maxItems": REQUEST_ITEMS, "items": one });
    json!({ "description": "A notification, or several, which are taken all or none.", "oneOf": [one, several] })
}

fn submission_of_broadcast(more: Map<String, Value>, required: &[&str]) -> Value {
    let fallback = json!({
        "type": ["array", "null"],
        "maxItems": FALLBACKS,
        "items": component("BroadcastFallback"),
        "description": "Contents for the same persons on other channels; each recipient says where they reach it.",
    });
    let mut properties = fields();
    properties.insert("fallback".to_owned(), fallback);
    properties.extend(more);
    with_content(object(&properties, required, "A broadcast: one content for many recipients."))
}

fn fallback(more: Map<String, Value>, required: &[&str]) -> Value {
    let mut properties = content_fields();
    properties.extend(more);
    with_content(object(&properties, required, "A content that stands in for a refused one."))
}

fn object(properties: &Map<String, Value>, required: &[&str], description: &str) -> Value {
    json!({
        "type": "object",
        "description": description,
        "required": required,
        "properties": properties,
        "additionalProperties": false,
    })
}

/// The fields of everything that is sent.
fn content_fields() -> Map<String, Value> {
    let fields = json!({
        "channel": channel(),
        "content": { "description": "JSON in the channel's own format, sent byte for byte: at most 256 KiB, 128 levels deep. A template where there are `variables`." },
        "options": { "type": ["object", "null"], "description": "In the channel's own format: at most 4,096 bytes." },
        "template": { "type": ["string", "null"], "maxLength": 64, "description": "Name of a configured template, in place of `content` and `options`." },
    });
    as_map(fields)
}

/// The fields of a notification and of a broadcast alike.
fn fields() -> Map<String, Value> {
    let optional = |of: &str, description: &str| json!({ "anyOf": [component(of), { "type": "null" }], "description": description });
    let instant = |description: &str| json!({ "type": ["string", "null"], "format": "date-time", "description": description });
    let fields = json!({
        "variables": { "type": ["object", "null"], "description": "Content and options are a template, and this is put into it: at most 64 KiB." },
        "guarantee": optional("Guarantee", "`at_least_once`, if absent."),
        "priority": optional("Priority", "`normal`, if absent."),
        "send_at": instant("Due time: now, if absent. At most a minute in the past, at most 366 days ahead."),
        "expires_at": instant("Not sent at or after this instant."),
        "late": optional("LatePolicy", "`skip`: expire one minute after `send_at`."),
        "idempotency_key": label(KEY_BYTES, "The same key twice is one notification; with other content it is refused."),
        "external_id": label(EXTERNAL_ID_BYTES, "Your own id of whom or what it is about, a label."),
        "tags": {
            "type": ["array", "null"],
            "maxItems": TAGS,
            "items": { "type": "string", "minLength": 1, "maxLength": TAG_BYTES, "pattern": NO_CONTROLS },
            "description": "Labels.",
        },
        "metadata": { "type": ["object", "null"], "description": "A label: at most 1,024 bytes." },
    });
    let mut all = content_fields();
    all.extend(as_map(fields));
    all
}

/// A text of 1 to `bytes_max` bytes without control characters, or none.
fn label(bytes_max: usize, description: &str) -> Value {
    json!({
        "type": ["string", "null"],
        "minLength": 1,
        "maxLength": bytes_max,
        "pattern": NO_CONTROLS,
        "description": description,
    })
}

const NO_CONTROLS: &str = "^[^\\u0000-\\u001f\\u007f]*$";

fn channel() -> Value {
    let mut channel = Types::new().of::<Name>();
    if let Some(channel) = channel.as_object_mut() {
        channel.insert("description".to_owned(), json!("Name of a configured channel."));
    }
    channel
}

fn to() -> Value {
    json!({
        "type": "string",
        "minLength": 1,
        "maxLength": RECIPIENT_BYTES,
        "description": "Device token, endpoint, address.",
    })
}

fn recipient() -> Value {
    let properties = json!({
        "to": to(),
        "variables": { "type": ["object", "null"], "description": "They go before those of the broadcast." },
        "external_id": label(EXTERNAL_ID_BYTES, "Your own id of whom it is, a label."),
        "fallback": {
            "type": ["array", "null"],
            "maxItems": FALLBACKS,
            "items": { "type": ["string", "null"] },
            "description": "Addresses for the fallbacks of the broadcast, in their order; `null` where one does not reach it.",
        },
    });
    let object = object(&as_map(properties), &["to"], "With more than an address.");
    json!({ "description": "A recipient of a broadcast.", "oneOf": [to(), object] })
}

fn new_time() -> Value {
    let mut send_at = Types::new().of::<Timestamp>();
    if let Some(send_at) = send_at.as_object_mut() {
        let description = "At most 366 days ahead. One that has passed means at once.";
        send_at.insert("description".to_owned(), json!(description));
    }
    object(&Map::from_iter([("send_at".to_owned(), send_at)]), &["send_at"], "Another time.")
}

fn suppress() -> Value {
    let properties = json!({
        "channel": channel(),
        "to": recipients(&to()),
        "reason": { "type": ["string", "null"], "description": "For the list; cut after 200 bytes." },
    });
    object(&as_map(properties), &["channel", "to"], "Recipients that are not to be tried.")
}

fn lift() -> Value {
    let properties = json!({
        "channel": channel(),
        "to": recipients(&json!({ "type": "string", "pattern": NO_CONTROLS })),
        "registered_at": {
            "type": ["string", "null"],
            "format": "date-time",
            "description": "Time at which the recipients registered anew: then only what a provider had suppressed since that time or before is lifted.",
        },
    });
    object(&as_map(properties), &["channel", "to"], "Recipients that may be tried again.")
}

fn recipients(one: &Value) -> Value {
    let several = json!({ "type": "array", "maxItems": REQUEST_ITEMS, "items": one });
    json!({ "description": "A recipient, or several.", "oneOf": [one, several] })
}

fn as_map(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Map::new()
        }
    }
}

/// A body that asks for a key.
fn key_draft() -> Value {
    let mut types = Types::new();
    let scopes: Vec<_> = KeyScope::ALL.iter().map(|scope| scope.as_str()).collect();
    let priorities: Vec<_> = Priority::ALL.iter().map(|priority| priority.as_str()).collect();
    let list = |items: Value, description: &str| json!({ "type": ["array", "null"], "minItems": 1, "items": items, "description": description });
    let name = types.of::<Name>();
    let properties = Map::from_iter([
        ("name".to_owned(), name.clone()),
        ("tenant".to_owned(), name.clone()),
        (
            "scopes".to_owned(),
            list(json!({ "type": "string", "enum": scopes }), "All but `operate`, if absent."),
        ),
        ("channels".to_owned(), list(name, "The channels that it sends by; all, if absent.")),
        (
            "priorities".to_owned(),
            list(
                json!({ "type": "string", "enum": priorities }),
                "The priorities that it sends with; all, if absent.",
            ),
        ),
        (
            "from".to_owned(),
            list(
                json!({ "type": "string" }),
                "The addresses that mail is from, `@example.com` for all of a domain; all, if absent.",
            ),
        ),
        (
            "endpoints".to_owned(),
            list(
                json!({ "type": "string" }),
                "The endpoints that webhooks go to, each with all below its path; all, if absent.",
            ),
        ),
        (
            "not_after".to_owned(),
            json!({ "anyOf": [types.of::<Timestamp>(), { "type": "null" }], "description": "The last instant at which it is good; for ever, if absent." }),
        ),
        (
            "requests_per_minute".to_owned(),
            json!({ "type": ["integer", "null"], "minimum": 1, "maximum": u32::MAX, "description": "Requests in a minute at each process; any number, if absent." }),
        ),
    ]);
    json!({
        "type": "object",
        "required": ["name", "tenant"],
        "additionalProperties": false,
        "properties": properties,
        "description": "A new key. It may do no more, and for no longer, than the key that asks.",
    })
}

#[cfg(test)]
mod tests {
    use pipeline::ingest::{self, parse};

    use super::*;

    #[test]
    fn bodies_have_the_fields_that_their_readers_take() {
        let components: Map<String, Value> = components().into_iter().collect();
        let expect = [
            ("NotificationSubmission", parse::NOTIFICATION),
            ("BroadcastHead", parse::BROADCAST),
            ("BroadcastSubmission", parse::BROADCAST_WITH_RECIPIENTS),
            ("Fallback", parse::FALLBACK),
            ("NewTime", ingest::NEW_TIME),
            ("Suppress", crate::suppressions::SUPPRESS),
            ("Lift", crate::suppressions::LIFT),
            ("KeyDraft", crate::key_routes::DRAFT_FIELDS),
        ];
        for (name, fields) in expect {
            check(&components[name], fields, name);
        }
        check(&components["BroadcastRecipient"]["oneOf"][1], parse::RECIPIENT, "a recipient");
        // A fallback of a broadcast has all but `to`, which each recipient has.
        let of_broadcast: Vec<_> =
            parse::FALLBACK.iter().copied().filter(|field| *field != "to").collect();
        check(&components["BroadcastFallback"], &of_broadcast, "of a broadcast");
    }

    fn check(schema: &Value, fields: &[&str], name: &str) {
        let mut fields = fields.to_vec();
        fields.sort_unstable();
        let mut described: Vec<_> =
            schema["properties"].as_object().unwrap().keys().map(String::as_str).collect();
        described.sort_unstable();
        assert_eq!(described, fields, "{name}");
    }
}
