//! The best-known failure of queues in PostgreSQL: a reader that holds a snapshot for minutes, so that no dead row can
//! be removed. `queue_rot BINARY [SECONDS=120] [singles|chunks]`.
//!
//! One engine on PostgreSQL at full rate, so many seconds without the reader and as many with it. `singles` come one by
//! one, each a row of its own, the worst case; `chunks` are imports, a thousand to a row. Prints what was delivered per
//! second in both phases, from the provider's journal, and dead rows and sizes of the tables over time.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use bench::cluster::{Backing, Cluster, ClusterSetup};
use bench::rate::{median, per_window};
use bench::{EngineRole, LoadCaller, Workload, WorkloadGuarantee};

/// Callers that send singles, each over its own connection.
const CALLERS: u64 = 64;
/// Imports under way at a time, and rows of each.
const IMPORTS: u64 = 2;
const IMPORT_ROWS: u64 = 50_000;
/// Before the first phase: connections open, caches fill.
const WARM_UP: Duration = Duration::from_secs(10);
/// Between two looks at the tables.
const LOOK_EVERY: Duration = Duration::from_secs(10);
const WINDOW: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_mins(20);
/// Numbers of a caller or an import, far apart, are handed out by this counter.
type Numbers = AtomicU64;

#[derive(Debug, Clone, Copy)]
enum Way {
    Singles,
    Chunks,
}

/// A transaction that sees the past, until it is dropped.
#[derive(Debug)]
struct OldReader(Child);

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: queue_rot BINARY [SECONDS] [singles|chunks]";
    let binary = PathBuf::from(arguments.next().context(usage)?);
    let seconds = arguments.next().map_or(Ok(120), |text| text.parse()).context(usage)?;
    let way = match arguments.next().as_deref() {
        None | Some("singles") => Way::Singles,
        Some("chunks") => Way::Chunks,
        Some(_) => bail!(usage),
    };
    let directory = tempfile::tempdir()?;
    let cluster = Cluster::start(&ClusterSetup {
        binary,
        directory: directory.path().to_owned(),
        backing: Backing::Postgres,
        roles: vec![EngineRole::Serve],
        has_links: false,
        engine_settings: Vec::new(),
        store_settings: vec![("max_wal_size", "8GB"), ("autovacuum_naptime", "5s")],
        simulator_flags: Vec::new(),
    })?;
    let (numbers, is_over) = (Numbers::new(0), AtomicBool::new(false));
    let phases = std::thread::scope(|scope| {
        let load = || feed(&cluster, way, &numbers, &is_over);
        let loads: Vec<_> = (0..way.threads()).map(|_| scope.spawn(load)).collect();
        let phases = watch(&cluster, Duration::from_secs(seconds));
        is_over.store(true, Ordering::Relaxed);
        let mut ends = loads.into_iter().map(std::thread::ScopedJoinHandle::join);
        ends.try_for_each(|end| end.unwrap_or_else(|_| bail!("a caller panicked")))?;
        phases
    })?;
    let sent = numbers.load(Ordering::Relaxed);
    cluster.drain(sent, PATIENCE)?;
    cluster.stop()?;
    let tally = cluster.books(&Workload { tokens: sent, webhooks: Vec::new() })?.tally();
    ensure!(tally.accepted == sent && tally.duplicates == 0, "{tally:?}");
    let [without, with] = phases.map(|(from_us, until_us)| {
        median(&per_window(&tally.accepted_at_us, WINDOW, from_us, until_us))
    });
    let line = format!(
        "{way:?}: delivered per second, median: {without} without the reader, {with} with it: {} %",
        100 * with / without.max(1)
    );
    writeln!(std::io::stdout(), "{line}")?;
    Ok(())
}

/// Lets both phases pass, and looks at the tables. Returns from when to when each lasted, microseconds of wall time.
fn watch(cluster: &Cluster, lasts: Duration) -> Result<[(u64, u64); 2]> {
    std::thread::sleep(WARM_UP);
    let without = look(cluster, "without reader", lasts)?;
    let reader = OldReader::start(cluster)?;
    let with = look(cluster, "with reader", lasts)?;
    drop(reader);
    look(cluster, "reader gone", LOOK_EVERY * 3)?;
    Ok([without, with])
}

fn look(cluster: &Cluster, phase: &str, lasts: Duration) -> Result<(u64, u64)> {
    let clock = flow::Clock::system();
    let wall_us = || u64::try_from(clock.wall().as_micros());
    let (from_us, started) = (wall_us()?, clock.monotonic());
    while clock.monotonic().duration_since(started) < lasts {
        std::thread::sleep(LOOK_EVERY.min(lasts));
        let tables = cluster.database().query(
            "SELECT string_agg(format('%s %s dead %s kB', relname, n_dead_tup, pg_total_relation_size(relid) / 1024), \
             ', ' ORDER BY n_dead_tup DESC, relname) \
             FROM pg_stat_user_tables WHERE schemaname = 'belfry' AND n_tup_ins > 100",
        )?;
        let second = clock.monotonic().duration_since(started).as_secs();
        writeln!(std::io::stdout(), "{phase}, second {second}: {tables}")?;
    }
    Ok((from_us, wall_us()?))
}

/// Sends until it is over, as fast as the engine accepts.
fn feed(cluster: &Cluster, way: Way, numbers: &Numbers, is_over: &AtomicBool) -> Result<()> {
    let worker = cluster.workers().first().context("there is an engine")?;
    let mut caller = LoadCaller::connect(worker.listen())?;
    while !is_over.load(Ordering::Relaxed) {
        match way {
            Way::Singles => {
                caller.notify(numbers.fetch_add(1, Ordering::Relaxed), "normal").map(drop)?;
            }
            Way::Chunks => {
                let from = numbers.fetch_add(IMPORT_ROWS, Ordering::Relaxed);
                let client = worker.client()?;
                let key = format!("import-{from}-");
                client.import(from..from + IMPORT_ROWS, WorkloadGuarantee::AtLeastOnce, &key)?;
            }
        }
    }
    Ok(())
}

// === impl Way ===

impl Way {
    const fn threads(self) -> u64 {
        match self {
            Self::Singles => CALLERS,
            Self::Chunks => IMPORTS,
        }
    }
}

// === impl OldReader ===

impl OldReader {
    fn start(cluster: &Cluster) -> Result<Self> {
        let psql = cluster.store().bin_dir().join("psql");
        let mut child = Command::new(psql)
            .args(["--no-psqlrc", "--quiet", "--set", "ON_ERROR_STOP=1", cluster.database().url()])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()?;
        let statements = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM belfry.chunk; \
                          SELECT count(*) FROM belfry.batch; SELECT count(*) FROM belfry.log;";
        // The transaction lasts as long as its input.
        writeln!(child.stdin.as_mut().context("stdin is piped")?, "{statements}")?;
        Ok(Self(child))
    }
}

impl Drop for OldReader {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ended = self.0.wait();
    }
}
