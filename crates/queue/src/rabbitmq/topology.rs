//! Exchanges and queues.
//!
//! | name | what |
//! |---|---|
//! | `<prefix>` | direct exchange, by the word of the priority |
//! | `<prefix>.urgent`, `.normal`, `.bulk` | quorum queues of tickets |
//! | `<prefix>.dead` | headers exchange and quorum queue for messages that are no tickets |
//!
//! A ticket that expires, or that came back too often, is dead-lettered too, since a queue cannot tell its deaths apart. The
//! headers exchange can: it has a way on for rejected messages only. The dead-letter queue thus holds what an operator should
//! look at, and an outage of all consumers does not flood it.

use lapin::options::{ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Channel, ExchangeKind, Queue};
use notification::Priority;

use crate::broker::capacity::WaitingTickets;
use crate::broker::limits::{DEAD_MESSAGES, DEAD_MESSAGES_AGE, TICKET_DELIVERIES};

/// The names and bounds of one prefix.
#[derive(Debug, Clone)]
pub(super) struct RabbitMqTopology {
    pub(super) prefix: String,
    pub(super) tickets_max: u64,
}

// === impl RabbitMqTopology ===

impl RabbitMqTopology {
    /// The exchange that tickets are published to; their routing key is the word of their priority.
    pub(super) fn exchange(&self) -> &str {
        &self.prefix
    }

    /// The queue of `priority`.
    pub(super) fn queue(&self, priority: Priority) -> String {
        format!("{}.{priority}", self.prefix)
    }

    /// Name of the exchange and queue of messages that are no tickets.
    pub(super) fn dead(&self) -> String {
        format!("{}.dead", self.prefix)
    }

    /// Declares what is missing. Returns the tickets waiting per priority.
    pub(super) async fn declare(&self, channel: &Channel) -> lapin::Result<WaitingTickets> {
        // Before the queues that name it: a message that dies while there is no such exchange is gone.
        self.declare_exchange(channel, &self.dead(), ExchangeKind::Headers).await?;
        self.declare_dead_queue(channel).await?;
        self.declare_exchange(channel, self.exchange(), ExchangeKind::Direct).await?;
        let mut waiting = WaitingTickets::default();
        for (waiting, priority) in waiting.iter_mut().zip(Priority::ALL) {
            let queue = self.declare_ticket_queue(channel, *priority).await?;
            *waiting = u64::from(queue.message_count());
        }
        Ok(waiting)
    }

    async fn declare_ticket_queue(
        &self,
        channel: &Channel,
        priority: Priority,
    ) -> lapin::Result<Queue> {
        let name = self.queue(priority);
        let arguments = table([
            ("x-queue-type", text("quorum")),
            ("x-max-length", number(self.tickets_max)),
            // The publisher hears of a full queue. With `drop-head` a ticket that was confirmed would go.
            ("x-overflow", text("reject-publish")),
            ("x-delivery-limit", number(TICKET_DELIVERIES.into())),
            ("x-dead-letter-exchange", text(&self.dead())),
        ]);
        let queue = declare_queue(channel, &name, arguments).await?;
        let (options, key) = (QueueBindOptions::default(), priority.as_str());
        let none = FieldTable::default();
        let (name, exchange) = (name.into(), self.exchange().into());
        channel.queue_bind(name, exchange, key.into(), options, none).await?;
        Ok(queue)
    }

    async fn declare_dead_queue(&self, channel: &Channel) -> lapin::Result<()> {
        let name = self.dead();
        let age = u64::try_from(DEAD_MESSAGES_AGE.as_millis()).unwrap_or(u64::MAX);
        let arguments = table([
            ("x-queue-type", text("quorum")),
            ("x-max-length", number(DEAD_MESSAGES)),
            ("x-overflow", text("drop-head")),
            ("x-message-ttl", number(age)),
        ]);
        declare_queue(channel, &name, arguments).await?;
        // Without `-with-x`, headers that begin with `x-` are not looked at.
        let rejected =
            table([("x-match", text("all-with-x")), ("x-first-death-reason", text("rejected"))]);
        let options = QueueBindOptions::default();
        channel
            .queue_bind(name.as_str().into(), name.as_str().into(), "".into(), options, rejected)
            .await
    }

    async fn declare_exchange(
        &self,
        channel: &Channel,
        name: &str,
        kind: ExchangeKind,
    ) -> lapin::Result<()> {
        let options = ExchangeDeclareOptions { durable: true, ..Default::default() };
        channel.exchange_declare(name.into(), kind, options, FieldTable::default()).await
    }
}

async fn declare_queue(
    channel: &Channel,
    name: &str,
    arguments: FieldTable,
) -> lapin::Result<Queue> {
    let options = QueueDeclareOptions { durable: true, ..Default::default() };
    channel.queue_declare(name.into(), options, arguments).await
}

fn table<const N: usize>(entries: [(&str, AMQPValue); N]) -> FieldTable {
    let mut table = FieldTable::default();
    for (key, value) in entries {
        table.insert(key.into(), value);
    }
    table
}

fn text(text: &str) -> AMQPValue {
    AMQPValue::LongString(text.into())
}

fn number(number: u64) -> AMQPValue {
    AMQPValue::LongLongInt(i64::try_from(number).unwrap_or(i64::MAX))
}
