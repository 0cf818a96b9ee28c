//! `belfry audit`: counts everything from the ground up.

use std::process::ExitCode;

use crate::cli::AuditArgs;
use crate::config::StoreConfig;

/// Prints the account.
pub(crate) fn run(_args: &AuditArgs, _store: &StoreConfig) -> anyhow::Result<ExitCode> {
    anyhow::bail!("not wired yet")
}
