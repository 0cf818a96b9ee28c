//! The stream channel over the double, NATS, RabbitMQ, Kafka, SQS and Kinesis.

#![expect(clippy::unwrap_used, reason = "all of it is test code: a failure here fails the test")]

mod aws;
mod kafka;
mod slow_down;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use channel::conformance::{Behaviour, TestedChannel, exercise};
use channel::stream::{Settings, StreamChannel, StreamSystems};
use channel::{Channel, Fence, Job, Reports, Sender, Tools};
use flow::limit::Fixed;
use flow::{Clock, Gate};
use lapin::ConnectionProperties;
use lapin::options::QueueDeclareOptions;
use lapin::types::FieldTable;
use notification::{ByteString, Bytes, Chunk, Content, Report, Verdict, sample};
use stream::connect::{AmqpAddress, NatsAddress};
use stream::double::StreamDouble;
use stream::nats::{NatsSource, NatsSourceOptions, NatsTargets};
use stream::rabbitmq::{RabbitMqSource, RabbitMqSourceOptions, RabbitMqTargets};
use stream::{BatchLimits, OpenTargets, PutError, Source, StreamError, Target};
use tokio::sync::watch;

/// Opens the double by any name.
#[derive(Debug, Clone)]
struct Doubles(StreamDouble);

impl OpenTargets for Doubles {
    fn check(&self, _name: &str) -> Result<(), StreamError> {
        Ok(())
    }

    fn open(&self, _name: &str) -> Result<Box<dyn Target>, StreamError> {
        Ok(Box::new(self.0.target()))
    }
}

/// A channel under test.
#[derive(Debug)]
struct Subject {
    system: &'static str,
    name: String,
    open: Arc<dyn OpenTargets>,
    cuts_off: Option<StreamDouble>,
}

#[derive(Debug, Default)]
struct Collected(RefCell<BTreeMap<u16, Report>>);

/// Marks each, and remembers which.
#[derive(Debug, Default)]
struct Marks(RefCell<Vec<u16>>);

#[async_trait(?Send)]
impl Reports for Collected {
    async fn report(&self, reports: Vec<(u16, Report)>) {
        self.0.borrow_mut().extend(reports);
    }
}

#[async_trait(?Send)]
impl Fence for Marks {
    fn is_begun(&self, index: u16) -> bool {
        self.0.borrow().contains(&index)
    }

    async fn begin(&self, index: u16) -> Result<(), Report> {
        tokio::task::yield_now().await;
        self.0.borrow_mut().push(index);
        Ok(())
    }
}

impl TestedChannel for Subject {
    fn channel(&self, provider: Behaviour) -> Option<Box<dyn Channel>> {
        let open: Arc<dyn OpenTargets> = match provider {
            Behaviour::Accepts => Arc::clone(&self.open),
            Behaviour::CutsOff => {
                let double = self.cuts_off.clone()?;
                double.fail_puts([Some(PutError::Unknown("cut off".to_owned()))]);
                Arc::new(Doubles(double))
            }
        };
        Some(Box::new(channel(self.system, open)))
    }

    fn recipient(&self, _provider: Behaviour, _number: u16) -> String {
        format!("{}:{}", self.system, self.name)
    }

    fn content(&self) -> Content {
        content("{\"hello\":1}", "{\"key\":\"k\"}")
    }
}

fn channel(system: &'static str, open: Arc<dyn OpenTargets>) -> StreamChannel {
    StreamChannel::new(&Settings::default(), StreamSystems::from([(system, open)])).unwrap()
}

fn content(payload: &'static str, options: &'static str) -> Content {
    let (payload, options) = (Bytes::from_static(payload.as_bytes()), options.as_bytes());
    Content { payload, options: Bytes::from_static(options), fallback: None }
}

fn chunk(clock: Clock, recipient: &str, count: u16) -> Chunk {
    let recipients = (0..count).map(|_| ByteString::from(recipient));
    let mut chunk = sample::chunk(channel::timestamp(clock), recipients);
    chunk.envelope.lane.destination = recipient.into();
    for delivery in &mut chunk.deliveries {
        let payload = format!("{{\"number\":{}}}", delivery.index).into();
        let content = Content { payload, options: Bytes::new(), fallback: None };
        delivery.content = Some(Box::new(content));
    }
    chunk
}

async fn send(
    sender: &dyn Sender,
    clock: Clock,
    chunk: &Chunk,
    fence: Option<&dyn Fence>,
) -> BTreeMap<u16, Report> {
    let (reports, gate) = (Collected::default(), Gate::new(Box::new(Fixed(2_000))));
    let (pauses, stopping) = (watch::channel(Arc::default()).1, watch::channel(false).1);
    let (deliveries, worker_deadline) = (&chunk.deliveries, &flow::worker_deadline::UNLIMITED);
    let job = Job {
        chunk,
        deliveries,
        gate: &gate,
        quota: None,
        fence,
        reports: &reports,
        clock,
        stopping: &stopping,
        pauses: &pauses,
        worker_deadline,
    };
    sender.send(job).await;
    reports.0.into_inner()
}

fn verdicts(reports: &BTreeMap<u16, Report>) -> Vec<Verdict> {
    let verdict = |report: &Report| match report {
        Report::Attempted(answer) => Some(answer.verdict),
        Report::HandedBack { .. } | Report::Expired => None,
    };
    reports.values().filter_map(verdict).collect()
}

/// A clock whose recent time is the exact one: the suite ends leases to the millisecond.
fn clock_now() -> Clock {
    Clock::starting_at(Duration::from_hours(500_000))
}

async fn local(test: impl Future<Output = ()>) {
    tokio::task::LocalSet::new().run_until(test).await;
}

fn double(limits: BatchLimits) -> (StreamDouble, Box<dyn Sender>) {
    let double = StreamDouble::new(limits);
    let channel = channel("kinesis", Arc::new(Doubles(double.clone())));
    (double, channel.open(Tools::new(clock_now(), 1)).unwrap())
}

const LIMITS: BatchLimits = BatchLimits { records: 500, bytes: 5 << 20, record_bytes: 1 << 20 };

#[tokio::test]
async fn a_stream_in_memory_is_a_channel() {
    let open = Arc::new(Doubles(StreamDouble::default()));
    let cuts_off = Some(StreamDouble::default());
    let subject = Subject { system: "kinesis", name: "orders".into(), open, cuts_off };
    local(exercise(&subject, clock_now())).await;
}

#[tokio::test]
async fn a_thousand_deliveries_are_few_puts() {
    local(async {
        let (double, sender) = double(LIMITS);
        let clock = clock_now();
        let reports = send(&*sender, clock, &chunk(clock, "kinesis:orders", 1_000), None).await;
        assert_eq!(verdicts(&reports), vec![Verdict::Accepted; 1_000]);
        let puts = double.puts();
        assert!(puts.len() <= 4, "{} puts", puts.len());
        let bodies: Vec<Bytes> = puts.iter().flatten().map(|record| record.body.clone()).collect();
        let expected: Vec<String> = (0..1_000).map(|n| format!("{{\"number\":{n}}}")).collect();
        assert_eq!(bodies, expected, "in order");
        sender.close().await;
    })
    .await;
}

#[tokio::test]
async fn jobs_to_one_target_share_puts() {
    local(async {
        let (double, sender) = double(LIMITS);
        let clock = clock_now();
        let chunks: Vec<Chunk> = (0..20).map(|_| chunk(clock, "kinesis:orders", 10)).collect();
        let sent = chunks.iter().map(|chunk| send(&*sender, clock, chunk, None));
        for reports in futures_util::future::join_all(sent).await {
            assert_eq!(verdicts(&reports), vec![Verdict::Accepted; 10]);
        }
        assert!(double.puts().len() <= 4, "{} puts of 200 records", double.puts().len());
    })
    .await;
}

#[tokio::test]
async fn each_record_has_a_verdict_of_its_own() {
    local(async {
        let (double, sender) = double(LIMITS);
        let after = Some(Duration::from_secs(3));
        double.fail_puts([
            None,
            Some(PutError::Refused("no".to_owned())),
            Some(PutError::Throttled { after, why: "slow down".to_owned() }),
            Some(PutError::NotTaken("away".to_owned())),
            Some(PutError::Unknown("cut off".to_owned())),
        ]);
        let clock = clock_now();
        let reports = send(&*sender, clock, &chunk(clock, "kinesis:orders", 6), None).await;
        let expected = [
            Verdict::Accepted,
            Verdict::Refused { gone: false },
            Verdict::Deferred { after },
            Verdict::Deferred { after: None },
            Verdict::Unknown,
            Verdict::Accepted,
        ];
        assert_eq!(verdicts(&reports), expected);
        let acted = |index| match reports.get(&index) {
            Some(Report::Attempted(answer)) => answer.may_have_acted,
            _ => false,
        };
        assert_eq!([2, 3, 4].map(acted), [false, false, true]);
    })
    .await;
}

#[tokio::test]
async fn what_is_put_at_most_once_was_marked_before() {
    local(async {
        let (double, sender) = double(LIMITS);
        double.stall(true);
        let (clock, marks) = (clock_now(), Marks::default());
        let chunk = chunk(clock, "kinesis:orders", 50);
        let sending = send(&*sender, clock, &chunk, Some(&marks));
        let looking = async {
            while marks.0.borrow().len() < 50 {
                tokio::task::yield_now().await;
            }
            assert_eq!(double.puts().len(), 0, "nothing was put before its mark");
            double.stall(false);
        };
        let (reports, ()) = tokio::join!(sending, looking);
        assert_eq!(verdicts(&reports), vec![Verdict::Accepted; 50]);
    })
    .await;
}

#[tokio::test]
async fn what_no_section_is_for_is_refused_with_what_there_is() {
    let channel = channel("nats", Arc::new(Doubles(StreamDouble::default())));
    for (recipient, words) in [
        ("kafka:orders", "no section `kafka`"),
        ("orders", "must be one of amqp:exchange/key, kafka:topic"),
        ("nats:", "must be nats:subject"),
    ] {
        let error = channel.destination(recipient).unwrap_err();
        assert!(error.message.contains(words), "{error}");
    }
    assert!(StreamChannel::new(&Settings::default(), StreamSystems::new()).is_err());
}

#[tokio::test]
async fn nats_is_a_channel() {
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
    let clock = clock_now();
    let open: Arc<dyn OpenTargets> =
        Arc::new(NatsTargets { address: address.clone(), ca_file: None, clock });
    let name = format!("{prefix}.suite");
    let subject = Subject { system: "nats", name, open: Arc::clone(&open), cuts_off: None };
    local(exercise(&subject, clock)).await;
    local(async {
        let sender = channel("nats", open).open(Tools::new(clock, 1)).unwrap();
        let recipient = format!("nats:{prefix}.orders");
        let reports = send(&*sender, clock, &chunk(clock, &recipient, 1_000), None).await;
        assert_eq!(verdicts(&reports), vec![Verdict::Accepted; 1_000]);
        let nobody = format!("nats:{prefix}nobody.listens");
        let reports = send(&*sender, clock, &chunk(clock, &nobody, 2), None).await;
        assert_eq!(verdicts(&reports), [Verdict::Deferred { after: None }; 2]);
        sender.close().await;
    })
    .await;
    let subject = format!("{prefix}.orders");
    let options = NatsSourceOptions { subject, consumer: "all".to_owned(), ca_file: None };
    check_order(&NatsSource::new(address, options, clock)).await;
}

#[tokio::test]
async fn rabbitmq_is_a_channel() {
    let (url, queue) = (testbed::rabbitmq::shared_url().unwrap(), testbed::unique_prefix());
    let address = AmqpAddress::parse(&url).unwrap();
    let properties = ConnectionProperties::default();
    let connection = lapin::Connection::connect(&url, properties).await.unwrap();
    let declaring = connection.create_channel().await.unwrap();
    let suite = format!("{queue}-suite");
    for name in [&queue, &suite] {
        let options = QueueDeclareOptions { durable: true, ..Default::default() };
        declaring
            .queue_declare(name.as_str().into(), options, FieldTable::default())
            .await
            .unwrap();
    }
    let clock = clock_now();
    let open: Arc<dyn OpenTargets> =
        Arc::new(RabbitMqTargets { address: address.clone(), ca_file: None, clock });
    let name = format!("/{suite}");
    let subject = Subject { system: "amqp", name, open: Arc::clone(&open), cuts_off: None };
    local(exercise(&subject, clock)).await;
    local(async {
        let sender = channel("amqp", open).open(Tools::new(clock, 1)).unwrap();
        let recipient = format!("amqp:/{queue}");
        let reports = send(&*sender, clock, &chunk(clock, &recipient, 1_000), None).await;
        assert_eq!(verdicts(&reports), vec![Verdict::Accepted; 1_000]);
        let nowhere = format!("amqp:/{queue}-nowhere");
        let reports = send(&*sender, clock, &chunk(clock, &nowhere, 2), None).await;
        assert_eq!(verdicts(&reports), [Verdict::Deferred { after: None }; 2]);
        sender.close().await;
    })
    .await;
    let options = RabbitMqSourceOptions { queue, prefetch: 2_000, ca_file: None };
    let random = fastrand::Rng::with_seed(1);
    check_order(&RabbitMqSource::new(address, options, random, clock)).await;
}

/// The records of a chunk of 1,000 are there, in order.
async fn check_order(source: &dyn Source) {
    let expected: Vec<String> = (0..1_000).map(|n| format!("{{\"number\":{n}}}")).collect();
    assert_eq!(bodies(source, 1_000).await, expected);
    source.close().await;
}

/// The bodies of the next `count` messages, each of which is acknowledged.
async fn bodies(source: &dyn Source, count: usize) -> Vec<Bytes> {
    let mut bodies = Vec::new();
    while bodies.len() < count {
        let messages = source.fetch(count, Duration::from_secs(5)).await.unwrap();
        assert!(!messages.is_empty(), "{} of {count} came", bodies.len());
        let receipts: Vec<_> = messages.iter().map(|message| message.receipt).collect();
        assert!(source.acknowledge(&receipts).await.iter().all(Result::is_ok));
        bodies.extend(messages.into_iter().filter_map(|message| message.body));
    }
    bodies
}

/// A chunk whose deliveries have their numbers in their bodies, and one of `keys` keys each.
fn keyed_chunk(clock: Clock, recipient: &str, count: u16, keys: u16) -> Chunk {
    let mut chunk = chunk(clock, recipient, count);
    for delivery in &mut chunk.deliveries {
        let options = format!("{{\"key\":\"k{}\"}}", delivery.index % keys).into();
        let payload = format!("{{\"number\":{}}}", delivery.index).into();
        delivery.content = Some(Box::new(Content { payload, options, fallback: None }));
    }
    chunk
}

/// Checks that `bodies` are those of a chunk of [`keyed_chunk`], each once, and those of each key in order.
fn check_keys(bodies: &[Bytes], keys: usize) {
    let number = |body: &Bytes| -> usize {
        let digits: Vec<u8> = body.iter().copied().filter(u8::is_ascii_digit).collect();
        std::str::from_utf8(&digits).unwrap().parse().unwrap()
    };
    let mut of_keys: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for body in bodies {
        of_keys.entry(number(body) % keys).or_default().push(number(body));
    }
    assert_eq!(of_keys.len(), keys);
    for (key, numbers) in of_keys {
        let expected: Vec<usize> = (key..bodies.len()).step_by(keys).collect();
        assert_eq!(numbers, expected, "key {key}");
    }
}
