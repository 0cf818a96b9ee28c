//! Reading: positions, rebalances, restarts.

use std::collections::BTreeSet;
use std::time::Duration;

use stream::kafka::{KafkaSource, connect};
use stream::{Source, StreamError, StreamMessage};

use crate::{PATIENCE, Topic, acknowledge, assert_empty, fetch, node, number, receipts};

/// Wait of a fetch where two sources are asked in turn.
const TURN: Duration = Duration::from_millis(500);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_position_is_committed_once_all_below_it_is_acknowledged() {
    let topic = Topic::new(1).await;
    topic.put(0..10, 1).await;
    let source = topic.source();
    let messages = fetch(&source, 10).await;
    let (gap, rest): (Vec<_>, Vec<_>) =
        messages.into_iter().partition(|message| number(message) == 4);
    acknowledge(&source, &rest).await;
    source.close().await;
    let next = topic.source();
    let again = fetch(&next, 6).await;
    assert_eq!(again.iter().map(number).collect::<Vec<_>>(), [4, 5, 6, 7, 8, 9]);
    assert_eq!(again.first().map(|message| &message.id), gap.first().map(|message| &message.id));
    acknowledge(&next, &again).await;
    next.close().await;
    let last = topic.source();
    assert_empty(&last).await;
    last.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_given_back_comes_again_first_and_in_its_order() {
    let topic = Topic::new(1).await;
    topic.put(0..6, 1).await;
    let source = topic.source();
    let messages = fetch(&source, 4).await;
    source.give_back(&receipts(messages.get(1..3).unwrap())).await;
    let again = fetch(&source, 4).await;
    assert_eq!(again.iter().map(number).collect::<Vec<_>>(), [1, 2, 4, 5]);
    assert_eq!(again.first().map(|again| &again.id), messages.get(1).map(|first| &first.id));
    let stale = source.acknowledge(&receipts(messages.get(1..3).unwrap())).await;
    assert!(stale.iter().all(Result::is_err), "{stale:?}");
    source.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_members_share_partitions_and_lose_nothing_that_is_in_hand() {
    let topic = Topic::new(4).await;
    topic.put(0..400, 40).await;
    let first = topic.source();
    let in_hand = fetch(&first, 400).await;
    // The first ones of each partition are done.
    let offset = |message: &StreamMessage| -> u32 {
        message.id.rsplit('-').next().and_then(|offset| offset.parse().ok()).unwrap()
    };
    let (done, open): (Vec<_>, Vec<_>) =
        in_hand.into_iter().partition(|message| offset(message) < 20);
    acknowledge(&first, &done).await;
    let second = topic.source();
    // The second is given partitions, with what was in hand in them.
    let moved = fetch(&second, 1).await;
    let answers = first.acknowledge(&receipts(&open)).await;
    let gone: BTreeSet<u32> = open
        .iter()
        .zip(&answers)
        .filter(|(_message, answer)| answer.is_err())
        .map(|(message, _answer)| number(message))
        .collect();
    assert!(!gone.is_empty(), "messages of partitions that left");
    let mut seen: BTreeSet<u32> = moved.iter().map(number).collect();
    let _told = second.acknowledge(&receipts(&moved)).await;
    // What is gone comes again to the second. Or to the first: a heartbeat that is under way while its group changes is answered as
    // if the member was forgotten, and the client takes all of its partitions for lost before it joins anew (krafka 0.28).
    let again = async {
        while !gone.is_subset(&seen) {
            for source in [&second, &first] {
                let messages = source.fetch(400, TURN).await.unwrap_or_default();
                let _told = source.acknowledge(&receipts(&messages)).await;
                seen.extend(messages.iter().map(number));
            }
        }
    };
    tokio::time::timeout(PATIENCE, again).await.unwrap();
    assert!(!done.iter().any(|message| seen.contains(&number(message))), "committed");
    // One that leaves gives its partitions to the other.
    first.close().await;
    topic.put(400..440, 40).await;
    let rest: BTreeSet<u32> = (400..440).collect();
    while !rest.is_subset(&seen) {
        seen.extend(fetch(&second, 1).await.iter().map(number));
    }
    second.close().await;
}

/// An operator adds partitions while two members read: without a change of the group they would be read by neither.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitions_that_are_added_are_read() {
    let topic = Topic::new(2).await;
    topic.put(0..20, 20).await;
    let sources = [topic.source(), topic.source()];
    let mut seen = BTreeSet::new();
    read_until(&sources, &mut seen, 20).await;
    topic.grow(8).await;
    topic.put(20..60, 40).await;
    read_until(&sources, &mut seen, 60).await;
    for source in sources {
        source.close().await;
    }
}

/// Fetches and acknowledges by turns, until `count` numbers were seen.
async fn read_until(sources: &[KafkaSource], seen: &mut BTreeSet<u32>, count: usize) {
    let read = async {
        while seen.len() < count {
            for source in sources {
                let messages = source.fetch(count, TURN).await.unwrap_or_default();
                let _told = source.acknowledge(&receipts(&messages)).await;
                seen.extend(messages.iter().map(number));
            }
        }
    };
    tokio::time::timeout(PATIENCE, read).await.unwrap();
}

/// The group waits for a member that vanished, longer than a heartbeat takes to come, and the heartbeats of the others are answered as
/// those of an old generation. Others that joined by new names for that left the next members that had vanished, for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_settles_when_a_member_vanishes_and_another_comes() {
    let topic = Topic::new(6).await;
    let kafka = connect(&topic.settings, PATIENCE).await.unwrap();
    let elsewhere = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let vanishing = topic.clone();
    elsewhere.spawn(async move {
        let source = vanishing.source();
        while source.fetch(1, PATIENCE).await.is_ok() {}
    });
    let mut sources = vec![topic.source(), topic.source()];
    settled(&topic, &kafka, &sources, 3).await;
    elsewhere.shutdown_background();
    sources.push(topic.source());
    settled(&topic, &kafka, &sources, 3).await;
    topic.put(0..60, 60).await;
    let mut seen = BTreeSet::new();
    read_until(&sources, &mut seen, 60).await;
    for source in sources {
        source.close().await;
    }
}

/// Fetches until the group has had the same `count` members for longer than two sessions.
async fn settled(topic: &Topic, kafka: &krafka::Kafka, sources: &[KafkaSource], count: usize) {
    const SAME: u32 = 26;
    let settled = async {
        let (mut before, mut same) = (BTreeSet::new(), 0);
        while same < SAME {
            let turns = sources.iter().map(|source| source.fetch(1, TURN));
            let _none = futures_util::future::join_all(turns).await;
            let members = topic.members(kafka).await.unwrap_or_default();
            let is_same = members.len() == count && members == before;
            same = if is_same { same + 1 } else { 0 };
            before = members;
        }
    };
    tokio::time::timeout(PATIENCE, settled).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_is_dropped_leaves_its_group() {
    let topic = Topic::new(1).await;
    topic.put(0..2, 1).await;
    let first = topic.source();
    let _in_hand = fetch(&first, 2).await;
    drop(first);
    let second = topic.source();
    let again = fetch(&second, 2).await;
    assert_eq!(again.iter().map(number).collect::<Vec<_>>(), [0, 1]);
    second.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_is_restarted_is_read_on_and_written_on() {
    let node = node().await;
    let topic = Topic::at(&node.url(), 2).await;
    topic.put(0..20, 4).await;
    let (source, target) = (topic.source(), topic.target());
    let first = fetch(&source, 20).await;
    acknowledge(&source, first.get(..10).unwrap()).await;
    let node = tokio::task::spawn_blocking(move || {
        let mut node = node;
        node.kill().unwrap();
        node
    });
    let node = node.await.unwrap();
    let trouble = async {
        loop {
            match source.fetch(1, PATIENCE).await {
                Err(StreamError::Unavailable(why)) => return why,
                other => assert!(other.is_ok(), "{other:?}"),
            }
        }
    };
    let why = tokio::time::timeout(PATIENCE, trouble).await.unwrap();
    assert!(why.contains("Kafka at 127.0.0.1"), "{why}");
    let node = tokio::task::spawn_blocking(move || {
        let mut node = node;
        node.start_again().unwrap();
        node
    });
    let node = node.await.unwrap();
    let put = async {
        let records: Vec<_> = (20..40).map(|number| crate::record(number, 4)).collect();
        let mut missing = records;
        while !missing.is_empty() {
            let answers = stream::Target::put(&target, &missing).await;
            let mut answers = answers.into_iter();
            missing.retain(|_record| answers.next().is_some_and(|answer| answer.is_err()));
        }
    };
    tokio::time::timeout(PATIENCE, put).await.unwrap();
    let mut seen: BTreeSet<u32> = first.iter().map(number).collect();
    let read = async {
        while seen.len() < 40 {
            let messages = fetch(&source, 1).await;
            let _told = source.acknowledge(&receipts(&messages)).await;
            seen.extend(messages.iter().map(number));
        }
    };
    tokio::time::timeout(PATIENCE, read).await.unwrap();
    source.close().await;
    stream::Target::close(&target).await;
    drop(node);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fetch_that_is_given_up_loses_nothing() {
    let topic = Topic::new(1).await;
    let source = topic.source();
    assert_eq!(source.fetch(1, Duration::from_millis(1)).await, Ok(Vec::new()));
    let given_up = source.fetch(1, PATIENCE);
    drop(given_up);
    topic.put(0..3, 1).await;
    let messages = fetch(&source, 3).await;
    assert_eq!(messages.iter().map(number).collect::<Vec<_>>(), [0, 1, 2]);
    source.close().await;
}
