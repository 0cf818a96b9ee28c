//! `belfry get`: a notification or a broadcast by its identifier.

use api::BroadcastAnswer;
use clap::Args;
use notification::Name;
use serde_json::value::RawValue;

use crate::args::TargetId;
use crate::client::{Client, with_query};
use crate::got::GotNotification;
use crate::{output, status};

/// `belfry get`
#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    /// A notification (a UUID), or a broadcast (`bc_` and a number)
    id: String,
    /// Of this tenant, with an operator's key [default: the key's]
    #[arg(long)]
    tenant: Option<Name>,
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
    let of = [("tenant", args.tenant.as_ref().map(Name::as_str))];
    let answer: Box<RawValue> = client.get(&with_query(&path, &of))?;
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
