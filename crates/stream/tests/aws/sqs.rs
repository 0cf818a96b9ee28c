//! Queues.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use flow::Clock;
use stream::sqs::{SqsSettings, SqsSource};
use stream::{PutError, Record, Source as _, StreamError, StreamReceipt, Target as _};

use crate::{PATIENCE, aws, create_queue, fetch_all, record, sqs_client, sqs_target, texts};

fn settings(endpoint: &str, queue: &str) -> SqsSettings {
    SqsSettings::new(queue, aws(endpoint))
}

async fn source(settings: &SqsSettings) -> SqsSource {
    SqsSource::open(settings, Clock::system()).await.unwrap()
}

fn receipts(messages: &[stream::StreamMessage]) -> Vec<StreamReceipt> {
    messages.iter().map(|message| message.receipt).collect()
}

fn both() -> [String; 2] {
    [testbed::aws::shared_sqs_url().unwrap(), testbed::aws::shared_moto_url().unwrap()]
}

#[tokio::test]
async fn messages_go_round_and_are_forgotten_when_acknowledged() {
    for endpoint in both() {
        let settings = settings(&endpoint, &create_queue(&endpoint, "").await);
        let (target, source) = (sqs_target(&settings), source(&settings).await);
        assert!(!target.keeps_order());
        for batch in 0..6 {
            let records: Vec<Record> = (0..10)
                .map(|number| record(None, "id", &format!("{{\"é\":{batch}{number}}}")))
                .collect();
            assert_eq!(target.limits().fitting(&records), 10);
            assert_eq!(target.put(&records).await, vec![Ok(()); 10]);
        }
        let messages = fetch_all(&source, 60).await;
        let ids: BTreeSet<&String> = messages.iter().map(|message| &message.id).collect();
        assert_eq!(ids.len(), 60);
        let bodies: BTreeSet<String> = texts(&messages).into_iter().collect();
        assert!(bodies.contains("{\"é\":59}") && bodies.len() == 60, "{bodies:?}");
        assert!(!source.acknowledge(&receipts(&messages)).await.iter().any(Result::is_err));
        let again = source.acknowledge(&receipts(&messages[..1])).await;
        assert!(matches!(&*again, [Err(StreamError::Refused(_))]), "{again:?}");
        assert_eq!(source.fetch(10, Duration::ZERO).await, Ok(Vec::new()));
        source.close().await;
    }
}

#[tokio::test]
async fn a_batch_that_fails_in_part_is_answered_by_record() {
    let endpoint = testbed::aws::shared_sqs_url().unwrap();
    let settings = settings(&endpoint, &create_queue(&endpoint, "").await);
    let target = sqs_target(&settings);
    let mut records =
        vec![record(None, "a", "good"), record(None, "b", "bad"), record(None, "c", "good")];
    records[1].body = Bytes::from_static(b"\xff");
    let answers = target.put(&records).await;
    assert!(
        matches!(&*answers, [Ok(()), Err(PutError::Refused(why)), Ok(())] if why.contains("UTF-8"))
    );
    let source = source(&settings).await;
    assert_eq!(texts(&fetch_all(&source, 2).await), ["good", "good"]);
    source.close().await;
}

/// The visibility is four seconds, and what is held stays with its holder for three times as long.
#[tokio::test]
async fn what_is_held_stays_held_and_what_is_given_back_comes_again() {
    let endpoint = testbed::aws::shared_sqs_url().unwrap();
    let mut settings = settings(&endpoint, &create_queue(&endpoint, "").await);
    settings.visibility_seconds = 4;
    let target = sqs_target(&settings);
    assert_eq!(
        target.put(&[record(None, "a", "one"), record(None, "b", "two")]).await,
        [Ok(()), Ok(())]
    );
    let (holder, other) = (source(&settings).await, source(&settings).await);
    let held = fetch_all(&holder, 2).await;
    assert_eq!(other.fetch(10, Duration::from_secs(12)).await, Ok(Vec::new()));
    holder.give_back(&receipts(&held[..1])).await;
    let given = fetch_all(&other, 1).await;
    assert_eq!((&given[0].id, &given[0].body), (&held[0].id, &held[0].body));
    assert_eq!(other.acknowledge(&receipts(&given)).await, [Ok(())]);
    // A source that is closed has given all of its messages back.
    holder.close().await;
    let given = fetch_all(&other, 1).await;
    assert_eq!(given[0].id, held[1].id);
    assert_eq!(other.acknowledge(&receipts(&given)).await, [Ok(())]);
    other.close().await;
}

#[tokio::test]
async fn what_a_holder_that_is_gone_has_held_comes_again() {
    let endpoint = testbed::aws::shared_sqs_url().unwrap();
    let mut settings = settings(&endpoint, &create_queue(&endpoint, "").await);
    settings.visibility_seconds = 1;
    let target = sqs_target(&settings);
    assert_eq!(target.put(&[record(None, "a", "one")]).await, [Ok(())]);
    let gone = source(&settings).await;
    let held = fetch_all(&gone, 1).await;
    drop(gone);
    let other = source(&settings).await;
    assert_eq!(fetch_all(&other, 1).await[0].id, held[0].id);
    other.close().await;
}

#[tokio::test]
async fn a_fetch_that_is_dropped_loses_nothing() {
    let endpoint = testbed::aws::shared_sqs_url().unwrap();
    let settings = settings(&endpoint, &create_queue(&endpoint, "").await);
    let (target, source) = (sqs_target(&settings), source(&settings).await);
    // The receive is under way when its fetch is dropped.
    let dropped =
        tokio::time::timeout(Duration::from_millis(100), source.fetch(10, PATIENCE)).await;
    assert!(dropped.is_err());
    assert_eq!(target.put(&[record(None, "a", "one")]).await, [Ok(())]);
    assert_eq!(texts(&fetch_all(&source, 1).await), ["one"]);
    source.close().await;
}

#[tokio::test]
async fn a_fifo_queue_keeps_order_and_drops_repeated_records() {
    for endpoint in both() {
        let settings = settings(&endpoint, &create_queue(&endpoint, ".fifo").await);
        let (target, source) = (sqs_target(&settings), source(&settings).await);
        assert!(target.keeps_order());
        let records: Vec<Record> = (0..9)
            .map(|number| {
                let key = ["red", "blue", "green"][number % 3];
                record(Some(key), &format!("id-{number}"), &format!("{number}"))
            })
            .collect();
        assert_eq!(target.put(&records).await, vec![Ok(()); 9]);
        assert_eq!(target.put(&records[3..6]).await, vec![Ok(()); 3], "taken, and dropped");
        let mut seen = [const { Vec::new() }; 3];
        while seen.iter().map(Vec::len).sum::<usize>() < 9 {
            let messages = fetch_all(&source, 1).await;
            for (message, text) in messages.iter().zip(texts(&messages)) {
                let number: usize = text.parse().unwrap();
                let key = message.key.as_deref().unwrap();
                assert_eq!(key, ["red", "blue", "green"][number % 3].as_bytes());
                seen[number % 3].push(number);
            }
            assert!(!source.acknowledge(&receipts(&messages)).await.iter().any(Result::is_err));
        }
        assert_eq!(seen, [vec![0, 3, 6], vec![1, 4, 7], vec![2, 5, 8]]);
        assert_eq!(source.fetch(10, Duration::from_secs(1)).await, Ok(Vec::new()));
        source.close().await;
    }
}

#[tokio::test]
async fn a_queue_that_is_not_there_or_a_server_that_is_not_reached_is_said() {
    let endpoint = testbed::aws::shared_sqs_url().unwrap();
    let error = sqs_target(&settings(&endpoint, "no-such-queue")).find().await.unwrap_err();
    let StreamError::Refused(text) = &error else { panic!("{error:?}") };
    assert!(text.contains("no-such-queue") && text.contains("does not exist"), "{text}");
    let error = sqs_target(&settings("http://127.0.0.1:9", "q")).find().await.unwrap_err();
    let StreamError::Unavailable(text) = &error else { panic!("{error:?}") };
    assert!(text.contains("cannot reach") && text.contains("127.0.0.1:9"), "{text}");
    // A target that is made later is written to then, and its records wait until it is.
    let name = testbed::unique_prefix();
    let target = sqs_target(&settings(&endpoint, &name));
    let records = [record(None, "a", "one"), record(None, "b", "two")];
    let answers = target.put(&records).await;
    assert!(matches!(&*answers, [Err(PutError::NotTaken(_)), Err(PutError::NotTaken(_))]));
    sqs_client(&endpoint).await.create_queue().queue_name(&name).send().await.unwrap();
    assert_eq!(target.put(&records).await, [Ok(()), Ok(())]);
}
