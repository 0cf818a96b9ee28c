//! `belfry events`: what became of notifications, read from the store.

use clap::Args;
use notification::{Name, State, Timestamp, limits};
use store::{DeliveryEvent, DeliveryFilter, EventPosition, ReadStore, StoreError};

use crate::args::StoreArgs;
use crate::config::StoreConfig;
use crate::follow::{self, Following, PrintedEvents};
use crate::output;

/// `belfry events`
#[derive(Debug, Args)]
pub(crate) struct EventsArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Position to start from, as an earlier line showed it
    #[arg(long, default_value = "0")]
    position: EventPosition,
    /// Wait for more at the end
    #[arg(long)]
    follow: bool,
    /// Channels, separated by commas [default: all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    channel: Vec<Name>,
    /// Ends, separated by commas, such as `refused,dead` [default: all]
    #[arg(long, value_name = "STATES", value_delimiter = ',', value_parser = terminal)]
    state: Vec<State>,
    /// Print attempts, too, that another one follows
    #[arg(long)]
    attempts: bool,
    /// Only those of notifications with this tag; may be repeated
    #[arg(long, value_name = "TAG")]
    tag: Vec<String>,
    /// Whose notifications
    #[arg(long, default_value = "default")]
    tenant: Name,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

/// Delivery events of one tenant.
struct Deliveries(DeliveryFilter);

/// Events read at once.
const PAGE: usize = limits::LIST_ITEMS;

/// Prints events, until there are no more or it is interrupted.
pub(crate) fn run(args: &EventsArgs, store: &StoreConfig) -> anyhow::Result<()> {
    let filter = DeliveryFilter {
        tenant: args.tenant.clone(),
        channels: args.channel.iter().cloned().collect(),
        tags: args.tag.iter().map(|tag| tag.as_str().into()).collect(),
        states: args.state.iter().copied().collect(),
        attempts: args.attempts,
    };
    let EventsArgs { position, follow, json, .. } = *args;
    follow::print(&Deliveries(filter), Following { position, follow, json }, store)
}

impl PrintedEvents for Deliveries {
    type Event = DeliveryEvent;

    const NAME: &'static str = "events";

    async fn page(
        &self,
        reads: &dyn ReadStore,
        from: EventPosition,
    ) -> Result<(Vec<DeliveryEvent>, EventPosition), StoreError> {
        let page = reads.delivery_events(self.0.clone(), from, PAGE).await?;
        Ok((page.events, page.next))
    }

    fn place(event: &DeliveryEvent) -> (EventPosition, Timestamp) {
        (event.position, event.attempted.at)
    }

    fn text(event: &DeliveryEvent) -> String {
        let DeliveryEvent { position, id, channel, recipient, attempted, .. } = event;
        let (state, to) = (attempted.state, recipient.as_deref().unwrap_or("-"));
        let (at, attempt, status) = (attempted.at, attempted.attempt, attempted.status);
        let detail = &attempted.detail;
        output::plain(
            format!(
                "{position} {at} {id} {state} {channel} {to} attempt {attempt} {status} {detail}"
            )
            .trim_end(),
        )
    }
}

/// A state in which a notification ends.
fn terminal(text: &str) -> Result<State, String> {
    match text.parse::<State>() {
        Ok(state) if state.is_terminal() => Ok(state),
        Ok(state) => Err(format!("{state} is no end: --attempts prints attempts")),
        Err(error) => Err(error.to_string()),
    }
}
