//! Chunks, gates and reports for the checks.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use flow::limit::{Limit, Sample};
use flow::{Clock, Gate};
use notification::{ByteString, Chunk, Pauses, Report, limits, sample};

use tokio::sync::watch;

use super::{Behaviour, TestedChannel};
use crate::{Channel, Fence, Job, Reports, Sender, Tools, timestamp};

/// A sender to one kind of provider, and what belongs to it.
pub(super) struct ChannelRig<'a> {
    pub(super) subject: &'a dyn TestedChannel,
    provider: Behaviour,
    channel: Box<dyn Channel>,
    pub(super) sender: Box<dyn Sender>,
    pub(super) clock: Clock,
    /// That nothing is paused, and the process is not being stopped.
    pub(super) pauses: watch::Receiver<Arc<Pauses>>,
    pub(super) stopping: watch::Receiver<bool>,
}

/// Keeps reports, and fails when one comes twice or a batch is empty.
#[derive(Debug, Default)]
pub(super) struct CollectedReports(pub(super) RefCell<BTreeMap<u16, Report>>);

/// A fixed limit that counts what it learns.
#[derive(Debug, Clone)]
pub(super) struct Counting {
    limit: usize,
    pub(super) finished: Arc<AtomicUsize>,
    pub(super) most_in_flight: Arc<AtomicUsize>,
}

/// A fence that grants all or nothing.
#[derive(Debug)]
pub(super) struct Granting {
    grants: bool,
    pub(super) asked: RefCell<BTreeSet<u16>>,
}

// === impl ChannelRig ===

impl<'a> ChannelRig<'a> {
    /// `None` when there is no such provider.
    pub(super) fn new(
        subject: &'a dyn TestedChannel,
        provider: Behaviour,
        clock: Clock,
    ) -> Option<Self> {
        let channel = subject.channel(provider)?;
        #[expect(clippy::expect_used, reason = "a check fails by panicking")]
        let sender = channel.open(Tools::new(clock, 7)).expect("a sender opens");
        let (pauses, stopping) = (watch::channel(Arc::default()).1, watch::channel(false).1);
        Some(Self { subject, provider, channel, sender, clock, pauses, stopping })
    }

    /// A chunk with `count` deliveries, due now.
    pub(super) fn chunk(&self, count: u16) -> Chunk {
        let recipient = |number| ByteString::from(self.subject.recipient(self.provider, number));
        #[expect(clippy::expect_used, reason = "a check fails by panicking")]
        let destination = self.channel.destination(&recipient(0)).expect("a good recipient");
        let recipients = (0..count).map(recipient);
        let mut chunk = sample::chunk(timestamp(self.clock), recipients);
        chunk.envelope.lane.destination = destination;
        Chunk { content: Some(self.subject.content()), ..chunk }
    }

    /// A job of all of `chunk`.
    pub(super) fn job<'job>(
        &'job self,
        chunk: &'job Chunk,
        gate: &'job Gate,
        reports: &'job CollectedReports,
    ) -> Job<'job> {
        let (deliveries, worker_deadline) = (&chunk.deliveries, &flow::worker_deadline::UNLIMITED);
        Job {
            chunk,
            deliveries,
            gate,
            quota: None,
            fence: None,
            reports,
            clock: self.clock,
            stopping: &self.stopping,
            pauses: &self.pauses,
            worker_deadline,
        }
    }

    /// Sends all of `chunk` through `gate`.
    pub(super) async fn send(&self, chunk: &Chunk, gate: &Gate) -> BTreeMap<u16, Report> {
        let reports = CollectedReports::default();
        self.sender.send(self.job(chunk, gate, &reports)).await;
        reports.0.into_inner()
    }
}

// === impl CollectedReports ===

#[async_trait(?Send)]
impl Reports for CollectedReports {
    async fn report(&self, reports: Vec<(u16, Report)>) {
        assert!(!reports.is_empty(), "an empty batch of reports");
        assert!(reports.len() <= limits::REPORT_ITEMS, "{} reports at once", reports.len());
        // Settle takes its time.
        tokio::task::yield_now().await;
        for (index, report) in reports {
            let earlier = self.0.borrow_mut().insert(index, report);
            assert!(earlier.is_none(), "delivery {index} was reported twice");
        }
    }
}

// === impl Granting ===

impl Granting {
    /// The report of a delivery that is not granted.
    pub(super) const REFUSAL: Report = Report::HandedBack { after: Duration::from_secs(7) };

    pub(super) fn new(grants: bool) -> Self {
        Self { grants, asked: RefCell::default() }
    }
}

#[async_trait(?Send)]
impl Fence for Granting {
    fn is_begun(&self, index: u16) -> bool {
        self.grants && self.asked.borrow().contains(&index)
    }

    async fn begin(&self, index: u16) -> Result<(), Report> {
        // A mark takes its time.
        tokio::task::yield_now().await;
        self.asked.borrow_mut().insert(index);
        if self.grants { Ok(()) } else { Err(Self::REFUSAL) }
    }
}

// === impl Counting ===

impl Counting {
    /// Admits `limit` at a time.
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, finished: Arc::default(), most_in_flight: Arc::default() }
    }

    /// A gate that it governs.
    pub(super) fn gate(&self) -> Gate {
        Gate::new(Box::new(self.clone()))
    }
}

impl Limit for Counting {
    fn current(&self) -> usize {
        self.limit
    }

    fn learn(&mut self, sample: Sample) {
        self.finished.fetch_add(1, Ordering::Relaxed);
        self.most_in_flight.fetch_max(sample.in_flight, Ordering::Relaxed);
    }
}
