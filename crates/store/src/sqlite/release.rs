//! Broadcasts of which not all batches have their chunks yet (decision 0023): the writer makes each slice in a
//! transaction of its own, between those of callers.

use notification::{BatchId, State, Timestamp};
use rusqlite::{OptionalExtension, params};

use super::rows::signed;
use super::transaction::Transaction;
use crate::StoreError;
use crate::rows::codec::{LogGroup, LogLine, LogRow, decode_log};
use crate::rows::codes::LaneId;
use crate::rows::members::Members;
use crate::rows::model::NewChunk;
use crate::rows::release::{self, WaitingSlice, WaitingState};

#[derive(Debug)]
pub(super) struct WaitingBatch {
    pub(super) id: BatchId,
    pub(super) lane: LaneId,
    pub(super) due_at: Timestamp,
    count: usize,
}

/// The result of a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SliceResult {
    /// There was no slice.
    Nothing,
    /// Chunks: if they are lost, they are made again.
    Chunks,
    /// Rows of the log, which must not be undone once they were read.
    Log,
}

/// The broadcast with the fewest waiting notifications is the first: one of millions does not hold up a small one. Withdrawn
/// batches are written down last. A paused broadcast waits until it is resumed, or withdrawn.
const NEXT: &str = "SELECT broadcast, passed, withdrawn_at FROM unreleased WHERE passed IS NOT NULL \
     AND (withdrawn_at IS NOT NULL OR NOT EXISTS (SELECT 1 FROM pause WHERE scope = 'broadcast/bc_' || broadcast)) \
     ORDER BY withdrawn_at IS NOT NULL, waiting, broadcast LIMIT 1";
/// Due at the time of the broadcast, which may have changed since its batches were stored.
const SLICE: &str = "SELECT id, lane, (SELECT due_at FROM broadcast AS b WHERE b.id = ?1), count \
     FROM batch INDEXED BY batch_of_broadcast \
     WHERE broadcast = ?1 AND id > ?2 ORDER BY id LIMIT ?3";

impl Transaction<'_> {
    /// Makes the next slice of a broadcast that waits.
    pub(super) fn make_slice(&mut self) -> Result<SliceResult, StoreError> {
        let mut select = self.sql(NEXT)?;
        let next = select
            .query_row([], |row| Ok((row.get(0)?, row.get(1)?, WaitingState::new(row.get(2)?))));
        let Some((broadcast, passed, waiting)) = next.optional()? else {
            if self.resume_slice()? {
                return Ok(SliceResult::Chunks);
            }
            // Only after a look that found nothing: until then the writer goes on by itself, and after that it parks.
            self.state.waits = false;
            return Ok(SliceResult::Nothing);
        };
        let slice = self.slice(broadcast, passed)?;
        match waiting {
            WaitingState::Pending => self.release(&slice)?,
            WaitingState::Withdrawn(at) => self.write_off(&slice, at)?,
        }
        let is_logged = waiting != WaitingState::Pending;
        Ok(if is_logged { SliceResult::Log } else { SliceResult::Chunks })
    }

    /// Makes the chunks of the first batches of a broadcast that is sealed in this transaction.
    pub(super) fn release_first(&mut self, broadcast: i64) -> Result<(), StoreError> {
        let slice = self.slice(broadcast, 0)?;
        self.release(&slice)
    }

    /// The next batches of a broadcast behind `passed`.
    pub(super) fn slice(
        &self,
        broadcast: i64,
        passed: i64,
    ) -> Result<WaitingSlice<WaitingBatch>, StoreError> {
        let size = self.state.slicing.batches;
        let mut select = self.sql(SLICE)?;
        // One more, to know whether it is the last slice.
        let rows = select.query_map(params![broadcast, passed, signed(size + 1)], |row| {
            Ok(WaitingBatch {
                id: BatchId(row.get::<_, i64>(0)?.cast_unsigned()),
                lane: row.get(1)?,
                due_at: Timestamp::from_millis(row.get(2)?),
                count: usize::from(row.get::<_, u16>(3)?),
            })
        })?;
        let mut batches: Vec<WaitingBatch> = rows.collect::<Result<_, _>>()?;
        let is_last = batches.len() <= size;
        batches.truncate(size);
        Ok(WaitingSlice { broadcast, batches, is_last })
    }

    /// Makes the chunks of a slice.
    pub(super) fn release(&mut self, slice: &WaitingSlice<WaitingBatch>) -> Result<(), StoreError> {
        let mut released = 0;
        for batch in &slice.batches {
            let rest = self.rest_of(batch)?;
            released += rest.len();
            if rest.is_empty() {
                continue;
            }
            let is_whole = rest.len() == batch.count;
            let chunk = NewChunk::first(batch.id, batch.lane, batch.due_at, rest);
            self.add_chunk(&NewChunk { is_whole, ..chunk })?;
        }
        self.pass(slice, released)
    }

    /// Writes down the members that the totals have as cancelled since `withdrawn_at`.
    fn write_off(
        &mut self,
        slice: &WaitingSlice<WaitingBatch>,
        withdrawn_at: Timestamp,
    ) -> Result<(), StoreError> {
        let line = LogLine::unattempted(withdrawn_at, State::Cancelled);
        let mut written = 0;
        for batch in &slice.batches {
            let rest = self.rest_of(batch)?;
            written += rest.len();
            if !rest.is_empty() {
                let mut row = LogRow::new();
                row.push(&line, rest.iter());
                self.woke = true;
                self.add_log(batch.id, &row)?;
            }
        }
        self.pass(slice, written)
    }

    /// Its members but those that were cancelled one by one.
    pub(super) fn rest_of(&self, batch: &WaitingBatch) -> Result<Members, StoreError> {
        Ok(release::without(batch.count, &self.logged(batch.id)?))
    }

    /// The log of a batch.
    pub(super) fn logged(&self, batch: BatchId) -> Result<Vec<LogGroup>, StoreError> {
        let mut select = self.sql("SELECT entries FROM log WHERE batch = ?1")?;
        let mut rows = select.query([batch.0.cast_signed()])?;
        let mut logged = Vec::new();
        while let Some(row) = rows.next()? {
            logged.extend(decode_log(row.get_ref(0)?.as_blob()?)?);
        }
        Ok(logged)
    }

    /// Notes that a slice is done, with `done` of its members.
    fn pass(&mut self, slice: &WaitingSlice<WaitingBatch>, done: usize) -> Result<(), StoreError> {
        let WaitingSlice { broadcast, batches, is_last } = slice;
        if *is_last {
            self.sql("DELETE FROM unreleased WHERE broadcast = ?1")?.execute([broadcast])?;
            return Ok(());
        }
        let passed = batches.last().map_or(0, |batch| batch.id.0.cast_signed());
        self.sql("UPDATE unreleased SET passed = ?2, waiting = waiting - ?3 WHERE broadcast = ?1")?
            .execute(params![broadcast, passed, signed(done)])?;
        self.state.waits = true;
        Ok(())
    }
}
