//! The settlements that settle writes, and the chunk for which each answer of the store counts.

use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use notification::{Answer, Chunk, Disposition, Report, Timestamp, Verdict, sample};
use prometheus_client::registry::Registry;

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
    metrics.register(registry);
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
