//! Every source and target passes the conformance suite: the double, and those of real servers.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use async_trait::async_trait;
use flow::Clock;
use lapin::ConnectionProperties;
use lapin::options::{ConfirmSelectOptions, QueueDeclareOptions};
use lapin::types::FieldTable;
use stream::conformance::{Carried, TestedStream, exercise};
use stream::connect::{AmqpAddress, NatsAddress};
use stream::double::StreamDouble;
use stream::nats::{NatsSource, NatsSourceOptions, NatsTarget};
use stream::rabbitmq::{RabbitMqSource, RabbitMqSourceOptions, RabbitMqTarget};
use stream::{PutError, Record, Source, Target};

#[derive(Debug)]
struct TestedDouble(StreamDouble);

#[derive(Debug)]
struct TestedNats {
    url: String,
    prefix: String,
}

#[derive(Debug)]
struct TestedRabbitMq {
    url: String,
    queue: String,
}

const BROKERS: Carried = Carried { key: false, binary: true, id: true, single: true, shared: true };

#[tokio::test]
async fn the_double_is_a_stream() {
    exercise(async || Box::new(TestedDouble(StreamDouble::default())) as Box<dyn TestedStream>)
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nats_is_a_stream() {
    exercise(async || Box::new(TestedNats::create().await) as Box<dyn TestedStream>).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rabbitmq_is_a_stream() {
    exercise(async || Box::new(TestedRabbitMq::create().await) as Box<dyn TestedStream>).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nats_stores_a_repeated_record_once() {
    let tested = TestedNats::create().await;
    let (source, target) = (tested.source().await, tested.target().await);
    let record = Record { key: None, body: "one".into(), id: "the same".to_owned() };
    for _ in 0..2 {
        assert_eq!(target.put(std::slice::from_ref(&record)).await, [Ok(())]);
    }
    let wait = std::time::Duration::from_secs(1);
    assert_eq!(source.fetch(8, wait).await.unwrap().len(), 1);
    assert_eq!(source.fetch(8, wait).await.unwrap().len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_has_no_place_was_not_taken_and_what_is_too_large_is_refused() {
    let record = |bytes: usize| Record { key: None, body: vec![0; bytes].into(), id: "x".into() };
    let not_taken = |answers: Vec<Result<(), PutError>>| {
        assert!(matches!(answers[..], [Err(PutError::NotTaken(_))]), "{answers:?}");
    };
    let url = testbed::nats::shared_url().unwrap();
    let address = NatsAddress::parse(&url).unwrap();
    let target = NatsTarget::new(address, None, "nobody.listens", Clock::system()).unwrap();
    not_taken(target.put(&[record(1)]).await);
    let tested = TestedNats::create().await;
    let answers = tested.target().await.put(&[record(1), record(2 << 20), record(2)]).await;
    assert!(
        matches!(answers[..], [Ok(()), Err(PutError::Refused(_)), Ok(())]),
        "the others are stored: {answers:?}"
    );
    let url = testbed::rabbitmq::shared_url().unwrap();
    for (exchange, key) in [("", "there.is.no.such.queue"), ("there.is.no.such.exchange", "")] {
        let address = AmqpAddress::parse(&url).unwrap();
        let target = RabbitMqTarget::new(address, None, (exchange, key), Clock::system()).unwrap();
        not_taken(target.put(&[record(1)]).await);
    }
}

// === impl TestedDouble ===

#[async_trait]
impl TestedStream for TestedDouble {
    async fn source(&self) -> Box<dyn Source> {
        Box::new(self.0.source())
    }

    async fn target(&self) -> Box<dyn Target> {
        Box::new(self.0.target())
    }

    fn carries(&self) -> Carried {
        Carried { key: true, ..BROKERS }
    }
}

// === impl TestedNats ===

impl TestedNats {
    /// An empty stream.
    async fn create() -> Self {
        let (url, prefix) = (testbed::nats::shared_url().unwrap(), testbed::unique_prefix());
        let address = NatsAddress::parse(&url).unwrap();
        let options = address.options("test", 16, None).await.unwrap();
        let client = options.connect(address.server()).await.unwrap();
        let config = async_nats::jetstream::stream::Config {
            name: prefix.clone(),
            subjects: vec![format!("{prefix}.>")],
            ..Default::default()
        };
        async_nats::jetstream::new(client).create_stream(config).await.unwrap();
        Self { url, prefix }
    }
}

#[async_trait]
impl TestedStream for TestedNats {
    async fn source(&self) -> Box<dyn Source> {
        let options = NatsSourceOptions {
            subject: format!("{}.events", self.prefix),
            consumer: "readers".to_owned(),
            ca_file: None,
        };
        let address = NatsAddress::parse(&self.url).unwrap();
        Box::new(NatsSource::new(address, options, Clock::system()))
    }

    async fn target(&self) -> Box<dyn Target> {
        let (address, subject) =
            (NatsAddress::parse(&self.url).unwrap(), format!("{}.events", self.prefix));
        Box::new(NatsTarget::new(address, None, &subject, Clock::system()).unwrap())
    }

    fn carries(&self) -> Carried {
        BROKERS
    }
}

// === impl TestedRabbitMq ===

impl TestedRabbitMq {
    /// An empty queue.
    async fn create() -> Self {
        let (url, queue) = (testbed::rabbitmq::shared_url().unwrap(), testbed::unique_prefix());
        let connection =
            lapin::Connection::connect(&url, ConnectionProperties::default()).await.unwrap();
        let channel = connection.create_channel().await.unwrap();
        channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
        let options = QueueDeclareOptions { durable: true, ..Default::default() };
        let name = queue.as_str().into();
        channel.queue_declare(name, options, FieldTable::default()).await.unwrap();
        connection.close(200, "done".into()).await.unwrap();
        Self { url, queue }
    }
}

#[async_trait]
impl TestedStream for TestedRabbitMq {
    async fn source(&self) -> Box<dyn Source> {
        let options =
            RabbitMqSourceOptions { queue: self.queue.clone(), prefetch: 2_000, ca_file: None };
        let (address, random) =
            (AmqpAddress::parse(&self.url).unwrap(), fastrand::Rng::with_seed(1));
        Box::new(RabbitMqSource::new(address, options, random, Clock::system()))
    }

    async fn target(&self) -> Box<dyn Target> {
        let address = AmqpAddress::parse(&self.url).unwrap();
        Box::new(RabbitMqTarget::new(address, None, ("", &self.queue), Clock::system()).unwrap())
    }

    fn carries(&self) -> Carried {
        BROKERS
    }
}
