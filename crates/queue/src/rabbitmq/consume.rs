//! Consuming: what arrives is put into stock, and what is no ticket is rejected.

use futures_util::{FutureExt, StreamExt};
use lapin::options::{BasicAckOptions, BasicConsumeOptions, BasicNackOptions, BasicRejectOptions};
use lapin::types::FieldTable;
use lapin::{Acker, Channel};

use crate::broker::link::{Answer, Fault};
use crate::broker::stock::Stock;
use crate::ticket;

/// A message of the broker.
#[derive(Debug)]
pub(super) struct Delivered(Acker);

/// Consumes `queue` until the broker ends the consumer.
///
/// # Errors
/// When the channel or the connection fails.
pub(super) async fn consume(
    channel: &Channel,
    queue: String,
    stock: &Stock<Delivered>,
) -> lapin::Result<()> {
    // The broker chooses the name of the consumer.
    let (name, options) = ("".into(), BasicConsumeOptions::default());
    let mut consumer =
        channel.basic_consume(queue.as_str().into(), name, options, FieldTable::default()).await?;
    while let Some(delivery) = consumer.next().await {
        let delivery = delivery?;
        match ticket::decode(&delivery.data) {
            Ok(ticket) => stock.put(ticket, Delivered(delivery.acker)),
            Err(error) => {
                tracing::warn!(%queue, %error, "a message is no ticket: it goes to the dead letters");
                delivery.acker.reject(BasicRejectOptions { requeue: false }).await?;
            }
        }
    }
    Ok(())
}

// === impl Delivered ===

/// The first poll of each hands the answer to the connection. The rest would wait until it is written to the socket, which
/// says nothing: brokers do not confirm answers.
impl Answer for Delivered {
    fn acknowledge(&self) -> Result<(), Fault> {
        match self.0.ack(BasicAckOptions::default()).now_or_never() {
            None | Some(Ok(true)) => Ok(()),
            Some(Ok(false)) => Err(Fault("the connection that it came by is gone".to_owned())),
            Some(Err(error)) => Err(Fault(error.to_string())),
        }
    }

    fn give_back(&self) {
        let requeue = BasicNackOptions { requeue: true, ..Default::default() };
        // When the connection is gone, the broker gives it to somebody else anyway.
        let _handed_over = self.0.nack(requeue).now_or_never();
    }

    fn keep(&self) {
        // A connection that lives says so for all its messages.
    }
}
