//! Tickets through NATS JetStream, server 2.9 or later.
//!
//! One connection per process. Tickets wait in one work-queue stream with a subject per priority, each of which refuses
//! what is beyond its length; nothing in it gets older than a lease. Three durable pull consumers, one per priority, are
//! shared by everybody who consumes: whoever asks gets as many as it asked for.
//!
//! - `address`: URLs, and what is said of them.
//! - `topology`: the stream and its consumers, created again when they are gone.
//! - `publish` and `consume`: the two directions.

mod address;
mod consume;
mod publish;
mod topology;

use std::path::PathBuf;
use std::sync::Arc;

use async_nats::connection::State;
use async_nats::jetstream::context::ContextBuilder;
use async_nats::{Client, Event, jetstream};
use flow::Clock;
use notification::{Priority, limits};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::broker::error::BrokerError;
use crate::broker::link::{Declared, Link, Protocol, Timed};
use crate::broker::room::Room;
use crate::broker::stock::Stock;
use crate::{Broker, Options, QueueError};
use address::Address;
use consume::{Consuming, Delivered};
use topology::Topology;

/// How to reach the broker.
#[derive(Debug)]
struct Nats {
    addresses: Vec<Address>,
    topology: Topology,
    /// More root certificates to trust, PEM.
    ca_file: Option<PathBuf>,
    consume: bool,
}

/// A connection.
#[derive(Debug)]
struct Session {
    client: Client,
    jetstream: jetstream::Context,
    address: Address,
    topology: Topology,
    /// By the code of the priority; empty when nothing is consumed.
    consumers: Vec<Consuming>,
    seen: watch::Receiver<Seen>,
}

/// What the library told of a connection.
#[derive(Debug, Default)]
struct Seen {
    lost: bool,
    /// The last error of the server, such as a right that is missing.
    complaint: Option<String>,
}

// === open ===

/// Opens the stream `options.prefix` in the broker at `options.url`: `nats://user:password@host:port`,
/// `nats://token@host:port`, or `tls://` for TLS with the certificate authorities of the system and `options.ca_file`;
/// `?credentials=/path/to/file` names a file of credentials. Connects in the background.
///
/// # Errors
/// When the URL or the prefix cannot be one; the message holds no secret.
pub fn open(options: &Options, clock: Clock, random: fastrand::Rng) -> Result<Broker, QueueError> {
    options.check()?;
    let addresses: Result<Vec<Address>, QueueError> =
        options.servers().map(Address::parse).collect();
    let topology = Topology { prefix: options.prefix.clone(), tickets_max: options.tickets_max };
    let (addresses, ca_file) = (addresses?, options.ca_file.clone());
    let protocol = Nats { addresses, topology, ca_file, consume: options.consume };
    Ok(Broker::open(protocol, options, clock, random))
}

// === impl Nats ===

impl Protocol for Nats {
    type Link = Session;

    const NAME: &'static str = "NATS";

    async fn connect(&self, attempt: usize) -> Result<Session, BrokerError> {
        let address = self.addresses.get(attempt % self.addresses.len().max(1));
        let address = address.ok_or_else(|| BrokerError("there is no address".to_owned()))?.clone();
        let (tell, seen) = watch::channel(Seen::default());
        let mut options = address.options(&self.topology.prefix).await?;
        if let Some(path) = &self.ca_file {
            options = options.add_root_certificates(path.clone());
        }
        let options = options.event_callback(move |event| {
            tell.send_modify(|seen| seen.take(event));
            std::future::ready(())
        });
        let client = options.connect(address.server()).await;
        let client = client.map_err(|error| address.explain_connect(&error))?;
        let jetstream = ContextBuilder::new()
            .timeout(limits::PUBLISH_TIMEOUT)
            .max_ack_inflight(8 * limits::PUBLISH_TICKETS)
            .build(client.clone());
        let (topology, consumers) = (self.topology.clone(), Vec::new());
        let mut session = Session { client, jetstream, address, topology, consumers, seen };
        session.declare().await?;
        for priority in Priority::ALL.iter().filter(|_priority| self.consume) {
            let consuming =
                Consuming::new(&session.jetstream, &session.client, &self.topology, *priority);
            session.consumers.push(consuming.await.map_err(|error| session.explain(&error))?);
        }
        Ok(session)
    }
}

// === impl Session ===

impl Link for Session {
    type Answer = Delivered;

    async fn declare(&self) -> Result<Declared, BrokerError> {
        let declare = async {
            let tickets_max = self.topology.create(&self.jetstream).await?;
            let waiting = self.topology.waiting(&self.jetstream).await?;
            Ok(Declared { waiting, tickets_max })
        };
        declare.await.map_err(|error: topology::Failure| self.explain(&error))
    }

    async fn publish(&self, tickets: &[Timed], deadline: Instant) -> Vec<Result<(), BrokerError>> {
        publish::publish(&self.jetstream, &self.topology, tickets, deadline).await
    }

    async fn consume(&self, priority: Priority, stock: &Arc<Stock<Delivered>>) -> BrokerError {
        match self.consumers.get(usize::from(priority.code())) {
            Some(consuming) => self.explain(&consuming.run(stock).await),
            None => BrokerError("nothing is consumed here".to_owned()),
        }
    }

    async fn stop(&self, stock: &Arc<Stock<Delivered>>) {
        for consuming in &self.consumers {
            consuming.stop(stock).await;
        }
    }

    async fn lost(&self, _room: &Room) -> BrokerError {
        let mut seen = self.seen.clone();
        // The sender lives as long as the connection.
        let _ended = seen.wait_for(Seen::is_over).await.is_ok();
        self.explain(&topology::Failure::Lost)
    }

    async fn close(&self) {
        // What was handed over is written before the library learns that nobody needs it any more.
        let ended = async {
            self.client.flush().await.ok()?;
            self.client.drain().await.ok()
        };
        if ended.await.is_some() {
            let mut seen = self.seen.clone();
            let _ended = seen.wait_for(|seen| seen.lost).await;
        }
    }
}

impl Session {
    /// What `error` means and what to do about it.
    fn explain(&self, error: &topology::Failure) -> BrokerError {
        self.address.explain(error, self.seen.borrow().complaint.as_deref())
    }
}

// === impl Seen ===

impl Seen {
    /// Whether the connection is of no use any more. A right that is missing makes it so: what was denied is not
    /// answered, and whoever asked would wait for ever.
    fn is_over(&self) -> bool {
        self.lost || self.complaint.as_deref().is_some_and(address::is_denial)
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Disconnected | Event::Closed => self.lost = true,
            Event::ServerError(error) => self.complain(error.to_string()),
            Event::ClientError(error) => self.complain(error.to_string()),
            Event::Connected | Event::LameDuckMode | Event::Draining | Event::SlowConsumer(_) => {}
        }
    }

    /// A denial stays: what comes after it is of less use to whom runs the system.
    fn complain(&mut self, text: String) {
        if !self.complaint.as_deref().is_some_and(address::is_denial) {
            self.complaint = Some(text);
        }
    }
}

/// Whether what is handed to `client` has a chance to be sent.
fn is_connected(client: &Client) -> bool {
    client.connection_state() == State::Connected
}
