//! Tickets through Apache Kafka, 3.9 or later.
//!
//! Tickets wait in a topic per priority, each with several partitions. Consuming processes are members of a group per topic, so each
//! partition is with one of them; no more of them get tickets than there are partitions. A position is committed once all below it is
//! acknowledged. Kafka has no bound for a topic's length: publishers count what waits, and refuse more than the bound themselves.
//!
//! A ticket that is given back is published again, and then the first is done: Kafka gives nothing twice to a group (decision 0043).
//!
//! - `topology`: the topics, created again when they are gone, and what waits in them.
//! - `publish` and `consume`: the two directions.

mod consume;
mod publish;
mod topology;

use std::sync::Arc;

use flow::Clock;
use futures_util::future::join_all;
use krafka::{CloseOptions, Kafka};
use notification::Priority;
use stream::StreamError;
use stream::kafka::{KafkaSettings, connect, partitions};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use crate::broker::capacity::BrokerCapacity;
use crate::broker::error::BrokerError;
use crate::broker::held_tickets::HeldTickets;
use crate::broker::limits::{LINK_HEARTBEAT, LINK_TIMEOUT, PUBLISH_TIMEOUT};
use crate::broker::link::{Declared, Link, Protocol, TimedTicket};
use crate::{Broker, BrokerOptions, QueueError};
use consume::{KafkaConsumer, KafkaMessage};
use publish::TicketProducer;
use topology::KafkaTopology;

/// Options under which links to the broker are made.
#[derive(Debug)]
struct KafkaProtocol {
    topology: KafkaTopology,
    consume: bool,
    /// Draws the jitter of the members' pauses.
    random: fastrand::Rng,
}

/// Connections to a cluster.
#[derive(Debug)]
struct KafkaLink {
    kafka: Kafka,
    topology: KafkaTopology,
    producer: TicketProducer,
    /// Consumers by the code of their priority; empty in a process that only publishes.
    consumers: Vec<KafkaConsumer>,
    /// A publication was not answered in time: is the cluster there?
    suspected: Notify,
}

// === open ===

/// Opens the topics that begin with `options.prefix` in the cluster at `options.url`: `kafka://user:password@host:port,host:port`, with
/// the parameters of [`KafkaSettings`] but for a topic and a group. Connects in the background.
///
/// # Errors
/// When the URL or the prefix cannot be one; the message holds no secret.
pub fn open(
    options: &BrokerOptions,
    clock: Clock,
    mut random: fastrand::Rng,
) -> Result<Broker, QueueError> {
    options.check()?;
    let mut settings = settings(&options.url)?;
    if !settings.topic.is_empty() || settings.group.is_some() {
        let text = "the address of the queue in Kafka names a topic or a group: its names begin with the prefix";
        return Err(QueueError::Refused(text.to_owned()));
    }
    settings.ca_file = settings.ca_file.or_else(|| options.ca_file.clone());
    let topology = KafkaTopology {
        settings,
        prefix: options.prefix.clone(),
        tickets_max: options.tickets_max,
    };
    let protocol = KafkaProtocol { topology, consume: options.consume, random: random.fork() };
    Ok(Broker::open(protocol, options, clock, random))
}

/// Reads an address; several of one cluster are its brokers.
fn settings(url: &str) -> Result<KafkaSettings, QueueError> {
    let refused = |error: StreamError| QueueError::Refused(error.to_string());
    if url.matches("://").count() <= 1 {
        return url.trim().parse().map_err(refused);
    }
    let parsed: Result<Vec<KafkaSettings>, _> =
        url.split(',').map(|url| url.trim().parse()).collect();
    let mut servers = parsed.map_err(refused)?.into_iter();
    let Some(mut settings) = servers.next() else {
        return Err(QueueError::Refused("there is no address".to_owned()));
    };
    settings.brokers.extend(servers.flat_map(|server| server.brokers));
    Ok(settings)
}

// === impl KafkaProtocol ===

impl Protocol for KafkaProtocol {
    type Link = KafkaLink;

    const NAME: &'static str = "Kafka";

    async fn connect(&self, attempt: usize) -> Result<KafkaLink, BrokerError> {
        let mut settings = self.topology.settings.clone();
        let brokers = settings.brokers.len().max(1);
        settings.brokers.rotate_left(attempt % brokers);
        let kafka = connect(&settings, LINK_TIMEOUT).await.map_err(of_stream)?;
        let producer = TicketProducer::new(&kafka, &self.topology).await?;
        let mut link = KafkaLink {
            kafka,
            topology: self.topology.clone(),
            producer,
            consumers: Vec::new(),
            suspected: Notify::new(),
        };
        link.declare().await?;
        for priority in Priority::ALL.iter().filter(|_priority| self.consume) {
            let settings = self.topology.of_member(*priority);
            link.consumers.push(KafkaConsumer::new(*priority, settings, self.random.clone())?);
        }
        Ok(link)
    }
}

// === impl KafkaLink ===

impl Link for KafkaLink {
    type Message = KafkaMessage;

    async fn declare(&self) -> Result<Declared, BrokerError> {
        let counts = self.topology.create(&self.kafka).await?;
        self.producer.set_partitions(counts);
        let waiting = self.topology.waiting(&self.kafka, counts).await?;
        let tickets_max = self.topology.tickets_max;
        self.producer.set_room(waiting, tickets_max);
        Ok(Declared { waiting, tickets_max })
    }

    async fn publish(
        &self,
        tickets: &[TimedTicket],
        deadline: Instant,
    ) -> Vec<Result<(), BrokerError>> {
        let (answers, all_in_time) = self.producer.publish(&self.kafka, tickets, deadline).await;
        if !all_in_time {
            self.suspected.notify_one();
        }
        answers
    }

    async fn consume(
        &self,
        priority: Priority,
        held: &Arc<HeldTickets<KafkaMessage>>,
    ) -> BrokerError {
        match self.consumers.get(usize::from(priority.code())) {
            Some(consumer) => consumer.run(held).await,
            None => BrokerError("nothing is consumed here".to_owned()),
        }
    }

    async fn stop(&self, _held: &Arc<HeldTickets<KafkaMessage>>) {
        join_all(self.consumers.iter().map(KafkaConsumer::stop)).await;
    }

    async fn lost(&self, _capacity: &BrokerCapacity) -> BrokerError {
        let give_back = async {
            let given_back = self.consumers.iter();
            let republished = given_back.map(|consumer| consumer.give_back(&self.producer));
            let mut republished: Vec<_> = republished.map(Box::pin).collect();
            if republished.is_empty() {
                return std::future::pending().await;
            }
            let (error, _which, _rest) =
                futures_util::future::select_all(republished.drain(..)).await;
            error
        };
        tokio::select! {
            error = self.probe() => error,
            error = give_back => error,
        }
    }

    async fn close(&self) {
        for consumer in &self.consumers {
            consumer.give_back_rest(&self.producer).await;
        }
        let options = CloseOptions::new().timeout(PUBLISH_TIMEOUT / 2);
        let _late = self.producer.producer.close_with(options).await;
    }
}

impl KafkaLink {
    /// Asks for a topic again and again, until no answer comes.
    async fn probe(&self) -> BrokerError {
        loop {
            let _suspected = timeout(LINK_HEARTBEAT, self.suspected.notified()).await;
            let settings = self.topology.of_member(Priority::Urgent);
            match partitions(&self.kafka, &settings, LINK_HEARTBEAT).await {
                // One that was deleted is found when something is published.
                Ok(_) | Err(StreamError::Refused(_)) => {}
                Err(error @ StreamError::Unavailable(_)) => return of_stream(error),
            }
        }
    }
}

impl Drop for KafkaLink {
    fn drop(&mut self) {
        for consumer in &self.consumers {
            consumer.end();
        }
        // It would go on for as long as a record may take, and warn of it.
        let producer = Arc::clone(&self.producer.producer);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                let options = CloseOptions::new().timeout(PUBLISH_TIMEOUT / 2);
                let _late = producer.close_with(options).await;
            });
        }
    }
}

fn of_stream(error: StreamError) -> BrokerError {
    let (StreamError::Unavailable(text) | StreamError::Refused(text)) = error;
    BrokerError(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_addresses_are_brokers_of_one_cluster() {
        for url in [
            "kafka://u:hidden@a:1,b:2?security=sasl_ssl",
            "kafka://u:hidden@a:1?security=sasl_ssl,kafka://u:hidden@b:2",
        ] {
            let settings = settings(url).unwrap();
            assert_eq!(settings.brokers, ["a:1", "b:2"]);
            assert!(settings.has_tls());
        }
        let error = settings("kafka://u:hidden@a:b").unwrap_err().to_string();
        assert!(!error.contains("hidden"), "{error}");
    }
}
