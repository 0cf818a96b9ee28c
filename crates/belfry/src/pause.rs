//! `belfry pause` and `belfry resume`: what is not sent for now.

use std::process::ExitCode;

use api::{PauseAnswer, ResumeAnswer};
use clap::Args;
use notification::{BroadcastId, Priority};

use crate::client::{Client, with_query};
use crate::output;

/// `belfry pause`, `belfry resume`
#[derive(Debug, Args)]
pub(crate) struct PauseArgs {
    /// A broadcast (`bc_` and a number)
    #[arg(required_unless_present_any = ["all", "channel"], conflicts_with_all = ["all", "channel"])]
    pub(crate) id: Option<BroadcastId>,
    /// All that the tenant has
    #[arg(long, conflicts_with = "channel")]
    pub(crate) all: bool,
    /// What goes by this channel
    #[arg(long)]
    pub(crate) channel: Option<String>,
    /// Of that, what goes to this destination, as the lanes of `belfry status` name it
    #[arg(long, requires_all = ["channel", "priority"])]
    pub(crate) destination: Option<String>,
    /// And has this priority
    #[arg(long, requires = "destination")]
    pub(crate) priority: Option<Priority>,
    /// Tenant, with an operator's key [default: the key's]
    #[arg(long)]
    pub(crate) tenant: Option<String>,
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
        let Self { id, all, channel, destination, priority, tenant, json: _ } = self;
        let id = id.map(|id| id.to_string());
        let given = [
            ("broadcast", id.as_deref()),
            ("all", all.then_some("true")),
            ("channel", channel.as_deref()),
            ("destination", destination.as_deref()),
            ("priority", priority.map(Priority::as_str)),
            ("tenant", tenant.as_deref()),
        ];
        with_query(&format!("/v1/{action}"), &given)
    }
}
