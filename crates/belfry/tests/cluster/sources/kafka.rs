//! Kafka: a consumer group.

use std::time::Duration;

use krafka::admin::{ConsumerGroupLagOptions, CreateTopicsOptions, NewTopic};
use stream::kafka::{KafkaSettings, KafkaSource, KafkaTarget, connect};

use super::{
    BAD, bad_bodies, check_letters, kill_twice, letters, notification, put_all, records, runtime,
};
use crate::support::{Cluster, eventually};

/// Messages that are notifications.
const GOOD: u64 = 12_000;
/// Partitions of the topic.
const PARTITIONS: i32 = 3;
/// Bytes that the topic takes as one record.
const RECORD_BYTES: usize = 4 << 20;

/// Creates the topics, and puts a tombstone into the first.
async fn prepare(url: &str, topic: &str, dead: &str) -> krafka::Kafka {
    let settings: KafkaSettings = format!("{url}/{topic}").parse().unwrap();
    let kafka = connect(&settings, Duration::from_secs(30)).await.unwrap();
    let mut topics = [(topic, PARTITIONS), (dead, 1)]
        .map(|(name, partitions)| NewTopic::new(name.to_owned(), partitions, 1).unwrap());
    topics[0].configs.insert("max.message.bytes".to_owned(), RECORD_BYTES.to_string());
    let created = kafka.admin().create_topics(topics, CreateTopicsOptions::default()).await;
    created.unwrap().into_values().for_each(Result::unwrap);
    let producer = kafka.producer().build().await.unwrap();
    let tombstone = krafka::producer::Record::tombstone(topic, "a key");
    assert_eq!(producer.send(tombstone).await.unwrap().topic, topic);
    producer.close().await.unwrap();
    kafka
}

/// How far the group is behind in all partitions; none while it has no position in one of them.
async fn lag(kafka: &krafka::Kafka, group: &str) -> Option<i64> {
    let options = ConsumerGroupLagOptions::default();
    let lags = kafka.admin().consumer_group_lag(group, options).await.ok()?;
    let lags: Vec<i64> = lags.into_values().map(|lag| lag.ok()?.lag).collect::<Option<_>>()?;
    (i32::try_from(lags.len()).unwrap() == PARTITIONS).then(|| lags.iter().sum())
}

#[test]
fn an_engine_that_is_killed_reads_every_message_of_kafka_once() {
    let (url, topic) = (testbed::kafka::shared_url().unwrap(), testbed::unique_prefix());
    let (runtime, dead) = (runtime(), format!("{topic}.dead"));
    let kafka = runtime.block_on(async {
        let kafka = prepare(&url, &topic, &dead).await;
        let settings = format!("{url}/{topic}?record_bytes={RECORD_BYTES}").parse().unwrap();
        let target = KafkaTarget::new(settings).unwrap();
        put_all(&target, &records(GOOD, notification, &bad_bodies(2 << 20))).await;
        kafka
    });
    let group = format!("group-of-{topic}");
    let source = format!(
        "[{{ name = \"orders\", url = \"{url}/{topic}?group={group}\", dead_letters = \"{dead}\" }}]"
    );
    let cluster = Cluster::on_disk(GOOD, &[]).with("BELFRY__SOURCES", source);
    kill_twice(&cluster, GOOD, 4711);
    let engine = cluster.start("serve", "engine");
    cluster.drained(&engine, GOOD);
    // Kafka drops no letter that comes twice. One is of the tombstone.
    let settings: KafkaSettings = format!("{url}/{dead}?group=test-{dead}").parse().unwrap();
    let letters = runtime.block_on(async {
        let source = KafkaSource::open(settings, fastrand::Rng::with_seed(1)).unwrap();
        letters(&source, BAD + 1).await
    });
    check_letters(&letters, BAD + 1);
    let is_tombstone = |letter: &&serde_json::Value| letter["key"] == "a key";
    let tombstone = letters.iter().find(is_tombstone).unwrap();
    assert!(tombstone["reason"].as_str().unwrap().contains("no content"), "{tombstone}");
    let cut = letters.iter().filter(|letter| letter["cut_from_bytes"] == 2 << 20);
    assert!(cut.count() as u64 >= BAD / 4, "a letter has no place for 2 MiB");
    eventually("all positions are committed", || runtime.block_on(lag(&kafka, &group)) == Some(0));
    let source = &cluster.status(&engine)["sources"][0];
    assert_eq!(
        (&source["name"], &source["waits_for"]),
        (&"orders".into(), &serde_json::Value::Null)
    );
    engine.stop();
}
