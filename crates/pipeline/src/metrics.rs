//! The metrics of the stages: rates and latencies. Accounts are the store's.

mod attempt_codes;
mod outcome_counts;
mod send_counts;
mod send_metrics;
pub mod shown;

use std::collections::HashSet;
use std::time::Duration;

use notification::{Chunk, ChunkId, Disposition, Epoch, OutcomeGroup, State, Timestamp};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use tokio::sync::watch;

use crate::Channels;
use attempt_codes::AttemptCodes;
pub(crate) use attempt_codes::attempt_code;
use outcome_counts::{OutcomeCounts, OutcomeMetrics};
use send_counts::ProcessCounts;
pub(crate) use send_counts::{SendCounts, ThreadCounts};
use send_metrics::SendMetrics;

/// Counters and histograms of the pipeline. Cloning gives another handle on the same ones.
#[derive(Debug, Clone)]
pub struct Metrics {
    outcomes: OutcomeCounts,
    latency: Family<ChannelLabels, Histogram, fn() -> Histogram>,
    attempts: AttemptCodes,
    sends: ProcessCounts,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ChannelLabels {
    channel: String,
}

/// Histogram of latencies: from half a millisecond to nine minutes, doubling.
fn latency_histogram() -> Histogram {
    Histogram::new(exponential_buckets(0.0005, 2.0, 21))
}

// === impl Metrics ===

impl Default for Metrics {
    fn default() -> Self {
        Self {
            outcomes: OutcomeCounts::default(),
            latency: Family::new_with_constructor(latency_histogram),
            attempts: AttemptCodes::default(),
            sends: ProcessCounts::default(),
        }
    }
}

impl Metrics {
    /// Registers everything in `registry`; `channels` are those that are configured.
    pub fn register(&self, registry: &mut Registry, channels: watch::Receiver<Channels>) {
        let outcomes = self.outcomes.clone();
        registry.register_collector(Box::new(OutcomeMetrics { outcomes, channels }));
        let help = "Seconds from the due time of a notification to its settled acceptance";
        registry.register("belfry_due_to_accepted_seconds", help, self.latency.clone());
        self.attempts.register(registry);
        registry.register_collector(Box::new(SendMetrics(self.sends.clone())));
    }

    /// Counts for one more sender thread.
    pub(crate) fn of_thread(&self) -> ThreadCounts {
        self.sends.of_thread()
    }

    /// Counts the settled deliveries of `chunk`, but for those of `refused` claims: a group of equal outcomes at once, and the latency
    /// of each delivery. With each group comes whether it is of attempts that sent nothing.
    pub(crate) fn settled<'a>(
        &self,
        chunk: &Chunk,
        groups: impl Iterator<Item = (&'a OutcomeGroup, bool)>,
        refused: &HashSet<(ChunkId, Epoch)>,
        at: Timestamp,
    ) {
        let channel = chunk.envelope.lane.channel.as_str();
        for (group, is_unsent) in groups {
            let is_settled = |index: &&u16| !refused.contains(&chunk.claim_of(**index));
            let settled = || group.indexes.iter().filter(is_settled);
            let count = settled().count();
            if count == 0 {
                continue;
            }
            self.outcomes.count(channel, group.disposition, count as u64);
            if is_unsent {
                self.attempts.count_unsent(channel, count as u64);
            } else {
                self.attempts.count(channel, group, count as u64);
            }
            if group.disposition == Disposition::Ended(State::Delivered) {
                self.observe(channel, settled().map(|index| at.since(chunk.due_since(*index))));
            }
        }
    }

    fn observe(&self, channel: &str, waited: impl Iterator<Item = Duration>) {
        let histogram = self.latency.get_or_create(&ChannelLabels { channel: channel.to_owned() });
        // The library counts one observation at a time.
        waited.for_each(|waited| histogram.observe(waited.as_secs_f64()));
    }
}
