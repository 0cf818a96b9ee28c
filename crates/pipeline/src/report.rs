//! The reports from deliver to settle. Neither stage knows the other; this channel is all they share.

use std::sync::Arc;
use std::time::Duration;

use notification::{Chunk, Report, limits};
use queue::Receipt;
use tokio::sync::mpsc;

/// One message from deliver to settle. Messages about one chunk arrive in the order they were sent.
#[derive(Debug)]
pub enum Reported {
    /// Reports of some deliveries of the chunk.
    Deliveries {
        /// The chunk.
        chunk: Arc<Chunk>,
        /// By index; no index is reported twice.
        reports: Vec<(u16, Report)>,
        /// [`Settlement::places`](notification::Settlement::places), as of these reports.
        places: usize,
        /// [`Settlement::latency`](notification::Settlement::latency), likewise.
        latency: Option<Duration>,
    },
    /// Nothing more will be reported of the chunk: acknowledge it once all that was reported is settled.
    Done(Receipt),
}

/// A bounded channel: when settle cannot keep up, deliver waits.
pub fn channel() -> (mpsc::Sender<Reported>, mpsc::Receiver<Reported>) {
    mpsc::channel(limits::REPORT_BATCHES)
}
