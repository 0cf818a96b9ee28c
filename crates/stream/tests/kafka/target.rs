//! Writing.

use bytes::Bytes;
use stream::{PutError, Record, Source, Target};

use crate::{Topic, acknowledge, assert_empty, by_key, fetch, number, record};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_put_is_read_in_the_order_of_its_key() {
    let topic = Topic::new(4).await;
    topic.put(0..1_000, 7).await;
    topic.put(1_000..2_000, 7).await;
    let source = topic.source();
    let messages = fetch(&source, 2_000).await;
    acknowledge(&source, &messages).await;
    let keys = by_key(&messages);
    assert_eq!(keys.len(), 7);
    for (key, numbers) in keys {
        assert!(numbers.is_sorted(), "{key:?}: {numbers:?}");
    }
    let ids: std::collections::BTreeSet<&str> =
        messages.iter().map(|message| message.id.as_str()).collect();
    assert_eq!(ids.len(), 2_000);
    assert!(messages.iter().all(|message| message.id.starts_with(&topic.settings.topic)));
    assert_empty(&source).await;
    source.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_that_is_too_large_is_refused_and_the_others_are_taken() {
    let mut topic = Topic::new(1).await;
    // Larger than the topic's limit, and than the client's own.
    topic.settings.record_bytes = 1_100_000;
    let target = topic.target();
    let large = |bytes: usize| Record { body: Bytes::from(vec![b'x'; bytes]), ..record(1, 1) };
    let records = [record(0, 1), large(1_060_000), record(2, 1), large(9_000_000), record(4, 1)];
    let answers = target.put(&records).await;
    let password = topic.settings.password.as_ref().unwrap().expose();
    assert!(!format!("{target:?}").contains(password), "{target:?}");
    let refused: Vec<bool> =
        answers.iter().map(|answer| matches!(answer, Err(PutError::Refused(_)))).collect();
    assert_eq!(refused, [false, true, false, true, false], "{answers:?}");
    assert!(answers.iter().step_by(2).all(Result::is_ok), "{answers:?}");
    let source = topic.source();
    let messages = fetch(&source, 3).await;
    assert_eq!(messages.iter().map(number).collect::<Vec<_>>(), [0, 2, 4]);
    source.close().await;
    target.close().await;
}

/// The broker refuses whole batches, and the topic's limit is far below what the producer sends together.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_with_a_small_limit_refuses_what_is_too_large_and_nothing_beside_it() {
    let url = testbed::kafka::shared_url().unwrap();
    let topic = Topic::with(&url, 1, &[("max.message.bytes", "16384")]).await;
    let target = topic.target();
    let large = |number: u32| Record { body: Bytes::from(vec![b'x'; 20_000]), ..record(number, 1) };
    let padded =
        |number: u32| Record { body: Bytes::from(format!("{number:01000}")), ..record(number, 1) };
    let records: Vec<Record> = (0..100)
        .map(|number| if number % 40 == 7 { large(number) } else { padded(number) })
        .collect();
    let answers = target.put(&records).await;
    for (number, answer) in answers.iter().enumerate() {
        let is_refused = matches!(answer, Err(PutError::Refused(_)));
        assert_eq!(is_refused, number % 40 == 7, "{number}: {answer:?}");
        assert!(is_refused || answer.is_ok(), "{number}: {answer:?}");
    }
    let source = topic.source();
    let mut numbers: Vec<u32> = fetch(&source, 97).await.iter().map(number).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..100).filter(|number| number % 40 != 7).collect::<Vec<_>>());
    source.close().await;
    target.close().await;
}
