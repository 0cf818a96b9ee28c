//! `belfry requeue`: sends again what was given up, or cancelled.

use std::process::ExitCode;

use clap::Args;
use notification::{BroadcastId, NotificationId, Priority};
use serde::{Deserialize, Serialize};

use crate::client::{Client, with_query};
use crate::exit::{CliError, FailureKind};
use crate::output;

/// `belfry requeue`
#[derive(Debug, Args)]
pub(crate) struct RequeueArgs {
    /// A notification (a UUID), or a broadcast (`bc_` and a number) whose dead ones are meant, or those of --state
    pub(crate) id: Option<String>,
    /// All that match the other options
    #[arg(long, conflicts_with = "id")]
    pub(crate) all: bool,
    /// Those that stand in one of these: dead, cancelled, or both with a comma
    #[arg(long, value_name = "STATES", default_value = DEAD)]
    pub(crate) state: String,
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
    #[serde(skip_serializing)]
    next: Option<String>,
}

#[derive(Debug, Deserialize)]
struct RequeueOneAnswer {
    requeued: u64,
}

/// The state that is meant where nothing is said.
const DEAD: &str = "dead";
/// Notifications that one call requeues at most.
const CALL_ITEMS: u64 = notification::limits::LIST_ITEMS as u64;

/// Requeues what is meant, call by call, and says what came of it.
pub(crate) fn run(args: &RequeueArgs, client: &Client) -> anyhow::Result<ExitCode> {
    let total = match target(args)? {
        Some(RequeueTarget::Notification(id)) if args.has_filters() => {
            let message = format!(
                "of one notification only --state is asked for; `belfry status {id}` shows it"
            );
            return Err(CliError::new(FailureKind::Usage, message).into());
        }
        Some(RequeueTarget::Notification(id)) => {
            let path = with_query(&format!("/v1/notifications/{id}/requeue"), &[args.states()]);
            let RequeueOneAnswer { requeued } = client.post(&path, &())?;
            RequeueAnswer { matched: 1, requeued, ..RequeueAnswer::default() }
        }
        Some(RequeueTarget::Broadcast(id)) => many(args, Some(id), client)?,
        None => many(args, None, client)?,
    };
    if args.json {
        output::json(&total)?;
        return Ok(ExitCode::SUCCESS);
    }
    let RequeueAnswer { matched, requeued, expired, not_yet, .. } = total;
    let verb = if args.dry_run { "would be requeued" } else { "requeued" };
    let state = args.state.replace(',', " or ");
    let expired = match expired {
        0 => String::new(),
        expired => format!("; {expired} expired and stay {state}: send new ones"),
    };
    output::line(format_args!("{requeued} of {matched} {state} notifications {verb}{expired}"))?;
    if not_yet > 0 {
        output::line(format_args!(
            "{not_yet} were cancelled while their broadcast was not released: ask again in some seconds, or when it is resumed"
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

// === impl RequeueArgs ===

impl RequeueArgs {
    /// True if it says more than which states are meant.
    const fn has_filters(&self) -> bool {
        let Self { channel, destination, priority, tenant, since, until, reason, .. } = self;
        let has_names = channel.is_some() || destination.is_some() || tenant.is_some();
        let has_times = since.is_some() || until.is_some();
        let is_narrowed = priority.is_some() || reason.is_some() || self.limit.is_some();
        has_names || has_times || is_narrowed || self.dry_run
    }

    /// The parameter for them; none for what is usual, which engines of older versions know as well.
    fn states(&self) -> (&'static str, Option<&str>) {
        ("state", Some(&*self.state).filter(|state| *state != DEAD))
    }
}

enum RequeueTarget {
    Notification(NotificationId),
    Broadcast(BroadcastId),
}

fn target(args: &RequeueArgs) -> Result<Option<RequeueTarget>, CliError> {
    let Some(id) = &args.id else {
        let RequeueArgs { channel, destination, since, until, reason, all, .. } = args;
        // Without any of these it would be all that the tenant has, and that must be said.
        let is_narrow = [channel, destination, since, until, reason].iter().any(|it| it.is_some());
        if is_narrow || args.priority.is_some() || *all {
            return Ok(None);
        }
        let message = "say what to requeue: an identifier, a filter such as --channel, or --all";
        return Err(CliError::new(FailureKind::Usage, message));
    };
    let broadcast = id.parse().map(RequeueTarget::Broadcast).ok();
    let target = broadcast.or_else(|| id.parse().map(RequeueTarget::Notification).ok());
    let message = format!("{id:?} is neither a notification (a UUID) nor a broadcast (bc_1)");
    target.map(Some).ok_or_else(|| CliError::new(FailureKind::BadInput, message))
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
    let RequeueArgs { channel, destination, since, until, reason, .. } = args;
    let broadcast = broadcast.map(|broadcast| broadcast.to_string());
    let limit = limit.to_string();
    let given = [
        ("limit", Some(limit.as_str())),
        ("broadcast", broadcast.as_deref()),
        ("channel", channel.as_deref()),
        ("destination", destination.as_deref()),
        ("priority", args.priority.map(Priority::as_str)),
        ("tenant", args.tenant.as_deref()),
        args.states(),
        ("since", since.as_deref()),
        ("until", until.as_deref()),
        ("reason", reason.as_deref()),
        ("after", after),
        ("dry_run", args.dry_run.then_some("true")),
    ];
    with_query("/v1/requeue", &given)
}
