//! Jobs, and what is reported of them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use channel::{Fence, Job, LaneQuota, Reports, Sender};
use flow::worker_deadline::UNLIMITED;
use flow::{Clock, Fixed, Gate, Limit, Quota, Sample, WorkerDeadline};
use futures_util::future::LocalBoxFuture;
use notification::{Answer, Chunk, Report, Verdict, sample};

/// The wall time of tests that need none in particular.
pub(crate) const NOW: Duration = Duration::from_hours(500_000);

/// Keeps reports, and fails when one comes twice.
#[derive(Debug, Default)]
pub(crate) struct Reported(RefCell<BTreeMap<u16, Report>>);

#[async_trait(?Send)]
impl Reports for Reported {
    async fn report(&self, reports: Vec<(u16, Report)>) {
        assert!(!reports.is_empty(), "an empty batch is a wasted message");
        for (index, report) in reports {
            let earlier = self.0.borrow_mut().insert(index, report);
            assert_eq!(earlier, None, "{index} was reported twice");
        }
    }
}

/// A limit that keeps the samples it gets.
#[derive(Debug)]
struct Recorder {
    limit: usize,
    samples: Arc<Mutex<Vec<Sample>>>,
}

impl Limit for Recorder {
    fn current(&self) -> usize {
        self.limit
    }

    fn learn(&mut self, sample: Sample) {
        self.samples.lock().unwrap().push(sample);
    }
}

/// Conditions that hold the deliveries of a job back.
#[derive(Debug, Clone, Copy)]
struct JobLimits<'a> {
    gate: &'a Gate,
    quota: Option<&'a LaneQuota>,
    fence: Option<&'a dyn Fence>,
    worker_deadline: &'a WorkerDeadline,
}

impl<'a> JobLimits<'a> {
    fn of(gate: &'a Gate) -> Self {
        Self { gate, quota: None, fence: None, worker_deadline: &UNLIMITED }
    }
}

impl Reported {
    pub(crate) fn take(&self) -> BTreeMap<u16, Report> {
        self.0.take()
    }
}

/// A chunk with one delivery for each recipient.
pub(crate) fn chunk(
    clock: Clock,
    payload: &str,
    recipients: impl IntoIterator<Item = String>,
) -> Chunk {
    let content = Some(sample::content(payload));
    Chunk { content, ..sample::chunk(channel::timestamp(clock), recipients) }
}

/// Sends all of `chunk`, `limit` at a time, and gives the reports in order.
pub(crate) async fn send(
    sender: &dyn Sender,
    clock: Clock,
    chunk: &Chunk,
    limit: usize,
) -> Vec<Report> {
    send_job(sender, clock, chunk, JobLimits::of(&Gate::new(Box::new(Fixed(limit))))).await
}

/// Sends all of `chunk`, in a lane of its own, as many a minute as `quota` lets through, and gives the reports in order.
pub(crate) async fn send_within(
    quota: &Arc<Quota>,
    sender: &dyn Sender,
    clock: Clock,
    chunk: &Chunk,
) -> Vec<Report> {
    let gate = Gate::new(Box::new(Fixed(1_000)));
    let lane = LaneQuota::new(Arc::new(Quota::new(None)), Arc::clone(quota));
    send_job(sender, clock, chunk, JobLimits { quota: Some(&lane), ..JobLimits::of(&gate) }).await
}

/// Sends all of `chunk`, one at a time and each behind `fence`, and gives the reports in order.
pub(crate) async fn send_behind(
    fence: &dyn Fence,
    sender: &dyn Sender,
    clock: Clock,
    chunk: &Chunk,
) -> Vec<Report> {
    let gate = Gate::new(Box::new(Fixed(1)));
    send_job(sender, clock, chunk, JobLimits { fence: Some(fence), ..JobLimits::of(&gate) }).await
}

/// Sends all of `chunk`, one at a time and each until `deadline`, and gives the reports in order.
pub(crate) async fn send_until(
    deadline: &WorkerDeadline,
    sender: &dyn Sender,
    clock: Clock,
    chunk: &Chunk,
) -> Vec<Report> {
    let gate = Gate::new(Box::new(Fixed(3)));
    send_job(sender, clock, chunk, JobLimits { worker_deadline: deadline, ..JobLimits::of(&gate) })
        .await
}

/// Sends all of `chunk`, `limit` at a time, behind `fence` if there is one, and gives the samples in the order of the answers.
pub(crate) async fn sample(
    (sender, clock): (&dyn Sender, Clock),
    chunk: &Chunk,
    limit: usize,
    fence: Option<&dyn Fence>,
) -> Vec<Sample> {
    let recorder = Recorder { limit, samples: Arc::default() };
    let samples = Arc::clone(&recorder.samples);
    let gate = Gate::new(Box::new(recorder));
    send_job(sender, clock, chunk, JobLimits { fence, ..JobLimits::of(&gate) }).await;
    // The gate has what is not learned yet.
    drop(gate);
    std::mem::take(&mut samples.lock().unwrap())
}

async fn send_job(
    sender: &dyn Sender,
    clock: Clock,
    chunk: &Chunk,
    limits: JobLimits<'_>,
) -> Vec<Report> {
    let JobLimits { gate, quota, fence, worker_deadline } = limits;
    let reports = Reported::default();
    let (_running, stopping) = tokio::sync::watch::channel(false);
    let job = Job {
        chunk,
        deliveries: &chunk.deliveries,
        gate,
        quota,
        fence,
        reports: &reports,
        clock,
        stopping: &stopping,
        pauses: &tokio::sync::watch::channel(Arc::default()).1,
        worker_deadline,
    };
    sender.send(job).await;
    assert_eq!(gate.in_flight(), 0, "a pass was kept");
    let reports = reports.take();
    assert_eq!(reports.len(), chunk.deliveries.len(), "each delivery is reported");
    reports.into_values().collect()
}

/// The verdicts of attempts; a report without an attempt fails the test.
pub(crate) fn verdicts(reports: &[Report]) -> Vec<Verdict> {
    reports.iter().map(|report| answer(report).verdict).collect()
}

/// The answer of an attempt.
pub(crate) fn answer(report: &Report) -> &Answer {
    match report {
        Report::Attempted(answer) => answer,
        other @ (Report::HandedBack { .. } | Report::Expired) => panic!("no attempt: {other:?}"),
    }
}

/// Runs `client` beside `server`, which is dropped at the end.
pub(crate) fn beside<'a>(
    server: impl Future<Output = ()> + 'static,
    client: impl Future<Output = ()> + 'a,
) -> LocalBoxFuture<'a, ()> {
    let server = Box::pin(server);
    Box::pin(async move {
        let local = tokio::task::LocalSet::new();
        let both = local.run_until(async {
            let server = tokio::task::spawn_local(server);
            client.await;
            server.abort();
            let ended = server.await;
            assert!(ended.map_or_else(|error| error.is_cancelled(), |()| true), "it panicked");
        });
        both.await;
    })
}

/// As many device tokens as asked for.
pub(crate) fn tokens(count: u16) -> impl Iterator<Item = String> {
    (0..count).map(|index| format!("{index:064x}"))
}
