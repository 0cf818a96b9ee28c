//! The arguments of `belfry import`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// At the end of `belfry import --help`.
const HELP: &str = "\
NDJSON: one notification per line, as for POST /v1/notifications:
  {\"channel\":\"ios\",\"to\":\"...\",\"content\":{...},\"send_at\":\"2026-11-21T08:30:00Z\"}

CSV: the header names the fields. `content` and `options` hold JSON, or are put together from
columns such as `content.aps.alert`, whose cells are texts. An empty cell is a field that is not
there. With `template` or `variables` the content is a template; columns `variables.NAME` are put
into it.

Rejects: bad rows go to the rejects file as they are (under the header, for CSV), ready to be
mended and imported. REJECTS.reasons says why, one JSON object per bad row, in the same order:
  {\"line\":17,\"field\":\"to\",\"message\":\"...\",\"kept\":true}
A row that is too long is named there with \"kept\":false, and not copied.

Interrupted: the message says from which line to go on. Without --idempotency-prefix the rows of
one request may have been accepted although the answer was lost; with it, no re-run doubles
anything.";

/// `belfry import`
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub(crate) struct ImportArgs {
    /// File to read; `-` is standard input
    pub(crate) file: PathBuf,
    /// Format of the file [default: by its name, else ndjson]
    #[arg(long)]
    pub(crate) format: Option<ImportFormat>,
    /// The treatment of a bad row
    #[arg(long, value_name = "ACTION", default_value = "stop")]
    pub(crate) on_error: OnError,
    /// File that gets the bad rows with `--on-error skip` [default: FILE.rejects]
    #[arg(long, value_name = "FILE")]
    pub(crate) rejects: Option<PathBuf>,
    /// First line to import; those before it were imported earlier
    #[arg(long, value_name = "LINE", default_value = "1")]
    pub(crate) from_line: u64,
    /// Give every row the idempotency key PREFIX and its line number, so that no re-run doubles it
    #[arg(long, value_name = "PREFIX")]
    pub(crate) idempotency_prefix: Option<String>,
    /// Print the summary as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// How a file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ImportFormat {
    /// One JSON object per line
    Ndjson,
    /// Comma-separated values with a header
    Csv,
}

/// The treatment of a bad row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnError {
    /// Import what is before it, and stop
    Stop,
    /// Write it to the rejects, and go on
    Skip,
}
