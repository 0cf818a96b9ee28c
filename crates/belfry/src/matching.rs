//! The notifications that `belfry requeue` and `belfry resolve` are about, among those that have ended, and the calls for all of them.

use clap::Args;
use notification::{BroadcastId, Priority};
use serde::de::DeserializeOwned;

use crate::args::TargetId;
use crate::client::{Client, with_query};
use crate::exit::{CliError, FailureKind};

/// Which notifications are meant.
#[derive(Debug, Args)]
pub(crate) struct MatchArgs {
    /// Those of this channel
    #[arg(long)]
    pub(crate) channel: Option<String>,
    /// Those with this external id
    #[arg(long, value_name = "ID")]
    pub(crate) external_id: Option<String>,
    /// Those with this tag
    #[arg(long)]
    pub(crate) tag: Option<String>,
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
}

/// The answer to one call: the counts of one page of matches, and where the next page begins.
pub(crate) trait MatchPage: Default + DeserializeOwned {
    /// Adds the counts of the page that follows, and goes on where that does.
    fn add(&mut self, page: Self);
    /// Number of matches.
    fn matched(&self) -> u64;
    /// Place at which the next page begins; `None` at the end.
    fn next(&self) -> Option<&str>;
}

/// Notifications that one call is about at most.
const CALL_ITEMS: u64 = notification::limits::LIST_ITEMS as u64;

// === impl MatchArgs ===

impl MatchArgs {
    /// True if it says more than whose notifications are meant.
    pub(crate) fn narrows(&self) -> bool {
        let is_narrowed = self.filters().iter().any(|(_, given)| given.is_some());
        is_narrowed || self.limit.is_some() || self.dry_run
    }

    /// The thing that `id` names for the command `verb`; `None` where the matches of a filter, or `all`, are meant.
    pub(crate) fn target(
        &self,
        verb: &str,
        id: Option<&str>,
        all: bool,
    ) -> Result<Option<TargetId>, CliError> {
        if let Some(id) = id {
            return id.parse().map(Some);
        }
        // Without any of these it would be all that the tenant has, and that must be said.
        if all || self.filters().iter().any(|(_, given)| given.is_some()) {
            return Ok(None);
        }
        let message =
            format!("say what to {verb}: an identifier, a filter such as --channel, or --all");
        Err(CliError::new(FailureKind::Usage, message))
    }

    /// Calls `path` with parameters of the command's `own`, a bounded number of matches at a time; the sum.
    pub(crate) fn call<Page: MatchPage>(
        &self,
        client: &Client,
        path: &str,
        broadcast: Option<BroadcastId>,
        own: &[(&str, Option<&str>)],
    ) -> anyhow::Result<Page> {
        let broadcast = broadcast.map(|broadcast| broadcast.to_string());
        let mut total = Page::default();
        loop {
            let left = self.limit.map_or(CALL_ITEMS, |limit| limit.saturating_sub(total.matched()));
            if left == 0 {
                return Ok(total);
            }
            let limit = left.min(CALL_ITEMS).to_string();
            let first = [
                ("limit", Some(limit.as_str())),
                ("broadcast", broadcast.as_deref()),
                ("tenant", self.tenant.as_deref()),
            ];
            let last = [("after", total.next()), ("dry_run", self.dry_run.then_some("true"))];
            let page = with_query(path, &[&first[..], own, &self.filters(), &last].concat());
            total.add(client.post(&page, &())?);
            if total.next().is_none() {
                return Ok(total);
            }
        }
    }

    /// The parameters that narrow what a tenant has.
    fn filters(&self) -> [(&'static str, Option<&str>); 8] {
        [
            ("channel", self.channel.as_deref()),
            ("external_id", self.external_id.as_deref()),
            ("tag", self.tag.as_deref()),
            ("destination", self.destination.as_deref()),
            ("priority", self.priority.map(Priority::as_str)),
            ("since", self.since.as_deref()),
            ("until", self.until.as_deref()),
            ("reason", self.reason.as_deref()),
        ]
    }
}
