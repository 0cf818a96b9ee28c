//! Claimed work: what dispatch publishes, deliver sends, and settle closes.

use std::borrow::Cow;
use std::collections::HashSet;

use bytestring::ByteString;

use crate::draft::{Content, Draft, Envelope, content_address};
use crate::id::{BatchId, ChunkId, NotificationId};
use crate::item_traces::ItemTraces;
use crate::terms::Priority;
use crate::time::Timestamp;
use crate::trace::{SpanId, TraceContext};

/// The fencing number of a chunk: it rises with every claim, and a write with an older one is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Epoch(pub u32);

/// Deliveries that travel as one unit: those of one chunk of the store, or of several that were [joined](crate::join). Cloning
/// shares contents and recipients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// Its number in the store; of a joined chunk, as the next fields that name one, that of its first delivery.
    pub id: ChunkId,
    /// The claim this is; every write names it.
    pub epoch: Epoch,
    /// No attempt for this claim may start at or after this instant.
    pub lease_until: Timestamp,
    /// The number of the worker that claimed the chunk; 0 in an embedded store. A process that was removed and joins again
    /// has another number, and must not act on what it claimed under the former one.
    pub worker: u64,
    /// The batch its notifications are stored in.
    pub batch: BatchId,
    /// The id of the store, part of every [`NotificationId`].
    pub store_id: u16,
    /// When the batch was accepted.
    pub accepted_at: Timestamp,
    /// The fields that all deliveries have in common; but for the times, if it is joined.
    pub envelope: Envelope,
    /// The number of the attempt that these deliveries are about to make; the first is 1.
    pub attempt: u16,
    /// The content of every delivery that has none of its own.
    pub content: Option<Content>,
    /// Never empty; ascending by index.
    pub deliveries: Vec<Delivery>,
    /// Where each delivery of a joined chunk is from, by its index; empty unless it is joined.
    pub origins: Vec<DeliveryOrigin>,
    /// Traces of the requests that deliveries come from, by their indexes.
    pub traces: ItemTraces,
}

/// Where a delivery of a joined chunk is from: its chunk as the store leased it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeliveryOrigin {
    /// The chunk.
    pub chunk: ChunkId,
    /// Its claim.
    pub epoch: Epoch,
    /// Its batch.
    pub batch: BatchId,
    /// The place of the delivery within the batch.
    pub index: u16,
    /// When the batch was accepted.
    pub accepted_at: Timestamp,
    /// When the batch was due first.
    pub due_at: Timestamp,
    /// When it expires.
    pub expires_at: Option<Timestamp>,
}

/// A notification that was claimed and is under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// Its place within the batch; within a joined chunk.
    pub index: u16,
    /// Device token, endpoint, address.
    pub recipient: ByteString,
    /// Its own content; the chunk's when absent. Boxed: most have none, and a hundred thousand may be under way.
    pub content: Option<Box<Content>>,
}

/// A chunk on its way through a broker: who holds it may take the chunk from the store, once. It names no recipient
/// and holds no content, so a broker may lose it, repeat it or disclose it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ticket {
    /// The chunk.
    pub chunk: ChunkId,
    /// The claim this is. Taking the chunk is a claim with the next epoch, so a ticket is good once.
    pub epoch: Epoch,
    /// The priority of the chunk's lane.
    pub priority: Priority,
    /// From this instant on the ticket is void, and the chunk may be claimed anew.
    pub lease_until: Timestamp,
    /// Deliveries of the chunk.
    pub count: u16,
}

// === impl Chunk ===

impl Chunk {
    /// The identifier of the notification at `index`.
    pub fn notification_id(&self, index: u16) -> NotificationId {
        match self.origin(index) {
            Some(from) => {
                NotificationId::new(from.accepted_at, self.store_id, from.batch, from.index)
            }
            None => NotificationId::new(self.accepted_at, self.store_id, self.batch, index),
        }
    }

    /// Where the delivery at `index` is from, if the chunk is joined.
    pub fn origin(&self, index: u16) -> Option<&DeliveryOrigin> {
        self.origins.get(usize::from(index))
    }

    /// The chunk and the claim in the store by which the delivery at `index` is written.
    pub fn claim_of(&self, index: u16) -> (ChunkId, Epoch) {
        self.origin(index).map_or((self.id, self.epoch), |from| (from.chunk, from.epoch))
    }

    /// When the delivery at `index` expires.
    pub fn expires_at(&self, index: u16) -> Option<Timestamp> {
        self.origin(index).map_or(self.envelope.expires_at, |from| from.expires_at)
    }

    /// The envelope of the delivery at `index`.
    pub fn envelope_of(&self, index: u16) -> Cow<'_, Envelope> {
        let Some(&DeliveryOrigin { due_at, expires_at, .. }) = self.origin(index) else {
            return Cow::Borrowed(&self.envelope);
        };
        Cow::Owned(Envelope { due_at, expires_at, ..self.envelope.clone() })
    }

    /// The trace of the request that the delivery at `index` comes from.
    pub fn trace(&self, index: u16) -> Option<TraceContext> {
        self.traces.get(index)
    }

    /// The trace of the delivery at `index` with the span of its attempt under this claim: what the attempt causes comes below that.
    pub fn attempt_trace(&self, index: u16) -> Option<TraceContext> {
        let trace = self.trace(index)?;
        let span = SpanId::of_attempt(self.notification_id(index), self.lease_until);
        Some(TraceContext { span, ..trace })
    }

    /// Since when the delivery at `index` could have been sent: it may be due before it was accepted, since `send_at` may lie a
    /// minute back.
    pub fn due_since(&self, index: u16) -> Timestamp {
        match self.origin(index) {
            Some(from) => from.due_at.max(from.accepted_at),
            None => self.envelope.due_at.max(self.accepted_at),
        }
    }

    /// Bytes of recipients and contents that it holds. What several deliveries share, as those with fallbacks do, counts
    /// once.
    pub fn bytes(&self) -> usize {
        let recipients: usize = self.deliveries.iter().map(|it| it.recipient.len()).sum();
        let own = self.deliveries.iter().filter_map(|delivery| delivery.content.as_deref());
        let contents = || self.content.iter().chain(own.clone());
        // Without fallbacks nothing is shared, and the sum needs no set.
        if contents().all(|content| content.fallback.is_none()) {
            return recipients + contents().map(Content::bytes).sum::<usize>();
        }
        let mut counted = HashSet::new();
        let mut bytes = recipients;
        for content in contents() {
            // Contents are shared by reference: the same address is the same content (decision 0012).
            if counted.insert(content_address(&content.payload, &content.options)) {
                bytes += content.bytes();
            }
            for next in content.fallback.iter().flat_map(|fallback| &fallback.next) {
                let is_new = counted.insert(content_address(&next.payload, &next.options));
                bytes += if is_new { next.bytes() } else { next.address_bytes() };
            }
        }
        bytes
    }

    /// The fallback of `delivery`, which was definitely refused at `at` ([`Draft::in_place_of`]); `None` when it has none.
    pub fn draft_in_place_of(&self, delivery: &Delivery, at: Timestamp) -> Option<Draft> {
        let (index, content) = (delivery.index, self.content_of(delivery)?);
        let (id, trace) = (self.notification_id(index), self.trace(index));
        Draft::in_place_of(id, trace, &self.envelope_of(index), content, at)
    }

    /// The content of `delivery`: its own, or the chunk's. `None` only in a damaged store.
    pub fn content_of<'a>(&'a self, delivery: &'a Delivery) -> Option<&'a Content> {
        delivery.content.as_deref().or(self.content.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;

    use super::*;
    use crate::draft::Fallback;
    use crate::sample;

    #[test]
    fn what_deliveries_share_counts_once_and_options_of_their_own_count_each() {
        let payload = Bytes::from_static(b"{\"shared\":1}");
        let (fallback, at) = (Some(Arc::new(Fallback::default())), Timestamp::from_millis(0));
        let chunk = |options: [&'static [u8]; 2]| {
            let delivery = |(index, options)| {
                let (payload, options) = (payload.clone(), Bytes::from_static(options));
                let content = Content { payload, options, fallback: fallback.clone() };
                Delivery { index, recipient: "r".into(), content: Some(Box::new(content)) }
            };
            let deliveries = (0..).zip(options).map(delivery).collect();
            Chunk { deliveries, ..sample::chunk(at, [""; 0]) }
        };
        let recipients = 2;
        assert_eq!(chunk([b"", b""]).bytes(), recipients + payload.len());
        let own = chunk([b"{\"a\":1}", b"{\"b\":2}"]);
        assert_eq!(own.bytes(), recipients + 2 * (payload.len() + 7));
    }
}
