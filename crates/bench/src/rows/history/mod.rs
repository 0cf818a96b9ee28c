//! `history`: the same job, and single requests, on a store with many settled notifications and on an empty one; and lists on the
//! old one.
//!
//! The history is made by the engine itself, by a channel that sends nothing (`dry-run`): all that is written is written as for any
//! other channel.

mod lists;

use std::time::Duration;

use anyhow::{Context as _, Result};
use flow::Clock;
use rustix::fs::statvfs;
use tempfile::TempDir;
use testbed::{Database, PostgresOptions, PostgresServer};

use self::lists::ListedHistory;
use super::job::{BroadcastResult, as_float};
use super::{Bench, BroadcastJob, PATIENCE, count, missing, times};
use crate::caller::LoadCaller;
use crate::client::feed;
use crate::report::{Check, RowReport, Unit, median, percentile};
use crate::trial::{Setup, Trial};
use crate::usage::{bytes_on_disk, forget_files};
use crate::workload::token;

/// How much is measured.
#[derive(Debug, Clone, Copy)]
struct HistoryPlan {
    /// Settled notifications.
    history: u64,
    /// The longest that they may take.
    fill_within: Duration,
    /// Recipients of the job.
    job: u64,
    /// Notifications that are posted one by one to each store, and how many to one before the other gets as many.
    posts: u64,
    posts_in_turn: u64,
    /// Pages that are asked for of each list.
    pages: usize,
    /// How long each look at an engine is that is to be idle.
    idle_look: Duration,
}

/// Where the stores of one kind are.
#[derive(Debug)]
enum HistoryBacking {
    Sqlite,
    Postgres(PostgresServer),
}

/// A store, an engine on it, and the numbers of recipients that it was sent.
#[derive(Debug)]
struct HistoryStore {
    trial: Trial,
    directory: TempDir,
    /// None is SQLite, in the directory.
    database: Option<Database>,
    /// The number of the next recipient of the job.
    next: u64,
}

/// The history as it was made.
#[derive(Debug, Clone, Copy)]
struct Filled {
    count: u64,
    /// Of them those that were sent one by one.
    singles: u64,
    /// Of the store on the disk.
    bytes: u64,
    /// Why it ended before the history was whole.
    cut_by: Option<&'static str>,
}

/// Measurements of the runs on one store.
#[derive(Debug, Default)]
struct HistoryRuns {
    jobs: Vec<BroadcastResult>,
    /// Of each run from a request to its answer, milliseconds: 99 of 100 take no longer.
    posts_p99_ms: Vec<f64>,
}

const SHORT: HistoryPlan = HistoryPlan {
    history: 5_000_000,
    fill_within: Duration::from_secs(45),
    job: 1_000_000,
    posts: 2_000,
    posts_in_turn: 200,
    pages: 100,
    idle_look: Duration::from_secs(2),
};
const FULL: HistoryPlan = HistoryPlan {
    history: 100_000_000,
    fill_within: Duration::from_mins(15),
    job: 2_000_000,
    posts: 20_000,
    posts_in_turn: 500,
    pages: 300,
    idle_look: Duration::from_secs(5),
};
/// Recipients of one broadcast of the history, and notifications that are sent one by one behind it.
const BROADCAST: u64 = 1_000_000;
const SINGLES: u64 = 20;
/// Recipients of the broadcast before the job: connections are open then, and the limit is learned.
const WARM_UP: u64 = 250_000;
/// The share of the rate on an empty store that is left.
const RATE_MIN: f64 = 0.9;
/// How many times as on an empty store a request may take, and how much memory.
const MORE_MAX: f64 = 1.1;
/// An engine is idle that uses at most a hundredth of a processor in so many looks in a row. The search index takes three hundredths
/// while it removes what was merged, and waits for 10 s when it was refused; an engine without work takes three thousandths.
const IDLE_IN_A_ROW: u32 = 3;
const IDLE_LOOKS: u32 = 400;
const CONTENT: &str = r#"{"aps":{"alert":"breaking news"}}"#;

pub(super) fn run(bench: &Bench) -> Result<Vec<RowReport>> {
    let title = "One broadcast on a store with many settled notifications, and on an empty one";
    let mut report = super::few(bench, "history", title, Unit::PerMinute);
    let plan = bench.size.pick(SHORT, FULL);
    report.configuration = vec![
        ("provider".into(), "APNs over TLS, answers at once".into()),
        ("job".into(), format!("a broadcast to {}", count(plan.job))),
        (
            "requests".into(),
            format!(
                "{} before each job, one at a time, by turns {} to the old store and to the empty one, both engines new",
                count(plan.posts),
                count(plan.posts_in_turn)
            ),
        ),
        (
            "lists".into(),
            "in pages of at most 100, after the last job and another start with nothing of the store in memory".into(),
        ),
    ];
    for name in ["SQLite", "PostgreSQL"] {
        let (checks, notes) = (report.checks.len(), report.notes.len());
        if let Err(error) = compare(bench, plan, name, &mut report) {
            report.notes.push(missing(name, error)?);
        }
        // The other store takes many minutes more.
        for Check { what, found, .. } in report.checks.iter().skip(checks) {
            bench.say(format!("{what}: {found}"));
        }
        for note in report.notes.iter().skip(notes) {
            bench.say(note);
        }
    }
    Ok(vec![report])
}

/// Fills a store, and adds what was measured on it, and on empty ones in turn with it.
fn compare(bench: &Bench, plan: HistoryPlan, name: &str, report: &mut RowReport) -> Result<()> {
    let mut backing = match name {
        "SQLite" => HistoryBacking::Sqlite,
        _ => HistoryBacking::Postgres(PostgresServer::start_with(PostgresOptions::default())?),
    };
    let mut old = backing.store(bench, plan)?;
    bench.say(format!("{name}: a history of {}", count(plan.history)));
    let filled = plan.fill(&old)?;
    report.notes.extend(filled.notes(name, plan));
    let (mut on_empty, mut on_old) = (HistoryRuns::default(), HistoryRuns::default());
    for run in 1..=report.repetitions {
        bench.say(format!(
            "{name}: requests and the job on an empty store and on the old one, run {run}"
        ));
        // What an engine has done before is no property of its store: both are new.
        old.trial.kill()?;
        old.trial.restart()?;
        let mut empty = backing.store(bench, plan)?;
        // Both engines: what else the machine does meanwhile is the same for both.
        let [empty_ms, old_ms] = plan.post_by_turns([&mut empty, &mut old])?;
        on_empty.posts_p99_ms.push(percentile(&empty_ms, 99));
        on_old.posts_p99_ms.push(percentile(&old_ms, 99));
        // One engine at a time, and each is new to the job.
        old.trial.kill()?;
        empty.trial.kill()?;
        empty.trial.restart()?;
        on_empty.jobs.push(empty.do_job(plan)?);
        drop(empty);
        old.trial.restart()?;
        on_old.jobs.push(old.do_job(plan)?);
    }
    conclude(report, name, filled.count, &on_empty, &on_old);
    bench.say(format!("{name}: lists on the old store"));
    old.wait_until_idle(plan)?;
    old.start_cold(&mut backing)?;
    let listed = ListedHistory {
        recipients: filled.count - filled.singles,
        singles: filled.singles,
        pages: plan.pages,
    };
    // Nothing of the store is in memory at first, and what the same pages are made of is afterwards.
    for memory in ["cold", "warm"] {
        listed.measure(&mut old.caller()?, &format!("{name}, {memory}"), report)?;
    }
    Ok(())
}

/// The points and checks of one kind of store.
fn conclude(
    report: &mut RowReport,
    name: &str,
    settled: u64,
    on_empty: &HistoryRuns,
    on_old: &HistoryRuns,
) {
    let point = |runs: &HistoryRuns, setting| {
        BroadcastResult::to_point(&runs.jobs, setting, None, Unit::PerMinute)
    };
    let empty = point(on_empty, format!("{name}, empty"));
    let old = point(on_old, format!("{name}, {} settled", count(settled)));
    let [old_ms, empty_ms] = [on_old, on_empty].map(|runs| median(&runs.posts_p99_ms));
    report.notes.push(format!(
        "{name}: 99 of 100 requests within {old_ms:.2} and {empty_ms:.2} ms, old and empty"
    ));
    let [old_bytes, empty_bytes] = [on_old, on_empty].map(HistoryRuns::memory_bytes);
    let check = |what: &str| format!("{name}: {what} on the old store, times that on an empty one");
    report.checks.extend([
        Check::at_least(&check("rate"), times(&old, &empty), RATE_MIN),
        Check::at_most(&check("99 of 100 requests"), old_ms / empty_ms, MORE_MAX),
        Check::at_most(&check("peak of the engine's memory"), old_bytes / empty_bytes, MORE_MAX),
    ]);
    report.points.extend([empty, old]);
}

// === impl HistoryBacking ===

impl HistoryBacking {
    /// An engine on a store that is empty but for its suppression list, which is the same for all.
    fn store(&self, bench: &Bench, plan: HistoryPlan) -> Result<HistoryStore> {
        let database = match self {
            Self::Sqlite => None,
            Self::Postgres(server) => Some(server.create_database()?),
        };
        let directory = bench.directory()?;
        let kind = ("BELFRY__CHANNELS__PAST__KIND".to_owned(), "dry-run".to_owned());
        let setup = Setup {
            engine_settings: vec![kind],
            ..Setup::new(bench.binary(), directory.path(), &[])
        };
        let url = database.as_ref().map(|database| database.url().to_owned());
        let trial = Trial::start_on(setup, url)?;
        let store = HistoryStore { trial, directory, database, next: 0 };
        lists::suppress(&mut store.caller()?, plan.history)?;
        Ok(store)
    }
}

// === impl HistoryStore ===

impl HistoryStore {
    /// Posts so many one by one, and returns how long each took, milliseconds.
    fn post(&mut self, posts: u64) -> Result<Vec<f64>> {
        let clock = Clock::system();
        let mut caller = self.caller()?;
        let mut times_ms = Vec::new();
        for number in self.next..self.next + posts {
            let from = clock.monotonic();
            caller.notify(number, "normal")?;
            times_ms.push(clock.monotonic().duration_since(from).as_secs_f64() * 1e3);
        }
        self.next += posts;
        self.trial.drain(PATIENCE, || Ok(()))?;
        Ok(times_ms)
    }

    fn do_job(&mut self, plan: HistoryPlan) -> Result<BroadcastResult> {
        self.wait_until_idle(plan)?;
        let job = BroadcastJob { tokens: plan.job, warm_up: WARM_UP, ..BroadcastJob::default() };
        let result = job.run_on(&self.trial, self.next)?;
        self.next += WARM_UP + plan.job;
        Ok(result)
    }

    fn caller(&self) -> Result<LoadCaller> {
        LoadCaller::connect(self.trial.engine().listen())
    }

    /// Waits until engine and server have nothing left to do: after a history was made, the search index has, and the vacuum.
    fn wait_until_idle(&self, HistoryPlan { idle_look, .. }: HistoryPlan) -> Result<()> {
        let mut idle = 0;
        for _ in 0..IDLE_LOOKS {
            let before = self.trial.engine().usage()?.cpu;
            std::thread::sleep(idle_look);
            let used = self.trial.engine().usage()?.cpu.saturating_sub(before);
            let is_idle = used <= idle_look / 100 && !self.is_vacuuming()?;
            idle = if is_idle { idle + 1 } else { 0 };
            if idle == IDLE_IN_A_ROW {
                return Ok(());
            }
        }
        anyhow::bail!(
            "the engine has work to do {:?} after the last notification",
            idle_look * IDLE_LOOKS
        )
    }

    /// True while the server vacuums: what was written within minutes, and not over months.
    fn is_vacuuming(&self) -> Result<bool> {
        let Some(database) = &self.database else { return Ok(false) };
        let workers =
            "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'autovacuum worker'";
        Ok(database.query(workers)?.trim() != "0")
    }

    /// Starts the engine, and the server, on files of which nothing is in memory.
    fn start_cold(&mut self, backing: &mut HistoryBacking) -> Result<()> {
        self.trial.kill()?;
        match backing {
            HistoryBacking::Sqlite => forget_files(&self.directory.path().join("data"))?,
            HistoryBacking::Postgres(server) => {
                server.stop_immediate()?;
                // It recovers, so that the next start has nothing to recover.
                server.start_again()?;
                server.stop_immediate()?;
                forget_files(&server.data())?;
                server.start_again()?;
            }
        }
        self.trial.restart()
    }

    /// Bytes on the disk.
    fn bytes(&self) -> Result<u64> {
        let Some(database) = &self.database else {
            return bytes_on_disk(&self.directory.path().join("data"));
        };
        let bytes = database.query("SELECT pg_database_size(current_database())")?;
        bytes.trim().parse().with_context(|| format!("the size of the database: {bytes}"))
    }
}

// === impl HistoryPlan ===

impl HistoryPlan {
    /// Posts to each of the stores by turns; how long each request took, milliseconds.
    fn post_by_turns(self, stores: [&mut HistoryStore; 2]) -> Result<[Vec<f64>; 2]> {
        let mut times_ms = [Vec::new(), Vec::new()];
        for store in &stores {
            store.wait_until_idle(self)?;
        }
        let [first, second] = stores;
        for _ in 0..self.posts / self.posts_in_turn {
            for (store, times_ms) in [&mut *first, &mut *second].into_iter().zip(&mut times_ms) {
                times_ms.extend(store.post(self.posts_in_turn)?);
            }
        }
        Ok(times_ms)
    }

    /// Broadcasts until the history is whole, or the time or half of the free disk is over.
    fn fill(self, store: &HistoryStore) -> Result<Filled> {
        let clock = Clock::system();
        let (started, disk) = (clock.monotonic(), statvfs(store.directory.path())?);
        let free_bytes = disk.f_bavail * disk.f_frsize;
        let mut filled = Filled { count: 0, singles: 0, bytes: 0, cut_by: None };
        let mut recipients = 0;
        while filled.count < self.history && filled.cut_by.is_none() {
            let end = (recipients + BROADCAST).min(self.history);
            let mut command = store.trial.engine().client().command("send");
            command.args(["--channel", "past", "--to-file", "-", "--json", "--content", CONTENT]);
            command.args(["--tag", lists::BROAD_TAG]);
            feed(command, (recipients..end).map(token))?;
            recipients = end;
            let mut caller = store.caller()?;
            for single in filled.singles..filled.singles + SINGLES {
                lists::send_single(&mut caller, single, CONTENT)?;
            }
            filled.singles += SINGLES;
            // So that the time is that of all of it, and not of taking it in alone.
            store.trial.drain(PATIENCE, || Ok(()))?;
            (filled.count, filled.bytes) = (recipients + filled.singles, store.bytes()?);
            if clock.monotonic().duration_since(started) > self.fill_within {
                filled.cut_by = Some("the time for it");
            } else if filled.bytes > free_bytes / 2 {
                filled.cut_by = Some("half of the free disk");
            }
        }
        Ok(filled)
    }
}

// === impl HistoryRuns ===

impl HistoryRuns {
    /// The peak of the engine's memory in a run.
    fn memory_bytes(&self) -> f64 {
        let peaks = self.jobs.iter().map(|job| as_float(job.memory_bytes_max));
        median(&peaks.collect::<Vec<f64>>())
    }
}

// === impl Filled ===

impl Filled {
    fn notes(self, name: &str, plan: HistoryPlan) -> Vec<String> {
        let each = as_float(self.bytes) / as_float(self.count.max(1));
        let mut notes = vec![format!(
            "{name}: {each:.1} bytes on the disk for each settled notification of a broadcast"
        )];
        if let Some(bound) = self.cut_by {
            let (made, planned) = (count(self.count), count(plan.history));
            notes.push(format!("{name}: {made} settled in place of {planned}: {bound} was over"));
        }
        notes
    }
}
