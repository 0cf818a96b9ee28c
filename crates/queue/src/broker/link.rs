//! The seam between the shared part and a backend: the interface to its broker's protocol.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use notification::{Priority, Ticket};
use tokio::time::Instant;

use super::capacity::{BrokerCapacity, WaitingTickets};
use super::error::BrokerError;
use super::held_tickets::{BrokerMessage, HeldTickets};

/// Makes links.
pub trait Protocol: Send + Sync + fmt::Debug + 'static {
    /// The connection that it makes.
    type Link: Link;

    /// The broker's name.
    const NAME: &'static str;

    /// Connects, and declares what is missing. Several servers take turns by `attempt`. Dropping the future leaves
    /// nothing behind.
    fn connect(
        &self,
        attempt: usize,
    ) -> impl Future<Output = Result<Self::Link, BrokerError>> + Send;
}

/// A connection to a broker. Dropping it ends the connection.
pub trait Link: Send + Sync + fmt::Debug + 'static {
    /// Its handle on one message.
    type Message: BrokerMessage;

    /// Declares what is missing, and makes publishing work again. Returns the state of the queues.
    fn declare(&self) -> impl Future<Output = Result<Declared, BrokerError>> + Send;

    /// Publishes in order, and answers per ticket, in order, why it is not confirmed. Ends by `deadline`.
    fn publish(
        &self,
        tickets: &[TimedTicket],
        deadline: Instant,
    ) -> impl Future<Output = Vec<Result<(), BrokerError>>> + Send;

    /// Holds what arrives of `priority`, until that fails.
    fn consume(
        &self,
        priority: Priority,
        held: &Arc<HeldTickets<Self::Message>>,
    ) -> impl Future<Output = BrokerError> + Send;

    /// Consumes no more, and holds the tickets under way. No message is being consumed when this is called.
    fn stop(&self, held: &Arc<HeldTickets<Self::Message>>) -> impl Future<Output = ()> + Send;

    /// Waits until the connection is lost, and meanwhile says in `capacity` when the broker takes nothing.
    fn lost(&self, capacity: &BrokerCapacity) -> impl Future<Output = BrokerError> + Send;

    /// Ends the connection in good order.
    fn close(&self) -> impl Future<Output = ()> + Send;
}

/// A ticket and how long it is good.
#[derive(Debug, Clone, Copy)]
pub struct TimedTicket {
    /// The ticket.
    pub ticket: Ticket,
    /// Time left to the ticket, more than zero and [`notification::limits::TICKET_LEASE`] at most.
    pub lives: Duration,
}

/// The state of the broker's queues that a declaration found.
#[derive(Debug, Clone, Copy)]
pub struct Declared {
    /// The tickets waiting.
    pub waiting: WaitingTickets,
    /// Tickets of one priority that may wait, by the broker's own declaration.
    pub tickets_max: u64,
}
