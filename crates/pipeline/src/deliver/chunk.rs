//! The life of one chunk in deliver.

use std::cell::RefCell;
use std::num::NonZeroU32;
use std::panic::AssertUnwindSafe;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use channel::{Attempt, Job, LaneQuota, Reports, Sender};
use flow::quota::WAIT_MAX;
use flow::{Clock, Gate};
use futures_util::FutureExt;
use notification::{Answer, Chunk, Delivery, Guarantee, Report, Verdict, limits};
use queue::Message;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::SenderThread;
use super::attempt_spans::AttemptSpans;
use super::fence::{ChunkFence, FencedReports};
use super::lane_gates::{LaneBounds, LaneGate};
use super::open_channels::OpenChannel;
use super::thread_affinity;
use crate::metrics::SendCounts;
use crate::report::ReportMessage;

/// Time to the next look at notifications whose channel is missing from the configuration: they wait for it.
const MISSING_CHANNEL_WAIT: Duration = Duration::from_mins(1);

/// Time to the retry of the deliveries that a sender which panicked has not reported: a permanent defect is met this often.
const DEFECT_WAIT: Duration = Duration::from_mins(1);

/// The channel and the gate of a lane on one thread.
#[derive(Debug)]
pub(super) struct Route {
    opened: Rc<OpenChannel>,
    lane_gate: LaneGate,
}

/// Sends the deliveries of one chunk by its lane's route, and reports each of them.
pub(super) async fn deliver(
    thread: Rc<SenderThread>,
    message: Message<Arc<Chunk>>,
    route: Option<Route>,
) {
    let Message { item: chunk, receipt } = message;
    if let Some(Route { opened, lane_gate }) = &route {
        let places = Places {
            gate: lane_gate.gate.clone(),
            quota: Arc::clone(&lane_gate.quota),
            counts: Arc::clone(&opened.counts),
            clock: thread.clock,
        };
        let spans = AttemptSpans::of(&chunk, thread.spans.as_ref(), thread.clock);
        let reporter =
            Reporter { spans, ..Reporter::new(&chunk, thread.reports.clone(), Some(places)) };
        let sender = opened.sender.as_ref();
        let run = ChunkRun { thread: &thread, sender, lane_gate, reporter: &reporter };
        run.send(&chunk).await;
    } else {
        let channel = &chunk.envelope.lane.channel;
        tracing::error!(%channel, "channel is not configured: its notifications wait");
        // Without a gate there are no places to tell of.
        let reporter = Reporter::new(&chunk, thread.reports.clone(), None);
        reporter.hand_back(&chunk.deliveries, MISSING_CHANNEL_WAIT).await;
    }
    // Settle is gone only when the process is on its way out: unsettled deliveries stay as they are in the store.
    let _unsettled = thread.reports.send(ReportMessage::Done(receipt)).await;
    // This chunk may have been the last on a channel that was replaced.
    drop(route);
    thread.channels.close_retired().await;
}

/// One run of a chunk: its thread, its sender, its gate and its reporter.
#[derive(Clone, Copy)]
struct ChunkRun<'a> {
    thread: &'a SenderThread,
    sender: &'a dyn Sender,
    lane_gate: &'a LaneGate,
    reporter: &'a Reporter,
}

/// Sends reports of one chunk to settle.
#[derive(Debug)]
struct Reporter {
    chunk: Arc<Chunk>,
    reports: mpsc::Sender<ReportMessage>,
    places: Option<Places>,
    spans: Option<AttemptSpans>,
    /// A bit for each index of the batch that was reported.
    reported: RefCell<[u64; limits::BATCH_ITEMS.div_ceil(64)]>,
}

/// Places for attempts to a lane's destination.
#[derive(Debug)]
struct Places {
    gate: Gate,
    quota: Arc<LaneQuota>,
    counts: Arc<SendCounts>,
    clock: Clock,
}

// === impl Route ===

impl Route {
    /// The route of a chunk; `None` when its channel is not configured.
    pub(super) fn of(thread: &SenderThread, chunk: &Chunk) -> Option<Self> {
        let lane = &chunk.envelope.lane;
        let opened = thread.channels.get(&lane.channel)?;
        let bounds = LaneBounds::of(&*opened.channel, &lane.destination);
        let lane_gate = thread.lane_gates.get(lane, bounds);
        Some(Self { opened, lane_gate })
    }

    /// True if one thread is to send to the destination.
    pub(super) fn has_one_thread(&self) -> bool {
        thread_affinity::has_one_thread(self.lane_gate.gate.limit(), self.lane_gate.learned_from())
    }
}

// === impl ChunkRun ===

impl ChunkRun<'_> {
    async fn send(self, chunk: &Chunk) {
        match chunk.envelope.guarantee {
            Guarantee::AtLeastOnce => {
                if has_panicked(self.sender.send(self.job(chunk))).await {
                    self.give_back(chunk, |_index| false).await;
                }
            }
            Guarantee::AtMostOnce => self.send_fenced(chunk).await,
        }
    }

    /// Sends behind the chunk's fence. Of one lane, one chunk at a time is between its first and its last slice.
    async fn send_fenced(self, chunk: &Chunk) {
        let fence = ChunkFence::new(self.thread.begin.as_ref(), chunk);
        let job = self.job(chunk);
        let reports = FencedReports { fence: &fence, job };
        let beginning = self.lane_gate.beginning.lock().await;
        let let_next_begin = async {
            fence.last_asked().await;
            drop(beginning);
            // Never ends by itself: the `select!` below ends when the sender does.
            std::future::pending::<()>().await;
        };
        // Marks are written while the sender runs, on the same task: neither outlives the other.
        let fenced = Job { fence: Some(&fence), reports: &reports, ..job };
        let sending = async {
            tokio::select! {
                // The sender first: when it has ended, nothing is left to be marked.
                biased;
                () = self.sender.send(fenced) => {}
                _never = fence.mark() => {}
                () = let_next_begin => {}
            }
        };
        // A run that was granted no mark may not be the only one: its deliveries wait out their lease.
        if has_panicked(sending).await && fence.has_begun() {
            self.give_back(chunk, |index| channel::Fence::is_begun(&fence, index)).await;
        }
    }

    /// Reports, after a panic outside of an attempt, the deliveries that are not reported yet. A delivery that `is_begun` may
    /// have been sent, and is not sent again; the rest is due again after [`DEFECT_WAIT`].
    async fn give_back(self, chunk: &Chunk, is_begun: impl Fn(u16) -> bool) {
        tracing::error!(chunk = chunk.id.0, channel = %chunk.envelope.lane.channel, "sending a chunk panicked; it is given back");
        let unreported = chunk.deliveries.iter().map(|delivery| delivery.index);
        let unreported = unreported.filter(|index| !self.reporter.has_reported(*index));
        let report = |index| {
            let unknown = || Report::Attempted(Answer::unknown("the sender panicked"));
            let after = DEFECT_WAIT;
            (index, if is_begun(index) { unknown() } else { Report::HandedBack { after } })
        };
        self.reporter.report(unreported.map(report).collect()).await;
    }

    fn job<'job>(&'job self, chunk: &'job Chunk) -> Job<'job> {
        Job {
            chunk,
            deliveries: &chunk.deliveries,
            gate: &self.lane_gate.gate,
            quota: Some(&self.lane_gate.quota),
            fence: None,
            reports: self.reporter,
            clock: self.thread.clock,
            stopping: &self.thread.stopping,
            pauses: &self.thread.pauses,
            worker_deadline: &self.thread.worker_deadline,
        }
    }
}

/// Runs `sending` to its end; true if that was a panic.
async fn has_panicked(sending: impl Future<Output = ()>) -> bool {
    AssertUnwindSafe(sending).catch_unwind().await.is_err()
}

// === impl Places ===

impl Places {
    /// Number of deliveries after which the rest of a chunk goes back to the store: no more than the quotas let through.
    fn count(&self) -> usize {
        self.gate.limit().min(self.quota.within(WAIT_MAX))
    }

    /// The rate that is learned from refusals of the destination, which learns from `reports`.
    fn learned_rate(&self, reports: &[(u16, Report)]) -> Option<NonZeroU32> {
        let quota = self.quota.destination();
        if !quota.is_learning() {
            return None;
        }
        let is_accepted = |(_, report): &&(u16, Report)| {
            let Report::Attempted(answer) = report else { return false };
            matches!(answer.verdict, Verdict::Accepted | Verdict::Refused { .. })
        };
        quota.accepted(self.clock.monotonic(), reports.iter().filter(is_accepted).count())
    }
}

// === impl Reporter ===

impl Reporter {
    fn new(
        chunk: &Arc<Chunk>,
        reports: mpsc::Sender<ReportMessage>,
        places: Option<Places>,
    ) -> Self {
        let (chunk, reported) = (Arc::clone(chunk), RefCell::default());
        Self { chunk, reports, places, spans: None, reported }
    }

    fn has_reported(&self, index: u16) -> bool {
        let (word, bit) = (usize::from(index / 64), index % 64);
        self.reported.borrow().get(word).is_some_and(|word| word & (1 << bit) != 0)
    }

    async fn hand_back(&self, deliveries: &[Delivery], after: Duration) {
        let reports =
            deliveries.iter().map(|delivery| (delivery.index, Report::HandedBack { after }));
        self.report(reports.collect()).await;
    }
}

#[async_trait(?Send)]
impl Reports for Reporter {
    async fn report(&self, reports: Vec<(u16, Report)>) {
        for (index, _) in &reports {
            if let Some(word) = self.reported.borrow_mut().get_mut(usize::from(index / 64)) {
                *word |= 1 << (index % 64);
            }
        }
        let (chunk, places) = (Arc::clone(&self.chunk), self.places.as_ref());
        let latency = places.and_then(|places| places.gate.latency());
        // As of these reports: the claim goes by it, and the limit may have moved since the chunk began.
        let rate_per_minute = places.and_then(|places| places.learned_rate(&reports));
        let places = places.map_or(0, Places::count);
        let message =
            ReportMessage::Deliveries { chunk, reports, places, latency, rate_per_minute };
        if self.reports.send(message).await.is_err() {
            tracing::warn!(
                "settle is gone: these reports are lost, and a restart recovers the chunk"
            );
        }
    }

    fn ended(&self, index: u16, since: Instant, attempt: &Attempt) {
        if let Some(places) = &self.places {
            places.counts.ended(attempt);
        }
        if let Some(spans) = &self.spans {
            spans.ended(&self.chunk, index, since, attempt);
        }
    }
}
