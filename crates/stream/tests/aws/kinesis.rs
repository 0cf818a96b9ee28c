//! Streams.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_kinesis::Client;
use aws_sdk_kinesis::types::StreamStatus;
use bytes::Bytes;
use flow::Clock;
use stream::aws::sdk_config;
use stream::kinesis::{KinesisSettings, KinesisSource, MemoryPositions, Positions, ReadFrom};
use stream::{
    PutError, Record, Source as _, StreamError, StreamMessage, StreamReceipt, Target as _,
};

use crate::{aws, fetch_all, kinesis_target, record, texts};

fn settings(endpoint: &str, stream: &str) -> KinesisSettings {
    KinesisSettings::new(stream, aws(endpoint))
}

async fn client(settings: &KinesisSettings) -> Client {
    Client::new(&sdk_config(&settings.aws).await.unwrap())
}

/// A stream of its own.
pub(crate) async fn create(shards: i32) -> KinesisSettings {
    let endpoint = testbed::aws::shared_moto_url().unwrap();
    let settings = settings(&endpoint, &testbed::unique_prefix());
    let client = client(&settings).await;
    client.create_stream().stream_name(&settings.stream).shard_count(shards).send().await.unwrap();
    let summary =
        client.describe_stream_summary().stream_name(&settings.stream).send().await.unwrap();
    let status = summary.stream_description_summary.unwrap().stream_status;
    assert_eq!(status, StreamStatus::Active, "moto makes it at once");
    settings
}

async fn source(settings: &KinesisSettings, positions: &Arc<MemoryPositions>) -> KinesisSource {
    let positions: Arc<dyn Positions> = Arc::clone(positions) as _;
    KinesisSource::open(settings, positions, Clock::system()).await.unwrap()
}

fn receipts(messages: &[StreamMessage]) -> Vec<StreamReceipt> {
    messages.iter().map(|message| message.receipt).collect()
}

fn numbered(numbers: std::ops::Range<usize>) -> Vec<Record> {
    let of =
        |number: usize| record(Some(&format!("key-{}", number % 7)), "id", &format!("{number}"));
    numbers.map(of).collect()
}

async fn put(settings: &KinesisSettings, numbers: std::ops::Range<usize>) {
    let target = kinesis_target(settings);
    assert!(!target.put(&numbered(numbers)).await.iter().any(Result::is_err));
}

/// The numbers of each key, in the order in which they came.
fn by_key(messages: &[StreamMessage]) -> BTreeMap<Bytes, Vec<usize>> {
    let mut keys: BTreeMap<Bytes, Vec<usize>> = BTreeMap::new();
    for (message, text) in messages.iter().zip(texts(messages)) {
        keys.entry(message.key.clone().unwrap()).or_default().push(text.parse().unwrap());
    }
    keys
}

#[tokio::test]
async fn records_go_round_in_the_order_of_their_key() {
    let settings = KinesisSettings { ordered: true, ..create(3).await };
    let target = kinesis_target(&settings);
    assert!(target.keeps_order());
    assert!(!target.put(&numbered(0..70)).await.iter().any(Result::is_err));
    let source = source(&settings, &Arc::default()).await;
    let messages = fetch_all(&source, 70).await;
    assert_eq!(messages.len(), 70);
    for (key, numbers) in by_key(&messages) {
        assert!(numbers.is_sorted() && numbers.len() == 10, "{key:?}: {numbers:?}");
    }
    assert!(messages.iter().all(|message| message.id.starts_with("shardId-")));
}

#[tokio::test]
async fn what_is_not_acknowledged_comes_again_to_the_next_source() {
    let settings = create(1).await;
    let positions = Arc::new(MemoryPositions::default());
    put(&settings, 0..6).await;
    let first = source(&settings, &positions).await;
    let messages = fetch_all(&first, 6).await;
    // All but the third.
    let mut answered = receipts(&messages);
    let third = answered.remove(2);
    assert_eq!(first.acknowledge(&answered).await, vec![Ok(()); 5]);
    first.give_back(&[third]).await;
    assert_eq!(texts(&fetch_all(&first, 1).await), ["2"]);
    first.close().await;
    let second = source(&settings, &positions).await;
    let messages = fetch_all(&second, 4).await;
    assert_eq!(texts(&messages), ["2", "3", "4", "5"]);
    assert!(!second.acknowledge(&receipts(&messages)).await.iter().any(Result::is_err));
    let again = second.acknowledge(&receipts(&messages[..1])).await;
    assert!(matches!(&*again, [Err(StreamError::Refused(_))]), "{again:?}");
    let third = source(&settings, &positions).await;
    assert_eq!(third.fetch(9, Duration::ZERO).await, Ok(Vec::new()));
}

#[tokio::test]
async fn a_shard_that_was_split_is_finished_before_its_children_are_read() {
    let settings = create(1).await;
    put(&settings, 0..20).await;
    let client = client(&settings).await;
    let shards = client.list_shards().stream_name(&settings.stream).send().await.unwrap();
    let parent = shards.shards.unwrap().remove(0);
    let middle = (1_u128 << 127).to_string();
    let split = client.split_shard().stream_name(&settings.stream).shard_to_split(&parent.shard_id);
    split.new_starting_hash_key(middle).send().await.unwrap();
    put(&settings, 20..60).await;

    let positions = Arc::new(MemoryPositions::default());
    let source = source(&settings, &positions).await;
    let messages = fetch_all(&source, 20).await;
    assert!(messages.iter().all(|message| message.id.starts_with(&parent.shard_id)));
    assert_eq!(source.fetch(99, Duration::ZERO).await, Ok(Vec::new()), "the parent is not done");
    // A fetch that waits finds the children of a shard that is finished meanwhile.
    let answered = receipts(&messages);
    let (first, answers) =
        tokio::join!(source.fetch(1, crate::PATIENCE), source.acknowledge(&answered));
    assert!(!answers.iter().any(Result::is_err));
    let rest = [first.unwrap(), fetch_all(&source, 39).await].concat();
    for (key, numbers) in by_key(&[messages, rest].concat()) {
        assert!(numbers.is_sorted(), "{key:?}: {numbers:?}");
    }
}

#[tokio::test]
async fn a_source_may_begin_with_what_is_new() {
    let settings = KinesisSettings { from: ReadFrom::Newest, ..create(2).await };
    put(&settings, 0..20).await;
    let source = source(&settings, &Arc::default()).await;
    assert_eq!(source.fetch(99, Duration::ZERO).await, Ok(Vec::new()));
    put(&settings, 20..30).await;
    let numbers = by_key(&fetch_all(&source, 10).await);
    assert!(numbers.values().flatten().all(|number| *number >= 20), "{numbers:?}");
}

#[tokio::test]
async fn a_record_without_a_key_goes_by_its_identifier_and_one_with_a_bad_key_is_refused() {
    let settings = create(1).await;
    let target = kinesis_target(&settings);
    let mut bad = record(None, "b", "bad");
    bad.key = Some(Bytes::from(vec![0; 200]));
    let answers = target.put(&[record(None, "a", "good"), bad, record(None, "c", "good")]).await;
    assert!(matches!(&*answers, [Ok(()), Err(PutError::Refused(_)), Ok(())]), "{answers:?}");
    let source = source(&settings, &Arc::default()).await;
    let messages = fetch_all(&source, 2).await;
    assert_eq!(messages[1].key.as_deref(), Some(&b"c"[..]));
}

#[tokio::test]
async fn a_stream_that_is_not_there_is_said() {
    let endpoint = testbed::aws::shared_moto_url().unwrap();
    let settings = settings(&endpoint, "no-such-stream");
    let target = kinesis_target(&settings).find().await.unwrap_err();
    let positions = Arc::new(MemoryPositions::default());
    let source = KinesisSource::open(&settings, positions, Clock::system()).await.unwrap_err();
    for error in [target, source] {
        let StreamError::Refused(text) = &error else { panic!("{error:?}") };
        assert!(text.contains("no-such-stream") && text.contains("does not exist"), "{text}");
    }
}
