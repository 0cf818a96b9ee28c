//! `belfry resolve`: writes down what became of notifications that are in doubt, and sends nothing.

use api::ResolveAnswer;
use clap::Args;

use crate::args::TargetId;
use crate::client::{Client, with_query};
use crate::exit::{CliError, FailureKind};
use crate::matching::{MatchArgs, MatchPage};
use crate::output;

/// `belfry resolve`
#[derive(Debug, Args)]
pub(crate) struct ResolveArgs {
    /// A notification (a UUID), or a broadcast (`bc_` and a number) whose ones in doubt are meant
    pub(crate) id: Option<String>,
    /// All in doubt that match the other options
    #[arg(long, conflicts_with = "id")]
    pub(crate) all: bool,
    /// The truth that was found out: they were delivered, or they were not, and may be requeued as dead ones later
    #[arg(long = "as", value_name = "STATE", value_parser = ["delivered", "dead"])]
    pub(crate) state: String,
    /// How it was found out, for the log: up to 200 bytes
    #[arg(long, value_name = "TEXT")]
    pub(crate) note: Option<String>,
    #[command(flatten)]
    pub(crate) of: MatchArgs,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Resolves what is meant, call by call, and says what came of it.
pub(crate) fn run(args: &ResolveArgs, client: &Client) -> anyhow::Result<()> {
    let own = [("as", Some(&*args.state)), ("note", args.note.as_deref())];
    let many = |broadcast| args.of.call(client, "/v1/resolve", broadcast, &own);
    let total: ResolveAnswer = match args.of.target("resolve", args.id.as_deref(), args.all)? {
        Some(TargetId::Notification(id)) if args.of.narrows() => {
            let message = format!(
                "one notification is resolved without other options; `belfry status {id}` shows it"
            );
            return Err(CliError::new(FailureKind::Usage, message).into());
        }
        Some(TargetId::Notification(id)) => {
            let path = format!("/v1/notifications/{id}/resolve");
            let of = [("tenant", args.of.tenant.as_deref())];
            client.post(&with_query(&path, &[&own[..], &of].concat()), &())?
        }
        Some(TargetId::Broadcast(id)) => many(Some(id))?,
        None => many(None)?,
    };
    let ResolveAnswer { matched, resolved, .. } = &total;
    let (verb, state) =
        (if args.of.dry_run { "would be resolved" } else { "resolved" }, &args.state);
    output::json_or(
        args.json,
        &serde_json::json!({"matched": matched, "resolved": resolved}),
        || format!("{resolved} of {matched} notifications in doubt {verb} as {state}"),
    )
}

// === impl ResolveAnswer ===

impl MatchPage for ResolveAnswer {
    fn add(&mut self, page: Self) {
        self.matched += page.matched;
        self.resolved += page.resolved;
        self.next = page.next;
    }

    fn matched(&self) -> u64 {
        self.matched
    }

    fn next(&self) -> Option<&str> {
        self.next.as_deref()
    }
}
