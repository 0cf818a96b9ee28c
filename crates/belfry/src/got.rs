//! A notification as a store has it, or as an engine tells of it.

use notification::ByteString;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use store::{Attempted, History};

use crate::{output, paint};

/// A notification with all of its attempts. Its JSON is that of `belfry list` and `belfry log`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct GotNotification {
    pub(crate) id: String,
    /// Not told by an engine: it is the one that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<String>,
    channel: String,
    destination: String,
    priority: String,
    guarantee: String,
    broadcast: Option<String>,
    to: Option<String>,
    accepted_at: String,
    pub(crate) state: String,
    next_attempt_at: Option<String>,
    fallback_of: Option<String>,
    fallback_id: Option<String>,
    attempts: Vec<GotAttempt>,
    #[serde(skip_serializing_if = "Option::is_none")]
    external_id: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tags: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<Box<RawValue>>,
    #[serde(skip_serializing)]
    due_at: String,
    #[serde(skip_serializing)]
    expires_at: Option<String>,
    #[serde(skip_serializing)]
    content: Option<Box<RawValue>>,
    #[serde(skip_serializing)]
    options: Option<Box<RawValue>>,
}

/// An attempt, or the end, of a notification.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct GotAttempt {
    at: String,
    attempt: u16,
    state: String,
    status: u16,
    detail: String,
}

// === impl GotNotification ===

impl GotNotification {
    /// Whether another attempt may follow.
    pub(crate) fn is_pending(&self) -> bool {
        matches!(self.state.as_str(), "pending" | "claimed" | "begun")
    }

    /// The line that says where it stands.
    pub(crate) fn head(&self) -> String {
        let Self { id, channel, accepted_at, state, .. } = self;
        let to = self.to.as_deref().unwrap_or("a recipient that was removed");
        let rest = output::plain(&format!(": {channel} to {to}, accepted {accepted_at}"));
        format!("{} {}{rest}", output::plain(id), paint::state(state, &output::plain(state)))
    }

    /// A line for each attempt, with what was answered.
    pub(crate) fn attempt_lines(&self) -> impl Iterator<Item = String> {
        self.attempts.iter().map(GotAttempt::line)
    }

    /// Where it stands in one line, with its last attempt: why it was not delivered, if it was not.
    pub(crate) fn line(&self) -> String {
        let last = self.attempts.last();
        let last = last.map(|last| format!("; {}", last.line())).unwrap_or_default();
        format!("{}{last}", self.head())
    }

    /// Its story, line by line.
    pub(crate) fn history(&self) -> Vec<String> {
        let stands_for = self.fallback_of.iter();
        let stands_for = stands_for.map(|id| format!("stands in for {id}, which was refused"));
        let fallback = self.fallback_id.iter().map(|id| format!("{id} stands in for it"));
        let next = self.next_attempt_at.iter().map(|instant| format!("next attempt {instant}"));
        let labels = self.labels().into_iter();
        let lines = [self.head()].into_iter().chain(labels).chain(stands_for);
        lines.chain(self.attempt_lines()).chain(fallback).chain(next).collect()
    }

    /// Everything that an engine tells of it, line by line.
    pub(crate) fn whole(&self) -> Vec<String> {
        let Self { guarantee, priority, due_at, .. } = self;
        let expires = self.expires_at.iter().map(|instant| format!(", expires {instant}"));
        let broadcast = self.broadcast.iter().map(|id| format!(", of {id}"));
        let more: String = expires.chain(broadcast).collect();
        let mut lines = self.history();
        lines.insert(1, format!("{priority}, {guarantee}, due {due_at}{more}"));
        let json = |name: &str, json: Option<&RawValue>| {
            json.map(|json| output::plain(&format!("{name} {json}")))
        };
        lines.extend(json("content", self.content.as_deref()));
        lines.extend(json("options", self.options.as_deref()));
        lines
    }

    fn labels(&self) -> Option<String> {
        let external_id = self.external_id.iter().map(|id| format!("external id {id}"));
        let tags = self.tags.iter().map(|tag| format!("tag {tag}"));
        let metadata = self.metadata.iter().map(|metadata| format!("metadata {metadata}"));
        let all: Vec<String> = external_id.chain(tags).chain(metadata).collect();
        (!all.is_empty()).then(|| output::plain(&all.join(", ")))
    }
}

impl From<History> for GotNotification {
    fn from(history: History) -> Self {
        let fallback_of = history.fallback_of();
        let History { envelope, labels, .. } = history;
        let lane = envelope.lane;
        let show = |id: &ByteString| id.to_string();
        Self {
            id: history.id.to_string(),
            tenant: Some(lane.tenant.to_string()),
            channel: lane.channel.to_string(),
            destination: lane.destination.to_string(),
            priority: lane.priority.to_string(),
            guarantee: envelope.guarantee.to_string(),
            broadcast: envelope.broadcast.map(|broadcast| broadcast.to_string()),
            to: history.recipient.as_ref().map(show),
            accepted_at: history.accepted_at.to_string(),
            state: history.state.to_string(),
            next_attempt_at: history.next_attempt_at.map(|instant| instant.to_string()),
            fallback_of: fallback_of.map(|id| id.to_string()),
            fallback_id: history.fallback_id.map(|id| id.to_string()),
            attempts: history.attempts.into_iter().map(GotAttempt::from).collect(),
            external_id: Some(show(&labels.external_id)).filter(|id| !id.is_empty()),
            tags: labels.tags().iter().map(show).collect(),
            metadata: serde_json::from_slice(labels.metadata()).ok(),
            due_at: envelope.due_at.to_string(),
            expires_at: envelope.expires_at.map(|instant| instant.to_string()),
            content: None,
            options: None,
        }
    }
}

// === impl GotAttempt ===

impl GotAttempt {
    /// For people.
    pub(crate) fn line(&self) -> String {
        let Self { at, attempt, state, status, detail } = self;
        let rest = output::plain(&format!(" {status} {detail}"));
        let state = paint::state(state, &output::plain(state));
        format!("{} attempt {attempt} {state}{rest}", output::plain(at))
    }
}

impl From<Attempted> for GotAttempt {
    fn from(attempted: Attempted) -> Self {
        let Attempted { at, attempt, state, status, detail } = attempted;
        Self { at: at.to_string(), attempt, state: state.to_string(), status, detail }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_the_engine_says_is_told_and_nothing_that_moves_the_cursor() {
        let got: GotNotification = serde_json::from_value(serde_json::json!({
            "id": "n1", "channel": "ios", "destination": "d", "to": "a\u{1b}[2Jb", "state": "pending",
            "guarantee": "at_most_once", "priority": "bulk", "accepted_at": "one", "due_at": "two",
            "expires_at": "three", "broadcast": "bc_7", "next_attempt_at": "four", "fallback_of": "n0",
            "fallback_id": "n2", "external_id": "order 7", "tags": ["x", "y"], "metadata": {"a": 1},
            "content": {"b": 2}, "options": {"c": 3},
            "attempts": [{"at": "five", "attempt": 1, "state": "pending", "status": 503, "detail": "busy"}],
        }))
        .unwrap();
        assert!(got.is_pending());
        assert_eq!(
            got.whole().join("\n"),
            "n1 pending: ios to a[2Jb, accepted one\n\
             bulk, at_most_once, due two, expires three, of bc_7\n\
             external id order 7, tag x, tag y, metadata {\"a\":1}\n\
             stands in for n0, which was refused\n\
             five attempt 1 pending 503 busy\n\
             n2 stands in for it\n\
             next attempt four\n\
             content {\"b\":2}\n\
             options {\"c\":3}"
        );
    }
}
