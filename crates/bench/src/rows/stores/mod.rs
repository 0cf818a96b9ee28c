//! `stores`: what it costs to take notifications in, to claim them and to settle them, without an engine around the store.
//!
//! Each load goes through each store, step by step, and is counted in it after each step: by its totals, by the recipients that were
//! claimed, and by an audit at the end. The floor beside a store is a loop with one row for each notification in the same kind of
//! database, with commits as safe as the store's. Processor time is that of this process together with that of the database's server.

mod load;
mod meter;
mod postgres_floor;
mod sqlite_floor;

use std::path::Path;

use anyhow::{Result, ensure};
use flow::Clock;
use notification::limits;
use store::conformance::{at, claim_request};
use store::{ClaimRequest, Claims as _, Postgres, ReadStore as _, Sqlite, Store, postgres, sqlite};
use testbed::{PostgresOptions, PostgresServer};

use super::{Bench, missing};
use crate::report::{Floor, Point, RowReport, Unit, median};
use load::{MeasuredStore, StoreLoad};
use meter::{StepMeter, StoreStep};
use postgres_floor::PostgresFloor;
use sqlite_floor::SqliteFloor;

/// Runs of one load through one store, and of the floor beside it.
#[derive(Debug)]
struct LoadRuns {
    setting: String,
    tool: &'static str,
    runs: Vec<[StoreStep; 3]>,
    floor: Vec<[StoreStep; 3]>,
}

/// All loads through one store.
type StoreRuns = [LoadRuns; StoreLoad::ALL.len()];

/// The reports, in the order of the steps.
const STEPS: [(&str, &str); 3] = [
    ("stores-ingest", "Taking notifications in, without an engine around the store"),
    ("stores-claim", "Claiming them, 8,000 at a time"),
    ("stores-settle", "Settling them as delivered"),
];
/// Of the server: its usual ones would have it write checkpoints all the time.
const SERVER_SETTINGS: &[(&str, &str)] = &[("shared_buffers", "512MB"), ("max_wal_size", "4GB")];

pub(super) fn run(bench: &Bench) -> Result<Vec<RowReport>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let count = bench.size.pick(200_000, 1_000_000);
    let options = PostgresOptions { settings: SERVER_SETTINGS, tls: None };
    let (server, mut notes) = match PostgresServer::start_with(options) {
        Ok(server) => (Some(server), Vec::new()),
        Err(error) => (None, vec![missing("the store on PostgreSQL", error)?]),
    };
    let mut on_sqlite = LoadRuns::of_all("SQLite", SqliteFloor::TOOL);
    let mut on_postgres = LoadRuns::of_all("PostgreSQL", PostgresFloor::TOOL);
    for run in 1..=bench.repetitions {
        bench.say(format!("SQLite: {count} of each kind, run {run}"));
        runtime.block_on(through_sqlite(bench, count, &mut on_sqlite))?;
        if let Some(server) = &server {
            bench.say(format!("PostgreSQL: {count} of each kind, run {run}"));
            runtime.block_on(through_postgres(server, count, &mut on_postgres))?;
        }
    }
    notes.push(one_by_one(bench)?);
    notes.push(runtime.block_on(backlog(bench, count))?);
    let mut all: Vec<LoadRuns> = on_sqlite.into();
    all.extend(server.map(|_| on_postgres).into_iter().flatten());
    Ok(reports(bench, count, &all, &notes))
}

async fn through_sqlite(bench: &Bench, count: usize, all: &mut StoreRuns) -> Result<()> {
    for (load, runs) in StoreLoad::ALL.into_iter().zip(all) {
        let directory = bench.directory()?;
        let store = open_sqlite(directory.path())?;
        let subject = MeasuredStore { store: &store, server: None };
        runs.runs.push(load.run(subject, count).await?);
        balance(&store).await?;
        store.close().await;
        let mut floor = SqliteFloor::open(directory.path())?;
        runs.floor.push(floor.run(load, load.items(count))?);
    }
    Ok(())
}

async fn through_postgres(
    server: &PostgresServer,
    count: usize,
    all: &mut StoreRuns,
) -> Result<()> {
    let process = server.process();
    for (load, runs) in StoreLoad::ALL.into_iter().zip(all) {
        let database = server.create_database()?;
        let options = postgres::Options::new(database.url());
        let store = Postgres::open(options, Clock::system()).await?;
        let subject = MeasuredStore { store: &store, server: process };
        runs.runs.push(load.run(subject, count).await?);
        balance(&store).await?;
        store.close().await;
        let mut floor = PostgresFloor::open(server.create_database()?, process).await?;
        runs.floor.push(floor.run(load, load.items(count)).await?);
        floor.close().await;
    }
    Ok(())
}

fn open_sqlite(directory: &Path) -> Result<Sqlite> {
    Ok(Sqlite::open(&directory.join("store"), sqlite::Options::new(1), at(0))?.0)
}

/// Counted anew, each notification is somewhere, once, and the totals say the same.
async fn balance(store: &dyn Store) -> Result<()> {
    let audit = store.reader().audit().await?;
    ensure!(audit.problem_count == 0, "the audit found {:?}", audit.problems);
    let totals = store.reader().totals().await?;
    ensure!(audit.account.is_balanced() && totals == audit.account, "{totals:?}, {audit:?}");
    Ok(())
}

/// The cost of a commit for each notification.
fn one_by_one(bench: &Bench) -> Result<String> {
    let count = bench.size.pick(200, 1_000);
    let directory = bench.directory()?;
    let step = SqliteFloor::open(directory.path())?.one_by_one(count)?;
    Ok(format!(
        "a row in a commit of its own, SQLite: {:.0} a minute, {:.0} us of processor time",
        step.per_minute, step.cpu_us
    ))
}

/// A store that is opened with everything waiting.
async fn backlog(bench: &Bench, count: usize) -> Result<String> {
    bench.say(format!("SQLite: opened with {count} waiting"));
    let directory = bench.directory()?;
    let store = open_sqlite(directory.path())?;
    let subject = MeasuredStore { store: &store, server: None };
    StoreLoad::Broadcast.ingest(subject, count).await?;
    store.close().await;
    drop(store);
    let clock = Clock::system();
    let begun = clock.monotonic();
    let store = open_sqlite(directory.path())?;
    let opened = clock.monotonic();
    let request = ClaimRequest { items: limits::CLAIM_ITEMS, ..claim_request(0) };
    let claimed = store.claim(request).await?.chunks.len();
    let done = clock.monotonic();
    ensure!(claimed > 0, "nothing was claimed of {count}");
    let step = StepMeter::start(None)?;
    let pending = store.reader().audit().await?.account.pending;
    let audit = step.stop(count)?;
    ensure!(pending == count as u64, "{pending} are pending of {count}");
    store.close().await;
    Ok(format!(
        "SQLite with {count} waiting: opened in {:.1} ms, first claim in {:.1} ms, audited at {:.2} us each",
        (opened - begun).as_secs_f64() * 1e3,
        (done - opened).as_secs_f64() * 1e3,
        audit.cpu_us
    ))
}

fn reports(bench: &Bench, count: usize, all: &[LoadRuns], notes: &[String]) -> Vec<RowReport> {
    let of_step = |(step, (row, title)): (usize, (&str, &str))| {
        let mut report = bench.report(row, title, Unit::PerMinute);
        report.configuration = vec![
            ("notifications".into(), format!("{count}; to 1,000 destinations a tenth of that")),
            ("contents".into(), "200 bytes; recipients 64".into()),
            ("durability".into(), "every commit is synced, but that of a claim in SQLite".into()),
        ];
        report.points = all.iter().map(|runs| runs.point(step)).collect();
        report.notes = all.iter().filter_map(|runs| runs.note(step)).collect();
        report.notes.extend_from_slice(notes);
        report
    };
    STEPS.into_iter().enumerate().map(of_step).collect()
}

// === impl LoadRuns ===

impl LoadRuns {
    fn of_all(store: &str, tool: &'static str) -> StoreRuns {
        StoreLoad::ALL.map(|load| Self {
            setting: format!("{store}, {}", load.name()),
            tool,
            runs: Vec::new(),
            floor: Vec::new(),
        })
    }

    fn point(&self, step: usize) -> Point {
        let (runs, floor) = (at_step(&self.runs, step), at_step(&self.floor, step));
        Point {
            cpu_us_per_item: Some(middle(&runs, |it| it.cpu_us)),
            lost: runs.iter().map(|it| it.lost).sum(),
            duplicated: runs.iter().map(|it| it.duplicated).sum(),
            floor: Some(Floor {
                tool: self.tool.to_owned(),
                per_minute: Some(middle(&floor, |it| it.per_minute)),
                cpu_us_per_item: Some(middle(&floor, |it| it.cpu_us)),
            }),
            ..Point::of_runs(
                &*self.setting,
                Unit::PerMinute,
                &runs.iter().map(|it| it.per_minute).collect::<Vec<_>>(),
            )
        }
    }

    /// The part of a server, if there is one.
    fn note(&self, step: usize) -> Option<String> {
        let runs = at_step(&self.runs, step);
        let (all, server) = (middle(&runs, |it| it.cpu_us), middle(&runs, |it| it.server_us));
        let setting = &self.setting;
        (server > 0.0)
            .then(|| format!("{setting}: {server:.2} of the {all:.2} us are the server's"))
    }
}

fn at_step(runs: &[[StoreStep; 3]], step: usize) -> Vec<StoreStep> {
    runs.iter().filter_map(|steps| steps.get(step).copied()).collect()
}

fn middle(steps: &[StoreStep], value: fn(&StoreStep) -> f64) -> f64 {
    median(&steps.iter().map(value).collect::<Vec<f64>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(cpu_us: f64, lost: u64) -> StoreStep {
        StoreStep {
            per_minute: 60.0 / cpu_us,
            cpu_us,
            server_us: cpu_us / 2.0,
            lost,
            duplicated: 0,
        }
    }

    #[test]
    fn a_point_is_of_its_step_in_all_runs() {
        let [mut runs, ..] = LoadRuns::of_all("SQLite", SqliteFloor::TOOL);
        for cpu in [1.0, 3.0, 2.0] {
            runs.runs.push([step(cpu, 0), step(10.0 * cpu, 4), step(100.0 * cpu, 0)]);
            runs.floor.push([step(7.0, 0), step(70.0, 0), step(700.0, 0)]);
        }
        let point = runs.point(1);
        assert_eq!((point.cpu_us_per_item, point.lost), (Some(20.0), 12));
        assert_eq!(point.floor.and_then(|floor| floor.cpu_us_per_item), Some(70.0));
        let note = runs.note(0).unwrap();
        assert!(note.contains("1.00 of the 2.00 us"), "{note}");
    }

    #[tokio::test]
    async fn each_load_goes_through_a_store_and_is_counted() {
        let directory = tempfile::tempdir().unwrap();
        let store = open_sqlite(directory.path()).unwrap();
        let subject = MeasuredStore { store: &store, server: None };
        for load in StoreLoad::ALL {
            let steps = load.run(subject, 20_000).await.unwrap();
            assert!(steps.iter().all(|it| (it.lost, it.duplicated) == (0, 0)), "{steps:?}");
        }
        balance(&store).await.unwrap();
        store.close().await;
    }
}
