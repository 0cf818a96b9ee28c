//! What is handed to a store: checked, complete, not yet durable.

use std::sync::Arc;

use bytes::Bytes;
use bytestring::ByteString;

use crate::id::{BroadcastId, NotificationId};
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
    /// What its notification stands in for, and what stands in for it; most have nothing of the kind.
    pub fallback: Option<Arc<Fallback>>,
}

/// The place of a notification in a chain of fallbacks.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Fallback {
    /// The refused notification that this one stands in for.
    pub of: Option<NotificationId>,
    /// What stands in for this one once it is definitely refused: the first, which takes the others along.
    pub next: Vec<Alternative>,
}

/// Another way to tell somebody the same.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Alternative {
    /// The configured channel.
    pub channel: Name,
    /// Where the channel sends to, in its own words.
    pub destination: Arc<str>,
    /// Device token, endpoint, address.
    pub recipient: ByteString,
    /// The payload.
    pub payload: Bytes,
    /// The channel's options, empty when there are none.
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

// === impl Draft ===

impl Draft {
    /// What stands in for the notification `id`, which was definitely refused at `at`: a notification of its own, with the
    /// same guarantee, priority and end, due at once. `None` when nothing does.
    pub fn in_place_of(
        id: NotificationId,
        envelope: &Envelope,
        content: &Content,
        at: Timestamp,
    ) -> Option<Self> {
        let (first, others) = content.fallback.as_ref()?.next.split_first()?;
        let lane = Lane {
            channel: first.channel.clone(),
            destination: Arc::clone(&first.destination),
            priority: envelope.lane.priority,
        };
        let fallback = Fallback { of: Some(id), next: others.to_vec() };
        Some(Self {
            envelope: Envelope {
                lane,
                due_at: at.whole_second(),
                broadcast: None,
                ..envelope.clone()
            },
            recipient: first.recipient.clone(),
            content: Content {
                payload: first.payload.clone(),
                options: first.options.clone(),
                fallback: Some(Arc::new(fallback)),
            },
            idempotency: Some(Idempotency::in_place_of(id)),
        })
    }
}

// === impl Idempotency ===

impl Idempotency {
    /// Of what stands in for `id`: there is one at most. Callers' keys have no control characters, so none of them is this.
    pub fn in_place_of(id: NotificationId) -> Self {
        Self { key: format!("\u{1}in place of {id}").into(), fingerprint: [0; 32] }
    }
}

// === impl Content ===

impl Content {
    /// Bytes of payload and options.
    pub fn bytes(&self) -> usize {
        self.payload.len() + self.options.len()
    }

    /// The same and those of its fallbacks: what it takes to store it.
    pub fn bytes_stored(&self) -> usize {
        let next = self.fallback.iter().flat_map(|fallback| &fallback.next);
        self.bytes() + next.map(Alternative::bytes).sum::<usize>()
    }
}

// === impl Alternative ===

impl Alternative {
    /// Bytes of everything in it.
    pub fn bytes(&self) -> usize {
        self.address_bytes() + self.payload.len() + self.options.len()
    }

    /// Bytes of everything in it but its content, which others may share.
    pub fn address_bytes(&self) -> usize {
        self.channel.as_str().len() + self.destination.len() + self.recipient.len()
    }
}
