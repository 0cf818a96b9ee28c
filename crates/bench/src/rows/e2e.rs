//! `e2e`: durable APNs from end to end, beside a tool that sends the same requests and keeps nothing.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::job::as_float;
use super::{Bench, BroadcastJob, floor, pushy};
use crate::caller::LoadCaller;
use crate::report::{Check, Point, RowReport, Unit, percentile};
use crate::trial::{Setup, Trial};
use crate::usage::bytes_on_disk;
use crate::workload::{Workload, WorkloadGuarantee};

/// Latencies of the provider, milliseconds.
const LATENCIES: [u64; 4] = [0, 10, 100, 300];
/// Urgent notifications, one at a time, and the pause between two, so that the engine is idle again.
const URGENT: u64 = 300;
const PAUSE: Duration = Duration::from_millis(20);
const MEMORY_MIB: f64 = 256.0;
const CONTENT: &str = r#"{"aps":{"alert":"breaking news"}}"#;
const P99_MS: f64 = 50.0;
/// Seconds.
const READY: f64 = 1.0;
/// Of the provider that takes nothing in time, so that the backlog stays.
const STALLED: &str = "60s";

pub(super) fn run(bench: &Bench) -> Result<Vec<RowReport>> {
    let mut reports = vec![rate(bench)?, pending(bench)?, urgent(bench)?];
    let at_once = reports.first().and_then(|rate| rate.points.first().cloned());
    if let Some(at_once) = at_once {
        reports.push(pushy::run(bench, &at_once)?);
    }
    Ok(reports)
}

fn rate(bench: &Bench) -> Result<RowReport> {
    let title = "Durable APNs, one broadcast, by the latency of the provider";
    let mut report = bench.report("e2e", title, Unit::PerMinute);
    let tokens = bench.size.pick(2_000_000, 10_000_000);
    report.configuration = vec![
        ("store".into(), "SQLite, synchronous=FULL".into()),
        ("provider".into(), "APNs over TLS on the same cores".into()),
        ("notifications".into(), tokens.to_string()),
        ("concurrency".into(), "auto".into()),
    ];
    for latency_ms in LATENCIES {
        let latency = Duration::from_millis(latency_ms);
        let job = BroadcastJob { tokens, warm_up: tokens / 2, concurrency: None, latency };
        let point = job.point(bench, Unit::PerMinute)?;
        report.points.push(Point { setting: format!("{latency_ms} ms"), ..point });
    }
    match floor::http2(bench, tokens / 2)? {
        Ok(floor) => report.floor = Some(floor),
        Err(note) => report.notes.push(note),
    }
    Ok(report)
}

/// How much memory a backlog takes.
fn pending(bench: &Bench) -> Result<RowReport> {
    let tokens = bench.size.pick(2_000_000, 10_000_000);
    let title = "A broadcast that a provider takes nothing of: taken in a minute, and memory";
    let mut report = bench.report("e2e-pending", title, Unit::PerMinute);
    bench.say(format!("{tokens} pending"));
    let directory = bench.directory()?;
    let setup = Setup::new(bench.binary(), directory.path(), &["--latency", STALLED]);
    let mut trial = Trial::start(setup)?;
    let clock = flow::Clock::system();
    let started = clock.monotonic();
    trial.broadcast(0..tokens, CONTENT, WorkloadGuarantee::AtLeastOnce)?;
    let took = clock.monotonic().duration_since(started);
    let usage = trial.engine().usage()?;
    let left = trial.pending()?;
    let mib = usage.memory_bytes_max >> 20;
    let disk = bytes_on_disk(&directory.path().join("data"))?;
    report.points.push(Point {
        cpu_us_per_item: Some(usage.cpu.as_secs_f64() * 1e6 / as_float(tokens)),
        memory_bytes_max: Some(usage.memory_bytes_max),
        disk_bytes_per_item: Some(as_float(disk) / as_float(tokens)),
        lost: tokens.abs_diff(left),
        ..Point::of_runs(
            format!("{tokens} pending"),
            Unit::PerMinute,
            &[60.0 * as_float(tokens) / took.as_secs_f64()],
        )
    });
    report.checks.push(Check::at_most("memory, MiB", as_float(mib), MEMORY_MIB));
    let (ready, first) = restart(&mut trial)?;
    report.checks.push(Check::at_most("ready again after a kill, s", ready, READY));
    report
        .notes
        .push(format!("after a kill: ready after {ready:.3} s, first send after {first:.3} s"));
    Ok(report)
}

/// Kills the engine and starts it again: seconds until it is ready, and until it sends.
fn restart(trial: &mut Trial) -> Result<(f64, f64)> {
    let clock = flow::Clock::system();
    trial.kill()?;
    let mut journal = trial.journal()?;
    let before = journal.lines()?;
    let started = clock.monotonic();
    trial.restart()?;
    let ready = clock.monotonic().duration_since(started);
    while journal.lines()? == before {
        let waited = clock.monotonic().duration_since(started);
        ensure!(waited < super::PATIENCE, "nothing is sent after a restart");
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok((ready.as_secs_f64(), clock.monotonic().duration_since(started).as_secs_f64()))
}

/// From the call to the provider, one at a time.
fn urgent(bench: &Bench) -> Result<RowReport> {
    let title = "Urgent ones, one at a time: from the call to the provider's acceptance";
    let mut report = bench.report("e2e-urgent", title, Unit::MsPerOp);
    report.configuration = vec![("notifications".into(), URGENT.to_string())];
    let busy = bench.size.pick(3_000_000, 14_000_000);
    for (setting, broadcast) in [("idle engine", 0), ("during a broadcast at full rate", busy)] {
        bench.say(format!("urgent, {setting}"));
        let OneByOne { waits, lost, duplicated } = one_by_one(bench, broadcast)?;
        let [least, p50, p99] = [0, 50, 99].map(|percent| percentile(&waits, percent));
        report.points.push(Point {
            spread: (least, p99),
            lost,
            duplicated,
            ..Point::of_runs(setting, Unit::MsPerOp, &[p50])
        });
        report.checks.push(Check::at_most(&format!("{setting}: p99, ms"), p99, P99_MS));
    }
    report
        .notes
        .push("the figure is the median of all, the spread reaches from the least to p99".into());
    Ok(report)
}

/// Urgent notifications, one at a time.
#[derive(Debug)]
struct OneByOne {
    /// How long each took, milliseconds.
    waits: Vec<f64>,
    lost: u64,
    duplicated: u64,
}

fn one_by_one(bench: &Bench, broadcast: u64) -> Result<OneByOne> {
    let directory = bench.directory()?;
    let trial = Trial::start(Setup::new(bench.binary(), directory.path(), &[]))?;
    let clock = flow::Clock::system();
    let tokens = URGENT + broadcast;
    if broadcast > 0 {
        trial.broadcast(URGENT..tokens, CONTENT, WorkloadGuarantee::AtLeastOnce)?;
    }
    let mut caller = LoadCaller::connect(trial.engine().listen())?;
    let (mut posted_us, mut journal) = (Vec::new(), trial.journal()?);
    for number in 0..URGENT {
        std::thread::sleep(PAUSE);
        posted_us.push(u64::try_from(clock.wall().as_micros())?);
        caller.notify(number, "urgent")?;
        if broadcast > 0 && journal.lines()? > broadcast * 49 / 50 {
            break;
        }
    }
    let posted = posted_us.len() as u64;
    ensure!(posted >= URGENT / 4, "the broadcast was over after {posted} urgent ones");
    trial.drain(super::PATIENCE, || Ok(()))?;
    let finished = trial.finish(&Workload { tokens, webhooks: Vec::new() })?;
    let (all, tally) = (finished.books.tally(), finished.books.tally_of(0..posted));
    // One at a time, so the order of posting is the order of acceptance.
    let pairs = tally.accepted_at_us.iter().zip(&posted_us);
    let micros = pairs.map(|(got, sent)| Duration::from_micros(got.saturating_sub(*sent)));
    let waits: Vec<f64> = micros.map(|wait| wait.as_secs_f64() * 1e3).collect();
    // Those that were not sent because the broadcast was over are missing for that reason.
    let lost = (all.missing + all.refused).saturating_sub(URGENT - posted);
    Ok(OneByOne { waits, lost, duplicated: all.duplicates })
}
