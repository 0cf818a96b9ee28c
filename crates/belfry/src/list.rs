//! `belfry list`: the notifications of a recipient, or of all.

use api::notification_with_key;
use clap::Args;
use notification::{BroadcastId, ByteString, Name, NotificationId, State};
use store::{Filter, ReadStore};

use crate::args::{NamedArgs, ShownArgs, StoreArgs};
use crate::got::GotNotification;
use crate::listing::{list_path, stored_tenant};
use crate::output;
use crate::pages::{self, PrintedPart, ReadPage};
use crate::reader::{ReadSource, SOURCE_HELP, StoreReader};

/// `belfry list`
#[derive(Debug, Args)]
#[command(after_help = SOURCE_HELP)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Only those to this device token, endpoint or address, byte for byte
    #[arg(long, value_name = "RECIPIENT")]
    pub(crate) to: Option<String>,
    #[command(flatten)]
    pub(crate) named: NamedArgs,
    /// Only those whose last words in the log have this in them
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// The tenant whose notifications are listed: by default the key's, and `default` where the store is read. Another one takes an operator's key
    #[arg(long, value_name = "NAME")]
    pub(crate) tenant: Option<Name>,
    /// Only those of this channel
    #[arg(long, value_name = "NAME")]
    pub(crate) channel: Option<Name>,
    /// Only those in this state: pending, claimed, begun, delivered, refused, ...
    #[arg(long, value_name = "STATE")]
    pub(crate) state: Option<State>,
    /// Only those of this broadcast
    #[arg(long, value_name = "BROADCAST")]
    pub(crate) broadcast: Option<BroadcastId>,
    #[command(flatten)]
    pub(crate) shown: ShownArgs,
    /// Go on behind this place, as the end of an earlier list showed it
    #[arg(long, value_name = "PLACE")]
    pub(crate) after: Option<NotificationId>,
    /// Print one JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}

/// Notifications read at once: their contents are in memory only that long.
const PAGE_ITEMS: usize = 100;

/// Prints the list.
pub(crate) fn run(args: &ListArgs, source: &ReadSource) -> anyhow::Result<()> {
    let part = PrintedPart {
        after: args.after.map(|place| place.to_string()),
        limit: args.shown.limit.get(),
    };
    let print = |got: GotNotification| output::json_or(args.json, &got, || got.line());
    match source {
        ReadSource::Engine(client) => {
            let read = |after: Option<&str>, limit: usize| {
                client.get(&args.path(after, limit.min(PAGE_ITEMS)))
            };
            pages::print(part, read, print)
        }
        ReadSource::Store(store) => {
            let store = StoreReader::open(store)?;
            let read = |after: Option<&str>, limit: usize| {
                let after = after.map(str::parse).transpose()?;
                store.ask(async |reads| args.read(reads, after, limit.min(PAGE_ITEMS)).await)
            };
            pages::print(part, read, print)
        }
    }
}

// === impl ListArgs ===

impl ListArgs {
    /// A page of the store.
    async fn read(
        &self,
        reads: &dyn ReadStore,
        after: Option<NotificationId>,
        limit: usize,
    ) -> anyhow::Result<ReadPage<GotNotification>> {
        let filter = self.filter()?;
        if let Some(key) = &self.named.key {
            let found = notification_with_key(reads, &filter, key.clone()).await?;
            let items = found.into_iter().map(GotNotification::from).collect();
            return Ok(ReadPage { items, next: None });
        }
        let page = reads.list(filter, after, limit).await?;
        let items = page.items.into_iter().map(GotNotification::from).collect();
        Ok(ReadPage { items, next: page.next.map(|place| place.to_string()) })
    }

    /// The call for a page of an engine.
    fn path(&self, after: Option<&str>, limit: usize) -> String {
        let broadcast = self.broadcast.map(|id| id.to_string());
        let own = [
            ("to", self.to.as_deref()),
            ("channel", self.channel.as_ref().map(Name::as_str)),
            ("state", self.state.map(State::as_str)),
            ("reason", self.reason.as_deref()),
            ("broadcast", broadcast.as_deref()),
            ("tenant", self.tenant.as_ref().map(Name::as_str)),
        ];
        list_path("/v1/notifications", &own, (&self.named, &self.shown), (after, limit))
    }

    fn filter(&self) -> anyhow::Result<Filter> {
        Ok(Filter {
            tenant: Some(stored_tenant(self.tenant.as_ref())?),
            channel: self.channel.clone(),
            states: self.state.into_iter().collect(),
            broadcast: self.broadcast,
            since: self.shown.since,
            until: self.shown.until,
            recipient: self.to.as_deref().map(ByteString::from),
            or_fallback: false,
            external_id: self.named.external_id.clone(),
            tag: self.named.tag.clone(),
            reason: self.reason.clone(),
            order: self.shown.order(),
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use store::ListOrder;

    use super::*;

    #[derive(Debug, Parser)]
    struct Alone {
        #[command(flatten)]
        list: ListArgs,
    }

    #[test]
    fn the_newest_of_the_default_tenant_are_listed_unless_it_is_said_otherwise() {
        let filter = |arguments: &[&str]| {
            let arguments = ["list"].iter().chain(arguments);
            Alone::try_parse_from(arguments).map(|alone| alone.list.filter().unwrap())
        };
        let usual = filter(&[]).unwrap();
        assert_eq!(usual.tenant.as_ref().map(Name::as_str), Some("default"));
        assert_eq!((usual.order, usual.recipient), (ListOrder::NewestFirst, None));
        let other = filter(&["--to", "a@b.example", "--oldest", "--state", "refused"]).unwrap();
        assert_eq!(other.recipient.as_deref(), Some("a@b.example"));
        assert_eq!((other.order, other.states), (ListOrder::OldestFirst, [State::Refused].into()));
        assert!(filter(&["--newest", "--oldest"]).is_err());
        assert!(filter(&["--limit", "0"]).is_err());
    }
}
