//! NATS `JetStream`, server 2.9 or later, as a source and a target.
//!
//! - [`NatsSource`] reads a subject of a stream through a durable pull consumer, which several sources share. A message is known by
//!   its stream, its sequence there and the time when it was stored; its key is its subject.
//! - [`NatsTarget`] publishes to a subject, and waits until the stream has stored it. The identifier of a record is its
//!   `Nats-Msg-Id`: within the stream's duplicate window a repeated record is stored once. Records are stored in the order in which
//!   they are put. Keys are not carried.
//!
//! Streams are the application's: none is created here.

mod link;
mod source;
mod target;

pub use source::{NatsSource, NatsSourceOptions};
pub use target::{NatsTarget, NatsTargets};
