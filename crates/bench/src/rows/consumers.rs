//! `consumers`: what competing consumers behind a broker deliver in one minute.
//!
//! As in the original, the minute begins with the first message; supply does not end before it does. One machine has everything: the
//! engines, PostgreSQL, the broker and the provider.

use std::ops::Range;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::job::as_float;
use super::{Bench, PATIENCE, Size, missing};
use crate::affinity::OneProcessor;
use crate::cluster::{Backing, Cluster, ClusterSetup, Cpu};
use crate::published::CONSUMERS;
use crate::report::{Check, Point, RowReport, Unit, median};
use crate::tally::{JournalTail, Tally};
use crate::trial::{Setup, Trial};
use crate::usage::caller_cpu;
use crate::workload::{Workload, WorkloadGuarantee};

/// Settings that an operator would choose for such a load on such a machine; commits stay durable.
const STORE_SETTINGS: &[(&str, &str)] = &[("shared_buffers", "1GB"), ("max_wal_size", "8GB")];
/// Recipients of one broadcast of the supply, and how many may wait for delivery before more are supplied, where there are all processors.
const BROADCAST: u64 = 500_000;
const AHEAD: u64 = 1_500_000;
/// The time that is counted with one processor.
const WINDOW_OF_ONE: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(50);
const CONTENT: &str = r#"{"aps":{"alert":"breaking news"}}"#;

/// A deployment that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deployment {
    Embedded,
    Servers(Backing),
}

/// One that runs.
#[derive(Debug)]
enum RunningDeployment {
    Embedded(Box<Trial>),
    Servers(Box<Cluster>),
}

/// The figures of one run; processor times in microseconds for each item.
#[derive(Debug, Clone, Copy)]
struct MinuteFigures {
    per_minute: f64,
    engines_us: f64,
    store_us: f64,
    broker_us: f64,
    provider_us: f64,
    caller_us: f64,
    memory_bytes_max: u64,
    lost: u64,
    duplicated: u64,
}

/// How a deployment is measured.
#[derive(Debug, Clone, Copy)]
struct ConsumersSpan {
    /// The time that is counted.
    window: Duration,
    /// Recipients that may wait for delivery before more are supplied.
    ahead: u64,
}

pub(super) fn run(bench: &Bench) -> Result<Vec<RowReport>> {
    let title = "Delivered in the minute after the first message, one machine with everything";
    let mut report = bench.report_beside("consumers", title, &CONSUMERS);
    let span = ConsumersSpan { window: Duration::from_secs(bench.size.pick(10, 60)), ahead: AHEAD };
    fill(bench, &mut report, span)?;
    for (deployment, least) in [
        (Deployment::Servers(Backing::RabbitMq), 7_000_000.0),
        (Deployment::Embedded, 10_000_000.0),
    ] {
        let name = deployment.name();
        let point = report.points.iter().find(|point| point.setting == name);
        let found = point.map_or(0.0, |point| point.figure.value());
        report.checks.push(Check::at_least(&format!("{name}, a minute"), found, least));
    }
    let one = match bench.size {
        Size::Full if report.machine.cores > 1 => Some(on_one_processor(bench)?),
        Size::Short | Size::Full => None,
    };
    #[cfg(feature = "brokers")]
    let messages = {
        let messages = super::messages::run(bench)?;
        super::messages::add_floors(&messages, &mut report);
        Some(messages)
    };
    #[cfg(not(feature = "brokers"))]
    let messages = None;
    Ok([Some(report), messages, one].into_iter().flatten().collect())
}

/// The deployments with everything on one processor: what a notification costs is not the same there (see [`plan`](crate::plan)).
fn on_one_processor(bench: &Bench) -> Result<RowReport> {
    let _pinned = OneProcessor::pin()?;
    let title = "Delivered in a minute, one machine with everything on one processor";
    let mut report = bench.report("consumers-one", title, Unit::PerMinute);
    fill(bench, &mut report, ConsumersSpan { window: WINDOW_OF_ONE, ahead: BROADCAST })?;
    Ok(report)
}

/// Fills `report` with all deployments.
fn fill(bench: &Bench, report: &mut RowReport, span: ConsumersSpan) -> Result<()> {
    let seconds = span.window.as_secs();
    report.configuration = vec![
        (
            "processes".into(),
            "embedded and PostgreSQL: one `serve`; with a broker: one `produce`, one `consume`"
                .into(),
        ),
        (
            "PostgreSQL".into(),
            "fsync and synchronous_commit on, shared_buffers 1 GB, max_wal_size 8 GB".into(),
        ),
        ("provider".into(), "APNs over TLS, answers at once".into()),
        ("window".into(), format!("{seconds} s")),
    ];
    if seconds < 60 {
        report.notes.push(format!("{seconds} s are counted, and scaled to a minute"));
    }
    for deployment in Deployment::ALL {
        match point(bench, deployment, span) {
            Ok(point) => report.points.push(point),
            Err(error) => report.notes.push(missing(deployment.name(), error)?),
        }
    }
    Ok(())
}

fn point(bench: &Bench, deployment: Deployment, span: ConsumersSpan) -> Result<Point> {
    let mut runs = Vec::new();
    for run in 1..=bench.repetitions {
        bench.say(format!("{}, run {run}", deployment.name()));
        runs.push(measure(bench, deployment, span)?);
    }
    let of = |value: fn(&MinuteFigures) -> f64| runs.iter().map(value).collect::<Vec<f64>>();
    Ok(Point {
        cpu_us_per_item: Some(median(&of(|run| run.engines_us))),
        servers_cpu_us_per_item: [
            ("PostgreSQL", median(&of(|run| run.store_us))),
            ("broker", median(&of(|run| run.broker_us))),
            ("provider", median(&of(|run| run.provider_us))),
            ("caller", median(&of(|run| run.caller_us))),
        ]
        .into_iter()
        .filter(|(_, us)| *us > 0.0)
        .map(|(name, us)| (name.to_owned(), us))
        .collect(),
        memory_bytes_max: runs.iter().map(|run| run.memory_bytes_max).max(),
        lost: runs.iter().map(|run| run.lost).sum(),
        duplicated: runs.iter().map(|run| run.duplicated).sum(),
        ..Point::of_runs(deployment.name(), Unit::PerMinute, &of(|run| run.per_minute))
    })
}

fn measure(bench: &Bench, deployment: Deployment, span: ConsumersSpan) -> Result<MinuteFigures> {
    let (directory, window) = (bench.directory()?, span.window);
    let mut running = deployment.start(bench, directory.path())?;
    let (before, called_before) = (running.cpu()?, caller_cpu()?);
    let supplied = supply(&running, span)?;
    running.drain(supplied)?;
    let called = caller_cpu()?.saturating_sub(called_before);
    let (after, memory_bytes_max) = (running.cpu()?, running.memory_bytes_max()?);
    let tally = running.finish(supplied)?;
    let first = tally.accepted_by_us(0.0).unwrap_or(0);
    let end = first + u64::try_from(window.as_micros())?;
    ensure!(
        tally.accepted_by_us(1.0).is_some_and(|last| last >= end),
        "the supply ended before the window did"
    );
    let each = |of: fn(&Cpu) -> Duration| {
        of(&after).saturating_sub(of(&before)).as_secs_f64() * 1e6 / as_float(supplied)
    };
    let within = tally.accepted_at_us.partition_point(|at| *at < end) as u64;
    Ok(MinuteFigures {
        per_minute: as_float(within) * 60.0 / window.as_secs_f64(),
        engines_us: each(|cpu| cpu.engines),
        store_us: each(|cpu| cpu.store),
        broker_us: each(|cpu| cpu.broker),
        provider_us: each(|cpu| cpu.simulator),
        caller_us: called.as_secs_f64() * 1e6 / as_float(supplied),
        memory_bytes_max,
        lost: tally.missing + tally.refused,
        duplicated: tally.duplicates,
    })
}

/// Broadcasts one after the other until the window after the first delivery is over; how many recipients there were.
fn supply(running: &RunningDeployment, span: ConsumersSpan) -> Result<u64> {
    let ConsumersSpan { window, ahead } = span;
    let clock = flow::Clock::system();
    let mut journal = running.journal()?;
    let (mut supplied, mut first, started) = (0, None, clock.monotonic());
    // One more than the window takes, so that its end is within the supply.
    while first.is_none_or(|first| clock.monotonic().duration_since(first) < window)
        || supplied < journal.lines()? + BROADCAST
    {
        let delivered = journal.lines()?;
        if delivered > 0 && first.is_none() {
            first = Some(clock.monotonic());
        }
        ensure!(clock.monotonic().duration_since(started) < PATIENCE, "nothing is delivered");
        if supplied > delivered + ahead {
            std::thread::sleep(LOOK_EVERY);
            continue;
        }
        running.broadcast(supplied..supplied + BROADCAST)?;
        supplied += BROADCAST;
    }
    Ok(supplied)
}

// === impl Deployment ===

impl Deployment {
    const ALL: [Self; 5] = [
        Self::Embedded,
        Self::Servers(Backing::Postgres),
        Self::Servers(Backing::RabbitMq),
        Self::Servers(Backing::Nats),
        Self::Servers(Backing::Kafka),
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Embedded => "embedded store",
            Self::Servers(Backing::Postgres) => "PostgreSQL",
            Self::Servers(Backing::RabbitMq) => "PostgreSQL + RabbitMQ",
            Self::Servers(Backing::Nats) => "PostgreSQL + NATS",
            Self::Servers(Backing::Kafka) => "PostgreSQL + Kafka",
        }
    }

    fn start(self, bench: &Bench, directory: &std::path::Path) -> Result<RunningDeployment> {
        let backing = match self {
            Self::Embedded => {
                let trial = Trial::start(Setup::new(bench.binary(), directory, &[]))?;
                return Ok(RunningDeployment::Embedded(Box::new(trial)));
            }
            Self::Servers(backing) => backing,
        };
        let consumers = usize::from(backing != Backing::Postgres);
        let cluster = Cluster::start(&ClusterSetup {
            binary: bench.binary().to_owned(),
            directory: directory.to_owned(),
            backing,
            roles: backing.roles(1, consumers),
            has_links: false,
            engine_settings: Vec::new(),
            store_settings: STORE_SETTINGS.to_vec(),
            simulator_flags: Vec::new(),
        })?;
        Ok(RunningDeployment::Servers(Box::new(cluster)))
    }
}

// === impl RunningDeployment ===

impl RunningDeployment {
    fn broadcast(&self, numbers: Range<u64>) -> Result<()> {
        let guarantee = WorkloadGuarantee::AtLeastOnce;
        match self {
            Self::Embedded(trial) => trial.broadcast(numbers, CONTENT, guarantee),
            Self::Servers(cluster) => cluster.operator().broadcast(numbers, CONTENT, guarantee),
        }
    }

    fn journal(&self) -> Result<JournalTail> {
        match self {
            Self::Embedded(trial) => trial.journal(),
            Self::Servers(cluster) => cluster.journal(),
        }
    }

    fn cpu(&self) -> Result<Cpu> {
        match self {
            Self::Embedded(trial) => Ok(Cpu {
                engines: trial.engine().usage()?.cpu,
                simulator: trial.simulator().usage()?.cpu,
                ..Cpu::default()
            }),
            Self::Servers(cluster) => cluster.cpu(),
        }
    }

    /// Of all engines together.
    fn memory_bytes_max(&self) -> Result<u64> {
        Ok(match self {
            Self::Embedded(trial) => trial.engine().usage()?.memory_bytes_max,
            Self::Servers(cluster) => cluster.engines_usage()?.memory_bytes_max,
        })
    }

    fn drain(&mut self, expected: u64) -> Result<()> {
        match self {
            Self::Embedded(trial) => trial.drain(PATIENCE, || Ok(())),
            Self::Servers(cluster) => cluster.drain(expected, PATIENCE),
        }
    }

    fn finish(self, tokens: u64) -> Result<Tally> {
        let workload = Workload { tokens, webhooks: Vec::new() };
        Ok(match self {
            Self::Embedded(trial) => trial.finish(&workload)?.books.tally(),
            Self::Servers(cluster) => {
                cluster.stop()?;
                cluster.books(&workload)?.tally()
            }
        })
    }
}
