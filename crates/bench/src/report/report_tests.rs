//! The shape of the JSON, and the conclusions from the points.

use super::*;

/// A report without a point.
pub(crate) fn sample(unit: Unit) -> RowReport {
    RowReport {
        version: VERSION,
        row: "sample".into(),
        title: "A sample".into(),
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
        seeds: Vec::new(),
        unit,
        published: Vec::new(),
        published_in: String::new(),
        points: Vec::new(),
        auto: None,
        scalability: None,
        ratio_to_best_published: None,
        ratio_to_best_fixed: None,
        floor: None,
        ratio_to_floor: None,
        checks: Vec::new(),
        notes: Vec::new(),
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

/// A report with one hostile message everywhere where text is.
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
