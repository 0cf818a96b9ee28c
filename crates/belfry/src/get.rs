//! `belfry get`: a notification or a broadcast by its identifier.

use api::BroadcastAnswer;
use clap::Args;
use serde_json::value::RawValue;

use crate::args::TargetId;
use crate::client::Client;
use crate::got::GotNotification;
use crate::{output, status};

/// `belfry get`
#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    /// A notification (a UUID), or a broadcast (`bc_` and a number)
    id: String,
    /// Print the engine's answer as JSON
    #[arg(long)]
    json: bool,
}

/// Prints all that the engine says of it.
pub(crate) fn run(args: &GetArgs, client: &Client) -> anyhow::Result<()> {
    let target: TargetId = args.id.parse()?;
    let path = match &target {
        TargetId::Notification(id) => format!("/v1/notifications/{id}"),
        TargetId::Broadcast(id) => format!("/v1/broadcasts/{id}"),
    };
    // As it came: contents, metadata and the order of fields are the engine's.
    let answer: Box<RawValue> = client.get(&path)?;
    if args.json {
        return output::line(answer);
    }
    match target {
        TargetId::Notification(_) => {
            let got: GotNotification = serde_json::from_str(answer.get())?;
            got.whole().into_iter().try_for_each(output::line)
        }
        TargetId::Broadcast(_) => {
            let got: BroadcastAnswer = serde_json::from_str(answer.get())?;
            output::print(&status::broadcast_text(&got)?)
        }
    }
}
