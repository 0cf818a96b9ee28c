//! Healthy webhook endpoints beside dead ones:
//! `black_holes BINARY sqlite|postgres [HEALTHY=200] [DEAD=1000] [WAITING=2000] [SECONDS=60] [silent|refuse|503|tarpit]`.
//!
//! Each of the HEALTHY endpoints is sent one notification a second, in three phases of SECONDS: `quiet`, without dead
//! endpoints; `unknown`, right after DEAD endpoints were sent WAITING notifications each; and `known`, after that. Every
//! endpoint is a host of its own. Prints for each phase the time from just before the POST to the arrival at the endpoint,
//! and how many attempts the dead endpoints got. A dead endpoint
//! - `silent` (default) takes connections and never answers: a connection is an attempt;
//! - `refuse` takes no connection, so attempts cannot be counted;
//! - `503` answers every request at once with that status: a request is an attempt;
//! - `tarpit` is the mail server of a domain of its own, and greets byte by byte: a connection is an attempt.
//!
//! An attempt that is not answered lasts 30 s, and one at a tarpit 90 s: rates of attempts need 60 SECONDS or more, and 120
//! with tarpits. Fails when the engine has ended by itself, and never for a time.

mod endpoints;
mod load;
mod name_server;
mod report;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use bench::{EngineProcess, EngineRole, EngineSettings, SimulatorProcess};
use flow::Clock;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use testbed::{PostgresOptions, PostgresServer};

use endpoints::{Arrivals, Attempts, Death, Endpoints};
use load::{Posted, Schedule};
use report::{Counts, Phase, say};

/// Before the quiet phase: connections open, and the engine learns that the healthy endpoints answer. Not counted.
const WARM_UP: Duration = Duration::from_secs(20);
/// A notification that has not arrived so long after the last POST of its phase counts as not arrived.
const ARRIVES_WITHIN: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(50);
const USAGE: &str = "usage: black_holes BINARY sqlite|postgres [HEALTHY] [DEAD] [WAITING] [SECONDS] [silent|refuse|503|tarpit]";

/// The arguments.
struct Setup {
    binary: PathBuf,
    is_postgres: bool,
    healthy: u64,
    dead: u64,
    /// Notifications for each dead endpoint.
    waiting: u64,
    /// Of one phase.
    time: Duration,
    death: Death,
}

/// The running engine and the endpoints.
struct Bench {
    engine: EngineProcess,
    healthy: Endpoints,
    dead: Endpoints,
    arrivals: Arc<Arrivals>,
    attempts: Arc<Attempts>,
    /// The number of the next notification to a healthy endpoint.
    next: u64,
}

fn main() -> Result<()> {
    let setup = Setup::read(std::env::args().skip(1))?;
    let postgres = setup
        .is_postgres
        .then(|| PostgresServer::start_with(PostgresOptions::default()))
        .transpose()?;
    let database = postgres.as_ref().map(PostgresServer::create_database).transpose()?;
    let directory = tempfile::tempdir()?;
    let store = database.as_ref().map(testbed::Database::url);
    let mut bench = Bench::start(&setup, directory.path(), store)?;
    let clock = Clock::system();

    let since = bench.counts()?;
    bench.phase("warm-up", WARM_UP, &since)?;
    let since = bench.counts()?;
    let quiet = bench.phase("quiet", setup.time, &since)?;
    quiet.show(None)?;

    // The first attempts are made while the backlog still comes in.
    let since = bench.counts()?;
    load::fill(bench.engine.listen(), &bench.dead, setup.waiting)?;
    let took = clock.monotonic().duration_since(since.at);
    let (dead, waiting, death) = (setup.dead, setup.waiting, setup.death.as_str());
    say(&format!("{dead} dead endpoints ({death}) were sent {waiting} each, taken in {took:.1?}"))?;

    bench.phase("unknown", setup.time, &since)?.show(Some(&quiet))?;
    let since = bench.counts()?;
    bench.phase("known", setup.time, &since)?.show(Some(&quiet))?;
    // Not drained: attempts at silent endpoints would be waited for.
    bench.engine.kill()
}

// === impl Setup ===

impl Setup {
    fn read(mut arguments: impl Iterator<Item = String>) -> Result<Self> {
        let binary = PathBuf::from(arguments.next().context(USAGE)?);
        let is_postgres = match arguments.next().as_deref() {
            Some("sqlite") => false,
            Some("postgres") => true,
            _ => bail!(USAGE),
        };
        let mut number = |default: u64| {
            let given = arguments.next().map(|text| text.parse().context(USAGE));
            given.unwrap_or(Ok(default))
        };
        let [healthy, dead, waiting, seconds] =
            [number(200)?, number(1_000)?, number(2_000)?, number(60)?];
        ensure!(healthy > 0 && seconds > 0, USAGE);
        let death = arguments.next().map_or(Some(Death::Silent), |text| Death::parse(&text));
        let (time, death) = (Duration::from_secs(seconds), death.context(USAGE)?);
        Ok(Self { binary, is_postgres, healthy, dead, waiting, time, death })
    }
}

// === impl Bench ===

impl Bench {
    fn start(setup: &Setup, directory: &Path, store: Option<&str>) -> Result<Self> {
        // It writes what a configuration needs, and is sent nothing.
        let simulator = SimulatorProcess::start(&setup.binary, directory, &[])?;
        let attempts = Arc::new(Attempts::new(setup.dead));
        let dead = Endpoints::dead(setup.dead, setup.death, Arc::clone(&attempts))?;
        let environment = dead.environment();
        let settings = EngineSettings {
            binary: &setup.binary,
            directory,
            listen: "127.0.0.1:0",
            environment: &environment,
            role: EngineRole::Serve,
            store,
            queue: None,
        };
        let engine = EngineProcess::start(settings, &simulator.ready)?;
        // Afterwards, so that the engine has the limits that this process was started with.
        raise_open_files()?;
        let seconds = WARM_UP.as_secs() + 3 * setup.time.as_secs();
        let arrivals = Arc::new(Arrivals::new(setup.healthy * seconds));
        let healthy = Endpoints::healthy(setup.healthy, Arc::clone(&arrivals))?;
        Ok(Self { engine, healthy, dead, arrivals, attempts, next: 0 })
    }

    /// Sends each healthy endpoint one notification a second for `time`, and waits until they have arrived. What is counted
    /// is counted from `since` to the last POST.
    fn phase(&mut self, name: &'static str, time: Duration, since: &Counts) -> Result<Phase> {
        let a_second = self.healthy.count();
        let schedule = Schedule { first: self.next, count: a_second * time.as_secs(), a_second };
        self.next += schedule.count;
        let posted = load::post(self.engine.listen(), &self.healthy, schedule)?;
        self.ensure_alive()?;
        let counts = self.counts()?;
        self.await_arrivals(&posted);
        self.ensure_alive()?;
        let latencies = posted.sent.iter().map(|sent| {
            let arrived = self.arrivals.of(sent.number);
            arrived.map(|arrived| arrived.saturating_duration_since(sent.at))
        });
        let latencies = latencies.collect();
        let repeated = self.arrivals.take_repeated();
        let growth = counts.since(since);
        let attempts_are_counted = self.dead.are_counted();
        Ok(Phase { name, posted, latencies, repeated, growth, attempts_are_counted })
    }

    fn counts(&self) -> Result<Counts> {
        let process = self.engine.process();
        let files = std::fs::read_dir(format!("/proc/{process}/fd"))?.count();
        let (at, attempts) = (Clock::system().monotonic(), self.attempts.counts());
        Ok(Counts { at, attempts, usage: self.engine.usage()?, files })
    }

    fn await_arrivals(&self, posted: &Posted) {
        let clock = Clock::system();
        let started = clock.monotonic();
        let is_missing = || posted.sent.iter().any(|sent| self.arrivals.of(sent.number).is_none());
        while is_missing() && clock.monotonic().duration_since(started) < ARRIVES_WITHIN {
            std::thread::sleep(LOOK_EVERY);
        }
    }

    fn ensure_alive(&mut self) -> Result<()> {
        match self.engine.ended()? {
            None => Ok(()),
            Some(status) => bail!("the engine ended by itself with {status}"),
        }
    }
}

/// Lets this process have as many files open as it may: every connection that a dead endpoint holds is one.
fn raise_open_files() -> Result<()> {
    let maximum = getrlimit(Resource::Nofile).maximum;
    Ok(setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?)
}
