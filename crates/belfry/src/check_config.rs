//! `belfry check-config`: names everything that is wrong with a configuration.

use std::path::Path;
use std::process::ExitCode;

use crate::cli::CheckConfigArgs;
use crate::config::{self, Config, Flags};
use crate::exit::complain;
use crate::output;

/// Checks the file named, or the one that the other commands would read.
pub(crate) fn run(args: &CheckConfigArgs, usual: Option<&Path>) -> anyhow::Result<ExitCode> {
    if args.print_default {
        return output::print(config::DEFAULT_FILE);
    }
    if args.reference {
        return output::print(&config::to_markdown());
    }
    let config = Config::load(args.file.as_deref().or(usual), Flags::default())?;
    config.warnings.iter().for_each(|warning| complain(warning));
    let count = config.channels.len();
    let channels = if count == 1 { "channel" } else { "channels" };
    output::line(format_args!("the configuration is fine: {count} {channels}"))?;
    for (what, url) in [("store", &config.store.url), ("queue", &config.queue.url)] {
        if let Some(url) = url {
            output::line(format_args!("{what}: {url}"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
