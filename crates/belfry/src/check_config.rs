//! `belfry check-config`: names everything that is wrong with a configuration.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::config::{self, Config, Flags};
use crate::exit::complain;
use crate::output;

/// `belfry check-config`
#[derive(Debug, Args)]
pub(crate) struct CheckConfigArgs {
    /// File to check [default: what the other commands would read]
    pub(crate) file: Option<PathBuf>,
    /// Print the default configuration, documented
    #[arg(long, conflicts_with = "file")]
    pub(crate) print_default: bool,
    /// Print the reference page of the configuration
    #[arg(long, conflicts_with_all = ["file", "print_default"])]
    pub(crate) reference: bool,
}

/// Checks the file named, or the one that the other commands would read.
pub(crate) fn run(args: &CheckConfigArgs, usual: Option<&Path>) -> anyhow::Result<()> {
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
    Ok(())
}
