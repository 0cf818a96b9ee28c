//! `belfry reschedule`: what is not sent yet is sent at another time.

use api::RescheduleAnswer;
use clap::Args;
use notification::{Name, Timestamp};
use serde::Serialize;

use crate::args::TargetId;
use crate::client::{Client, with_query};
use crate::output;

/// `belfry reschedule`. Its JSON is the body of the request.
#[derive(Debug, Args, Serialize)]
pub(crate) struct RescheduleArgs {
    /// A notification (a UUID) or a broadcast (`bc_` and a number)
    #[serde(skip)]
    pub(crate) id: String,
    /// Not to be sent before this instant (RFC 3339), earlier or later than it was to be; one that has passed means at once
    #[arg(long, value_name = "INSTANT")]
    pub(crate) send_at: Timestamp,
    /// Of this tenant, with an operator's key [default: the key's]
    #[arg(long)]
    #[serde(skip)]
    pub(crate) tenant: Option<Name>,
    /// Print JSON
    #[arg(long)]
    #[serde(skip)]
    pub(crate) json: bool,
}

/// Says what rescheduling came to.
pub(crate) fn run(args: &RescheduleArgs, client: &Client) -> anyhow::Result<()> {
    let path = match args.id.parse()? {
        TargetId::Notification(id) => format!("/v1/notifications/{id}/reschedule"),
        TargetId::Broadcast(id) => format!("/v1/broadcasts/{id}/reschedule"),
    };
    let of = [("tenant", args.tenant.as_ref().map(Name::as_str))];
    let answer: RescheduleAnswer = client.post(&with_query(&path, &of), args)?;
    let RescheduleAnswer { rescheduled, under_way, ended } = &answer;
    output::json_or(args.json, &answer, || {
        format!(
            "{rescheduled} rescheduled to {}; too late for {under_way} under way and {ended} that ended",
            args.send_at
        )
    })
}
