//! `belfry man`: manual pages, one for each command.

use std::path::{Path, PathBuf};

use clap::{Args, Command};
use clap_mangen::Man;

use crate::exit::{CliError, FailureKind};
use crate::output;

/// `belfry man`
#[derive(Debug, Args)]
#[command(after_help = "To read one: belfry man man1 && man -l man1/belfry-send.1")]
pub(crate) struct ManArgs {
    /// Where to write them, one file for each; made if it is not there. Pages of before are replaced. Without it the page of `belfry`
    /// itself is printed
    directory: Option<PathBuf>,
}

/// Writes all pages of the command line `root`, or prints the first one.
pub(crate) fn run(args: &ManArgs, mut root: Command) -> anyhow::Result<()> {
    // Hands the options of all commands on to the subcommands, and gives these their full names.
    root.build();
    let Some(directory) = &args.directory else {
        return output::print(&page(&root)?);
    };
    std::fs::create_dir_all(directory).map_err(|error| cannot_write(directory, &error))?;
    write_pages(&root, directory)
}

/// Writes the page of `command` and those of its subcommands.
fn write_pages(command: &Command, directory: &Path) -> anyhow::Result<()> {
    let file = directory.join(format!("{}.1", name(command)));
    std::fs::write(&file, page(command)?).map_err(|error| cannot_write(&file, &error))?;
    let is_shown = |inner: &&Command| inner.get_name() != "help" && !inner.is_hide_set();
    for inner in command.get_subcommands().filter(is_shown) {
        write_pages(inner, directory)?;
    }
    Ok(())
}

/// The page of `command`, without a date: the same version has the same pages.
fn page(command: &Command) -> anyhow::Result<String> {
    let manual = Man::new(command.clone()).title(name(command)).manual("Belfry").date("");
    let mut roff = Vec::new();
    manual.render(&mut roff)?;
    Ok(String::from_utf8(roff)?)
}

/// `belfry-keys-add`
fn name(command: &Command) -> &str {
    command.get_display_name().unwrap_or_else(|| command.get_name())
}

fn cannot_write(path: &Path, error: &std::io::Error) -> CliError {
    let message = format!("cannot write {}: {error}", path.display());
    CliError::new(FailureKind::CannotCreate, message)
}
