//! `belfry backup`: a copy of the embedded store, made while the engine runs.

use std::path::{Path, PathBuf};

use clap::Args;
use flow::Clock;
use indicatif::{HumanBytes, ProgressBar};
use serde::Serialize;
use store::StoreError;
use store::sqlite::back_up;

use crate::args::StoreArgs;
use crate::config::{StoreConfig, StorePlace};
use crate::exit::{CliError, FailureKind};
use crate::output;
use crate::progress::styled;

/// `belfry backup`
#[derive(Debug, Args)]
pub(crate) struct BackupArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Directory for the copy, without a store in it; a store of its own, that every command reads
    #[arg(long, value_name = "DIRECTORY")]
    to: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The result in the words of `--json`.
#[derive(Debug, Serialize)]
struct BackupReport<'a> {
    to: &'a Path,
    bytes: u64,
}

/// Copies the configured store.
///
/// # Errors
/// When it is not an embedded one, or the copy is not made; nothing is left of it then.
pub(crate) fn run(args: &BackupArgs, store: &StoreConfig) -> anyhow::Result<()> {
    let StorePlace::Directory(directory) = store.place() else {
        let text = "the store is in PostgreSQL, which has tools of its own: pg_dump, or better WAL archiving (docs/backup.md)";
        return Err(CliError::new(FailureKind::Config, text).into());
    };
    let bar = styled(ProgressBar::new(0), "{bar:30} {bytes}/{total_bytes} copied ({eta} left)");
    let now = pipeline::timestamp(Clock::system());
    let copied = back_up(directory, &args.to, now, |progress| {
        bar.set_length(progress.all);
        bar.set_position(progress.copied);
    });
    bar.finish_and_clear();
    let bytes = copied.map_err(|error| failed(&error))?.all;
    let report = BackupReport { to: &args.to, bytes };
    output::json_or(args.json, &report, || report.to_text())
}

fn failed(error: &StoreError) -> CliError {
    let is_target = matches!(error, StoreError::Refused(_) | StoreError::NoSpace(_));
    let kind = if is_target { FailureKind::CannotCreate } else { FailureKind::Failed };
    CliError::new(kind, format!("no backup was made: {error}"))
}

// === impl BackupReport ===

impl BackupReport<'_> {
    fn to_text(&self) -> String {
        let (to, size) = (self.to.display(), HumanBytes(self.bytes));
        format!("{size} copied into {to}; `belfry audit --store {to}` counts what is in it")
    }
}
