//! A notification as the engine's API tells of it.

use std::fmt::Write as _;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::output;

/// The answer of `GET /v1/notifications/{id}`, and an item of the list.
#[derive(Debug, Deserialize)]
pub(crate) struct GotNotification {
    pub(crate) id: String,
    channel: String,
    to: Option<String>,
    pub(crate) state: String,
    guarantee: String,
    priority: String,
    accepted_at: String,
    due_at: String,
    expires_at: Option<String>,
    broadcast: Option<String>,
    next_attempt_at: Option<String>,
    fallback_of: Option<String>,
    fallback_id: Option<String>,
    pub(crate) attempts: Vec<GotAttempt>,
    external_id: Option<String>,
    #[serde(default)]
    tags: Vec<String>,
    metadata: Option<Box<RawValue>>,
    content: Option<Box<RawValue>>,
    options: Option<Box<RawValue>>,
}

/// An attempt, or the end, of a notification.
#[derive(Debug, Deserialize)]
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
        output::plain(&format!("{id} {state}: {channel} to {to}, accepted {accepted_at}"))
    }

    /// A line for each attempt, with what was answered.
    pub(crate) fn attempt_lines(&self) -> impl Iterator<Item = String> {
        self.attempts.iter().map(|GotAttempt { at, attempt, state, status, detail }| {
            output::plain(&format!("{at} attempt {attempt} {state} {status} {detail}"))
        })
    }

    /// Everything, for people: one line for each thing that there is to say.
    pub(crate) fn text(&self) -> String {
        let mut text = self.head();
        let Self { guarantee, priority, due_at, .. } = self;
        let expires = self.expires_at.iter().map(|instant| format!(", expires {instant}"));
        let broadcast = self.broadcast.iter().map(|id| format!(", of {id}"));
        let more: String = expires.chain(broadcast).collect();
        let _infallible = write!(text, "\n{priority}, {guarantee}, due {due_at}{more}");
        let external_id = self.external_id.iter().map(|id| format!("external id {id}"));
        let tags = self.tags.iter().map(|tag| format!("tag {tag}"));
        let json = |name: &str, json: Option<&RawValue>| json.map(|it| format!("{name} {it}"));
        let labels = external_id.chain(tags).chain(json("metadata", self.metadata.as_deref()));
        let labels: Vec<String> = labels.collect();
        let lines = (!labels.is_empty()).then(|| labels.join(", ")).into_iter();
        let lines = lines.chain(json("content", self.content.as_deref()));
        let lines = lines.chain(json("options", self.options.as_deref()));
        let stands_for = self.fallback_of.iter();
        let lines = lines.chain(stands_for.map(|id| format!("stands in for {id}, which failed")));
        let lines = lines.chain(self.attempt_lines());
        let lines = lines.chain(self.fallback_id.iter().map(|id| format!("{id} stands in for it")));
        let next = self.next_attempt_at.iter().map(|instant| format!("next attempt {instant}"));
        for line in lines.chain(next) {
            text.extend(["\n", &output::plain(&line)]);
        }
        text
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
            got.text(),
            "n1 pending: ios to a[2Jb, accepted one\n\
             bulk, at_most_once, due two, expires three, of bc_7\n\
             external id order 7, tag x, tag y, metadata {\"a\":1}\n\
             content {\"b\":2}\n\
             options {\"c\":3}\n\
             stands in for n0, which failed\n\
             five attempt 1 pending 503 busy\n\
             n2 stands in for it\n\
             next attempt four"
        );
    }
}
