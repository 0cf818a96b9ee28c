//! The variables of a template.

use std::collections::BTreeMap;

use minijinja::value::Value;
use notification::limits::LINE_BYTES;

use super::engine::LayeredVariables;
use super::work;
use crate::ingest::InvalidField;
use crate::ingest::limits::VARIABLES_BYTES;

/// The weight of the variables of an event beside its body: their names, and two short texts.
const EVENT_WEIGHT: u64 = 16;

/// The variables that a template is rendered with: a JSON object.
#[derive(Debug, Clone)]
pub(in crate::ingest) struct Variables {
    pub(super) value: Value,
    /// About how many values there are to look at.
    pub(super) weight: u64,
}

// === impl Variables ===

impl Variables {
    /// Reads `json`, which is valid. Empty stands for no variables.
    pub(in crate::ingest) fn read(json: &[u8]) -> Result<Self, InvalidField> {
        if json.len() > VARIABLES_BYTES {
            let message = format!("must have at most {VARIABLES_BYTES} bytes, has {}", json.len());
            return Err(InvalidField::new("/variables", message));
        }
        let json = if json.is_empty() { b"{}" } else { json };
        if !json.starts_with(b"{") {
            return Err(InvalidField::new("/variables", "must be a JSON object"));
        }
        let value = serde_json::from_slice(json)
            .map_err(|error| InvalidField::new("/variables", format!("cannot be read: {error}")))?;
        Ok(Self { value, weight: work::weight_of_json(json) })
    }

    /// The variables `id`, `key` (null for none) and `body` of an event: its body as JSON.
    pub(in crate::ingest) fn of_event(
        id: &str,
        key: Option<&str>,
        body: &[u8],
    ) -> Result<Self, InvalidField> {
        if body.len() > LINE_BYTES {
            let message =
                format!("must have at most {LINE_BYTES} bytes to be mapped, has {}", body.len());
            return Err(InvalidField::new("", message));
        }
        let body_value: Value = serde_json::from_slice(body)
            .map_err(|error| InvalidField::new("", format!("is not JSON: {error}")))?;
        let key = key.map_or(Value::from(()), Value::from);
        let names = BTreeMap::from([("id", Value::from(id)), ("key", key), ("body", body_value)]);
        let weight = EVENT_WEIGHT + work::weight_of_json(body);
        Ok(Self { value: Value::from(names), weight })
    }

    /// These variables over those of `common`, of which only the names that are absent here apply.
    pub(in crate::ingest) fn over(self, common: &Self) -> Self {
        let scope = LayeredVariables { own: self.value, common: common.value.clone() };
        Self { value: Value::from_object(scope), weight: self.weight + common.weight }
    }
}
