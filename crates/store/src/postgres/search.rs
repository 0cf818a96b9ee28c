//! The search index, kept by one process at a time on a session of its own (decision 0053).
//!
//! All processes draw numbers of batches and commit them in any order, and the index must leave out none. So it goes only as far as
//! numbers are *closed*. The last number that was drawn is announced: a transaction that begins later gives none up to it, and those
//! that had begun are waited for. Then no batch up to that number can be written any more, and all that were are seen.

use std::sync::Arc;

use async_trait::async_trait;
use notification::BatchId;
use tokio::sync::Mutex;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row};

use super::Postgres;
use super::columns::{labels_at, signed};
use super::connection::{Connector, PostgresSession};
use super::ingest::NUMBERS;
use super::time::DatabaseTime;
use super::writer::PLANS;
use crate::rows::search::block::Block;
use crate::rows::search::build::{NewRun, RunBuilder};
use crate::rows::search::merge::{MergedPart, PART_POSTINGS, merge};
use crate::rows::search::plan::{
    DROPPED_BLOCKS, MergePlan, NextStep, RUN_BATCHES, RUN_POSTINGS, Run, RunState, next_steps,
};
use crate::rows::search::term::TermKey;
use crate::rows::search::{BlockKey, Blocks};
use crate::{SearchIndex, StoreError};

/// The way to the index.
#[derive(Debug)]
pub(super) struct IndexLink {
    connector: Connector,
    time: DatabaseTime,
    /// Version of this process.
    version: Arc<str>,
    session: Mutex<Option<IndexSession>>,
}

#[derive(Debug)]
struct IndexSession {
    session: PostgresSession,
    time: DatabaseTime,
    announcement: Option<Announcement>,
}

/// A number of a batch that was announced, and is closed once the transactions that had begun are over.
#[derive(Debug)]
struct Announcement {
    through: i64,
    begun: Vec<String>,
}

/// The row of `search_progress`.
struct IndexProgress {
    key: TermKey,
    closed: i64,
    indexed: i64,
}

/// The outcome of a step.
#[derive(Debug, PartialEq, Eq)]
enum Taken {
    /// There is nothing to do, or another process does it.
    Nothing,
    Step,
    Announced(i64),
}

/// Commits without a sync: the steps that a crash of the server undoes are done again.
const BEGIN: &str = "BEGIN; SET LOCAL synchronous_commit = off";
const ONE_AT_A_TIME: &str = "SELECT pg_try_advisory_xact_lock(4782301, 6)";
/// A version before this one, or after it, may know nothing of announcements.
const OTHER_VERSIONS: &str = "SELECT EXISTS (SELECT FROM worker WHERE id > 0 AND version <> $1)";
const SELECT_RUNS: &str =
    "SELECT id, level, first_batch, last_batch, state FROM search_run WHERE id > 0";
const SELECT_PROGRESS: &str =
    "SELECT key_0, key_1, closed, indexed FROM search_progress WHERE is_one";
const SELECT_COUNTS: &str =
    "SELECT id, count FROM batch WHERE id > $1 AND id <= $2 ORDER BY id LIMIT $3";
const SELECT_ITEMS: &str = "SELECT batch.id, count, batch.tenant, items, labels, lane.channel FROM batch \
     JOIN tenant_lane AS lane ON lane.id = batch.lane WHERE batch.id = ANY($1) ORDER BY batch.id";
const ANNOUNCE: &str = "UPDATE search_progress \
     SET announced = greatest(announced, pg_sequence_last_value('batch_number') + $1) WHERE is_one RETURNING announced";
/// Virtual transactions of this database's sessions: those without a number of their own, too. A vacuum gives no numbers.
const BEGUN: &str = "SELECT virtualxid FROM pg_locks JOIN pg_stat_activity AS activity USING (pid) \
     WHERE locktype = 'virtualxid' AND granted AND datname = current_database() AND pid <> pg_backend_pid() \
     AND backend_type IS DISTINCT FROM 'autovacuum worker'";
const ARE_OVER: &str = "SELECT NOT EXISTS (SELECT FROM pg_locks WHERE locktype = 'virtualxid' AND virtualxid = ANY($1))";
const CLOSE: &str = "UPDATE search_progress SET closed = greatest(closed, $1) WHERE is_one";
const SET_INDEXED: &str = "UPDATE search_progress SET indexed = $1 WHERE is_one";
const INSERT_RUN: &str = "INSERT INTO search_run (level, first_batch, last_batch, state) VALUES ($1, $2, $3, $4) RETURNING id";
const INSERT_BLOCKS: &str = "INSERT INTO search_block (run, term, place, postings) \
     SELECT $1, * FROM unnest($2::int8[], $3::int8[], $4::bytea[])";
const UPDATE_RUNS: &str = "UPDATE search_run SET state = $2 WHERE id = ANY($1)";
const DELETE_BLOCKS: &str = "DELETE FROM search_block WHERE ctid = ANY(ARRAY( \
     SELECT ctid FROM search_block WHERE run = $1 ORDER BY term, place LIMIT $2))";
const DELETE_RUN: &str = "DELETE FROM search_run WHERE id = $1";
const AT_OR_BEFORE: &str = "SELECT term, place, postings FROM search_block \
     WHERE run = $1 AND (term, place) <= ($2, $3) ORDER BY term DESC, place DESC LIMIT 1";
const AFTER: &str = "SELECT term, place, postings FROM search_block \
     WHERE run = $1 AND (term, place) > ($2, $3) ORDER BY term, place LIMIT 1";
/// Batches whose recipients are read at once.
const ITEMS_AT_ONCE: usize = 16;
/// The highest number that a batch may have.
const LAST: i64 = (1 << 46) - 1;

#[async_trait]
impl SearchIndex for Postgres {
    async fn advance(&self) -> Result<bool, StoreError> {
        self.index.advance().await
    }
}

// === impl IndexLink ===

impl IndexLink {
    pub(super) fn new(connector: Connector, time: DatabaseTime, version: &str) -> Self {
        Self { connector, time, version: version.into(), session: Mutex::default() }
    }

    /// A session on which anything failed, or whose step was given up, is not used again.
    async fn advance(&self) -> Result<bool, StoreError> {
        let mut place = self.session.lock().await;
        let mut session = if let Some(session) = place.take() {
            session
        } else {
            let session = self.connector.connect(None).await?;
            session.client.batch_execute(PLANS).await?;
            IndexSession { session, time: self.time, announcement: None }
        };
        let has_more = session.advance(&self.version).await?;
        *place = Some(session);
        Ok(has_more)
    }
}

// === impl Blocks for IndexSession ===

impl Blocks for IndexSession {
    async fn at_or_before(&self, run: i64, key: BlockKey) -> Result<Option<Block>, StoreError> {
        let rows = self.rows(AT_OR_BEFORE, &[&run, &key.term, &key.place]).await?;
        Ok(rows.first().map(|row| block_at(row, 0)).transpose()?)
    }

    async fn after(&self, run: i64, key: BlockKey) -> Result<Option<Block>, StoreError> {
        let rows = self.rows(AFTER, &[&run, &key.term, &key.place]).await?;
        Ok(rows.first().map(|row| block_at(row, 0)).transpose()?)
    }
}

// === impl IndexSession ===

impl IndexSession {
    /// Takes a step; true if there may be another one.
    async fn advance(&mut self, version: &str) -> Result<bool, StoreError> {
        let sizes = self.session.sizes_query_at_begin();
        let beside: Vec<&str> = sizes.as_deref().into_iter().collect();
        let (_, mut values) = self.time.query(&self.session.client, BEGIN, &beside).await?;
        self.session.follow_growth(values.pop().flatten()).await?;
        let taken = self.take_step(version).await?;
        self.session.client.batch_execute("COMMIT").await?;
        if let Taken::Announced(through) = taken {
            // Only now: a transaction that begins after the commit knows of it.
            let rows = self.rows(BEGUN, &[]).await?;
            let begun = rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
            self.announcement = Some(Announcement { through, begun });
        }
        Ok(taken != Taken::Nothing)
    }

    async fn take_step(&mut self, version: &str) -> Result<Taken, StoreError> {
        let is_alone: bool = self.row(ONE_AT_A_TIME, &[]).await?.try_get(0)?;
        if !is_alone || self.row(OTHER_VERSIONS, &[&version]).await?.try_get(0)? {
            return Ok(Taken::Nothing);
        }
        let runs = self.rows(SELECT_RUNS, &[]).await?;
        let runs = runs.iter().map(run_at).collect::<Result<Vec<_>, _>>()?;
        for step in next_steps(&runs) {
            match step {
                NextStep::Index => {
                    let taken = self.index().await?;
                    if taken != Taken::Nothing {
                        return Ok(taken);
                    }
                }
                NextStep::Merge(plan) => {
                    let bounds = (plan.first_batch, PART_POSTINGS);
                    let part = merge(self, plan.output, &plan.inputs, bounds).await?;
                    self.extend(&plan, part).await?;
                    return Ok(Taken::Step);
                }
                NextStep::Drop(run) => {
                    self.drop_blocks(run).await?;
                    return Ok(Taken::Step);
                }
            }
        }
        Ok(Taken::Nothing)
    }

    /// Adds a run of closed batches, or has more of them closed.
    async fn index(&mut self) -> Result<Taken, StoreError> {
        let progress = self.progress().await?;
        let IndexProgress { key, closed, indexed } = progress;
        if let Some(batches) = self.next_batches(indexed, closed).await? {
            self.add_run_of(&batches, key).await?;
            return Ok(Taken::Step);
        }
        if let Some(Announcement { through, begun }) = &self.announcement {
            if !self.row(ARE_OVER, &[begun]).await?.try_get::<_, bool>(0)? {
                return Ok(Taken::Nothing);
            }
            self.execute(CLOSE, &[through]).await?;
            self.announcement = None;
            return Ok(Taken::Step);
        }
        if self.next_batches(indexed, LAST).await?.is_none() {
            return Ok(Taken::Nothing);
        }
        // A value of the sequence stands for the numbers up to the next one.
        let rest = i64::try_from(NUMBERS).unwrap_or(0) - 1;
        Ok(Taken::Announced(self.row(ANNOUNCE, &[&rest]).await?.try_get(0)?))
    }

    async fn progress(&self) -> Result<IndexProgress, StoreError> {
        let row = self.row(SELECT_PROGRESS, &[]).await?;
        let key = [row.try_get::<_, i64>(0)?, row.try_get(1)?].map(i64::cast_unsigned);
        Ok(IndexProgress { key: TermKey(key), closed: row.try_get(2)?, indexed: row.try_get(3)? })
    }

    /// The first batches with numbers after `after` and up to `through`, if there are enough for a run. Their contents are not read.
    async fn next_batches(&self, after: i64, through: i64) -> Result<Option<Vec<i64>>, StoreError> {
        let (mut batches, mut notifications) = (Vec::new(), 0);
        for row in self.rows(SELECT_COUNTS, &[&after, &through, &signed(RUN_BATCHES)]).await? {
            batches.push(row.try_get(0)?);
            notifications += usize::try_from(row.try_get::<_, i32>(1)?).unwrap_or(0);
            if notifications >= RUN_POSTINGS {
                return Ok(Some(batches));
            }
        }
        Ok((batches.len() >= RUN_BATCHES).then_some(batches))
    }

    /// Adds a run of the first of these batches: of as many as one may have.
    async fn add_run_of(&self, batches: &[i64], key: TermKey) -> Result<(), StoreError> {
        let damaged = |_| StoreError::Damaged("a batch".to_owned());
        let mut run = RunBuilder::new(key);
        for some in batches.chunks(ITEMS_AT_ONCE) {
            for row in self.rows(SELECT_ITEMS, &[&some]).await? {
                let count = u16::try_from(row.try_get::<_, i32>(1)?).map_err(damaged)?;
                let items = row.try_get::<_, Vec<u8>>(3)?.into();
                let batch = (batch_id_at(&row, 0)?, count);
                let whose = (row.try_get(2)?, row.try_get(5)?);
                run.add(batch, whose, items, labels_at(&row, 4)?)?;
                if run.is_full() {
                    break;
                }
            }
            if run.is_full() {
                break;
            }
        }
        let Some(NewRun { first_batch, last_batch, blocks }) = run.finish() else { return Ok(()) };
        let run = self.add_run(0, (first_batch, last_batch), RunState::Complete).await?;
        self.add_blocks(run, blocks).await?;
        self.execute(SET_INDEXED, &[&last_batch.0.cast_signed()]).await?;
        Ok(())
    }

    /// Adds a part of a merged run.
    async fn extend(&self, plan: &MergePlan, part: MergedPart) -> Result<(), StoreError> {
        let MergePlan { output, level, first_batch, last_batch, inputs } = plan;
        let run = match output {
            Some(run) => *run,
            None => self.add_run(*level, (*first_batch, *last_batch), RunState::Unfinished).await?,
        };
        self.add_blocks(run, part.blocks).await?;
        if part.is_last {
            // Together: a reader sees the run or those that it replaces.
            self.set_runs(&[run], RunState::Complete).await?;
            self.set_runs(inputs, RunState::Dropped).await?;
        }
        Ok(())
    }

    async fn add_run(
        &self,
        level: u8,
        (first, last): (BatchId, BatchId),
        state: RunState,
    ) -> Result<i64, Error> {
        let numbers = (first.0.cast_signed(), last.0.cast_signed());
        let (level, state) = (i16::from(level), state as i16);
        self.row(INSERT_RUN, &[&level, &numbers.0, &numbers.1, &state]).await?.try_get(0)
    }

    async fn add_blocks(&self, run: i64, blocks: Vec<Block>) -> Result<(), Error> {
        let (mut terms, mut places, mut postings) = (Vec::new(), Vec::new(), Vec::new());
        for block in blocks {
            terms.push(block.first.term);
            places.push(block.first.place);
            postings.push(block.postings);
        }
        self.execute(INSERT_BLOCKS, &[&run, &terms, &places, &postings]).await?;
        Ok(())
    }

    async fn set_runs(&self, runs: &[i64], state: RunState) -> Result<(), Error> {
        self.execute(UPDATE_RUNS, &[&runs, &(state as i16)]).await?;
        Ok(())
    }

    /// Removes some blocks of a run, and the run after its last one.
    async fn drop_blocks(&self, run: i64) -> Result<(), Error> {
        let removed = self.execute(DELETE_BLOCKS, &[&run, &signed(DROPPED_BLOCKS)]).await?;
        if removed < DROPPED_BLOCKS as u64 {
            self.execute(DELETE_RUN, &[&run]).await?;
        }
        Ok(())
    }

    async fn rows(
        &self,
        sql: &'static str,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, Error> {
        self.session.client.query(&self.session.prepared(sql).await?, parameters).await
    }

    async fn row(
        &self,
        sql: &'static str,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<Row, Error> {
        self.session.client.query_one(&self.session.prepared(sql).await?, parameters).await
    }

    async fn execute(
        &self,
        sql: &'static str,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<u64, Error> {
        self.session.client.execute(&self.session.prepared(sql).await?, parameters).await
    }
}

/// A row of [`SELECT_RUNS`].
pub(super) fn run_at(row: &Row) -> Result<Run, StoreError> {
    let damaged = |_| StoreError::Damaged("a run of the search index".to_owned());
    Ok(Run {
        id: row.try_get(0)?,
        level: u8::try_from(row.try_get::<_, i16>(1)?).map_err(damaged)?,
        first_batch: batch_id_at(row, 2)?,
        last_batch: batch_id_at(row, 3)?,
        state: RunState::from_code(i64::from(row.try_get::<_, i16>(4)?))?,
    })
}

/// The block whose first column is `column`.
pub(super) fn block_at(row: &Row, column: usize) -> Result<Block, Error> {
    let first = BlockKey { term: row.try_get(column)?, place: row.try_get(column + 1)? };
    Ok(Block { first, postings: row.try_get(column + 2)? })
}

pub(super) fn batch_id_at(row: &Row, column: usize) -> Result<BatchId, Error> {
    Ok(BatchId(row.try_get::<_, i64>(column)?.cast_unsigned()))
}
