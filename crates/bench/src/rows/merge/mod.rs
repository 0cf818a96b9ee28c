//! `merge`: one loop for both kinds of callers beside one loop for each.
//!
//! Half of the callers are of one kind, half of the other; each does one operation after the other over one connection on which a group
//! is synced as one: of the embedded store, whose callers hand in a notification or settle a delivery; and to a PostgreSQL server,
//! whose callers insert a row or change one. The operations are counted in the store afterwards. Merging was reverted where the published
//! figures are from, since an idle loop polled: so processor time of idle loops is a figure too.

mod figures;
mod measure;
mod postgres;
mod sqlite;

use std::time::Duration;

use anyhow::Result;
use testbed::PostgresServer;

use super::{Bench, missing};
use crate::published::{MERGE, Published};
use crate::report::{Check, ConfidenceInterval, Point, RowReport, Unit, median};
use figures::{Figures, summary};
use measure::{Comparison, MergePlace};

/// Callers at a time, in the order of the published tables.
const CALLERS: [usize; 2] = [8, 16];
/// Time of an operation of the shared loop, to that of separate ones.
const SHARED_MAX: f64 = 0.75;
/// Processor time of the idle shared loop, part of a core.
const IDLE_MAX: f64 = 0.005;

pub(super) fn run(bench: &Bench) -> Result<Vec<RowReport>> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let of = |place: &MergePlace| -> Result<Vec<RowReport>> {
        let tables = CALLERS.into_iter().zip(&MERGE);
        tables
            .map(|(callers, published)| runtime.block_on(compare(bench, place, callers, published)))
            .collect()
    };
    let mut reports = of(&MergePlace::Sqlite)?;
    match PostgresServer::start() {
        Ok(server) => reports.extend(of(&MergePlace::Postgres(server))?),
        Err(error) => {
            let note = missing("the same over PostgreSQL", error)?;
            for report in &mut reports {
                report.notes.push(note.clone());
            }
        }
    }
    Ok(reports)
}

async fn compare(
    bench: &Bench,
    place: &MergePlace,
    callers: usize,
    published: &Published,
) -> Result<RowReport> {
    let repetitions = bench.size.pick(3, 11).max(bench.repetitions);
    let (time, idle) = (Duration::from_secs(bench.size.pick(1, 3)), bench.size.pick(2, 5));
    let comparison = Comparison { callers, time, idle: Duration::from_secs(idle), repetitions };
    bench.say(format!("{callers} callers, {}, {repetitions} times", place.what()));
    let measured = comparison.run(place).await?;
    let row = format!("merge{}-{callers}", place.suffix());
    let title = format!(
        "{callers} callers of two kinds over one connection: a loop for each, and one for both"
    );
    let mut report = bench.report_beside(&row, &title, published);
    report.repetitions = repetitions;
    report.configuration = vec![
        ("operations".into(), place.what().into()),
        ("callers".into(), callers.to_string()),
        ("length of a run".into(), format!("{} s", time.as_secs())),
    ];
    let variants = [("separate", &measured.separate), ("shared", &measured.shared)];
    report.points = variants.map(|(name, figures)| point(name, figures)).to_vec();
    report.notes = variants.map(|(name, figures)| format!("{name}: {}", summary(figures))).to_vec();
    report.notes.push(pairs(&measured.separate, &measured.shared));
    report.notes.push("means over the runs, ± their 95 % confidence intervals (Student)".into());
    let [separate, shared] = measured.idle;
    report.notes.push(format!(
        "idle: separate {:.4} %, shared {:.4} % of a core",
        100.0 * separate,
        100.0 * shared
    ));
    report.checks = vec![is_faster(&measured.separate, &measured.shared), is_idle(shared, idle)];
    Ok(report)
}

fn point(name: &str, figures: &[Figures]) -> Point {
    let of = |value: fn(&Figures) -> f64| figures.iter().map(value).collect::<Vec<f64>>();
    Point {
        cpu_us_per_item: Some(median(&of(|it| it.cpu_us))),
        lost: figures.iter().map(|it| it.lost).sum(),
        duplicated: figures.iter().map(|it| it.duplicated).sum(),
        ..Point::of_runs(name, Unit::MsPerOp, &of(|it| it.mean_us / 1000.0))
    }
}

fn pairs(separate: &[Figures], shared: &[Figures]) -> String {
    let ratios = separate.iter().zip(shared).map(|(one, other)| other.mean_us / one.mean_us);
    let ratios = ConfidenceInterval::of(&ratios.collect::<Vec<f64>>());
    format!("shared to separate, time of an operation, by pairs: {ratios}")
}

fn is_faster(separate: &[Figures], shared: &[Figures]) -> Check {
    let of = |figures: &[Figures]| {
        ConfidenceInterval::of(&figures.iter().map(|it| it.mean_us).collect::<Vec<f64>>())
    };
    let (separate, shared) = (of(separate), of(shared));
    let (ratio, is_apart) = (shared.mean / separate.mean, shared.is_below(separate));
    let are = if is_apart { "are apart" } else { "overlap" };
    Check {
        what: format!(
            "the shared loop takes at least {:.0} % less time for an operation, and the intervals are apart",
            100.0 * (1.0 - SHARED_MAX)
        ),
        found: format!(
            "{:.0} % less: {shared} beside {separate} us, which {are}",
            100.0 * (1.0 - ratio)
        ),
        holds: ratio <= SHARED_MAX && is_apart,
    }
}

fn is_idle(cores: f64, seconds: u64) -> Check {
    Check {
        what: format!("the idle shared loop takes less than {} % of a core", 100.0 * IDLE_MAX),
        found: format!("{:.4} % over {seconds} s", 100.0 * cores),
        holds: cores < IDLE_MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs whose operations took so many microseconds each.
    fn runs(micros: &[u64]) -> Vec<Figures> {
        let of = |micros: &u64| {
            let took = vec![Duration::from_micros(*micros)];
            Figures::new(took, Duration::from_secs(1), Duration::from_micros(5), 1)
        };
        micros.iter().map(of).collect()
    }

    #[test]
    fn a_quarter_less_holds_only_if_the_intervals_are_apart() {
        assert!(is_faster(&runs(&[100, 101, 102]), &runs(&[70, 71, 72])).holds);
        assert!(!is_faster(&runs(&[100, 101, 102]), &runs(&[80, 81, 82])).holds);
        assert!(!is_faster(&runs(&[60, 100, 140]), &runs(&[30, 70, 110])).holds);
    }

    #[test]
    fn a_point_adds_up_what_was_lost() {
        let figures = runs(&[1000, 2000, 3000]).into_iter().map(|it| it.with_books(7, 6));
        let point = point("shared", &figures.collect::<Vec<_>>());
        assert_eq!((point.lost, point.duplicated), (3, 0));
        assert!((point.figure.value() - 2.0).abs() < 1e-9, "{point:?}");
    }

    #[test]
    fn a_loop_that_polls_is_not_idle() {
        assert!(is_idle(0.0049, 5).holds);
        assert!(!is_idle(0.005, 5).holds);
    }
}
