//! `belfry pause` and `belfry resume`: what is not sent for now.

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
pub(crate) fn pause(args: &PauseArgs, client: &Client) -> anyhow::Result<()> {
    let answer: PauseAnswer = client.post(&args.path("pause"), &())?;
    let PauseAnswer { tenant, scope, since, everywhere } = &answer;
    let unheard = if *everywhere == Some(true) {
        ""
    } else {
        "\na process was not heard of, and may still send: see `belfry status`"
    };
    output::json_or(args.json, &answer, || {
        format!("{scope} of {tenant} is paused since {since}{unheard}")
    })
}

/// Resumes, and says whether it was paused.
pub(crate) fn resume(args: &PauseArgs, client: &Client) -> anyhow::Result<()> {
    let answer: ResumeAnswer = client.post(&args.path("resume"), &())?;
    let text = if answer.resumed { "resumed" } else { "it was not paused" };
    output::json_or(args.json, &answer, || text)
}

// === impl PauseArgs ===

impl PauseArgs {
    fn path(&self, action: &str) -> String {
        self.of.path(action, self.id, &[])
    }
}
