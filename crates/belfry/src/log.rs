//! `belfry log`: the delivery log.

use std::time::Duration;

use clap::Args;
use notification::NotificationId;
use serde::{Deserialize, Serialize};
use store::{Attempted, LogEntry, LogPosition, ReadStore};

use crate::args::StoreArgs;
use crate::client::Client;
use crate::exit::{CliError, FailureKind};
use crate::got::GotNotification;
use crate::reader::{ReadSource, SOURCE_HELP, StoreReader};
use crate::{output, paint, reader};

/// `belfry log`
#[derive(Debug, Args)]
#[command(after_help = SOURCE_HELP)]
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
/// Between two looks at the end of the log: the log tells none but the engine of changes.
const FOLLOW_PERIOD: Duration = Duration::from_millis(500);

/// A line of the log. Its fields stand in an order of their own, for scripts that read it.
#[derive(Debug, Serialize, Deserialize)]
struct ReceivedLogLine {
    at: String,
    id: String,
    attempt: u16,
    state: String,
    status: u16,
    detail: String,
}

/// The last line of an engine's answer.
#[derive(Deserialize)]
struct LogEnd {
    next: u64,
}

/// Prints the log, or the history of one notification.
pub(crate) fn run(args: &LogArgs, source: &ReadSource) -> anyhow::Result<()> {
    match (source, args.id) {
        (ReadSource::Engine(client), Some(id)) => {
            tell(args, &client.get(&format!("/v1/notifications/{id}"))?)
        }
        (ReadSource::Engine(client), None) => list(args, |position| read_engine(client, position)),
        (ReadSource::Store(store), Some(id)) => {
            let found = reader::ask(store, async |reads| Ok(reads.find(id).await?))?;
            let history = found.ok_or_else(|| {
                CliError::new(
                    FailureKind::BadInput,
                    format!("this store has no notification {id}: it was never accepted, or retention has removed it"),
                )
            })?;
            tell(args, &GotNotification::from(history))
        }
        (ReadSource::Store(store), None) => {
            let store = StoreReader::open(store)?;
            list(args, |position| store.ask(async |reads| read_store(reads, position).await))
        }
    }
}

/// Ends with where to go on: on standard error, for standard output is for scripts.
fn list(
    args: &LogArgs,
    read: impl Fn(u64) -> anyhow::Result<(Vec<ReceivedLogLine>, u64)>,
) -> anyhow::Result<()> {
    let mut position = args.position;
    loop {
        let (lines, next) = read(position)?;
        for line in lines {
            output::json_or(args.json, &line, || line.text())?;
        }
        if next != position {
            position = next;
        } else if args.follow {
            std::thread::sleep(FOLLOW_PERIOD);
        } else {
            crate::exit::complain(&format!("go on with --position {position}"));
            return Ok(());
        }
    }
}

/// The lines of a store behind `position`, and the position behind them.
async fn read_store(
    reads: &dyn ReadStore,
    position: u64,
) -> anyhow::Result<(Vec<ReceivedLogLine>, u64)> {
    let page = reads.log(LogPosition(position), PAGE_ENTRIES).await?;
    let lines = page.entries.into_iter().map(ReceivedLogLine::from).collect();
    Ok((lines, page.next.0))
}

/// Likewise of an engine.
fn read_engine(client: &Client, position: u64) -> anyhow::Result<(Vec<ReceivedLogLine>, u64)> {
    let path = format!("/v1/log?position={position}&limit={PAGE_ENTRIES}");
    let (lines, LogEnd { next }) = client.get_lines(&path)?;
    Ok((lines, next))
}

fn tell(args: &LogArgs, got: &GotNotification) -> anyhow::Result<()> {
    if args.json {
        return output::json(got);
    }
    got.history().into_iter().try_for_each(output::line)
}

// === impl ReceivedLogLine ===

impl ReceivedLogLine {
    /// For people.
    fn text(&self) -> String {
        let Self { at, id, attempt, state, status, detail } = self;
        let begin = output::plain(&format!("{at} {id} attempt {attempt}"));
        let rest = output::plain(&format!(" {status} {detail}"));
        format!("{begin} {}{rest}", paint::state(state, &output::plain(state)))
    }
}

impl From<LogEntry> for ReceivedLogLine {
    fn from(LogEntry { id, attempted }: LogEntry) -> Self {
        let Attempted { at, attempt, state, status, detail } = attempted;
        let (at, id, state) = (at.to_string(), id.to_string(), state.to_string());
        Self { at, id, attempt, state, status, detail }
    }
}

#[cfg(test)]
mod tests {
    use notification::{State, Timestamp};

    use super::*;
    use crate::got::GotAttempt;

    #[test]
    fn a_line_holds_what_happened_and_nothing_that_moves_the_cursor() {
        let attempted = Attempted {
            at: Timestamp::from_millis(0),
            attempt: 2,
            state: State::Refused,
            status: 410,
            detail: "Unregistered\x1b[2J\n".to_owned(),
        };
        let id = "00000000-0000-8000-8000-000000000001".parse().unwrap();
        let line = ReceivedLogLine::from(LogEntry { id, attempted: attempted.clone() });
        assert_eq!(
            line.text(),
            "1970-01-01T00:00:00.000Z 00000000-0000-8000-8000-000000000001 attempt 2 refused 410 Unregistered[2J"
        );
        assert_eq!(
            GotAttempt::from(attempted.clone()).line(),
            "1970-01-01T00:00:00.000Z attempt 2 refused 410 Unregistered[2J"
        );
        assert!(
            serde_json::to_string(&GotAttempt::from(attempted))
                .unwrap()
                .starts_with(r#"{"at":"1970-01-01T00:00:00.000Z","attempt":2"#)
        );
        assert!(serde_json::to_string(&line).unwrap().starts_with(
            r#"{"at":"1970-01-01T00:00:00.000Z","id":"00000000-0000-8000-8000-000000000001","attempt":2"#
        ));
    }
}
