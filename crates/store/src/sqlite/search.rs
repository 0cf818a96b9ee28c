//! The search index: worked out beside the writer, from rows that do not change, and written by it.
//!
//! A step costs the writer the rows that it writes, about half a MiB, without a sync. A power cut may undo the last steps, and then the
//! batches behind the cursor are indexed again: log and index go back together.

use async_trait::async_trait;
use notification::BatchId;
use rusqlite::{CachedStatement, OptionalExtension, Params, Row, params};

use super::Sqlite;
use super::read::Snapshot;
use super::rows::{labels_at, signed};
use super::transaction::Transaction;
use super::writer::Durability;
use crate::rows::search::block::Block;
use crate::rows::search::build::{NewRun, RunBuilder};
use crate::rows::search::merge::{MergedPart, PART_POSTINGS, merge};
use crate::rows::search::plan::{
    DROPPED_BLOCKS, MergePlan, NextStep, RUN_BATCHES, RUN_POSTINGS, Run, RunState, next_steps,
};
use crate::rows::search::term::TermKey;
use crate::rows::search::{BlockKey, Blocks, at_once};
use crate::{SearchIndex, StoreError};

/// A step that is worked out, and not written yet.
enum IndexStep {
    /// A run of batches that were not indexed.
    Add(NewRun),
    /// A part of a merged run.
    Extend(MergePlan, MergedPart),
    /// Some blocks of a run are removed.
    Drop(i64),
}

#[async_trait]
impl SearchIndex for Sqlite {
    async fn advance(&self) -> Result<bool, StoreError> {
        let _turn = self.indexing.lock().await;
        let Some(step) = self.reader.read(Snapshot::next_index_step).await? else {
            return Ok(false);
        };
        self.index(move |transaction| transaction.take_index_step(&step)).await?;
        Ok(true)
    }
}

// === impl Sqlite ===

impl Sqlite {
    /// Writes to the index. Among what comes in: the index takes nothing of the room that is kept for accepted notifications.
    async fn index<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Transaction<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.accept(0, Durability::WithTheNext, work).await
    }
}

// === impl Snapshot ===

impl Blocks for Snapshot {
    async fn at_or_before(&self, run: i64, key: BlockKey) -> Result<Option<Block>, StoreError> {
        let select = self.connection.prepare_cached(
            "SELECT term, place, postings FROM search_block \
             WHERE run = ?1 AND (term, place) <= (?2, ?3) ORDER BY term DESC, place DESC LIMIT 1",
        )?;
        block(select, params![run, key.term, key.place])
    }

    async fn after(&self, run: i64, key: BlockKey) -> Result<Option<Block>, StoreError> {
        give_way();
        let select = self.connection.prepare_cached(
            "SELECT term, place, postings FROM search_block \
             WHERE run = ?1 AND (term, place) > (?2, ?3) ORDER BY term, place LIMIT 1",
        )?;
        block(select, params![run, key.term, key.place])
    }
}

impl Snapshot {
    /// The key of the terms.
    pub(super) fn term_key(&self) -> Result<Option<TermKey>, StoreError> {
        let (one, other) = (self.meta("search_key_0")?, self.meta("search_key_1")?);
        Ok(one.zip(other).map(|(one, other)| TermKey([one, other].map(i64::cast_unsigned))))
    }

    /// The last batch that is indexed: all before it are, too. Batches are committed in the order of their numbers.
    pub(super) fn search_cursor(&self) -> Result<BatchId, StoreError> {
        Ok(BatchId(self.meta("search_cursor")?.unwrap_or(0).cast_unsigned()))
    }

    /// The runs that can be looked up.
    pub(super) fn complete_runs(&self) -> Result<Vec<Run>, StoreError> {
        let mut runs = self.runs()?;
        runs.retain(|run| run.state == RunState::Complete);
        Ok(runs)
    }

    fn runs(&self) -> Result<Vec<Run>, StoreError> {
        let mut select = self
            .connection
            .prepare_cached("SELECT id, level, first_batch, last_batch, state FROM search_run")?;
        let mut rows = select.query([])?;
        let mut runs = Vec::new();
        while let Some(row) = rows.next()? {
            runs.push(Run {
                id: row.get(0)?,
                level: row.get(1)?,
                first_batch: batch_at(row, 2)?,
                last_batch: batch_at(row, 3)?,
                state: RunState::from_code(row.get(4)?)?,
            });
        }
        Ok(runs)
    }

    pub(super) fn meta(&self, key: &str) -> Result<Option<i64>, StoreError> {
        let mut select = self.connection.prepare_cached("SELECT value FROM meta WHERE key = ?1")?;
        Ok(select.query_row([key], |row| row.get(0)).optional()?)
    }

    /// Works out the next step; `None` if there is none.
    fn next_index_step(&self) -> Result<Option<IndexStep>, StoreError> {
        for step in next_steps(&self.runs()?) {
            let step = match step {
                NextStep::Index => self.next_run()?,
                NextStep::Drop(run) => Some(IndexStep::Drop(run)),
                NextStep::Merge(plan) => {
                    let bounds = (plan.first_batch, PART_POSTINGS);
                    let part = at_once(merge(self, plan.output, &plan.inputs, bounds))?;
                    Some(IndexStep::Extend(plan, part))
                }
            };
            if step.is_some() {
                return Ok(step);
            }
        }
        Ok(None)
    }

    /// The run of the next batches, if there are enough for one.
    fn next_run(&self) -> Result<Option<IndexStep>, StoreError> {
        let cursor = self.search_cursor()?;
        let Some(key) = self.term_key()? else { return Ok(None) };
        if !self.has_run_behind(cursor)? {
            return Ok(None);
        }
        let mut select = self.connection.prepare_cached(
            "SELECT batch.id, batch.tenant, count, items, labels, channel FROM batch \
             JOIN tenant_lane AS lane ON lane.id = batch.lane WHERE batch.id > ?1 ORDER BY batch.id LIMIT ?2",
        )?;
        let mut rows = select.query(params![cursor.0.cast_signed(), signed(RUN_BATCHES)])?;
        let mut run = RunBuilder::new(key);
        while !run.is_full()
            && let Some(row) = rows.next()?
        {
            give_way();
            let batch = batch_at(row, 0)?;
            let whose = (row.get_ref(1)?.as_str()?, row.get_ref(5)?.as_str()?);
            let items = row.get::<_, Vec<u8>>(3)?.into();
            run.add((batch, row.get(2)?), whose, items, labels_at(row, 4)?)?;
        }
        Ok(run.finish().map(IndexStep::Add))
    }

    /// True if there are enough batches behind `cursor` for a run. Their contents are not read.
    fn has_run_behind(&self, cursor: BatchId) -> Result<bool, StoreError> {
        let mut select = self
            .connection
            .prepare_cached("SELECT count FROM batch WHERE id > ?1 ORDER BY id LIMIT ?2")?;
        let mut rows = select.query(params![cursor.0.cast_signed(), signed(RUN_BATCHES)])?;
        let (mut batches, mut notifications) = (0, 0);
        while let Some(row) = rows.next()? {
            batches += 1;
            notifications += usize::from(row.get::<_, u16>(0)?);
            if notifications >= RUN_POSTINGS {
                return Ok(true);
            }
        }
        Ok(batches >= RUN_BATCHES)
    }
}

// === impl Transaction ===

impl Transaction<'_> {
    fn take_index_step(&mut self, step: &IndexStep) -> Result<(), StoreError> {
        match step {
            IndexStep::Add(NewRun { first_batch, last_batch, blocks }) => {
                let run = self.add_run(0, (*first_batch, *last_batch), RunState::Complete)?;
                self.add_blocks(run, blocks)?;
                self.sql("INSERT OR REPLACE INTO meta (key, value) VALUES ('search_cursor', ?1)")?
                    .execute([last_batch.0.cast_signed()])?;
            }
            IndexStep::Extend(plan, part) => {
                let MergePlan { output, level, first_batch, last_batch, inputs } = plan;
                let run = if let Some(run) = output {
                    *run
                } else {
                    let numbers = (*first_batch, *last_batch);
                    self.add_run(*level, numbers, RunState::Unfinished)?
                };
                self.add_blocks(run, &part.blocks)?;
                if part.is_last {
                    // Together: a reader sees the run or those that it replaces.
                    self.set_run(run, RunState::Complete)?;
                    for input in inputs {
                        self.set_run(*input, RunState::Dropped)?;
                    }
                }
            }
            IndexStep::Drop(run) => self.drop_blocks(*run)?,
        }
        Ok(())
    }

    fn add_run(
        &self,
        level: u8,
        (first, last): (BatchId, BatchId),
        state: RunState,
    ) -> Result<i64, StoreError> {
        let mut insert = self.sql(
            "INSERT INTO search_run (level, first_batch, last_batch, state) VALUES (?1, ?2, ?3, ?4)",
        )?;
        let numbers = (first.0.cast_signed(), last.0.cast_signed());
        Ok(insert.insert(params![level, numbers.0, numbers.1, state as i64])?)
    }

    fn add_blocks(&self, run: i64, blocks: &[Block]) -> Result<(), StoreError> {
        let mut insert = self
            .sql("INSERT INTO search_block (run, term, place, postings) VALUES (?1, ?2, ?3, ?4)")?;
        for block in blocks {
            let BlockKey { term, place } = block.first;
            insert.execute(params![run, term, place, block.postings])?;
        }
        Ok(())
    }

    fn set_run(&self, run: i64, state: RunState) -> Result<(), StoreError> {
        self.sql("UPDATE search_run SET state = ?2 WHERE id = ?1")?
            .execute(params![run, state as i64])?;
        Ok(())
    }

    /// Removes some blocks of a run, and the run after its last one.
    fn drop_blocks(&self, run: i64) -> Result<(), StoreError> {
        let mut delete = self.sql(
            "DELETE FROM search_block \
             WHERE id IN (SELECT id FROM search_block WHERE run = ?1 ORDER BY term, place LIMIT ?2)",
        )?;
        if delete.execute(params![run, signed(DROPPED_BLOCKS)])? < DROPPED_BLOCKS {
            self.sql("DELETE FROM search_run WHERE id = ?1")?.execute([run])?;
        }
        Ok(())
    }

    /// Takes runs out of which no batch is left; their blocks are removed by later steps. True if there was one.
    pub(super) fn drop_empty_runs(&self) -> Result<bool, StoreError> {
        let mut select =
            self.sql("SELECT id, first_batch, last_batch FROM search_run WHERE state = 1")?;
        let runs = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        let runs: Vec<(i64, i64, i64)> = runs.collect::<Result<_, _>>()?;
        let mut has_any = false;
        for (run, first, last) in runs {
            let mut select =
                self.sql("SELECT id FROM batch WHERE id >= ?1 AND id <= ?2 LIMIT 1")?;
            if !select.exists([first, last])? {
                self.set_run(run, RunState::Dropped)?;
                has_any = true;
            }
        }
        Ok(has_any)
    }
}

/// Lets threads run that wait for this processor. A step computes for 10 ms and more, and without this a kernel that does not preempt
/// lets it go on until its next tick, which is up to 4 ms away on Linux, while a request waits. Called about every 0.1 ms; a look-up that
/// reads on from block to block calls it, too.
fn give_way() {
    std::thread::yield_now();
}

/// The one block that a statement gives, if it gives any.
fn block(
    mut select: CachedStatement<'_>,
    parameters: impl Params,
) -> Result<Option<Block>, StoreError> {
    let mut rows = select.query(parameters)?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let first = BlockKey { term: row.get(0)?, place: row.get(1)? };
    Ok(Some(Block { first, postings: row.get(2)? }))
}

fn batch_at(row: &Row<'_>, column: usize) -> Result<BatchId, StoreError> {
    Ok(BatchId(row.get::<_, i64>(column)?.cast_unsigned()))
}
