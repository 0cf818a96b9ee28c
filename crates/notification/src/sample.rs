//! Sample notifications for tests and measurements, in a process that sends none of them.
//!
//! Their fields are what most tests do not care for; a test that does sets them:
//! `Chunk { lease_until, ..sample::chunk(now, ["recipient"]) }`.

use bytes::Bytes;
use bytestring::ByteString;

use crate::chunk::{Chunk, Delivery, Epoch};
use crate::draft::{Content, Envelope, Lane};
use crate::id::{BatchId, ChunkId};
use crate::item_traces::ItemTraces;
use crate::limits;
use crate::terms::{Guarantee, Name, Priority};
use crate::time::Timestamp;

/// A chunk that was accepted and claimed at `now`, with a delivery for each of `recipients` and no content: the first attempt,
/// at least once.
pub fn chunk<R: Into<ByteString>>(
    now: Timestamp,
    recipients: impl IntoIterator<Item = R>,
) -> Chunk {
    let delivery = |(index, recipient): (u16, R)| Delivery {
        index,
        recipient: recipient.into(),
        content: None,
    };
    Chunk {
        id: ChunkId(1),
        epoch: Epoch(1),
        lease_until: now.plus(limits::LEASE),
        worker: 0,
        batch: BatchId(1),
        store_id: 1,
        accepted_at: now,
        envelope: envelope(),
        attempt: 1,
        content: None,
        deliveries: (0..).zip(recipients).map(delivery).collect(),
        origins: Vec::new(),
        traces: ItemTraces::NONE,
    }
}

/// Of a tenant `tenant` to the destination `destination` of the channel `channel`: due at once, and for ever.
pub fn envelope() -> Envelope {
    Envelope {
        lane: Lane {
            channel: name("channel"),
            destination: "destination".into(),
            priority: Priority::Normal,
            tenant: name("tenant"),
        },
        guarantee: Guarantee::AtLeastOnce,
        due_at: Timestamp::from_millis(0),
        expires_at: None,
        broadcast: None,
    }
}

/// A payload, and nothing else.
pub fn content(payload: &str) -> Content {
    let payload = Bytes::copy_from_slice(payload.as_bytes());
    Content { payload, options: Bytes::new(), fallback: None }
}

/// A name.
///
/// # Panics
/// When `text` is none.
#[expect(clippy::expect_used, reason = "a test fails by panicking")]
pub fn name(text: &str) -> Name {
    text.parse().expect("a name")
}
