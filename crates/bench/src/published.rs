//! The figures that others have published, each of which is a row of `belfry bench`.
//!
//! They were measured on other machines, years apart: the ratio to them says that a row does the same job, and how far the way of
//! doing it carries; it does not compare machines.

use crate::report::{PublishedPoint, Unit};

/// One published table.
#[derive(Debug, Clone, Copy)]
pub struct Published {
    /// Where it is from.
    pub source: &'static str,
    /// The quantity.
    pub unit: Unit,
    /// Setting and figure, in their order; a setting that is a number is a place in a sweep.
    pub points: &'static [(&'static str, f64)],
}

/// A single server with N threads, each of which owns the rows with `id % N == k`; a send sleeps 10 ms; 4 cores.
pub const PARTITIONS: Published = Published {
    source: "“Scaling a notification service”, part 1 (engineeringwithfilip.com, 2024): threads, a send sleeps 10 ms, 4 cores",
    unit: Unit::PerMinute,
    points: &[
        ("4", 7_299.0),
        ("8", 13_534.0),
        ("16", 18_509.0),
        ("32", 25_317.0),
        ("64", 28_330.0),
    ],
};

/// Competing consumers behind RabbitMQ, prefetch 100, two servers of 16 cores; the greatest of the published range and the least.
pub const CONSUMERS: Published = Published {
    source: "“Scaling a notification service”, part 3 (engineeringwithfilip.com, 2024): RabbitMQ, 64 to 2 x 192 consumers, 2 servers of 16 cores",
    unit: Unit::PerMinute,
    points: &[("64 consumers", 161_000.0), ("2 x 192 consumers", 449_274.0)],
};

/// First request to last send by a pool of threads, with a pause of 300 ms for the provider.
pub const FANOUT: Published = Published {
    source: "The Guardian, mobile-n10n, docs/testing/08-thread-pool-size.md (2022): threads of a sender, 300 ms for the provider",
    unit: Unit::Seconds,
    points: &[
        ("5", 115.0),
        ("10", 103.0),
        ("50", 76.0),
        ("100", 48.0),
        ("200", 40.0),
        ("400", 41.0),
    ],
};

/// One loop that merges the messages of two kinds of callers, beside one for each kind.
pub const MERGE: [Published; 2] = [
    Published {
        source: "Apache Seata, discussion 6087 (2023): 8 callers",
        unit: Unit::MsPerOp,
        points: &[("separate", 14.57), ("shared", 10.62)],
    },
    Published {
        source: "Apache Seata, discussion 6087 (2023): 16 callers",
        unit: Unit::MsPerOp,
        points: &[("separate", 20.34), ("shared", 16.40)],
    },
];

/// Blocking threads, and the asynchronous stream that replaced them with half of the threads; and with twice the processors.
pub const STREAM: Published = Published {
    source: "An SQS to Kinesis worker, published as a migration to a reactive stream: blocking threads, half of them asynchronous, twice the CPU",
    unit: Unit::PerMinute,
    points: &[
        ("blocking threads", 1_400.0),
        ("stream, half the threads", 1_700.0),
        ("stream, twice the CPU", 3_600.0),
    ],
};

// === impl Published ===

impl Published {
    /// As a report has it.
    pub fn to_points(&self) -> Vec<PublishedPoint> {
        let point = |(setting, value): &(&str, f64)| PublishedPoint {
            setting: (*setting).to_owned(),
            parallel: setting.parse().ok(),
            figure: self.unit.figure(*value),
        };
        self.points.iter().map(point).collect()
    }
}
