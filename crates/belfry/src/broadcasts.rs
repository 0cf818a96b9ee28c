//! `belfry broadcasts`: the broadcasts of a tenant, read from the store.

use api::{BroadcastItem, broadcast_with_key};
use clap::Args;
use notification::{BroadcastId, Name};
use store::{BroadcastFilter, ReadStore};

use crate::args::{NamedArgs, ShownArgs, StoreArgs};
use crate::config::StoreConfig;
use crate::{output, reader};

/// `belfry broadcasts`
#[derive(Debug, Args)]
pub(crate) struct BroadcastsArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// The tenant whose broadcasts are listed
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub(crate) tenant: Name,
    /// Only those of this channel
    #[arg(long, value_name = "NAME")]
    pub(crate) channel: Option<Name>,
    #[command(flatten)]
    pub(crate) named: NamedArgs,
    #[command(flatten)]
    pub(crate) shown: ShownArgs,
    /// Go on behind this broadcast, as the end of an earlier list showed it
    #[arg(long, value_name = "BROADCAST")]
    pub(crate) after: Option<BroadcastId>,
    /// Print one JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}

/// Prints the list.
pub(crate) fn run(args: &BroadcastsArgs, store: &StoreConfig) -> anyhow::Result<()> {
    reader::ask(store, async |reads| list(args, reads).await)
}

/// Ends with where to go on: on standard error, for standard output is for scripts.
async fn list(args: &BroadcastsArgs, reads: &dyn ReadStore) -> anyhow::Result<()> {
    let filter = args.filter();
    let pauses = reads.pauses().await?;
    let (mut after, mut left) = (args.after, args.shown.limit.get());
    loop {
        let page = match &args.named.key {
            Some(key) => broadcast_with_key(reads, filter.clone(), key.clone()).await?,
            None => reads.broadcasts(filter.clone(), after, left).await?,
        };
        left -= page.items.len();
        for listed in page.items {
            let item = BroadcastItem::new(listed, &args.tenant, &pauses);
            output::json_or(args.json, &item, || line(&item))?;
        }
        after = page.next;
        match after {
            None => return Ok(()),
            Some(place) if left == 0 => {
                crate::exit::complain(&format!("go on with --after {place}"));
                return Ok(());
            }
            Some(_) => {}
        }
    }
}

/// A broadcast in one line. Where its notifications stand is not in it: that takes a walk over each.
fn line(item: &BroadcastItem) -> String {
    let BroadcastItem { id, channel, priority, accepted_at, due_at, accepted, .. } = item;
    let notifications = if *accepted == 1 { "notification" } else { "notifications" };
    let more = |words: &str, instant: Option<&String>| {
        instant.map(|instant| format!(", {words} {instant}")).unwrap_or_default()
    };
    let expires = more("expires", item.expires_at.as_ref());
    let paused = more("paused since", item.paused_since.as_ref());
    format!(
        "{id}: {accepted} {notifications} by {channel}, {priority}, accepted {accepted_at}, due {due_at}{expires}{paused}"
    )
}

// === impl BroadcastsArgs ===

impl BroadcastsArgs {
    fn filter(&self) -> BroadcastFilter {
        BroadcastFilter {
            tenant: self.tenant.clone(),
            channel: self.channel.clone(),
            since: self.shown.since,
            until: self.shown.until,
            external_id: self.named.external_id.clone(),
            tag: self.named.tag.clone(),
            order: self.shown.order(),
        }
    }
}
