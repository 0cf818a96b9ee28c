//! A task that owns a connection and all writes of one kind. Whatever arrived during the last commit is the next
//! transaction; what a lost connection interrupted is done again, and what cannot be done is found and refused alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use flow::merge::Groups;
use flow::{Backoff, Clock};
use notification::limits;
use tokio::sync::{Notify, watch};

use super::commit::{CommitOutcome, SentCommit};
use super::connection::{Connector, PostgresSession};
use super::errors::{self, ErrorRemedy};
use super::lane_tenants::LaneTenants;
use super::listed::ListedRecipients;
use super::notices::{NoticeReceiver, NoticeSender};
use super::request::Command;
use super::transaction::{RunError, Transaction};
use super::writer_state::{Effects, WriterState};
use crate::StoreError;

/// The write side.
#[derive(Debug)]
pub(super) struct Writer {
    pub(super) connector: Connector,
    pub(super) state: WriterState,
    pub(super) commands: Groups<Box<dyn Command>>,
    pub(super) available: watch::Sender<bool>,
    pub(super) failed: watch::Sender<Option<StoreError>>,
    pub(super) clock: Clock,
    pub(super) random: fastrand::Rng,
    pub(super) session: Option<PostgresSession>,
    pub(super) notices: Notices,
    /// Bumped after every transaction that may have made more claimable.
    pub(super) changes: watch::Sender<u64>,
    /// Deliveries settled by this process.
    pub(super) settled: Arc<AtomicU64>,
    /// Told when a broadcast waits for its next slice.
    pub(super) waiting: Arc<Notify>,
}

/// Destination of a writer's notices besides other processes.
#[derive(Debug)]
pub(super) enum Notices {
    /// This writer claims: it takes its own, and those that come this way.
    Claimer(NoticeReceiver),
    /// To the writer that claims.
    Forward(NoticeSender),
}

/// Outcome of the requests of one transaction.
enum GroupOutcome {
    /// All that are left are done, and this follows.
    Committed(Effects),
    /// One of them, at least, cannot be done, and nothing of any was; the answer to it, if it is alone.
    OneItemFailed(StoreError),
}

/// The end of a transaction.
enum TransactionEnd {
    /// It is durable, and this follows; whether the connection is still good.
    Committed(Effects, bool),
    /// Nothing of it was done; the connection may be of no more use.
    Undone(ErrorRemedy, String),
}

/// Every statement of a writer starts from a few keys and follows indexes. Its plan is made once, often while the tables
/// are new, and must be as good when they are full: without the switches it would join all of a table by hash. What a plan
/// reads is counted by a test, so they can hide no scan.
pub(super) const PLANS: &str = "SET plan_cache_mode = force_generic_plan; SET jit = off; \
     SET enable_seqscan = off; SET enable_bitmapscan = off; \
     SET enable_hashjoin = off; SET enable_mergejoin = off";
/// Longest time of a statement that touches no table, or one row.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// A transaction that takes longer has lost its connection, even if no error came.
const TRANSACTION_TIMEOUT: Duration = Duration::from_secs(10);
/// Doublings of [`TRANSACTION_TIMEOUT`] while the same transaction is lost again and again.
const TIMEOUT_DOUBLINGS: u32 = 5;
/// Between looks at a transaction whose end is not known yet.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Between attempts of what waits for room on the server's disk.
const LOOK_FOR_SPACE_EVERY: Duration = Duration::from_secs(1);
/// Repeats of a transaction because another one was in the way, before it is divided, and of one request alone,
/// before it is refused.
const REPEATS_MAX: u16 = 50;
/// Repeats of a part of a transaction, after it was divided: each try may wait for a lock for [`ANSWER_WITHIN`].
const REPEATS_OF_PART_MAX: u16 = 3;

// === impl Writer ===

impl Writer {
    /// Works until every sender is gone or the database cannot be used any more.
    pub(super) async fn run(&mut self) {
        while let Some(group) = self.commands.next().await {
            if let Err(error) = self.perform_group(group).await {
                tracing::error!(%error, "the database cannot be used any more");
                self.failed.send_replace(Some(error));
                return;
            }
        }
    }

    /// Performs the requests of a group, and answers each. One that cannot be done is found by halving, as with
    /// [`flow::merge::Unmerge`]: of a thousand it costs twenty transactions, and the others are committed.
    ///
    /// # Errors
    /// When the database cannot be used any more; those that are not done by then are told so.
    async fn perform_group(&mut self, group: Vec<Box<dyn Command>>) -> Result<(), StoreError> {
        let mut parts = vec![group];
        let mut repeats_max = REPEATS_MAX;
        while let Some(mut part) = parts.pop() {
            let refusal = match self.perform(&mut part, repeats_max).await {
                Ok(GroupOutcome::Committed(effects)) => {
                    self.follow(&effects);
                    None
                }
                Ok(GroupOutcome::OneItemFailed(_)) if part.len() > 1 => {
                    let second = part.split_off(part.len() / 2);
                    // The first half is on top, so requests are performed in the order in which they came.
                    parts.extend([second, part]);
                    repeats_max = REPEATS_OF_PART_MAX;
                    continue;
                }
                Ok(GroupOutcome::OneItemFailed(refusal)) => {
                    let request = part.first().map(|command| command.name());
                    tracing::error!(%refusal, request, "a request was refused, and no other");
                    Some(refusal)
                }
                Err(error) => {
                    // All that is left: what was committed before has its answer.
                    for command in part.into_iter().chain(parts.into_iter().flatten()) {
                        command.finish(Some(error.clone()));
                    }
                    return Err(error);
                }
            };
            for command in part {
                command.finish(refusal.clone());
            }
        }
        Ok(())
    }

    /// Passes on a transaction's effects within this process, before its callers get their answers.
    fn follow(&mut self, effects: &Effects) {
        self.settled.fetch_add(effects.settled, Ordering::Relaxed);
        let notices = effects.notices();
        match &mut self.notices {
            Notices::Claimer(_) => {
                for notice in &notices {
                    self.state.apply_notice(notice);
                }
            }
            Notices::Forward(claimer) if !notices.is_empty() => {
                claimer.send(notices);
            }
            Notices::Forward(_) => {}
        }
        if effects.waits {
            self.waiting.notify_one();
        }
        if effects.woke {
            // Last: the claim that this wakes goes by the notices above.
            self.changes.send_modify(|change| *change += 1);
        }
    }

    /// Runs one transaction until it is durable, or until it is known that one of its requests cannot be done. Several are repeated
    /// `repeats_max` times at most while others are in the way.
    async fn perform(
        &mut self,
        commands: &mut Vec<Box<dyn Command>>,
        repeats_max: u16,
    ) -> Result<GroupOutcome, StoreError> {
        let repeats_max = if commands.len() > 1 { repeats_max } else { REPEATS_MAX };
        let (mut repeats, mut losses) = (0, 0);
        while !commands.is_empty() {
            let Some(session) = self.connected(commands).await? else { break };
            self.receive_notices();
            // What is slow, and not lost, must come to an end.
            let longest = TRANSACTION_TIMEOUT * (1 << losses.min(TIMEOUT_DOUBLINGS));
            match self.attempt(&session, commands, longest).await? {
                TransactionEnd::Committed(effects, is_good) => {
                    if is_good {
                        self.session = Some(session);
                    }
                    return Ok(GroupOutcome::Committed(effects));
                }
                TransactionEnd::Undone(ErrorRemedy::Again | ErrorRemedy::Duplicate, reason)
                    if repeats < repeats_max =>
                {
                    repeats += 1;
                    tracing::debug!(reason, "a transaction is repeated");
                    self.roll_back(session).await;
                    // Two processes that were in each other's way would meet again if both came back at once.
                    tokio::time::sleep(Duration::from_millis(self.random.u64(0..10))).await;
                }
                TransactionEnd::Undone(ErrorRemedy::Full, reason) => {
                    tracing::warn!(reason, "the disk of the database is full");
                    // Not as for a lost connection: connecting would succeed each time, and no caller would ever be given up.
                    refuse_for_space(commands, &reason);
                    self.roll_back(session).await;
                    if !commands.is_empty() {
                        tokio::time::sleep(LOOK_FOR_SPACE_EVERY).await;
                    }
                }
                TransactionEnd::Undone(ErrorRemedy::Lost, reason) => {
                    losses += 1;
                    // The session is dropped here, and the server undoes what is open in it.
                    self.available.send_replace(false);
                    tracing::warn!(reason, "the connection to the database was lost");
                }
                TransactionEnd::Undone(ErrorRemedy::Fatal, reason) => {
                    return Err(StoreError::Broken(reason));
                }
                // Others may be in the way of one request only, without end.
                TransactionEnd::Undone(
                    kind @ (ErrorRemedy::Again
                    | ErrorRemedy::Duplicate
                    | ErrorRemedy::Invalid
                    | ErrorRemedy::Undone),
                    reason,
                ) => {
                    self.roll_back(session).await;
                    self.state.invalidate();
                    return Ok(GroupOutcome::OneItemFailed(errors::refusal(kind, reason)));
                }
            }
            // What the transaction did in memory, such as leases and watermarks, was undone in the database only.
            self.state.invalidate();
        }
        Ok(GroupOutcome::Committed(Effects::default()))
    }

    /// Undoes what is open in `session`, and keeps it if it is still of use.
    async fn roll_back(&mut self, session: PostgresSession) {
        let rollback = session.client.batch_execute("ROLLBACK");
        if let Ok(Ok(())) = tokio::time::timeout(ANSWER_WITHIN, rollback).await {
            self.session = Some(session);
        }
    }

    /// Applies the notices that have arrived.
    fn receive_notices(&mut self) {
        if let Notices::Claimer(receiver) = &mut self.notices {
            while let Some(notices) = receiver.next() {
                for notice in &notices {
                    self.state.apply_notice(notice);
                }
            }
        }
    }

    async fn attempt(
        &mut self,
        session: &PostgresSession,
        commands: &mut [Box<dyn Command>],
        longest: Duration,
    ) -> Result<TransactionEnd, StoreError> {
        let transaction = run(session, &mut self.state, commands);
        let (kind, reason) = match tokio::time::timeout(longest, transaction).await {
            Ok(Ok(())) => {
                self.state.commits.requests.observe(commands.len() as u64);
                return Ok(TransactionEnd::Committed(self.state.committed(), true));
            }
            Ok(Err(RunError::Database(error))) => (self.kind_of(&error), errors::in_words(&error)),
            Ok(Err(RunError::Conflict(reason))) => (ErrorRemedy::Again, reason.to_owned()),
            // Requests keep their refusals to themselves, so this is of what all of them share, such as a row that cannot be read.
            Ok(Err(RunError::Refused(refusal))) => (ErrorRemedy::Fatal, refusal.to_string()),
            Err(_elapsed) => (ErrorRemedy::Lost, "it fell silent".to_owned()),
        };
        let Some(sent) = self.state.committing().filter(|_| kind == ErrorRemedy::Lost) else {
            // It was not sent, or an answer came that says it was refused.
            self.state.undone();
            return Ok(TransactionEnd::Undone(kind, reason));
        };
        self.available.send_replace(false);
        tracing::warn!(reason, "the connection to the database was lost during a commit");
        if self.was_committed(&sent).await? {
            return Ok(TransactionEnd::Committed(self.state.committed(), false));
        }
        self.state.undone();
        Ok(TransactionEnd::Undone(ErrorRemedy::Lost, reason))
    }

    /// The way to go on after an error in a transaction. One that was refused for its notices is repeated, and then without them; so
    /// nothing is repeated for that reason twice.
    fn kind_of(&self, error: &tokio_postgres::Error) -> ErrorRemedy {
        if self.state.is_notifying && self.state.notify.mute_after(error) {
            return ErrorRemedy::Again;
        }
        ErrorRemedy::of(error)
    }

    /// Asks the server what became of a commit that was not answered, for as long as it takes.
    async fn was_committed(&mut self, sent: &SentCommit) -> Result<bool, StoreError> {
        loop {
            // With no requests to give up: those of this transaction may be done already, and must not be told otherwise.
            let Some(session) = self.connected(&mut Vec::new()).await? else { return Ok(false) };
            match tokio::time::timeout(ANSWER_WITHIN, sent.outcome(&session)).await {
                Ok(Ok(CommitOutcome::UnderWay)) => tokio::time::sleep(LOOK_EVERY).await,
                Ok(Ok(outcome)) => {
                    self.session = Some(session);
                    return Ok(outcome == CommitOutcome::Committed);
                }
                Ok(Err(error)) if !ErrorRemedy::of(&error).passes() => {
                    return Err(StoreError::Broken(errors::in_words(&error)));
                }
                // Lost again.
                Ok(Err(_)) | Err(_) => continue,
            }
            self.session = Some(session);
        }
    }

    /// The connection, made anew for as long as it takes. Gives up those of `commands` whose time is over; `None` when
    /// there were some and none is left.
    async fn connected(
        &mut self,
        commands: &mut Vec<Box<dyn Command>>,
    ) -> Result<Option<PostgresSession>, StoreError> {
        if let Some(session) = self.session.take() {
            return Ok(Some(session));
        }
        let had_some = !commands.is_empty();
        let backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(2))
            .map_err(|error| StoreError::Broken(error.to_string()))?;
        for attempt in 1.. {
            let connected = match self.connector.connect(None).await {
                Ok(session) => session.client.batch_execute(PLANS).await.map(|()| session),
                Err(error) => Err(error),
            };
            match connected {
                Ok(session) => {
                    // Another server may have taken over, which gives numbers of transactions anew that the one before it gave.
                    self.state.listed = ListedRecipients::default();
                    // The same of numbers of lanes.
                    self.state.lane_tenants = LaneTenants::default();
                    self.available.send_replace(true);
                    return Ok(Some(session));
                }
                Err(error) => {
                    let reason = errors::in_words(&error);
                    tracing::warn!(reason, attempt, "no connection to the database");
                    if had_some {
                        // The requests behind may have waited for too long as well.
                        self.commands.add_waiting(commands, limits::WRITER_COMMANDS);
                    }
                    self.give_up_late_ones(commands, &reason);
                    if had_some && commands.is_empty() {
                        return Ok(None);
                    }
                    let delay = backoff.delay(attempt, None, &mut self.random);
                    tokio::time::sleep(delay).await;
                }
            }
        }
        Ok(None)
    }

    fn give_up_late_ones(&self, commands: &mut Vec<Box<dyn Command>>, reason: &str) {
        let now = self.clock.monotonic();
        let is_late = |command: &mut Box<dyn Command>| {
            command.deadline().is_some_and(|deadline| deadline <= now)
        };
        for command in commands.extract_if(.., is_late) {
            command.finish(Some(StoreError::Unavailable(reason.to_owned())));
        }
    }
}

/// Refuses the requests that may be given up: their callers can repeat them. The other ones are the engine's own, and wait.
fn refuse_for_space(commands: &mut Vec<Box<dyn Command>>, reason: &str) {
    for command in commands.extract_if(.., |command| command.deadline().is_some()) {
        command.finish(Some(errors::no_space(reason)));
    }
}

async fn run(
    session: &PostgresSession,
    state: &mut WriterState,
    commands: &mut [Box<dyn Command>],
) -> Result<(), RunError> {
    let mut transaction = Transaction::begin(session, state).await?;
    let keys = commands.iter().flat_map(|command| command.keys());
    // All at once: a round trip for each of a thousand keys could take longer than a transaction may.
    transaction.look_up(keys.collect()).await?;
    for command in commands {
        command.run(&mut transaction).await?;
    }
    transaction.commit().await
}
