//! Tickets through Amazon SQS.
//!
//! A standard queue per priority, `<prefix>-urgent`, `-normal` and `-bulk`, each found or created. SQS has no connection: a link
//! is the configuration under which requests are made, and it is lost when one fails or a probe is not answered. Every request carries ten
//! tickets, and every entry of an answer is looked at.
//!
//! SQS keeps no order and no bound. A publisher looks how many tickets wait after each eighth of the bound that it has published, and takes no more
//! for a queue that is full; a few publishers may go over it by as much each.
//!
//! - `topology`: the queues.
//! - `publish` and `consume`: the two directions.
//! - `answers`: acknowledgements, in batches.

mod answers;
mod consume;
mod publish;
mod topology;

use std::sync::Arc;

use flow::Clock;
use notification::Priority;
use stream::aws::{AwsSettings, AwsUrl, sdk_config};
use tokio::time::{Instant, sleep};

use crate::broker::capacity::BrokerCapacity;
use crate::broker::error::BrokerError;
use crate::broker::held_tickets::HeldTickets;
use crate::broker::limits::LINK_HEARTBEAT;
use crate::broker::link::{Declared, Link, Protocol, TimedTicket};
use crate::{Broker, BrokerOptions, QueueError};
use answers::SqsAnswers;
use consume::{SqsConsumer, SqsTicket};
use publish::SqsPublisher;
use topology::SqsTopology;

/// Options under which links are made.
#[derive(Debug)]
struct SqsProtocol {
    settings: AwsSettings,
    prefix: String,
    tickets_max: u64,
}

/// The queues, and what is under way with them.
#[derive(Debug)]
struct SqsLink {
    topology: Arc<SqsTopology>,
    publisher: SqsPublisher,
    /// By the code of their priority.
    consumers: Vec<SqsConsumer>,
    answers: Arc<SqsAnswers>,
}

// === open ===

/// Opens the queues of `options.prefix` in the region of `options.url`: `sqs://REGION`, with the parameters `endpoint`, `profile`, `role`,
/// `sts_endpoint` and `external_id`, or a fixed key as `sqs://KEY:SECRET@REGION`; without these, credentials are found as AWS's own tools find
/// them. Connects in the background.
///
/// # Errors
/// When the URL or the prefix cannot be one; the message holds no secret.
pub fn open(
    options: &BrokerOptions,
    clock: Clock,
    random: fastrand::Rng,
) -> Result<Broker, QueueError> {
    options.check()?;
    let refuse = |error: stream::StreamError| {
        QueueError::Refused(format!("the address of SQS is not sqs://REGION: {error}"))
    };
    let AwsUrl { name, mut aws, parameters } =
        AwsUrl::parse(&options.url, "sqs").map_err(refuse)?;
    if let Some((parameter, _)) = parameters.first() {
        return Err(refuse(AwsUrl::unknown_parameter(parameter, "")));
    }
    if !name.is_empty() {
        aws.region = Some(name);
    }
    if options.ca_file.is_some() {
        aws.ca_file.clone_from(&options.ca_file);
    }
    let (prefix, tickets_max) = (options.prefix.clone(), options.tickets_max);
    let protocol = SqsProtocol { settings: aws, prefix, tickets_max };
    Ok(Broker::open(protocol, options, clock, random))
}

// === impl SqsProtocol ===

impl Protocol for SqsProtocol {
    type Link = SqsLink;

    const NAME: &'static str = "SQS";

    async fn connect(&self, _attempt: usize) -> Result<SqsLink, BrokerError> {
        let config = sdk_config(&self.settings).await;
        let config = config.map_err(|error| BrokerError(error.to_string()))?;
        // Apart, as it is large: three queues side by side.
        let create = Box::pin(SqsTopology::create(config, &self.prefix));
        let topology = Arc::new(create.await?);
        let publisher = SqsPublisher::new(Arc::clone(&topology), self.tickets_max);
        let answers = Arc::new(SqsAnswers::start(Arc::clone(&topology)));
        let consumer = |priority: &Priority| {
            SqsConsumer::new(Arc::clone(&topology), *priority, Arc::clone(&answers))
        };
        let consumers = Priority::ALL.iter().map(consumer).collect();
        Ok(SqsLink { topology, publisher, consumers, answers })
    }
}

// === impl SqsLink ===

impl Link for SqsLink {
    type Message = SqsTicket;

    async fn declare(&self) -> Result<Declared, BrokerError> {
        self.topology.declare().await?;
        let waiting = self.topology.waiting().await?;
        Ok(Declared { waiting, tickets_max: self.publisher.tickets_max() })
    }

    async fn publish(
        &self,
        tickets: &[TimedTicket],
        deadline: Instant,
    ) -> Vec<Result<(), BrokerError>> {
        self.publisher.publish(tickets, deadline).await
    }

    async fn consume(&self, priority: Priority, held: &Arc<HeldTickets<SqsTicket>>) -> BrokerError {
        match self.consumers.get(usize::from(priority.code())) {
            Some(consumer) => consumer.run(held).await,
            None => BrokerError("nothing is consumed here".to_owned()),
        }
    }

    async fn stop(&self, _held: &Arc<HeldTickets<SqsTicket>>) {
        for consumer in &self.consumers {
            consumer.stop().await;
        }
    }

    async fn lost(&self, _capacity: &BrokerCapacity) -> BrokerError {
        loop {
            sleep(LINK_HEARTBEAT).await;
            if let Err(error) = self.topology.probe().await {
                return error;
            }
        }
    }

    async fn close(&self) {
        self.answers.finish().await;
    }
}
