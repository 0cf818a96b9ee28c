//! The shared part of the queues behind a broker: tickets in, tickets out, and a link that is restored when it is lost.
//!
//! A broker may lose or repeat every ticket, so this part can be simple: an unconfirmed ticket is published again by
//! the producer that claimed it, when its lease ends; a repeated one is refused by the store. It remains that nothing hangs,
//! nothing loops, and nothing grows: every wait has an end, every failure a pause, every buffer a bound.
//!
//! - `error`: the failures of a broker.
//! - `link`: the interface to the protocol of a backend.
//! - `supervisor`: connects, declares, serves, and connects again, for ever.
//! - `publisher` and `held_tickets`: the two ends that the stages see.
//! - `capacity`: the priorities for which a claim would not be in vain.

pub mod capacity;
pub mod error;
pub mod held_tickets;
pub mod limits;
pub mod link;

mod publisher;
mod supervisor;

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use flow::tasks::Ended;
use flow::{Clock, Tasks};
use notification::{Priority, Ticket, Timestamp};
use tokio::sync::watch;

use crate::{Consume, Message, Publish, QueueError};
use capacity::BrokerCapacity;
use error::BrokerError;
use held_tickets::HeldTickets;
use link::{Link, Protocol};

/// The options of a queue behind a broker.
#[derive(Clone)]
pub struct BrokerOptions {
    /// URLs of the broker, with user and password; several servers of one cluster, separated by commas.
    pub url: String,
    /// The prefix of its queues' names: up to 64 of `A-Z`, `a-z`, `0-9`, `-`, `_`. All processes that work on one
    /// store use the same.
    pub prefix: String,
    /// More root certificates to trust, PEM; without it those of the system alone.
    pub ca_file: Option<PathBuf>,
    /// True if the process receives tickets; one that only publishes holds none.
    pub consume: bool,
    /// Tickets of one priority that may wait; [`notification::limits::BROKER_TICKETS`] but for tests. NATS keeps the number that it was first
    /// given, and RabbitMQ refuses another one.
    pub tickets_max: u64,
}

/// A queue behind a broker. Dropping it ends the connection; [`Broker::close`] and [`Broker::drain`] end it in good order.
#[derive(Debug)]
pub struct Broker {
    publisher: Arc<dyn Publish<Ticket>>,
    consumer: Arc<dyn Consume<Ticket>>,
    control: Arc<dyn QueueControl>,
    status: Arc<LinkStatus>,
    tasks: Tasks,
}

/// The failures of a link since its queue was opened. Nothing of it passes: a failure that is over is still counted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Failures {
    /// Links, and attempts to make one, that failed.
    pub count: u64,
    /// Reason of the last failure, in words for operators; without secrets.
    pub last: Option<BrokerError>,
}

/// State of the link.
#[derive(Debug)]
pub(crate) struct LinkStatus {
    name: &'static str,
    available: watch::Sender<bool>,
    trouble: Mutex<Option<BrokerError>>,
    failures: watch::Sender<Failures>,
    closed: watch::Sender<bool>,
}

/// The parts that both ends of a queue share with the supervisor of its link.
#[derive(Debug)]
pub(crate) struct BrokerState<L: Link> {
    clock: Clock,
    status: Arc<LinkStatus>,
    capacity: BrokerCapacity,
    held: Arc<HeldTickets<L::Message>>,
    link: watch::Sender<Option<Arc<L>>>,
}

/// Closes a queue of any protocol.
trait QueueControl: Send + Sync + fmt::Debug {
    fn close(&self);
}

// === impl BrokerOptions ===

impl BrokerOptions {
    /// The usual options: consume, with the usual bound.
    pub fn new(url: impl Into<String>, prefix: impl Into<String>) -> Self {
        let (url, prefix) = (url.into(), prefix.into());
        Self {
            url,
            prefix,
            ca_file: None,
            consume: true,
            tickets_max: notification::limits::BROKER_TICKETS,
        }
    }

    /// The addresses.
    pub fn servers(&self) -> impl Iterator<Item = &str> {
        self.url.split(',').map(str::trim)
    }

    /// Checks what needs no connection.
    ///
    /// # Errors
    /// When the prefix cannot be one.
    pub fn check(&self) -> Result<(), QueueError> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if (1..=64).contains(&self.prefix.len()) && self.prefix.bytes().all(is_plain) {
            return Ok(());
        }
        let message = "the prefix of the queues must be 1 to 64 of A-Z, a-z, 0-9, - and _";
        Err(QueueError::Refused(message.to_owned()))
    }
}

impl fmt::Debug for BrokerOptions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The URL has a password in it.
        formatter
            .debug_struct("BrokerOptions")
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

// === impl Broker ===

impl Broker {
    /// Starts to connect by `protocol`, and returns at once.
    pub fn open<P: Protocol>(
        protocol: P,
        options: &BrokerOptions,
        clock: Clock,
        random: fastrand::Rng,
    ) -> Self {
        let status = Arc::new(LinkStatus::new(P::NAME));
        let shared = Arc::new(BrokerState {
            clock,
            status: Arc::clone(&status),
            capacity: BrokerCapacity::new(),
            held: Arc::new(HeldTickets::new()),
            link: watch::Sender::new(None::<Arc<P::Link>>),
        });
        let mut tasks = Tasks::default();
        let supervisor = supervisor::LinkSupervisor {
            protocol,
            shared: Arc::clone(&shared),
            consume: options.consume,
            random,
            short_links: 0,
        };
        tasks.spawn("broker-session", supervisor.run());
        // One object behind several traits, so that a stage holds no more than it may use.
        let publisher: Arc<dyn Publish<Ticket>> = Arc::clone(&shared) as _;
        let consumer: Arc<dyn Consume<Ticket>> = Arc::clone(&shared) as _;
        Self { publisher, consumer, control: shared, status, tasks }
    }

    /// The queue's side for dispatch.
    ///
    /// Publishing answers `Unconfirmed` within [`PUBLISH_TIMEOUT`](crate::broker::limits::PUBLISH_TIMEOUT) while the broker is
    /// away, and there is no room; likewise for priorities of which the broker takes no more.
    pub fn publisher(&self) -> Arc<dyn Publish<Ticket>> {
        Arc::clone(&self.publisher)
    }

    /// The queue's side for collect.
    ///
    /// Receiving waits while the broker is away. A message that is no ticket is never received.
    pub fn consumer(&self) -> Arc<dyn Consume<Ticket>> {
        Arc::clone(&self.consumer)
    }

    /// True while there is a link to the broker, with everything declared, that did not fail at once.
    pub fn available(&self) -> watch::Receiver<bool> {
        self.status.available.subscribe()
    }

    /// Reason for which there is no link, in words for operators, without secrets; `None` while there is one.
    pub fn trouble(&self) -> Option<String> {
        self.status.trouble().map(|error| error.0)
    }

    /// Count of failures of the link, with the reason of the last, whether or not it has come back since.
    pub fn failures(&self) -> watch::Receiver<Failures> {
        self.status.failures.subscribe()
    }

    /// Turns into the task that keeps the link, once it has ended. Unless the queue is closed, it never should.
    pub fn ended(&self) -> watch::Receiver<Option<Ended>> {
        self.tasks.ended()
    }

    /// The queue's tasks, for tests of their supervision.
    pub fn tasks(&self) -> &Tasks {
        &self.tasks
    }

    /// Publishes and delivers no more. Received tickets can still be acknowledged; the others are given back.
    pub fn close(&self) {
        self.control.close();
    }

    /// Closes, and waits until everything that was received is answered for and the connection has ended.
    pub async fn drain(mut self) {
        self.close();
        self.tasks.drain().await;
    }
}

// === impl LinkStatus ===

impl LinkStatus {
    fn new(name: &'static str) -> Self {
        let (available, closed) = (watch::Sender::new(false), watch::Sender::new(false));
        let (trouble, failures) = (Mutex::default(), watch::Sender::default());
        Self { name, available, trouble, failures, closed }
    }

    pub(crate) fn trouble(&self) -> Option<BrokerError> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn is_closed(&self) -> bool {
        *self.closed.borrow()
    }

    /// Waits until the queue is closed.
    async fn closed(&self) {
        let mut closed = self.closed.subscribe();
        // The sender lives in this status.
        let _always = closed.wait_for(|closed| *closed).await;
    }

    fn went_up(&self) {
        let before = self.set_trouble(None);
        self.available.send_replace(true);
        let again = if before.is_some() { "again" } else { "for the first time" };
        tracing::info!(broker = self.name, "linked {again}");
    }

    /// Notes a failure of the link, and logs it once for as long as it is the same.
    fn went_down(&self, error: &BrokerError) {
        self.available.send_replace(false);
        let before = self.set_trouble(Some(error.clone()));
        self.failures.send_modify(|failures| {
            failures.count += 1;
            failures.last = Some(error.clone());
        });
        if before.as_ref() == Some(error) {
            tracing::debug!(broker = self.name, %error, "still no link");
        } else {
            tracing::warn!(broker = self.name, %error, "no link: trying again and again");
        }
    }

    fn set_trouble(&self, trouble: Option<BrokerError>) -> Option<BrokerError> {
        std::mem::replace(
            &mut *self.trouble.lock().unwrap_or_else(PoisonError::into_inner),
            trouble,
        )
    }
}

// === impl BrokerState ===

impl<L: Link> BrokerState<L> {
    /// The wall time as the vocabulary has it.
    fn now(&self) -> Timestamp {
        Timestamp::from_unix(self.clock.wall())
    }
}

impl<L: Link> QueueControl for BrokerState<L> {
    fn close(&self) {
        // First, so that all that is woken by the rest sees why.
        self.status.closed.send_replace(true);
        self.capacity.set_linked(false);
        self.held.close();
        // Wakes the tasks that wait for a link.
        self.link.send_modify(|_| ());
    }
}

#[async_trait]
impl<L: Link> Consume<Ticket> for BrokerState<L> {
    async fn receive(&self, lowest: Priority, items: usize) -> Vec<Message<Ticket>> {
        self.held.receive(lowest, items).await
    }
}
