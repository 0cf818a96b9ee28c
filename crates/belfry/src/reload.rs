//! `belfry reload`: an engine reads its configuration again.

use api::{ReloadAnswer, Reloaded};
use clap::Args;

use crate::client::Client;
use crate::exit::complain;
use crate::output;

/// `belfry reload`
#[derive(Debug, Args)]
#[command(
    after_help = "In a cluster each process has a configuration of its own: this reloads the one that is asked. A configuration that is wrong \
                  changes nothing; all that is wrong with it is printed, as `belfry check-config` does. SIGHUP has the same effect, and says it \
                  in the log."
)]
pub(crate) struct ReloadArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Has the engine read its configuration again, and says what changed, and what takes a restart.
pub(crate) fn run(args: &ReloadArgs, client: &Client) -> anyhow::Result<()> {
    let answer: ReloadAnswer = client.post("/v1/reload", &())?;
    let ReloadAnswer { reloaded: Reloaded { changed, needs_restart, warnings }, worker } = &answer;
    // JSON has them.
    for warning in warnings.iter().filter(|_| !args.json) {
        complain(warning);
    }
    output::json_or(args.json, &answer, || {
        let process = worker.as_ref().map(|name| format!("{name} ")).unwrap_or_default();
        let changed =
            if changed.is_empty() { "nothing has changed".to_owned() } else { changed.join(", ") };
        let fixed = if needs_restart.is_empty() {
            String::new()
        } else {
            format!("\nneeds a restart: {}", needs_restart.join(", "))
        };
        format!("{process}reloaded: {changed}{fixed}")
    })
}
