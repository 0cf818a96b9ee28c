//! The rows of `belfry bench`: each is one published experience, or one question that a user asks before choosing.
//!
//! A row starts everything it needs, measures its settings in turn and repeatedly, and counts at the receiver. It returns one report for
//! each table that it fills; see [`report`](crate::report).

mod breadth;
mod channels;
mod consumers;
mod e2e;
mod fanout;
mod floor;
mod history;
mod job;
#[cfg(feature = "stores")]
mod merge;
#[cfg(feature = "brokers")]
mod messages;
mod partitions;
mod pushy;
#[cfg(feature = "stores")]
mod stores;
#[cfg(feature = "streams")]
pub mod stream;
mod takeover;

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use tempfile::TempDir;

use crate::published::Published;
use crate::report::{self, Point, RowReport, Unit};

pub use job::{BroadcastJob, BroadcastResult, JobUsage};

/// Something that takes longer has failed.
const PATIENCE: Duration = Duration::from_mins(20);

/// A row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Row {
    /// Threads that each own a part of the rows.
    Partitions,
    /// Competing consumers behind a broker.
    Consumers,
    /// One message to many, by a provider that takes 300 ms.
    Fanout,
    /// One loop for two kinds of callers.
    #[cfg(feature = "stores")]
    Merge,
    /// From a queue to a stream, in place of a pool of threads.
    #[cfg(feature = "streams")]
    Stream,
    /// Durable APNs from end to end.
    E2e,
    /// Each channel by itself.
    Channels,
    /// The stores without an engine around them.
    #[cfg(feature = "stores")]
    Stores,
    /// Much of everything: dead endpoints, lanes, tenants.
    Breadth,
    /// A store with many settled notifications.
    History,
}

/// How much a row does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// Enough to see each figure: all rows in under 15 minutes.
    Short,
    /// As published, or more, and often enough for a spread.
    Full,
}

/// The binary and the size that a row is run with.
pub struct Bench {
    /// The binary under test, which is also the simulator.
    binary: PathBuf,
    /// The build: a commit, or a version where that is not known.
    commit: String,
    /// How much is done.
    pub size: Size,
    /// Runs of each setting; the medians are reported.
    pub repetitions: u32,
    /// Told in words what is being done.
    says: Box<dyn Fn(&str)>,
    work: TempDir,
}

// === impl Row ===

impl Row {
    /// All of them, in the order in which `all` runs them.
    pub const ALL: &[Self] = &[
        Self::Partitions,
        Self::Consumers,
        Self::Fanout,
        #[cfg(feature = "stores")]
        Self::Merge,
        #[cfg(feature = "streams")]
        Self::Stream,
        Self::E2e,
        Self::Channels,
        #[cfg(feature = "stores")]
        Self::Stores,
        Self::Breadth,
        Self::History,
    ];

    /// The subcommand.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Partitions => "partitions",
            Self::Consumers => "consumers",
            Self::Fanout => "fanout",
            #[cfg(feature = "stores")]
            Self::Merge => "merge",
            #[cfg(feature = "streams")]
            Self::Stream => "stream",
            Self::E2e => "e2e",
            Self::Channels => "channels",
            #[cfg(feature = "stores")]
            Self::Stores => "stores",
            Self::Breadth => "breadth",
            Self::History => "history",
        }
    }

    /// Runs it.
    ///
    /// # Errors
    /// When a server or a tool that it cannot do without is missing, or something does not run; nothing is reported then.
    pub fn run(self, bench: &Bench) -> Result<Vec<RowReport>> {
        let mut reports = match self {
            Self::Partitions => partitions::run(bench),
            Self::Consumers => consumers::run(bench),
            Self::Fanout => fanout::run(bench),
            #[cfg(feature = "stores")]
            Self::Merge => merge::run(bench),
            #[cfg(feature = "streams")]
            Self::Stream => stream::run(bench),
            Self::E2e => e2e::run(bench),
            Self::Channels => channels::run(bench),
            #[cfg(feature = "stores")]
            Self::Stores => stores::run(bench),
            Self::Breadth => breadth::run(bench),
            Self::History => history::run(bench),
        }
        .with_context(|| format!("the row `{}`", self.name()))?;
        reports.iter_mut().for_each(RowReport::conclude);
        Ok(reports)
    }
}

// === impl Size ===

impl Size {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Short => "short",
            Self::Full => "full",
        }
    }

    /// One of two, by the size.
    pub fn pick<T>(self, short: T, full: T) -> T {
        match self {
            Self::Short => short,
            Self::Full => full,
        }
    }
}

// === impl Bench ===

impl Bench {
    /// Rows of `binary`, in a temporary directory that goes with this.
    ///
    /// # Errors
    /// When there is no room for the directory.
    pub fn new(
        binary: PathBuf,
        commit: String,
        size: Size,
        says: Box<dyn Fn(&str)>,
    ) -> Result<Self> {
        let work = tempfile::Builder::new().prefix("belfry-bench-").tempdir()?;
        let repetitions = size.pick(1, 5);
        Ok(Self { binary, commit, size, repetitions, says, work })
    }

    /// An empty directory that goes with its holder.
    ///
    /// # Errors
    /// When there is no room for it.
    pub fn directory(&self) -> Result<TempDir> {
        Ok(tempfile::tempdir_in(self.work.path())?)
    }

    /// An empty report of a table.
    pub fn report(&self, row: &str, title: &str, unit: Unit) -> RowReport {
        RowReport {
            commit: self.commit.clone(),
            taken_at: now(),
            size: self.size.as_str().to_owned(),
            repetitions: self.repetitions,
            ..RowReport::new(row, title, unit)
        }
    }

    /// An empty report beside a published table.
    pub fn report_beside(&self, row: &str, title: &str, published: &Published) -> RowReport {
        RowReport {
            published: published.to_points(),
            published_in: published.source.to_owned(),
            ..self.report(row, title, published.unit)
        }
    }

    /// Says what is done now.
    pub fn say(&self, what: impl AsRef<str>) {
        (self.says)(what.as_ref());
    }

    /// The binary under test.
    pub fn binary(&self) -> &Path {
        &self.binary
    }
}

impl fmt::Debug for Bench {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Bench").field("binary", &self.binary).finish_non_exhaustive()
    }
}

/// An empty report, and the runs of each setting: at most three, as one takes minutes.
fn few(bench: &Bench, row: &str, title: &str, unit: Unit) -> RowReport {
    let repetitions = bench.repetitions.min(3);
    RowReport { repetitions, ..bench.report(row, title, unit) }
}

/// A count as people write it: `1,000`.
fn count(items: u64) -> String {
    if items < 1_000 { items.to_string() } else { report::number(job::as_float(items)) }
}

/// How many times `other` the median of `point` is.
fn times(point: &Point, other: &Point) -> f64 {
    point.figure.value() / other.figure.value()
}

/// The note about `what` that is left out because a program for it is not installed; any other error is one.
fn missing(what: &str, error: anyhow::Error) -> Result<String> {
    match error.downcast::<testbed::NotInstalled>() {
        Ok(absent) => Ok(format!("{what} is left out: {absent}")),
        Err(error) => Err(error.context(what.to_owned())),
    }
}

/// RFC 3339, UTC, to the second.
fn now() -> String {
    let wall = flow::Clock::system().wall();
    let second = i64::try_from(wall.as_secs()).unwrap_or(0);
    jiff::Timestamp::from_second(second).map_or_else(|_| String::new(), |at| at.to_string())
}
