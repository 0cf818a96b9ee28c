//! `belfry health`: tells by its exit code whether the engine of this machine lives. The health check of the image.

use std::process::ExitCode;

use clap::Args;

use crate::client::Client;
use crate::exit::{FailureKind, complain};
use crate::output;

/// `belfry health`
#[derive(Debug, Args)]
#[command(
    after_help = "Ends with 0 when it does and with 1 when it does not, whatever the reason. Needs no key.\n\
                        Where the configuration has TLS and no `[server.operator]`, name the engine as its certificate does: --url, --ca-file."
)]
pub(crate) struct HealthArgs {
    /// Ask whether it takes work: it does not while its store or broker is away, nor while it stops
    #[arg(long)]
    ready: bool,
}

/// Asks once, and prints the answer or why there is none.
pub(crate) fn run(
    args: &HealthArgs,
    client: impl FnOnce() -> anyhow::Result<Client>,
) -> anyhow::Result<ExitCode> {
    let path = if args.ready { "/readyz" } else { "/healthz" };
    match client().and_then(|client| client.get_text(path)) {
        Ok(text) => {
            output::line(text.trim_end())?;
            Ok(ExitCode::SUCCESS)
        }
        // Docker knows 0 and 1, and keeps the other codes for itself.
        Err(error) => {
            format!("{error:#}").lines().for_each(complain);
            Ok(FailureKind::Failed.into())
        }
    }
}
