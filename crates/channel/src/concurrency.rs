//! How much may be sent, as an operator sets it.

use std::fmt;
use std::num::NonZeroU32;

use flow::limit::{Fixed, Learned, Limit};
use notification::limits;
use serde::de::{Deserialize, Deserializer, Error, Visitor};

/// How many attempts may be under way at a time per destination and process: a number, or `"auto"`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Concurrency {
    /// Learned from latency and push-back.
    #[default]
    Auto,
    /// At least 1.
    Fixed(usize),
}

/// The numbers between which a learned limit stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LearnedBounds {
    /// The first limit.
    pub first: usize,
    /// The least that latency alone lowers it to, at least 1; push-back and lost attempts lower it further.
    pub min: usize,
    /// The last one.
    pub max: usize,
}

/// How much a channel may send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendBounds {
    /// How many attempts may be under way at a time.
    pub concurrency: Concurrency,
    /// The numbers between which that stays if it is learned.
    pub learned: LearnedBounds,
    /// How many attempts may be made in any minute for each [quota](crate::Channel::quota_key); `None` when there is no bound.
    pub messages_per_minute: Option<NonZeroU32>,
}

struct ConcurrencyVisitor;

// === impl Concurrency ===

impl Concurrency {
    /// True if anything could be sent.
    pub fn is_possible(self) -> bool {
        self != Self::Fixed(0)
    }

    /// The limit of a new gate; one that is learned stays within `learned`.
    pub fn limit(self, learned: LearnedBounds) -> Box<dyn Limit> {
        match self {
            Self::Auto => {
                Box::new(Learned::between(learned.min, learned.max).starting_at(learned.first))
            }
            Self::Fixed(limit) => Box::new(Fixed(limit)),
        }
    }
}

// === impl LearnedBounds ===

impl LearnedBounds {
    /// Those of a destination that may be small, such as a customer's server. Each attempt takes a connection of its own.
    pub const SMALL: Self = Self { first: 1, min: 1, max: 1_000 };
    /// Those of a push service, which is reached over HTTP/2 and serves many at a time. A server should grant at least a hundred streams
    /// on a connection (RFC 9113, section 6.5.2), so fewer are no relief for it: latency below that is the network's, or that of a busy
    /// machine. More of one lane than the last is never claimed.
    pub const PUSH_SERVICE: Self = Self { first: 100, min: 100, max: limits::LANE_WINDOW };
}

// === impl SendBounds ===

impl SendBounds {
    /// The bounds that settings of these names have: 0 messages per minute are no bound.
    pub const fn new(
        concurrency: Concurrency,
        learned: LearnedBounds,
        messages_per_minute: u32,
    ) -> Self {
        Self { concurrency, learned, messages_per_minute: NonZeroU32::new(messages_per_minute) }
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

    // TOML's integers come as signed ones, the numbers of other forms as unsigned.
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
        let limit =
            |concurrency: Concurrency| concurrency.limit(LearnedBounds::PUSH_SERVICE).current();
        assert_eq!(limit(read("16").unwrap()), 16);
        assert_eq!(read("\"auto\"").unwrap(), Concurrency::Auto);
        assert_eq!(limit(Concurrency::Auto), 100, "it begins with the least");
        assert!(!read("0").unwrap().is_possible());
        for wrong in ["-1", "1.5", "\"Auto\"", "true"] {
            let error = read(wrong).unwrap_err().to_string();
            assert!(error.contains("auto") || wrong == "-1", "{error}");
        }
    }
}
