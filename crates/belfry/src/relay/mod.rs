//! `belfry relay`: messages of one system of streams into another.

mod accounted;
mod args;
mod direct;
mod map;
mod place;
#[cfg(feature = "kinesis")]
mod positions;
mod report;

use std::process::ExitCode;

pub(crate) use args::RelayArgs;

use crate::config::{LogConfig, LogFormat, LogLevel};
use crate::logging;

/// Relays until it is told to end, or as the arguments say. The exit code is 1 when it was told twice, or something is lost.
pub(crate) fn run(args: &RelayArgs) -> anyhow::Result<ExitCode> {
    logging::start(&LogConfig {
        format: LogFormat::Text,
        level: LogLevel::Warn,
        ..LogConfig::default()
    })?;
    if !args.direct {
        return accounted::run(args);
    }
    let runtime =
        tokio::runtime::Builder::new_multi_thread().thread_name("relay").enable_all().build()?;
    let ended = runtime.block_on(direct::run(args))?;
    // Whatever is left of a source that was told twice is not waited for.
    runtime.shutdown_background();
    Ok(ended)
}
