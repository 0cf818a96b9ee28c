//! Counts of what senders do on the wire. Each thread counts for itself, so that no two of them write to the same memory; they are added
//! up at a scrape.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use channel::{Attempt, ConnectFault, ConnectionCounts};
use flow::histogram::doubling;
use flow::{Histogram, HistogramTotal, Signal};
use notification::{Name, Report};

/// Upper bounds of latencies on the wire, microseconds: from a quarter of a millisecond to two minutes.
pub(crate) static ON_WIRE_US: [u64; 20] = doubling(250);

/// Counts of one channel on one thread.
#[derive(Debug)]
pub(crate) struct SendCounts {
    on_wire_us: Histogram,
    busy: AtomicU64,
    over_rate: AtomicU64,
    lost: AtomicU64,
    pub(crate) connections: Arc<ConnectionCounts>,
}

/// Counts of all threads, by channel. Cloning gives another handle on the same ones.
#[derive(Debug, Clone, Default)]
pub(crate) struct ProcessCounts(Arc<Mutex<BTreeMap<Name, Vec<Arc<SendCounts>>>>>);

/// Counts of one thread, by channel: a channel that is opened anew goes on with those that it had.
#[derive(Debug, Default)]
pub(crate) struct ThreadCounts {
    all: ProcessCounts,
    own: RefCell<BTreeMap<Name, Arc<SendCounts>>>,
}

/// The counts of a channel, of all threads.
#[derive(Debug)]
pub(crate) struct SendTotal {
    pub(crate) on_wire_us: HistogramTotal,
    /// Answers that asked for less (503, `REFUSED_STREAM`), and refusals for the rate (429).
    pub(crate) busy: u64,
    pub(crate) over_rate: u64,
    /// Attempts without an answer in time, or whose connection was lost.
    pub(crate) lost: u64,
    pub(crate) open: u64,
    pub(crate) opened: u64,
    pub(crate) failed: [(ConnectFault, u64); ConnectFault::ALL.len()],
    pub(crate) gone_away: u64,
}

// === impl SendCounts ===

impl SendCounts {
    /// Counts an attempt that ends.
    pub(crate) fn ended(&self, attempt: &Attempt) {
        if let Some(timing) = attempt.timing {
            let micros = timing.on_wire.as_micros();
            self.on_wire_us.observe(u64::try_from(micros).unwrap_or(u64::MAX));
        }
        let count = match attempt.signal {
            Signal::Answered | Signal::Silent => return,
            Signal::PushedBack => &self.busy,
            Signal::OverRate => &self.over_rate,
            Signal::Dropped => &self.lost,
        };
        // What found no stream or connection of ours was not tried, and says nothing of the provider.
        if matches!(attempt.report, Report::Attempted(_)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn add_to(&self, total: &mut SendTotal) {
        self.on_wire_us.add_to(&mut total.on_wire_us);
        total.busy += self.busy.load(Ordering::Relaxed);
        total.over_rate += self.over_rate.load(Ordering::Relaxed);
        total.lost += self.lost.load(Ordering::Relaxed);
        total.open += self.connections.open_now();
        total.opened += self.connections.opened();
        for (fault, count) in &mut total.failed {
            *count += self.connections.failed(*fault);
        }
        total.gone_away += self.connections.gone_away();
    }
}

impl Default for SendCounts {
    fn default() -> Self {
        Self {
            on_wire_us: Histogram::new(&ON_WIRE_US),
            busy: AtomicU64::default(),
            over_rate: AtomicU64::default(),
            lost: AtomicU64::default(),
            connections: Arc::default(),
        }
    }
}

// === impl ProcessCounts ===

impl ProcessCounts {
    /// Counts for one more thread.
    pub(crate) fn of_thread(&self) -> ThreadCounts {
        ThreadCounts { all: self.clone(), own: RefCell::default() }
    }

    /// The counts of each channel as of now.
    pub(crate) fn totals(&self) -> Vec<(Name, SendTotal)> {
        // A panic leaves nothing half done: each change adds one entry.
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let total = |(name, counts): (&Name, &Vec<Arc<SendCounts>>)| {
            let mut total = SendTotal::default();
            for counts in counts {
                counts.add_to(&mut total);
            }
            (name.clone(), total)
        };
        all.iter().map(total).collect()
    }
}

// === impl ThreadCounts ===

impl ThreadCounts {
    /// The counts of `channel` on this thread.
    pub(crate) fn of(&self, channel: &Name) -> Arc<SendCounts> {
        let mut own = self.own.borrow_mut();
        if let Some(known) = own.get(channel) {
            return Arc::clone(known);
        }
        let counts = Arc::new(SendCounts::default());
        own.insert(channel.clone(), Arc::clone(&counts));
        let mut all = self.all.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(channel.clone()).or_default().push(Arc::clone(&counts));
        counts
    }
}

// === impl SendTotal ===

impl Default for SendTotal {
    fn default() -> Self {
        Self {
            on_wire_us: HistogramTotal::new(&ON_WIRE_US),
            busy: 0,
            over_rate: 0,
            lost: 0,
            open: 0,
            opened: 0,
            failed: ConnectFault::ALL.map(|fault| (fault, 0)),
            gone_away: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use flow::Timing;
    use notification::Answer;

    use super::*;

    #[test]
    fn threads_count_by_themselves_and_are_added_up_and_a_channel_that_is_replaced_goes_on() {
        let process = ProcessCounts::default();
        let (ios, hooks): (Name, Name) = ("ios".parse().unwrap(), "hooks".parse().unwrap());
        let (one, other) = (process.of_thread(), process.of_thread());
        let timing = Timing { waited: Duration::from_secs(9), on_wire: Duration::from_millis(1) };
        for counts in [one.of(&ios), other.of(&ios), one.of(&ios)] {
            counts.ended(&Attempt::answered(Answer::unknown("")).timed(timing));
            counts.ended(&Attempt::pushed_back(Answer::unknown("")));
            counts.ended(&Attempt::over_rate(Answer::unknown("")));
            counts.ended(&Attempt::lost(""));
            counts.ended(&Attempt::handed_back(Duration::ZERO));
            counts.connections.fail(ConnectFault::Tls);
        }
        let open = other.of(&ios).connections.open();
        drop(other.of(&ios).connections.open());
        one.of(&hooks);
        let totals: BTreeMap<_, _> = process.totals().into_iter().collect();
        assert_eq!(totals[&hooks].opened, 0);
        let ios = &totals[&ios];
        assert_eq!((ios.on_wire_us.count(), ios.on_wire_us.sum), (3, 3_000));
        assert_eq!((ios.busy, ios.over_rate, ios.lost), (3, 3, 3));
        assert_eq!((ios.open, ios.opened, ios.gone_away), (1, 2, 0));
        let failed: Vec<u64> = ios.failed.iter().map(|(_, count)| *count).collect();
        assert_eq!(failed, [0, 0, 0, 3, 0, 0]);
        drop(open);
    }
}
