//! `belfry completions`: the script by which a shell completes command lines of Belfry.

use clap::{Args, Command};
use clap_complete::Shell;

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

/// Prints the script for the shell, for the command line `root`.
pub(crate) fn run(args: &CompletionsArgs, mut root: Command) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut root, "belfry", &mut script);
    output::print(&String::from_utf8(script)?)
}
