//! Events that a command prints one by one, until there are no more or it is interrupted.

use std::time::Duration;

use notification::Timestamp;
use serde::Serialize;
use store::{EventPosition, ReadStore, StoreError};

use crate::config::StoreConfig;
use crate::exit::complain;
use crate::progress::StatusLine;
use crate::{output, reader};

/// Events of a kind.
pub(crate) trait PrintedEvents {
    /// One of them; its JSON is that of the API.
    type Event: Serialize;

    /// Their name, in the plural.
    const NAME: &'static str;

    /// Those behind `from`, and the position at which the next page begins.
    async fn page(
        &self,
        reads: &dyn ReadStore,
        from: EventPosition,
    ) -> Result<(Vec<Self::Event>, EventPosition), StoreError>;

    /// The place and the time of an event.
    fn place(event: &Self::Event) -> (EventPosition, Timestamp);

    /// The event, for people.
    fn text(event: &Self::Event) -> String;
}

/// How events are printed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Following {
    /// Position to start from.
    pub(crate) position: EventPosition,
    /// True to wait for more at the end.
    pub(crate) follow: bool,
    /// True for a JSON object in each line.
    pub(crate) json: bool,
}

/// Events that are being printed.
struct EventPrinter<'a, E> {
    events: &'a E,
    following: Following,
    /// All up to here are printed.
    position: EventPosition,
    count: u64,
    line: StatusLine,
}

/// Between two looks at the end: the store notifies only the engine of changes.
const FOLLOW_PERIOD: Duration = Duration::from_millis(500);

/// Prints `events`; however it ends, it says where to go on. On standard error, for standard output is for scripts.
pub(crate) fn print<E: PrintedEvents>(
    events: &E,
    following: Following,
    store: &StoreConfig,
) -> anyhow::Result<()> {
    let (position, line) = (following.position, StatusLine::new());
    let mut reading = EventPrinter { events, following, position, count: 0, line };
    let ended = reader::ask(store, async |reads| {
        tokio::select! {
            ended = reading.run(reads) => ended,
            interrupted = tokio::signal::ctrl_c() => Ok(interrupted?),
        }
    });
    reading.line.finish();
    let EventPrinter { position, count, .. } = reading;
    let name = E::NAME;
    ended.map_err(|error| match count {
        0 => error,
        _ => error.context(format!("ended after {count} {name}, go on with --position {position}")),
    })?;
    complain(&format!("{count} {name}; go on with --position {position}"));
    Ok(())
}

// === impl EventPrinter ===

impl<E: PrintedEvents> EventPrinter<'_, E> {
    async fn run(&mut self, reads: &dyn ReadStore) -> anyhow::Result<()> {
        let name = E::NAME;
        loop {
            let (events, next) = self.events.page(reads, self.position).await?;
            let is_end = next == self.position;
            for event in events {
                output::json_or(self.following.json, &event, || E::text(&event))?;
                let (position, at) = E::place(&event);
                // With each line, so that an interrupt between two says where the next one is.
                (self.position, self.count) = (position, self.count + 1);
                let count = self.count;
                self.line.say(|| format!("{count} {name}, up to {at} (position {position})"));
            }
            // Also past what does not match.
            self.position = next;
            if is_end && !self.following.follow {
                return Ok(());
            }
            if is_end {
                let Self { count, position, .. } = self;
                self.line.say(|| {
                    format!("{count} {name}, all there are (position {position}): waiting for more")
                });
                tokio::time::sleep(FOLLOW_PERIOD).await;
            }
        }
    }
}
