//! The one thread that writes. Whatever arrived while the last commit ran is the next transaction.

use notification::{Draft, Timestamp, limits};
use rusqlite::Connection;
use std::fs::File;
use tokio::sync::{mpsc, oneshot, watch};

use Durability::WithTheNext;

use super::open::Synchronous;
use super::round::{Desk, Round};
use super::wal::{WriteAheadLog, checkpoint};
use crate::rows::packing::Packing;
use crate::{Admission, ErrorKind, StoreError};

/// What callers send to the writer.
pub(super) enum Command {
    /// Drafts: those of one round share batches, so they are not jobs of their own.
    Ingest(Vec<Draft>, Timestamp, oneshot::Sender<Result<Vec<Admission>, StoreError>>),
    /// Anything else; `items` are the recipients it brings in.
    Job { job: Job, durability: Durability, items: usize },
    /// No work: something changed that the writer looks at after each round.
    LookAgain,
    /// Finish what is queued, take nothing more, and answer when the files are closed.
    Close(oneshot::Sender<()>),
}

/// What a power cut may do to a change. The end of the process alone harms neither.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Durability {
    /// Nothing: it is on the disk before it is answered.
    Synced,
    /// Undo it, because opening the store would undo it as well: leases, open broadcasts. The next
    /// commit that is synced covers it.
    WithTheNext,
}

/// Does its part in a round, and says what to answer once that is durable. An error ends the writer.
pub(super) type Job = Box<dyn FnOnce(&mut Round<'_>) -> Result<Reply, StoreError> + Send>;

/// Answers one caller. Dropped unused, it tells the caller that the store failed.
pub(super) type Reply = Box<dyn FnOnce() + Send>;

/// The write side of an open store.
#[derive(Debug)]
pub(super) struct Writer {
    pub(super) connection: Connection,
    pub(super) desk: Desk,
    pub(super) wal: WriteAheadLog,
    pub(super) synchronous: Synchronous,
    /// Whether commits are synced now; as it is with [`Synchronous::Normal`], which never are.
    pub(super) is_synced: bool,
    pub(super) changes: watch::Sender<u64>,
    pub(super) failed: watch::Sender<Option<StoreError>>,
    /// Held as long as this lives.
    pub(super) lock: File,
}

// === impl Writer ===

impl Writer {
    /// Works until every sender is gone or the store fails.
    pub(super) fn run(mut self, mut commands: mpsc::Receiver<Command>) {
        let mut closing = Vec::new();
        while let Some(first) = commands.blocking_recv() {
            let mut round = vec![first];
            let mut items = round.iter().map(Command::items).sum::<usize>();
            while round.len() < limits::ROUND_COMMANDS
                && items < limits::ROUND_ITEMS
                && let Ok(next) = commands.try_recv()
            {
                items += next.items();
                round.push(next);
            }
            let mut work = Vec::with_capacity(round.len());
            for command in round {
                match command {
                    Command::Close(answer) => {
                        commands.close();
                        closing.push(answer);
                    }
                    Command::Ingest(..) | Command::Job { .. } => work.push(command),
                    Command::LookAgain => {}
                }
            }
            let done = self.round(work).and_then(|()| self.wal.keep_short(&self.connection));
            if let Err(error) = done {
                self.fail(&error);
                return;
            }
        }
        if let Err(error) = self.close() {
            tracing::error!(%error, "the store could not be closed in order: nothing is lost");
        }
        for answer in closing {
            let _caller_may_be_gone = answer.send(());
        }
    }

    /// One transaction. Nobody is answered before it is durable.
    fn round(&mut self, commands: Vec<Command>) -> Result<(), StoreError> {
        if commands.is_empty() {
            return Ok(());
        }
        let wants_sync =
            |command: &Command| !matches!(command, Command::Job { durability: WithTheNext, .. });
        self.set_synced(commands.iter().any(wants_sync))?;
        let mut round = Round::begin(&self.connection, &mut self.desk)?;
        let mut replies: Vec<Reply> = Vec::with_capacity(commands.len());
        let mut packing = Packing::default();
        let mut jobs = Vec::new();
        for command in commands {
            match command {
                Command::Ingest(drafts, now, answer) => {
                    replies.push(reply(answer, packing.pack(&mut round, drafts, now))?);
                }
                Command::Job { job, .. } => jobs.push(job),
                Command::LookAgain | Command::Close(_) => {}
            }
        }
        round.store_packed(packing)?;
        for job in jobs {
            replies.push(job(&mut round)?);
        }
        let committed = round.commit()?;
        if committed.counted && !self.is_synced {
            // A claim that ended something: a reader of the log must never see it undone.
            let synced = File::open(&self.wal.path).and_then(|wal| wal.sync_data());
            synced.map_err(|error| StoreError::Broken(error.to_string()))?;
        }
        for reply in replies {
            reply();
        }
        if committed.woke {
            self.changes.send_modify(|change| *change += 1);
        }
        Ok(())
    }

    /// Whether the next commits reach the disk before they return.
    fn set_synced(&mut self, synced: bool) -> Result<(), StoreError> {
        if self.synchronous == Synchronous::Full && synced != self.is_synced {
            let level = if synced { Synchronous::Full } else { Synchronous::Normal };
            self.connection.pragma_update(None, "synchronous", level.as_str())?;
            self.is_synced = synced;
        }
        Ok(())
    }

    fn fail(self, error: &StoreError) {
        tracing::error!(%error, "the store failed: it takes no more work until a restart");
        let broken = if matches!(error, StoreError::Broken(_)) {
            error.clone()
        } else {
            StoreError::Broken(error.to_string())
        };
        self.failed.send_replace(Some(broken));
    }

    fn close(self) -> Result<(), StoreError> {
        checkpoint(&self.connection, "PRAGMA wal_checkpoint(TRUNCATE)")?;
        self.connection.close().map_err(|(_, error)| error)?;
        drop(self.lock);
        Ok(())
    }
}

// === impl Command ===

impl Command {
    /// Notifications that this brings in.
    fn items(&self) -> usize {
        match self {
            Self::Ingest(drafts, ..) => drafts.len(),
            Self::Job { items, .. } => *items,
            Self::LookAgain | Self::Close(_) => 0,
        }
    }
}

impl std::fmt::Debug for Command {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Ingest(..) => "Ingest",
            Self::Job { .. } => "Job",
            Self::LookAgain => "LookAgain",
            Self::Close(_) => "Close",
        })
    }
}

/// Work, and where its result goes once it is durable.
pub(super) fn job<T: Send + 'static>(
    answer: oneshot::Sender<Result<T, StoreError>>,
    work: impl FnOnce(&mut Round<'_>) -> Result<T, StoreError> + Send + 'static,
) -> Job {
    Box::new(move |round| {
        let result = work(round);
        reply(answer, result)
    })
}

/// Keeps an answer until it is durable. A refusal is an answer; a failure ends the round.
fn reply<T: Send + 'static>(
    answer: oneshot::Sender<Result<T, StoreError>>,
    result: Result<T, StoreError>,
) -> Result<Reply, StoreError> {
    match result {
        Err(error) if error.kind() == ErrorKind::Fatal => Err(error),
        result => Ok(Box::new(move || {
            let _caller_may_be_gone = answer.send(result);
        })),
    }
}
