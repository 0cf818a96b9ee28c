//! Tickets through RabbitMQ, 3.10 or later.
//!
//! Each process has one connection, with a channel to publish and one per priority to consume. Tickets wait in three quorum
//! queues, one per priority, that refuse messages beyond their length. Each message lives as long as its ticket's lease: an
//! overdue ticket is void, and need not be received.
//!
//! - `explain`: explanations of errors.
//! - `topology`: exchanges and queues, declared again with every connection.
//! - `publish` and `consume`: the two directions.

mod consume;
mod explain;
mod publish;
mod topology;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flow::Clock;
use futures_util::StreamExt;
use lapin::options::{BasicQosOptions, ConfirmSelectOptions};
use lapin::{Channel, Connection, ConnectionProperties, Event};
use notification::Priority;
use stream::connect::{AmqpAddress, AmqpSocket};
use tokio::time::Instant;

use crate::broker::capacity::{BrokerCapacity, WaitingTickets};
use crate::broker::error::BrokerError;
use crate::broker::held_tickets::HeldTickets;
use crate::broker::limits::PREFETCH_TICKETS;
use crate::broker::link::{Declared, Link, Protocol, TimedTicket};
use crate::{Broker, BrokerOptions, QueueError};
use consume::{RabbitMqConsumer, RabbitMqMessage};
use topology::RabbitMqTopology;

/// Options under which links to the broker are made.
#[derive(Debug)]
struct RabbitMqProtocol {
    addresses: Vec<AmqpAddress>,
    topology: RabbitMqTopology,
    /// More root certificates to trust, PEM.
    roots: Option<String>,
    consume: bool,
}

/// A connection.
#[derive(Debug)]
struct RabbitMqLink {
    connection: Connection,
    address: AmqpAddress,
    topology: RabbitMqTopology,
    /// Channel in confirm mode. Each declaration makes a new one, so that no publisher waits for confirms of the old one.
    publish: Mutex<Channel>,
    /// Consumers by the code of their priority; empty in a process that only publishes.
    consumers: Vec<RabbitMqConsumer>,
    /// Socket of the connection, dropped last: its shutdown ends all that still waits on it.
    _socket: AmqpSocket,
}

// === open ===

/// Opens the queues of `options.prefix` in the broker at `options.url`: `amqp://user:password@host:port/vhost`, or
/// `amqps://` for TLS with the certificate authorities of the system and `options.ca_file`. Connects in the background.
///
/// # Errors
/// When the URL or the prefix cannot be one; the message holds no secret.
pub fn open(
    options: &BrokerOptions,
    clock: Clock,
    random: fastrand::Rng,
) -> Result<Broker, QueueError> {
    options.check()?;
    let addresses: Result<Vec<AmqpAddress>, QueueError> = options.servers().map(parse).collect();
    let topology =
        RabbitMqTopology { prefix: options.prefix.clone(), tickets_max: options.tickets_max };
    let roots = options.ca_file.as_ref().map(|path| {
        let refuse =
            |error| QueueError::Refused(format!("{}: cannot be read: {error}", path.display()));
        std::fs::read_to_string(path).map_err(refuse)
    });
    let (addresses, roots) = (addresses?, roots.transpose()?);
    let protocol = RabbitMqProtocol { addresses, topology, roots, consume: options.consume };
    Ok(Broker::open(protocol, options, clock, random))
}

// === impl RabbitMqProtocol ===

impl Protocol for RabbitMqProtocol {
    type Link = RabbitMqLink;

    const NAME: &'static str = "RabbitMQ";

    async fn connect(&self, attempt: usize) -> Result<RabbitMqLink, BrokerError> {
        let address = self.addresses.get(attempt % self.addresses.len().max(1));
        let address = address.ok_or_else(|| BrokerError("there is no address".to_owned()))?.clone();
        let socket = AmqpSocket::default();
        let name = format!("belfry {}", self.topology.prefix);
        let properties = ConnectionProperties::default().with_connection_name(name.into());
        let connection = socket.connect(address.uri(), self.roots.as_deref(), properties).await;
        let connection = connection.map_err(|error| explain::explain(&address, &error))?;
        let prefetch = u16::try_from(PREFETCH_TICKETS).unwrap_or(u16::MAX);
        let open = async {
            let (publish, _waiting) = declare(&connection, &self.topology).await?;
            let mut consumers = Vec::new();
            for _priority in Priority::ALL.iter().filter(|_priority| self.consume) {
                let channel = connection.create_channel().await?;
                channel.basic_qos(prefetch, BasicQosOptions::default()).await?;
                consumers.push(RabbitMqConsumer::new(channel));
            }
            Ok((Mutex::new(publish), consumers))
        };
        let (publish, consumers) =
            open.await.map_err(|error| explain::explain(&address, &error))?;
        let topology = self.topology.clone();
        Ok(RabbitMqLink { connection, address, topology, publish, consumers, _socket: socket })
    }
}

// === impl RabbitMqLink ===

impl Link for RabbitMqLink {
    type Message = RabbitMqMessage;

    async fn declare(&self) -> Result<Declared, BrokerError> {
        let declared = declare(&self.connection, &self.topology).await;
        let (channel, waiting) =
            declared.map_err(|error| explain::explain(&self.address, &error))?;
        *self.publishing() = channel;
        Ok(Declared { waiting, tickets_max: self.topology.tickets_max })
    }

    async fn publish(
        &self,
        tickets: &[TimedTicket],
        deadline: Instant,
    ) -> Vec<Result<(), BrokerError>> {
        let channel = self.publishing().clone();
        publish::publish(&channel, &self.topology, tickets, deadline).await
    }

    async fn consume(
        &self,
        priority: Priority,
        held: &Arc<HeldTickets<RabbitMqMessage>>,
    ) -> BrokerError {
        let Some(consuming) = self.consumers.get(usize::from(priority.code())) else {
            return BrokerError("nothing is consumed here".to_owned());
        };
        let queue = self.topology.queue(priority);
        match consuming.run(&queue, held).await {
            Ok(()) => BrokerError(format!(
                "RabbitMQ ended the consumer of {queue}: was the queue deleted?"
            )),
            Err(error) => explain::explain(&self.address, &error),
        }
    }

    async fn stop(&self, held: &Arc<HeldTickets<RabbitMqMessage>>) {
        for consuming in &self.consumers {
            if let Err(error) = consuming.stop(held).await {
                tracing::debug!(%error, "a consumer did not end in good order");
            }
        }
    }

    async fn lost(&self, capacity: &BrokerCapacity) -> BrokerError {
        let mut events = std::pin::pin!(self.connection.events_listener());
        // Events before there was a listener.
        if !self.connection.status().connected() {
            return BrokerError(format!(
                "the connection to RabbitMQ at {} ended at once",
                self.address
            ));
        }
        if self.connection.status().blocked() {
            capacity.set_blocked(Some("RabbitMQ takes no messages".to_owned()));
        }
        while let Some(event) = events.next().await {
            if let Event::ConnectionBlocked(reason) = event {
                tracing::warn!(%reason, "RabbitMQ takes no tickets: free its memory or disk");
                capacity.set_blocked(Some(format!("RabbitMQ takes no messages ({reason})")));
            } else if let Event::ConnectionUnblocked = event {
                capacity.set_blocked(None);
            } else if let Event::Error(error) = event {
                return explain::explain(&self.address, &error);
            }
        }
        BrokerError("the connection to RabbitMQ ended".to_owned())
    }

    async fn close(&self) {
        if let Err(error) = self.connection.close(200, "drained".into()).await {
            tracing::debug!(%error, "RabbitMQ did not answer to the end of the connection");
        }
    }
}

impl RabbitMqLink {
    fn publishing(&self) -> MutexGuard<'_, Channel> {
        // Holds one value, which is whole.
        self.publish.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Declares what is missing on a new channel in confirm mode. Returns the channel, and the tickets waiting per priority.
async fn declare(
    connection: &Connection,
    topology: &RabbitMqTopology,
) -> lapin::Result<(Channel, WaitingTickets)> {
    let channel = connection.create_channel().await?;
    channel.confirm_select(ConfirmSelectOptions::default()).await?;
    let waiting = topology.declare(&channel).await?;
    Ok((channel, waiting))
}

fn parse(text: &str) -> Result<AmqpAddress, QueueError> {
    AmqpAddress::parse(text).map_err(|error| QueueError::Refused(error.to_string()))
}
