//! `breadth-history`: the same job on a store with many settled notifications, and on an empty one.
//!
//! The history is made by the engine itself, by a channel that sends nothing (`dry-run`): all that is written is written as for any
//! other channel.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use flow::Clock;
use rustix::fs::statvfs;

use super::{count, times};
use crate::client::feed;
use crate::report::{Check, RowReport, Unit};
use crate::rows::job::{BroadcastResult, as_float};
use crate::rows::{Bench, BroadcastJob, PATIENCE};
use crate::trial::{Setup, Trial};
use crate::usage::bytes_on_disk;
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
}

/// The history as it was made.
#[derive(Debug, Clone, Copy)]
struct Filled {
    count: u64,
    /// Of the store on the disk.
    bytes: u64,
    /// Why it ended before the history was whole.
    cut_by: Option<&'static str>,
}

const SHORT: HistoryPlan =
    HistoryPlan { history: 5_000_000, fill_within: Duration::from_secs(45), job: 1_000_000 };
const FULL: HistoryPlan =
    HistoryPlan { history: 100_000_000, fill_within: Duration::from_mins(10), job: 1_000_000 };
/// Recipients of one broadcast of the history.
const BROADCAST: u64 = 1_000_000;
/// Recipients of the broadcast before the job: connections are open then, and the limit is learned.
const WARM_UP: u64 = 250_000;
/// The share of the rate on an empty store that is left.
const BOUND: f64 = 0.9;
const CONTENT: &str = r#"{"aps":{"alert":"breaking news"}}"#;

pub(super) fn run(bench: &Bench) -> Result<RowReport> {
    let title = "One broadcast on a store with many settled notifications, and on an empty one";
    let mut report = super::report(bench, "breadth-history", title, Unit::PerMinute);
    let plan = bench.size.pick(SHORT, FULL);
    report.configuration = vec![
        ("store".into(), "SQLite, synchronous=FULL".into()),
        ("provider".into(), "APNs over TLS, answers at once".into()),
        ("job".into(), format!("a broadcast to {}", plan.job)),
    ];
    let directory = bench.directory()?;
    let mut old = Trial::start(setup(bench, directory.path()))?;
    bench.say(format!("a history of {}", count(plan.history)));
    let filled = plan.fill(&old, &directory.path().join("data"))?;
    report.notes.extend(filled.notes(plan));
    let job = BroadcastJob { tokens: plan.job, warm_up: WARM_UP, ..BroadcastJob::default() };
    let (mut on_empty, mut on_old) = (Vec::new(), Vec::new());
    for run in 1..=report.repetitions {
        bench.say(format!("the same job on an empty store and on the old one, run {run}"));
        let directory = bench.directory()?;
        let empty = Trial::start(setup(bench, directory.path()))?;
        on_empty.push(job.run_on(&empty, 0)?);
        drop(empty);
        // Both engines are new to the job.
        old.kill()?;
        old.restart()?;
        on_old.push(job.run_on(&old, u64::from(run - 1) * (WARM_UP + plan.job))?);
    }
    let point = |runs: &[BroadcastResult], setting| {
        BroadcastResult::to_point(runs, setting, None, Unit::PerMinute)
    };
    let empty = point(&on_empty, "empty".to_owned());
    let old = point(&on_old, format!("{} settled", count(filled.count)));
    let what = "rate on the old store, times that on an empty one";
    report.checks.push(Check::at_least(what, times(&old, &empty), BOUND));
    report.points.extend([empty, old]);
    Ok(report)
}

fn setup(bench: &Bench, directory: &Path) -> Setup {
    let kind = ("BELFRY__CHANNELS__PAST__KIND".to_owned(), "dry-run".to_owned());
    Setup { engine_settings: vec![kind], ..Setup::new(bench.binary(), directory, &[]) }
}

// === impl HistoryPlan ===

impl HistoryPlan {
    /// Broadcasts until the history is whole, or the time or half of the free disk is over.
    fn fill(self, trial: &Trial, data: &Path) -> Result<Filled> {
        let clock = Clock::system();
        let (started, disk) = (clock.monotonic(), statvfs(data)?);
        let free_bytes = disk.f_bavail * disk.f_frsize;
        let mut filled = Filled { count: 0, bytes: 0, cut_by: None };
        while filled.count < self.history && filled.cut_by.is_none() {
            let end = (filled.count + BROADCAST).min(self.history);
            let mut command = trial.engine().client().command("send");
            command.args(["--channel", "past", "--to-file", "-", "--json", "--content", CONTENT]);
            feed(command, (filled.count..end).map(token))?;
            // So that the time is that of all of it, and not of taking it in alone.
            trial.drain(PATIENCE, || Ok(()))?;
            (filled.count, filled.bytes) = (end, bytes_on_disk(data)?);
            if clock.monotonic().duration_since(started) > self.fill_within {
                filled.cut_by = Some("the time for it");
            } else if filled.bytes > free_bytes / 2 {
                filled.cut_by = Some("half of the free disk");
            }
        }
        Ok(filled)
    }
}

// === impl Filled ===

impl Filled {
    fn notes(self, plan: HistoryPlan) -> Vec<String> {
        let each = as_float(self.bytes) / as_float(self.count.max(1));
        let mut notes = vec![format!(
            "{each:.1} bytes on the disk for each settled notification of a broadcast"
        )];
        if let Some(bound) = self.cut_by {
            let (made, planned) = (count(self.count), count(plan.history));
            notes.push(format!("{made} settled in place of {planned}: {bound} was over"));
        }
        notes
    }
}
