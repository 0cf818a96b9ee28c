//! Consuming: a batch of tickets is requested as soon as there is a place for it; a message that is no ticket is terminated.

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::message::Acker;
use async_nats::jetstream::{AckKind, Context, Message};
use async_nats::{Client, StatusCode, Subscriber};
use futures_util::{FutureExt, StreamExt};
use notification::Priority;
use tokio::sync::Mutex;
use tokio::task::unconstrained;
use tokio::time::timeout;

use super::is_connected;
use super::topology::{NatsError, NatsTopology};
use crate::broker::error::BrokerError;
use crate::broker::held_tickets::{BrokerMessage, HeldTickets};
use crate::broker::limits::PREFETCH_TICKETS;
use crate::ticket;

/// Asks one consumer of the server for tickets.
#[derive(Debug)]
pub(super) struct NatsConsumer {
    jetstream: Context,
    client: Client,
    priority: Priority,
    /// Subject of requests for tickets.
    subject: String,
    /// Subject on which tickets arrive.
    inbox: String,
    subscriber: Mutex<Subscriber>,
}

/// A message of the broker.
pub(super) struct NatsMessage {
    acker: Acker,
    client: Client,
    /// Deliveries of the message, the present one included.
    deliveries: i64,
}

/// Time for which the server keeps a request for more tickets.
const ASK_EVERY: Duration = Duration::from_secs(30);
/// Further time after which a request is taken for lost.
const GRACE: Duration = Duration::from_secs(5);
/// Time for which a ticket that is given back repeatedly stays away.
const REST: Duration = Duration::from_secs(1);

// === impl NatsConsumer ===

impl NatsConsumer {
    /// # Errors
    /// When the connection is gone.
    pub(super) async fn new(
        jetstream: &Context,
        client: &Client,
        topology: &NatsTopology,
        priority: Priority,
    ) -> Result<Self, NatsError> {
        let inbox = client.new_inbox();
        let subscriber = client.subscribe(inbox.clone()).await;
        let subscriber = subscriber.map_err(|error| NatsError::Other(error.to_string()))?;
        Ok(Self {
            jetstream: jetstream.clone(),
            client: client.clone(),
            priority,
            subject: format!("$JS.API.CONSUMER.MSG.NEXT.{}.{priority}", topology.prefix),
            inbox,
            subscriber: Mutex::new(subscriber),
        })
    }

    /// Holds what arrives, until that fails; says why.
    pub(super) async fn run(&self, held: &Arc<HeldTickets<NatsMessage>>) -> NatsError {
        // Not owned by this future, which is dropped when the queue closes: `stop` takes the rest of its messages.
        let mut subscriber = self.subscriber.lock().await;
        loop {
            let wanted = held.wants(self.priority, PREFETCH_TICKETS).await;
            let fetched = match self.ask_for(wanted).await {
                Ok(()) => self.fetch(&mut subscriber, wanted, held),
                Err(failure) => return failure,
            };
            match timeout(ASK_EVERY + GRACE, fetched).await {
                Ok(Ok(())) => {}
                Ok(Err(failure)) => return failure,
                // The server ends every request, unless it never got it.
                Err(_late) => {
                    let text = format!("a request to {} was not answered", self.subject);
                    return NatsError::Other(text);
                }
            }
        }
    }

    /// Consumes no more, and holds the tickets under way.
    pub(super) async fn stop(&self, held: &Arc<HeldTickets<NatsMessage>>) {
        let mut subscriber = self.subscriber.lock().await;
        // The server sends no message after this; those that it sent before still come.
        if subscriber.drain().await.is_err() {
            return;
        }
        while let Some(message) = subscriber.next().await {
            if message.status.is_none() {
                self.put(message, held);
            }
        }
    }

    async fn ask_for(&self, tickets: usize) -> Result<(), NatsError> {
        let expires = ASK_EVERY.as_nanos();
        let request = format!("{{\"batch\":{tickets},\"expires\":{expires}}}").into();
        let (subject, inbox) = (self.subject.clone(), self.inbox.clone());
        let asked = self.client.publish_with_reply(subject, inbox, request).await;
        asked.map_err(|error| NatsError::Other(error.to_string()))
    }

    /// Holds `wanted` messages, or fewer if the server ends the request.
    async fn fetch(
        &self,
        subscriber: &mut Subscriber,
        wanted: usize,
        held: &Arc<HeldTickets<NatsMessage>>,
    ) -> Result<(), NatsError> {
        let mut missing = wanted;
        while missing > 0 {
            let Some(message) = subscriber.next().await else { return Err(NatsError::Lost) };
            match message.status {
                None => {
                    missing -= 1;
                    self.put(message, held);
                }
                // The server ends a request in this way when its time is over.
                Some(StatusCode::TIMEOUT) => return Ok(()),
                Some(StatusCode::NO_RESPONDERS) => {
                    return Err(NatsError::Other("its consumer was deleted".to_owned()));
                }
                Some(status) => {
                    let text = message.description.unwrap_or_default();
                    return Err(NatsError::Other(format!("it ended a request: {status} {text}")));
                }
            }
        }
        Ok(())
    }

    fn put(&self, message: async_nats::Message, held: &HeldTickets<NatsMessage>) {
        let message = Message { message, context: self.jetstream.clone() };
        let deliveries = message.info().map_or(1, |info| info.delivered);
        let (message, acker) = message.split();
        let delivered = NatsMessage { acker, client: self.client.clone(), deliveries };
        match ticket::decode(&message.payload) {
            Ok(ticket) => held.put(ticket, delivered),
            Err(error) => {
                let subject = &message.subject;
                tracing::warn!(%subject, %error, "a message is no ticket: it is terminated");
                // If it does not get there, the message comes again.
                let _terminated = delivered.answer(AckKind::Term);
            }
        }
    }
}

// === impl NatsMessage ===

impl NatsMessage {
    /// Hands an answer to the connection, which sends it soon. Brokers do not confirm answers.
    fn answer(&self, kind: AckKind) -> Result<(), BrokerError> {
        if !is_connected(&self.client) {
            return Err(BrokerError("the connection that it came by is gone".to_owned()));
        }
        // Without the task's budget: once it is used up, a connection with room would look as if it had none.
        match unconstrained(self.acker.ack_with(kind)).now_or_never() {
            Some(Ok(())) => Ok(()),
            Some(Err(error)) => Err(BrokerError(error.to_string())),
            None => Err(BrokerError("the connection is busy".to_owned())),
        }
    }
}

impl BrokerMessage for NatsMessage {
    fn acknowledge(&self) -> Result<(), BrokerError> {
        self.answer(AckKind::Ack)
    }

    fn give_back(&self) {
        let rest = (self.deliveries > 1).then_some(REST);
        // If it does not get there, the server gives it out again after a while.
        let _handed_over = self.answer(AckKind::Nak(rest));
    }

    fn keep(&self) {
        let _handed_over = self.answer(AckKind::Progress);
    }
}

impl std::fmt::Debug for NatsMessage {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("NatsMessage")
            .field("deliveries", &self.deliveries)
            .finish_non_exhaustive()
    }
}
