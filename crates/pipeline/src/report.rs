//! The reports from deliver to settle. This channel is all that the two stages share.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use notification::{Chunk, Report, limits};
use queue::Receipt;
use tokio::sync::mpsc;

/// A message from deliver to settle. Messages about one chunk arrive in the order in which they were sent.
#[derive(Debug)]
pub enum ReportMessage {
    /// Reports of some deliveries of the chunk.
    Deliveries {
        /// The chunk.
        chunk: Arc<Chunk>,
        /// Reports by the index of the delivery; no index is reported twice.
        reports: Vec<(u16, Report)>,
        /// [`Settlement::places`](notification::Settlement::places), as of these reports.
        places: usize,
        /// [`Settlement::latency`](notification::Settlement::latency), likewise.
        latency: Option<Duration>,
        /// [`Settlement::rate_per_minute`](notification::Settlement::rate_per_minute), likewise.
        rate_per_minute: Option<NonZeroU32>,
    },
    /// End of the reports of the chunk: it is acknowledged once all of them are settled.
    Done(Receipt),
}

/// A bounded channel: when settle cannot keep up, deliver waits.
pub fn channel() -> (mpsc::Sender<ReportMessage>, mpsc::Receiver<ReportMessage>) {
    mpsc::channel(limits::REPORT_BATCHES)
}
