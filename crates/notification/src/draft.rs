//! What is handed to a store: checked, complete, not yet durable.

use std::sync::Arc;

use bytes::Bytes;
use bytestring::ByteString;

use crate::id::BroadcastId;
use crate::terms::{Guarantee, Name, Priority};
use crate::time::Timestamp;

/// What shares limits: destination x credential x priority. The channel's name stands for its credential.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lane {
    /// The configured channel.
    pub channel: Name,
    /// Where the channel sends to, in its own words: a provider's host, an endpoint's origin.
    pub destination: Arc<str>,
    /// Who goes first.
    pub priority: Priority,
}

/// What notifications have in common when they are stored and sent together.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Envelope {
    /// Whose notifications these are.
    pub tenant: Name,
    /// What they share limits with.
    pub lane: Lane,
    /// What a crash may cost.
    pub guarantee: Guarantee,
    /// Not to be sent before this instant.
    pub due_at: Timestamp,
    /// Not to be sent at or after this instant.
    pub expires_at: Option<Timestamp>,
    /// The broadcast they belong to.
    pub broadcast: Option<BroadcastId>,
}

/// What is sent, in the channel's own format. Cloning shares the bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Content {
    /// The payload, byte for byte as the caller gave it (JSON).
    pub payload: Bytes,
    /// The channel's options (a JSON object), empty when there are none.
    pub options: Bytes,
}

/// A caller's promise that the same key means the same notification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Idempotency {
    /// Unique within the tenant, 1 to [`crate::limits::KEY_BYTES`] bytes.
    pub key: ByteString,
    /// SHA-256 of what was asked for; the same key with another fingerprint is refused.
    pub fingerprint: [u8; 32],
}

/// A notification that was checked and is not stored yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    /// What it shares with others.
    pub envelope: Envelope,
    /// Device token, endpoint, address: what the channel sends to.
    pub recipient: ByteString,
    /// What is sent.
    pub content: Content,
    /// The caller's key, if it gave one.
    pub idempotency: Option<Idempotency>,
}

// === impl Content ===

impl Content {
    /// Bytes of payload and options.
    pub fn bytes(&self) -> usize {
        self.payload.len() + self.options.len()
    }
}
