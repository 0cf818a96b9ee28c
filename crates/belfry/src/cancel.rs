//! `belfry cancel`: takes back what is not sent yet.

use std::process::ExitCode;

use clap::Args;
use notification::{BroadcastId, NotificationId};
use serde::{Deserialize, Serialize};

use crate::client::Client;
use crate::exit::{CliError, FailureKind};
use crate::output;

/// `belfry cancel`
#[derive(Debug, Args)]
pub(crate) struct CancelArgs {
    /// A notification (a UUID) or a broadcast (`bc_` and a number)
    pub(crate) id: String,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Serialize, Deserialize)]
struct CancelAnswer {
    cancelled: u64,
    under_way: u64,
    ended: u64,
}

/// Says what cancelling came to.
pub(crate) fn run(args: &CancelArgs, client: &Client) -> anyhow::Result<ExitCode> {
    let answer: CancelAnswer = client.post(&path(&args.id)?, &())?;
    if args.json {
        output::json(&answer)?;
    } else {
        let CancelAnswer { cancelled, under_way, ended } = answer;
        output::line(format_args!(
            "{cancelled} cancelled; too late for {under_way} under way and {ended} that ended"
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn path(id: &str) -> Result<String, CliError> {
    if let Ok(broadcast) = id.parse::<BroadcastId>() {
        return Ok(format!("/v1/broadcasts/{broadcast}/cancel"));
    }
    if let Ok(notification) = id.parse::<NotificationId>() {
        return Ok(format!("/v1/notifications/{notification}/cancel"));
    }
    let message = format!("{id:?} is neither a notification (a UUID) nor a broadcast (bc_1)");
    Err(CliError::new(FailureKind::BadInput, message))
}
