//! `belfry bench`: the published experiences and more, measured on this machine and printed beside what was published.

use std::fs;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use bench::report::{RowReport, page, plot, table};
use bench::rows::{Bench, Row, Size};
use clap::{Args, Subcommand};

use crate::exit::{self, CliError, FailureKind};
use crate::output;
use crate::progress::styled;

/// A row, or a page of rows.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// One machine, sends of 10 ms, beside threads that each own a part of the rows
    Partitions(BenchArgs),
    /// The minute after the first message: embedded, PostgreSQL, RabbitMQ, NATS, Kafka; and the brokers by themselves
    Consumers(BenchArgs),
    /// One message to many devices by a provider that takes 300 ms; 90 % of them in 2 minutes
    Fanout(BenchArgs),
    /// One merging loop for two kinds of callers, beside a loop for each
    #[cfg(feature = "bench-rows")]
    Merge(BenchArgs),
    /// SQS to Kinesis, beside a pool of threads with one blocking call each
    #[cfg(feature = "bench-rows")]
    Stream(BenchArgs),
    /// Durable APNs from end to end, beside h2load, and beside Pushy where Maven gets it
    E2e(BenchArgs),
    /// Each channel by itself
    Channels(BenchArgs),
    /// The stores without an engine around them, beside plain loops over SQLite and PostgreSQL
    #[cfg(feature = "bench-rows")]
    Stores(BenchArgs),
    /// Beside much of everything: dead endpoints, waiting lanes, tenants with backlogs
    Breadth(BenchArgs),
    /// On a store with 100 million settled notifications, beside an empty one: SQLite, PostgreSQL
    History(BenchArgs),
    /// Every row in turn
    All(BenchArgs),
    /// Make one page, report.html, of the reports in a directory
    Report(ReportArgs),
    /// Be the pool of threads beside which `stream` is measured
    #[cfg(feature = "bench-rows")]
    #[command(hide = true)]
    StreamPool(StreamPoolArgs),
    /// Be the plain copy beside which `stream` is measured
    #[cfg(feature = "bench-rows")]
    #[command(hide = true)]
    StreamCopy(StreamCopyArgs),
}

/// How a row is run.
#[derive(Debug, Clone, Args)]
pub(crate) struct BenchArgs {
    /// Measure less, and each setting once: all rows take less than 15 minutes
    #[arg(long)]
    short: bool,

    /// Runs of each setting, whose medians are reported [default: 5, with --short 1]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=100))]
    repetitions: Option<u32>,

    /// Print a line of JSON for each report instead of its table (docs/bench.md describes it)
    #[arg(long)]
    json: bool,

    /// Measure this binary in place of the one that is run
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,

    /// Where the JSON and the plots go
    #[arg(long, value_name = "DIRECTORY", default_value = "bench-results")]
    output: PathBuf,
}

/// The reports of a page.
#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// The directory that a run has filled; the page goes there, too
    #[arg(value_name = "DIRECTORY", default_value = "bench-results")]
    directory: PathBuf,
}

/// The pool of threads.
#[cfg(feature = "bench-rows")]
#[derive(Debug, Args)]
pub(crate) struct StreamPoolArgs {
    from: String,
    to: String,
    threads: usize,
}

/// The plain copy.
#[cfg(feature = "bench-rows")]
#[derive(Debug, Args)]
pub(crate) struct StreamCopyArgs {
    from: String,
    to: String,
}

/// Runs the command. The exit code is 1 when a row lost or doubled something, or could not run.
///
/// # Errors
/// When nothing could be run at all.
pub(crate) fn run(command: &BenchCommand) -> Result<ExitCode> {
    let (rows, args): (&[Row], _) = match command {
        BenchCommand::Partitions(args) => (&[Row::Partitions], args),
        BenchCommand::Consumers(args) => (&[Row::Consumers], args),
        BenchCommand::Fanout(args) => (&[Row::Fanout], args),
        #[cfg(feature = "bench-rows")]
        BenchCommand::Merge(args) => (&[Row::Merge], args),
        #[cfg(feature = "bench-rows")]
        BenchCommand::Stream(args) => (&[Row::Stream], args),
        #[cfg(feature = "bench-rows")]
        BenchCommand::Stores(args) => (&[Row::Stores], args),
        BenchCommand::E2e(args) => (&[Row::E2e], args),
        BenchCommand::Channels(args) => (&[Row::Channels], args),
        BenchCommand::Breadth(args) => (&[Row::Breadth], args),
        BenchCommand::History(args) => (&[Row::History], args),
        BenchCommand::All(args) => (Row::ALL, args),
        BenchCommand::Report(args) => return report(&args.directory),
        #[cfg(feature = "bench-rows")]
        BenchCommand::StreamPool(StreamPoolArgs { from, to, threads }) => {
            bench::rows::stream::pool_main(from, to, *threads)?;
            return Ok(ExitCode::SUCCESS);
        }
        #[cfg(feature = "bench-rows")]
        BenchCommand::StreamCopy(StreamCopyArgs { from, to }) => {
            bench::rows::stream::copy_main(from, to)?;
            return Ok(ExitCode::SUCCESS);
        }
    };
    measure(rows, args)
}

fn measure(rows: &[Row], args: &BenchArgs) -> Result<ExitCode> {
    fs::create_dir_all(&args.output).map_err(|error| {
        let name = args.output.display();
        CliError::new(FailureKind::CannotCreate, format!("{name}: {error}"))
    })?;
    let bench = prepare(args)?;
    let mut is_good = true;
    for row in rows {
        let reports = match row.run(&bench) {
            Ok(reports) => reports,
            // The other rows of `all` say something nevertheless.
            Err(error) if rows.len() > 1 => {
                exit::report(&error);
                is_good = false;
                continue;
            }
            Err(error) => return Err(error),
        };
        for report in reports {
            save(&report, &args.output)?;
            output::json_or(args.json, &report, || table::to_text(&report))?;
            if !report.is_accounted_for() {
                exit::complain(&format!("{}: something was lost or doubled", report.row));
                is_good = false;
            }
        }
    }
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn prepare(args: &BenchArgs) -> Result<Bench> {
    let binary = match &args.binary {
        Some(binary) => binary.canonicalize().with_context(|| binary.display().to_string())?,
        None => std::env::current_exe().context("where this binary is")?,
    };
    let size = if args.short { Size::Short } else { Size::Full };
    let line = styled(indicatif::ProgressBar::new_spinner(), "{spinner} {elapsed} {msg}");
    let is_terminal = std::io::stderr().is_terminal();
    let says = move |what: &str| {
        if is_terminal {
            line.set_message(what.to_owned());
            line.tick();
        } else {
            exit::complain(what);
        }
    };
    let mut bench = Bench::new(binary, build(), size, Box::new(says))?;
    if let Some(repetitions) = args.repetitions {
        bench.repetitions = repetitions;
    }
    Ok(bench)
}

/// The commit that this was built from, where the build said so; else the version.
fn build() -> String {
    let commit = option_env!("BELFRY_COMMIT").filter(|commit| !commit.is_empty());
    commit.unwrap_or(env!("CARGO_PKG_VERSION")).to_owned()
}

fn save(report: &RowReport, directory: &Path) -> Result<()> {
    let write = |ending: &str, text: String| {
        let path = directory.join(format!("{}.{ending}", report.row));
        fs::write(&path, text).with_context(|| path.display().to_string())
    };
    write("json", serde_json::to_string_pretty(report)? + "\n")?;
    write("svg", plot::to_svg(report))
}

/// Makes the page of all reports in `directory`.
fn report(directory: &Path) -> Result<ExitCode> {
    let reports = reports_of(directory)?;
    let path = directory.join("report.html");
    fs::write(&path, page::to_html(&reports)).with_context(|| path.display().to_string())?;
    output::line(path.display())?;
    Ok(ExitCode::SUCCESS)
}

/// The reports in `directory` and the directories below it.
///
/// # Errors
/// When there are none, or one cannot be read.
pub(crate) fn reports_of(directory: &Path) -> Result<Vec<RowReport>> {
    let mut reports = Vec::new();
    if directory.is_dir() {
        collect(directory, &mut reports)?;
    }
    if reports.is_empty() {
        let message = format!(
            "{} has no report: `belfry bench all --output {0}` makes some",
            directory.display()
        );
        return Err(CliError::new(FailureKind::BadInput, message).into());
    }
    Ok(reports)
}

fn collect(directory: &Path, reports: &mut Vec<RowReport>) -> Result<()> {
    let entries = fs::read_dir(directory).with_context(|| directory.display().to_string())?;
    let mut paths: Vec<PathBuf> =
        entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?;
    paths.sort();
    for path in paths {
        if path.is_dir() {
            collect(&path, reports)?;
        } else if path.extension().is_some_and(|ending| ending == "json") {
            let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            let report: RowReport = serde_json::from_str(&text)
                .with_context(|| format!("{} is no report of `belfry bench`", path.display()))?;
            reports.push(report);
        }
    }
    Ok(())
}
