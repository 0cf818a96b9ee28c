//! `belfry serve`: builds the engine and runs it.

use std::process::ExitCode;

use crate::config::Config;
use crate::logging;

/// Runs the engine until it is told to stop.
#[expect(clippy::needless_pass_by_value, reason = "what is not wired yet consumes nothing")]
pub(crate) fn run(config: Config) -> anyhow::Result<ExitCode> {
    logging::start(&config.log)?;
    anyhow::bail!("not wired yet")
}
