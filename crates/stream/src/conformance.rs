//! The conformance suite of sources and targets. Backends and doubles run [`exercise`] in their tests, on a runtime whose time
//! runs.

#![expect(clippy::panic, reason = "a suite fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::time::timeout;

use crate::{Record, Source, StreamMessage, StreamReceipt, Target};

/// A stream under test: what its targets take, its sources give.
#[async_trait]
pub trait TestedStream: Send + Sync {
    /// Another source, with a connection of its own. All share the stream's messages.
    async fn source(&self) -> Box<dyn Source>;

    /// Another target.
    async fn target(&self) -> Box<dyn Target>;

    /// Parts of a record that a message has.
    fn carries(&self) -> Carried;
}

/// Parts of a record that come out of a stream.
#[expect(clippy::struct_excessive_bools, reason = "they are answers to five questions")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Carried {
    /// Its key.
    pub key: bool,
    /// Bytes that are no text.
    pub binary: bool,
    /// Whether a message has the same identifier when it comes again.
    pub id: bool,
    /// Whether a message that was given back comes again while others of its source are held.
    pub single: bool,
    /// Whether sources share the messages, so that each is with one of them.
    pub shared: bool,
}

/// Wait of a fetch that finds something.
const WAIT: Duration = Duration::from_secs(5);
/// Wait of a fetch that should find nothing.
const SHORT_WAIT: Duration = Duration::from_millis(500);
/// Fetches until all that was put must have come. What a source gives again by a timeout of its own comes within their waits.
const FETCHES_MAX: usize = 30;

/// Runs every case, each on a fresh stream.
pub async fn exercise(make: impl AsyncFn() -> Box<dyn TestedStream>) {
    nothing_in_means_nothing_out(&*make().await).await;
    what_goes_in_comes_out_once(&*make().await).await;
    a_whole_batch_goes_in_at_once(&*make().await).await;
    bytes_are_carried_as_they_are(&*make().await).await;
    what_is_given_back_comes_again(&*make().await).await;
    what_is_not_acknowledged_comes_again_after_a_close(&*make().await).await;
    a_fetch_that_is_dropped_loses_nothing(&*make().await).await;
    let stream = make().await;
    if stream.carries().shared {
        sources_share(&*stream).await;
    }
    an_unknown_receipt_is_an_error_and_harms_nothing(&*make().await).await;
}

async fn nothing_in_means_nothing_out(stream: &dyn TestedStream) {
    let (source, target) = (stream.source().await, stream.target().await);
    assert_eq!(target.put(&[]).await, []);
    assert_eq!(fetch(&*source, 8, SHORT_WAIT).await, []);
    assert_eq!(source.acknowledge(&[]).await, []);
    source.give_back(&[]).await;
    end(&*source, &*target).await;
}

async fn what_goes_in_comes_out_once(stream: &dyn TestedStream) {
    let (source, target) = (stream.source().await, stream.target().await);
    put(&*target, &records(0..5)).await;
    let messages = collect(&*source, 5).await;
    let bodies: Vec<Bytes> = messages.iter().filter_map(|message| message.body.clone()).collect();
    if target.keeps_order() {
        assert_eq!(bodies, bodies_of(&records(0..5)));
    } else {
        assert_eq!(set(&bodies), set(&bodies_of(&records(0..5))));
    }
    let ids: BTreeSet<&str> = messages.iter().map(|message| message.id.as_str()).collect();
    assert_eq!(ids.len(), 5, "each is known by another identifier");
    assert!(ids.iter().all(|id| !id.is_empty() && id.len() <= 255), "{ids:?}");
    if stream.carries().key {
        assert!(messages.iter().all(|message| message.key.as_deref() == Some(b"k")));
    }
    acknowledge(&*source, &messages).await;
    source.close().await;
    let source = stream.source().await;
    assert_eq!(fetch(&*source, 8, SHORT_WAIT).await, [], "nothing comes twice");
    end(&*source, &*target).await;
}

async fn a_whole_batch_goes_in_at_once(stream: &dyn TestedStream) {
    let (source, target) = (stream.source().await, stream.target().await);
    let count = target.limits().records.min(1_000);
    let records = records(0..count);
    assert_eq!(target.limits().fitting(&records), count);
    put(&*target, &records).await;
    let messages = collect(&*source, count).await;
    acknowledge(&*source, &messages).await;
    end(&*source, &*target).await;
}

async fn bytes_are_carried_as_they_are(stream: &dyn TestedStream) {
    let (source, target) = (stream.source().await, stream.target().await);
    let text = "{\"grüße\": \"\u{1f514}\\n\"}";
    let binary: &[u8] = if stream.carries().binary { b"\0\xff\r\n\x80" } else { b"text" };
    for body in [text.as_bytes(), binary] {
        let record =
            Record { key: None, body: Bytes::copy_from_slice(body), id: format!("{}", body.len()) };
        put(&*target, &[record]).await;
        let messages = collect(&*source, 1).await;
        assert_eq!(messages.first().and_then(|message| message.body.as_deref()), Some(body));
        acknowledge(&*source, &messages).await;
    }
    end(&*source, &*target).await;
}

async fn what_is_given_back_comes_again(stream: &dyn TestedStream) {
    let (source, target) = (stream.source().await, stream.target().await);
    put(&*target, &records(0..3)).await;
    let messages = collect(&*source, 3).await;
    if stream.carries().single {
        acknowledge(&*source, messages.get(..1).unwrap_or_default()).await;
        source.give_back(&receipts(messages.get(1..).unwrap_or_default())).await;
        let again = collect(&*source, 2).await;
        same(stream, messages.get(1..).unwrap_or_default(), &again);
        acknowledge(&*source, &again).await;
    } else {
        source.give_back(&receipts(&messages)).await;
        let again = collect(&*source, 3).await;
        same(stream, &messages, &again);
        acknowledge(&*source, &again).await;
    }
    end(&*source, &*target).await;
}

async fn what_is_not_acknowledged_comes_again_after_a_close(stream: &dyn TestedStream) {
    let (source, target) = (stream.source().await, stream.target().await);
    put(&*target, &records(0..4)).await;
    let messages = collect(&*source, 4).await;
    acknowledge(&*source, messages.get(..2).unwrap_or_default()).await;
    source.close().await;
    let source = stream.source().await;
    let again = collect(&*source, 2).await;
    same(stream, messages.get(2..).unwrap_or_default(), &again);
    acknowledge(&*source, &again).await;
    end(&*source, &*target).await;
}

async fn a_fetch_that_is_dropped_loses_nothing(stream: &dyn TestedStream) {
    let (source, target) = (stream.source().await, stream.target().await);
    // So that the one that is dropped is under way at the source.
    assert_eq!(fetch(&*source, 1, SHORT_WAIT).await, []);
    let dropped = timeout(SHORT_WAIT, source.fetch(8, 2 * WAIT)).await;
    assert!(dropped.is_err(), "there is nothing yet: {dropped:?}");
    put(&*target, &records(0..4)).await;
    let messages = collect(&*source, 4).await;
    acknowledge(&*source, &messages).await;
    end(&*source, &*target).await;
}

async fn sources_share(stream: &dyn TestedStream) {
    let (first, second) = (stream.source().await, stream.source().await);
    let target = stream.target().await;
    put(&*target, &records(0..10)).await;
    let mut seen: BTreeMap<Bytes, usize> = BTreeMap::new();
    for _ in 0..FETCHES_MAX {
        for source in [&first, &second] {
            let messages = fetch(&**source, 3, SHORT_WAIT).await;
            for message in &messages {
                *seen.entry(message.body.clone().unwrap_or_default()).or_default() += 1;
            }
            acknowledge(&**source, &messages).await;
        }
        if seen.len() == 10 {
            break;
        }
    }
    assert_eq!(seen.len(), 10, "all come: {seen:?}");
    assert!(seen.values().all(|times| *times == 1), "with one source each: {seen:?}");
    first.close().await;
    end(&*second, &*target).await;
}

async fn an_unknown_receipt_is_an_error_and_harms_nothing(stream: &dyn TestedStream) {
    let (source, target) = (stream.source().await, stream.target().await);
    put(&*target, &records(0..2)).await;
    let messages = collect(&*source, 2).await;
    let unknown = StreamReceipt(u64::MAX);
    source.give_back(&[unknown]).await;
    let mut receipts = receipts(&messages);
    receipts.insert(1, unknown);
    let answers = source.acknowledge(&receipts).await;
    let taken: Vec<bool> = answers.iter().map(Result::is_ok).collect();
    assert_eq!(taken, [true, false, true], "{answers:?}");
    end(&*source, &*target).await;
}

/// Records with one key, whose bodies are their numbers.
fn records(numbers: std::ops::Range<usize>) -> Vec<Record> {
    let record = |number| Record {
        key: Some(Bytes::from_static(b"k")),
        body: format!("record {number}").into(),
        id: format!("r{number}"),
    };
    numbers.map(record).collect()
}

fn bodies_of(records: &[Record]) -> Vec<Bytes> {
    records.iter().map(|record| record.body.clone()).collect()
}

fn set(bodies: &[Bytes]) -> BTreeSet<&Bytes> {
    bodies.iter().collect()
}

/// The messages in `again` are those in `first`.
fn same(stream: &dyn TestedStream, first: &[StreamMessage], again: &[StreamMessage]) {
    let body = |messages: &[StreamMessage]| {
        messages.iter().filter_map(|message| message.body.clone()).collect::<BTreeSet<Bytes>>()
    };
    assert_eq!(body(first), body(again));
    if stream.carries().id {
        let ids = |messages: &[StreamMessage]| {
            messages.iter().map(|message| message.id.clone()).collect::<BTreeSet<String>>()
        };
        assert_eq!(ids(first), ids(again));
    }
}

fn receipts(messages: &[StreamMessage]) -> Vec<StreamReceipt> {
    messages.iter().map(|message| message.receipt).collect()
}

async fn put(target: &dyn Target, records: &[Record]) {
    let answers = target.put(records).await;
    assert_eq!(answers.len(), records.len());
    for answer in answers {
        assert_eq!(answer, Ok(()));
    }
}

async fn fetch(source: &dyn Source, messages: usize, wait: Duration) -> Vec<StreamMessage> {
    match source.fetch(messages, wait).await {
        Ok(fetched) => {
            assert!(fetched.len() <= messages, "{} messages instead of {messages}", fetched.len());
            fetched
        }
        Err(error) => panic!("{error}"),
    }
}

/// Fetches until there are `count` messages.
async fn collect(source: &dyn Source, count: usize) -> Vec<StreamMessage> {
    let mut messages = Vec::new();
    for _ in 0..FETCHES_MAX {
        messages.extend(fetch(source, count - messages.len(), WAIT).await);
        if messages.len() == count {
            return messages;
        }
    }
    panic!("{} of {count} messages came", messages.len());
}

async fn acknowledge(source: &dyn Source, messages: &[StreamMessage]) {
    let answers = source.acknowledge(&receipts(messages)).await;
    assert_eq!(answers.len(), messages.len());
    for answer in answers {
        assert_eq!(answer, Ok(()));
    }
}

async fn end(source: &dyn Source, target: &dyn Target) {
    source.close().await;
    target.close().await;
}
