//! `belfry cancel`: takes back what is not sent yet.

use std::fmt::Write as _;

use api::{CancelAllAnswer, CancelAnswer};
use clap::Args;
use notification::BroadcastId;
use serde::Serialize;

use crate::args::{ScopeArgs, TargetId};
use crate::client::{Client, with_query};
use crate::exit::{CliError, FailureKind};
use crate::output;
use crate::progress::StatusLine;

/// `belfry cancel`
#[derive(Debug, Args)]
pub(crate) struct CancelArgs {
    /// A notification (a UUID) or a broadcast (`bc_` and a number)
    #[arg(required_unless_present_any = NAMED_BY, conflicts_with_all = NAMED_BY)]
    pub(crate) id: Option<String>,
    #[command(flatten)]
    pub(crate) of: ScopeArgs,
    /// All that waits for this device token, endpoint or address, byte for byte
    #[arg(long, value_name = "RECIPIENT", conflicts_with_all = NOT_SEARCHED)]
    pub(crate) to: Option<String>,
    /// All that waits with this external id
    #[arg(long, value_name = "ID", conflicts_with_all = NOT_SEARCHED)]
    pub(crate) external_id: Option<String>,
    /// All that waits with this tag
    #[arg(long, conflicts_with_all = NOT_SEARCHED)]
    pub(crate) tag: Option<String>,
    /// Only count
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The arguments that name something by themselves.
const NAMED_BY: [&str; 5] = ["all", "channel", "to", "external_id", "tag"];
/// The arguments that go with no search.
const NOT_SEARCHED: [&str; 3] = ["all", "destination", "priority"];

/// Sum of the answers to the calls that cancel a scope.
#[derive(Debug, Default, Serialize)]
struct Total {
    /// When it began.
    at: String,
    cancelled: u64,
    under_way: u64,
}

/// Says what cancelling came to.
pub(crate) fn run(args: &CancelArgs, client: &Client) -> anyhow::Result<()> {
    let of = [("tenant", args.of.tenant.as_deref())];
    match args.id.as_deref().map(str::parse).transpose()? {
        Some(TargetId::Notification(id)) if !args.dry_run => {
            one(args, client, &with_query(&format!("/v1/notifications/{id}/cancel"), &of))
        }
        Some(TargetId::Notification(id)) => {
            let message =
                format!("--dry-run is for what is more than one; `belfry get {id}` shows one");
            Err(CliError::new(FailureKind::Usage, message).into())
        }
        // One call cancels it whole. To count, it is taken as a scope.
        Some(TargetId::Broadcast(id)) if !args.dry_run => {
            one(args, client, &with_query(&format!("/v1/broadcasts/{id}/cancel"), &of))
        }
        Some(TargetId::Broadcast(id)) => scope(args, client, Some(id)),
        None => scope(args, client, None),
    }
}

fn one(args: &CancelArgs, client: &Client, path: &str) -> anyhow::Result<()> {
    let answer: CancelAnswer = client.post(path, &())?;
    let CancelAnswer { cancelled, under_way, ended } = &answer;
    output::json_or(args.json, &answer, || {
        format!("{cancelled} cancelled; too late for {under_way} under way and {ended} that ended")
    })
}

/// A bounded number at a time.
fn scope(args: &CancelArgs, client: &Client, broadcast: Option<BroadcastId>) -> anyhow::Result<()> {
    let verb = if args.dry_run { "would be cancelled" } else { "cancelled" };
    let (mut total, mut next, status) = (Total::default(), None::<String>, StatusLine::new());
    loop {
        let more = [
            ("to", args.to.as_deref()),
            ("external_id", args.external_id.as_deref()),
            ("tag", args.tag.as_deref()),
            ("dry_run", args.dry_run.then_some("true")),
            ("after", next.as_deref()),
        ];
        let path = args.of.path("cancel", broadcast, &more);
        let answer: CancelAllAnswer = client.post(&path, &())?;
        // Of the first call: what is cancelled here ended then or later, which is what `requeue --since` takes.
        if total.at.is_empty() {
            total.at = answer.at;
        }
        total.cancelled += answer.cancelled;
        total.under_way += answer.under_way;
        next = answer.next;
        if next.is_none() {
            break;
        }
        status.say(|| format!("{} {verb}", total.cancelled));
    }
    status.finish();
    let Total { at, cancelled, under_way } = &total;
    let mut text = format!("{cancelled} {verb}; too late for {under_way} under way");
    if *cancelled > 0 && !args.dry_run {
        let which = broadcast.map_or_else(|| format!("--all --since {at}"), |id| id.to_string());
        write!(text, "\nto send it again: belfry requeue --state cancelled {which}")?;
    }
    if *under_way > 0 && !args.dry_run {
        text += "\nwhat is under way may come back for another attempt: pause it, and cancel again when nothing is";
    }
    output::json_or(args.json, &total, || text)
}
