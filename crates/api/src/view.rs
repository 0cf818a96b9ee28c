//! The bodies of answers: edge types, made from the vocabulary.

use std::fmt::Display;

use notification::Account;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use store::{Attempted, History, LogEntry, Suppression};

/// Where notifications stand: an [`Account`] in the words of JSON.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[expect(missing_docs, reason = "each field means what the account's field of that name means")]
pub struct Totals {
    pub accepted: u64,
    pub delivered: u64,
    pub refused: u64,
    pub expired: u64,
    pub cancelled: u64,
    pub suppressed: u64,
    pub in_doubt: u64,
    pub dead: u64,
    pub pending: u64,
}

/// One notification.
#[derive(Debug, Serialize)]
pub(crate) struct Notification {
    id: String,
    channel: String,
    destination: String,
    to: String,
    state: &'static str,
    guarantee: &'static str,
    priority: &'static str,
    accepted_at: String,
    due_at: String,
    expires_at: Option<String>,
    broadcast: Option<String>,
    next_attempt_at: Option<String>,
    fallback_of: Option<String>,
    fallback_id: Option<String>,
    attempts: Vec<AttemptView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    options: Option<Box<RawValue>>,
}

/// One line of a notification's log.
#[derive(Debug, Serialize)]
pub(crate) struct AttemptView {
    at: String,
    attempt: u16,
    state: &'static str,
    status: u16,
    detail: String,
}

/// One line of the log.
#[derive(Debug, Serialize)]
pub(crate) struct LogLineView {
    id: String,
    #[serde(flatten)]
    entry: AttemptView,
}

/// A recipient that is not tried.
#[derive(Debug, Serialize)]
pub(crate) struct SuppressionView {
    channel: String,
    to: String,
    reason: String,
    status: u16,
    since: String,
}

/// A value as users read it.
pub(crate) fn show(value: impl Display) -> String {
    value.to_string()
}

// === impl Totals ===

impl Totals {
    /// Where the accepted ones stand: names and numbers, in order.
    pub fn standing(&self) -> [(&'static str, u64); 8] {
        [
            ("delivered", self.delivered),
            ("refused", self.refused),
            ("expired", self.expired),
            ("cancelled", self.cancelled),
            ("suppressed", self.suppressed),
            ("in_doubt", self.in_doubt),
            ("dead", self.dead),
            ("pending", self.pending),
        ]
    }
}

impl From<Account> for Totals {
    fn from(account: Account) -> Self {
        let Account {
            accepted,
            delivered,
            refused,
            expired,
            cancelled,
            suppressed,
            in_doubt,
            dead,
            pending,
        } = account;
        Self {
            accepted,
            delivered,
            refused,
            expired,
            cancelled,
            suppressed,
            in_doubt,
            dead,
            pending,
        }
    }
}

// === impl Notification ===

impl Notification {
    /// Without its content, as lists show it.
    pub(crate) fn brief(history: History) -> Self {
        let envelope = history.envelope;
        Self {
            id: show(history.id),
            channel: show(envelope.lane.channel),
            destination: show(envelope.lane.destination),
            to: show(history.recipient),
            state: history.state.as_str(),
            guarantee: envelope.guarantee.as_str(),
            priority: envelope.lane.priority.as_str(),
            accepted_at: show(history.accepted_at),
            due_at: show(envelope.due_at),
            expires_at: envelope.expires_at.map(show),
            broadcast: envelope.broadcast.map(show),
            next_attempt_at: history.next_attempt_at.map(show),
            fallback_of: history.content.fallback.as_ref().and_then(|it| it.of).map(show),
            fallback_id: history.fallback_id.map(show),
            attempts: history.attempts.into_iter().map(AttemptView::from).collect(),
            content: None,
            options: None,
        }
    }

    /// With its content.
    pub(crate) fn full(history: History) -> Self {
        let content = raw(&history.content.payload);
        let options = raw(&history.content.options);
        Self { content, options, ..Self::brief(history) }
    }
}

/// JSON as it was given; nothing when there is none.
pub(crate) fn raw(json: &[u8]) -> Option<Box<RawValue>> {
    serde_json::from_slice(json).ok()
}

// === impl AttemptView ===

impl From<Attempted> for AttemptView {
    fn from(attempted: Attempted) -> Self {
        let Attempted { at, attempt, state, status, detail } = attempted;
        Self { at: show(at), attempt, state: state.as_str(), status, detail }
    }
}

// === impl LogLineView ===

impl From<LogEntry> for LogLineView {
    fn from(entry: LogEntry) -> Self {
        Self { id: show(entry.id), entry: entry.attempted.into() }
    }
}

// === impl SuppressionView ===

impl From<Suppression> for SuppressionView {
    fn from(suppression: Suppression) -> Self {
        let Suppression { channel, recipient, reason, status, since } = suppression;
        let (channel, to, since) = (show(channel), show(recipient), show(since));
        Self { channel, to, reason, status, since }
    }
}
