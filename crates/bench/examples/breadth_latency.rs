//! The cost of pending work: `breadth_latency BINARY postgres|sqlite COUNT [PAIRS=200]`.
//!
//! Two engines beside each other, one on an empty store, one on a store with COUNT notifications to COUNT destinations
//! that are due tomorrow. One urgent notification at a time is posted to each in turn, and waited for until it is settled.
//! The waiting ones are written straight into the tables, as copies of one that came in by the API: three million by the
//! API would take an hour. Prints both latencies, how long the engines took to start, the memory that they took, and how long
//! `/metrics` and `/v1/status` take.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use bench::{EngineProcess, EngineRole, EngineSettings, LoadCaller, SimulatorProcess};
use flow::Clock;
use testbed::postgres::{Database, PostgresOptions, PostgresServer};

/// Between two notifications, so that the engines are idle again.
const PAUSE: Duration = Duration::from_millis(20);
/// Before those that count: statements are prepared, connections are open.
const WARM_UP: u64 = 20;
/// Pages that an operator looks at.
const PAGES: [&str; 2] = ["/metrics", "/v1/status"];
/// How often each page is asked for.
const LOOKS: usize = 20;
/// A waiting one is due so much later than it is written.
const DUE_IN: Duration = Duration::from_hours(24);

/// Where an engine keeps its work.
#[derive(Debug)]
enum Backing {
    Postgres(Database),
    Sqlite,
}

/// An engine and its store.
#[derive(Debug)]
struct Subject {
    directory: PathBuf,
    backing: Backing,
}

/// The measurements of one engine.
#[derive(Debug, Default)]
struct Latencies {
    started_us: u128,
    settled_us: Vec<u128>,
    /// Of each of [`PAGES`].
    pages_us: [Vec<u128>; PAGES.len()],
    memory_bytes_max: u64,
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: breadth_latency BINARY postgres|sqlite COUNT [PAIRS]";
    let binary = PathBuf::from(arguments.next().context(usage)?);
    let kind = arguments.next().context(usage)?;
    let count: u64 = arguments.next().context(usage)?.parse().context(usage)?;
    let pairs: u64 = arguments.next().map_or(Ok(200), |text| text.parse()).context(usage)?;
    let directory = tempfile::tempdir()?;
    let server = match kind.as_str() {
        "postgres" => Some(PostgresServer::start_with(PostgresOptions::default())?),
        "sqlite" => None,
        _ => bail!(usage),
    };
    let simulator = SimulatorProcess::start(&binary, directory.path(), &[])?;
    let subject = |name: &str| {
        let backing = match &server {
            Some(server) => Backing::Postgres(server.create_database()?),
            None => Backing::Sqlite,
        };
        Ok::<_, anyhow::Error>(Subject { directory: directory.path().join(name), backing })
    };
    let (empty, broad) = (subject("empty")?, subject("broad")?);
    let clock = Clock::system();
    // The schema, and one to be copied.
    let mut first = broad.start(&binary, &simulator)?;
    settle(&mut LoadCaller::connect(first.listen())?, 0)?;
    first.stop()?;
    broad.fill(count, clock)?;

    let mut measured = [Latencies::default(), Latencies::default()];
    let mut engines = Vec::new();
    for (subject, latencies) in [&empty, &broad].into_iter().zip(&mut measured) {
        let from = clock.monotonic();
        engines.push(subject.start(&binary, &simulator)?);
        latencies.started_us = from.elapsed().as_micros();
    }
    let callers = engines.iter().map(|engine| LoadCaller::connect(engine.listen()));
    let mut callers = callers.collect::<Result<Vec<_>>>()?;
    for number in 1..=WARM_UP + pairs {
        for (caller, latencies) in callers.iter_mut().zip(&mut measured) {
            std::thread::sleep(PAUSE);
            let from = clock.monotonic();
            settle(caller, number)?;
            if number > WARM_UP {
                latencies.settled_us.push(from.elapsed().as_micros());
            }
        }
    }
    for (caller, latencies) in callers.iter_mut().zip(&mut measured) {
        for (page, times) in PAGES.iter().zip(&mut latencies.pages_us) {
            for _ in 0..LOOKS {
                let from = clock.monotonic();
                let (status, answer) = caller.request("", &format!("GET {page}"), "")?;
                ensure!(status == 200, "{page}: {status} {answer}");
                times.push(from.elapsed().as_micros());
            }
        }
    }
    for (engine, latencies) in engines.iter_mut().zip(&mut measured) {
        latencies.memory_bytes_max = engine.usage()?.memory_bytes_max;
        engine.stop()?;
    }
    report(&kind, count, measured)
}

/// Posts the notification with this number, and asks for it until it is delivered.
fn settle(caller: &mut LoadCaller, number: u64) -> Result<()> {
    let id = caller.notify(number, "urgent")?;
    while !caller.is_delivered(&id)? {}
    Ok(())
}

fn report(kind: &str, count: u64, measured: [Latencies; 2]) -> Result<()> {
    let mut medians = Vec::new();
    let mut out = std::io::stdout();
    for (name, mut latencies) in ["empty", "broad"].into_iter().zip(measured) {
        let settled = &mut latencies.settled_us;
        let (p50, p99) = (percentile(settled, 50)?, percentile(settled, 99)?);
        let (started, memory) = (latencies.started_us / 1_000, latencies.memory_bytes_max >> 20);
        writeln!(
            out,
            "{kind}, {name}: POST to settled p50 {p50} us, p99 {p99} us; started in {started} ms; at most {memory} MiB"
        )?;
        for (page, times) in PAGES.iter().zip(&mut latencies.pages_us) {
            let (p50, max) = (percentile(times, 50)?, percentile(times, 100)?);
            writeln!(out, "{kind}, {name}: GET {page} p50 {p50} us, at most {max} us")?;
        }
        medians.push(p50);
    }
    if let [empty, broad] = *medians {
        let percent = 100 * broad / empty.max(1);
        writeln!(out, "{kind}, {count} waiting: p50 is {percent} % of the empty store's")?;
    }
    Ok(())
}

fn percentile(times: &mut [u128], percent: usize) -> Result<u128> {
    times.sort_unstable();
    let place = times.len().saturating_sub(1) * percent / 100;
    times.get(place).copied().context("nothing was measured")
}

// === impl Subject ===

impl Subject {
    fn start(&self, binary: &Path, simulator: &SimulatorProcess) -> Result<EngineProcess> {
        let store = match &self.backing {
            Backing::Postgres(database) => Some(database.url()),
            Backing::Sqlite => None,
        };
        let settings = EngineSettings {
            binary,
            directory: &self.directory,
            listen: "127.0.0.1:0",
            environment: &[],
            role: EngineRole::Serve,
            store,
            queue: None,
        };
        EngineProcess::start(settings, &simulator.ready)
    }

    /// Writes the waiting ones, while no engine runs.
    fn fill(&self, count: u64, clock: Clock) -> Result<()> {
        let due_at = (clock.wall() + DUE_IN).as_millis();
        match &self.backing {
            Backing::Postgres(database) => {
                database.query(&fill_postgres(count, due_at)).map(drop)?;
                // As autovacuum would within a minute.
                database.query("VACUUM ANALYZE").map(drop)
            }
            Backing::Sqlite => {
                let path = self.directory.join("data").join("belfry.db");
                Ok(rusqlite::Connection::open(path)?.execute_batch(&fill_sqlite(count, due_at))?)
            }
        }
    }
}

/// A millisecond apart; batch numbers are drawn in blocks of 64, so those in use end below the next block.
fn fill_postgres(count: u64, due_at: u128) -> String {
    format!(
        "SET search_path = belfry; \
         CREATE TEMP TABLE waiting AS SELECT number, nextval('batch_number') AS batch FROM generate_series(1, {count}) AS number; \
         INSERT INTO tenant_lane (channel, destination, priority, tenant) \
           SELECT 'hooks', 'https://' || number || '.example', 1, 'default' FROM waiting ORDER BY number; \
         INSERT INTO batch SELECT waiting.batch, lane.id, guarantee, accepted_at, {due_at} + number, expires_at, NULL, 1, \
           one.tenant, options, payload, items \
           FROM waiting JOIN tenant_lane AS lane ON lane.destination = 'https://' || number || '.example' \
           CROSS JOIN (SELECT * FROM batch ORDER BY id LIMIT 1) AS one; \
         INSERT INTO chunk (batch, lane, partition, due_at, attempt, count) \
           SELECT batch, lane.id, number % 64, {due_at} + number, 1, 1 \
           FROM waiting JOIN tenant_lane AS lane ON lane.destination = 'https://' || number || '.example'; \
         INSERT INTO totals_delta VALUES (0, {count})"
    )
}

fn fill_sqlite(count: u64, due_at: u128) -> String {
    format!(
        "BEGIN; CREATE TEMP TABLE waiting AS WITH RECURSIVE series (number) AS \
           (SELECT 1 UNION ALL SELECT number + 1 FROM series WHERE number < {count}) \
           SELECT number, (SELECT max(id) FROM batch) + number AS batch, (SELECT max(id) FROM tenant_lane) + number AS lane FROM series; \
         INSERT INTO tenant_lane (id, channel, destination, priority, tenant) \
           SELECT lane, 'hooks', 'https://' || number || '.example', 1, 'default' FROM waiting; \
         INSERT INTO batch SELECT waiting.batch, waiting.lane, guarantee, accepted_at, {due_at} + number, expires_at, NULL, 1, \
           tenant, options, payload, items FROM waiting, (SELECT * FROM batch ORDER BY id LIMIT 1); \
         INSERT INTO chunk (batch, lane, due_at, attempt, epoch, crashes, count) \
           SELECT batch, lane, {due_at} + number, 1, 0, 0, 1 FROM waiting; \
         UPDATE totals SET count = count + {count} WHERE state = 0; COMMIT;"
    )
}
