//! Joining: small chunks of one lane that were claimed together travel and are sent as one.
//!
//! What has an envelope of its own is a batch and a chunk of its own in the store, and so it is written. In between, a chunk costs
//! a message, a task, a visit to the gate and a report, as much for one delivery as for a thousand. A joined chunk costs that
//! once, and says of each delivery which chunk of the store it is of ([`DeliveryOrigin`]), so that each is settled by itself.

use std::collections::HashMap;

use crate::chunk::{Chunk, Delivery, DeliveryOrigin};
use crate::draft::{Content, Envelope};
use crate::item_traces::ItemTraces;
use crate::limits;
use crate::terms::Guarantee;
use crate::time::Timestamp;

/// Deliveries of a joined chunk, at most: so many that the cost of a chunk hardly counts, and so few that the sender threads
/// share the work of a lane as before.
pub const JOINED_ITEMS: usize = 64;

/// The fields in which chunks agree that are joined.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Likeness {
    /// But for the times.
    envelope: Envelope,
    attempt: u16,
    lease_until: Timestamp,
    worker: u64,
    store_id: u16,
}

/// A chunk that takes in others.
#[derive(Debug)]
struct OpenChunk {
    place: usize,
    bytes: usize,
}

/// Joins those of `chunks`, which were claimed together, that are small and alike; the others stay as they are. A joined chunk
/// stands where its first one stood.
///
/// What must be sent at most once is not joined: its mark is of one chunk of the store. Nor is a broadcast, whose deliveries share a
/// content, and are many to a chunk.
pub fn join(chunks: Vec<Chunk>) -> Vec<Chunk> {
    let mut joined: Vec<Chunk> = Vec::with_capacity(chunks.len());
    let mut open: HashMap<Likeness, OpenChunk> = HashMap::new();
    for chunk in chunks {
        if !is_small(&chunk) {
            joined.push(chunk);
            continue;
        }
        let (likeness, bytes) = (Likeness::of(&chunk), bytes_apart(&chunk));
        if let Some(first) = open.get_mut(&likeness)
            && first.bytes + bytes <= limits::BATCH_BYTES
            && let Some(into) = joined.get_mut(first.place)
            && into.deliveries.len() + chunk.deliveries.len() <= JOINED_ITEMS
        {
            first.bytes += bytes;
            add(into, chunk);
        } else {
            open.insert(likeness, OpenChunk { place: joined.len(), bytes });
            joined.push(chunk);
        }
    }
    joined
}

// === impl Likeness ===

impl Likeness {
    fn of(chunk: &Chunk) -> Self {
        let Chunk { attempt, lease_until, worker, store_id, .. } = *chunk;
        let due_at = Timestamp::from_millis(0);
        let envelope = Envelope { due_at, expires_at: None, ..chunk.envelope.clone() };
        Self { envelope, attempt, lease_until, worker, store_id }
    }
}

fn is_small(chunk: &Chunk) -> bool {
    chunk.envelope.guarantee == Guarantee::AtLeastOnce
        && chunk.envelope.broadcast.is_none()
        && chunk.deliveries.len() <= JOINED_ITEMS / 2
        && chunk.origins.is_empty()
}

/// Bytes that the chunk holds when each of its deliveries has the content that they share.
fn bytes_apart(chunk: &Chunk) -> usize {
    let shared = chunk.content.as_ref().map_or(0, Content::bytes);
    chunk.bytes() + shared * chunk.deliveries.len().saturating_sub(1)
}

/// Adds the deliveries of `chunk` to `joined`.
fn add(joined: &mut Chunk, chunk: Chunk) {
    if joined.origins.is_empty() {
        let (content, deliveries) = (joined.content.take(), std::mem::take(&mut joined.deliveries));
        let traces = std::mem::take(&mut joined.traces);
        joined.deliveries.reserve(JOINED_ITEMS);
        joined.origins.reserve(JOINED_ITEMS);
        let first = origin_of(joined);
        take_in(joined, first, (content.as_ref(), &traces), deliveries);
    }
    let shared = (chunk.content.as_ref(), &chunk.traces);
    take_in(joined, origin_of(&chunk), shared, chunk.deliveries);
}

/// The origin of the deliveries of a chunk as the store leased it, but for their indexes.
fn origin_of(chunk: &Chunk) -> DeliveryOrigin {
    let Chunk { id, epoch, batch, accepted_at, ref envelope, .. } = *chunk;
    let Envelope { due_at, expires_at, .. } = *envelope;
    DeliveryOrigin { chunk: id, epoch, batch, index: 0, accepted_at, due_at, expires_at }
}

/// Adds `deliveries` of one origin, which have `content` unless they have one of their own, and their `traces`.
fn take_in(
    joined: &mut Chunk,
    of: DeliveryOrigin,
    (content, traces): (Option<&Content>, &ItemTraces),
    deliveries: Vec<Delivery>,
) {
    for delivery in deliveries {
        let index = u16::try_from(joined.deliveries.len()).unwrap_or(u16::MAX);
        let content = delivery.content.or_else(|| content.cloned().map(Box::new));
        joined.traces.push(index, traces.get(delivery.index));
        joined.origins.push(DeliveryOrigin { index: delivery.index, ..of });
        joined.deliveries.push(Delivery { index, recipient: delivery.recipient, content });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{BatchId, BroadcastId, ChunkId};
    use crate::sample;
    use crate::trace::TraceContext;

    /// Chunk `number`, of a batch of its own, with a delivery for each of `recipients`.
    fn chunk(number: u64, recipients: &[&'static str]) -> Chunk {
        let at = Timestamp::from_millis(1_000 + number.cast_signed());
        let mut chunk = sample::chunk(at, recipients.iter().copied());
        (chunk.id, chunk.batch) = (ChunkId(number), BatchId(100 + number));
        chunk.envelope.due_at = at;
        chunk.lease_until = Timestamp::MAX;
        chunk.content = Some(sample::content(&number.to_string()));
        chunk
    }

    #[test]
    fn each_delivery_of_a_joined_chunk_keeps_its_name_its_content_its_times_and_its_trace() {
        let mut second = chunk(2, &["b", "c", "d"]);
        second.envelope.expires_at = Some(Timestamp::MAX);
        for (index, number) in [(0, 7), (1, 8)] {
            second.traces.push(index, TraceContext::from_bytes(&[number; 24]));
        }
        // A part of its batch.
        second.deliveries.remove(1);
        let mut third = chunk(3, &["e"]);
        third.traces.push(0, TraceContext::from_bytes(&[9; 24]));
        let alone = [chunk(1, &["a"]), second, third];
        let joined = join(alone.to_vec());
        assert_eq!(joined.len(), 1);
        let places = joined[0].deliveries.iter();
        let origins =
            alone.iter().flat_map(|chunk| chunk.deliveries.iter().map(move |it| (chunk, it)));
        for (place, (chunk, before)) in places.zip(origins) {
            assert_eq!(place.recipient, before.recipient);
            assert_eq!(joined[0].content_of(place), chunk.content_of(before));
            let id = joined[0].notification_id(place.index);
            assert_eq!(id, chunk.notification_id(before.index));
            assert_eq!(joined[0].claim_of(place.index), (chunk.id, chunk.epoch));
            assert_eq!(joined[0].due_since(place.index), chunk.due_since(before.index));
            assert_eq!(*joined[0].envelope_of(place.index), chunk.envelope);
            assert_eq!(joined[0].expires_at(place.index), chunk.envelope.expires_at);
            assert_eq!(joined[0].trace(place.index), chunk.trace(before.index));
        }
        assert_eq!(joined[0].deliveries.len(), 4);
    }

    #[test]
    fn only_what_is_alike_and_small_is_joined() {
        let changes: [fn(&mut Chunk); 7] = [
            |chunk| chunk.envelope.lane.destination = "elsewhere".into(),
            |chunk| chunk.envelope.lane.tenant = sample::name("another"),
            |chunk| chunk.envelope.guarantee = Guarantee::AtMostOnce,
            |chunk| chunk.envelope.broadcast = Some(BroadcastId(1)),
            |chunk| chunk.attempt = 2,
            |chunk| chunk.lease_until = Timestamp::from_millis(5),
            |chunk| chunk.deliveries = sample::chunk(chunk.accepted_at, ["x"; 33]).deliveries,
        ];
        for change in changes {
            let mut other = chunk(2, &["b"]);
            change(&mut other);
            // In the order in which they were claimed, as far as they are not joined.
            let joined = join(vec![chunk(1, &["a"]), other.clone(), chunk(3, &["c"])]);
            let ids: Vec<u64> = joined.iter().map(|chunk| chunk.id.0).collect();
            assert_eq!((ids, &joined[1]), (vec![1, 2], &other));
            assert_eq!(joined[0].deliveries.len(), 2);
        }
        let twice = |number| {
            let mut chunk = chunk(number, &["a"]);
            chunk.envelope.guarantee = Guarantee::AtMostOnce;
            chunk
        };
        assert_eq!(join(vec![twice(1), twice(2)]).len(), 2);
    }

    #[test]
    fn a_joined_chunk_has_a_bound_of_deliveries_and_one_of_bytes() {
        let sizes = |chunks: Vec<Chunk>| -> Vec<usize> {
            join(chunks).iter().map(|chunk| chunk.deliveries.len()).collect()
        };
        let many = (0..150).map(|number| chunk(number, &["a"])).collect();
        assert_eq!(sizes(many), [JOINED_ITEMS, JOINED_ITEMS, 150 - 2 * JOINED_ITEMS]);
        let large = |number| Chunk {
            content: Some(sample::content(&"1".repeat(limits::BATCH_BYTES / 3))),
            ..chunk(number, &["a"])
        };
        assert_eq!(sizes((0..5).map(large).collect()), [2, 2, 1]);
        let sharing =
            |number| Chunk { deliveries: chunk(1, &["a", "b"]).deliveries, ..large(number) };
        assert_eq!(sizes((0..2).map(sharing).collect()), [2, 2], "each has it, when it is joined");
    }
}
