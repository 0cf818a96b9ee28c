//! Consuming: a ticket that arrives is held, and a message that is no ticket is rejected.

use futures_util::{FutureExt, StreamExt};
use lapin::options::{
    BasicAckOptions, BasicCancelOptions, BasicConsumeOptions, BasicNackOptions, BasicRejectOptions,
};
use lapin::types::FieldTable;
use lapin::{Acker, Channel, Consumer};
use tokio::sync::Mutex;

use crate::broker::error::BrokerError;
use crate::broker::held_tickets::{BrokerMessage, HeldTickets};
use crate::ticket;

/// A channel and the consumer on it.
#[derive(Debug)]
pub(super) struct RabbitMqConsumer {
    /// Lives as long as the connection, since acknowledgements travel by the channel of the delivery.
    channel: Channel,
    consumer: Mutex<Option<Consumer>>,
}

/// A message of the broker.
#[derive(Debug)]
pub(super) struct RabbitMqMessage(Acker);

// === impl RabbitMqConsumer ===

impl RabbitMqConsumer {
    pub(super) fn new(channel: Channel) -> Self {
        Self { channel, consumer: Mutex::new(None) }
    }

    /// Consumes `queue` until the broker ends the consumer.
    ///
    /// # Errors
    /// When the channel or the connection fails.
    pub(super) async fn run(
        &self,
        queue: &str,
        held: &HeldTickets<RabbitMqMessage>,
    ) -> lapin::Result<()> {
        let mut consumer = self.consumer.lock().await;
        // The broker chooses the name of the consumer.
        let (name, options) = ("".into(), BasicConsumeOptions::default());
        let none = FieldTable::default();
        let begun = self.channel.basic_consume(queue.into(), name, options, none).await?;
        // Kept beyond this future, which is dropped when the queue closes: `stop` ends the consumer and takes the rest of its
        // messages.
        put_all(consumer.insert(begun), held).await
    }

    /// Ends the consumer, and holds the tickets under way.
    ///
    /// # Errors
    /// The errors of [`run`](Self::run).
    pub(super) async fn stop(&self, held: &HeldTickets<RabbitMqMessage>) -> lapin::Result<()> {
        let Some(mut consumer) = self.consumer.lock().await.take() else { return Ok(()) };
        self.channel.basic_cancel(consumer.tag(), BasicCancelOptions::default()).await?;
        // The broker may have sent some more before it ended the consumer.
        put_all(&mut consumer, held).await
    }
}

/// Holds what arrives, until `consumer` ends.
async fn put_all(
    consumer: &mut Consumer,
    held: &HeldTickets<RabbitMqMessage>,
) -> lapin::Result<()> {
    while let Some(delivery) = consumer.next().await {
        let delivery = delivery?;
        match ticket::decode(&delivery.data) {
            Ok(ticket) => held.put(ticket, RabbitMqMessage(delivery.acker)),
            Err(error) => {
                let queue = consumer.queue();
                tracing::warn!(%queue, %error, "a message is no ticket: it goes to the dead letters");
                delivery.acker.reject(BasicRejectOptions { requeue: false }).await?;
            }
        }
    }
    Ok(())
}

// === impl RabbitMqMessage ===

/// The first poll of each hands the answer to the connection. The rest would wait until it is written to the socket, which
/// says nothing: brokers do not confirm answers.
impl BrokerMessage for RabbitMqMessage {
    fn acknowledge(&self) -> Result<(), BrokerError> {
        match self.0.ack(BasicAckOptions::default()).now_or_never() {
            None | Some(Ok(true)) => Ok(()),
            Some(Ok(false)) => {
                Err(BrokerError("the connection that it came by is gone".to_owned()))
            }
            Some(Err(error)) => Err(BrokerError(error.to_string())),
        }
    }

    fn give_back(&self) {
        let requeue = BasicNackOptions { requeue: true, ..Default::default() };
        // When the connection is gone, the broker gives it out again anyway.
        let _handed_over = self.0.nack(requeue).now_or_never();
    }

    fn keep(&self) {
        // A live connection keeps all its messages held.
    }
}
