//! Servers of a test's own, which it kills and starts again.

use testbed::aws::ElasticMq;
use testbed::{Kafka, Nats, RabbitMq};

use crate::systems::System;

/// A server that keeps what it confirmed, whatever happens to it.
#[derive(Debug)]
pub(crate) enum OwnServer {
    Kafka(Kafka),
    Nats(Nats),
    RabbitMq(RabbitMq),
    Sqs(ElasticMq),
}

// === impl OwnServer ===

impl OwnServer {
    /// Starts one of `system`, which has one that can be killed.
    pub(crate) fn start(system: System) -> Self {
        tokio::task::block_in_place(|| match system {
            System::Kafka => Self::Kafka(Kafka::start().unwrap()),
            System::Nats => Self::Nats(Nats::start().unwrap()),
            System::RabbitMq => Self::RabbitMq(RabbitMq::start().unwrap()),
            System::Sqs => Self::Sqs(ElasticMq::start().unwrap()),
            System::Kinesis | System::SqsFifo => unreachable!("nothing tests that"),
        })
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Self::Kafka(server) => server.url(),
            Self::Nats(server) => server.url(),
            Self::RabbitMq(server) => server.url(),
            Self::Sqs(server) => server.url(),
        }
    }

    pub(crate) fn restart(&mut self) {
        let restarted = tokio::task::block_in_place(|| match self {
            Self::Kafka(server) => server.kill().and_then(|()| server.start_again()),
            Self::Nats(server) => server.kill().and_then(|()| server.start_again()),
            Self::RabbitMq(server) => server.kill().and_then(|()| server.start_again()),
            Self::Sqs(server) => server.kill().and_then(|()| server.start_again()),
        });
        restarted.unwrap();
    }
}
