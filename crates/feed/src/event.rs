//! A change of the suppression list, as applications read it.

use serde::Serialize;
use store::{Change, EventPosition, SuppressionEvent};

/// A change, as applications read it.
#[derive(Debug, Serialize)]
pub struct EventLine {
    position: String,
    at: String,
    channel: String,
    to: String,
    change: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<String>,
}

/// The content of one notification of a feed.
#[derive(Debug, Serialize)]
pub(super) struct FeedContent {
    r#type: &'static str,
    /// The `until` of the one before.
    after: String,
    until: String,
    events: Vec<EventLine>,
}

// === impl FeedContent ===

impl FeedContent {
    /// All changes after one position and until another.
    pub(super) fn new(
        after: EventPosition,
        until: EventPosition,
        events: Vec<SuppressionEvent>,
    ) -> Self {
        let events = events.into_iter().map(EventLine::from).collect();
        let (after, until) = (after.to_string(), until.to_string());
        Self { r#type: "suppressions", after, until, events }
    }
}

// === impl EventLine ===

impl EventLine {
    /// The change as one line of text, with the provider's reason unchanged.
    pub fn to_text(&self) -> String {
        let Self { position, at, channel, to, change, reason, status, since } = self;
        let text = format!("{position} {at} {change} {channel} {to}");
        match (reason, status, since) {
            (Some(reason), Some(status), Some(since)) => {
                format!("{text} since {since}: {status} {reason}")
            }
            // A lift has none of the three.
            _ => text,
        }
    }
}

impl From<SuppressionEvent> for EventLine {
    fn from(event: SuppressionEvent) -> Self {
        let SuppressionEvent { position, at, channel, recipient, change } = event;
        let (position, at) = (position.to_string(), at.to_string());
        let (channel, to) = (channel.to_string(), recipient.to_string());
        match change {
            Change::Suppressed { reason, status, since } => Self {
                position,
                at,
                channel,
                to,
                change: "suppressed",
                reason: Some(reason),
                status: Some(status),
                since: Some(since.to_string()),
            },
            Change::Lifted => Self {
                position,
                at,
                channel,
                to,
                change: "lifted",
                reason: None,
                status: None,
                since: None,
            },
        }
    }
}

/// The most bytes that a change takes in a content: in a recipient a character takes two at most, for none has control
/// characters; in the provider's words up to six.
pub(super) fn json_bytes(event: &SuppressionEvent) -> usize {
    let words = match &event.change {
        Change::Suppressed { reason, .. } => reason.len(),
        Change::Lifted => 0,
    };
    // The constant covers the names of the fields, the position, the channel and two instants.
    2 * event.recipient.len() + 6 * words + 512
}
