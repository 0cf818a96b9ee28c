//! The vocabulary of Belfry: types without I/O and without async.
//!
//! One word, one thing:
//!
//! | word | meaning |
//! |---|---|
//! | **notification** | one content for one recipient on one channel, due at an instant, under a guarantee |
//! | **draft** | a notification that was checked and is not stored yet |
//! | **broadcast** | one content, many recipients, one call: accepted whole or not at all |
//! | **envelope** | what notifications must have in common to be stored and sent together |
//! | **batch** | notifications accepted together under one envelope: stored once, in one row, never changed |
//! | **chunk** | those of one batch that are due together: they are claimed, queued, delivered, settled and acknowledged as one unit |
//! | **delivery** | a notification of a claimed chunk: it is under way |
//! | **lease**, **epoch** | until when a chunk may be acted on, and the fencing number that makes a late actor harmless |
//! | **attempt** | one try on the wire |
//! | **verdict** | what the provider said to an attempt |
//! | **outcome** | what the log keeps: how a notification ended |
//! | **receipt** | the queue's handle on a chunk, consumed by acknowledging |
//! | **lane** | what shares limits: destination x credential x priority |
//! | **worker** | a process that works on a store with others, alive while it renews its lease on itself |
//! | **partition** | a fixed share of all batches; the worker that owns it claims from it |
//! | **ticket** | a chunk on its way through a broker, to be exchanged for the chunk by its consumer |
//! | **suppression** | a recipient that must not be tried again |
//! | **fallback** | a notification that stands in for one that was definitely refused |
//!
//! Read in this order: [`id`], [`time`], [`terms`], [`draft`], [`chunk`], [`verdict`], [`outcome`],
//! [`lifecycle`], [`account`], [`limits`].

pub mod account;
pub mod chunk;
pub mod draft;
pub mod id;
pub mod lifecycle;
pub mod limits;
pub mod outcome;
pub mod terms;
pub mod time;
pub mod verdict;

pub use account::Account;
pub use bytes::Bytes;
pub use bytestring::ByteString;
pub use chunk::{Chunk, Delivery, Epoch, Ticket};
pub use draft::{Alternative, Content, Draft, Envelope, Fallback, Idempotency, Lane};
pub use id::{BatchId, BroadcastId, ChunkId, NotificationId};
pub use lifecycle::{Event, State};
pub use outcome::{Disposition, OutcomeGroup, Settlement};
pub use terms::{Guarantee, LatePolicy, Name, Priority};
pub use time::Timestamp;
pub use verdict::{Answer, Report, Verdict};
