//! Places in real servers, each with what a test puts there and reads.

use std::sync::Arc;
use std::time::Duration;

use flow::Clock;
use krafka::admin::{CreateTopicsOptions, NewTopic};
use lapin::options::{ConfirmSelectOptions, QueueDeclareOptions};
use stream::aws::sdk_config;
use stream::aws::sqs_queue::SqsQueue;
use stream::connect::{AmqpAddress, NatsAddress};
use stream::kafka::{KafkaSettings, KafkaSource, KafkaTarget, connect};
use stream::kinesis::{KinesisSettings, KinesisSource, KinesisTarget, MemoryPositions};
use stream::nats::{NatsSource, NatsSourceOptions, NatsTarget};
use stream::rabbitmq::{RabbitMqSource, RabbitMqSourceOptions, RabbitMqTarget};
use stream::sqs::{SqsSettings, SqsSource, SqsTarget};
use stream::{Source, Target};
use testbed::unique_prefix;

/// The systems.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum System {
    Kafka,
    Kinesis,
    Nats,
    RabbitMq,
    Sqs,
    SqsFifo,
}

/// A place in one, by the URL for the command.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) system: System,
    pub(crate) url: String,
    server: String,
    name: String,
}

impl System {
    /// A place of its own in the server that tests share, or in the one at `server`.
    pub(crate) async fn place(self, server: Option<String>) -> Place {
        let shared = || match self {
            Self::Kafka => testbed::kafka::shared_url(),
            Self::Kinesis => testbed::aws::shared_moto_url(),
            Self::Nats => testbed::nats::shared_url(),
            Self::RabbitMq => testbed::rabbitmq::shared_url(),
            Self::Sqs | Self::SqsFifo => testbed::aws::shared_sqs_url(),
        };
        let server = server.unwrap_or_else(|| shared().unwrap());
        let mut name = unique_prefix();
        if self == Self::SqsFifo {
            name += ".fifo";
        }
        let url = match self {
            Self::Kafka => format!("{server}/{name}?group={name}"),
            Self::Kinesis => {
                format!("kinesis://k:s@{name}?region=eu-central-1&endpoint={server}&ordered=true")
            }
            Self::Nats => format!("{server}/{name}.in?consumer={name}"),
            Self::RabbitMq => format!("{server}?queue={name}"),
            Self::Sqs | Self::SqsFifo => {
                format!(
                    "sqs://k:s@{name}?region=eu-central-1&endpoint={server}&visibility_seconds=3"
                )
            }
        };
        let place = Place { system: self, url, server, name };
        place.create().await;
        place
    }
}

impl Place {
    async fn create(&self) {
        let (name, patience) = (self.name.clone(), Duration::from_secs(30));
        match self.system {
            System::Kafka => {
                let kafka = connect(&self.url.parse().unwrap(), patience).await.unwrap();
                let topic = NewTopic::new(name.clone(), 3, 1).unwrap();
                let created =
                    kafka.admin().create_topics([topic], CreateTopicsOptions::default()).await;
                created.unwrap().remove(&name).unwrap().unwrap();
            }
            System::Kinesis => {
                let config = sdk_config(&self.kinesis().aws).await.unwrap();
                let client = aws_sdk_kinesis::Client::new(&config);
                client.create_stream().stream_name(&name).shard_count(2).send().await.unwrap();
            }
            System::Nats => {
                let address = NatsAddress::parse(&self.server).unwrap();
                let options = address.options("test", 16, None).await.unwrap();
                let client = options.connect(address.server()).await.unwrap();
                let config = async_nats::jetstream::stream::Config {
                    name: name.clone(),
                    subjects: vec![format!("{name}.*")],
                    ..Default::default()
                };
                let jetstream = async_nats::jetstream::new(client);
                jetstream.create_stream(config).await.unwrap();
            }
            System::RabbitMq => {
                let properties = lapin::ConnectionProperties::default();
                let link = lapin::Connection::connect(&self.server, properties).await.unwrap();
                let channel = link.create_channel().await.unwrap();
                channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
                let options = QueueDeclareOptions { durable: true, ..Default::default() };
                let table = lapin::types::FieldTable::default();
                channel.queue_declare(name.as_str().into(), options, table).await.unwrap();
            }
            System::Sqs | System::SqsFifo => {
                let config = sdk_config(&self.sqs().aws).await.unwrap();
                let fifo = [("FifoQueue", "true".to_owned())];
                let attributes = if self.system == System::SqsFifo { &fifo[..] } else { &[] };
                SqsQueue::find_or_create(&config, &name, attributes).await.unwrap();
            }
        }
    }

    /// Another reader, with a position of its own where the system has such a thing.
    pub(crate) async fn source(&self) -> Box<dyn Source> {
        let (clock, random) = (Clock::system(), fastrand::Rng::new());
        match self.system {
            System::Kafka => {
                let group = Some(format!("{}-judge", self.name));
                let settings: KafkaSettings = self.url.parse().unwrap();
                let settings = KafkaSettings { group, ..settings };
                Box::new(KafkaSource::open(settings, random).unwrap())
            }
            System::Kinesis => {
                let positions = Arc::new(MemoryPositions::default());
                Box::new(KinesisSource::open(&self.kinesis(), positions, clock).await.unwrap())
            }
            System::Nats => {
                let address = NatsAddress::parse(&self.server).unwrap();
                let (subject, consumer) = (self.subject(), format!("{}-judge", self.name));
                let options = NatsSourceOptions { subject, consumer, ca_file: None };
                Box::new(NatsSource::new(address, options, clock))
            }
            System::RabbitMq => {
                let address = AmqpAddress::parse(&self.server).unwrap();
                let options = RabbitMqSourceOptions {
                    queue: self.name.clone(),
                    prefetch: 1_000,
                    ca_file: None,
                };
                Box::new(RabbitMqSource::new(address, options, random, clock))
            }
            System::Sqs | System::SqsFifo => {
                Box::new(SqsSource::open(&self.sqs(), clock).await.unwrap())
            }
        }
    }

    /// Another writer.
    pub(crate) fn target(&self) -> Box<dyn Target> {
        let clock = Clock::system();
        match self.system {
            System::Kafka => Box::new(KafkaTarget::new(self.url.parse().unwrap()).unwrap()),
            System::Kinesis => Box::new(KinesisTarget::new(self.kinesis(), clock).unwrap()),
            System::Nats => {
                let address = NatsAddress::parse(&self.server).unwrap();
                Box::new(NatsTarget::new(address, None, &self.subject(), clock).unwrap())
            }
            System::RabbitMq => {
                let address = AmqpAddress::parse(&self.server).unwrap();
                Box::new(RabbitMqTarget::new(address, None, ("", &self.name), clock).unwrap())
            }
            System::Sqs | System::SqsFifo => Box::new(SqsTarget::new(self.sqs(), clock).unwrap()),
        }
    }

    fn subject(&self) -> String {
        format!("{}.in", self.name)
    }

    fn sqs(&self) -> SqsSettings {
        SqsSettings::from_url(&self.url).unwrap()
    }

    fn kinesis(&self) -> KinesisSettings {
        KinesisSettings::from_url(&self.url).unwrap()
    }
}
