//! Counts of what a store writes, for the metrics.

use std::sync::atomic::{AtomicU64, Ordering};

use flow::histogram::doubling;
use flow::{Clock, Histogram};
use tokio::time::Instant;

/// Counts of the commits of one process.
#[derive(Debug)]
pub struct CommitCounts {
    /// Microseconds of each commit that reached the disk, its sync included, and of each sync of earlier commits by itself; with a
    /// server, until its answer.
    pub synced_us: Histogram,
    /// Microseconds of each commit that the next one makes durable.
    pub unsynced_us: Histogram,
    /// Requests of callers that were performed in each transaction.
    pub requests: Histogram,
    /// Bytes of the write-ahead log; 0 with a server.
    wal_bytes: AtomicU64,
}

/// Upper bounds of the time of a commit, microseconds: from 50 µs to 6.6 s.
static COMMIT_US: [u64; 18] = doubling(50);
/// Upper bounds of requests of a transaction.
static REQUESTS: [u64; 14] = doubling(1);
/// Measures spans, which are the same by every clock.
const CLOCK: Clock = Clock::system();

// === impl CommitCounts ===

impl CommitCounts {
    /// The time at which a commit begins.
    pub(crate) fn begin() -> Instant {
        CLOCK.monotonic()
    }

    /// Counts a commit that wrote something, began then and has ended, or a sync of earlier ones; whether it was synced.
    pub(crate) fn committed(&self, since: Instant, is_synced: bool) {
        let micros = CLOCK.monotonic().saturating_duration_since(since).as_micros();
        let times = if is_synced { &self.synced_us } else { &self.unsynced_us };
        times.observe(u64::try_from(micros).unwrap_or(u64::MAX));
    }

    pub(crate) fn set_wal_bytes(&self, bytes: u64) {
        self.wal_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Bytes of the write-ahead log as of the last transaction; 0 with a server.
    pub fn wal_bytes(&self) -> u64 {
        self.wal_bytes.load(Ordering::Relaxed)
    }
}

impl Default for CommitCounts {
    fn default() -> Self {
        Self {
            synced_us: Histogram::new(&COMMIT_US),
            unsynced_us: Histogram::new(&COMMIT_US),
            requests: Histogram::new(&REQUESTS),
            wal_bytes: AtomicU64::default(),
        }
    }
}
