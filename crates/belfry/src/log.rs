//! `belfry log`: the delivery log, read from the store.

use std::time::Duration;

use clap::Args;
use notification::{
    ByteString, Guarantee, Labels, Name, NotificationId, Priority, State, Timestamp,
};
use serde::Serialize;
use store::{Attempted, History, LogEntry, LogPosition, ReadStore, write_labels};

use crate::args::StoreArgs;
use crate::config::StoreConfig;
use crate::exit::{CliError, FailureKind};
use crate::{output, reader};

/// `belfry log`
#[derive(Debug, Args)]
pub(crate) struct LogArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Position to start from, as an earlier line showed it
    #[arg(long, value_name = "NUMBER", default_value = "0")]
    pub(crate) position: u64,
    /// Wait for more at the end
    #[arg(long)]
    pub(crate) follow: bool,
    /// Show the history of one notification
    #[arg(long, value_name = "NOTIFICATION", conflicts_with_all = ["position", "follow"])]
    pub(crate) id: Option<NotificationId>,
    /// Print one JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}

/// Entries read at once.
const PAGE_ENTRIES: usize = 1_000;
/// Between two looks at the end of the log: the store notifies only the engine of changes.
const FOLLOW_PERIOD: Duration = Duration::from_millis(500);

/// A line of the log. Its fields stand in an order of their own, for scripts that read it.
#[derive(Debug, Serialize)]
struct ReceivedLogLine<'a> {
    at: Timestamp,
    id: NotificationId,
    attempt: u16,
    state: State,
    status: u16,
    detail: &'a str,
}

/// One notification with all of its lines.
#[derive(Debug, Serialize)]
pub(crate) struct Story {
    pub(crate) id: NotificationId,
    tenant: Name,
    pub(crate) channel: Name,
    destination: String,
    priority: Priority,
    guarantee: Guarantee,
    broadcast: Option<String>,
    pub(crate) to: Option<ByteString>,
    pub(crate) accepted_at: Timestamp,
    pub(crate) state: State,
    next_attempt_at: Option<Timestamp>,
    fallback_of: Option<NotificationId>,
    fallback_id: Option<NotificationId>,
    pub(crate) attempts: Vec<Attempted>,
    #[serde(flatten, serialize_with = "write_labels")]
    labels: Labels,
}

/// Prints the log, or the history of one notification.
pub(crate) fn run(args: &LogArgs, store: &StoreConfig) -> anyhow::Result<()> {
    reader::ask(store, async |reads| match args.id {
        Some(id) => tell(args, id, reads).await,
        None => list(args, reads).await,
    })
}

/// Ends with where to go on: on standard error, for standard output is for scripts.
async fn list(args: &LogArgs, reads: &dyn ReadStore) -> anyhow::Result<()> {
    let mut position = LogPosition(args.position);
    loop {
        let page = reads.log(position, PAGE_ENTRIES).await?;
        for entry in page.entries {
            let line = ReceivedLogLine::from(&entry);
            output::json_or(args.json, &line, || text(Some(entry.id), &entry.attempted))?;
        }
        if page.next != position {
            position = page.next;
        } else if args.follow {
            tokio::time::sleep(FOLLOW_PERIOD).await;
        } else {
            crate::exit::complain(&format!("go on with --position {}", position.0));
            return Ok(());
        }
    }
}

async fn tell(args: &LogArgs, id: NotificationId, reads: &dyn ReadStore) -> anyhow::Result<()> {
    let history = reads.find(id).await?.ok_or_else(|| {
        CliError::new(
            FailureKind::BadInput,
            format!("this store has no notification {id}: it was never accepted, or retention has removed it"),
        )
    })?;
    let story = Story::from(history);
    if args.json {
        return output::json(&story);
    }
    let Story { id, channel, accepted_at, state, .. } = &story;
    let to = story.recipient();
    output::line(format_args!("{id} {state}: {channel} to {to}, accepted {accepted_at}"))?;
    if !story.labels.is_empty() {
        output::line(output::plain(&label_line(&story.labels)))?;
    }
    if let Some(of) = &story.fallback_of {
        output::line(format_args!("stands in for {of}, which was refused"))?;
    }
    for attempt in &story.attempts {
        output::line(text(None, attempt))?;
    }
    if let Some(to) = &story.fallback_id {
        output::line(format_args!("{to} stands in for it"))?;
    }
    if let Some(instant) = &story.next_attempt_at {
        output::line(format_args!("next attempt {instant}"))?;
    }
    Ok(())
}

/// Labels in one line.
fn label_line(labels: &Labels) -> String {
    let external_id = Some(&labels.external_id).filter(|id| !id.is_empty());
    let external_id = external_id.map(|id| format!("external id {id}"));
    let tags = labels.tags().iter().map(|tag| format!("tag {tag}"));
    let metadata = Some(labels.metadata()).filter(|metadata| !metadata.is_empty());
    let metadata = metadata.map(|it| format!("metadata {}", String::from_utf8_lossy(it)));
    let all: Vec<String> = external_id.into_iter().chain(tags).chain(metadata).collect();
    all.join(", ")
}

/// One attempt, or the end, of a notification, for people.
pub(crate) fn text(id: Option<NotificationId>, attempted: &Attempted) -> String {
    let Attempted { at, attempt, state, status, detail } = attempted;
    let id = id.map(|id| format!(" {id}")).unwrap_or_default();
    output::plain(&format!("{at}{id} attempt {attempt} {state} {status} {detail}"))
}

// === impl ReceivedLogLine ===

impl<'a> From<&'a LogEntry> for ReceivedLogLine<'a> {
    fn from(LogEntry { id, attempted }: &'a LogEntry) -> Self {
        let Attempted { at, attempt, state, status, ref detail } = *attempted;
        Self { at, id: *id, attempt, state, status, detail }
    }
}

// === impl Story ===

impl Story {
    /// Its recipient, in words if it was removed.
    pub(crate) fn recipient(&self) -> &str {
        self.to.as_deref().unwrap_or("a recipient that was removed")
    }
}

impl From<History> for Story {
    fn from(history: History) -> Self {
        let fallback_of = history.fallback_of();
        let envelope = history.envelope;
        let lane = envelope.lane;
        Self {
            id: history.id,
            tenant: lane.tenant,
            channel: lane.channel,
            destination: lane.destination.to_string(),
            priority: lane.priority,
            guarantee: envelope.guarantee,
            broadcast: envelope.broadcast.map(|broadcast| broadcast.to_string()),
            fallback_of,
            to: history.recipient,
            accepted_at: history.accepted_at,
            state: history.state,
            next_attempt_at: history.next_attempt_at,
            fallback_id: history.fallback_id,
            attempts: history.attempts,
            labels: history.labels,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_holds_what_happened_and_nothing_that_moves_the_cursor() {
        let attempted = Attempted {
            at: Timestamp::from_millis(0),
            attempt: 2,
            state: State::Refused,
            status: 410,
            detail: "Unregistered\x1b[2J\n".to_owned(),
        };
        assert_eq!(
            text(None, &attempted),
            "1970-01-01T00:00:00.000Z attempt 2 refused 410 Unregistered[2J"
        );
        assert!(
            serde_json::to_string(&attempted)
                .unwrap()
                .starts_with(r#"{"at":"1970-01-01T00:00:00.000Z","attempt":2"#)
        );
        let id = "00000000-0000-8000-8000-000000000001".parse().unwrap();
        let entry = LogEntry { id, attempted };
        assert!(
            serde_json::to_string(&ReceivedLogLine::from(&entry)).unwrap().starts_with(
                r#"{"at":"1970-01-01T00:00:00.000Z","id":"00000000-0000-8000-8000-000000000001","attempt":2"#
            )
        );
    }
}
