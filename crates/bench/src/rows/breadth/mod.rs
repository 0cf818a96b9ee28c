//! `breadth`: what an engine and a store do when there is much of everything: endpoints that are dead, lanes that wait, tenants with
//! backlogs, history.

mod endpoints;
mod history;
mod lanes;
mod load;
mod name_server;
mod neighbours;
mod shares;
mod tenants;

use anyhow::Result;

use super::Bench;
use crate::report::{self, Point, RowReport, Unit};

pub(super) fn run(bench: &Bench) -> Result<Vec<RowReport>> {
    Ok(vec![
        neighbours::run(bench)?,
        lanes::run(bench)?,
        tenants::run(bench)?,
        shares::run(bench)?,
        history::run(bench)?,
    ])
}

/// An empty report, and the runs of each setting: at most three, as one takes minutes.
fn report(bench: &Bench, row: &str, title: &str, unit: Unit) -> RowReport {
    let repetitions = bench.repetitions.min(3);
    RowReport { repetitions, ..bench.report(row, title, unit) }
}

/// A count as people write it: `1,000`.
fn count(items: u64) -> String {
    if items < 1_000 { items.to_string() } else { report::number(super::job::as_float(items)) }
}

/// How many times `other` the median of `point` is.
fn times(point: &Point, other: &Point) -> f64 {
    point.figure.value() / other.figure.value()
}
