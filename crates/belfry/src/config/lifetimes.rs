//! Lifetimes, as a configuration says them.

use std::time::Duration;

use serde::{Deserialize, Deserializer, de};
use store::Lifetimes;

use super::units;

/// A span of time such as `12h` or `30d`, or `forever`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lifetime(pub(super) Option<Duration>);

/// `[retention.states.STATE]`, `[tenants.NAME.retention]`: lifetimes that differ; the others are as everywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct LifetimesConfig {
    /// Contents.
    pub(super) contents: Option<Lifetime>,
    /// Recipients.
    pub(super) recipients: Option<Lifetime>,
    /// Outcomes.
    pub(super) outcomes: Option<Lifetime>,
}

// === impl Lifetime ===

impl Lifetime {
    pub(super) const fn days(days: u64) -> Self {
        Self(Some(Duration::from_hours(days * 24)))
    }
}

impl<'de> Deserialize<'de> for Lifetime {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text == "forever" {
            return Ok(Self(None));
        }
        let days = text.strip_suffix('d').and_then(|days| days.trim().parse::<u32>().ok());
        match days {
            Some(days) => Ok(Self::days(days.into())),
            None => units::span(&text).map(|span| Self(Some(span))).map_err(|_| {
                let message =
                    format!("{text:?} is neither a span of time such as 12h or 30d nor `forever`");
                de::Error::custom(message)
            }),
        }
    }
}

// === impl LifetimesConfig ===

impl LifetimesConfig {
    /// These lifetimes, and of `others` where nothing is said.
    pub(super) fn over(self, others: Lifetimes) -> Lifetimes {
        Lifetimes {
            content: self.contents.map_or(others.content, |it| it.0),
            recipient: self.recipients.map_or(others.recipient, |it| it.0),
            outcome: self.outcomes.map_or(others.outcome, |it| it.0),
        }
    }
}
