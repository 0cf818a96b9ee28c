//! `belfry broadcasts`: the broadcasts of a tenant.

use api::{BroadcastItem, broadcast_with_key};
use clap::Args;
use notification::{BroadcastId, Name};
use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};
use store::{BroadcastFilter, ReadStore};

use crate::args::{NamedArgs, ShownArgs, StoreArgs};
use crate::listing::{list_path, stored_tenant};
use crate::output;
use crate::pages::{self, PrintedPart, ReadPage};
use crate::reader::{ReadSource, SOURCE_HELP, StoreReader};

/// `belfry broadcasts`
#[derive(Debug, Args)]
#[command(after_help = SOURCE_HELP)]
pub(crate) struct BroadcastsArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// The tenant whose broadcasts are listed: by default the key's, and `default` where the store is read. Another one takes an operator's key
    #[arg(long, value_name = "NAME")]
    pub(crate) tenant: Option<Name>,
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

/// A broadcast in a line. Where its notifications stand is not in it: that takes a walk over each.
#[derive(Deserialize)]
struct BroadcastLine {
    id: String,
    channel: String,
    priority: String,
    accepted_at: String,
    due_at: String,
    expires_at: Option<String>,
    accepted: u64,
    paused_since: Option<String>,
}

/// Broadcasts read at once.
const PAGE_ITEMS: usize = 1_000;

/// Prints the list.
pub(crate) fn run(args: &BroadcastsArgs, source: &ReadSource) -> anyhow::Result<()> {
    let part = PrintedPart {
        after: args.after.map(|place| place.to_string()),
        limit: args.shown.limit.get(),
    };
    match source {
        ReadSource::Engine(client) => {
            let read = |after: Option<&str>, limit: usize| {
                client.get(&args.path(after, limit.min(PAGE_ITEMS)))
            };
            pages::print(part, read, |item: Box<RawValue>| args.print(&item))
        }
        ReadSource::Store(store) => {
            let store = StoreReader::open(store)?;
            let read = |after: Option<&str>, limit: usize| {
                let after = after.map(str::parse).transpose()?;
                store.ask(async |reads| args.read(reads, after, limit.min(PAGE_ITEMS)).await)
            };
            pages::print(part, read, |item: Box<RawValue>| args.print(&item))
        }
    }
}

// === impl BroadcastsArgs ===

impl BroadcastsArgs {
    /// A page of the store, in the JSON of the API.
    async fn read(
        &self,
        reads: &dyn ReadStore,
        after: Option<BroadcastId>,
        limit: usize,
    ) -> anyhow::Result<ReadPage<Box<RawValue>>> {
        let filter = self.filter()?;
        let tenant = filter.tenant.clone();
        let page = match &self.named.key {
            Some(key) => broadcast_with_key(reads, filter, key.clone()).await?,
            None => reads.broadcasts(filter, after, limit).await?,
        };
        let pauses = reads.pauses().await?;
        let items = page.items.into_iter();
        let items = items.map(|listed| to_raw_value(&BroadcastItem::new(listed, &tenant, &pauses)));
        let items = items.collect::<Result<_, _>>()?;
        Ok(ReadPage { items, next: page.next.map(|place| place.to_string()) })
    }

    /// The call for a page of an engine.
    fn path(&self, after: Option<&str>, limit: usize) -> String {
        let own = [
            ("channel", self.channel.as_ref().map(Name::as_str)),
            ("tenant", self.tenant.as_ref().map(Name::as_str)),
        ];
        list_path("/v1/broadcasts", &own, (&self.named, &self.shown), (after, limit))
    }

    fn print(&self, item: &RawValue) -> anyhow::Result<()> {
        if self.json {
            return output::line(item);
        }
        output::line(line(&serde_json::from_str(item.get())?))
    }

    fn filter(&self) -> anyhow::Result<BroadcastFilter> {
        Ok(BroadcastFilter {
            tenant: stored_tenant(self.tenant.as_ref())?,
            channel: self.channel.clone(),
            since: self.shown.since,
            until: self.shown.until,
            external_id: self.named.external_id.clone(),
            tag: self.named.tag.clone(),
            order: self.shown.order(),
        })
    }
}

// === helpers ===

fn line(item: &BroadcastLine) -> String {
    let BroadcastLine { id, channel, priority, accepted_at, due_at, accepted, .. } = item;
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
