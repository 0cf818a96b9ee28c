//! Servers of a test's own, which it kills and starts again.

use flow::Clock;
use testbed::aws::ElasticMq;
use testbed::{Direction, Kafka, Nats, Proxy, RabbitMq};

use crate::command::PATIENCE;
use crate::systems::System;

/// A server that keeps what it confirmed, whatever happens to it.
#[derive(Debug)]
pub(crate) enum OwnServer {
    Kafka(Kafka),
    /// Of Kinesis there is no server here that keeps what it confirmed. What clients see of one that goes away and comes back is all
    /// the same: an answer that is lost, connections that are closed, others that are refused.
    Kinesis(Proxy),
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
            System::Kinesis => {
                Self::Kinesis(Proxy::before(&testbed::aws::shared_moto_url().unwrap()).unwrap())
            }
            System::SqsFifo => unreachable!("nothing tests that"),
        })
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Self::Kafka(server) => server.url(),
            Self::Kinesis(link) => link.url().to_owned(),
            Self::Nats(server) => server.url(),
            Self::RabbitMq(server) => server.url(),
            Self::Sqs(server) => server.url(),
        }
    }

    pub(crate) fn restart(&mut self) {
        let restarted = tokio::task::block_in_place(|| match self {
            Self::Kafka(server) => server.kill().and_then(|()| server.start_again()),
            Self::Kinesis(link) => {
                lose_an_answer(link);
                Ok(())
            }
            Self::Nats(server) => server.kill().and_then(|()| server.start_again()),
            Self::RabbitMq(server) => server.kill().and_then(|()| server.start_again()),
            Self::Sqs(server) => server.kill().and_then(|()| server.start_again()),
        });
        restarted.unwrap();
    }
}

/// Has the next answer be lost, with all connections, and new ones be refused for a moment.
fn lose_an_answer(link: &Proxy) {
    link.cut_after_bytes(Direction::ToClient, 0);
    let clock = Clock::system();
    let from = clock.monotonic();
    while link.is_cut_pending() {
        assert!(clock.monotonic() < from + PATIENCE, "nothing is asked of Kinesis");
        std::thread::yield_now();
    }
    link.cut();
    link.pass();
}
