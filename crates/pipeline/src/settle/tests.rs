//! Which answer of the store counts for which chunk.

use async_trait::async_trait;
use notification::{Answer, Chunk, Report, Timestamp, Verdict, sample};
use prometheus_client::registry::Registry;

use super::*;

/// A store that refuses what it is told of one chunk.
#[derive(Debug)]
struct RefusesOne(ChunkId);

#[async_trait]
impl Settlements for RefusesOne {
    async fn settle(&self, settlements: Vec<Settlement>) -> Result<Vec<Settled>, StoreError> {
        let answer = |settlement: &Settlement| {
            let is_refused = settlement.chunk == self.0;
            if is_refused { Settled::Stale } else { Settled::Applied { remaining: 0 } }
        };
        Ok(settlements.iter().map(answer).collect())
    }
}

/// A chunk of one delivery, on the channel `channel`.
fn chunk(number: u64, channel: &str) -> Arc<Chunk> {
    let mut chunk = sample::chunk(Timestamp::from_millis(0), ["recipient"]);
    (chunk.id, chunk.envelope.lane.channel) = (ChunkId(number), sample::name(channel));
    Arc::new(chunk)
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
        sender.send(Reported::Deliveries { chunk, reports, places: 0 }).await.unwrap();
    }
    drop(sender);
    let (metrics, mut registry) = (Metrics::default(), Registry::default());
    metrics.register(&mut registry);
    let settle = Settle {
        store: Arc::new(RefusesOne(ChunkId(2))),
        reports,
        policies: watch::channel(BTreeMap::new()).1,
        metrics,
        clock: Clock::starting_at(std::time::Duration::from_hours(500_000)),
        random: fastrand::Rng::with_seed(1),
    };
    settle.run().await.unwrap();
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    let counted: Vec<&str> =
        text.lines().filter(|line| line.starts_with("belfry_deliveries_total")).collect();
    let expect = r#"belfry_deliveries_total{channel="delivered",outcome="delivered"} 1"#;
    assert_eq!(counted, [expect]);
}
