//! RabbitMQ, 3.10 or later, as a source and a target.
//!
//! - [`RabbitMqSource`] consumes a queue. The broker pushes up to a prefetch of messages, which bounds what is held and read ahead. A
//!   message is known by its `message_id`; one without has another identifier each time it comes, so that a repeated one cannot be
//!   told. Its key is its routing key. Acknowledgements are not confirmed by the protocol: one that is lost has the message come
//!   again.
//! - [`RabbitMqTarget`] publishes persistent messages to an exchange with a routing key, and waits for confirms. The identifier of a
//!   record is its `message_id`; the broker does not compare these. Records are queued in the order in which they are put. Keys
//!   are not carried. What no queue takes is returned, and was not taken.
//!
//! Queues and exchanges are the application's: none is declared here.

mod link;
mod source;
mod target;

pub use source::{RabbitMqSource, RabbitMqSourceOptions};
pub use target::{RabbitMqTarget, RabbitMqTargets};
