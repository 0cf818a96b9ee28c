//! The link to the broker that carries tickets from producers to consumers.

use std::fmt::Display;
use std::sync::Arc;

use flow::Clock;
use flow::tasks::Ended;
use notification::Ticket;
use queue::{Broker, BrokerOptions, Consume, Publish};
use tokio::sync::watch;
use tokio::time::timeout;

use super::{Role, START_PATIENCE};
use crate::config::{BrokerKind, QueueConfig, ServerUrl};
use crate::exit::{CliError, FailureKind};

/// A link to a broker, which comes back by itself when it is lost.
#[derive(Debug)]
pub(super) struct BrokerLink {
    broker: Arc<Broker>,
    in_use: InUse,
}

/// Held by the stages that use the link. When the last one ends, tickets that were not received are given back, so that
/// other consumers need not wait for them while this process finishes what it has.
#[derive(Debug, Clone)]
pub(super) struct InUse {
    _closing: Arc<Closing>,
}

#[derive(Debug)]
struct Closing(Arc<Broker>);

// === impl BrokerLink ===

impl BrokerLink {
    /// Connects to the broker of the configuration, if there is one, and waits until it is reached.
    ///
    /// # Errors
    /// When its URL cannot be one, or it is not reached within [`START_PATIENCE`]. Every try is logged.
    pub(super) async fn open(
        role: Role,
        config: &QueueConfig,
        clock: Clock,
        random: &mut fastrand::Rng,
    ) -> Result<Option<Self>, CliError> {
        let Some(url) = &config.url else { return Ok(None) };
        let usual = BrokerOptions::new(url.expose(), config.prefix.as_str());
        let ca_file = config.ca_file.clone();
        let options = BrokerOptions { ca_file, consume: role.consumes(), ..usual };
        let opened = match url.broker() {
            Some(BrokerKind::RabbitMq) => queue::rabbitmq::open(&options, clock, random.fork()),
            Some(BrokerKind::Nats) => queue::nats::open(&options, clock, random.fork()),
            #[cfg(feature = "kafka")]
            Some(BrokerKind::Kafka) => queue::kafka::open(&options, clock, random.fork()),
            #[cfg(not(feature = "kafka"))]
            Some(BrokerKind::Kafka) => {
                return Err(refused(url, "this program was built without the feature `kafka`"));
            }
            #[cfg(feature = "sqs")]
            Some(BrokerKind::Sqs) => queue::sqs::open(&options, clock, random.fork()),
            #[cfg(not(feature = "sqs"))]
            Some(BrokerKind::Sqs) => {
                return Err(refused(url, "this program was built without the feature `sqs`"));
            }
            None => return Err(refused(url, "no broker has such URLs")),
        };
        let broker = opened.map_err(|error| refused(url, error))?;
        let mut available = broker.available();
        if timeout(START_PATIENCE, available.wait_for(|available| *available)).await.is_err() {
            let seconds = START_PATIENCE.as_secs();
            let trouble = broker.trouble().unwrap_or_else(|| "it does not answer".to_owned());
            let message =
                format!("the broker at {url} was not reached within {seconds} s: {trouble}");
            return Err(CliError::new(FailureKind::Failed, message));
        }
        tracing::info!(%url, "broker reached");
        let broker = Arc::new(broker);
        let in_use = InUse { _closing: Arc::new(Closing(Arc::clone(&broker))) };
        Ok(Some(Self { broker, in_use }))
    }

    /// Where producers publish.
    pub(super) fn publisher(&self) -> Arc<dyn Publish<Ticket>> {
        self.broker.publisher()
    }

    /// Where consumers receive.
    pub(super) fn consumer(&self) -> Arc<dyn Consume<Ticket>> {
        self.broker.consumer()
    }

    /// Its name for readiness, and whether it can be reached.
    pub(super) fn available(&self) -> (&'static str, watch::Receiver<bool>) {
        ("broker", self.broker.available())
    }

    /// Tells when the task that keeps it has ended.
    pub(super) fn ended(&self) -> watch::Receiver<Option<Ended>> {
        self.broker.ended()
    }

    /// The queue itself.
    #[cfg(test)]
    pub(super) fn broker(&self) -> &Broker {
        &self.broker
    }

    /// For a stage that uses the link, until it ends.
    pub(super) fn in_use(&self) -> InUse {
        self.in_use.clone()
    }

    /// Leaves the link to the stages that use it.
    pub(super) fn release(self) -> Arc<Broker> {
        self.broker
    }
}

/// Waits until everything that was received is answered for, and ends the connection.
pub(super) async fn close(broker: Arc<Broker>) {
    // A stage that was cut off may still have it; then the end of the process ends the connection.
    if let Some(broker) = Arc::into_inner(broker) {
        broker.drain().await;
    }
}

fn refused(url: &ServerUrl, error: impl Display) -> CliError {
    CliError::new(FailureKind::Config, format!("the queue {url} cannot be used: {error}"))
}

// === impl Closing ===

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.close();
    }
}
