//! `belfry acts`: who has changed what, and what came of it.

use api::{ActItem, ActList};
use clap::Args;
use notification::{Name, Timestamp};

use crate::client::{Client, with_query};
use crate::{exit, output};

/// `belfry acts`
#[derive(Debug, Args)]
pub(crate) struct ActsArgs {
    /// Only those that concern this tenant [default: with an operator's key all, else the key's]
    #[arg(long, value_name = "NAME")]
    tenant: Option<Name>,
    /// Only those of callers with the key of this name
    #[arg(long, value_name = "NAME")]
    key: Option<Name>,
    /// Only those that began at this instant or later (RFC 3339)
    #[arg(long, value_name = "INSTANT")]
    since: Option<Timestamp>,
    /// Only those that began before this instant (RFC 3339)
    #[arg(long, value_name = "INSTANT")]
    until: Option<Timestamp>,
    /// As many at most
    #[arg(long, value_name = "NUMBER", default_value_t = 20)]
    limit: usize,
    /// Go on behind this act, as the end of an earlier list showed it
    #[arg(long, value_name = "NUMBER")]
    after: Option<u64>,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

/// Acts of one call.
const PAGE: usize = 1_000;

/// Prints the acts, newest first. Ends with where to go on: on standard error, for standard output is for scripts.
pub(crate) fn run(args: &ActsArgs, client: &Client) -> anyhow::Result<()> {
    let (mut after, mut left) = (args.after, args.limit);
    while left > 0 {
        let list: ActList = client.get(&args.path(after, left.min(PAGE)))?;
        left -= list.items.len().min(left);
        for item in &list.items {
            output::json_or(args.json, item, || line(item))?;
        }
        after = list.next;
        if after.is_none() {
            return Ok(());
        }
    }
    if let Some(place) = after {
        exit::complain(&format!("go on with --after {place}"));
    }
    Ok(())
}

/// An act in one line.
fn line(item: &ActItem) -> String {
    let ActItem { id, at, key, caller, tenant, call, asked, status, answer, .. } = item;
    let key =
        key.as_ref().map_or_else(|| "without a key".to_owned(), |key| format!("{key} of {caller}"));
    let concerned = if tenant == caller { String::new() } else { format!(" for {tenant}") };
    let method = call.split(' ').next().unwrap_or_default();
    let end = status
        .map_or_else(|| "it is not known what came of it".to_owned(), |status| status.to_string());
    let answer = answer.as_ref().map(|answer| format!(" {}", answer.get())).unwrap_or_default();
    output::plain(&format!("{id} {at} {key}{concerned}: {method} {asked}: {end}{answer}"))
}

// === impl ActsArgs ===

impl ActsArgs {
    fn path(&self, after: Option<u64>, limit: usize) -> String {
        let (since, until) =
            (self.since.map(|it| it.to_string()), self.until.map(|it| it.to_string()));
        let (after, limit) = (after.map(|it| it.to_string()), limit.to_string());
        let given = [
            ("tenant", self.tenant.as_ref().map(Name::as_str)),
            ("key", self.key.as_ref().map(Name::as_str)),
            ("since", since.as_deref()),
            ("until", until.as_deref()),
            ("after", after.as_deref()),
            ("limit", Some(limit.as_str())),
        ];
        with_query("/v1/acts", &given)
    }
}
