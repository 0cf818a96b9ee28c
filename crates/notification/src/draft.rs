//! Drafts: notifications that are checked and complete, and not yet durable.

use std::sync::Arc;

use bytes::Bytes;
use bytestring::ByteString;

use crate::id::{BroadcastId, NotificationId};
use crate::labels::Labels;
use crate::terms::{Guarantee, Name, Priority};
use crate::time::Timestamp;
use crate::trace::TraceContext;

/// Notifications that wait their turn together and share a window: tenant x destination x credential x priority. The channel's name stands for
/// its credential. Lanes that differ in their tenant alone share the limit of their destination, in turn.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lane {
    /// The configured channel.
    pub channel: Name,
    /// Where the channel sends to, in its own words: a provider's host, an endpoint's origin.
    pub destination: Arc<str>,
    /// Priority: lanes of a higher one get more turns.
    pub priority: Priority,
    /// Whose notifications these are.
    pub tenant: Name,
}

/// Beginning of the idempotency keys of feeds.
const FEED_KEYS: &str = "\u{1}feed ";

/// The fields that notifications must have in common to be stored and sent together.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Envelope {
    /// The lane in which they wait.
    pub lane: Lane,
    /// The effect that a crash may have.
    pub guarantee: Guarantee,
    /// Not to be sent before this instant.
    pub due_at: Timestamp,
    /// Not to be sent at or after this instant.
    pub expires_at: Option<Timestamp>,
    /// The broadcast they belong to.
    pub broadcast: Option<BroadcastId>,
}

/// A content as it is stored and sent, in the channel's own format. Cloning shares the bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Content {
    /// The payload, byte for byte as the caller gave it (JSON).
    pub payload: Bytes,
    /// The channel's options (a JSON object), empty when there are none.
    pub options: Bytes,
    /// The notification that this one is a fallback of, and its own fallbacks; `None` for most.
    pub fallback: Option<Arc<Fallback>>,
}

/// Where a content lies in memory: two that share their bytes have one address.
pub type ContentAddress = [usize; 4];

/// The place of a notification in a chain of fallbacks.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Fallback {
    /// The refused notification that this one stands in for.
    pub of: Option<NotificationId>,
    /// The fallbacks of this one. Once it is definitely refused, the first is accepted, with the rest as its own fallbacks.
    pub next: Vec<Alternative>,
}

/// One fallback: a content on another channel, for the same person.
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
    /// The bound that has passed, if it is too late for a first use of the key: only what was accepted before is answered.
    pub passed: Option<PassedBound>,
}

/// A bound in time that a notification has, and that has passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PassedBound {
    /// Its `send_at`, which was this.
    SendAt(Timestamp),
    /// Its `expires_at`.
    ExpiresAt,
}

/// A notification that was checked and is not stored yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    /// The fields that it shares with the rest of its batch.
    pub envelope: Envelope,
    /// Device token, endpoint, address: what the channel sends to.
    pub recipient: ByteString,
    /// The content.
    pub content: Content,
    /// The caller's key, if it gave one.
    pub idempotency: Option<Idempotency>,
    /// Its labels. A store gives a fallback those of the notification that it stands in for.
    pub labels: Labels,
    /// The request that it comes from, if that is traced.
    pub trace: Option<TraceContext>,
}

// === impl Draft ===

impl Draft {
    /// This draft, which is number `number`, from 0, of what its request hands in: of many, each
    /// [`TRACED_EVERY`](crate::limits::TRACED_EVERY)th is traced.
    #[must_use]
    pub fn traced_as(mut self, number: u64) -> Self {
        self.trace = self.trace.filter(|_| number.is_multiple_of(crate::limits::TRACED_EVERY));
        self
    }

    /// The fallback of the notification `id`, which was definitely refused at `at`: a notification of its own, with the
    /// same guarantee, priority, end and trace, due at once. `None` when nothing does.
    pub fn in_place_of(
        id: NotificationId,
        trace: Option<TraceContext>,
        envelope: &Envelope,
        content: &Content,
        at: Timestamp,
    ) -> Option<Self> {
        let (first, rest) = content.fallback.as_ref()?.next.split_first()?;
        let lane = Lane {
            channel: first.channel.clone(),
            destination: Arc::clone(&first.destination),
            ..envelope.lane.clone()
        };
        let fallback = Fallback { of: Some(id), next: rest.to_vec() };
        Some(Self {
            envelope: Envelope {
                lane,
                // Fallbacks of the same second share an envelope, and with it a batch.
                due_at: at.whole_second(),
                // A broadcast is what was accepted by its sealing, and this is accepted later.
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
            labels: Labels::default(),
            trace,
        })
    }
}

// === impl Idempotency ===

impl Idempotency {
    /// Of what stands in for `id`: there is one at most. Callers' keys have no control characters, so none of them is this.
    pub fn in_place_of(id: NotificationId) -> Self {
        Self::of_engine(format!("\u{1}in place of {id}").into())
    }

    /// Of the notification by which a feed hands on what `range` names. No caller's key has a control character, so the store
    /// can tell a feed's own notifications from all others by the key.
    pub fn of_feed(range: &str) -> Self {
        Self::of_engine(format!("{FEED_KEYS}{range}").into())
    }

    /// Of what the engine itself accepts under `key`: one fingerprint for all, since the key alone says what it is.
    pub const fn of_engine(key: ByteString) -> Self {
        Self { key, fingerprint: [0; 32], passed: None }
    }

    /// True for a feed's own notification.
    pub fn is_of_feed(&self) -> bool {
        self.key.starts_with(FEED_KEYS)
    }
}

// === impl Content ===

impl Content {
    /// Bytes of payload and options.
    pub fn bytes(&self) -> usize {
        self.payload.len() + self.options.len()
    }

    /// The bytes of this content and of its fallbacks: the size that it is stored with.
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

    /// Bytes of everything in it but its content, which may be shared.
    pub fn address_bytes(&self) -> usize {
        self.channel.as_str().len() + self.destination.len() + self.recipient.len()
    }
}

/// The address of the content with `payload` and `options`.
pub fn content_address(payload: &Bytes, options: &Bytes) -> ContentAddress {
    // The address of an empty slice means nothing: two of them are the same content wherever they point to.
    let start = |bytes: &Bytes| if bytes.is_empty() { 0 } else { bytes.as_ptr().addr() };
    [start(payload), payload.len(), start(options), options.len()]
}
