//! The terms under which a notification is delivered, and the names that route it.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The effect that a crash may have; chosen per notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Guarantee {
    /// Never lost; repeated only if it was in flight when something failed.
    #[default]
    AtLeastOnce,
    /// Never on the wire twice; in doubt if it was in flight when something failed.
    AtMostOnce,
}

/// The order in which notifications are claimed, queued and sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Priority {
    /// One-off messages that a person waits for: a code, an alarm.
    Urgent,
    /// Everything else.
    #[default]
    Normal,
    /// Campaigns.
    Bulk,
}

/// The treatment of a notification that could not be sent close to its `send_at`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum LatePolicy {
    /// Send it late.
    #[default]
    Send,
    /// Let it expire ([`crate::limits::LATE_AFTER`] past its `send_at`).
    Skip,
}

/// The name of a channel or a tenant: 1 to 64 of `a-z`, `0-9`, `-`, `_`, starting with a letter or digit.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(Arc<str>);

/// A text that is none of the words allowed at its place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not {expected}")]
pub struct TermError {
    text: String,
    expected: &'static str,
}

// === impl Priority ===

impl Priority {
    /// Its part beside other priorities while all have some: in claims, where what is urgent goes first anyway, and at a destination.
    pub const fn weight(self) -> u8 {
        match self {
            Self::Urgent => 8,
            Self::Normal => 3,
            Self::Bulk => 1,
        }
    }
}

/// Gives an enum its words and its stored codes; both are contracts and never change.
macro_rules! words {
    ($type:ident, $expected:literal, $($variant:ident = $code:literal, $word:literal;)+) => {
        impl $type {
            /// Every value.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The word users read and write.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }

            /// The code that stores keep.
            pub const fn code(self) -> u8 {
                match self { $(Self::$variant => $code),+ }
            }

            /// The inverse of [`Self::code`].
            pub const fn from_code(code: u8) -> Option<Self> {
                match code { $($code => Some(Self::$variant),)+ _ => None }
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.pad(self.as_str())
            }
        }

        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl std::str::FromStr for $type {
            type Err = $crate::terms::TermError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                match text {
                    $($word => Ok(Self::$variant),)+
                    _ => Err($crate::terms::TermError::new(text, $expected)),
                }
            }
        }
    };
}
pub(crate) use words;

words!(Guarantee, "`at_least_once` or `at_most_once`",
    AtLeastOnce = 0, "at_least_once";
    AtMostOnce = 1, "at_most_once";
);
words!(Priority, "`urgent`, `normal` or `bulk`",
    Urgent = 0, "urgent";
    Normal = 1, "normal";
    Bulk = 2, "bulk";
);
words!(LatePolicy, "`send` or `skip`",
    Send = 0, "send";
    Skip = 1, "skip";
);

// === impl Name ===

impl Name {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Name {
    type Err = TermError;

    fn from_str(text: &str) -> Result<Self, TermError> {
        let allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_');
        let starts_well = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
        if starts_well && text.len() <= 64 && text.bytes().all(allowed) {
            return Ok(Self(text.into()));
        }
        Err(TermError::new(
            text,
            "a name (1 to 64 of a-z, 0-9, - and _, starting with a letter or digit)",
        ))
    }
}

impl Serialize for Name {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, formatter)
    }
}

// === impl TermError ===

impl TermError {
    pub(crate) fn new(text: &str, expected: &'static str) -> Self {
        // The text is the caller's and may be long: an error quotes its beginning.
        Self { text: text.chars().take(80).collect(), expected }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_and_every_code_is_read_back() {
        for &guarantee in Guarantee::ALL {
            assert_eq!(guarantee.as_str().parse(), Ok(guarantee));
            assert_eq!(Guarantee::from_code(guarantee.code()), Some(guarantee));
        }
        for &priority in Priority::ALL {
            assert_eq!(priority.as_str().parse(), Ok(priority));
            assert_eq!(Priority::from_code(priority.code()), Some(priority));
        }
        for &late in LatePolicy::ALL {
            assert_eq!(late.as_str().parse(), Ok(late));
            assert_eq!(LatePolicy::from_code(late.code()), Some(late));
        }
    }

    #[test]
    fn urgent_sorts_before_bulk() {
        assert!(Priority::Urgent < Priority::Normal && Priority::Normal < Priority::Bulk);
    }

    #[test]
    fn a_name_is_short_and_plain() {
        for good in ["ios", "web-hooks_2", "0"] {
            assert_eq!(good.parse::<Name>().unwrap().as_str(), good);
        }
        for bad in ["", "-x", "iOS", "a b", "é", &"x".repeat(65)] {
            assert!(bad.parse::<Name>().is_err(), "{bad:?}");
        }
    }
}
