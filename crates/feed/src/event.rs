//! Changes of the suppression list, as the content of a notification.

use serde::Serialize;
use store::{Change, EventPosition, SuppressionEvent};

/// The content of one notification of a feed.
#[derive(Debug, Serialize)]
pub(super) struct FeedContent {
    pub(super) r#type: &'static str,
    /// The `until` of the one before.
    pub(super) after: EventPosition,
    pub(super) until: EventPosition,
    /// All changes after the one position and until the other.
    pub(super) events: Vec<SuppressionEvent>,
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
