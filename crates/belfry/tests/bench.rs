//! The commands around a benchmark, and the job that most rows are made of, counted at the provider.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use bench::report::{Point, RowReport, Unit};
use bench::rows::{Bench, BroadcastJob, Size};

fn a_bench() -> Bench {
    let binary = env!("CARGO_BIN_EXE_belfry").into();
    Bench::new(binary, "0123abc".into(), Size::Short, Box::new(|_| ())).unwrap()
}

fn belfry(arguments: &[&str], directory: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_belfry"));
    command.args(arguments).current_dir(directory).output().unwrap()
}

/// A report of `row` with these points, in microseconds of a processor for each item.
fn report(bench: &Bench, row: &str, points: &[(&str, f64)]) -> RowReport {
    let point = |(setting, cpu): &(&str, f64)| Point {
        cpu_us_per_item: Some(*cpu),
        memory_bytes_max: Some(100 << 20),
        disk_bytes_per_item: Some(40.0),
        // All that the processors can do.
        ..Point::of_runs(*setting, Unit::PerMinute, &[60e6 * cores(bench) / cpu])
    };
    RowReport {
        points: points.iter().map(point).collect(),
        ..bench.report(row, "A row", Unit::PerMinute)
    }
}

/// Processors that this machine has.
fn cores(bench: &Bench) -> f64 {
    let report = bench.report("none", "", Unit::PerMinute);
    u32::try_from(report.machine.cores).unwrap().into()
}

#[test]
fn every_recipient_of_a_job_is_counted_at_the_provider() {
    let latency = Duration::from_millis(20);
    let job = BroadcastJob { tokens: 2_000, warm_up: 500, concurrency: Some(50), latency };
    let result = job.run(&a_bench()).unwrap();
    assert_eq!((result.lost, result.duplicated), (0, 0), "{result:?}");
    // 40 rounds of 50 attempts, however fast the machine is.
    assert!(result.seconds >= 40.0 * latency.as_secs_f64(), "{result:?}");
    assert!(result.seconds_to_90 < result.seconds && result.cpu_us > 0.0, "{result:?}");
}

#[test]
fn a_plan_needs_what_a_benchmark_has_measured() {
    let directory = tempfile::tempdir().unwrap();
    let plan = ["plan", "--rate", "6M/min", "--latency", "150ms"];
    let missing = belfry(&plan, directory.path());
    assert_eq!(missing.status.code(), Some(65));
    let said = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert!(said.contains("belfry bench all"), "{said}");
    let results = directory.path().join("bench-results");
    std::fs::create_dir(&results).unwrap();
    let bench = a_bench();
    for (row, points) in [
        ("consumers", [("embedded store", 7.0)].as_slice()),
        ("e2e", &[("0 ms", 7.0), ("300 ms", 7.0)]),
        ("e2e-pending", &[("a backlog", 1.0)]),
    ] {
        let text = serde_json::to_string(&report(&bench, row, points)).unwrap();
        std::fs::write(results.join(format!("{row}.json")), text).unwrap();
    }
    let planned = belfry(&[plan.as_slice(), &["--json"]].concat(), directory.path());
    let plan: serde_json::Value = serde_json::from_slice(&planned.stdout).unwrap();
    // 100,000 a second, of 7 us each.
    assert_eq!(plan["machines"], 1, "{plan}");
    assert_eq!(plan["connections"], 15, "{plan}");
    assert!(
        (plan["per_minute_of_a_machine"].as_f64().unwrap() - 120e6 / 7.0).abs() < 1.0,
        "{plan}"
    );
}

#[test]
fn a_page_is_made_of_the_reports_in_a_directory() {
    let directory = tempfile::tempdir().unwrap();
    let page = || belfry(&["bench", "report", "."], directory.path());
    assert_eq!(page().status.code(), Some(65), "there is none");
    let text = serde_json::to_string(&report(&a_bench(), "e2e", &[("0 ms", 7.0)])).unwrap();
    std::fs::create_dir(directory.path().join("monday")).unwrap();
    std::fs::write(directory.path().join("monday/e2e.json"), text).unwrap();
    assert!(page().status.success());
    let html = std::fs::read_to_string(directory.path().join("report.html")).unwrap();
    assert!(html.contains("<svg") && html.contains("0123abc"), "{html}");
    std::fs::write(directory.path().join("other.json"), "{}").unwrap();
    let said = String::from_utf8_lossy(&page().stderr).into_owned();
    assert!(said.contains("other.json is no report"), "{said}");
}
