//! The shape of the JSON, and the conclusions from the points.

use super::*;

/// A report without a point.
pub(crate) fn sample(unit: Unit) -> RowReport {
    RowReport {
        commit: "0123abc".into(),
        machine: Machine {
            processor: "AMD EPYC 7B13".into(),
            cores: 2,
            memory_bytes: 24 << 30,
            kernel: "6.1.0-44-cloud-amd64".into(),
            load_before: 0.02,
        },
        taken_at: "2026-01-02T03:04:05Z".into(),
        size: "full".into(),
        repetitions: 3,
        configuration: vec![("store".into(), "SQLite, synchronous=FULL".into())],
        ..RowReport::new("sample", "A sample", unit)
    }
}

/// Three runs of a setting, 4 % apart; one that is a number is a place in a sweep.
pub(super) fn point(setting: &str, unit: Unit, figure: f64) -> Point {
    Point {
        parallel: setting.parse().ok(),
        ..Point::of_runs(setting, unit, &[0.98 * figure, figure, 1.02 * figure])
    }
}

pub(super) fn published(setting: &str, unit: Unit, figure: f64) -> PublishedPoint {
    PublishedPoint {
        setting: setting.into(),
        parallel: setting.parse().ok(),
        figure: unit.figure(figure),
    }
}

/// A sweep beside a published one, with all that a report can have.
pub(super) fn sweep() -> RowReport {
    let unit = Unit::PerMinute;
    let theirs =
        [("4", 7_299.0), ("8", 13_534.0), ("16", 18_509.0), ("32", 25_317.0), ("64", 28_330.0)];
    let ours = [
        ("4", 22_900.0),
        ("8", 45_600.0),
        ("16", 91_000.0),
        ("32", 180_500.0),
        ("64", 356_000.0),
        ("256", 1_360_000.0),
        ("1024", 4_410_000.0),
        ("4096", 6_100_000.0),
    ];
    let costed = |place: Point| Point {
        cpu_us_per_item: Some(14.2),
        memory_bytes_max: Some(181 << 20),
        ..place
    };
    let mut report = RowReport {
        row: "partitions".into(),
        title: "One machine, sends of 10 ms: attempts under way at a time".into(),
        published: theirs.map(|(setting, figure)| published(setting, unit, figure)).to_vec(),
        published_in:
            "“Scaling a notification service”, part 1 (2024): threads, a send sleeps 10 ms, 4 cores"
                .into(),
        points: ours.map(|(setting, figure)| costed(point(setting, unit, figure))).to_vec(),
        auto: Some(costed(point("auto", unit, 6_350_000.0))),
        floor: Some(Floor {
            tool: "h2load -t2 to nghttpd, both on these cores".into(),
            per_minute: Some(9_800_000.0),
            cpu_us_per_item: Some(11.9),
        }),
        checks: vec![Check {
            what: "`auto` is at least 150 times the best published figure".into(),
            found: "224 times".into(),
            holds: true,
        }],
        notes: vec!["the provider has the same two cores".into()],
        ..sample(unit)
    };
    report.conclude();
    report
}

/// Names, beside published ones.
pub(super) fn names() -> RowReport {
    let unit = Unit::PerMinute;
    let mut postgres = point("PostgreSQL", unit, 912_000.0);
    postgres.floor = Some(Floor {
        tool: "pgbench".into(),
        per_minute: Some(1_440_000.0),
        cpu_us_per_item: None,
    });
    let mut rabbit = point("RabbitMQ", unit, 731_000.0);
    rabbit.lost = 1;
    rabbit.servers_cpu_us_per_item = vec![("PostgreSQL".into(), 31.5), ("broker".into(), 9.25)];
    rabbit.disk_bytes_per_item = Some(312.0);
    let mut report = RowReport {
        row: "consumers".into(),
        title: "Competing consumers behind a broker".into(),
        published: vec![
            published("64 consumers", unit, 161_000.0),
            published("2 x 192 consumers", unit, 449_274.0),
        ],
        published_in: "“Scaling a notification service”, part 3 (2024)".into(),
        points: vec![rabbit, point("NATS JetStream", unit, 1_204_000.0), postgres],
        checks: vec![Check::sample("RabbitMQ, a minute: at least 900,000", "731,000", false)],
        ..sample(unit)
    };
    report.conclude();
    report
}

/// Markup everywhere where text is.
pub(super) fn hostile() -> RowReport {
    let text = || r#"</svg><script>alert("1")</script>&amp;'"#.to_owned();
    let mut report = RowReport {
        row: text(),
        title: text(),
        commit: text(),
        taken_at: text(),
        size: text(),
        published_in: text(),
        configuration: vec![(text(), text())],
        published: vec![published(&text(), Unit::Seconds, 2.0)],
        points: vec![point(&text(), Unit::Seconds, 1.0)],
        floor: Some(Floor { tool: text(), per_minute: Some(1.0), cpu_us_per_item: None }),
        checks: vec![Check::sample(&text(), &text(), false)],
        notes: vec![text()],
        ..sample(Unit::Seconds)
    };
    report.machine.processor = text();
    report.machine.kernel = text();
    report.conclude();
    report
}

/// Reports that are at the edge of what can be drawn.
pub(super) fn edges() -> Vec<RowReport> {
    let unit = Unit::PerMinute;
    let with = |points: Vec<Point>, auto: Option<Point>| {
        let mut report = RowReport { points, auto, ..sample(unit) };
        report.conclude();
        report
    };
    let sweep_of = |figures: &[f64]| {
        let settings = ["4", "8", "16", "32", "64"];
        settings.iter().zip(figures).map(|(setting, it)| point(setting, unit, *it)).collect()
    };
    let long = "a setting with a name that is longer than any that fits beside its bar";
    let many =
        (0..40_u32).map(|i| point(&format!("setting {i}"), unit, 1.5_f64.powf(f64::from(i))));
    vec![
        sample(unit),
        sample(Unit::Seconds),
        with(vec![point("64", unit, 1_000.0)], None),
        with(vec![point("rabbitmq", unit, 1_000.0)], None),
        with(vec![point("a", unit, 0.0), point("b", unit, 0.0)], None),
        with(vec![point("a", unit, 0.0), point("b", unit, 5.0)], Some(point("auto", unit, 0.0))),
        with(sweep_of(&[0.0, 0.0]), Some(point("auto", unit, 0.0))),
        with(sweep_of(&[0.0, 10.0, 20.0]), Some(point("auto", unit, 20.0))),
        with(sweep_of(&[7.0, 7.0, 7.0, 7.0, 7.0]), Some(point("auto", unit, 7.0))),
        with(sweep_of(&[1e-300, 1e300]), Some(point("auto", unit, 1e308))),
        with(sweep_of(&[f64::NAN, f64::INFINITY, -3.0]), Some(point("auto", unit, f64::NAN))),
        with(vec![point(long, unit, 123_456_789.0), point("b", unit, f64::INFINITY)], None),
        with(many.collect(), None),
        RowReport { title: "a long title ".repeat(30), commit: "f".repeat(400), ..sweep() },
        RowReport { published: Vec::new(), published_in: String::new(), ..sweep() },
        RowReport { points: Vec::new(), auto: None, ..sweep() },
    ]
}

// === impl Check ===

impl Check {
    fn sample(what: &str, found: &str, holds: bool) -> Self {
        Self { what: what.into(), found: found.into(), holds }
    }
}

#[test]
fn a_report_is_the_same_after_a_round_trip_through_json() {
    // Figures that a double and a decimal have in common.
    let mut report = names();
    report.ratio_to_best_published = Some(2.5);
    report.points.iter_mut().for_each(|point| point.ratio_to_floor = None);
    let mut learned = sweep();
    learned.scalability = Some(Scalability {
        lambda: 95.5,
        sigma: 0.25,
        kappa: 0.0,
        knee: None,
        most: None,
        error: 0.5,
        auto_at: Some(100.5),
    });
    learned.ratio_to_best_published = None;
    learned.ratio_to_best_fixed = Some(1.5);
    learned.ratio_to_floor = Some(1.5);
    for report in [report, learned, sample(Unit::MsPerOp)] {
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<RowReport>(&text).unwrap(), report);
    }
}

/// The names of the fields of an object, in the order of their letters.
fn names_of(object: &serde_json::Value) -> Vec<String> {
    let page = include_str!("../../../../docs/bench.md");
    let mut names: Vec<String> = object.as_object().unwrap().keys().cloned().collect();
    for name in &names {
        assert!(page.contains(&format!("`{name}`")), "{name} is not in docs/bench.md");
    }
    names.sort_unstable();
    names
}

#[test]
fn the_fields_have_the_names_that_are_documented() {
    let mut report = sweep();
    report.points[0].servers_cpu_us_per_item = vec![("broker".into(), 2.0)];
    report.points[0].disk_bytes_per_item = Some(310.0);
    report.points[0].floor =
        Some(Floor { tool: "it".into(), per_minute: Some(1.0), cpu_us_per_item: Some(2.0) });
    report.seeds = vec![7];
    report.conclude();
    let json = serde_json::to_value(&report).unwrap();
    let sorted = |names: &[&str]| {
        let mut names: Vec<String> = names.iter().map(|it| (*it).to_owned()).collect();
        names.sort_unstable();
        names
    };
    let top = [
        "version",
        "row",
        "title",
        "commit",
        "machine",
        "taken_at",
        "size",
        "repetitions",
        "configuration",
        "seeds",
        "unit",
        "published",
        "published_in",
        "points",
        "auto",
        "scalability",
        "ratio_to_best_published",
        "ratio_to_best_fixed",
        "floor",
        "ratio_to_floor",
        "checks",
        "notes",
    ];
    assert_eq!(names_of(&json), sorted(&top));
    let machine = ["processor", "cores", "memory_bytes", "kernel", "load_before"];
    assert_eq!(names_of(&json["machine"]), sorted(&machine));
    assert_eq!(names_of(&json["published"][0]), sorted(&["setting", "parallel", "per_minute"]));
    let point = [
        "setting",
        "parallel",
        "per_minute",
        "spread",
        "cpu_us_per_item",
        "servers_cpu_us_per_item",
        "memory_bytes_max",
        "disk_bytes_per_item",
        "lost",
        "duplicated",
        "floor",
        "ratio_to_floor",
    ];
    assert_eq!(names_of(&json["points"][0]), sorted(&point));
    assert_eq!(
        names_of(&json["points"][0]["floor"]),
        sorted(&["tool", "per_minute", "cpu_us_per_item"])
    );
    let law = ["lambda", "sigma", "kappa", "knee", "most", "error", "auto_at"];
    assert_eq!(names_of(&json["scalability"]), sorted(&law));
    assert_eq!(names_of(&json["checks"][0]), sorted(&["what", "found", "holds"]));
    assert_eq!((&json["version"], &json["unit"]), (&1.into(), &"per_minute".into()));
    assert_eq!(json["points"][0]["per_minute"], 22_900.0);
    assert_eq!(json["configuration"][0], serde_json::json!(["store", "SQLite, synchronous=FULL"]));
}

#[test]
fn a_figure_has_the_name_of_its_unit() {
    for (unit, name) in
        [(Unit::PerMinute, "per_minute"), (Unit::Seconds, "seconds"), (Unit::MsPerOp, "ms_per_op")]
    {
        let json = serde_json::to_value(point("64", unit, 2.0)).unwrap();
        assert_eq!(json[name], 2.0);
        assert_eq!(serde_json::to_value(unit).unwrap(), name);
    }
}

#[test]
fn a_ratio_above_one_is_better_for_every_unit() {
    let of = |unit: Unit, theirs: f64, ours: [f64; 2], auto: Option<f64>| {
        let mut report = RowReport {
            published: vec![published("a", unit, theirs), published("b", unit, theirs)],
            points: ours.map(|figure| point("a", unit, figure)).to_vec(),
            auto: auto.map(|figure| point("auto", unit, figure)),
            ..sample(unit)
        };
        report.conclude();
        (report.ratio_to_best_published, report.ratio_to_best_fixed)
    };
    assert_eq!(of(Unit::PerMinute, 10.0, [20.0, 40.0], Some(80.0)), (Some(8.0), Some(2.0)));
    assert_eq!(of(Unit::PerMinute, 10.0, [20.0, 40.0], None), (Some(4.0), None));
    assert_eq!(of(Unit::Seconds, 100.0, [50.0, 20.0], Some(10.0)), (Some(10.0), Some(2.0)));
    assert_eq!(of(Unit::Seconds, 100.0, [50.0, 20.0], Some(40.0)), (Some(2.5), Some(0.5)));
    assert_eq!(of(Unit::MsPerOp, 100.0, [50.0, 20.0], None), (Some(5.0), None));
    let mut alone =
        RowReport { points: vec![point("a", Unit::Seconds, 1.0)], ..sample(Unit::Seconds) };
    alone.conclude();
    assert_eq!((alone.ratio_to_best_published, alone.best_fixed()), (None, Some(1.0)));
}

#[test]
fn the_ratio_to_a_floor_is_of_processor_time_where_both_have_it() {
    let floor = |per_minute, cpu_us_per_item| {
        Some(Floor { tool: "it".into(), per_minute, cpu_us_per_item })
    };
    let ratio = |unit: Unit, cpu: Option<f64>, floor: Option<Floor>| {
        let ours = Point { cpu_us_per_item: cpu, floor: floor.clone(), ..point("a", unit, 50.0) };
        let mut report = RowReport { points: vec![ours], floor, ..sample(unit) };
        report.conclude();
        assert_eq!(report.points[0].ratio_to_floor, report.ratio_to_floor);
        report.ratio_to_floor
    };
    assert_eq!(ratio(Unit::PerMinute, Some(6.0), floor(Some(100.0), Some(4.0))), Some(1.5));
    assert_eq!(ratio(Unit::PerMinute, None, floor(Some(100.0), Some(4.0))), Some(0.5));
    assert_eq!(ratio(Unit::Seconds, None, floor(Some(100.0), Some(4.0))), None);
    assert_eq!(ratio(Unit::Seconds, Some(6.0), floor(None, Some(4.0))), Some(1.5));
    assert_eq!(ratio(Unit::PerMinute, Some(6.0), None), None);
}

#[test]
fn a_report_is_accounted_for_only_if_no_run_lost_or_doubled_any() {
    let mut report = sweep();
    assert!(report.is_accounted_for());
    report.points[3].lost = 1;
    assert!(!report.is_accounted_for());
    report.points[3].lost = 0;
    report.points[0].duplicated = 1;
    assert!(!report.is_accounted_for());
    report.points[0].duplicated = 0;
    report.auto.as_mut().unwrap().lost = 1;
    assert!(!report.is_accounted_for());
    report.auto.as_mut().unwrap().lost = 0;
    report.checks[0].holds = false;
    assert!(report.is_accounted_for(), "a bound is another matter");
}

#[test]
fn a_point_is_the_median_of_its_runs() {
    let medians = [&[][..], &[3.0], &[9.0, 1.0], &[9.0, 1.0, 2.0], &[9.0, 1.0, 2.0, 4.0]];
    let found = medians.map(|runs| Figure::Seconds(median(runs)));
    assert_eq!(found, [0.0, 3.0, 5.0, 2.0, 3.0].map(Figure::Seconds));
    let point = Point::of_runs("64", Unit::Seconds, &[9.0, 1.0, 2.0]);
    assert_eq!((point.figure, point.spread), (Figure::Seconds(2.0), (1.0, 9.0)));
    assert_eq!(Point::of_runs("64", Unit::Seconds, &[]).spread, (0.0, 0.0));
}

#[test]
fn the_fit_of_a_sweep_is_of_its_points() {
    let law = sweep().scalability.unwrap();
    assert!(law.lambda > 90.0 && law.lambda < 100.0 && law.error < 0.05, "{law:?}");
    assert_eq!(names().scalability, None);
}
