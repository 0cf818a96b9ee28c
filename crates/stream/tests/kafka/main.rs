//! Sources and targets in a real Kafka.

#![expect(clippy::unwrap_used, reason = "all of it is test code: a failure here fails the test")]
#![expect(clippy::panic, reason = "likewise")]

mod conformance;
mod refused;
mod source;
mod target;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use krafka::admin::{
    CreatePartitionsOptions, CreateTopicsOptions, DescribeConsumerGroupsOptions, NewTopic,
};
use stream::kafka::{KafkaSettings, KafkaSource, KafkaTarget, connect};
use stream::{Record, Source, StreamMessage, StreamReceipt, Target};
use testbed::{Kafka, unique_prefix};

/// Any wait ends before.
const PATIENCE: Duration = Duration::from_mins(2);

/// A topic of its own, and a group of its own.
#[derive(Debug, Clone)]
struct Topic {
    settings: KafkaSettings,
}

impl Topic {
    /// In the node that tests share.
    async fn new(partitions: i32) -> Self {
        Self::at(&testbed::kafka::shared_url().unwrap(), partitions).await
    }

    async fn at(url: &str, partitions: i32) -> Self {
        Self::with(url, partitions, &[]).await
    }

    /// With settings of the topic.
    async fn with(url: &str, partitions: i32, configs: &[(&str, &str)]) -> Self {
        let name = unique_prefix();
        let settings: KafkaSettings = format!("{url}/{name}?group={name}").parse().unwrap();
        let kafka = connect(&settings, Duration::from_secs(30)).await.unwrap();
        let mut topic = NewTopic::new(name.clone(), partitions, 1).unwrap();
        topic.configs.extend(configs.iter().map(|(name, value)| ((*name).into(), (*value).into())));
        let created = kafka.admin().create_topics([topic], CreateTopicsOptions::default()).await;
        created.unwrap().remove(&name).unwrap().unwrap();
        // The broker that was asked learns of it a little later.
        let known = async {
            while stream::kafka::partitions(&kafka, &settings, PATIENCE).await.is_err() {}
        };
        tokio::time::timeout(PATIENCE, known).await.unwrap();
        Self { settings }
    }

    /// Adds partitions, up to `partitions`.
    async fn grow(&self, partitions: i32) {
        let name = self.settings.topic.as_str();
        let kafka = connect(&self.settings, Duration::from_secs(30)).await.unwrap();
        let options = CreatePartitionsOptions::default();
        let grown = kafka.admin().create_partitions([(name, partitions)], options).await;
        grown.unwrap().remove(name).unwrap().unwrap();
    }

    fn source(&self) -> KafkaSource {
        KafkaSource::open(self.settings.clone(), fastrand::Rng::with_seed(1)).unwrap()
    }

    /// The names of the members of its group; `None` while the group changes, or is not there yet.
    async fn members(&self, kafka: &krafka::Kafka) -> Option<BTreeSet<String>> {
        let group = self.settings.group.as_deref().unwrap();
        let options = DescribeConsumerGroupsOptions::default();
        let groups = kafka.admin().describe_consumer_groups([group], options).await;
        let found = groups.unwrap().remove(group).unwrap().ok()?;
        let names = found.members.into_iter().map(|member| member.member_id);
        (found.state == "Stable").then(|| names.collect())
    }

    fn target(&self) -> KafkaTarget {
        KafkaTarget::new(self.settings.clone()).unwrap()
    }

    /// Puts a record for each number, with the key `number % keys`.
    async fn put(&self, numbers: std::ops::Range<u32>, keys: u32) {
        let target = self.target();
        let records: Vec<Record> = numbers.map(|number| record(number, keys)).collect();
        for answer in target.put(&records).await {
            answer.unwrap();
        }
        target.close().await;
    }
}

fn record(number: u32, keys: u32) -> Record {
    let key = Bytes::from((number % keys).to_string());
    Record { key: Some(key), body: Bytes::from(number.to_string()), id: format!("id-{number}") }
}

fn number(message: &StreamMessage) -> u32 {
    std::str::from_utf8(message.body.as_ref().unwrap()).unwrap().parse().unwrap()
}

fn receipts(messages: &[StreamMessage]) -> Vec<StreamReceipt> {
    messages.iter().map(|message| message.receipt).collect()
}

/// Fetches until there are `count` messages.
async fn fetch(source: &KafkaSource, count: usize) -> Vec<StreamMessage> {
    let all = async {
        let mut messages = Vec::new();
        while messages.len() < count {
            let missing = count - messages.len();
            // What passes is passed over: a test of trouble looks for it itself.
            messages.extend(source.fetch(missing, PATIENCE).await.unwrap_or_default());
        }
        messages
    };
    let fetched = tokio::time::timeout(PATIENCE, all).await;
    fetched.unwrap_or_else(|_late| panic!("no {count} messages within {PATIENCE:?}"))
}

/// Asserts that nothing comes in a moment that is long enough for what is there.
async fn assert_empty(source: &KafkaSource) {
    let messages = source.fetch(10, Duration::from_secs(2)).await.unwrap();
    assert_eq!(messages, []);
}

async fn acknowledge(source: &KafkaSource, messages: &[StreamMessage]) {
    for answer in source.acknowledge(&receipts(messages)).await {
        answer.unwrap();
    }
}

/// The numbers of `messages` by key, in their order.
fn by_key(messages: &[StreamMessage]) -> BTreeMap<Bytes, Vec<u32>> {
    let mut keys: BTreeMap<Bytes, Vec<u32>> = BTreeMap::new();
    for message in messages {
        keys.entry(message.key.clone().unwrap()).or_default().push(number(message));
    }
    keys
}

/// Starts a node of a test's own.
async fn node() -> Kafka {
    tokio::task::spawn_blocking(|| Kafka::start().unwrap()).await.unwrap()
}
