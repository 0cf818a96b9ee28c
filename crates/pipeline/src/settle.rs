//! Settle: turns reports into outcomes and writes them. The only stage that writes outcomes, and the only
//! one that acknowledges.

mod decide;
mod policy;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use flow::Clock;
use notification::{ChunkId, Epoch, Name, Settlement, limits};
use queue::Receipt;
use store::{Settled, Settlements, StoreError};
use tokio::sync::{mpsc, watch};

use crate::metrics::Metrics;
use crate::report::ReportMessage;
use decide::Decision;
pub use policy::RetryPolicy;

/// Writes what deliver reports.
#[derive(Debug)]
pub struct Settle {
    /// Store of outcomes.
    pub store: Arc<dyn Settlements>,
    /// Channel from deliver.
    pub reports: mpsc::Receiver<ReportMessage>,
    /// Retry policy of each channel, read when a report comes.
    pub policies: watch::Receiver<BTreeMap<Name, RetryPolicy>>,
    /// Counts outcomes and latencies.
    pub metrics: Metrics,
    /// The time.
    pub clock: Clock,
    /// Number from which the jitter is drawn; another one in each process.
    pub salt: u64,
}

/// The decisions that are written together, and the receipts to acknowledge after them.
#[derive(Debug, Default)]
struct WriteBatch {
    decisions: BTreeMap<(ChunkId, Epoch), Decision>,
    receipts: Vec<Receipt>,
}

// === impl Settle ===

impl Settle {
    /// Runs until every sender of reports is gone and everything reported is written. Reports that arrive while one batch is
    /// being written are the next one: no timer, no batch size to tune.
    ///
    /// # Errors
    /// When the store failed. Deliveries whose reports it did not take are still in flight at the restart.
    pub async fn run(mut self) -> Result<(), StoreError> {
        let mut arrived = Vec::new();
        // All that the channel can hold: whatever waits is written together.
        while self.reports.recv_many(&mut arrived, limits::REPORT_BATCHES).await > 0 {
            let mut batch = WriteBatch::default();
            for reported in arrived.drain(..) {
                self.take(&mut batch, reported);
            }
            self.write(batch).await?;
        }
        Ok(())
    }

    fn take(&self, batch: &mut WriteBatch, reported: ReportMessage) {
        match reported {
            ReportMessage::Deliveries { chunk, reports, places, latency, rate_per_minute } => {
                let channel = &chunk.envelope.lane.channel;
                // A channel that was taken out of the configuration meanwhile has the usual policy.
                let policy = self.policies.borrow().get(channel).copied().unwrap_or_default();
                // A chunk may be reported under two epochs at once: the store takes one of them and refuses the other.
                let decision = batch
                    .decisions
                    .entry((chunk.id, chunk.epoch))
                    .or_insert_with(|| Decision::new(chunk, policy));
                decision.set_board(places, latency, rate_per_minute);
                let now = channel::timestamp(self.clock);
                for (index, report) in reports {
                    decision.add(index, report, now, self.salt);
                }
            }
            ReportMessage::Done(receipt) => batch.receipts.push(receipt),
        }
    }

    /// Writes settlements; returns the claims of those that were refused.
    async fn settle(
        &self,
        settlements: Vec<Settlement>,
    ) -> Result<HashSet<(ChunkId, Epoch)>, StoreError> {
        let claims: Vec<(ChunkId, Epoch)> =
            settlements.iter().map(|settlement| (settlement.chunk, settlement.epoch)).collect();
        let answers = self.store.settle(settlements).await?;
        let refused = claims.into_iter().zip(answers);
        let refused = refused.filter(|(_, answer)| *answer == Settled::Stale);
        let mut stale = HashSet::new();
        for ((chunk, epoch), _) in refused {
            // Another run has the chunk by now, and its outcome is the one that counts.
            tracing::warn!(
                chunk = chunk.0,
                epoch = epoch.0,
                "settlement refused: the chunk moved on"
            );
            stale.insert((chunk, epoch));
        }
        Ok(stale)
    }

    async fn write(&self, batch: WriteBatch) -> Result<(), StoreError> {
        let at = channel::timestamp(self.clock);
        let decisions: Vec<Decision> = batch.decisions.into_values().collect();
        let mut settlements = Vec::with_capacity(decisions.len());
        for decision in &decisions {
            decision.add_settlements(at, &mut settlements);
        }
        // In parts, each of them a transaction: the reports of one-offs that were sent together are a settlement each.
        let (mut stale, mut left) = (HashSet::new(), settlements.into_iter());
        while left.len() > 0 {
            let part = left.by_ref().take(limits::TRANSACTION_COMMANDS).collect();
            stale.extend(self.settle(part).await?);
        }
        for decision in &decisions {
            self.metrics.settled(decision.chunk(), decision.groups(), &stale, at);
        }
        // Only after the commit: a crash before it gives the chunks out again, and their epochs refuse a second outcome.
        for receipt in batch.receipts {
            if let Err((_receipt, error)) = receipt.acknowledge().await {
                tracing::warn!(%error, "not acknowledged: the queue may give the chunk out again");
            }
        }
        Ok(())
    }
}
