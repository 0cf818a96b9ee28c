//! `belfry completions`: what a shell completes a command line of Belfry with.

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use crate::cli::Cli;
use crate::output;

/// `belfry completions`
#[derive(Debug, Args)]
#[command(after_help = "For bash, in ~/.bashrc:   source <(belfry completions bash)\n\
                        For zsh:    belfry completions zsh > a directory of $fpath, as _belfry\n\
                        For fish:   belfry completions fish > ~/.config/fish/completions/belfry.fish")]
pub(crate) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// Prints the script for the shell.
pub(crate) fn run(args: &CompletionsArgs) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "belfry", &mut script);
    output::print(&String::from_utf8(script)?)
}
