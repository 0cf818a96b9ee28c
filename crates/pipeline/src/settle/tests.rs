//! The settlements that settle writes, and the chunk for which each answer of the store counts.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use notification::{Answer, Chunk, Delivery, Disposition, Report, Timestamp, Verdict, sample};
use prometheus_client::registry::Registry;

use crate::Channels;

use super::*;

/// A store that refuses the settlements of one chunk, and keeps all that it receives.
#[derive(Debug)]
struct RefusesOne {
    refused: ChunkId,
    told: Mutex<Vec<Settlement>>,
}

#[async_trait]
impl Settlements for RefusesOne {
    async fn settle(&self, settlements: Vec<Settlement>) -> Result<Vec<Settled>, StoreError> {
        let answer = |settlement: &Settlement| {
            let is_refused = settlement.chunk == self.refused;
            if is_refused { Settled::Stale } else { Settled::Applied { remaining: 0 } }
        };
        assert!(settlements.len() <= limits::TRANSACTION_COMMANDS, "a transaction has a bound");
        let answers = settlements.iter().map(answer).collect();
        self.told.lock().unwrap().extend(settlements);
        Ok(answers)
    }
}

/// A chunk of one delivery, on the channel `channel`.
fn chunk(number: u64, channel: &str) -> Arc<Chunk> {
    let mut chunk = sample::chunk(Timestamp::from_millis(0), ["recipient"]);
    (chunk.id, chunk.envelope.lane.channel) = (ChunkId(number), sample::name(channel));
    Arc::new(chunk)
}

fn reported(chunk: Arc<Chunk>, reports: Vec<(u16, Report)>) -> ReportMessage {
    ReportMessage::Deliveries { chunk, reports, places: 0, latency: None, rate_per_minute: None }
}

/// Settles `reports` with a store that refuses the settlements of `refused`; returns the settlements that the store received.
async fn run(
    reports: mpsc::Receiver<ReportMessage>,
    refused: ChunkId,
    registry: &mut Registry,
) -> Vec<Settlement> {
    let metrics = Metrics::default();
    metrics.register(registry, watch::channel(Channels::default()).1);
    let store = Arc::new(RefusesOne { refused, told: Mutex::default() });
    let settle = Settle {
        store: Arc::<RefusesOne>::clone(&store),
        reports,
        policies: watch::channel(BTreeMap::new()).1,
        metrics,
        clock: Clock::starting_at(Duration::from_hours(500_000)),
        salt: 1,
    };
    settle.run().await.unwrap();
    Arc::into_inner(store).unwrap().told.into_inner().unwrap()
}

#[tokio::test(start_paused = true)]
async fn what_was_deferred_alike_is_tried_again_at_one_instant_whatever_was_said() {
    let asked = Some(Duration::from_secs(9));
    let deferred = |index: u16| {
        let after = if index < 500 { None } else { asked };
        let words = format!("request {index} was one too many");
        (index, Report::Attempted(Answer::deferred(429, after, words)))
    };
    let (sender, reports) = crate::report::channel();
    let chunk = chunk(1, "busy");
    // Their words differ, so they come in several batches of reports.
    for first in [0, 250, 500, 750] {
        let reports = (first..first + 250).map(deferred).collect();
        let chunk = Arc::clone(&chunk);
        sender.send(reported(chunk, reports)).await.unwrap();
    }
    drop(sender);
    let told = run(reports, ChunkId(2), &mut Registry::default()).await;
    let mut retries = BTreeMap::<Timestamp, usize>::new();
    for group in &told[0].groups {
        let Disposition::Retry { at } = group.disposition else { panic!("{group:?}") };
        *retries.entry(at).or_default() += group.indexes.len();
    }
    assert_eq!(told[0].groups.len(), 1_000, "each has its words in the log");
    assert_eq!(retries.into_values().collect::<Vec<_>>(), [500, 500]);
}

#[tokio::test(start_paused = true)]
async fn an_answer_counts_for_its_own_chunk_whatever_else_was_reported() {
    let accepted = Answer { verdict: Verdict::Accepted, ..Answer::unknown("") };
    let (sender, reports) = crate::report::channel();
    for (number, channel, reports) in [
        (1, "nothing", Vec::new()),
        (2, "refused", vec![(0, Report::Attempted(accepted.clone()))]),
        (3, "delivered", vec![(0, Report::Attempted(accepted))]),
    ] {
        let chunk = chunk(number, channel);
        sender.send(reported(chunk, reports)).await.unwrap();
    }
    drop(sender);
    let mut registry = Registry::default();
    run(reports, ChunkId(2), &mut registry).await;
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    let counted: Vec<&str> =
        text.lines().filter(|line| line.starts_with("belfry_deliveries_total")).collect();
    let expect = r#"belfry_deliveries_total{channel="delivered",outcome="delivered"} 1"#;
    assert_eq!(counted, [expect]);
}

#[tokio::test(start_paused = true)]
async fn attempts_that_sent_nothing_have_a_code_of_their_own() {
    let (sender, reports) = crate::report::channel();
    let answers = [
        Answer::deferred(0, None, "no connection").unsent(),
        Answer::refused(0, false, "it cannot be written as a request").unsent(),
        Answer::refused(0, false, "the server's words"),
        Answer::unknown("no answer in time"),
        Answer::accepted(200),
    ];
    let reports_of_one = (0..).zip(answers.map(Report::Attempted)).collect();
    sender.send(reported(chunk(1, "hooks"), reports_of_one)).await.unwrap();
    drop(sender);
    let mut registry = Registry::default();
    run(reports, ChunkId(2), &mut registry).await;
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    let mut counted: Vec<&str> =
        text.lines().filter(|line| line.starts_with("belfry_attempts_total{")).collect();
    counted.sort_unstable();
    let expect = [
        "belfry_attempts_total{channel=\"hooks\",code=\"200\"} 1",
        "belfry_attempts_total{channel=\"hooks\",code=\"none\"} 2",
        "belfry_attempts_total{channel=\"hooks\",code=\"unsent\"} 2",
    ];
    assert_eq!(counted, expect);
}

#[tokio::test(start_paused = true)]
async fn all_that_waits_is_settled_in_transactions_of_a_bounded_size() {
    let count = limits::TRANSACTION_COMMANDS as u64 + 100;
    let joined = notification::join((0..count).map(|it| Chunk::clone(&chunk(it, "ios"))).collect());
    let (sender, messages) = crate::report::channel();
    for joined in joined {
        let lost = |it: &Delivery| (it.index, Report::Attempted(Answer::unknown("")));
        let reports = joined.deliveries.iter().map(lost).collect();
        sender.try_send(reported(Arc::new(joined), reports)).unwrap();
    }
    drop(sender);
    let told = run(messages, ChunkId(count), &mut Registry::default()).await;
    let chunks: BTreeSet<ChunkId> = told.iter().map(|settlement| settlement.chunk).collect();
    assert_eq!((told.len() as u64, chunks.len() as u64), (count, count));
}

#[tokio::test(start_paused = true)]
async fn what_is_deferred_beyond_its_own_end_expires_alone() {
    let clock = Clock::starting_at(Duration::from_hours(500_000));
    let alone = |(number, ends_after): (u64, Option<u64>)| {
        let mut chunk = Chunk::clone(&chunk(number, "busy"));
        let now = channel::timestamp(clock);
        chunk.envelope.expires_at = ends_after.map(|after| now.plus(Duration::from_secs(after)));
        chunk
    };
    let joined = notification::join([(1, None), (2, Some(5)), (3, Some(500))].map(alone).into());
    let joined = Arc::new(joined.into_iter().next().unwrap());
    let deferred = Answer::deferred(429, Some(Duration::from_secs(9)), "busy");
    let reports = (0..3).map(|index| (index, Report::Attempted(deferred.clone()))).collect();
    let (sender, messages) = crate::report::channel();
    sender.send(reported(joined, reports)).await.unwrap();
    drop(sender);
    let told = run(messages, ChunkId(9), &mut Registry::default()).await;
    let decided: Vec<Disposition> = told.iter().map(|part| part.groups[0].disposition).collect();
    let Disposition::Retry { at } = decided[0] else { panic!("{decided:?}") };
    assert_eq!(decided[1..], [Disposition::TooLate, Disposition::Retry { at }]);
}

#[tokio::test(start_paused = true)]
async fn a_joined_chunk_is_settled_by_the_chunks_it_is_of() {
    let alone = |number: u64| {
        let mut chunk = sample::chunk(Timestamp::from_millis(0), ["one", "two"]);
        (chunk.id, chunk.epoch) = (ChunkId(number), Epoch(10 + u32::try_from(number).unwrap()));
        // Not the first of its batch.
        chunk.deliveries.remove(0);
        chunk
    };
    let joined = notification::join((1..=3).map(alone).collect());
    let [joined] = <[Chunk; 1]>::try_from(joined).unwrap();
    let joined = Arc::new(joined);
    let accepted = Answer { verdict: Verdict::Accepted, ..Answer::unknown("") };
    let gone = Answer {
        verdict: Verdict::Refused { gone: true },
        gone_since: Some(Timestamp::from_millis(7)),
        ..Answer::unknown("gone")
    };
    let (sender, reports) = crate::report::channel();
    for (index, answer) in [(2, accepted.clone()), (1, gone), (0, accepted)] {
        let reports = vec![(index, Report::Attempted(answer))];
        sender.send(reported(Arc::clone(&joined), reports)).await.unwrap();
    }
    drop(sender);
    let mut registry = Registry::default();
    let told = run(reports, ChunkId(3), &mut registry).await;
    let claims: Vec<(u64, u32)> = told.iter().map(|part| (part.chunk.0, part.epoch.0)).collect();
    assert_eq!(claims, [(1, 11), (2, 12), (3, 13)]);
    for settlement in &told {
        assert_eq!(settlement.groups.len(), 1, "{settlement:?}");
        assert_eq!(settlement.groups[0].indexes, [1], "its place in its batch");
    }
    let of_gone = &told[1].groups[0];
    assert!(of_gone.suppress && of_gone.detail == "gone", "{of_gone:?}");
    assert_eq!(of_gone.gone_since, BTreeMap::from([(1, Timestamp::from_millis(7))]));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    let counted = |outcome: &str| {
        let of = format!(r#"outcome="{outcome}"}}"#);
        text.lines().find_map(|line| line.split_once(&of)).map(|(_, count)| count.trim())
    };
    // That of the chunk whose settlement was refused is not counted.
    assert_eq!((counted("delivered"), counted("refused")), (Some("1"), Some("1")));
}
