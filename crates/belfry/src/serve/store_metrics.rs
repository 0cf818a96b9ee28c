//! The metrics of the store that its process counts: commits, and how far the clock of the machine is off.

use std::fmt;
use std::sync::Arc;

use flow::Clock;
use pipeline::metrics::shown::{ShownHistogram, show_gauge, show_histogram, show_histograms};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use store::CommitCounts;

/// Counts of commits, as they are at a scrape.
#[derive(Debug)]
pub(super) struct StoreMetrics {
    pub(super) commits: Arc<CommitCounts>,
    /// True if the store has a write-ahead log of its own.
    pub(super) has_log: bool,
    /// The clock of the machine, and that of all processes that share the store.
    pub(super) clocks: (Clock, Clock),
}

// === impl StoreMetrics ===

impl Collector for StoreMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let encoder = &mut encoder;
        let CommitCounts { synced_us, unsynced_us, requests, .. } = &*self.commits;
        let name = "belfry_store_commit_seconds";
        let help = "Seconds of each commit: synced ones with their sync, others are made durable by the next that is";
        let times = [("yes", synced_us), ("no", unsynced_us)]
            .map(|(synced, times)| ([("synced", synced)], ShownHistogram::seconds(times.total())));
        show_histograms(encoder, (name, help), times)?;
        let name = "belfry_store_transaction_requests";
        let help = "Requests that were performed in a transaction together";
        let requests = ShownHistogram::numbers(requests.total());
        show_histogram(encoder, (name, help), &requests)?;
        if self.has_log {
            let name = "belfry_store_wal_bytes";
            let help = "Bytes of the write-ahead log";
            show_gauge(encoder, (name, help), self.commits.wal_bytes())?;
        }
        let (own, shared) = self.clocks;
        let name = "belfry_clock_offset_seconds";
        let help = "Seconds by which the time that all processes share is ahead of the clock of this machine";
        let offset = shared.wall().as_secs_f64() - own.wall().as_secs_f64();
        show_gauge(encoder, (name, help), offset)
    }
}
