//! `partitions`: what threads did that each owned a part of the rows, with sends of 10 ms.
//!
//! Belfry has no thread for a send: the settings are the attempts under way at a time, and `auto` learns them. What the original could
//! not do is checked beside it, on PostgreSQL: a killed worker's partitions move within their lease, and ids that are spread unevenly
//! fill the partitions evenly.

use std::time::Duration;

use anyhow::Result;

use super::{Bench, BroadcastJob, takeover};
use crate::published::PARTITIONS;
use crate::report::{Check, RowReport, Unit};

/// The published settings, and those beyond.
const SETTINGS: [u64; 10] = [4, 8, 16, 32, 64, 256, 1_024, 4_096, 16_384, 65_536];
const LATENCY: Duration = Duration::from_millis(10);
/// About what one machine delivers at most, a second.
const RATE_MAX: u64 = 800_000;
/// How many times over the best published row is to be beaten.
const TIMES: f64 = 150.0;

pub(super) fn run(bench: &Bench) -> Result<Vec<RowReport>> {
    let title = "One machine, sends of 10 ms: attempts under way at a time";
    let mut report = bench.report_beside("partitions", title, &PARTITIONS);
    let seconds = bench.size.pick(3, 10);
    report.configuration = vec![
        ("store".into(), "SQLite, synchronous=FULL".into()),
        ("provider".into(), "APNs over TLS, 10 ms".into()),
        ("length of a run".into(), format!("about {seconds} s")),
    ];
    let settings = SETTINGS.map(Some).into_iter().chain([None]);
    for concurrency in settings {
        let a_second = concurrency.map_or(RATE_MAX, |places| (places * 100).min(RATE_MAX));
        let tokens = a_second * seconds;
        let job = BroadcastJob { tokens, warm_up: tokens / 3, concurrency, latency: LATENCY };
        let point = job.point(bench, Unit::PerMinute)?;
        if concurrency.is_some() { report.points.push(point) } else { report.auto = Some(point) }
    }
    let found = report.auto.as_ref().map_or(0.0, |auto| auto.figure.value())
        / report.best_published().unwrap_or(1.0);
    report.checks.push(Check::at_least("`auto`, times the best published figure", found, TIMES));
    let takeover = match takeover::run(bench)? {
        Ok(takeover) => Some(takeover),
        Err(note) => {
            report.notes.push(note);
            None
        }
    };
    Ok([Some(report), takeover].into_iter().flatten().collect())
}
