//! The result of one row of `belfry bench`: one shape for all rows, versioned, and written as JSON.
//!
//! - [`machine`]: where it was measured, and which build.
//! - [`interval`]: the mean of a few values, and how sure it is.
//! - [`table`]: for a terminal.
//! - [`usl`]: the Universal Scalability Law, fitted to a sweep.
//! - [`plot`] and [`page`]: for a slide and for a browser.
//!
//! `docs/bench.md` describes each field for those who read the JSON by a program.

pub mod interval;
pub mod machine;
mod number;
pub mod page;
pub mod plot;
pub mod table;
pub mod usl;

use serde::{Deserialize, Serialize};

pub use interval::ConfidenceInterval;
pub use machine::Machine;
pub use number::number;
pub use usl::Scalability;

/// Version of the shape: raised when a field changes its meaning or goes. Fields may be added without that.
pub const VERSION: u32 = 1;

/// The measurements of one row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RowReport {
    /// [`VERSION`] of the build that wrote it.
    pub version: u32,
    /// Name of the row: the subcommand that makes it.
    pub row: String,
    /// One line for people: what is measured.
    pub title: String,
    /// The build.
    pub commit: String,
    /// Where it ran.
    pub machine: Machine,
    /// When it began: RFC 3339, UTC.
    pub taken_at: String,
    /// `short` or `full`.
    pub size: String,
    /// Each point is the median of so many runs.
    pub repetitions: u32,
    /// Parameters of the run that are the same for all points, as `name`, `value`.
    pub configuration: Vec<(String, String)>,
    /// Seeds of what is drawn; empty where nothing is.
    pub seeds: Vec<u64>,
    /// The quantity that the figures of the points are.
    pub unit: Unit,
    /// The published figures, in their order.
    pub published: Vec<PublishedPoint>,
    /// Where they are from; empty without any.
    pub published_in: String,
    /// Fixed settings, in the order of the sweep.
    pub points: Vec<Point>,
    /// The setting that is learned, which is the default.
    pub auto: Option<Point>,
    /// The Universal Scalability Law fitted to the fixed settings, where they are a sweep.
    pub scalability: Option<Scalability>,
    /// How many times better than the best published figure the learned setting is, or the best point where none is learned.
    pub ratio_to_best_published: Option<f64>,
    /// How the learned setting compares with the best fixed one: above 1 it is better.
    pub ratio_to_best_fixed: Option<f64>,
    /// The measurement of a tool made for nothing but this, on the same machine in the same run.
    pub floor: Option<Floor>,
    /// Ours to the floor: of processor time where both have it (below 1 is better), else how many times its figure ours is.
    pub ratio_to_floor: Option<f64>,
    /// Bounds that must hold, and whether they did.
    pub checks: Vec<Check>,
    /// Words that a reader needs: a floor that is missing, a span that was cut.
    pub notes: Vec<String>,
}

/// The quantity of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Items in a minute: more is better.
    PerMinute,
    /// Seconds for the whole job: less is better.
    Seconds,
    /// Milliseconds of one operation: less is better.
    MsPerOp,
}

/// One setting, measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The setting: `64`, `auto`, `rabbitmq`.
    pub setting: String,
    /// Its place in a sweep: threads, callers; none where it is a name.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub parallel: Option<f64>,
    /// The median of the runs, of one of the units; the others are absent.
    #[serde(flatten)]
    pub figure: Figure,
    /// The least and the greatest of the runs.
    pub spread: (f64, f64),
    /// Items in a minute from the request on, where the figure counts from the first arrival.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub per_minute_from_request: Option<f64>,
    /// Processor time of Belfry for each item, microseconds; absent where it cannot be told apart from others.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cpu_us_per_item: Option<f64>,
    /// Peak resident memory of Belfry's processes together, bytes.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub memory_bytes_max: Option<u64>,
    /// Processor time of the servers beside it for each item, microseconds, by name: `PostgreSQL`, `broker`, `provider`.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub servers_cpu_us_per_item: Vec<(String, f64)>,
    /// Bytes in the store's files for each item.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub disk_bytes_per_item: Option<f64>,
    /// Items that never arrived, over all runs.
    pub lost: u64,
    /// Arrivals beyond the first, over all runs.
    pub duplicated: u64,
    /// The floor of this point alone, where each has its own.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub floor: Option<Floor>,
    /// As [`RowReport::ratio_to_floor`].
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ratio_to_floor: Option<f64>,
}

/// A figure under the name of its unit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    /// Items in a minute.
    PerMinute(f64),
    /// Seconds for the whole job.
    Seconds(f64),
    /// Milliseconds of one operation.
    MsPerOp(f64),
}

/// A published figure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PublishedPoint {
    /// Their setting.
    pub setting: String,
    /// Its place in a sweep.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub parallel: Option<f64>,
    /// Their figure.
    #[serde(flatten)]
    pub figure: Figure,
}

/// The measurement of a tool that is made for nothing but one step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Floor {
    /// The tool and what it did: `h2load -> nghttpd`.
    pub tool: String,
    /// Items in a minute, if it says.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub per_minute: Option<f64>,
    /// Its processor time for each item, microseconds.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cpu_us_per_item: Option<f64>,
}

/// Something that must hold.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// What: a sentence with its bound.
    pub what: String,
    /// The finding.
    pub found: String,
    /// True if it held.
    pub holds: bool,
}

// === impl Check ===

impl Check {
    /// `found` is to be at most `bound`.
    pub fn at_most(what: &str, found: f64, bound: f64) -> Self {
        let [shown, limit] = [found, bound].map(number);
        Self { what: format!("{what}: at most {limit}"), found: shown, holds: found <= bound }
    }

    /// `found` is to be at least `bound`.
    pub fn at_least(what: &str, found: f64, bound: f64) -> Self {
        let [shown, limit] = [found, bound].map(number);
        Self { what: format!("{what}: at least {limit}"), found: shown, holds: found >= bound }
    }
}

// === impl Unit ===

impl Unit {
    /// As the heading of a column has it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PerMinute => "a minute",
            Self::Seconds => "seconds",
            Self::MsPerOp => "ms each",
        }
    }

    /// True if a greater figure is the better one.
    pub const fn is_more_better(self) -> bool {
        matches!(self, Self::PerMinute)
    }

    /// `value` as a figure of this unit.
    pub const fn figure(self, value: f64) -> Figure {
        match self {
            Self::PerMinute => Figure::PerMinute(value),
            Self::Seconds => Figure::Seconds(value),
            Self::MsPerOp => Figure::MsPerOp(value),
        }
    }

    /// How many times better `ours` is than `theirs`.
    pub fn ratio(self, ours: f64, theirs: f64) -> f64 {
        if self.is_more_better() { ours / theirs } else { theirs / ours }
    }

    /// The best of `values`.
    pub fn best(self, values: impl Iterator<Item = f64>) -> Option<f64> {
        let better = |one: f64, other: f64| {
            if self.is_more_better() { one.max(other) } else { one.min(other) }
        };
        values.reduce(better)
    }
}

// === impl Figure ===

impl Figure {
    /// The figure without its unit.
    pub const fn value(self) -> f64 {
        match self {
            Self::PerMinute(value) | Self::Seconds(value) | Self::MsPerOp(value) => value,
        }
    }
}

// === impl Point ===

impl Point {
    /// The point of `setting`, from the figures of its runs.
    pub fn of_runs(setting: impl Into<String>, unit: Unit, runs: &[f64]) -> Self {
        let mut sorted = runs.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        let ends = (sorted.first(), sorted.last());
        Self {
            setting: setting.into(),
            parallel: None,
            figure: unit.figure(median(runs)),
            spread: (ends.0.copied().unwrap_or(0.0), ends.1.copied().unwrap_or(0.0)),
            per_minute_from_request: None,
            cpu_us_per_item: None,
            memory_bytes_max: None,
            servers_cpu_us_per_item: Vec::new(),
            disk_bytes_per_item: None,
            lost: 0,
            duplicated: 0,
            floor: None,
            ratio_to_floor: None,
        }
    }
}

// === impl RowReport ===

impl RowReport {
    /// One without a point, of this machine and of no build yet.
    pub fn new(row: &str, title: &str, unit: Unit) -> Self {
        Self {
            version: VERSION,
            row: row.to_owned(),
            title: title.to_owned(),
            commit: String::new(),
            machine: Machine::here(),
            taken_at: String::new(),
            size: String::new(),
            repetitions: 1,
            configuration: Vec::new(),
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

    /// True if nothing was lost or doubled in any run. A rate that was not reached is in [`checks`](Self::checks), and is none of this.
    pub fn is_accounted_for(&self) -> bool {
        self.points.iter().chain(&self.auto).all(|point| point.lost == 0 && point.duplicated == 0)
    }

    /// The best published figure.
    pub fn best_published(&self) -> Option<f64> {
        self.unit.best(self.published.iter().map(|it| it.figure.value()))
    }

    /// The best figure of a fixed setting.
    pub fn best_fixed(&self) -> Option<f64> {
        self.unit.best(self.points.iter().map(|it| it.figure.value()))
    }

    /// Computes the ratios and the fit from the points.
    pub fn conclude(&mut self) {
        let auto = self.auto.as_ref().map(|auto| auto.figure.value());
        // A figure of 0 has no ratio.
        let ratio = |ours: Option<f64>, theirs: Option<f64>| {
            Some(self.unit.ratio(ours?, theirs?)).filter(|ratio| ratio.is_finite())
        };
        let ours = auto.or_else(|| self.best_fixed());
        self.ratio_to_best_published = ratio(ours, self.best_published());
        self.ratio_to_best_fixed = ratio(auto, self.best_fixed());
        if self.scalability.is_none() {
            self.scalability = Scalability::of(self);
        }
        for point in self.points.iter_mut().chain(&mut self.auto) {
            point.ratio_to_floor =
                point.floor.as_ref().and_then(|floor| floor.ratio(self.unit, point));
        }
        let best = self.auto.as_ref().or_else(|| self.points.first());
        self.ratio_to_floor = self.floor.as_ref().and_then(|floor| floor.ratio(self.unit, best?));
    }
}

// === impl Floor ===

impl Floor {
    fn ratio(&self, unit: Unit, point: &Point) -> Option<f64> {
        match (point.cpu_us_per_item, self.cpu_us_per_item) {
            (Some(ours), Some(floor)) => Some(ours / floor),
            _ if unit == Unit::PerMinute => Some(point.figure.value() / self.per_minute?),
            _ => None,
        }
    }
}

/// One of `values` that `percent` of them do not exceed; 0 of none.
pub fn percentile(values: &[f64], percent: usize) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let place = sorted.len().saturating_sub(1) * percent / 100;
    sorted.get(place).copied().unwrap_or(0.0)
}

/// The middle one; the mean of two middle ones; 0 of none.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let half = sorted.len() / 2;
    let at = |place: usize| sorted.get(place).copied().unwrap_or(0.0);
    if sorted.len().is_multiple_of(2) {
        f64::midpoint(at(half.saturating_sub(1)), at(half))
    } else {
        at(half)
    }
}

#[cfg(test)]
#[path = "report_tests.rs"]
pub(crate) mod tests;
