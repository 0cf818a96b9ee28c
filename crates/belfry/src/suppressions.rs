//! `belfry suppressions`: the list of recipients that are not tried. Read from the store, changed through the engine.

use std::io::{self, BufRead as _, BufReader, IsTerminal as _};
use std::path::PathBuf;

use anyhow::Context as _;
use api::{LiftAnswer, SuppressAnswer, SuppressionPages};
use clap::{Args, Subcommand};
use notification::{Name, Timestamp, limits};
use serde_json::{Value, json};
use store::{Change, EventPosition, ReadStore, StoreError, Suppression, SuppressionEvent};

use crate::args::StoreArgs;
use crate::client::Client;
use crate::config::StoreConfig;
use crate::follow::{self, Following, PrintedEvents};
use crate::progress::Progress;
use crate::{input, output, reader};

/// The action on the list.
#[derive(Debug, Subcommand)]
pub(crate) enum SuppressionsCommand {
    /// Print the list, or that of one channel (reads the store, the engine need not run)
    Export(ExportArgs),
    /// Have recipients not be tried any more
    Add(AddArgs),
    /// Have recipients be tried again
    Lift(LiftArgs),
    /// Print what changed on the list (reads the store, the engine need not run)
    Feed(FeedArgs),
}

/// `belfry suppressions export`
#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Channel [default: all]
    #[arg(long)]
    channel: Option<Name>,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

/// `belfry suppressions feed`
#[derive(Debug, Args)]
pub(crate) struct FeedArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Position to start from, as an earlier line showed it
    #[arg(long, default_value = "0")]
    position: EventPosition,
    /// Wait for more at the end
    #[arg(long)]
    follow: bool,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

/// Whom a change is about.
#[derive(Debug, Args)]
struct WhomArgs {
    /// Channel, as the configuration names it
    #[arg(long)]
    channel: Name,
    /// Device token, URL, address
    #[arg(long, value_name = "RECIPIENT", required_unless_present = "to_file")]
    to: Option<String>,
    /// One recipient per line; `-` is standard input
    #[arg(long, value_name = "FILE", conflicts_with = "to")]
    to_file: Option<PathBuf>,
    /// Print the summary as JSON
    #[arg(long)]
    json: bool,
}

/// `belfry suppressions add`
#[derive(Debug, Args)]
pub(crate) struct AddArgs {
    #[command(flatten)]
    whom: WhomArgs,
    /// Why [default: by an operator]
    #[arg(long, value_name = "WORDS")]
    reason: Option<String>,
}

/// `belfry suppressions lift`
#[derive(Debug, Args)]
pub(crate) struct LiftArgs {
    #[command(flatten)]
    whom: WhomArgs,
    /// When the recipients registered anew (RFC 3339): lifts only what was suppressed for the time before
    #[arg(long, value_name = "INSTANT")]
    registered_at: Option<Timestamp>,
}

/// Changes of the list.
struct ListChanges;

/// Recipients read, or handed to the engine, at once.
const PAGE: usize = limits::LIST_ITEMS;

/// Prints the list in order of channel and recipient.
pub(crate) fn export(args: &ExportArgs, store: &StoreConfig) -> anyhow::Result<()> {
    // Lines on a terminal are progress enough.
    let mut progress = (!io::stdout().is_terminal()).then(|| Progress::new(None, "exported"));
    let mut count = 0;
    reader::ask(store, async |reads| {
        let mut pages = SuppressionPages::new(reads, args.channel.clone()).await?;
        loop {
            let page = pages.next(reads).await?;
            if page.is_empty() {
                return Ok(());
            }
            for suppression in &page {
                output::json_or(args.json, suppression, || suppression_text(suppression))?;
                count += 1;
            }
            if let Some(progress) = &mut progress {
                progress.tell(count, 0);
            }
        }
    })?;
    if let Some(progress) = progress {
        progress.finish();
    }
    Ok(())
}

/// Prints changes, until there are no more or it is interrupted.
pub(crate) fn feed(args: &FeedArgs, store: &StoreConfig) -> anyhow::Result<()> {
    let FeedArgs { position, follow, json, .. } = *args;
    follow::print(&ListChanges, Following { position, follow, json }, store)
}

/// Suppresses recipients.
pub(crate) fn add(args: &AddArgs, client: &Client) -> anyhow::Result<()> {
    let mut sum = SuppressAnswer::default();
    args.whom.each(|channel, to, lines| {
        let mut body = json!({ "channel": channel, "to": to });
        if let (Some(reason), Some(fields)) = (&args.reason, body.as_object_mut()) {
            fields.insert("reason".to_owned(), Value::from(reason.as_str()));
        }
        let added: SuppressAnswer = client.post_lines("/v1/suppressions", &body, lines)?;
        sum.suppressed += added.suppressed;
        Ok(())
    })?;
    output::json_or(args.whom.json, &sum, || format!("{} suppressed", sum.suppressed))
}

/// Takes recipients off the list.
pub(crate) fn lift(args: &LiftArgs, client: &Client) -> anyhow::Result<()> {
    let mut sum = LiftAnswer::default();
    args.whom.each(|channel, to, lines| {
        let mut body = json!({ "channel": channel, "to": to });
        if let (Some(instant), Some(fields)) = (args.registered_at, body.as_object_mut()) {
            fields.insert("registered_at".to_owned(), Value::from(instant.to_string()));
        }
        let lifted: LiftAnswer = client.post_lines("/v1/suppressions/lift", &body, lines)?;
        sum.lifted += lifted.lifted;
        sum.unchanged += lifted.unchanged;
        Ok(())
    })?;
    let LiftAnswer { lifted, unchanged } = &sum;
    output::json_or(args.whom.json, &sum, || format!("{lifted} lifted, {unchanged} unchanged"))
}

impl PrintedEvents for ListChanges {
    type Event = SuppressionEvent;

    const NAME: &'static str = "changes";

    async fn page(
        &self,
        reads: &dyn ReadStore,
        from: EventPosition,
    ) -> Result<(Vec<SuppressionEvent>, EventPosition), StoreError> {
        let page = reads.suppression_events(from, PAGE).await?;
        Ok((page.events, page.next))
    }

    fn place(event: &SuppressionEvent) -> (EventPosition, Timestamp) {
        (event.position, event.at)
    }

    fn text(event: &SuppressionEvent) -> String {
        event_text(event)
    }
}

// === impl WhomArgs ===

impl WhomArgs {
    /// Calls `change` with the channel, some of the recipients, and the lines where they stand if they are from a file, until
    /// all are done. Each call is done or not as a whole; doing all again does no harm.
    fn each(
        &self,
        mut change: impl FnMut(&str, &[String], &[u64]) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let channel = self.channel.as_str();
        if let Some(to) = &self.to {
            return change(channel, std::slice::from_ref(to), &[]);
        }
        let Some(file) = &self.to_file else { return Ok(()) };
        let cannot_read = || format!("cannot read {}", file.display());
        let (input, bytes) = input::open(file).with_context(cannot_read)?;
        let mut progress = Progress::new(bytes, "done");
        let (mut recipients, mut count, mut offset) = (Vec::with_capacity(PAGE), 0, 0);
        let (mut lines, mut line_number) = (Vec::with_capacity(PAGE), 0);
        let mut input = BufReader::new(input);
        let mut line = String::new();
        loop {
            line.clear();
            let read = input.read_line(&mut line).with_context(cannot_read)?;
            offset += read as u64;
            line_number += 1;
            let recipient = line.trim();
            if !recipient.is_empty() {
                recipients.push(recipient.to_owned());
                lines.push(line_number);
            }
            if recipients.len() == PAGE || read == 0 && !recipients.is_empty() {
                let done = change(channel, &recipients, &lines);
                // A page is one request: those before it stay changed.
                done.with_context(|| format!("{count} were done before"))?;
                count += recipients.len() as u64;
                recipients.clear();
                lines.clear();
                progress.tell(count, offset);
            }
            if read == 0 {
                progress.finish();
                return Ok(());
            }
        }
    }
}

// === helpers ===

/// One recipient of the list, for people.
fn suppression_text(suppression: &Suppression) -> String {
    let Suppression { channel, recipient, reason, status, since } = suppression;
    output::plain(&format!("{since} {channel} {recipient} {status} {reason}"))
}

/// A change, for people, with the provider's reason unchanged.
fn event_text(event: &SuppressionEvent) -> String {
    let SuppressionEvent { position, at, channel, recipient, change } = event;
    let (word, why) = match change {
        Change::Suppressed { reason, status, since } => {
            ("suppressed", format!(" since {since}: {status} {reason}"))
        }
        Change::Lifted => ("lifted", String::new()),
    };
    output::plain(&format!("{position} {at} {word} {channel} {recipient}{why}"))
}
