//! Consuming: a batch is asked for as soon as there is a place for it; what is no ticket is terminated.

use std::sync::Arc;
use std::time::Duration;

use async_nats::Client;
use async_nats::jetstream::AckKind;
use async_nats::jetstream::consumer::PullConsumer;
use async_nats::jetstream::message::Acker;
use futures_util::{FutureExt, StreamExt};
use notification::{Priority, limits};
use tokio::task::unconstrained;

use super::is_connected;
use super::topology::Failure;
use crate::broker::link::{Answer, Fault};
use crate::broker::stock::Stock;
use crate::ticket;

/// A message of the broker.
pub(super) struct Delivered {
    acker: Acker,
    client: Client,
    /// Times that it was given out, this one included.
    deliveries: i64,
}

/// How long the server keeps a request for more tickets.
const ASK_EVERY: Duration = Duration::from_secs(30);
/// How long a ticket that is given back repeatedly stays away.
const REST: Duration = Duration::from_secs(1);

/// Consumes by `consumer` until that fails, and says why.
pub(super) async fn consume(
    consumer: &PullConsumer,
    priority: Priority,
    client: &Client,
    stock: &Arc<Stock<Delivered>>,
) -> Failure {
    loop {
        let wanted = stock.wants(priority, limits::PREFETCH_TICKETS).await;
        let asked = consumer.batch().max_messages(wanted).expires(ASK_EVERY).messages().await;
        let mut batch = match asked {
            Ok(batch) => batch,
            Err(error) => return Failure::Other(error.to_string()),
        };
        while let Some(message) = batch.next().await {
            match message {
                Ok(message) => put(message, client, stock),
                Err(error) => return Failure::Other(error.to_string()),
            }
        }
    }
}

fn put(message: async_nats::jetstream::Message, client: &Client, stock: &Stock<Delivered>) {
    let deliveries = message.info().map_or(1, |info| info.delivered);
    let (message, acker) = message.split();
    let delivered = Delivered { acker, client: client.clone(), deliveries };
    match ticket::decode(&message.payload) {
        Ok(ticket) => stock.put(ticket, delivered),
        Err(error) => {
            tracing::warn!(subject = %message.subject, %error, "a message is no ticket: it is terminated");
            // If it does not get there, the message comes again.
            let _terminated = delivered.answer(AckKind::Term);
        }
    }
}

// === impl Delivered ===

impl Delivered {
    /// Hands an answer to the connection, which sends it soon. Brokers do not confirm answers.
    fn answer(&self, kind: AckKind) -> Result<(), Fault> {
        if !is_connected(&self.client) {
            return Err(Fault("the connection that it came by is gone".to_owned()));
        }
        match unconstrained(self.acker.ack_with(kind)).now_or_never() {
            Some(Ok(())) => Ok(()),
            Some(Err(error)) => Err(Fault(error.to_string())),
            None => Err(Fault("the connection is busy".to_owned())),
        }
    }
}

impl Answer for Delivered {
    fn acknowledge(&self) -> Result<(), Fault> {
        self.answer(AckKind::Ack)
    }

    fn give_back(&self) {
        let rest = (self.deliveries > 1).then_some(REST);
        // If it does not get there, the server gives it to somebody else after a while.
        let _handed_over = self.answer(AckKind::Nak(rest));
    }

    fn keep(&self) {
        let _handed_over = self.answer(AckKind::Progress);
    }
}

impl std::fmt::Debug for Delivered {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Delivered")
            .field("deliveries", &self.deliveries)
            .finish_non_exhaustive()
    }
}
