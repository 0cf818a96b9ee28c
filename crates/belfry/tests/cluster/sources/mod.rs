//! Notifications that engines read from streams of other systems: stored before they are acknowledged, once each, and held up by no bad
//! one.

#[cfg(feature = "kafka")]
mod kafka;
#[cfg(feature = "kinesis")]
mod kinesis;
mod nats;
mod rabbitmq;
#[cfg(feature = "sqs")]
mod sqs;

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use stream::{Record, Source, StreamMessage, Target};
use tokio::runtime::Runtime;

use crate::support::{Cluster, Process, eventually};
use bench::workload::token;

/// Messages that are none, put among those that are notifications.
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

/// Bodies that are no notifications, for systems that take any bytes.
fn bad_bodies(large: usize) -> [Bytes; 4] {
    [
        Bytes::from_static(b"{\"no\": \"notification\"}"),
        Bytes::from_static(b"\xff\x00 garbage"),
        Bytes::new(),
        vec![b'x'; large].into(),
    ]
}

/// Records of `good` notifications and of bad messages among them, in the order in which they are put; each with its identifier.
fn records(good: u64, body: impl Fn(u64) -> Value, bad: &[Bytes]) -> Vec<Record> {
    let mut bodies: Vec<Bytes> = (0..good).map(|number| body(number).to_string().into()).collect();
    for (number, bad) in (0..BAD).zip(bad.iter().cycle()) {
        bodies.insert(usize::try_from(number * (good / BAD)).unwrap(), bad.clone());
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

/// Starts an engine and kills it, twice, each after a seeded part of `good` messages.
fn kill_twice(cluster: &Cluster, good: u64, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    for _kill in 0..2 {
        let engine = cluster.start("serve", "engine");
        let before = messages(&engine, "accepted");
        let until = before + random.u64(1..good / 4);
        eventually("messages were read", || messages(&engine, "accepted") >= until);
        engine.kill();
    }
}

/// Dead letters, until they are of `bad` messages.
async fn letters(source: &dyn Source, bad: u64) -> Vec<Value> {
    let mut letters = Vec::new();
    while (ids(&letters).len() as u64) < bad {
        let fetched = source.fetch(100, LETTER_WAIT).await.unwrap();
        assert!(!fetched.is_empty(), "{} letters", letters.len());
        let body = |message: &StreamMessage| message.body.clone().unwrap();
        letters
            .extend(fetched.iter().map(|message| serde_json::from_slice(&body(message)).unwrap()));
        let receipts: Vec<_> = fetched.iter().map(|message| message.receipt).collect();
        // One that is given again is of a message that is known.
        source.acknowledge(&receipts).await;
    }
    source.close().await;
    letters
}

/// The messages that letters are of.
fn ids(letters: &[Value]) -> BTreeSet<&str> {
    letters.iter().map(|letter| letter["id"].as_str().unwrap()).collect()
}

fn check_letters(letters: &[Value], bad: u64) {
    for letter in letters {
        assert_eq!(letter["source"], "orders");
        assert!(letter["reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{letter}");
    }
    assert_eq!(ids(letters).len() as u64, bad);
}

fn notification(number: u64) -> Value {
    json!({"channel": "ios", "to": token(number), "content": {"aps": {"alert": "hello"}}})
}
