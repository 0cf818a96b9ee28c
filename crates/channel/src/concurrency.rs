//! How many attempts may be under way, as an operator sets it.

use std::fmt;

use flow::{Fixed, Learned, Limit};
use notification::limits;
use serde::de::{Deserialize, Deserializer, Error, Visitor};

/// How many attempts may be under way at a time per destination, priority and sender thread: a number, or `"auto"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Concurrency {
    /// Learned from latency and push-back.
    Auto,
    /// At least 1.
    Fixed(usize),
}

struct ConcurrencyVisitor;

// === impl Concurrency ===

impl Concurrency {
    /// Whether anything could be sent.
    pub fn is_possible(self) -> bool {
        self != Self::Fixed(0)
    }

    /// The limit of a new gate.
    pub fn limit(self) -> Box<dyn Limit> {
        match self {
            // More of one lane is never claimed.
            Self::Auto => Box::new(Learned::new(limits::LANE_WINDOW)),
            Self::Fixed(limit) => Box::new(Fixed(limit)),
        }
    }
}

impl<'de> Deserialize<'de> for Concurrency {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ConcurrencyVisitor)
    }
}

impl Visitor<'_> for ConcurrencyVisitor {
    type Value = Concurrency;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a number of attempts, or \"auto\"")
    }

    fn visit_u64<E: Error>(self, limit: u64) -> Result<Concurrency, E> {
        usize::try_from(limit).map(Concurrency::Fixed).map_err(E::custom)
    }

    fn visit_i64<E: Error>(self, limit: i64) -> Result<Concurrency, E> {
        usize::try_from(limit).map(Concurrency::Fixed).map_err(E::custom)
    }

    fn visit_str<E: Error>(self, word: &str) -> Result<Concurrency, E> {
        if word == "auto" {
            return Ok(Concurrency::Auto);
        }
        Err(E::invalid_value(serde::de::Unexpected::Str(word), &self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_a_fixed_limit_and_auto_is_a_learned_one() {
        let read = |text: &str| serde_json::from_str::<Concurrency>(text);
        assert_eq!(read("16").unwrap().limit().current(), 16);
        assert_eq!(read("\"auto\"").unwrap(), Concurrency::Auto);
        assert_eq!(Concurrency::Auto.limit().current(), 1, "it begins with one");
        assert!(!read("0").unwrap().is_possible());
        for wrong in ["-1", "1.5", "\"Auto\"", "true"] {
            let error = read(wrong).unwrap_err().to_string();
            assert!(error.contains("auto") || wrong == "-1", "{error}");
        }
    }
}
