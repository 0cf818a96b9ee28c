//! The shared part of the examples that measure a channel: chunks of 1,000 are sent, several at a time, as deliver does it, and the
//! CPU time of the sending thread is read from the kernel.

use std::cell::Cell;
use std::error::Error;
use std::sync::{Arc, Barrier};
use std::time::Duration;

use async_trait::async_trait;
use channel::{Channel, Job, Reports, Sender, Tools};
use flow::{Clock, Gate};
use futures_util::StreamExt as _;
use notification::{Chunk, Report, Timestamp, Verdict, limits, sample};

/// How much is sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    pub(crate) warm_up: usize,
    pub(crate) requests: usize,
    pub(crate) chunks_at_a_time: usize,
    /// Sender threads, as the engine has them: each with connections of its own. They share what is sent.
    pub(crate) threads: usize,
}

/// The time that it took.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Measured {
    pub(crate) accepted: usize,
    pub(crate) requests: usize,
    pub(crate) per_second: f64,
    /// The sending threads', per request, in microseconds.
    pub(crate) cpu_us: f64,
}

/// The work of one thread.
#[derive(Debug, Clone, Copy)]
struct Share {
    accepted: usize,
    took: Duration,
    cpu: Duration,
}

#[derive(Debug, Default)]
struct Accepted(Cell<usize>);

#[async_trait(?Send)]
impl Reports for Accepted {
    async fn report(&self, reports: Vec<(u16, Report)>) {
        let accepted = |(_, report): &&(u16, Report)| matches!(report, Report::Attempted(answer) if answer.verdict == Verdict::Accepted);
        self.0.set(self.0.get() + reports.iter().filter(accepted).count());
    }
}

/// Sends `chunk` again and again.
pub(crate) fn measure(
    channel: &dyn Channel,
    chunk: &Chunk,
    load: Load,
) -> Result<Measured, Box<dyn Error>> {
    let start = Barrier::new(load.threads);
    let each = Load {
        warm_up: load.warm_up / load.threads,
        requests: load.requests / load.threads,
        ..load
    };
    let shares = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..load.threads)
            .map(|_| scope.spawn(|| run(channel, chunk, each, &start).map_err(|e| e.to_string())))
            .collect();
        let joined = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err("a thread panicked".to_owned())));
        joined.collect::<Result<Vec<_>, String>>()
    })?;
    let requests = each.requests / chunk.deliveries.len() * chunk.deliveries.len() * load.threads;
    let took = shares.iter().map(|share| share.took).max().unwrap_or_default();
    let cpu: Duration = shares.iter().map(|share| share.cpu).sum();
    Ok(Measured {
        accepted: shares.iter().map(|share| share.accepted).sum(),
        requests,
        per_second: per(requests, took.as_secs_f64()),
        cpu_us: 1e6 / per(requests, cpu.as_secs_f64()),
    })
}

/// The share of one thread, after all have warmed up.
fn run(
    channel: &dyn Channel,
    chunk: &Chunk,
    load: Load,
    start: &Barrier,
) -> Result<Share, Box<dyn Error>> {
    let clock = Clock::system();
    let sender = channel.open(Tools::new(clock, 1))?;
    let bounds = channel.bounds();
    let gate = Gate::new(bounds.concurrency.limit(bounds.learned));
    let send_all = async |requests: usize| {
        let accepted = Accepted::default();
        let jobs = futures_util::stream::iter(0..requests / chunk.deliveries.len());
        jobs.for_each_concurrent(load.chunks_at_a_time, |_| {
            send(&*sender, &gate, chunk, &accepted, clock)
        })
        .await;
        accepted.0.get()
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, send_all(load.warm_up));
    start.wait();
    let (started, cpu_started) = (clock.monotonic(), thread_cpu()?);
    let accepted = local.block_on(&runtime, send_all(load.requests));
    let (took, cpu) = (clock.monotonic() - started, thread_cpu()?.saturating_sub(cpu_started));
    local.block_on(&runtime, sender.close());
    Ok(Share { accepted, took, cpu })
}

/// A chunk of `content` for `recipients`.
pub(crate) fn chunk(content: &str, recipients: impl Iterator<Item = String>) -> Chunk {
    let chunk = sample::chunk(channel::timestamp(Clock::system()), recipients);
    Chunk { lease_until: Timestamp::MAX, content: Some(sample::content(content)), ..chunk }
}

/// The CPU time of this thread, as Linux counts it.
pub(crate) fn thread_cpu() -> Result<Duration, Box<dyn Error>> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanoseconds = text.split_whitespace().next().ok_or("an empty schedstat")?;
    Ok(Duration::from_nanos(nanoseconds.parse()?))
}

/// Sets a member of `settings`.
pub(crate) fn put(settings: &mut serde_json::Value, name: &str, value: impl serde::Serialize) {
    if let (Some(fields), Ok(value)) = (settings.as_object_mut(), serde_json::to_value(value)) {
        fields.insert(name.to_owned(), value);
    }
}

#[expect(clippy::print_stdout, reason = "an example that measures has nothing else to say")]
pub(crate) fn say(line: &str) {
    println!("{line}");
}

async fn send(sender: &dyn Sender, gate: &Gate, chunk: &Chunk, reports: &Accepted, clock: Clock) {
    let mut chunk = chunk.clone();
    chunk.lease_until = channel::timestamp(clock).plus(limits::LEASE);
    let (_running, stopping) = tokio::sync::watch::channel(false);
    let deliveries = &chunk.deliveries;
    let (stopping, pauses) = (&stopping, &tokio::sync::watch::channel(Arc::default()).1);
    let (chunk, worker_deadline) = (&chunk, &flow::worker_deadline::UNLIMITED);
    sender
        .send(Job {
            chunk,
            deliveries,
            gate,
            quota: None,
            fence: None,
            reports,
            clock,
            stopping,
            pauses,
            worker_deadline,
        })
        .await;
}

// === impl Measured ===

impl std::fmt::Display for Measured {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { accepted, requests, per_second, cpu_us } = self;
        writeln!(formatter, "accepted    {accepted} of {requests}")?;
        writeln!(formatter, "per second  {per_second:.0}")?;
        write!(formatter, "CPU         {cpu_us:.2} us per request")
    }
}

#[expect(clippy::cast_precision_loss, reason = "for display")]
fn per(count: usize, seconds: f64) -> f64 {
    count as f64 / seconds
}
