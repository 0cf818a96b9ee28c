//! Structures that are read from JSON objects alone.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// A structure as an object says it, name by name. Without this `serde` takes an array for it as well, value by value.
#[derive(Debug)]
pub(crate) struct ByName<T>(pub(crate) T);

struct ByNameVisitor<T>(PhantomData<T>);

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
