//! The way in.

use std::sync::Arc;

use async_trait::async_trait;
use notification::{
    BroadcastId, ByteString, CommonLabels, Content, Draft, Guarantee, Idempotency, ItemTraces,
    Labels, Name, NotificationId, Priority, Timestamp, TraceContext,
};

use crate::StoreError;

/// The answer for one draft.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// The notification is durable under this identifier.
    Accepted(NotificationId),
    /// The key was used before for the same content and recipient: this is that notification.
    Replayed(NotificationId),
}

/// The notification or broadcast that an idempotency key was used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyUse {
    /// A notification.
    Notification(NotificationId),
    /// A broadcast.
    Broadcast(BroadcastId),
}

/// A broadcast before its recipients are known: one content for all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BroadcastDraft {
    /// Tenant that owns the broadcast.
    pub tenant: Name,
    /// The channel.
    pub channel: Name,
    /// Priority, which decides on the order of claims.
    pub priority: Priority,
    /// Its guarantee: how a delivery ends that a crash interrupts.
    pub guarantee: Guarantee,
    /// Due time: no attempt begins before it.
    pub due_at: Timestamp,
    /// Expiry: no attempt begins at or after it.
    pub expires_at: Option<Timestamp>,
    /// Sent to each recipient that has none of its own; stored once.
    pub content: Content,
    /// The caller's key. The recipients are not part of its fingerprint.
    pub idempotency: Option<Idempotency>,
    /// Its labels. Tags and metadata are those of each of its notifications as well.
    pub labels: Labels,
}

/// Recipients of a broadcast that share a destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecipientGroup {
    /// Destination to which the channel sends.
    pub destination: Arc<str>,
    /// Device tokens, endpoints, addresses; at most [`notification::limits::REQUEST_ITEMS`] a call.
    pub recipients: Vec<ByteString>,
    /// The content for each of them, in the order of the recipients; empty when all are sent the broadcast's content.
    pub contents: Vec<Content>,
    /// The external id of each of them, empty for one without; empty when none of them has any.
    pub external_ids: Vec<ByteString>,
    /// The traces that the attempts at some of them are to be part of.
    pub traces: ItemTraces,
}

/// A notification on its way into a batch.
#[derive(Debug)]
pub(crate) struct BatchItem {
    pub(crate) recipient: ByteString,
    pub(crate) content: Content,
    pub(crate) labels: Labels,
    pub(crate) trace: Option<TraceContext>,
}

/// The answer to opening a broadcast.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BroadcastOpened {
    /// The broadcast awaits its recipients.
    Opened(BroadcastId),
    /// Its key was used before for the same content, and that broadcast was sealed.
    Replayed(BroadcastId),
}

// === impl RecipientGroup ===

impl RecipientGroup {
    /// A group without recipients.
    pub const fn new(destination: Arc<str>) -> Self {
        Self {
            destination,
            recipients: Vec::new(),
            contents: Vec::new(),
            external_ids: Vec::new(),
            traces: ItemTraces::NONE,
        }
    }

    /// Adds a recipient, with a content if the recipients have contents of their own, with its external id or an empty one, and with
    /// the trace that attempts at it are to be part of.
    pub fn push(
        &mut self,
        recipient: ByteString,
        content: Option<Content>,
        external_id: ByteString,
        trace: Option<TraceContext>,
    ) {
        if let Ok(index) = u16::try_from(self.recipients.len()) {
            self.traces.push(index, trace);
        }
        if !external_id.is_empty() || !self.external_ids.is_empty() {
            self.external_ids.resize(self.recipients.len(), ByteString::new());
            self.external_ids.push(external_id);
        }
        self.recipients.push(recipient);
        self.contents.extend(content);
    }

    /// The recipients, each with its own content, or the default one where it has none, and with its labels, to which all add
    /// `common`.
    pub(crate) fn items(
        &self,
        common: Option<Arc<CommonLabels>>,
    ) -> impl Iterator<Item = BatchItem> {
        debug_assert!(
            self.contents.is_empty() || self.contents.len() == self.recipients.len(),
            "all have a content of their own, or none has"
        );
        self.recipients.iter().enumerate().map(move |(index, recipient)| {
            let content = self.contents.get(index).cloned().unwrap_or_default();
            let external_id = self.external_ids.get(index).cloned().unwrap_or_default();
            BatchItem {
                recipient: recipient.clone(),
                content,
                labels: Labels { external_id, common: common.clone() },
                trace: u16::try_from(index).ok().and_then(|index| self.traces.get(index)),
            }
        })
    }

    /// True if the recipients have contents of their own.
    pub(crate) fn has_contents(&self) -> bool {
        !self.contents.is_empty()
    }
}

/// Stores accepted notifications. Durable on return.
#[async_trait]
pub trait Ingest: Send + Sync + std::fmt::Debug {
    /// Stores all drafts, or none: an error means that nothing was stored. Answers in order. An empty list
    /// is no work. Drafts of concurrent calls may share a batch. `now` becomes the time of acceptance.
    ///
    /// # Errors
    /// [`StoreError::KeyReused`] when a key was used with another fingerprint, in the store or earlier in
    /// the same list. The same key twice with the same fingerprint is one notification. [`StoreError::BoundPassed`] when a draft
    /// has a bound that has passed ([`Idempotency::passed`]) and its key was not used, in the store or earlier in the same list.
    async fn ingest(
        &self,
        drafts: Vec<Draft>,
        now: Timestamp,
    ) -> Result<Vec<Admission>, StoreError>;

    /// Opens a broadcast. None of it is accepted, counted or sent before it is sealed. A broadcast that is open when the store
    /// starts is abandoned: its caller never got an answer. A key belongs to a broadcast from sealing on.
    ///
    /// # Errors
    /// [`StoreError::KeyReused`] and [`StoreError::BoundPassed`] (index 0), as of [`Ingest::ingest`].
    async fn open_broadcast(
        &self,
        draft: BroadcastDraft,
        now: Timestamp,
    ) -> Result<BroadcastOpened, StoreError>;

    /// Adds recipients to an open broadcast. They are not deduplicated.
    async fn add_recipients(
        &self,
        broadcast: BroadcastId,
        groups: Vec<RecipientGroup>,
        now: Timestamp,
    ) -> Result<(), StoreError>;

    /// Accepts the whole broadcast at once, and says how many notifications it has.
    ///
    /// # Errors
    /// [`StoreError::KeyReused`] (index 0) when another broadcast was sealed under its key meanwhile.
    async fn seal_broadcast(
        &self,
        broadcast: BroadcastId,
        now: Timestamp,
    ) -> Result<u64, StoreError>;

    /// Removes an open broadcast and its recipients.
    async fn abandon_broadcast(&self, broadcast: BroadcastId) -> Result<(), StoreError>;
}
