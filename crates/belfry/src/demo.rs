//! `belfry demo`: a million notifications, a crash, and the account.

use std::process::ExitCode;

/// Runs the demo.
pub(crate) fn run() -> anyhow::Result<ExitCode> {
    anyhow::bail!("not wired yet")
}
