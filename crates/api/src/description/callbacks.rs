//! Signed requests that the engine sends: those of a channel of the kind `webhook`, and of feeds.

use serde_json::{Map, Value, json};
use store::{DeliveryEvent, EventPosition, SuppressionEvent};

use super::types::Types;

const ABOUT: &str = "Signed after Standard Webhooks 1.0.0: `webhook-signature` has one or several signatures, with spaces between them, of `{webhook-id}.{webhook-timestamp}.{body}`. \
`v1,` is HMAC-SHA256 with a secret that both sides know (`whsec_...`), `v1a,` Ed25519 with a key that only the engine has. `webhook-id` is the same in each attempt: by it a receiver knows repetitions.";

/// The section `webhooks`.
pub(super) fn webhooks(types: &mut Types) -> Value {
    let position = types.of::<EventPosition>();
    let feed = |word: &str, name: Option<Value>, event: Value| {
        let mut properties = Map::from_iter([
            ("type".to_owned(), json!({ "const": word })),
            ("after".to_owned(), position.clone()),
            ("until".to_owned(), position.clone()),
            ("events".to_owned(), json!({ "type": "array", "items": event })),
        ]);
        properties.extend(name.map(|name| ("feed".to_owned(), name)));
        let required: Vec<_> = properties.keys().cloned().collect();
        json!({ "type": "object", "required": required, "properties": properties })
    };
    let suppressions = feed("suppressions", None, types.of::<SuppressionEvent>());
    let name = json!({ "type": "string", "description": "Name of the feed." });
    let deliveries = feed("deliveries", Some(name), types.of::<DeliveryEvent>());
    json!({
        "notification": webhook("receive_notification", "A notification by a channel of the kind `webhook`", &json!({ "description": "`content`, byte for byte as it was handed in." })),
        "deliveries": webhook("receive_deliveries", "Events of a feed, in order: `after` is the `until` of the request before", &deliveries),
        "suppressions": webhook("receive_suppressions", "Changes of the suppression list, in order: `after` is the `until` of the request before", &suppressions),
    })
}

fn webhook(id: &str, summary: &str, body: &Value) -> Value {
    let header = |name: &str, schema: Value, description: &str| json!({ "name": name, "in": "header", "required": true, "schema": schema, "description": description });
    let identifier = "Identifier of the notification.";
    let time = "Time of the attempt, seconds since the Unix epoch.";
    json!({
        "post": {
            "operationId": id,
            "tags": ["sending"],
            "summary": summary,
            "description": ABOUT,
            "security": [],
            "parameters": [
                header("webhook-id", json!({ "type": "string", "format": "uuid" }), identifier),
                header("webhook-timestamp", json!({ "type": "integer" }), time),
                header("webhook-signature", json!({ "type": "string" }), "Signatures."),
            ],
            "requestBody": {
                "required": true,
                "content": { "application/json": { "schema": body } },
            },
            "responses": {
                "2XX": { "description": "Taken: it is delivered." },
                "410": { "description": "The endpoint is gone: it goes on the suppression list." },
                "4XX": { "description": "Refused for good, but for 401, 403, 404, 407, 408, 409, 421, 423, 424, 425 and 429, after which it is tried again." },
                "5XX": { "description": "Tried again; at most once, what may have been acted on is in doubt." },
            },
        },
    })
}
