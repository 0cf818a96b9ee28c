//! Notifications that engines read from streams of other systems: stored before they are acknowledged, once each, and held up by no bad
//! one.

use std::time::Duration;

use bytes::Bytes;
use flow::Clock;
use lapin::types::FieldTable;
use serde_json::{Value, json};
use stream::connect::{AmqpAddress, NatsAddress};
use stream::nats::{NatsSource, NatsSourceOptions, NatsTarget};
use stream::rabbitmq::{RabbitMqSource, RabbitMqSourceOptions, RabbitMqTarget};
use stream::{Record, Source, StreamMessage, Target};
use tokio::runtime::Runtime;

use crate::support::{Cluster, Process, eventually};
use bench::workload::token;

/// Messages that are notifications.
const GOOD: u64 = 12_000;
/// Messages that are none, put among them.
const BAD: u64 = 20;

/// How long a letter may take to come. An engine that was killed between storing a batch and putting its letters holds the bad
/// messages for 30 s more, until NATS gives them to the next.
const LETTER_WAIT: Duration = Duration::from_mins(2);

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// The number of messages of the source that had this fate in this process.
fn messages(process: &Process, fate: &str) -> u64 {
    let line = format!("belfry_source_messages_total{{source=\"orders\",fate=\"{fate}\"}} ");
    let metrics = process.fetch("/metrics").unwrap_or_default();
    let value = metrics.lines().find_map(|metric| metric.strip_prefix(&line));
    value.map_or(0, |value| value.parse().unwrap())
}

/// Records of `good` and bad messages, in the order in which they are put; each with its identifier.
fn records(good: impl Fn(u64) -> Value, large: usize) -> Vec<Record> {
    let mut bodies: Vec<Bytes> = (0..GOOD).map(|number| good(number).to_string().into()).collect();
    for number in 0..BAD {
        let bad = match number % 4 {
            0 => Bytes::from_static(b"{\"no\": \"notification\"}"),
            1 => Bytes::from_static(b"\xff\x00 garbage"),
            2 => Bytes::new(),
            _ => vec![b'x'; large].into(),
        };
        bodies.insert(usize::try_from(number * (GOOD / BAD)).unwrap(), bad);
    }
    let record = |(number, body)| Record { key: None, body, id: format!("order {number}") };
    bodies.into_iter().enumerate().map(record).collect()
}

async fn put_all(target: &dyn Target, records: &[Record]) {
    let mut open = records;
    while !open.is_empty() {
        let (batch, rest) = open.split_at(target.limits().fitting(open));
        for answer in target.put(batch).await {
            answer.unwrap();
        }
        open = rest;
    }
    target.close().await;
}

/// The dead letters, all of them.
async fn letters(source: &dyn Source) -> Vec<Value> {
    let mut letters = Vec::new();
    while letters.len() < usize::try_from(BAD).unwrap() {
        let fetched = source.fetch(100, LETTER_WAIT).await.unwrap();
        assert!(!fetched.is_empty(), "{} letters", letters.len());
        let body = |message: &StreamMessage| message.body.clone().unwrap();
        letters
            .extend(fetched.iter().map(|message| serde_json::from_slice(&body(message)).unwrap()));
    }
    source.close().await;
    letters
}

fn check_letters(letters: &[Value]) {
    for letter in letters {
        assert_eq!(letter["source"], "orders");
        assert!(letter["reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{letter}");
    }
    let ids: std::collections::BTreeSet<&str> =
        letters.iter().map(|letter| letter["id"].as_str().unwrap()).collect();
    assert_eq!(ids.len() as u64, BAD);
}

fn notification(number: u64) -> Value {
    json!({"channel": "ios", "to": token(number), "content": {"aps": {"alert": "hello"}}})
}

#[test]
fn an_engine_that_is_killed_reads_every_message_of_nats_once() {
    let (url, prefix) = (testbed::nats::shared_url().unwrap(), testbed::unique_prefix());
    let runtime = runtime();
    let address = NatsAddress::parse(&url).unwrap();
    let (orders, dead) = (format!("{prefix}.orders"), format!("{prefix}.dead"));
    runtime.block_on(async {
        let client =
            address.options("test", 16, None).await.unwrap().connect(address.server()).await;
        let config = async_nats::jetstream::stream::Config {
            name: prefix.clone(),
            subjects: vec![format!("{prefix}.>")],
            ..Default::default()
        };
        async_nats::jetstream::new(client.unwrap()).create_stream(config).await.unwrap();
        let target = NatsTarget::new(address.clone(), None, &orders, Clock::system()).unwrap();
        put_all(&target, &records(notification, 900_000)).await;
    });
    let source =
        format!("[{{ name = \"orders\", url = \"{url}/{orders}\", dead_letters = \"{dead}\" }}]");
    let mut random = fastrand::Rng::with_seed(4711);
    let cluster = Cluster::on_disk(GOOD, &[]).with("BELFRY__SOURCES", source);
    for _kill in 0..2 {
        let engine = cluster.start("serve", "engine");
        let before = messages(&engine, "accepted");
        let until = before + random.u64(1..GOOD / 4);
        eventually("messages were read", || messages(&engine, "accepted") >= until);
        engine.kill();
    }
    let engine = cluster.start("serve", "engine");
    cluster.drained(&engine, GOOD);
    let dead = NatsSourceOptions { subject: dead, consumer: "test".to_owned(), ca_file: None };
    check_letters(&runtime.block_on(letters(&NatsSource::new(
        address.clone(),
        dead,
        Clock::system(),
    ))));
    engine.stop();
    // Under the name by which the engine read: nothing was left to it.
    let left =
        NatsSourceOptions { subject: orders, consumer: "belfry-orders".to_owned(), ca_file: None };
    let left = runtime.block_on(async {
        let source = NatsSource::new(address, left, Clock::system());
        source.fetch(100, Duration::from_secs(1)).await.unwrap()
    });
    assert_eq!(left, []);
}

#[test]
fn several_engines_share_a_queue_of_rabbitmq_and_map_its_messages() {
    let (url, queue) = (testbed::rabbitmq::shared_url().unwrap(), testbed::unique_prefix());
    let runtime = runtime();
    let address = AmqpAddress::parse(&url).unwrap();
    let dead = format!("{queue}.dead");
    runtime.block_on(async {
        let properties = lapin::ConnectionProperties::default();
        let connection = lapin::Connection::connect_uri(address.uri(), properties).await.unwrap();
        let channel = connection.create_channel().await.unwrap();
        for name in [&queue, &dead] {
            let options =
                lapin::options::QueueDeclareOptions { durable: true, ..Default::default() };
            let declared =
                channel.queue_declare(name.as_str().into(), options, FieldTable::default());
            declared.await.unwrap();
        }
        let event = |number: u64| json!({"device": token(number), "order": {"total": number}});
        let target = RabbitMqTarget::new(address.clone(), None, ("", &queue), Clock::system());
        put_all(&target.unwrap(), &records(event, 2 << 20)).await;
    });
    let source = format!(
        "[{{ name = \"orders\", url = \"{url}?queue={queue}\", dead_letters = \"{dead}\", map = {{ channel = \"ios\", \
         to = \"{{{{ body.device }}}}\", content = {{ aps = {{ badge = \"{{{{ body.order.total }}}}\" }} }} }} }}]"
    );
    let database = testbed::postgres::shared().unwrap().create().unwrap();
    let cluster = Cluster::new(database.url(), GOOD, &[]).with("BELFRY__SOURCES", source);
    let engines = ["one", "two"].map(|name| cluster.start("serve", name));
    cluster.drained(&engines[0], GOOD);
    let options = RabbitMqSourceOptions { queue: dead, prefetch: 100, ca_file: None };
    let random = fastrand::Rng::with_seed(1);
    let source = RabbitMqSource::new(address, options, random, Clock::system());
    check_letters(&runtime.block_on(letters(&source)));
    let sum = |fate| engines.iter().map(|engine| messages(engine, fate)).sum::<u64>();
    assert!(engines.iter().all(|engine| messages(engine, "accepted") > 0), "both of them read");
    eventually("all is acknowledged", || sum("acknowledged") == GOOD + BAD);
    assert_eq!([sum("accepted"), sum("repeated"), sum("dead_lettered")], [GOOD, 0, BAD]);
    engines.into_iter().for_each(Process::stop);
}

#[cfg(feature = "kinesis")]
#[test]
fn an_engine_reads_a_stream_of_kinesis_on_from_where_the_one_before_it_ended() {
    use aws_sdk_kinesis::primitives::Blob;
    use aws_sdk_kinesis::types::PutRecordsRequestEntry;

    const PART: u64 = 900;
    let (endpoint, stream) = (testbed::aws::shared_moto_url().unwrap(), testbed::unique_prefix());
    let runtime = runtime();
    let url = format!("kinesis://key:secret@{stream}?region=us-east-1&endpoint={endpoint}");
    let settings = stream::kinesis::KinesisSettings::from_url(&url).unwrap();
    let client = runtime.block_on(async {
        let config = stream::aws::sdk_config(&settings.aws).await.unwrap();
        let client = aws_sdk_kinesis::Client::new(&config);
        client.create_stream().stream_name(&stream).shard_count(3).send().await.unwrap();
        client
    });
    let put = |numbers: std::ops::Range<u64>| {
        let entry = |number: u64| {
            let bytes = if number % PART == 7 {
                b"{".to_vec()
            } else {
                notification(number).to_string().into()
            };
            let entry = PutRecordsRequestEntry::builder().partition_key(number.to_string());
            entry.data(Blob::new(bytes)).build().unwrap()
        };
        let entries: Vec<_> = numbers.map(entry).collect();
        for entries in entries.chunks(450) {
            let call =
                client.put_records().stream_name(&stream).set_records(Some(entries.to_vec()));
            let answer = runtime.block_on(call.send()).unwrap();
            assert_eq!(answer.failed_record_count, Some(0));
        }
    };
    let source = format!("[{{ name = \"orders\", url = \"{url}\", drop_bad_messages = true }}]");
    let cluster = Cluster::on_disk(2 * PART, &[]).with("BELFRY__SOURCES", source);
    for part in 0..2 {
        put(part * PART..(part + 1) * PART);
        let engine = cluster.start("serve", "engine");
        eventually("all is acknowledged", || messages(&engine, "acknowledged") == PART);
        let fates = ["read", "accepted", "repeated", "dead_lettered"];
        assert_eq!(fates.map(|fate| messages(&engine, fate)), [PART, PART - 1, 0, 1]);
        cluster.drained(&engine, (part + 1) * (PART - 1));
        engine.stop();
    }
}
