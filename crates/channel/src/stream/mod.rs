//! Streams as a channel: records to topics, queues and subjects of other systems, a batch in one call.
//!
//! A recipient is a system and the name of a target there: `nats:orders.paid`, `amqp:exchange/key`, `kafka:orders`. One destination is one target. What
//! opens the targets of a system comes from outside: this channel knows the seam of streams and no system.
//!
//! - `outbox`: deliveries of all jobs of a thread to one target, put together.
//! - `pending`: which of them go next, and what keeps the order of a key.

mod channel;
mod config;
mod content;
mod outbox;
mod pending;
mod recipient;

pub use channel::{StreamChannel, StreamSystems};
pub use config::{AwsServer, Settings, StreamServer};
