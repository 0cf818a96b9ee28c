//! `fanout`: breaking news to many devices by a provider that takes 300 ms.
//!
//! The number of sends behind the published table is not published. Five threads that pause for 300 ms send at most 1,917 messages in
//! the 115 s that they took, so that is the most that each sender had to send; here it is rounded up.

use std::time::Duration;

use anyhow::Result;

use super::job::{BroadcastResult, as_float};
use super::{Bench, BroadcastJob};
use crate::published::FANOUT;
use crate::report::{Check, Point, RowReport, Unit};

const LATENCY: Duration = Duration::from_millis(300);
/// Sends of the published table.
const SENDS: u64 = 2_000;
const SETTINGS: [u64; 6] = [5, 10, 50, 100, 200, 400];
/// Those that a short run leaves out: a minute or more for each.
const SLOW: usize = 2;
/// Seconds that `auto` may take for them.
const BOUND: f64 = 4.0;
/// How many times as long as the best fixed setting it may take.
const SLOWER_MAX: f64 = 1.05;
/// The sweep of settings by which many are sent.
const MANY: [u64; 4] = [5_000, 20_000, 80_000, 320_000];
/// Devices that an engine has sent to before: in the ten seconds or so that they take it learns how many at a time are best.
const WARM_UP: u64 = 4_000_000;
/// Seconds in which nine of ten are to have it.
const GOAL: f64 = 120.0;
/// Recipients of the job that is timed until nine of ten have it.
const AUDIENCES: [u64; 4] = [100_000, 1_000_000, 3_000_000, 10_000_000];

pub(super) fn run(bench: &Bench) -> Result<Vec<RowReport>> {
    Ok(vec![published(bench)?, many(bench)?, nine_in_two(bench)?])
}

fn published(bench: &Bench) -> Result<RowReport> {
    let title =
        "First request to last send, by attempts under way at a time; 300 ms for the provider";
    let mut report = bench.report_beside("fanout", title, &FANOUT);
    report.configuration = configuration(&SENDS.to_string());
    let skipped = bench.size.pick(SLOW, 0);
    for places in SETTINGS.into_iter().skip(skipped) {
        report.points.push(job(SENDS, 0, Some(places)).point(bench, Unit::Seconds)?);
    }
    if skipped > 0 {
        report
            .notes
            .push("settings that take a minute or more are left out of the short size".into());
    }
    let auto = job(SENDS, 0, None).point(bench, Unit::Seconds)?;
    let what = "`auto`, seconds; a tenth of the best published figure is";
    report.checks.push(Check::at_most(what, auto.figure.value(), BOUND));
    report.checks.push(is_near_best(&auto, &report));
    report.auto = Some(auto);
    Ok(report)
}

fn is_near_best(auto: &Point, report: &RowReport) -> Check {
    let best = report.best_fixed().unwrap_or(0.0);
    let what = "`auto`, times as long as the best fixed setting";
    Check::at_most(what, auto.figure.value() / best, SLOWER_MAX)
}

fn job(tokens: u64, warm_up: u64, concurrency: Option<u64>) -> BroadcastJob {
    BroadcastJob { tokens, warm_up, concurrency, latency: LATENCY }
}

/// Many more, where a place for each is a setting to be found; each engine has sent before.
fn many(bench: &Bench) -> Result<RowReport> {
    let tokens = bench.size.pick(1_000_000, 4_000_000);
    let title = format!("The same for {tokens} devices, by an engine that has sent before");
    let mut report = bench.report("fanout-many", &title, Unit::Seconds);
    report.configuration = configuration(&tokens.to_string());
    for places in MANY.into_iter().skip(bench.size.pick(1, 0)) {
        report.points.push(job(tokens, WARM_UP, Some(places)).point(bench, Unit::Seconds)?);
    }
    let auto = job(tokens, WARM_UP, None).point(bench, Unit::Seconds)?;
    report.checks.push(is_near_best(&auto, &report));
    report.auto = Some(auto);
    Ok(report)
}

/// How long it takes until 90 % of an audience have it: 2 minutes is what the published work was to reach.
fn nine_in_two(bench: &Bench) -> Result<RowReport> {
    let title = "90in2: from the request until 90 % of the devices have it; the goal is 120 s";
    let mut report = bench.report("fanout-90in2", title, Unit::Seconds);
    report.configuration = configuration("as in the setting");
    for tokens in AUDIENCES.into_iter().take(bench.size.pick(2, AUDIENCES.len())) {
        bench.say(format!("90in2: {tokens} devices"));
        let job = job(tokens, 0, None);
        let mut runs = Vec::new();
        for _ in 0..bench.repetitions {
            let run = job.run(bench)?;
            runs.push(BroadcastResult { seconds: run.seconds_to_90, ..run });
        }
        let mut point =
            BroadcastResult::to_point(&runs, format!("{tokens} devices"), None, Unit::Seconds);
        point.parallel = Some(as_float(tokens));
        let took = point.figure.value();
        let what = format!("90 % of {tokens} have it, seconds");
        report.checks.push(Check::at_most(&what, took, GOAL));
        report.points.push(point);
    }
    Ok(report)
}

fn configuration(devices: &str) -> Vec<(String, String)> {
    [
        ("store", "SQLite, synchronous=FULL"),
        ("provider", "APNs over TLS, 300 ms"),
        ("devices", devices),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .to_vec()
}
