//! The vocabulary of Belfry: types without I/O and without async.
//!
//! One idea has one word in the API, the command line, the metrics, the tables, the code and the documentation:
//!
//! | word | meaning |
//! |---|---|
//! | **notification** | one content for one recipient on one channel, due at an instant, under a guarantee |
//! | **recipient** | the device, endpoint or mailbox that a notification is for; `to` is its field in a request |
//! | **content** | what a caller gives to be sent; **payload** is its bytes as they are stored and sent |
//! | **draft** | a notification that was checked and is not stored yet |
//! | **broadcast** | one content, many recipients, one call: accepted whole or not at all |
//! | **envelope** | what notifications must have in common to be stored and sent together |
//! | **batch** | notifications accepted together under one envelope: stored once, in one row, never changed |
//! | **chunk** | those of one batch that are due together: they are claimed, queued, delivered, settled and acknowledged as one unit; small ones of a lane are **joined** until they are settled |
//! | **delivery** | a notification of a claimed chunk: it is under way |
//! | **lease**, **epoch** | until when a chunk may be acted on, and the fencing number that makes a late actor harmless |
//! | **pending** | the state of a notification that waits: for its due time, for a claim, or for its next attempt |
//! | **attempt** | one try on the wire; a **retry** is every attempt after the first |
//! | **verdict** | the provider's answer to an attempt: accepted, refused, **deferred** (a retry follows) or unknown |
//! | **outcome** | the entry of the log: how an attempt ended, and the notification with it if there is no retry |
//! | **receipt** | the queue's handle on an item, consumed by acknowledging |
//! | **lane** | what waits its turn together: tenant x destination x credential x priority; lanes that differ in their tenant alone share a limit |
//! | **worker** | a process of a cluster, alive while it renews its lease on itself |
//! | **worker deadline** | until when a worker may start attempts: before any other may take over |
//! | **partition** | a fixed share of all batches; the worker that owns it claims from it |
//! | **ticket** | a chunk on its way through a broker, to be exchanged for the chunk by its consumer |
//! | **suppression** | a recipient that must not be tried again |
//! | **scope** | what of a tenant's an operator means: a broadcast, a lane, a channel, or all of it |
//! | **pause** | what of a tenant's is not sent until it is resumed, by its scope |
//! | **labels** | an external id, tags and metadata: an application finds a notification by them, and no channel sends them |
//! | **fallback** | a notification that stands in for one that was definitely refused |
//! | **trace**, **span** | the way of a request through all systems that it causes work in, and one piece of that work with its times |
//!
//! Read in this order: [`id`], [`time`], [`terms`], [`labels`], [`draft`], [`chunk`], [`verdict`], [`outcome`],
//! [`lifecycle`], [`account`], [`pause`], [`trace`], [`limits`].

pub mod account;
pub mod chunk;
pub mod draft;
pub mod id;
pub mod item_traces;
pub mod join;
pub mod labels;
pub mod lifecycle;
pub mod limits;
pub mod outcome;
pub mod pause;
#[cfg(any(test, feature = "sample"))]
pub mod sample;
#[cfg(feature = "schema")]
mod schema;
pub mod terms;
pub mod time;
pub mod trace;
pub mod verdict;

pub use account::Account;
pub use bytes::Bytes;
pub use bytestring::ByteString;
pub use chunk::{Chunk, Delivery, DeliveryOrigin, Epoch, Ticket};
pub use draft::{
    Alternative, Content, ContentAddress, Draft, Envelope, Fallback, Idempotency, Lane,
    PassedBound, content_address,
};
pub use id::{BatchId, BroadcastId, ChunkId, NotificationId};
pub use item_traces::ItemTraces;
pub use join::join;
pub use labels::{CommonLabels, Labels};
pub use lifecycle::{Event, State};
pub use outcome::{Disposition, OutcomeGroup, Settlement};
pub use pause::{Pause, Pauses, Scope};
pub use terms::{Guarantee, LatePolicy, Name, Priority};
pub use time::Timestamp;
pub use trace::{SpanId, TraceContext, TraceId, TraceParent};
pub use verdict::{Answer, Report, Verdict};
