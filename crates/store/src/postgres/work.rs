//! The writer of what is under way: claims, tickets, marks, outcomes and withdrawals.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use notification::{ByteString, Chunk, ChunkId, Guarantee, Name, Settlement, Ticket, Timestamp};
use tokio::time::Instant;

use super::LOG_WRITERS;
use super::board::{Leased, Place};
use super::claim::Contents;
use super::connection::Session;
use super::notices::CHANNEL;
use super::round::{Interrupted, Round, ask};
use super::shared::{Role, Shared};
use super::table::{self, Held, returning_chunk, small, unsigned};
use super::writer::{Asked, Command, Desk, Slot};
use crate::rows::filter::RecipientFilter;
use crate::rows::lanes::LaneId;
use crate::{
    Begun, CancelTarget, Cancelled, Claim, ClaimRequest, Mark, Settled, StoreError, Suppression,
};

/// What the work writer is asked.
#[derive(Debug)]
pub(super) enum Work {
    Settle { settlements: Vec<Settlement>, slot: Slot<Vec<Settled>> },
    Begin { marks: Vec<Mark>, slot: Slot<Vec<Begun>> },
    Take { tickets: Vec<Ticket>, now: Timestamp, lease: Duration, slot: Slot<Vec<Option<Chunk>>> },
    Claim { request: ClaimRequest, slot: Slot<Claim<Chunk>> },
    Issue { request: ClaimRequest, slot: Slot<Claim<Ticket>> },
    Cancel { target: CancelTarget, tenant: Name, now: Timestamp, slot: Slot<Option<Cancelled>> },
    Suppress { suppressions: Vec<Suppression>, slot: Slot<()> },
    Unsuppress { channel: Name, recipients: Vec<ByteString>, slot: Slot<Vec<bool>> },
    Bury { worker: i64, is_orderly: bool, now: Timestamp, slot: Slot<bool> },
}

/// What the work writer keeps in memory.
#[derive(Debug)]
pub(super) struct WorkDesk {
    pub(super) shared: Arc<Shared>,
    /// Of the broadcasts that were claimed from last: their next chunks will want them.
    pub(super) contents: Contents,
    /// When the lanes were read.
    read_at: Instant,
}

/// What is missed by everything else is found this long after it came, at the latest.
const BACKSTOP: Duration = Duration::from_secs(30);

const LOCK: &str =
    returning_chunk!("SELECT", "FROM chunk AS c WHERE c.id = ANY($1) ORDER BY c.id FOR UPDATE");
const GUARANTEES: &str = "SELECT b.id FROM batch AS b WHERE b.id = ANY($1) AND b.guarantee = $2";
const UNSUPPRESS: &str = "DELETE FROM suppression AS s USING unnest($2::text[]) AS n (recipient) \
     WHERE s.channel = $1 AND s.recipient = n.recipient COLLATE \"C\" RETURNING s.recipient";
/// The first ready chunk of ours in every lane, by seeks in the index.
const READY_LANES: &str = "WITH RECURSIVE mine AS MATERIALIZED ( \
       SELECT array_agg(id) AS ids FROM partition WHERE owner = $1), \
     ready AS ( \
       (SELECT lane FROM chunk WHERE lease_until IS NULL ORDER BY lane LIMIT 1) \
       UNION ALL \
       SELECT (SELECT lane FROM chunk WHERE lease_until IS NULL AND lane > ready.lane \
               ORDER BY lane LIMIT 1) FROM ready WHERE ready.lane IS NOT NULL) \
     SELECT l.id, l.channel, l.destination, l.priority, c.due_at, c.id \
     FROM ready JOIN lane AS l ON l.id = ready.lane CROSS JOIN LATERAL ( \
       SELECT due_at, id FROM chunk WHERE lane = l.id AND lease_until IS NULL \
         AND partition = ANY((SELECT ids FROM mine)::smallint[]) ORDER BY due_at, id LIMIT 1) AS c";
const CLAIMED_CHUNKS: &str = "SELECT l.id, l.channel, l.destination, l.priority, \
     c.id, c.lease_until, c.count \
     FROM chunk AS c JOIN lane AS l ON l.id = c.lane WHERE c.lease_until IS NOT NULL \
       AND c.partition = ANY(ARRAY(SELECT id FROM partition WHERE owner = $1))";

// === impl Work ===

impl Command for Work {
    fn items(&self) -> usize {
        match self {
            Self::Settle { settlements, .. } => settlements.len(),
            Self::Take { tickets, .. } => tickets.iter().map(|one| usize::from(one.count)).sum(),
            Self::Begin { .. }
            | Self::Claim { .. }
            | Self::Issue { .. }
            | Self::Cancel { .. }
            | Self::Suppress { .. }
            | Self::Unsuppress { .. }
            | Self::Bury { .. } => 1,
        }
    }

    fn is_impatient(&self) -> bool {
        matches!(self, Self::Cancel { .. } | Self::Suppress { .. } | Self::Unsuppress { .. })
    }

    fn answer(self) {
        match self {
            Self::Settle { slot, .. } => slot.send(),
            Self::Begin { slot, .. } => slot.send(),
            Self::Take { slot, .. } => slot.send(),
            Self::Claim { slot, .. } => slot.send(),
            Self::Issue { slot, .. } => slot.send(),
            Self::Cancel { slot, .. } => slot.send(),
            Self::Suppress { slot, .. } => slot.send(),
            Self::Unsuppress { slot, .. } => slot.send(),
            Self::Bury { slot, .. } => slot.send(),
        }
    }

    fn refuse(self, error: StoreError) {
        match self {
            Self::Settle { slot, .. } => slot.refuse(error),
            Self::Begin { slot, .. } => slot.refuse(error),
            Self::Take { slot, .. } => slot.refuse(error),
            Self::Claim { slot, .. } => slot.refuse(error),
            Self::Issue { slot, .. } => slot.refuse(error),
            Self::Cancel { slot, .. } => slot.refuse(error),
            Self::Suppress { slot, .. } => slot.refuse(error),
            Self::Unsuppress { slot, .. } => slot.refuse(error),
            Self::Bury { slot, .. } => slot.refuse(error),
        }
    }
}

// === impl WorkDesk ===

impl Desk for WorkDesk {
    type Command = Work;

    async fn round(
        &mut self,
        session: &Session,
        commands: &mut [Asked<Work>],
    ) -> Result<(), Interrupted> {
        self.read_anew(session).await?;
        if commands.is_empty() {
            return Ok(());
        }
        // A withdrawal has to see a batch's chunks as they are at one instant, or be run again.
        let withdraws = commands.iter().any(|asked| matches!(asked.command, Work::Cancel { .. }));
        let isolation = if withdraws { "REPEATABLE READ" } else { "READ COMMITTED" };
        let begin = format!("BEGIN ISOLATION LEVEL {isolation}; {LOG_WRITERS}");
        let shared = Arc::clone(&self.shared);
        let mut round = Round::begin(session, &shared, Role::Work, &begin).await?;
        self.fenced(&mut round, commands).await?;
        self.others(&mut round, commands).await?;
        self.claims(&mut round, commands).await?;
        let woke = round.woke;
        round.commit().await?;
        if woke {
            self.shared.wake();
        }
        Ok(())
    }

    async fn connected(&mut self, session: &Session) -> Result<(), Interrupted> {
        session.client.batch_execute(&format!("LISTEN {CHANNEL}")).await?;
        self.shared.board().distrust_all();
        self.read_anew(session).await?;
        self.shared.wake();
        Ok(())
    }

    fn wakes_at(&self) -> Option<Instant> {
        self.shared.produces.then(|| self.read_at + BACKSTOP)
    }

    fn undone(&mut self) {
        let mut board = self.shared.board();
        board.finish_reading();
        board.distrust();
    }
}

impl WorkDesk {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        let read_at = shared.clock.monotonic();
        Self { shared: Arc::clone(shared), contents: Contents::default(), read_at }
    }

    /// What is fenced by epochs, in one flight: outcomes, marks, tickets.
    async fn fenced(
        &mut self,
        round: &mut Round<'_>,
        commands: &mut [Asked<Work>],
    ) -> Result<(), Interrupted> {
        let mut chunks: BTreeSet<ChunkId> = BTreeSet::new();
        for asked in commands.iter() {
            if let Work::Settle { settlements, .. } = &asked.command {
                chunks.extend(settlements.iter().map(|settlement| settlement.chunk));
            } else if let Work::Begin { marks, .. } = &asked.command {
                chunks.extend(marks.iter().map(|mark| mark.chunk));
            } else if let Work::Take { tickets, .. } = &asked.command {
                chunks.extend(tickets.iter().map(|ticket| ticket.chunk));
            }
        }
        if chunks.is_empty() {
            return Ok(());
        }
        let chunks: Vec<i64> = chunks.iter().map(|chunk| chunk.0.cast_signed()).collect();
        round.hold(LOCK, &[&chunks]).await?;
        for asked in commands.iter_mut() {
            if let Work::Settle { settlements, slot } = &mut asked.command {
                slot.fill(Ok(super::settle::settle(round, settlements).await?));
            } else if let Work::Begin { marks, slot } = &mut asked.command {
                slot.fill(Ok(begin(round, marks).await?));
            } else if let Work::Take { tickets, now, lease, slot } = &mut asked.command {
                slot.fill(Ok(self.take(round, tickets, (*now, *lease)).await?));
            }
        }
        Ok(())
    }

    /// Withdrawals, the suppression list, and what processes left that are gone.
    async fn others(
        &mut self,
        round: &mut Round<'_>,
        commands: &mut [Asked<Work>],
    ) -> Result<(), Interrupted> {
        for asked in commands {
            if let Work::Cancel { target, tenant, now, slot } = &mut asked.command {
                // What was settled in this transaction counts.
                round.flush().await?;
                slot.fill(Ok(super::cancel::cancel(round, *target, tenant, *now).await?));
            } else if let Work::Suppress { suppressions, slot } = &mut asked.command {
                for one in suppressions.iter() {
                    round.suppress(one.clone());
                }
                slot.fill(Ok(()));
            } else if let Work::Unsuppress { channel, recipients, slot } = &mut asked.command {
                round.flush().await?;
                slot.fill(Ok(unsuppress(round, channel, recipients).await?));
            } else if let Work::Bury { worker, is_orderly, now, slot } = &mut asked.command {
                slot.fill(Ok(super::bury::bury(round, *worker, *is_orderly, *now).await?));
            }
        }
        Ok(())
    }

    async fn claims(
        &mut self,
        round: &mut Round<'_>,
        commands: &mut [Asked<Work>],
    ) -> Result<(), Interrupted> {
        for asked in commands {
            if let Work::Claim { request, slot } = &mut asked.command {
                slot.fill(Ok(self.claim(round, *request).await?));
            } else if let Work::Issue { request, slot } = &mut asked.command {
                slot.fill(Ok(self.issue(round, *request).await?));
            }
        }
        Ok(())
    }

    /// Reads from the database what the board should know, if that may be less than it should.
    async fn read_anew(&mut self, session: &Session) -> Result<(), Interrupted> {
        let now = self.shared.clock.monotonic();
        let (is_stale, is_filter_stale) = {
            let board = self.shared.board();
            (board.is_stale() || now >= self.read_at + BACKSTOP, board.is_filter_stale())
        };
        if is_filter_stale {
            self.read_filter(session).await?;
        }
        if !is_stale || !self.shared.produces {
            return Ok(());
        }
        self.read_at = now;
        let worker = self.shared.worker();
        self.shared.board().start_reading();
        let ready = ask(session, READY_LANES, &[&worker]).await?;
        let claimed = ask(session, CLAIMED_CHUNKS, &[&worker]).await?;
        let mut board = self.shared.board();
        board.reset();
        for row in &ready {
            let id = LaneId::from(row.try_get::<_, i32>(0)?);
            let first = Place { due_at: table::instant(row, 4)?, chunk: row.try_get(5)? };
            board.found_ready(id, table::lane(row, 1)?, first);
        }
        for row in &claimed {
            let leased = Leased {
                lane: LaneId::from(row.try_get::<_, i32>(0)?),
                chunk: ChunkId(unsigned(row, 4)?),
                until: table::instant(row, 5)?,
                count: small(row.try_get::<_, i32>(6)?)?,
            };
            board.found_leased(leased, &table::lane(row, 1)?);
        }
        board.finish_reading();
        drop(board);
        self.shared.wake();
        Ok(())
    }

    async fn read_filter(&self, session: &Session) -> Result<(), Interrupted> {
        let mut filter = RecipientFilter::new();
        for row in ask(session, "SELECT channel, recipient FROM suppression", &[]).await? {
            filter.insert(row.try_get(0)?, row.try_get(1)?);
        }
        self.shared.board().set_filter(filter);
        Ok(())
    }
}

/// Marks at-most-once deliveries as begun.
async fn begin(round: &mut Round<'_>, marks: &[Mark]) -> Result<Vec<Begun>, Interrupted> {
    let batch_of = |mark: &Mark| round.chunk(mark.chunk).map(|held| held.row.batch.0.cast_signed());
    let batches: Vec<i64> = marks.iter().filter_map(batch_of).collect();
    let at_most_once = i16::from(Guarantee::AtMostOnce.code());
    let rows = round.query(GUARANTEES, &[&batches, &at_most_once]).await?;
    let at_most_once: BTreeSet<u64> =
        rows.iter().map(|row| unsigned(row, 0)).collect::<Result<_, _>>()?;
    let mut answers = Vec::with_capacity(marks.len());
    for mark in marks {
        let held = round.chunk(mark.chunk).filter(|held| {
            held.row.epoch == mark.epoch && held.row.lease_until.is_some() && !held.is_ticket
        });
        let Some(held) = held.cloned() else {
            answers.push(Begun::Stale);
            continue;
        };
        if !at_most_once.contains(&held.row.batch.0) {
            answers.push(Begun::Granted);
        } else if held.row.begun_through.is_some_and(|begun| mark.through <= begun) {
            answers.push(Begun::Stale);
        } else {
            answers.push(Begun::Granted);
            let mut row = held.row;
            row.begun_through = Some(mark.through);
            round.change(Held { row, ..held });
        }
    }
    Ok(answers)
}

async fn unsuppress(
    round: &Round<'_>,
    channel: &Name,
    recipients: &[ByteString],
) -> Result<Vec<bool>, Interrupted> {
    let texts: Vec<&str> = recipients.iter().map(|recipient| &**recipient).collect();
    let rows = round.query(UNSUPPRESS, &[&channel.as_str(), &texts]).await?;
    let mut removed: BTreeSet<&str> =
        rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
    // A recipient that is named twice was there once.
    Ok(texts.iter().map(|recipient| removed.remove(recipient)).collect())
}
