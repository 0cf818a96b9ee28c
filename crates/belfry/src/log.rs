//! `belfry log`: the delivery log, read from the store.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use notification::NotificationId;
use serde::Serialize;
use store::{Attempted, History, LogEntry, LogPosition, ReadStore};

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

/// One attempt, or the end, of one notification.
#[derive(Debug, Serialize)]
struct ReceivedLogLine {
    at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    attempt: u16,
    state: &'static str,
    status: u16,
    detail: String,
}

/// One notification with all of its lines.
#[derive(Debug, Serialize)]
struct Story {
    id: String,
    tenant: String,
    channel: String,
    destination: String,
    priority: &'static str,
    guarantee: &'static str,
    broadcast: Option<String>,
    to: String,
    accepted_at: String,
    state: &'static str,
    next_attempt_at: Option<String>,
    fallback_of: Option<String>,
    fallback_id: Option<String>,
    attempts: Vec<ReceivedLogLine>,
}

/// Prints the log, or the history of one notification.
pub(crate) fn run(args: &LogArgs, store: &StoreConfig) -> anyhow::Result<ExitCode> {
    reader::ask(store, async |reads| match args.id {
        Some(id) => tell(args, id, reads).await,
        None => list(args, reads).await,
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Ends with where to go on: on standard error, for standard output is for scripts.
async fn list(args: &LogArgs, reads: &dyn ReadStore) -> anyhow::Result<()> {
    let mut position = LogPosition(args.position);
    loop {
        let page = reads.log(position, PAGE_ENTRIES).await?;
        for entry in page.entries {
            let line = ReceivedLogLine::from(entry);
            if args.json { output::json(&line)? } else { output::line(line.to_text())? }
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
            format!("this store never accepted the notification {id}"),
        )
    })?;
    let story = Story::from(history);
    if args.json {
        return output::json(&story);
    }
    let Story { id, channel, to, accepted_at, state, .. } = &story;
    output::line(format_args!("{id} {state}: {channel} to {to}, accepted {accepted_at}"))?;
    if let Some(of) = &story.fallback_of {
        output::line(format_args!("stands in for {of}, which was refused"))?;
    }
    for attempt in &story.attempts {
        output::line(attempt.to_text())?;
    }
    if let Some(to) = &story.fallback_id {
        output::line(format_args!("{to} stands in for it"))?;
    }
    if let Some(instant) = &story.next_attempt_at {
        output::line(format_args!("next attempt {instant}"))?;
    }
    Ok(())
}

// === impl ReceivedLogLine ===

impl ReceivedLogLine {
    fn new(id: Option<NotificationId>, attempted: Attempted) -> Self {
        Self {
            at: attempted.at.to_string(),
            id: id.map(|id| id.to_string()),
            attempt: attempted.attempt,
            state: attempted.state.as_str(),
            status: attempted.status,
            detail: attempted.detail,
        }
    }

    fn to_text(&self) -> String {
        let Self { at, id, attempt, state, status, detail } = self;
        let id = id.as_ref().map(|id| format!(" {id}")).unwrap_or_default();
        // A provider's words must not play with the terminal.
        let detail: String = detail.chars().filter(|character| !character.is_control()).collect();
        format!("{at}{id} attempt {attempt} {state} {status} {detail}").trim_end().to_owned()
    }
}

impl From<LogEntry> for ReceivedLogLine {
    fn from(entry: LogEntry) -> Self {
        Self::new(Some(entry.id), entry.attempted)
    }
}

// === impl Story ===

impl From<History> for Story {
    fn from(history: History) -> Self {
        let envelope = history.envelope;
        Self {
            id: history.id.to_string(),
            tenant: envelope.lane.tenant.to_string(),
            channel: envelope.lane.channel.to_string(),
            destination: envelope.lane.destination.to_string(),
            priority: envelope.lane.priority.as_str(),
            guarantee: envelope.guarantee.as_str(),
            broadcast: envelope.broadcast.map(|broadcast| broadcast.to_string()),
            to: history.recipient.to_string(),
            accepted_at: history.accepted_at.to_string(),
            state: history.state.as_str(),
            next_attempt_at: history.next_attempt_at.map(|instant| instant.to_string()),
            fallback_of: history.content.fallback.and_then(|it| it.of).map(|id| id.to_string()),
            fallback_id: history.fallback_id.map(|id| id.to_string()),
            attempts: history
                .attempts
                .into_iter()
                .map(|line| ReceivedLogLine::new(None, line))
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use notification::{State, Timestamp};

    #[test]
    fn a_line_holds_what_happened_and_nothing_that_moves_the_cursor() {
        let attempted = Attempted {
            at: Timestamp::from_millis(0),
            attempt: 2,
            state: State::Refused,
            status: 410,
            detail: "Unregistered\x1b[2J\n".to_owned(),
        };
        let line = ReceivedLogLine::new(None, attempted);
        assert_eq!(
            line.to_text(),
            "1970-01-01T00:00:00.000Z attempt 2 refused 410 Unregistered[2J"
        );
        assert!(
            serde_json::to_string(&line)
                .unwrap()
                .starts_with(r#"{"at":"1970-01-01T00:00:00.000Z","attempt":2"#)
        );
    }
}
