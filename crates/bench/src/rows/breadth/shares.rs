//! `breadth-shares`: ten tenants with backlogs at the same provider, which has a bound: what each gets of it.

use std::fmt::Write as _;
use std::ops::Range;
use std::time::Duration;

use anyhow::{Result, ensure};
use flow::Clock;

use super::tenants::PROVIDER;
use crate::process::{EngineProcess, EngineRole, EngineSettings, SimulatorProcess};
use crate::report::{Check, Point, RowReport, Unit, median};
use crate::rows::job::as_float;
use crate::rows::{Bench, count, few};
use crate::tally::JournalBooks;
use crate::tenants;
use crate::workload::Workload;

/// How much is measured.
#[derive(Debug, Clone, Copy)]
struct SharesPlan {
    /// Recipients of the broadcast of each tenant, but for the first.
    waiting: u64,
    /// The time in which deliveries are counted.
    window: Duration,
}

/// One run.
#[derive(Debug)]
struct SharesRun {
    /// Deliveries of each tenant within the window.
    delivered: Vec<u64>,
    duplicated: Vec<u64>,
}

/// The API keys of the tenants, and their SHA-256, as a configuration has them.
const KEYS: [(&str, &str); 10] = [
    ("bench-key-of-tenant-0", "56068a4f2213498d3a63c75d83e058fb27f9b83d0af9135377a0a9aad77584c9"),
    ("bench-key-of-tenant-1", "95c5a198567d8bd779349358423956b1bf487ba7ec94ebd25689510c80a80d5b"),
    ("bench-key-of-tenant-2", "7a9f30fb424c373c3dfb9ae4f63b64f2fcd54ce8f20437c182e12ac46db643f2"),
    ("bench-key-of-tenant-3", "941245755ba9aa2a79c6257afdb73d9a3abe431f04fedff45688cf5c47d6ec1c"),
    ("bench-key-of-tenant-4", "d8ef204fdf5c0b3e2a6469f89dc40d413b3493bdad729ab005fc8fd19ce17aa8"),
    ("bench-key-of-tenant-5", "b526d7e6410b9585359bf63afebef712bd3ebd1e726f134350551b84bd9da751"),
    ("bench-key-of-tenant-6", "1518da5293e8604a21c1482351608d5b81f2586e1f24dbfc8893048741ffa4e1"),
    ("bench-key-of-tenant-7", "34e7199b58b9349a347fbdc13306a27258cd8f964b5e4c6f92e9215a2689db9c"),
    ("bench-key-of-tenant-8", "327b8ff424cf148d9adc298c9a3ba594308d701e6817812e38cf0797685622eb"),
    ("bench-key-of-tenant-9", "fc97a2b691ca22f690576805a06b5885e5ff3e71baf544062ec940195d6b14f5"),
];
const SHORT: SharesPlan = SharesPlan { waiting: 60_000, window: Duration::from_secs(8) };
const FULL: SharesPlan = SharesPlan { waiting: 200_000, window: Duration::from_mins(1) };
/// How many times as many the first tenant has as each of the others: a share does not depend on what waits.
const FIRST: u64 = 10;
/// From the last broadcast to the window.
const BEFORE: Duration = Duration::from_secs(1);
/// Of the index, which is 1 where all get the same, and 0.1 where one of ten gets all.
const FAIR: f64 = 0.95;

pub(super) fn run(bench: &Bench) -> Result<RowReport> {
    let title = "Ten tenants with backlogs at the same provider: what each gets";
    let mut report = few(bench, "breadth-shares", title, Unit::PerMinute);
    let plan = bench.size.pick(SHORT, FULL);
    report.configuration = vec![
        ("store".into(), "SQLite, synchronous=FULL".into()),
        ("provider".into(), "APNs over TLS, 15 to 25 ms, 200 requests at a time".into()),
        (
            "backlogs".into(),
            format!("{} of the first tenant, {} of each other", FIRST * plan.waiting, plan.waiting),
        ),
        ("window".into(), format!("{} s", plan.window.as_secs())),
    ];
    let mut runs = Vec::new();
    for run in 1..=report.repetitions {
        bench.say(format!("shares of {} tenants, run {run}", KEYS.len()));
        runs.push(plan.measure(bench)?);
    }
    for tenant in 0..KEYS.len() {
        let setting = format!("tenant {}, {} waiting", tenant + 1, count(plan.backlog(tenant)));
        let of = |counts: &[u64]| counts.get(tenant).copied().unwrap_or(0);
        let a_minute =
            |run: &SharesRun| as_float(of(&run.delivered)) * 60.0 / plan.window.as_secs_f64();
        report.points.push(Point {
            duplicated: runs.iter().map(|run| of(&run.duplicated)).sum(),
            ..Point::of_runs(
                setting,
                Unit::PerMinute,
                &runs.iter().map(a_minute).collect::<Vec<f64>>(),
            )
        });
    }
    let indices: Vec<f64> = runs.iter().map(|run| fairness(&run.delivered)).collect();
    let what = "fairness of the shares (Jain's index)";
    report.checks.push(Check::at_least(what, median(&indices), FAIR));
    Ok(report)
}

// === impl SharesPlan ===

impl SharesPlan {
    fn backlog(self, tenant: usize) -> u64 {
        if tenant == 0 { FIRST * self.waiting } else { self.waiting }
    }

    /// The recipients of each tenant.
    fn recipients(self) -> Vec<Range<u64>> {
        let mut next = 0;
        let range = |tenant| {
            let first = next;
            next += self.backlog(tenant);
            first..next
        };
        (0..KEYS.len()).map(range).collect()
    }

    fn measure(self, bench: &Bench) -> Result<SharesRun> {
        let directory = bench.directory()?;
        let flags = PROVIDER.map(str::to_owned);
        let simulator = SimulatorProcess::start(bench.binary(), directory.path(), &flags)?;
        let mut engine = EngineProcess::start(
            EngineSettings {
                binary: bench.binary(),
                directory: directory.path(),
                listen: "127.0.0.1:0",
                environment: &[("BELFRY__SERVER__KEYS".to_owned(), keys())],
                role: EngineRole::Serve,
                store: None,
                queue: None,
            },
            &simulator.ready,
        )?;
        let recipients = self.recipients();
        for ((key, _), numbers) in KEYS.iter().zip(&recipients) {
            tenants::broadcast(&engine, key, numbers.clone())?;
        }
        std::thread::sleep(BEFORE);
        let clock = Clock::system();
        let from_us = u64::try_from(clock.wall().as_micros())?;
        std::thread::sleep(self.window);
        let until_us = u64::try_from(clock.wall().as_micros())?;
        // Not drained: the rest would be waited for.
        engine.kill()?;
        let tokens = recipients.last().map_or(0, |last| last.end);
        let workload = Workload { tokens, webhooks: Vec::new() };
        let books = JournalBooks::read(&simulator.ready.journal, &workload)?;
        let mut run = SharesRun { delivered: Vec::new(), duplicated: Vec::new() };
        for numbers in recipients {
            let tally = books.tally_of(numbers);
            ensure!(tally.missing > 0, "the backlog of a tenant was over before the window was");
            let before = |us: u64| tally.accepted_at_us.partition_point(|at| *at < us) as u64;
            run.delivered.push(before(until_us) - before(from_us));
            run.duplicated.push(tally.duplicates);
        }
        Ok(run)
    }
}

/// The tables of all keys, as a configuration has them; each tenant is called as its key.
fn keys() -> String {
    let mut text = "[".to_owned();
    for (tenant, (_, sha256)) in KEYS.iter().enumerate() {
        let _infallible = write!(
            text,
            r#"{{name = "tenant-{tenant}", tenant = "tenant-{tenant}", sha256 = "{sha256}"}},"#
        );
    }
    text + "]"
}

/// Jain's index of `shares`: the square of the sum, by the sum of the squares and their number (Jain, Chiu and Hawe, 1984).
fn fairness(shares: &[u64]) -> f64 {
    let sum: f64 = shares.iter().map(|share| as_float(*share)).sum();
    let squares: f64 = shares.iter().map(|share| as_float(*share).powi(2)).sum();
    sum.powi(2) / (squares * as_float(shares.len() as u64)).max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_shares_are_fair_and_a_single_one_is_not() {
        assert!((fairness(&[70; 10]) - 1.0).abs() < 1e-9);
        assert!((fairness(&[70, 0, 0, 0, 0, 0, 0, 0, 0, 0]) - 0.1).abs() < 1e-9);
        assert!(fairness(&[0; 10]).abs() < 1e-9);
    }
}
