//! Publishing with acknowledgements, a window at a time.

use async_nats::jetstream::Context;
use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use bytes::Bytes;
use tokio::time::{Instant, timeout_at};

use super::topology::NatsTopology;
use crate::broker::error::BrokerError;
use crate::broker::limits::PUBLISH_TIMEOUT;
use crate::broker::link::TimedTicket;
use crate::ticket;

/// Publishes in order, and answers per ticket by `deadline`.
///
/// All are sent before the first acknowledgement is waited for. The stream deletes them by age, as no server of this
/// version has a time to live per message.
pub(super) async fn publish(
    jetstream: &Context,
    topology: &NatsTopology,
    tickets: &[TimedTicket],
    deadline: Instant,
) -> Vec<Result<(), BrokerError>> {
    let mut sent = Vec::with_capacity(tickets.len());
    for TimedTicket { ticket, .. } in tickets {
        let body = Bytes::copy_from_slice(&ticket::encode(ticket));
        let publish = jetstream.publish(topology.subject(ticket.priority), body);
        sent.push(timeout_at(deadline, publish).await);
    }
    let mut answers = Vec::with_capacity(tickets.len());
    for sent in sent {
        answers.push(match sent {
            Ok(Ok(acknowledgement)) => match timeout_at(deadline, acknowledgement).await {
                Ok(Ok(_sequence)) => Ok(()),
                Ok(Err(error)) => Err(explain(&error)),
                // It may be stored all the same: it is issued anew, and the store refuses the second by its epoch.
                Err(_late) => Err(late()),
            },
            Ok(Err(error)) => Err(explain(&error)),
            Err(_late) => Err(late()),
        });
    }
    answers
}

fn explain(error: &PublishError) -> BrokerError {
    if error.kind() == PublishErrorKind::StreamNotFound {
        return BrokerError("its stream was deleted, and is created again".to_owned());
    }
    let cause = std::error::Error::source(error).map_or_else(String::new, ToString::to_string);
    BrokerError(format!("{error} {cause}: if it is full, there are too few consumers"))
}

fn late() -> BrokerError {
    BrokerError(format!("not within {} s", PUBLISH_TIMEOUT.as_secs()))
}
