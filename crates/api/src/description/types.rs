//! Schemas of the types that are serialized, as components.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value};

/// The types that were described so far.
pub(super) struct Types(SchemaGenerator);

// === impl Types ===

impl Types {
    pub(super) fn new() -> Self {
        let settings = SchemaSettings::draft2020_12().with(|settings| {
            settings.definitions_path = "/components/schemas".into();
        });
        // As they are written: a field that is always there is required.
        Self(settings.for_serialize().into_generator())
    }

    /// The schema of `T`: a reference to its component.
    pub(super) fn of<T: JsonSchema>(&mut self) -> Value {
        self.0.subschema_for::<T>().to_value()
    }

    /// The components.
    pub(super) fn into_components(mut self) -> Map<String, Value> {
        let mut components = self.0.take_definitions(true);
        components.values_mut().for_each(without_defaults);
        components
    }
}

/// Takes away what is assumed where a field is absent: answers are read by the command line too, with those of older engines.
fn without_defaults(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.remove("default");
            fields.values_mut().for_each(without_defaults);
        }
        Value::Array(items) => items.iter_mut().for_each(without_defaults),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
