//! `belfry requeue`: sends again what was given up, or cancelled.

use std::fmt::Write as _;

use api::RequeuedOne;
use clap::Args;
use serde::{Deserialize, Serialize};

use crate::args::TargetId;
use crate::client::{Client, with_query};
use crate::exit::{CliError, FailureKind};
use crate::matching::{MatchArgs, MatchPage};
use crate::output;

/// `belfry requeue`
#[derive(Debug, Args)]
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
    #[command(flatten)]
    pub(crate) of: MatchArgs,
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

/// Requeues what is meant, call by call, and says what came of it.
pub(crate) fn run(args: &RequeueArgs, client: &Client) -> anyhow::Result<()> {
    let own = [args.states(), args.consent()];
    let many = |broadcast| args.of.call(client, "/v1/requeue", broadcast, &own);
    let total = match args.of.target("requeue", args.id.as_deref(), args.all)? {
        Some(TargetId::Notification(id)) if args.of.narrows() => {
            let message = format!(
                "of one notification only --state and --tenant are asked for; `belfry status {id}` shows it"
            );
            return Err(CliError::new(FailureKind::Usage, message).into());
        }
        Some(TargetId::Notification(id)) => {
            let path = format!("/v1/notifications/{id}/requeue");
            let of = [("tenant", args.of.tenant.as_deref())];
            let path = with_query(&path, &[&own[..], &of].concat());
            let RequeuedOne { requeued } = client.post(&path, &())?;
            RequeueAnswer { matched: 1, requeued, ..RequeueAnswer::default() }
        }
        Some(TargetId::Broadcast(id)) => many(Some(id))?,
        None => many(None)?,
    };
    let RequeueAnswer { matched, requeued, expired, not_yet, content_removed, replaced, .. } =
        &total;
    let verb = if args.of.dry_run { "would be requeued" } else { "requeued" };
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
    /// The parameter for them; none for what is usual, which engines of older versions know as well.
    fn states(&self) -> (&'static str, Option<&str>) {
        ("state", Some(&*self.state).filter(|state| *state != DEAD))
    }

    /// The parameter that says that some may arrive twice.
    fn consent(&self) -> (&'static str, Option<&str>) {
        ("may_repeat", self.may_repeat.then_some("true"))
    }
}

// === impl RequeueAnswer ===

impl MatchPage for RequeueAnswer {
    fn add(&mut self, page: Self) {
        self.matched += page.matched;
        self.requeued += page.requeued;
        self.expired += page.expired;
        self.not_yet += page.not_yet;
        self.content_removed += page.content_removed;
        self.replaced += page.replaced;
        self.next = page.next;
    }

    fn matched(&self) -> u64 {
        self.matched
    }

    fn next(&self) -> Option<&str> {
        self.next.as_deref()
    }
}
