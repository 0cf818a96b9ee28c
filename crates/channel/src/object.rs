//! JSON of callers: structures that are read from objects alone, and options.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::Invalid;

/// A structure as an object says it, name by name. Without this `serde` takes an array for it as well, value by value.
#[derive(Debug)]
pub(crate) struct ByName<T>(pub(crate) T);

struct ByNameVisitor<T>(PhantomData<T>);

/// The members of a notification's options, none where there are no options.
pub(crate) fn members(options: &[u8]) -> Result<Map<String, Value>, Invalid> {
    if options.is_empty() {
        return Ok(Map::new());
    }
    serde_json::from_slice(options)
        .map_err(|error| Invalid::new(format!("must be a JSON object: {error}")))
}

/// Checks that a payload is JSON, for channels that send its bytes as they came.
pub(crate) fn check_json(payload: &[u8]) -> Result<(), Invalid> {
    serde_json::from_slice::<&RawValue>(payload)
        .map(drop)
        .map_err(|error| Invalid::new(format!("is not valid JSON: {error}")))
}

// === impl ByName ===

impl<'de, T: Deserialize<'de>> Deserialize<'de> for ByName<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ByNameVisitor(PhantomData)).map(Self)
    }
}

// === impl ByNameVisitor ===

impl<'de, T: Deserialize<'de>> Visitor<'de> for ByNameVisitor<T> {
    type Value = T;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(members))
    }
}
