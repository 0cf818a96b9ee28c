//! `belfry log`: the delivery log, read from the store.

use std::process::ExitCode;

use crate::cli::LogArgs;
use crate::config::StoreConfig;

/// Prints the log.
pub(crate) fn run(_args: &LogArgs, _store: &StoreConfig) -> anyhow::Result<ExitCode> {
    anyhow::bail!("not wired yet")
}
