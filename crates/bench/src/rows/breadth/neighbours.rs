//! `breadth-neighbours`: healthy webhook endpoints beside dead ones with waiting work.
//!
//! Each healthy endpoint is sent one notification a second, in phases: the first beside no dead endpoint, the others after each dead
//! one was sent its notifications. Every endpoint is a host of its own. An attempt that is not answered lasts 30 s, and one at a
//! tarpit 90 s.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use flow::Clock;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tempfile::TempDir;

use super::endpoints::{Arrivals, AttemptCounts, Death, LocalEndpoints};
use super::load::{self, AcceptedPost, PostSchedule, Posted};
use crate::process::{EngineProcess, EngineRole, EngineSettings, SimulatorProcess};
use crate::report::{Check, Point, RowReport, Unit, percentile};
use crate::rows::{Bench, Size, count, few, times};

/// How much is measured.
#[derive(Debug, Clone, Copy)]
struct NeighboursPlan {
    healthy: u64,
    cases: &'static [Case],
    warm_up: Duration,
    /// Of each phase.
    time: Duration,
    /// Phases beside the dead ones: in the first the engine finds them out, in the second it knows them.
    phases: &'static [&'static str],
}

/// Dead endpoints.
#[derive(Debug, Clone, Copy)]
struct Case {
    dead: u64,
    death: Death,
    /// Notifications for each.
    waiting: u64,
    /// Runs at most.
    runs: u32,
}

/// The measurements of one phase.
#[derive(Debug, Clone, Copy)]
struct NeighboursPhase {
    p99_ms: f64,
    lost: u64,
    repeated: u64,
    refused: u64,
    /// How much later than scheduled a call began, at most: the times are measured from its beginning.
    late: Duration,
    /// At dead endpoints: all, and the most at one. None where they cannot be counted.
    attempts: Option<(u64, u64)>,
    memory_bytes_max: u64,
}

/// The running engine and the endpoints.
#[derive(Debug)]
struct Neighbours {
    engine: EngineProcess,
    healthy: LocalEndpoints,
    dead: LocalEndpoints,
    arrivals: Arc<Arrivals>,
    attempts: Arc<AttemptCounts>,
    /// The number of the next notification to a healthy endpoint.
    next: u64,
    _files: OpenFiles,
    _simulator: SimulatorProcess,
    _directory: TempDir,
}

/// Lets this process have as many files open as it may, for as long as this lives: each connection that a dead endpoint holds is one.
#[derive(Debug)]
struct OpenFiles {
    before: Rlimit,
}

const SHORT: NeighboursPlan = NeighboursPlan {
    healthy: 100,
    cases: &[Case { dead: 1_000, death: Death::Silent, waiting: 200, runs: 3 }],
    warm_up: Duration::from_secs(5),
    time: Duration::from_secs(15),
    phases: &[""],
};
const FULL: NeighboursPlan = NeighboursPlan {
    healthy: 200,
    cases: &[
        Case { dead: 1_000, death: Death::Silent, waiting: 2_000, runs: 3 },
        Case { dead: 10_000, death: Death::Silent, waiting: 2_000, runs: 3 },
        Case { dead: 1_000, death: Death::Unavailable, waiting: 500, runs: 1 },
        Case { dead: 1_000, death: Death::Refuse, waiting: 500, runs: 1 },
        Case { dead: 500, death: Death::Tarpit, waiting: 200, runs: 1 },
    ],
    warm_up: Duration::from_secs(20),
    time: Duration::from_mins(1),
    phases: &["", ", known"],
};
/// Open files of a process that are kept for all but connections to dead endpoints.
const FILES_KEPT: u64 = 2_000;
/// How many times as long the slowest hundredth may take as beside no dead endpoint.
const BOUND: f64 = 1.2;
/// A notification that has not arrived so long after the last POST of its phase counts as lost, and with this time.
const ARRIVES_WITHIN: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(50);

pub(super) fn run(bench: &Bench) -> Result<RowReport> {
    let title =
        "Healthy endpoints beside dead ones with waiting work: p99 from the call to the arrival";
    let mut report = few(bench, "breadth-neighbours", title, Unit::MsPerOp);
    let plan = NeighboursPlan::of(bench.size);
    report.configuration = vec![
        ("store".into(), "SQLite, synchronous=FULL".into()),
        (
            "healthy".into(),
            format!("{} webhook endpoints, one notification a second each", plan.healthy),
        ),
        ("phase".into(), format!("{} s", plan.time.as_secs())),
    ];
    let mut alone = Vec::new();
    for planned in plan.cases {
        let case = planned.within(open_files_max());
        report.configuration.push((case.name(), format!("{} waiting for each", case.waiting)));
        if case.dead < planned.dead {
            report.notes.push(format!(
                "{} in place of {}: each takes an open file, of which this process may have {}",
                case.name(),
                count(planned.dead),
                open_files_max()
            ));
        }
        let mut runs = Vec::new();
        for run in 1..=report.repetitions.min(case.runs) {
            bench.say(format!("{} endpoints beside {}, run {run}", plan.healthy, case.name()));
            runs.push(Neighbours::measure(bench, plan, case)?);
        }
        beside(&mut report, plan, case, &runs);
        alone.extend(runs.iter().filter_map(|run| run.first().copied()));
    }
    report.points.insert(0, NeighboursPhase::to_point("0 dead", &alone));
    Ok(report)
}

/// The points, checks and notes of one case.
fn beside(report: &mut RowReport, plan: NeighboursPlan, case: Case, runs: &[Vec<NeighboursPhase>]) {
    let phase = |place: usize| -> Vec<NeighboursPhase> {
        runs.iter().filter_map(|run| run.get(place).copied()).collect()
    };
    let alone = NeighboursPhase::to_point("0 dead", &phase(0));
    for (place, name) in plan.phases.iter().enumerate() {
        let (phases, setting) = (phase(place + 1), format!("{}{name}", case.name()));
        let point = NeighboursPhase::to_point(&setting, &phases);
        let what = format!("{setting}: p99, times that beside 0 in the same run");
        report.checks.push(Check::at_most(&what, times(&point, &alone), BOUND));
        report.points.push(point);
        report.notes.push(format!("{setting}: {}", remarks(&phases)));
    }
}

/// The rest that a reader has to know of the phases.
fn remarks(phases: &[NeighboursPhase]) -> String {
    let late = phases.iter().map(|phase| phase.late).max().unwrap_or_default();
    let mut remarks = vec![format!("calls began up to {late:.1?} late")];
    let attempts: Option<Vec<_>> = phases.iter().map(|phase| phase.attempts).collect();
    if let Some(attempts) = attempts {
        let all = attempts.iter().map(|(all, _)| *all).max().unwrap_or(0);
        let most = attempts.iter().map(|(_, most)| *most).max().unwrap_or(0);
        let all = count(all);
        remarks.push(format!("up to {all} attempts at the dead ones, at most {most} at one"));
    }
    let refused: u64 = phases.iter().map(|phase| phase.refused).sum();
    if refused > 0 {
        remarks.push(format!("{refused} calls were turned away"));
    }
    remarks.join("; ")
}

// === impl NeighboursPlan ===

impl NeighboursPlan {
    fn of(size: Size) -> Self {
        size.pick(SHORT, FULL)
    }
}

// === impl Case ===

impl Case {
    /// As many dead endpoints as `files` that may be open allow: the engine has a connection to each, and this process its other end.
    fn within(self, files: u64) -> Self {
        Self { dead: self.dead.min(files.saturating_sub(FILES_KEPT).max(1)), ..self }
    }

    fn name(self) -> String {
        format!("{} {}", count(self.dead), self.death.as_str())
    }
}

// === impl NeighboursPhase ===

impl NeighboursPhase {
    fn to_point(setting: &str, phases: &[Self]) -> Point {
        let p99: Vec<f64> = phases.iter().map(|phase| phase.p99_ms).collect();
        Point {
            memory_bytes_max: phases.iter().map(|phase| phase.memory_bytes_max).max(),
            lost: phases.iter().map(|phase| phase.lost).sum(),
            duplicated: phases.iter().map(|phase| phase.repeated).sum(),
            ..Point::of_runs(setting, Unit::MsPerOp, &p99)
        }
    }
}

// === impl Neighbours ===

impl Neighbours {
    /// One run: the phase beside no dead endpoint first, then the others.
    fn measure(bench: &Bench, plan: NeighboursPlan, case: Case) -> Result<Vec<NeighboursPhase>> {
        let mut neighbours = Self::start(bench, plan, case)?;
        let clock = Clock::system();
        neighbours.phase(plan.warm_up, &neighbours.attempts.counts())?;
        let mut phases = vec![neighbours.phase(plan.time, &neighbours.attempts.counts())?];
        // The first attempts are made while the backlog still comes in.
        let mut since = neighbours.attempts.counts();
        let started = clock.monotonic();
        load::fill(neighbours.engine.listen(), &neighbours.dead, case.waiting)?;
        let took = clock.monotonic().duration_since(started);
        bench.say(format!(
            "{} have {} waiting each, taken in {took:.1?}",
            case.name(),
            case.waiting
        ));
        for _ in plan.phases {
            phases.push(neighbours.phase(plan.time, &since)?);
            since = neighbours.attempts.counts();
        }
        // Not drained: attempts at silent endpoints would be waited for.
        neighbours.engine.kill()?;
        Ok(phases)
    }

    fn start(bench: &Bench, plan: NeighboursPlan, case: Case) -> Result<Self> {
        let directory = bench.directory()?;
        // It writes what a configuration needs, and is sent nothing.
        let simulator = SimulatorProcess::start(bench.binary(), directory.path(), &[])?;
        let attempts = Arc::new(AttemptCounts::new(case.dead));
        let dead = LocalEndpoints::dead(case.dead, case.death, Arc::clone(&attempts))?;
        let environment = dead.environment();
        let settings = EngineSettings {
            binary: bench.binary(),
            directory: directory.path(),
            listen: "127.0.0.1:0",
            environment: &environment,
            role: EngineRole::Serve,
            store: None,
            queue: None,
        };
        let engine = EngineProcess::start(settings, &simulator.ready)?;
        // Afterwards, so that the engine has the limits that this process was started with.
        let files = OpenFiles::raise()?;
        let phases = plan.time.as_secs() * (1 + plan.phases.len() as u64);
        let arrivals = Arc::new(Arrivals::new(plan.healthy * (plan.warm_up.as_secs() + phases)));
        let healthy = LocalEndpoints::healthy(plan.healthy, Arc::clone(&arrivals))?;
        Ok(Self {
            engine,
            healthy,
            dead,
            arrivals,
            attempts,
            next: 0,
            _files: files,
            _simulator: simulator,
            _directory: directory,
        })
    }

    /// Sends each healthy endpoint one notification a second for `time`, and waits until they have arrived. Attempts are counted from
    /// `since` to the last POST.
    fn phase(&mut self, time: Duration, since: &[u64]) -> Result<NeighboursPhase> {
        let a_second = self.healthy.count();
        let schedule =
            PostSchedule { first: self.next, count: a_second * time.as_secs(), a_second };
        self.next += schedule.count;
        let posted = load::post(self.engine.listen(), &self.healthy, schedule)?;
        self.engine.ensure_running()?;
        let attempts = self.dead.are_counted().then(|| self.attempts_since(since));
        self.await_arrivals(&posted);
        self.engine.ensure_running()?;
        if posted.sent.is_empty() {
            bail!("all {} calls were turned away", posted.refused);
        }
        let took =
            |sent: &AcceptedPost| Some(self.arrivals.of(sent.number)?.duration_since(sent.at));
        let took: Vec<Option<Duration>> = posted.sent.iter().map(took).collect();
        let ms = |took: &Option<Duration>| took.unwrap_or(ARRIVES_WITHIN).as_secs_f64() * 1e3;
        Ok(NeighboursPhase {
            p99_ms: percentile(&took.iter().map(ms).collect::<Vec<f64>>(), 99),
            lost: took.iter().filter(|took| took.is_none()).count() as u64,
            repeated: self.arrivals.take_repeated(),
            refused: posted.refused,
            late: posted.late,
            attempts,
            memory_bytes_max: self.engine.usage()?.memory_bytes_max,
        })
    }

    /// All, and the most at one.
    fn attempts_since(&self, since: &[u64]) -> (u64, u64) {
        let counts = self.attempts.counts();
        let grown = || counts.iter().zip(since).map(|(now, then)| now - then);
        (grown().sum(), grown().max().unwrap_or(0))
    }

    fn await_arrivals(&self, posted: &Posted) {
        let clock = Clock::system();
        let started = clock.monotonic();
        let is_missing = || posted.sent.iter().any(|sent| self.arrivals.of(sent.number).is_none());
        while is_missing() && clock.monotonic().duration_since(started) < ARRIVES_WITHIN {
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

// === impl OpenFiles ===

impl OpenFiles {
    fn raise() -> Result<Self> {
        let before = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: before.maximum, ..before })?;
        Ok(Self { before })
    }
}

impl Drop for OpenFiles {
    fn drop(&mut self) {
        // Lowering it always succeeds, and nothing depends on it.
        let _lowered = setrlimit(Resource::Nofile, self.before);
    }
}

/// Files that this process, and an engine that it starts, may open at most.
fn open_files_max() -> u64 {
    getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX)
}
