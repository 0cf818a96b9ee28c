//! The bodies of answers: edge types, made from the vocabulary.

use std::fmt::Display;

use notification::Labels;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::RawValue;
use store::{Attempted, History, write_labels};

/// One notification.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct Notification {
    #[schemars(with = "notification::NotificationId")]
    id: String,
    #[schemars(with = "notification::Name")]
    channel: String,
    destination: String,
    to: Option<String>,
    #[schemars(with = "notification::State")]
    state: &'static str,
    #[schemars(with = "notification::Guarantee")]
    guarantee: &'static str,
    #[schemars(with = "notification::Priority")]
    priority: &'static str,
    #[schemars(with = "notification::Timestamp")]
    accepted_at: String,
    #[schemars(with = "notification::Timestamp")]
    due_at: String,
    #[schemars(with = "Option<notification::Timestamp>")]
    expires_at: Option<String>,
    #[schemars(with = "Option<notification::BroadcastId>")]
    broadcast: Option<String>,
    #[schemars(with = "Option<notification::Timestamp>")]
    next_attempt_at: Option<String>,
    #[schemars(with = "Option<notification::NotificationId>")]
    fallback_of: Option<String>,
    #[schemars(with = "Option<notification::NotificationId>")]
    fallback_id: Option<String>,
    attempts: Vec<Attempted>,
    #[serde(flatten, serialize_with = "write_labels")]
    labels: Labels,
    /// The content, byte for byte as it is sent; absent in lists, and when it is kept no longer.
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<Box<RawValue>>,
    /// The channel's options, likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    options: Option<Box<RawValue>>,
}

/// Some of a list.
#[derive(Debug, JsonSchema, Serialize)]
#[schemars(rename = "{T}List")]
pub(crate) struct ListAnswer<T> {
    pub(crate) items: Vec<T>,
    /// Where the next call goes on (`after`); `None` at the end.
    pub(crate) next: Option<String>,
}

/// A value as users read it.
pub(crate) fn show(value: impl Display) -> String {
    value.to_string()
}

// === impl Notification ===

impl Notification {
    /// Without its content, as lists show it.
    pub(crate) fn brief(history: History) -> Self {
        let fallback_of = history.fallback_of();
        let envelope = history.envelope;
        Self {
            id: show(history.id),
            channel: show(envelope.lane.channel),
            destination: show(envelope.lane.destination),
            to: history.recipient.map(show),
            state: history.state.as_str(),
            guarantee: envelope.guarantee.as_str(),
            priority: envelope.lane.priority.as_str(),
            accepted_at: show(history.accepted_at),
            due_at: show(envelope.due_at),
            expires_at: envelope.expires_at.map(show),
            broadcast: envelope.broadcast.map(show),
            next_attempt_at: history.next_attempt_at.map(show),
            fallback_of: fallback_of.map(show),
            fallback_id: history.fallback_id.map(show),
            attempts: history.attempts,
            labels: history.labels,
            content: None,
            options: None,
        }
    }

    /// With its content.
    pub(crate) fn full(history: History) -> Self {
        let stored = history.content.as_ref();
        let content = stored.and_then(|content| raw(&content.payload));
        let options = stored.and_then(|content| raw(&content.options));
        Self { content, options, ..Self::brief(history) }
    }
}

/// JSON as it was given; nothing when there is none.
pub(crate) fn raw(json: &[u8]) -> Option<Box<RawValue>> {
    serde_json::from_slice(json).ok()
}
