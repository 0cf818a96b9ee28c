//! `breadth-tenants`: one tenant beside the backlog of another in the same lane but for the tenant.
//!
//! One tenant posts normal notifications one at a time, and reads each until it is settled: alone, and while a broadcast of another
//! tenant is sent to the same provider, which has a bound: without one the broadcast takes the machine's processors. Its latency
//! varies, as answers come in waves else, and a request that has missed one waits for the whole next. The first seconds of the
//! broadcast, in which the limit for that provider is learned, are reported by themselves: of a short measurement they would be the
//! slowest hundredth.

use std::ops::Range;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use flow::Clock;

use crate::caller::LoadCaller;
use crate::process::{EngineProcess, SimulatorProcess};
use crate::report::{Check, Point, RowReport, Unit, percentile};
use crate::rows::{Bench, count, few, times};
use crate::tally::JournalBooks;
use crate::tenants;
use crate::workload::Workload;

/// How much is measured.
#[derive(Debug, Clone, Copy)]
struct TenantsPlan {
    /// Recipients of the other tenant's broadcast.
    waiting: u64,
    /// Of each of both measurements.
    time: Duration,
}

/// Notifications that were sent one at a time.
#[derive(Debug)]
struct OneByOneTenant {
    /// Of the recipients.
    numbers: Range<u64>,
    /// When each was posted, microseconds since the Unix epoch.
    posted_us: Vec<u64>,
    /// How long each took from its POST to a read that found it delivered, milliseconds.
    settled_ms: Vec<f64>,
}

/// The slowest hundredth, milliseconds.
#[derive(Debug, Clone, Copy)]
struct Waits {
    arrived_ms: f64,
    settled_ms: f64,
}

/// A part of a wait, with its name.
type WaitPart = (&'static str, fn(&Waits) -> f64);

/// One run.
#[derive(Debug, Clone, Copy)]
struct TenantsRun {
    alone: Waits,
    /// The slowest of the first seconds of the broadcast, to settled, milliseconds.
    at_first_ms: f64,
    beside: Waits,
    lost: u64,
    duplicated: u64,
}

const SHORT: TenantsPlan = TenantsPlan { waiting: 2_000_000, time: Duration::from_secs(12) };
const FULL: TenantsPlan = TenantsPlan { waiting: 10_000_000, time: Duration::from_mins(1) };
/// The provider: 15 to 25 ms, for so many requests at a time.
pub(super) const PROVIDER: [&str; 6] =
    ["--latency", "15ms", "--latency-jitter", "10ms", "--capacity", "200"];
/// How many times as long the slowest hundredth may take as alone.
const BOUND: f64 = 1.2;
/// Before both, and not counted: the connection is opened, and the limit for the provider is learned.
const WARM_UP: Duration = Duration::from_secs(2);
/// Between two notifications.
const PAUSE: Duration = Duration::from_millis(20);

pub(super) fn run(bench: &Bench) -> Result<RowReport> {
    let title = "One tenant beside the backlog of another at the same provider: p99 from the call";
    let mut report = few(bench, "breadth-tenants", title, Unit::MsPerOp);
    let plan = bench.size.pick(SHORT, FULL);
    report.configuration = vec![
        ("store".into(), "SQLite, synchronous=FULL".into()),
        ("provider".into(), "APNs over TLS, 15 to 25 ms, 200 requests at a time".into()),
        ("backlog".into(), format!("a broadcast to {}", plan.waiting)),
        ("measured".into(), format!("{} s, one notification at a time", plan.time.as_secs())),
    ];
    let mut runs = Vec::new();
    for run in 1..=report.repetitions {
        let waiting = count(plan.waiting);
        bench.say(format!("a tenant beside {waiting} waiting of another, run {run}"));
        runs.push(plan.measure(bench)?);
    }
    conclude(&mut report, plan, &runs);
    Ok(report)
}

fn conclude(report: &mut RowReport, plan: TenantsPlan, runs: &[TenantsRun]) {
    let waiting = count(plan.waiting);
    let steps: [WaitPart; 2] =
        [("to the provider", |waits| waits.arrived_ms), ("to settled", |waits| waits.settled_ms)];
    for (step, value) in steps {
        let point = |name: &str, of: fn(&TenantsRun) -> &Waits| {
            let figures: Vec<f64> = runs.iter().map(|run| value(of(run))).collect();
            Point::of_runs(format!("{step}, {name}"), Unit::MsPerOp, &figures)
        };
        let alone = point("alone", |run| &run.alone);
        let mut beside = point(&format!("beside {waiting}"), |run| &run.beside);
        beside.lost = runs.iter().map(|run| run.lost).sum();
        beside.duplicated = runs.iter().map(|run| run.duplicated).sum();
        let what = format!("{step}: p99, times that alone");
        report.checks.push(Check::at_most(&what, times(&beside, &alone), BOUND));
        report.points.extend([alone, beside]);
    }
    let at_first = runs.iter().map(|run| run.at_first_ms).fold(0.0, f64::max);
    report.notes.push(format!(
        "in the first {} s of the broadcast, which are not counted, the slowest took {at_first:.1} ms to settled",
        WARM_UP.as_secs()
    ));
}

// === impl TenantsPlan ===

impl TenantsPlan {
    fn measure(self, bench: &Bench) -> Result<TenantsRun> {
        let directory = bench.directory()?;
        let flags = PROVIDER.map(str::to_owned);
        let simulator = SimulatorProcess::start(bench.binary(), directory.path(), &flags)?;
        let mut engine = tenants::start_engine(bench.binary(), directory.path(), &simulator, None)?;
        let warm_up = OneByOneTenant::over(WARM_UP, &engine, self.waiting)?;
        let alone = OneByOneTenant::over(self.time, &engine, warm_up.numbers.end)?;
        tenants::broadcast(&engine, tenants::FIRST_KEY, 0..self.waiting)?;
        let at_first = OneByOneTenant::over(WARM_UP, &engine, alone.numbers.end)?;
        let beside = OneByOneTenant::over(self.time, &engine, at_first.numbers.end)?;
        ensure!(pending(&engine)? > 0, "the broadcast was over before the measurement");
        // Not drained: the rest of the broadcast would be waited for.
        engine.kill()?;
        let workload = Workload { tokens: beside.numbers.end, webhooks: Vec::new() };
        let books = JournalBooks::read(&simulator.ready.journal, &workload)?;
        let measured = books.tally_of(warm_up.numbers.start..beside.numbers.end);
        Ok(TenantsRun {
            lost: measured.missing + measured.refused,
            duplicated: books.tally().duplicates,
            alone: alone.waits(&books),
            at_first_ms: percentile(&at_first.settled_ms, 100),
            beside: beside.waits(&books),
        })
    }
}

// === impl OneByOneTenant ===

impl OneByOneTenant {
    /// Measures one tenant for so long, with the recipients from the number `first` on.
    fn over(time: Duration, engine: &EngineProcess, first: u64) -> Result<Self> {
        let clock = Clock::system();
        let began = clock.monotonic();
        let mut measured =
            Self { numbers: first..first, posted_us: Vec::new(), settled_ms: Vec::new() };
        let mut caller = LoadCaller::connect(engine.listen())?;
        while clock.monotonic().duration_since(began) < time {
            std::thread::sleep(PAUSE);
            measured.posted_us.push(u64::try_from(clock.wall().as_micros())?);
            match tenants::deliver(&mut caller, measured.numbers.end, "normal")? {
                Ok(waited) => measured.settled_ms.push(waited.settled.as_secs_f64() * 1e3),
                Err(status) => bail!("refused with {status}"),
            }
            measured.numbers.end += 1;
        }
        Ok(measured)
    }

    fn waits(&self, books: &JournalBooks) -> Waits {
        let tally = books.tally_of(self.numbers.clone());
        // One at a time, so the order of posting is the order of arrival.
        let both = tally.accepted_at_us.iter().zip(&self.posted_us);
        let micros = both.map(|(got, sent)| Duration::from_micros(got.saturating_sub(*sent)));
        let arrived_ms: Vec<f64> = micros.map(|wait| wait.as_secs_f64() * 1e3).collect();
        Waits {
            arrived_ms: percentile(&arrived_ms, 99),
            settled_ms: percentile(&self.settled_ms, 99),
        }
    }
}

/// Of all tenants.
fn pending(engine: &EngineProcess) -> Result<u64> {
    let mut caller = LoadCaller::connect(engine.listen())?;
    let (_, status) = caller.request(tenants::FIRST_KEY, "GET /v1/status", "")?;
    let status: serde_json::Value = serde_json::from_str(&status)?;
    status.pointer("/totals/pending").and_then(serde_json::Value::as_u64).context("no totals")
}
