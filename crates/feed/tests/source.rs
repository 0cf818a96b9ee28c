//! Notifications that are read from a stream: stored once, acknowledged after, and held up by no bad message.

#![expect(clippy::unwrap_used, reason = "all of it is test code: a failure here fails the test")]

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use channel::dry_run::{DryRunChannel, Settings};
use feed::{DeadLetters, MessageShape, SourceCounts, SourceReader};
use flow::Clock;
use pipeline::ingest::EventMap;
use pipeline::{Channels, Intake};
use store::Memory;
use stream::connect::NatsAddress;
use stream::double::StreamDouble;
use stream::nats::{NatsSource, NatsSourceOptions, NatsTarget};
use stream::{PutError, Record, Source, StreamError, Target};
use tokio::sync::watch;

struct Rig {
    stream: StreamDouble,
    dead: StreamDouble,
    intake: Arc<Intake>,
    counts: Arc<SourceCounts>,
}

impl Rig {
    fn new() -> Self {
        let mut channels = Channels::default();
        let dry_run = DryRunChannel::new(Settings::default()).unwrap();
        channels.insert("dry".parse().unwrap(), Arc::new(dry_run));
        let clock = Clock::starting_at(Duration::from_hours(500_000));
        let intake = Intake::new(Arc::new(Memory::new()), Arc::new(channels), clock);
        let (stream, dead) = (StreamDouble::default(), StreamDouble::default());
        Self { stream, dead, intake: Arc::new(intake), counts: Arc::default() }
    }

    fn reader(&self) -> SourceReader {
        SourceReader {
            name: "orders".parse().unwrap(),
            source: Arc::new(self.stream.source()),
            tenant: "shop".parse().unwrap(),
            intake: Arc::clone(&self.intake),
            shape: MessageShape::Notification,
            dead_letters: DeadLetters::Stream(Arc::new(self.dead.target())),
            random: fastrand::Rng::with_seed(7),
            counts: Arc::clone(&self.counts),
        }
    }

    /// Reads until nothing is left, and `count` messages were acknowledged.
    async fn read(&self, count: usize) {
        self.read_by(self.reader(), count).await;
    }

    async fn read_by(&self, reader: SourceReader, count: usize) {
        let (stop, stopping) = watch::channel(false);
        let reading = reader.run(stopping);
        let looking = async {
            self.stream.until_acknowledged(count).await;
            stop.send_replace(true);
        };
        let (read, ()) = tokio::join!(reading, looking);
        read.unwrap();
    }

    /// Accepted, repeated and dead.
    fn counts(&self) -> [u64; 3] {
        let SourceCounts { accepted, repeated, dead, .. } = &*self.counts;
        [accepted, repeated, dead].map(|count| count.load(Ordering::Relaxed))
    }

    fn letters(&self) -> Vec<serde_json::Value> {
        let puts = self.dead.puts();
        puts.iter().flatten().map(|record| serde_json::from_slice(&record.body).unwrap()).collect()
    }

    fn push(&self, body: &str) {
        self.stream.push(None, Some(Bytes::copy_from_slice(body.as_bytes())));
    }
}

/// Waits until `condition` holds.
async fn until(condition: impl Fn() -> bool) {
    while !condition() {
        tokio::task::yield_now().await;
    }
}

fn good(number: usize) -> String {
    format!("{{\"channel\":\"dry\",\"to\":\"{number}\",\"content\":{{\"n\":{number}}}}}")
}

#[tokio::test(start_paused = true)]
async fn messages_become_notifications_and_are_acknowledged() {
    let rig = Rig::new();
    (0..1_200).for_each(|number| rig.push(&good(number)));
    rig.read(1_200).await;
    assert_eq!(rig.counts(), [1_200, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn what_comes_again_is_stored_once() {
    let rig = Rig::new();
    (0..3).for_each(|number| rig.push(&good(number)));
    let lost = StreamError::Unavailable("lost".to_owned());
    rig.stream.fail_acknowledgements([lost.clone(), lost]);
    rig.read(3).await;
    assert_eq!(rig.counts(), [3, 2, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_bad_message_holds_up_no_other_and_is_buried_with_the_reason() {
    let rig = Rig::new();
    for bad in ["", "{", "[]", "{\"channel\":\"none\",\"to\":\"x\",\"content\":{}}"] {
        rig.push(bad);
        rig.push(&good(1));
    }
    rig.stream.push(Some("k"), None);
    rig.stream.push(None, Some(Bytes::from_static(b"\xff")));
    rig.stream.push(None, Some(vec![b' '; 2 << 20].into()));
    rig.read(11).await;
    assert_eq!(rig.counts(), [4, 0, 7]);
    let letters = rig.letters();
    assert_eq!(letters.len(), 7);
    for letter in &letters {
        assert_eq!(letter["source"], "orders");
        assert!(!letter["reason"].as_str().unwrap().is_empty(), "{letter}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_buried_comes_again() {
    let rig = Rig::new();
    rig.push("{");
    rig.push(&good(1));
    rig.dead.fail_puts([Some(PutError::NotTaken("away".to_owned())); 1]);
    rig.stream.fail_fetches([StreamError::Unavailable("away".to_owned())]);
    rig.read(2).await;
    assert_eq!(rig.counts(), [1, 0, 1]);
    assert_eq!(rig.stream.acknowledged(), ["m1", "m0"]);
}

#[tokio::test(start_paused = true)]
async fn a_message_of_another_shape_is_mapped_and_one_that_does_not_fit_is_buried() {
    let rig = Rig::new();
    let map = br#"{"channel": "dry", "to": "{{ body.who }}", "content": {"n": "{{ body.n }}"}}"#;
    let map = EventMap::compile(&Bytes::from_static(map)).unwrap();
    let shape = MessageShape::Event(Arc::new(map));
    for body in ["{\"who\": \"a\", \"n\": 1}", "{\"n\": 1}", "{"] {
        rig.push(body);
    }
    rig.stream.push(Some("k"), None);
    rig.read_by(SourceReader { shape, ..rig.reader() }, 4).await;
    assert_eq!(rig.counts(), [1, 0, 3]);
    let reasons: Vec<String> =
        rig.letters().iter().map(|letter| letter["reason"].to_string()).collect();
    assert!(reasons[0].contains("`body.who` is missing"), "{reasons:?}");
    assert!(reasons[1].contains("is not JSON"), "{reasons:?}");
    assert!(reasons[2].contains("no content"), "{reasons:?}");
}

#[tokio::test(start_paused = true)]
async fn dead_letters_go_to_a_file_whole() {
    let rig = Rig::new();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("dead.ndjson");
    let dead_letters = DeadLetters::File(file.clone());
    let large = "x".repeat(2 << 20);
    rig.push(&large);
    rig.push("{");
    rig.read_by(SourceReader { dead_letters, ..rig.reader() }, 2).await;
    let lines = std::fs::read_to_string(file).unwrap();
    let bodies: Vec<String> = lines
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["body"].to_string())
        .collect();
    assert_eq!(bodies, [format!("\"{large}\""), "\"{\"".to_owned()]);
}

#[tokio::test(start_paused = true)]
async fn a_source_says_that_it_fails_for_as_long_as_it_does() {
    let rig = Rig::new();
    rig.push("{");
    let away = || Some(PutError::NotTaken("away".to_owned()));
    rig.dead.fail_puts([away(), away(), away()]);
    let (stop, stopping) = watch::channel(false);
    let looking = async {
        until(|| rig.counts.trouble().is_some()).await;
        assert_eq!(rig.counts.trouble().unwrap().since, rig.intake.now());
        rig.stream.until_acknowledged(1).await;
        until(|| rig.counts.trouble().is_none()).await;
        stop.send_replace(true);
    };
    let (read, ()) = tokio::join!(rig.reader().run(stopping), looking);
    read.unwrap();
    let SourceCounts { read, acknowledged, .. } = &*rig.counts;
    assert_eq!([read, acknowledged].map(|count| count.load(Ordering::Relaxed)), [4, 1]);
}

#[tokio::test]
async fn notifications_come_through_nats_and_what_was_not_acknowledged_comes_again_once() {
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
    let clock = Clock::system();
    let source = |subject: &str| {
        let (subject, consumer) = (format!("{prefix}.{subject}"), format!("belfry-{subject}"));
        let options = NatsSourceOptions { subject, consumer, ca_file: None };
        NatsSource::new(address.clone(), options, clock)
    };
    let target = |subject: &str| {
        NatsTarget::new(address.clone(), None, &format!("{prefix}.{subject}"), clock).unwrap()
    };
    let orders = target("orders");
    let mut bodies: Vec<String> = (0..1_000).map(good).collect();
    bodies.insert(500, "no notification".to_owned());
    let record = |(number, body): (usize, String)| Record {
        key: None,
        body: body.into(),
        id: format!("order {number}"),
    };
    let records: Vec<Record> = bodies.into_iter().enumerate().map(record).collect();
    for batch in records.chunks(orders.limits().records) {
        assert!(orders.put(batch).await.iter().all(Result::is_ok));
    }
    // An engine that ended after it had stored some, and before it acknowledged them.
    let rig = Rig::new();
    let ended = source("orders");
    assert_eq!(ended.fetch(10, Duration::from_secs(5)).await.unwrap().len(), 10);
    ended.close().await;
    let reader = SourceReader {
        source: Arc::new(source("orders")),
        dead_letters: DeadLetters::Stream(Arc::new(target("dead"))),
        ..rig.reader()
    };
    let (stop, stopping) = watch::channel(false);
    let looking = async {
        until(|| rig.counts.accepted.load(Ordering::Relaxed) == 1_000).await;
        stop.send_replace(true);
    };
    let (read, ()) = tokio::join!(reader.run(stopping), looking);
    read.unwrap();
    assert_eq!(rig.counts(), [1_000, 0, 1]);
    let dead = source("dead").fetch(8, Duration::from_secs(5)).await.unwrap();
    assert_eq!(dead.len(), 1);
    let left = source("orders").fetch(8, Duration::from_secs(1)).await.unwrap();
    assert_eq!(left, [], "all of them are acknowledged");
}
