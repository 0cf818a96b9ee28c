//! Tickets through NATS JetStream, server 2.9 or later.
//!
//! Each process has one connection. Tickets wait in one work-queue stream with a subject per priority, each of which refuses
//! messages beyond its length; no message in it gets older than a lease. Three durable pull consumers, one per priority, are
//! shared by all consuming processes: each receives as many as it requests.
//!
//! - `explain`: explanations of errors.
//! - `topology`: the stream and its consumers, created again when they are gone.
//! - `publish` and `consume`: the two directions.

mod consume;
mod explain;
mod publish;
mod topology;

use std::path::PathBuf;
use std::sync::Arc;

use async_nats::connection::State;
use async_nats::jetstream::context::ContextBuilder;
use async_nats::{Client, Event, jetstream};
use flow::Clock;
use notification::Priority;
use stream::connect::{NatsAddress, is_denial};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::broker::capacity::BrokerCapacity;
use crate::broker::error::BrokerError;
use crate::broker::held_tickets::HeldTickets;
use crate::broker::limits::{PUBLISH_TICKETS, PUBLISH_TIMEOUT};
use crate::broker::link::{Declared, Link, Protocol, TimedTicket};
use crate::{Broker, BrokerOptions, QueueError};
use consume::{NatsConsumer, NatsMessage};
use topology::NatsTopology;

/// Options under which links to the broker are made.
#[derive(Debug)]
struct NatsProtocol {
    addresses: Vec<NatsAddress>,
    topology: NatsTopology,
    /// More root certificates to trust, PEM.
    ca_file: Option<PathBuf>,
    consume: bool,
}

/// A connection.
#[derive(Debug)]
struct NatsLink {
    client: Client,
    jetstream: jetstream::Context,
    address: NatsAddress,
    topology: NatsTopology,
    /// Consumers by the code of their priority; empty in a process that only publishes.
    consumers: Vec<NatsConsumer>,
    events: watch::Receiver<ConnectionEvents>,
}

/// The events of a connection, as the client library reports them.
#[derive(Debug, Default)]
struct ConnectionEvents {
    lost: bool,
    /// The last error of the server, such as a right that is missing.
    last_error: Option<String>,
}

// === open ===

/// Opens the stream `options.prefix` in the broker at `options.url`: `nats://user:password@host:port`,
/// `nats://token@host:port`, or `tls://` for TLS with the certificate authorities of the system and `options.ca_file`;
/// `?credentials=/path/to/file` names a file of credentials. Connects in the background.
///
/// # Errors
/// When the URL or the prefix cannot be one; the message holds no secret.
pub fn open(
    options: &BrokerOptions,
    clock: Clock,
    random: fastrand::Rng,
) -> Result<Broker, QueueError> {
    options.check()?;
    let addresses: Result<Vec<NatsAddress>, QueueError> = options.servers().map(parse).collect();
    let topology =
        NatsTopology { prefix: options.prefix.clone(), tickets_max: options.tickets_max };
    let (addresses, ca_file) = (addresses?, options.ca_file.clone());
    let protocol = NatsProtocol { addresses, topology, ca_file, consume: options.consume };
    Ok(Broker::open(protocol, options, clock, random))
}

// === impl NatsProtocol ===

impl Protocol for NatsProtocol {
    type Link = NatsLink;

    const NAME: &'static str = "NATS";

    async fn connect(&self, attempt: usize) -> Result<NatsLink, BrokerError> {
        let address = self.addresses.get(attempt % self.addresses.len().max(1));
        let address = address.ok_or_else(|| BrokerError("there is no address".to_owned()))?.clone();
        let (tell, events) = watch::channel(ConnectionEvents::default());
        let (name, ca_file) = (&self.topology.prefix, self.ca_file.as_deref());
        let options = address.options(name, 8 * PUBLISH_TICKETS, ca_file).await;
        let options =
            options.map_err(|error| BrokerError(error.to_string()))?.event_callback(move |event| {
                tell.send_modify(|events| events.take(event));
                std::future::ready(())
            });
        let client = options.connect(address.server()).await;
        let client =
            client.map_err(|error| BrokerError(address.explain_connect(&error).to_string()))?;
        let jetstream = ContextBuilder::new()
            .timeout(PUBLISH_TIMEOUT)
            .max_ack_inflight(8 * PUBLISH_TICKETS)
            .build(client.clone());
        let (topology, consumers) = (self.topology.clone(), Vec::new());
        let mut session = NatsLink { client, jetstream, address, topology, consumers, events };
        session.declare().await?;
        for priority in Priority::ALL.iter().filter(|_priority| self.consume) {
            let consuming =
                NatsConsumer::new(&session.jetstream, &session.client, &self.topology, *priority);
            session.consumers.push(consuming.await.map_err(|error| session.explain(&error))?);
        }
        Ok(session)
    }
}

// === impl NatsLink ===

impl Link for NatsLink {
    type Message = NatsMessage;

    async fn declare(&self) -> Result<Declared, BrokerError> {
        let declare = async {
            let tickets_max = self.topology.create(&self.jetstream).await?;
            let waiting = self.topology.waiting(&self.jetstream).await?;
            Ok(Declared { waiting, tickets_max })
        };
        declare.await.map_err(|error: topology::NatsError| self.explain(&error))
    }

    async fn publish(
        &self,
        tickets: &[TimedTicket],
        deadline: Instant,
    ) -> Vec<Result<(), BrokerError>> {
        publish::publish(&self.jetstream, &self.topology, tickets, deadline).await
    }

    async fn consume(
        &self,
        priority: Priority,
        held: &Arc<HeldTickets<NatsMessage>>,
    ) -> BrokerError {
        match self.consumers.get(usize::from(priority.code())) {
            Some(consuming) => self.explain(&consuming.run(held).await),
            None => BrokerError("nothing is consumed here".to_owned()),
        }
    }

    async fn stop(&self, held: &Arc<HeldTickets<NatsMessage>>) {
        for consuming in &self.consumers {
            consuming.stop(held).await;
        }
    }

    async fn lost(&self, _capacity: &BrokerCapacity) -> BrokerError {
        let mut events = self.events.clone();
        // The sender lives as long as the connection.
        let _ended = events.wait_for(ConnectionEvents::is_over).await.is_ok();
        self.explain(&topology::NatsError::Lost)
    }

    async fn close(&self) {
        // Acknowledgements that were handed over are written before the library may drop the connection.
        let ended = async {
            self.client.flush().await.ok()?;
            self.client.drain().await.ok()
        };
        if ended.await.is_some() {
            let mut events = self.events.clone();
            let _ended = events.wait_for(|events| events.lost).await;
        }
    }
}

impl NatsLink {
    /// The meaning of `error`, and what to do about it.
    fn explain(&self, error: &topology::NatsError) -> BrokerError {
        explain::explain(&self.address, error, self.events.borrow().last_error.as_deref())
    }
}

// === impl ConnectionEvents ===

impl ConnectionEvents {
    /// True if the connection is of no more use. A missing right makes it so: a denied request is not answered, and would wait
    /// for ever.
    fn is_over(&self) -> bool {
        self.lost || self.last_error.as_deref().is_some_and(is_denial)
    }

    fn take(&mut self, event: Event) {
        match event {
            // Lost for good, even if the library would connect again: the supervisor makes the next connection.
            Event::Disconnected | Event::Closed => self.lost = true,
            Event::ServerError(error) => self.note_error(error.to_string()),
            Event::ClientError(error) => self.note_error(error.to_string()),
            Event::Connected | Event::LameDuckMode | Event::Draining | Event::SlowConsumer(_) => {}
        }
    }

    /// A denial stays: errors after it are of less use to an operator.
    fn note_error(&mut self, text: String) {
        if !self.last_error.as_deref().is_some_and(is_denial) {
            self.last_error = Some(text);
        }
    }
}

fn parse(text: &str) -> Result<NatsAddress, QueueError> {
    NatsAddress::parse(text).map_err(|error| QueueError::Refused(error.to_string()))
}

/// True if a message that is given to `client` can be sent.
fn is_connected(client: &Client) -> bool {
    client.connection_state() == State::Connected
}
