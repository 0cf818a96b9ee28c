//! `belfry import`: hands a file of any size to the engine, in constant memory.
//!
//! ```text
//! reader thread                                        main thread
//! file -> ndjson | csv -> rows -> batches =bounded=> submit -> engine
//!           bad rows ------------------------------> rejects, or stop
//! ```
//!
//! A batch is one atomic request. Without idempotency keys one is under way at a time, so that what was
//! accepted is always the beginning of the file and `--from-line` resumes exactly; with keys it may be
//! [`BATCHES_UNDER_WAY`], for repeating some of them does no harm.

mod args;
mod batch;
mod csv;
mod ndjson;
mod rejects;
mod row;
mod submit;

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use serde::Serialize;
use tokio::sync::mpsc;

use crate::client::{Client, EngineApi, EngineConnection};
use crate::exit::{CliError, FailureKind};
use crate::input::is_standard;
use crate::output;
use crate::progress::Progress;

pub(crate) use args::ImportArgs;

use args::OnError;
use batch::{BatchReading, Read};
use rejects::Rejects;
use row::BadRow;
use submit::{BrokenRequest, Submitted, submit};

/// Requests under way at a time, when rows have idempotency keys.
const BATCHES_UNDER_WAY: usize = 4;

/// Batches that are read and wait to be sent: enough to keep reading while requests are under way.
const BATCHES_READ: usize = 2;

/// The result of an import.
#[derive(Debug, Default, Serialize)]
struct ImportSummary {
    accepted: u64,
    replayed: u64,
    rejected: u64,
    /// The first line that was not imported, when the import stopped before the end.
    next_line: Option<u64>,
}

/// Why an import stopped before the end.
#[derive(Debug)]
struct Stop {
    next_line: u64,
    failure: CliError,
}

/// Everything that an import keeps while it runs.
struct ImportState<'a> {
    args: &'a ImportArgs,
    engine: &'a EngineApi,
    idle: Vec<EngineConnection>,
    rejects: Option<Rejects>,
    progress: Progress,
    summary: ImportSummary,
    stop: Option<Stop>,
}

/// Imports the file, and prints the summary.
pub(crate) fn run(args: &ImportArgs, client: &Client) -> anyhow::Result<()> {
    let reading = BatchReading::open(args)?;
    let rejects = match args.on_error {
        OnError::Stop => None,
        OnError::Skip => Some(Rejects::create(&rejects_path(args), reading.rows.header())?),
    };
    let progress = Progress::new(reading.bytes, "accepted");
    let (sender, batches) = mpsc::channel(BATCHES_READ);
    let reader = std::thread::Builder::new()
        .name("import reader".to_owned())
        .spawn(move || reading.run(&sender))
        .context("cannot start the reading thread")?;
    let ended = client.drive(async |engine| {
        let idle = Vec::new();
        let summary = ImportSummary::default();
        let import = ImportState { args, engine, idle, rejects, progress, summary, stop: None };
        import.run(batches).await
    })?;
    // A reader of an import that was stopped may wait for ever for more of a pipe; the process ends without it.
    if ended.1.is_none() && reader.join().is_err() {
        anyhow::bail!("the reading thread panicked: this is a defect, please report it");
    }
    finish(args, ended)
}

fn finish(
    args: &ImportArgs,
    (mut summary, stop): (ImportSummary, Option<Stop>),
) -> anyhow::Result<()> {
    summary.next_line = stop.as_ref().map(|stop| stop.next_line);
    let ImportSummary { accepted, replayed, rejected, next_line: _ } = &summary;
    output::json_or(args.json, &summary, || {
        format!("{accepted} accepted, {replayed} replayed, {rejected} rejected")
    })?;
    stop.map_or(Ok(()), |stop| Err(stop.failure.into()))
}

// === impl ImportState ===

impl ImportState<'_> {
    async fn run(
        mut self,
        mut batches: mpsc::Receiver<Read>,
    ) -> anyhow::Result<(ImportSummary, Option<Stop>)> {
        let limit = if self.args.idempotency_prefix.is_some() { BATCHES_UNDER_WAY } else { 1 };
        let mut under_way = FuturesUnordered::new();
        let mut at_end = false;
        loop {
            // After a stop nothing more is sent, and what is under way is waited for: its answers say what was accepted.
            let may_start = !at_end && self.stop.is_none() && under_way.len() < limit;
            tokio::select! {
                Some(submitted) = under_way.next(), if !under_way.is_empty() => {
                    self.take(submitted)?;
                }
                read = batches.recv(), if may_start => match read {
                    None => at_end = true,
                    Some(Read::Batch(batch)) => {
                        let connection = self.idle.pop();
                        under_way.push(submit(self.engine, connection, batch, self.args.on_error));
                    }
                    Some(Read::Bad(row)) => self.reject(&row)?,
                    Some(Read::Failed { line, error }) => self.stop_at(line, unreadable(self.args, line, &error)),
                },
                else => break,
            }
        }
        self.progress.finish();
        if let Some(rejects) = self.rejects {
            rejects.finish()?;
        }
        Ok((self.summary, self.stop))
    }

    fn take(&mut self, submitted: Submitted) -> anyhow::Result<()> {
        self.idle.extend(submitted.connection);
        self.summary.accepted += submitted.accepted;
        self.summary.replayed += submitted.replayed;
        self.progress.tell(self.summary.accepted + self.summary.replayed, submitted.end_offset);
        for row in &submitted.bad {
            self.reject(row)?;
        }
        if let Some(broken) = submitted.broken {
            let failure = self.describe(&broken);
            self.stop_at(broken.first_line, failure);
        }
        Ok(())
    }

    /// A bad row stops the import, or goes to the rejects.
    fn reject(&mut self, row: &BadRow) -> anyhow::Result<()> {
        self.summary.rejected += 1;
        match &mut self.rejects {
            Some(rejects) if !row.hides_the_rest => rejects.write(row)?,
            _ => {
                let message = format!("{}:{}: {row}", name(&self.args.file), row.line);
                self.stop_at(row.line, CliError::new(FailureKind::BadInput, message));
            }
        }
        Ok(())
    }

    /// The earliest stop counts: what comes before it was accepted.
    fn stop_at(&mut self, next_line: u64, failure: CliError) {
        if self.stop.as_ref().is_none_or(|stop| next_line < stop.next_line) {
            self.stop = Some(Stop { next_line, failure });
        }
    }

    fn describe(&self, broken: &BrokenRequest) -> CliError {
        let BrokenRequest { first_line, last_line, is_unknown, failure } = broken;
        let fate = match (is_unknown, &self.args.idempotency_prefix) {
            (false, _) => String::new(),
            (true, Some(_)) => {
                format!(
                    "; lines {first_line} to {last_line} may have been accepted, repeating them does no harm"
                )
            }
            (true, None) => {
                format!(
                    "; lines {first_line} to {last_line} may have been accepted, see `belfry status`"
                )
            }
        };
        let done = match self.summary.accepted + self.summary.replayed {
            0 => "nothing was accepted".to_owned(),
            _ => format!("everything before line {first_line} was accepted"),
        };
        let message = format!("{failure}; {done}{fate}; go on with --from-line {first_line}");
        CliError::new(failure.kind(), message)
    }
}

fn unreadable(args: &ImportArgs, line: u64, error: &std::io::Error) -> CliError {
    let message = format!("cannot read {} at line {line}: {error}", name(&args.file));
    CliError::new(FailureKind::Failed, message)
}

fn rejects_path(args: &ImportArgs) -> PathBuf {
    args.rejects.clone().unwrap_or_else(|| {
        let mut path = if is_standard(&args.file) {
            "import".into()
        } else {
            args.file.clone().into_os_string()
        };
        path.push(".rejects");
        path.into()
    })
}

fn name(file: &Path) -> String {
    if is_standard(file) { "standard input".to_owned() } else { file.display().to_string() }
}
