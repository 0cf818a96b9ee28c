//! Delivery events: every end of a notification, and every attempt if asked for, as an application follows them.

use std::collections::BTreeSet;

use notification::{BroadcastId, ByteString, Labels, Name, NotificationId, State, Timestamp};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use crate::EventPosition;

/// An attempt, or the end, of a notification, as the log keeps it. Its JSON is a part of the API.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Attempted {
    /// Time of its settlement.
    pub at: Timestamp,
    /// The attempt's number; 0 when it ended without one.
    pub attempt: u16,
    /// A terminal state, or [`State::Pending`] when another attempt followed.
    pub state: State,
    /// The protocol's status code, 0 when there was none.
    pub status: u16,
    /// The provider's reason.
    pub detail: String,
}

/// The delivery events that a reader asks for: those of one tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryFilter {
    /// Tenant of the notifications.
    pub tenant: Name,
    /// Channels, of which one must match; an empty set matches any channel.
    pub channels: BTreeSet<Name>,
    /// Tags, of which a notification must have one; an empty set matches any notification.
    pub tags: BTreeSet<ByteString>,
    /// Terminal states, of which one must match; an empty set matches any terminal state.
    pub states: BTreeSet<State>,
    /// True if attempts that another one follows are events as well. Their state is [`State::Pending`].
    pub attempts: bool,
}

/// An end, or an attempt, of a notification. Its JSON is a part of the API, and of a feed's notifications.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DeliveryEvent {
    /// Its place among all events.
    pub position: EventPosition,
    /// Notification of the event.
    pub id: NotificationId,
    /// Channel of the notification.
    pub channel: Name,
    /// Device token, endpoint, address; `None` when the store keeps it no longer.
    #[serde(rename = "to", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub recipient: Option<ByteString>,
    /// The attempt, or the end.
    #[serde(flatten)]
    pub attempted: Attempted,
    /// The broadcast that the notification belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broadcast: Option<BroadcastId>,
    /// Labels of the notification, as far as it has any; none when the store keeps them no longer.
    #[serde(flatten, serialize_with = "write_labels")]
    pub labels: Labels,
}

/// Some of the delivery events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryPage {
    /// Events in the order of the log.
    pub events: Vec<DeliveryEvent>,
    /// Position at which the next page begins. Equal to the requested one at the end; a page without events that has moved on
    /// has passed over what does not match, and more may follow.
    pub next: EventPosition,
    /// Rows of the log that were passed, each of up to a thousand entries.
    pub rows: usize,
}

/// Rows of the log that one page passes at most: those that do not match cost no more than this.
pub const EVENT_ROWS: usize = 4_096;

/// Writes labels as the fields `external_id`, `tags` and `metadata` of the object that has them: those that there are.
pub fn write_labels<S: Serializer>(labels: &Labels, serializer: S) -> Result<S::Ok, S::Error> {
    let mut fields = serializer.serialize_map(None)?;
    if !labels.external_id.is_empty() {
        fields.serialize_entry("external_id", &*labels.external_id)?;
    }
    if !labels.tags().is_empty() {
        fields.serialize_entry("tags", labels.tags())?;
    }
    if let Ok(metadata) = serde_json::from_slice::<&RawValue>(labels.metadata()) {
        fields.serialize_entry("metadata", metadata)?;
    }
    fields.end()
}

// === impl DeliveryFilter ===

impl DeliveryFilter {
    /// Every end of the notifications of `tenant`.
    pub fn ends_of(tenant: Name) -> Self {
        let (channels, tags, states) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        Self { tenant, channels, tags, states, attempts: false }
    }

    /// True if events of `channel` are asked for.
    pub(crate) fn has_channel(&self, channel: &Name) -> bool {
        self.channels.is_empty() || self.channels.contains(channel)
    }

    /// True if events of a notification with these `labels` are asked for.
    pub(crate) fn has_tags(&self, labels: &Labels) -> bool {
        self.tags.is_empty() || labels.tags().iter().any(|tag| self.tags.contains(tag))
    }

    /// True if entries of the log with `state` are asked for.
    pub(crate) fn has_state(&self, state: State) -> bool {
        if state.is_terminal() {
            self.states.is_empty() || self.states.contains(&state)
        } else {
            self.attempts
        }
    }
}
