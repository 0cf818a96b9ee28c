//! `breadth-lanes`: an urgent notification beside very many lanes, each of which has one that is due tomorrow.
//!
//! Two engines beside each other, one on an empty store, one on the broad one. Notifications are posted to each in turn, one at a time,
//! and waited for until they are settled. The waiting ones are written straight into the tables, as copies of one that came in by the
//! API: a million by the API would take long, and takes nothing else.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use flow::Clock;
use tempfile::TempDir;
use testbed::{Database, PostgresOptions, PostgresServer};

use crate::caller::LoadCaller;
use crate::process::{EngineProcess, EngineRole, EngineSettings, SimulatorProcess};
use crate::report::{Check, Point, RowReport, Unit, median, percentile};
use crate::rows::job::as_float;
use crate::rows::{Bench, count, few, missing, times};
use crate::tally::JournalBooks;
use crate::workload::Workload;

/// Where engines keep their work.
#[derive(Debug)]
enum LanesBacking {
    Sqlite,
    Postgres(PostgresServer),
}

/// An engine's store, and where the rest of it goes.
#[derive(Debug)]
struct LanesStore {
    directory: TempDir,
    /// None is SQLite, in the directory.
    database: Option<Database>,
}

/// The measurements of one engine.
#[derive(Debug, Default)]
struct LanesMeasured {
    started: Duration,
    /// From the POST to settled, milliseconds.
    settled_ms: Vec<f64>,
    /// Of `/metrics`, milliseconds.
    metrics_ms: Vec<f64>,
    memory_bytes_max: u64,
}

/// One run: an empty store and a broad one, and what the provider's journal says.
#[derive(Debug)]
struct LanesRun {
    empty: LanesMeasured,
    broad: LanesMeasured,
    lost: u64,
    duplicated: u64,
}

/// Numbers of recipients, each given out once.
#[derive(Debug, Default)]
struct RecipientNumbers(u64);

/// Between two notifications, so that the engines are idle again.
const PAUSE: Duration = Duration::from_millis(20);
/// Before those that count: statements are prepared, connections are open.
const WARM_UP: u64 = 20;
/// How often `/metrics` is asked for.
const LOOKS: usize = 20;
/// A waiting one is due so much later than it is written.
const DUE_IN: Duration = Duration::from_hours(24);
/// How many times as long as on an empty store the median may take.
const BOUND: f64 = 1.2;
/// Seconds of a start, milliseconds of `/metrics`, MiB of memory.
const START_MAX: f64 = 1.0;
const METRICS_MAX: f64 = 50.0;
const MEMORY_MAX: f64 = 256.0;

pub(super) fn run(bench: &Bench) -> Result<RowReport> {
    let title = "An urgent one beside many lanes that wait: median from the call to settled";
    let mut report = few(bench, "breadth-lanes", title, Unit::MsPerOp);
    let lanes = bench.size.pick(100_000, 1_000_000);
    let pairs = bench.size.pick(100, 200);
    report.configuration = vec![
        ("lanes".into(), format!("{lanes}, each with one notification that is due tomorrow")),
        ("urgent".into(), format!("{pairs} to each engine in turn, one at a time")),
        ("provider".into(), "APNs over TLS, answers at once".into()),
    ];
    for name in ["SQLite", "PostgreSQL"] {
        match runs(bench, name, lanes, pairs, report.repetitions) {
            Ok(runs) => conclude(&mut report, name, lanes, &runs),
            Err(error) => report.notes.push(missing(name, error)?),
        }
    }
    Ok(report)
}

fn runs(bench: &Bench, name: &str, lanes: u64, pairs: u64, runs: u32) -> Result<Vec<LanesRun>> {
    let backing = match name {
        "SQLite" => LanesBacking::Sqlite,
        _ => LanesBacking::Postgres(PostgresServer::start_with(PostgresOptions::default())?),
    };
    let measure = |run| {
        bench.say(format!("{} lanes, {name}, run {run}", count(lanes)));
        backing.measure(bench, lanes, pairs)
    };
    (1..=runs).map(measure).collect()
}

/// The points and checks of one store.
fn conclude(report: &mut RowReport, name: &str, lanes: u64, runs: &[LanesRun]) {
    let empty = point(format!("{name}, empty"), runs.iter().map(|run| &run.empty));
    let broad = Point {
        lost: runs.iter().map(|run| run.lost).sum(),
        duplicated: runs.iter().map(|run| run.duplicated).sum(),
        ..point(format!("{name}, {} lanes", count(lanes)), runs.iter().map(|run| &run.broad))
    };
    let of = |value: fn(&LanesMeasured) -> f64| {
        median(&runs.iter().map(|run| value(&run.broad)).collect::<Vec<f64>>())
    };
    let memory = as_float(broad.memory_bytes_max.unwrap_or(0) >> 20);
    report.checks.extend([
        Check::at_most(
            &format!("{name}: median, times that on an empty store"),
            times(&broad, &empty),
            BOUND,
        ),
        Check::at_most(
            &format!("{name}: start of the engine, seconds"),
            of(|it| it.started.as_secs_f64()),
            START_MAX,
        ),
        Check::at_most(
            &format!("{name}: slowest of {LOOKS} `/metrics`, ms"),
            of(|it| percentile(&it.metrics_ms, 100)),
            METRICS_MAX,
        ),
        Check::at_most(&format!("{name}: memory of the engine, MiB"), memory, MEMORY_MAX),
    ]);
    report.points.extend([empty, broad]);
}

fn point<'a>(setting: String, measured: impl Iterator<Item = &'a LanesMeasured>) -> Point {
    let measured: Vec<&LanesMeasured> = measured.collect();
    let p50: Vec<f64> = measured.iter().map(|it| percentile(&it.settled_ms, 50)).collect();
    Point {
        memory_bytes_max: measured.iter().map(|it| it.memory_bytes_max).max(),
        ..Point::of_runs(setting, Unit::MsPerOp, &p50)
    }
}

// === impl LanesBacking ===

impl LanesBacking {
    /// An empty store.
    fn store(&self, bench: &Bench) -> Result<LanesStore> {
        let database = match self {
            Self::Sqlite => None,
            Self::Postgres(server) => Some(server.create_database()?),
        };
        Ok(LanesStore { directory: bench.directory()?, database })
    }

    fn measure(&self, bench: &Bench, lanes: u64, pairs: u64) -> Result<LanesRun> {
        let books = bench.directory()?;
        let simulator = SimulatorProcess::start(bench.binary(), books.path(), &[])?;
        let (empty, broad) = (self.store(bench)?, self.store(bench)?);
        let (clock, mut numbers) = (Clock::system(), RecipientNumbers::default());
        // The schema, and one to be copied.
        let mut first = broad.start(bench.binary(), &simulator)?;
        settle(&mut LoadCaller::connect(first.listen())?, numbers.next())?;
        first.stop()?;
        broad.fill(lanes, clock)?;

        let mut both = [LanesMeasured::default(), LanesMeasured::default()];
        let mut engines = Vec::new();
        for (store, measured) in [&empty, &broad].into_iter().zip(&mut both) {
            let from = clock.monotonic();
            engines.push(store.start(bench.binary(), &simulator)?);
            measured.started = clock.monotonic().duration_since(from);
        }
        in_turn(&engines, &mut both, &mut numbers, pairs)?;
        for (engine, measured) in engines.iter_mut().zip(&mut both) {
            measured.memory_bytes_max = engine.usage()?.memory_bytes_max;
            engine.stop()?;
        }
        let workload = Workload { tokens: numbers.0, webhooks: Vec::new() };
        let tally = JournalBooks::read(&simulator.ready.journal, &workload)?.tally();
        let [empty, broad] = both;
        Ok(LanesRun {
            empty,
            broad,
            lost: tally.missing + tally.refused,
            duplicated: tally.duplicates,
        })
    }
}

// === impl RecipientNumbers ===

impl RecipientNumbers {
    fn next(&mut self) -> u64 {
        self.0 += 1;
        self.0 - 1
    }
}

// === impl LanesStore ===

impl LanesStore {
    fn start(&self, binary: &Path, simulator: &SimulatorProcess) -> Result<EngineProcess> {
        let settings = EngineSettings {
            binary,
            directory: self.directory.path(),
            listen: "127.0.0.1:0",
            environment: &[],
            role: EngineRole::Serve,
            store: self.database.as_ref().map(Database::url),
            queue: None,
        };
        EngineProcess::start(settings, &simulator.ready)
    }

    /// Writes the waiting ones, while no engine runs.
    fn fill(&self, lanes: u64, clock: Clock) -> Result<()> {
        let due_at = (clock.wall() + DUE_IN).as_millis();
        let Some(database) = &self.database else {
            let path = self.directory.path().join("data").join("belfry.db");
            let store = rusqlite::Connection::open(path)?;
            return store
                .execute_batch(&fill_sqlite(lanes, due_at))
                .context("cannot fill the store");
        };
        database.query(&fill_postgres(lanes, due_at))?;
        // As autovacuum would within a minute.
        database.query("VACUUM ANALYZE").map(drop)
    }
}

/// Urgent notifications to each of `engines` in turn, and then looks at each.
fn in_turn(
    engines: &[EngineProcess],
    all: &mut [LanesMeasured],
    numbers: &mut RecipientNumbers,
    pairs: u64,
) -> Result<()> {
    let clock = Clock::system();
    let callers = engines.iter().map(|engine| LoadCaller::connect(engine.listen()));
    let mut callers = callers.collect::<Result<Vec<_>>>()?;
    let since = |from| clock.monotonic().duration_since(from).as_secs_f64() * 1e3;
    for pair in 0..WARM_UP + pairs {
        for (caller, measured) in callers.iter_mut().zip(&mut *all) {
            std::thread::sleep(PAUSE);
            let from = clock.monotonic();
            settle(caller, numbers.next())?;
            if pair >= WARM_UP {
                measured.settled_ms.push(since(from));
            }
        }
    }
    for (caller, measured) in callers.iter_mut().zip(all) {
        for _ in 0..LOOKS {
            let from = clock.monotonic();
            let (status, answer) = caller.request("", "GET /metrics", "")?;
            ensure!(status == 200, "/metrics: {status} {answer}");
            measured.metrics_ms.push(since(from));
        }
    }
    Ok(())
}

/// Posts the notification with this number, and asks for it until it is delivered.
fn settle(caller: &mut LoadCaller, number: u64) -> Result<()> {
    let id = caller.notify(number, "urgent")?;
    while !caller.is_delivered(&id)? {}
    Ok(())
}

/// A millisecond apart; batch numbers are drawn in blocks of 64, so those in use end below the next block.
fn fill_postgres(count: u64, due_at: u128) -> String {
    format!(
        "SET search_path = belfry; \
         CREATE TEMP TABLE waiting AS SELECT number, nextval('batch_number') AS batch FROM generate_series(1, {count}) AS number; \
         INSERT INTO tenant_lane (channel, destination, priority, tenant) \
           SELECT 'hooks', 'https://' || number || '.example', 1, 'default' FROM waiting ORDER BY number; \
         INSERT INTO batch (id, lane, guarantee, accepted_at, due_at, expires_at, broadcast, count, tenant, options, payload, items) \
           SELECT waiting.batch, lane.id, guarantee, accepted_at, {due_at} + number, expires_at, NULL, 1, \
           one.tenant, options, payload, items \
           FROM waiting JOIN tenant_lane AS lane ON lane.destination = 'https://' || number || '.example' \
           CROSS JOIN (SELECT * FROM batch ORDER BY id LIMIT 1) AS one; \
         INSERT INTO chunk (batch, lane, partition, due_at, attempt, count) \
           SELECT batch, lane.id, number % 64, {due_at} + number, 1, 1 \
           FROM waiting JOIN tenant_lane AS lane ON lane.destination = 'https://' || number || '.example'; \
         INSERT INTO totals_delta VALUES (0, {count}, 'default')"
    )
}

fn fill_sqlite(count: u64, due_at: u128) -> String {
    format!(
        "BEGIN; CREATE TEMP TABLE waiting AS WITH RECURSIVE series (number) AS \
           (SELECT 1 UNION ALL SELECT number + 1 FROM series WHERE number < {count}) \
           SELECT number, (SELECT max(id) FROM batch) + number AS batch, (SELECT max(id) FROM tenant_lane) + number AS lane FROM series; \
         INSERT INTO tenant_lane (id, channel, destination, priority, tenant) \
           SELECT lane, 'hooks', 'https://' || number || '.example', 1, 'default' FROM waiting; \
         INSERT INTO batch (id, lane, guarantee, accepted_at, due_at, expires_at, broadcast, count, tenant, options, payload, items) \
           SELECT waiting.batch, waiting.lane, guarantee, accepted_at, {due_at} + number, expires_at, NULL, 1, \
           tenant, options, payload, items FROM waiting, (SELECT * FROM batch ORDER BY id LIMIT 1); \
         INSERT INTO chunk (batch, lane, due_at, attempt, epoch, crashes, count) \
           SELECT batch, lane, {due_at} + number, 1, 0, 0, 1 FROM waiting; \
         UPDATE totals SET count = count + {count} WHERE tenant = 'default' AND state = 0; COMMIT;"
    )
}

#[cfg(test)]
#[cfg(feature = "stores")]
mod tests {
    use notification::Account;
    use store::conformance::{Shape, at};
    use store::{Postgres, Sqlite, Store, postgres, sqlite};

    use super::*;

    const LANES: u64 = 100;

    /// One of the tenant that the others are written for.
    async fn ingest(store: &impl Store) {
        Shape { tenant: "default", ..Shape::default() }.ingest(store, 1).await;
    }

    /// The account of `store`, which its audit finds nothing wrong with.
    async fn account(store: &dyn Store) -> Account {
        let audit = store.reader().audit().await.unwrap();
        assert_eq!(audit.problem_count, 0, "{:?}", audit.problems);
        let totals = store.reader().totals().await.unwrap();
        // What was written behind its back was never accepted.
        assert_eq!(Account { accepted: totals.accepted, ..audit.account }, totals);
        totals
    }

    #[tokio::test]
    async fn what_is_written_into_sqlite_is_as_if_it_had_been_handed_in() {
        let directory = tempfile::tempdir().unwrap();
        let open = || Sqlite::open(directory.path(), sqlite::Options::new(1), at(0)).unwrap().0;
        let store = open();
        ingest(&store).await;
        store.close().await;
        let database = rusqlite::Connection::open(directory.path().join("belfry.db")).unwrap();
        database.execute_batch(&fill_sqlite(LANES, 1_000)).unwrap();
        drop(database);
        let store = open();
        assert_eq!(account(&store).await.pending, LANES + 1);
        store.close().await;
    }

    #[tokio::test]
    async fn what_is_written_into_postgresql_is_as_if_it_had_been_handed_in() {
        let database = testbed::postgres::shared().unwrap().create().unwrap();
        let options = postgres::Options::new(database.url());
        let store = Postgres::open(options, Clock::system()).await.unwrap();
        ingest(&store).await;
        database.query(&fill_postgres(LANES, 1_000)).unwrap();
        assert_eq!(account(&store).await.pending, LANES + 1);
        store.close().await;
    }
}
