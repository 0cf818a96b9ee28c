//! `belfry relay`: messages of one system of streams into another.

mod args;
mod direct;
mod map;
#[cfg(feature = "kinesis")]
mod positions;
mod report;

use std::process::ExitCode;

pub(crate) use args::RelayArgs;

use crate::config::{LogConfig, LogFormat, LogLevel};
use crate::exit::{CliError, FailureKind};
use crate::logging;

/// Relays until it is told to end, or as the arguments say. The exit code is 1 when it was told twice, or something is lost.
pub(crate) fn run(args: &RelayArgs) -> anyhow::Result<ExitCode> {
    if !args.direct {
        let message = "without a store there is --direct alone: add it (an engine with `[[sources]]` and a channel to the target \
                       accounts for each message)";
        return Err(CliError::new(FailureKind::Usage, message).into());
    }
    logging::start(&LogConfig { format: LogFormat::Text, level: LogLevel::Warn })?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().thread_name("relay").enable_all().build()?;
    let ended = runtime.block_on(direct::run(args))?;
    // Whatever is left of a source that was told twice is not waited for.
    runtime.shutdown_background();
    Ok(ended)
}
