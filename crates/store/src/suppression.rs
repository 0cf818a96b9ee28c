//! Recipients that must not be tried again, and what changed about them: each change is an event.

use std::fmt;
use std::str::FromStr;

use notification::{ByteString, Name, OutcomeGroup, Timestamp};
use serde::{Serialize, Serializer};

/// A recipient that must not be tried again. Its JSON is a part of the API.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Suppression {
    /// Channel of the recipient.
    pub channel: Name,
    /// The recipient.
    #[serde(rename = "to")]
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub recipient: ByteString,
    /// The provider's words, or the operator's.
    pub reason: String,
    /// The protocol's status code, 0 for a suppression by an operator.
    pub status: u16,
    /// Time of the suppression, by the provider's clock if it gave one, else by ours: the latest of all reports.
    pub since: Timestamp,
}

/// A recipient to be taken off the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lift {
    /// Channel of the recipient.
    pub channel: Name,
    /// The recipient.
    pub recipient: ByteString,
    /// Time at which the application saw the recipient register anew. Then only a provider's suppression since that time or
    /// before is lifted: a later one stays, and so does an operator's, for to register is not to consent. `None` lifts any.
    ///
    /// In both cases the instant (without it, that of lifting) is kept, also for a recipient that is not listed: a refusal whose
    /// provider says that the recipient was gone at or before it does not suppress.
    pub registered_at: Option<Timestamp>,
}

/// A change of a recipient's suppression.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "change", rename_all = "lowercase")]
pub enum Change {
    /// The recipient is on the list from now on, or is for another reason. A later `since` alone is no change.
    Suppressed {
        /// The provider's words, or the operator's.
        reason: String,
        /// The protocol's status code, 0 for a suppression by an operator.
        status: u16,
        /// Time of the suppression, by the provider's clock if it gave one, else by ours.
        since: Timestamp,
    },
    /// The recipient is no longer on the list.
    Lifted,
}

/// A change of the list. Its JSON is a part of the API, and of a feed's notifications.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SuppressionEvent {
    /// Its place among all changes.
    pub position: EventPosition,
    /// Time of the change, by our clock.
    pub at: Timestamp,
    /// Channel of the recipient.
    pub channel: Name,
    /// The recipient.
    #[serde(rename = "to")]
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub recipient: ByteString,
    /// The change.
    #[serde(flatten)]
    pub change: Change,
}

/// Some of the changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SuppressionPage {
    /// Changes in order of position; those of one recipient in the order in which they happened.
    pub events: Vec<SuppressionEvent>,
    /// Position at which the next page begins. Equal to the requested one at the end.
    pub next: EventPosition,
}

/// A place among the changes, unique to one of them; ascending. Nothing is ever written before a place that was read. Starts
/// at zero, which is before all; written `0-17`, for users an opaque text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct EventPosition {
    /// The number of the transaction; 0 where transactions follow each other.
    pub transaction: u64,
    /// The number of the event, ascending within a transaction.
    pub event: u64,
}

/// A text that is no position.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a position such as 0-17: give one that was answered before, or 0 for the start"
)]
pub struct PositionError(String);

/// Progress of a feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FeedCursor {
    /// Position up to which the application has accepted all changes.
    pub position: EventPosition,
    /// End of the changes in the notification under way. Fixed before it is submitted, so that a process which continues submits
    /// the same ones.
    pub until: Option<EventPosition>,
    /// Times that this notification ended in vain.
    pub tries: u32,
}

// === impl Suppression ===

impl Suppression {
    /// True if an operator suppressed the recipient by hand, at its request.
    pub fn is_by_operator(&self) -> bool {
        self.status == 0
    }

    /// The detail in the log of a notification that was not sent because of an entry.
    pub(crate) fn log_detail(reason: &str, since: Timestamp) -> String {
        match reason {
            "" => format!("suppressed since {since}"),
            reason => format!("suppressed: {reason}, since {since}"),
        }
    }

    /// The suppression of the member at `index` of a group that was settled at `at`.
    pub(crate) fn of_group(
        group: &OutcomeGroup,
        (channel, recipient): (Name, ByteString),
        index: u16,
        at: Timestamp,
    ) -> (Self, Option<Timestamp>) {
        let gone_since = group.gone_since.get(&index).copied();
        let suppression = Self {
            channel,
            recipient,
            reason: group.detail.to_string(),
            status: group.status,
            since: gone_since.unwrap_or(at),
        };
        (suppression, gone_since)
    }
}

// === impl EventPosition ===

impl fmt::Display for EventPosition {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}-{}", self.transaction, self.event)
    }
}

impl Serialize for EventPosition {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for EventPosition {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "EventPosition".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "pattern": "^[0-9]{1,19}-[0-9]{1,19}$" })
    }
}

impl FromStr for EventPosition {
    type Err = PositionError;

    fn from_str(text: &str) -> Result<Self, PositionError> {
        // The text is as long as a caller made it, and the message quotes it.
        let refuse = || PositionError(text.chars().take(80).collect());
        // A number alone is taken as well: users name the start `0`.
        let (transaction, event) = text.split_once('-').unwrap_or((text, "0"));
        // Digits alone, as many as the largest has: `parse` takes a sign, and zeros before the number without end.
        let is_written = |digits: &&str| {
            digits.len() <= 19 && digits.bytes().all(|digit| digit.is_ascii_digit())
        };
        // Both databases keep signed numbers: a larger one would be negative there, and stand before the start.
        let number = |digits: &str| {
            let number = Some(digits).filter(is_written)?.parse::<i64>().ok()?;
            u64::try_from(number).ok()
        };
        let number = |digits| number(digits).ok_or_else(refuse);
        Ok(Self { transaction: number(transaction)?, event: number(event)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_read_as_it_is_written() {
        let check = |text: &str, expect: Option<(u64, u64)>| {
            let expect = expect.map(|(transaction, event)| EventPosition { transaction, event });
            assert_eq!(text.parse::<EventPosition>().ok(), expect, "{text:?}");
        };
        check("0", Some((0, 0)));
        check("12-345", Some((12, 345)));
        check(&EventPosition { transaction: 7, event: 9 }.to_string(), Some((7, 9)));
        for bad in ["", "-1", "1-", "x", "1-2-3", "9223372036854775808", "+1", "1-+2"] {
            check(bad, None);
        }
        check(&"0".repeat(20), None);
    }
}
