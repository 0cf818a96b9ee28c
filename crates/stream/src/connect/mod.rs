//! Connecting to brokers: an address with credentials that is shown without them, and
//! explanations of errors for operators. The queues of tickets use it as well.

#[cfg(feature = "rabbitmq")]
mod amqp;
#[cfg(feature = "rabbitmq")]
mod amqp_socket;
#[cfg(feature = "nats")]
mod nats;

#[cfg(feature = "rabbitmq")]
pub use amqp::AmqpAddress;
#[cfg(feature = "rabbitmq")]
pub use amqp_socket::AmqpSocket;
#[cfg(feature = "nats")]
pub use nats::{NatsAddress, is_denial};

use std::time::Duration;

/// Longest time to connect.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time without data after which a connection is probed; it is given up after about twice as long.
pub const HEARTBEAT: Duration = Duration::from_secs(5);
