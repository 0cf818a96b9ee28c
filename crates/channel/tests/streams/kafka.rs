//! Topics of a real Kafka.

use std::sync::Arc;
use std::time::Duration;

use channel::conformance::exercise;
use channel::{Channel, Tools};
use krafka::admin::{CreateTopicsOptions, NewTopic};
use notification::{Bytes, Content, Verdict};
use stream::OpenTargets;
use stream::Source as _;
use stream::kafka::{KafkaSettings, KafkaSource, KafkaTargets, connect};

use crate::{
    Subject, bodies, channel, check_keys, check_order, chunk, clock_now, keyed_chunk, local, send,
    verdicts,
};

/// Time for a connection.
const PATIENCE: Duration = Duration::from_secs(30);

/// The topics of the node that tests share, of one partition, and how it is reached.
async fn create(names: &[&str]) -> KafkaSettings {
    let settings: KafkaSettings = testbed::kafka::shared_url().unwrap().parse().unwrap();
    let kafka = connect(&settings, PATIENCE).await.unwrap();
    let topic = |name: &&str| {
        let mut topic = NewTopic::new(*name, 1, 1).unwrap();
        topic.configs.insert("max.message.bytes".to_owned(), "65536".to_owned());
        topic
    };
    let topics: Vec<NewTopic> = names.iter().map(topic).collect();
    let created = kafka.admin().create_topics(topics, CreateTopicsOptions::default()).await;
    assert!(created.unwrap().values().all(Result::is_ok));
    settings
}

fn source(settings: &KafkaSettings, topic: &str) -> KafkaSource {
    let (topic, group) = (topic.to_owned(), Some(topic.to_owned()));
    let settings = KafkaSettings { topic, group, ..settings.clone() };
    KafkaSource::open(settings, fastrand::Rng::with_seed(1)).unwrap()
}

#[tokio::test]
async fn kafka_is_a_channel() {
    let prefix = testbed::unique_prefix();
    let [suite, plain, keyed] = ["suite", "plain", "keyed"].map(|name| format!("{prefix}.{name}"));
    let settings = create(&[&suite, &plain, &keyed]).await;
    let open: Arc<dyn OpenTargets> = Arc::new(KafkaTargets::new(settings.clone()).unwrap());
    let clock = clock_now();
    let subject = Subject { system: "kafka", name: suite, open: Arc::clone(&open), cuts_off: None };
    local(exercise(&subject, clock)).await;
    local(async {
        let sender = channel("kafka", open).open(Tools::new(clock, 1)).unwrap();
        let recipient = format!("kafka:{plain}");
        let reports = send(&*sender, clock, &chunk(clock, &recipient, 1_000), None).await;
        assert_eq!(verdicts(&reports), vec![Verdict::Accepted; 1_000]);
        let chunk_of_keys = keyed_chunk(clock, &format!("kafka:{keyed}"), 1_000, 7);
        let reports = send(&*sender, clock, &chunk_of_keys, None).await;
        assert_eq!(verdicts(&reports), vec![Verdict::Accepted; 1_000]);
        // The topic takes less than the client's own bound: the broker refuses it, and nothing beside it.
        let mut mixed = chunk(clock, &recipient, 3);
        let payload = format!("\"{}\"", "x".repeat(100_000)).into();
        let content = Content { payload, options: Bytes::new(), fallback: None };
        mixed.deliveries[1].content = Some(Box::new(content));
        let reports = send(&*sender, clock, &mixed, None).await;
        let refused = Verdict::Refused { gone: false };
        assert_eq!(verdicts(&reports), [Verdict::Accepted, refused, Verdict::Accepted]);
        let nowhere = format!("kafka:{prefix}.nowhere");
        let reports = send(&*sender, clock, &chunk(clock, &nowhere, 2), None).await;
        assert_eq!(verdicts(&reports), [Verdict::Deferred { after: None }; 2]);
        sender.close().await;
    })
    .await;
    check_order(&source(&settings, &plain)).await;
    let source = source(&settings, &keyed);
    check_keys(&bodies(&source, 1_000).await, 7);
    source.close().await;
}
