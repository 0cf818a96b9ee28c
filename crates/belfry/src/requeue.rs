//! `belfry requeue`: sends again what was given up, or cancelled.

use std::fmt::Write as _;

use api::RequeuedOne;
use clap::Args;
use notification::{BroadcastId, Priority};
use serde::{Deserialize, Serialize};

use crate::args::TargetId;
use crate::client::{Client, with_query};
use crate::exit::{CliError, FailureKind};
use crate::output;

/// `belfry requeue`
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the command line")]
pub(crate) struct RequeueArgs {
    /// A notification (a UUID), or a broadcast (`bc_` and a number) whose dead ones are meant, or those of --state
    pub(crate) id: Option<String>,
    /// All that match the other options
    #[arg(long, conflicts_with = "id")]
    pub(crate) all: bool,
    /// Those that stand in one of these: dead, cancelled, refused, `in_doubt`, or several with commas
    #[arg(long, value_name = "STATES", default_value = DEAD)]
    pub(crate) state: String,
    /// Allow those in doubt to arrive twice: needed with --state `in_doubt`
    #[arg(long)]
    pub(crate) may_repeat: bool,
    /// Those of this channel
    #[arg(long)]
    pub(crate) channel: Option<String>,
    /// Those to this destination: a host, a bundle, a domain, as the lanes of `belfry status` name it
    #[arg(long)]
    pub(crate) destination: Option<String>,
    /// Those of this priority
    #[arg(long)]
    pub(crate) priority: Option<Priority>,
    /// Those of this tenant, with an operator's key [default: the key's]
    #[arg(long)]
    pub(crate) tenant: Option<String>,
    /// Those that ended at this instant or later (RFC 3339)
    #[arg(long, value_name = "INSTANT")]
    pub(crate) since: Option<String>,
    /// Those that ended before this instant (RFC 3339)
    #[arg(long, value_name = "INSTANT")]
    pub(crate) until: Option<String>,
    /// Those whose last words in the log have this in them
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// At most so many
    #[arg(long, value_name = "COUNT")]
    pub(crate) limit: Option<u64>,
    /// Only count
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The counts of one page of matches, and where the next page begins.
#[derive(Debug, Default, Serialize, Deserialize)]
struct RequeueAnswer {
    matched: u64,
    requeued: u64,
    expired: u64,
    /// An engine of an older version says nothing of it.
    #[serde(default)]
    not_yet: u64,
    #[serde(default)]
    content_removed: u64,
    #[serde(default)]
    replaced: u64,
    #[serde(skip_serializing)]
    next: Option<String>,
}

/// The state that is meant where nothing is said.
const DEAD: &str = "dead";
/// Notifications that one call requeues at most.
const CALL_ITEMS: u64 = notification::limits::LIST_ITEMS as u64;

/// Requeues what is meant, call by call, and says what came of it.
pub(crate) fn run(args: &RequeueArgs, client: &Client) -> anyhow::Result<()> {
    let total = match target(args)? {
        Some(TargetId::Notification(id)) if args.has_filters() => {
            let message = format!(
                "of one notification only --state is asked for; `belfry status {id}` shows it"
            );
            return Err(CliError::new(FailureKind::Usage, message).into());
        }
        Some(TargetId::Notification(id)) => {
            let path = with_query(
                &format!("/v1/notifications/{id}/requeue"),
                &[args.states(), args.consent()],
            );
            let RequeuedOne { requeued } = client.post(&path, &())?;
            RequeueAnswer { matched: 1, requeued, ..RequeueAnswer::default() }
        }
        Some(TargetId::Broadcast(id)) => many(args, Some(id), client)?,
        None => many(args, None, client)?,
    };
    let RequeueAnswer { matched, requeued, expired, not_yet, content_removed, replaced, .. } =
        &total;
    let verb = if args.dry_run { "would be requeued" } else { "requeued" };
    let state = args.state.replace(',', " or ");
    let mut text = format!("{requeued} of {matched} {state} notifications {verb}");
    if *expired > 0 {
        write!(text, "; {expired} expired and stay {state}: send new ones")?;
    }
    if *content_removed > 0 {
        write!(
            text,
            "; of {content_removed} the content is gone, and they stay {state}: send new ones"
        )?;
    }
    if *replaced > 0 {
        write!(text, "; in the place of {replaced} a fallback was sent, and they stay {state}")?;
    }
    if *not_yet > 0 {
        write!(
            text,
            "\n{not_yet} were cancelled while their broadcast was not released: ask again in some seconds, or when it is resumed"
        )?;
    }
    output::json_or(args.json, &total, || text)
}

// === impl RequeueArgs ===

impl RequeueArgs {
    /// True if it says more than which states are meant.
    fn has_filters(&self) -> bool {
        let is_narrowed = self.filters().iter().any(|(_, given)| given.is_some());
        is_narrowed || self.tenant.is_some() || self.limit.is_some() || self.dry_run
    }

    /// The parameters that narrow what a tenant has.
    fn filters(&self) -> [(&'static str, Option<&str>); 6] {
        [
            ("channel", self.channel.as_deref()),
            ("destination", self.destination.as_deref()),
            ("priority", self.priority.map(Priority::as_str)),
            ("since", self.since.as_deref()),
            ("until", self.until.as_deref()),
            ("reason", self.reason.as_deref()),
        ]
    }

    /// The parameter for them; none for what is usual, which engines of older versions know as well.
    fn states(&self) -> (&'static str, Option<&str>) {
        ("state", Some(&*self.state).filter(|state| *state != DEAD))
    }

    /// The parameter that says that some may arrive twice.
    fn consent(&self) -> (&'static str, Option<&str>) {
        ("may_repeat", self.may_repeat.then_some("true"))
    }
}

fn target(args: &RequeueArgs) -> Result<Option<TargetId>, CliError> {
    if let Some(id) = &args.id {
        return id.parse().map(Some);
    }
    // Without any of these it would be all that the tenant has, and that must be said.
    if args.all || args.filters().iter().any(|(_, given)| given.is_some()) {
        return Ok(None);
    }
    let message = "say what to requeue: an identifier, a filter such as --channel, or --all";
    Err(CliError::new(FailureKind::Usage, message))
}

/// All that match, a bounded number at a time.
fn many(
    args: &RequeueArgs,
    broadcast: Option<BroadcastId>,
    client: &Client,
) -> anyhow::Result<RequeueAnswer> {
    let mut total = RequeueAnswer::default();
    loop {
        let left = args.limit.map_or(CALL_ITEMS, |limit| limit.saturating_sub(total.matched));
        if left == 0 {
            return Ok(total);
        }
        let path = path(args, broadcast, left.min(CALL_ITEMS), total.next.as_deref());
        let answer: RequeueAnswer = client.post(&path, &())?;
        total = RequeueAnswer {
            matched: total.matched + answer.matched,
            requeued: total.requeued + answer.requeued,
            expired: total.expired + answer.expired,
            not_yet: total.not_yet + answer.not_yet,
            content_removed: total.content_removed + answer.content_removed,
            replaced: total.replaced + answer.replaced,
            next: answer.next,
        };
        if total.next.is_none() {
            return Ok(total);
        }
    }
}

/// The call for up to `limit` of those that match, behind `after`.
fn path(
    args: &RequeueArgs,
    broadcast: Option<BroadcastId>,
    limit: u64,
    after: Option<&str>,
) -> String {
    let broadcast = broadcast.map(|broadcast| broadcast.to_string());
    let limit = limit.to_string();
    let first = [
        ("limit", Some(limit.as_str())),
        ("broadcast", broadcast.as_deref()),
        ("tenant", args.tenant.as_deref()),
        args.states(),
        args.consent(),
    ];
    let last = [("after", after), ("dry_run", args.dry_run.then_some("true"))];
    with_query("/v1/requeue", &[&first[..], &args.filters(), &last].concat())
}
