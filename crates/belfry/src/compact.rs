//! `belfry compact`: the embedded store is written anew.

use clap::Args;
use indicatif::HumanBytes;
use serde::Serialize;
use store::StoreError;
use store::sqlite::compact;

use crate::args::StoreArgs;
use crate::config::{StoreConfig, StorePlace};
use crate::exit::{CliError, FailureKind};
use crate::output;

/// `belfry compact`
#[derive(Debug, Args)]
pub(crate) struct CompactArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The result in the words of `--json`: bytes.
#[derive(Debug, Serialize)]
struct CompactReport {
    before: u64,
    after: u64,
}

/// Compacts the configured store.
///
/// # Errors
/// When it is not an embedded one, is in use, or has no room to be written once more; it is as it was then.
pub(crate) fn run(args: &CompactArgs, store: &StoreConfig) -> anyhow::Result<()> {
    let StorePlace::Directory(directory) = store.place() else {
        let text =
            "the store is in PostgreSQL, which does it itself: VACUUM FULL (docs/erasure.md)";
        return Err(CliError::new(FailureKind::Config, text).into());
    };
    let failed = |error: StoreError| {
        CliError::new(FailureKind::Failed, format!("the store is as it was: {error}"))
    };
    let sizes = compact(directory).map_err(failed)?;
    let report = CompactReport { before: sizes.before, after: sizes.after };
    output::json_or(args.json, &report, || {
        let (before, after) = (HumanBytes(report.before), HumanBytes(report.after));
        format!(
            "{before} before, {after} now; nothing of what was removed or erased is left in its files"
        )
    })
}
