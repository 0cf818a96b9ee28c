//! `belfry list`: the notifications of a recipient, or of all, read from the store.

use api::notification_with_key;
use clap::Args;
use notification::{BroadcastId, ByteString, Name, NotificationId, State};
use store::{Filter, History, ReadStore};

use crate::args::{NamedArgs, ShownArgs, StoreArgs};
use crate::config::StoreConfig;
use crate::log::{Story, text};
use crate::{output, reader};

/// `belfry list`
#[derive(Debug, Args)]
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
    /// The tenant whose notifications are listed
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub(crate) tenant: Name,
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
pub(crate) fn run(args: &ListArgs, store: &StoreConfig) -> anyhow::Result<()> {
    reader::ask(store, async |reads| list(args, reads).await)
}

/// Ends with where to go on: on standard error, for standard output is for scripts.
async fn list(args: &ListArgs, reads: &dyn ReadStore) -> anyhow::Result<()> {
    let filter = args.filter();
    if let Some(key) = &args.named.key {
        let found = notification_with_key(reads, &filter, key.clone()).await?;
        return found.map_or(Ok(()), |history| print(args, history));
    }
    let (mut after, mut left) = (args.after, args.shown.limit.get());
    loop {
        let page = reads.list(filter.clone(), after, left.min(PAGE_ITEMS)).await?;
        left -= page.items.len();
        for history in page.items {
            print(args, history)?;
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

fn print(args: &ListArgs, history: History) -> anyhow::Result<()> {
    let story = Story::from(history);
    output::json_or(args.json, &story, || line(&story))
}

/// A notification in one line, with its last attempt: why it was not delivered, if it was not.
fn line(story: &Story) -> String {
    let Story { id, channel, accepted_at, state, attempts, .. } = story;
    let to = story.recipient();
    let last = attempts.last().map(|last| format!("; {}", text(None, last))).unwrap_or_default();
    output::plain(&format!("{id} {state}: {channel} to {to}, accepted {accepted_at}{last}"))
}

// === impl ListArgs ===

impl ListArgs {
    fn filter(&self) -> Filter {
        Filter {
            tenant: Some(self.tenant.clone()),
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
        }
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
            Alone::try_parse_from(arguments).map(|alone| alone.list.filter())
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
