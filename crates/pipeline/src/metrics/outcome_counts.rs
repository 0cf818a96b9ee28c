//! Settled deliveries by channel and outcome, from 0 on.

use std::fmt;

use notification::{Disposition, State};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric as _};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use tokio::sync::watch;

use crate::Channels;

/// Counts of settled deliveries. Cloning gives another handle on the same ones.
#[derive(Debug, Clone, Default)]
pub(super) struct OutcomeCounts(Family<OutcomeLabels, Counter>);

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    channel: String,
    outcome: &'static str,
}

/// The counts as they are at a scrape: of each configured channel all outcomes, those that have not come about as 0. A series that
/// appeared with its first count would hide that count from `rate` and `increase`, and the first of a broadcast may be its last.
#[derive(Debug)]
pub(super) struct OutcomeMetrics {
    pub(super) outcomes: OutcomeCounts,
    pub(super) channels: watch::Receiver<Channels>,
}

/// Outcomes that settle writes.
const OUTCOMES: [&str; 7] = [
    State::Delivered.as_str(),
    State::Refused.as_str(),
    State::Expired.as_str(),
    State::InDoubt.as_str(),
    State::Dead.as_str(),
    DEFERRED,
    HANDED_BACK,
];
const DEFERRED: &str = "deferred";
const HANDED_BACK: &str = "handed_back";

// === impl OutcomeCounts ===

impl OutcomeCounts {
    /// Counts `count` deliveries of `channel`.
    pub(super) fn count(&self, channel: &str, disposition: Disposition, count: u64) {
        let outcome = match disposition {
            Disposition::Ended(state) => state.as_str(),
            // The store writes it as an expiry, too.
            Disposition::TooLate => State::Expired.as_str(),
            Disposition::Retry { .. } => DEFERRED,
            Disposition::HandedBack { .. } => HANDED_BACK,
        };
        self.add(channel, outcome, count);
    }

    fn add(&self, channel: &str, outcome: &'static str, count: u64) {
        let labels = OutcomeLabels { channel: channel.to_owned(), outcome };
        self.0.get_or_create(&labels).inc_by(count);
    }
}

// === impl OutcomeMetrics ===

impl Collector for OutcomeMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for (channel, _) in self.channels.borrow().iter() {
            for outcome in OUTCOMES {
                self.outcomes.add(channel.as_str(), outcome, 0);
            }
        }
        let help = "Settled deliveries by outcome";
        let counts = &self.outcomes.0;
        counts.encode(encoder.encode_descriptor(
            "belfry_deliveries",
            help,
            None,
            counts.metric_type(),
        )?)
    }
}
