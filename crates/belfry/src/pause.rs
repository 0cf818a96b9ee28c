//! `belfry pause` and `belfry resume`: what is not sent for now.

use std::process::ExitCode;

use api::{PauseAnswer, ResumeAnswer};
use clap::Args;
use notification::BroadcastId;

use crate::args::{SCOPES, ScopeArgs};
use crate::client::Client;
use crate::output;

/// `belfry pause`, `belfry resume`
#[derive(Debug, Args)]
pub(crate) struct PauseArgs {
    /// A broadcast (`bc_` and a number)
    #[arg(required_unless_present_any = SCOPES, conflicts_with_all = SCOPES)]
    pub(crate) id: Option<BroadcastId>,
    #[command(flatten)]
    pub(crate) of: ScopeArgs,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Pauses, and says since when it is.
pub(crate) fn pause(args: &PauseArgs, client: &Client) -> anyhow::Result<ExitCode> {
    let answer: PauseAnswer = client.post(&args.path("pause"), &())?;
    if args.json {
        output::json(&answer)?;
    } else {
        let PauseAnswer { tenant, scope, since, everywhere } = answer;
        output::line(format_args!("{scope} of {tenant} is paused since {since}"))?;
        if everywhere != Some(true) {
            let unheard = "a process was not heard of, and may still send: see `belfry status`";
            output::line(format_args!("{unheard}"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Resumes, and says whether it was paused.
pub(crate) fn resume(args: &PauseArgs, client: &Client) -> anyhow::Result<ExitCode> {
    let answer: ResumeAnswer = client.post(&args.path("resume"), &())?;
    if args.json {
        output::json(&answer)?;
    } else {
        let text = if answer.resumed { "resumed" } else { "it was not paused" };
        output::line(format_args!("{text}"))?;
    }
    Ok(ExitCode::SUCCESS)
}

// === impl PauseArgs ===

impl PauseArgs {
    fn path(&self, action: &str) -> String {
        self.of.path(action, self.id, &[])
    }
}
