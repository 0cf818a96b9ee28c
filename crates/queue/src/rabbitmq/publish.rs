//! Publishing with confirms, a window at a time.

use futures_util::future::join_all;
use lapin::options::BasicPublishOptions;
use lapin::{BasicProperties, Channel, Confirmation};
use tokio::time::{Instant, timeout_at};

use super::topology::RabbitMqTopology;
use crate::broker::error::BrokerError;
use crate::broker::limits::PUBLISH_TIMEOUT;
use crate::broker::link::TimedTicket;
use crate::ticket;

/// Survives a restart of the broker.
const PERSISTENT: u8 = 2;

/// Publishes in order, and answers per ticket by `deadline`.
///
/// All are started before the first is waited for: one after the other, each would wait for the socket. The confirms are waited
/// for in order, which costs one wake-up where they arrive together.
pub(super) async fn publish(
    channel: &Channel,
    topology: &RabbitMqTopology,
    tickets: &[TimedTicket],
    deadline: Instant,
) -> Vec<Result<(), BrokerError>> {
    let bodies: Vec<_> = tickets.iter().map(|timed| ticket::encode(&timed.ticket)).collect();
    let started = tickets.iter().zip(&bodies).map(|(timed, body)| {
        let key = timed.ticket.priority.as_str().into();
        // Returned when there is no queue for it.
        let options = BasicPublishOptions { mandatory: true, ..Default::default() };
        channel.basic_publish(topology.exchange().into(), key, options, body, properties(timed))
    });
    let Ok(sent) = timeout_at(deadline, join_all(started)).await else {
        // Some may be on their way. They are issued anew all the same, and the store refuses the second by its epoch.
        return vec![Err(late()); tickets.len()];
    };
    let mut answers = Vec::with_capacity(tickets.len());
    for sent in sent {
        let confirmed = match sent {
            Ok(confirm) => timeout_at(deadline, confirm).await.map_err(|_late| late()),
            Err(error) => Ok(Err(error)),
        };
        answers.push(confirmed.and_then(answer));
    }
    answers
}

fn answer(confirmed: lapin::Result<Confirmation>) -> Result<(), BrokerError> {
    match confirmed {
        Ok(Confirmation::Ack(None)) => Ok(()),
        Ok(Confirmation::Ack(Some(_returned))) => {
            Err(BrokerError("its queue was deleted, and is declared again".to_owned()))
        }
        Ok(Confirmation::Nack(_returned)) => {
            Err(BrokerError("its queue is full: there are too few consumers".to_owned()))
        }
        Ok(Confirmation::NotRequested) => {
            Err(BrokerError("the channel has no confirms".to_owned()))
        }
        Err(error) => Err(BrokerError(format!("the channel failed ({error})"))),
    }
}

fn properties(timed: &TimedTicket) -> BasicProperties {
    // Zero would mean: only if a consumer takes it at once.
    let lives = timed.lives.as_millis().max(1).to_string();
    BasicProperties::default().with_delivery_mode(PERSISTENT).with_expiration(lives.into())
}

fn late() -> BrokerError {
    BrokerError(format!("not within {} s", PUBLISH_TIMEOUT.as_secs()))
}
