//! JSON Schemas of the values that stand in answers of the HTTP API, from which its description is made.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use crate::{
    BroadcastId, Guarantee, Labels, LatePolicy, Name, NotificationId, Priority, State, Timestamp,
};

/// Gives a type whose JSON is a text its schema, which stands wherever the type does.
macro_rules! text_schema {
    ($type:ident, $schema:tt) => {
        impl JsonSchema for $type {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!($schema)
            }
        }
    };
}

/// Gives an enum of words its schema, which is a component.
macro_rules! words_schema {
    ($($type:ident, $description:literal;)+) => {$(
        impl JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                let words: Vec<_> = $type::ALL.iter().map(|value| value.as_str()).collect();
                json_schema!({ "type": "string", "enum": words, "description": $description })
            }
        }
    )+};
}

text_schema!(Name, { "type": "string", "pattern": "^[a-z0-9][a-z0-9_-]*$", "maxLength": 64 });
text_schema!(Timestamp, { "type": "string", "format": "date-time" });
text_schema!(NotificationId, { "type": "string", "format": "uuid" });
text_schema!(BroadcastId, { "type": "string", "pattern": "^bc_(0|[1-9][0-9]*)$", "maxLength": 23 });

words_schema! {
    Guarantee, "How often a notification may be on the wire.";
    LatePolicy, "What becomes of a notification whose time has passed.";
    Priority, "What goes first where not all can.";
    State, "Where a notification stands.";
}

/// The fields that they are written as: those that there are.
impl JsonSchema for Labels {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Labels".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "object",
            "properties": {
                "external_id": {
                    "type": "string",
                    "description": "The application's own id of whom or what it is about.",
                },
                "tags": { "type": "array", "items": { "type": "string" }, "description": "Its tags." },
                "metadata": { "type": "object", "description": "As it was handed in." },
            },
        })
    }
}
