//! A run of one of those that are compared.

use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use flow::Clock;

use super::counting::CountingWay;
use super::delay::DelayingLink;
use super::process::PinnedProcess;
use super::rig::{ArrivedRecords, StreamRig, from_url, to_url};
use crate::rows::job::as_float;

/// One of those that are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamWay {
    /// Threads with one blocking call each, on all processors.
    Pool { threads: usize },
    /// `belfry relay`, on so many processors.
    Relay { processors: usize },
    /// `belfry relay` with so much of the time of one processor, on any.
    RelayShare { percent: u32 },
}

/// Where those that are compared find the servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamDistance {
    /// Behind links of which each direction takes [`DELAY`], as those to a managed service do.
    Delayed,
    /// On loopback.
    None,
}

/// The ways to both servers: SQS, and Kinesis.
#[derive(Debug)]
struct StreamLinks {
    queues: String,
    streams: String,
    _links: Vec<DelayingLink>,
}

/// Work of one while much waits.
#[derive(Debug, Clone, Copy)]
pub(super) struct StreamMeasured {
    pub(super) per_minute: f64,
    /// Processor time of the process for each message.
    pub(super) cpu_us: f64,
    pub(super) memory_bytes_max: u64,
    /// Threads of the process.
    pub(super) threads: u64,
}

/// The run of one whose requests and records are counted.
#[derive(Debug, Clone, Copy)]
pub(super) struct StreamCounted {
    /// Requests for each message.
    pub(super) calls: f64,
    pub(super) lost: u64,
    pub(super) duplicated: u64,
}

/// How much is measured, and how far from the servers.
#[derive(Debug, Clone, Copy)]
pub(super) struct StreamSpan {
    pub(super) distance: StreamDistance,
    /// Length of a measurement.
    pub(super) span: Duration,
    /// Messages that wait before it for a relay: more than any takes.
    pub(super) for_relay: usize,
    /// Messages of a counted run of a relay; a pool, which does the same for each, has [`COUNTED_PART`] of them.
    pub(super) counted: usize,
}

/// Of these machines; pools have all of them.
pub(super) const PROCESSORS: usize = 2;
/// Of each direction of a link: a call takes twice as much longer.
pub(super) const DELAY: Duration = Duration::from_millis(5);
/// Before a measurement, to start.
const BEFORE: Duration = Duration::from_secs(1);
const COUNTED_PART: usize = 5;
/// Messages that wait for a pool.
const FOR_POOL: usize = 10_000;
/// A counted run that takes longer has failed.
const PATIENCE: Duration = Duration::from_mins(5);
const LOOK_EVERY: Duration = Duration::from_millis(100);

// === impl StreamWay ===

impl StreamWay {
    /// The setting of a point.
    pub(super) fn name(self) -> String {
        match self {
            Self::Pool { threads } => format!("{threads} blocking threads"),
            Self::Relay { processors: 1 } => "relay, one processor".into(),
            Self::Relay { processors: PROCESSORS } => "relay, two processors".into(),
            Self::Relay { processors } => format!("relay, {processors} processors"),
            Self::RelayShare { percent } => format!("relay, {percent} % of a processor"),
        }
    }

    const fn is_pool(self) -> bool {
        matches!(self, Self::Pool { .. })
    }

    /// Measures it while more waits than it takes.
    pub(super) fn measure(
        self,
        rig: &StreamRig,
        binary: &Path,
        span: StreamSpan,
    ) -> Result<StreamMeasured> {
        rig.fill(if self.is_pool() { FOR_POOL } else { span.for_relay })?;
        let links = StreamLinks::to(rig, span.distance)?;
        let mut running = self.begin(binary, &links.queues, &links.streams)?;
        let clock = Clock::system();
        thread::sleep(BEFORE);
        if let Self::RelayShare { percent } = self {
            // Not before: what its start takes is no part of what is measured.
            running.limit_to(percent)?;
            thread::sleep(BEFORE);
        }
        let (left, before, begun) = (rig.left()?, running.usage()?, clock.monotonic());
        thread::sleep(span.span);
        running.ensure_runs()?;
        let (later, after, spent) = (rig.left()?, running.usage()?, clock.monotonic() - begun);
        let threads = running.threads()?;
        drop(running);
        ensure!(later > 0, "all messages were through before the time was: put more");
        ensure!(later < left, "{}: not one message in {:?}", self.name(), span.span);
        let done = as_float(left - later);
        Ok(StreamMeasured {
            per_minute: done / spent.as_secs_f64() * 60.0,
            cpu_us: after.cpu.saturating_sub(before.cpu).as_secs_f64() * 1e6 / done,
            memory_bytes_max: after.memory_bytes_max,
            threads,
        })
    }

    /// Has it empty the queue, and counts its requests, and what came of the messages.
    pub(super) fn count(
        self,
        rig: &StreamRig,
        binary: &Path,
        span: StreamSpan,
    ) -> Result<StreamCounted> {
        let messages = if self.is_pool() { span.counted / COUNTED_PART } else { span.counted };
        rig.fill(messages)?;
        let links = StreamLinks::to(rig, span.distance)?;
        let (queues, streams) = (CountingWay::to(&links.queues)?, CountingWay::to(&links.streams)?);
        let mut running = self.begin(binary, &queues.url, &streams.url)?;
        let clock = Clock::system();
        let begun = clock.monotonic();
        while rig.left()? > 0 {
            running.ensure_runs()?;
            ensure!(
                clock.monotonic() - begun < PATIENCE,
                "{}: the queue is not empty",
                self.name()
            );
            thread::sleep(LOOK_EVERY);
        }
        drop(running);
        let ArrivedRecords { messages: arrived, repeated } = rig.arrived()?;
        let sent = messages as u64;
        Ok(StreamCounted {
            calls: as_float(queues.requests() + streams.requests()) / as_float(sent),
            lost: sent.saturating_sub(arrived),
            duplicated: repeated,
        })
    }

    fn begin(self, binary: &Path, queues: &str, streams: &str) -> Result<PinnedProcess> {
        let (from, to) = (from_url(queues), to_url(streams));
        let relay = ["relay", "--direct", "--from", &from, "--to", &to];
        match self {
            Self::Relay { processors } => PinnedProcess::start(binary, &relay, processors),
            Self::RelayShare { .. } => PinnedProcess::start(binary, &relay, PROCESSORS),
            Self::Pool { threads } => {
                let arguments = ["bench", "stream-pool", &from, &to, &threads.to_string()];
                PinnedProcess::start(binary, &arguments, PROCESSORS)
            }
        }
    }
}

// === impl StreamDistance ===

impl StreamDistance {
    /// The report.
    pub(super) const fn row(self) -> &'static str {
        match self {
            Self::Delayed => "stream",
            Self::None => "stream-loopback",
        }
    }

    /// For a configuration.
    pub(super) fn name(self) -> String {
        match self {
            Self::Delayed => format!(
                "a round trip of {} ms, by a link on loopback in the harness, for both that are compared",
                2 * DELAY.as_millis()
            ),
            Self::None => "loopback".into(),
        }
    }
}

// === impl StreamLinks ===

impl StreamLinks {
    fn to(rig: &StreamRig, distance: StreamDistance) -> Result<Self> {
        let (queues, streams) = rig.endpoints();
        if distance == StreamDistance::None {
            return Ok(Self { queues, streams, _links: Vec::new() });
        }
        let links = [DelayingLink::to(&queues, DELAY)?, DelayingLink::to(&streams, DELAY)?];
        let [queues, streams] = links.each_ref().map(|link| link.url.clone());
        Ok(Self { queues, streams, _links: links.into() })
    }
}
