//! Broadcasts of which not all batches have their chunks yet (decision 0023): released slice by slice, each slice a
//! transaction of its own, by the process that sealed them or by any other one.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use flow::Tasks;
use notification::{BatchId, State, Timestamp};
use tokio::sync::Notify;

use super::columns::signed;
use super::placement::DestinationHash;
use super::request::{WriterHandle, WriterRequest};
use super::transaction::{RunError, Transaction, Writes};
use crate::StoreError;
use crate::rows::codec::{LogGroup, LogLine, LogRow, decode_log};
use crate::rows::codes::LaneId;
use crate::rows::members::Members;
use crate::rows::model::NewChunk;
use crate::rows::release::{self, Slicing, WaitingSlice};

/// Has slices made for as long as there are any.
#[derive(Debug)]
pub(super) struct Releaser {
    intake: WriterHandle,
    work: WriterHandle,
    /// Tells that a broadcast may wait for its next slice.
    waiting: Arc<Notify>,
}

/// Makes the chunks of one slice, or has those of one be due that were put away; whether there was one. Nothing of it is logged.
#[derive(Debug)]
pub(super) struct ReleaseSlice;

/// Writes one slice of a withdrawn broadcast to the log; whether there was one.
#[derive(Debug)]
pub(super) struct LogWithdrawn;

#[derive(Debug)]
pub(super) struct WaitingBatch {
    pub(super) id: i64,
    pub(super) lane: LaneId,
    destination: DestinationHash,
    pub(super) due_at: Timestamp,
    count: usize,
    /// Of its members, those that have not ended.
    pub(super) rest: Members,
}

/// The broadcast that waits for least is the first: one of millions does not hold up a small one. Another process that makes a
/// slice of one holds its row. One that is paused waits until it is resumed, or withdrawn.
const NEXT_RELEASE: &str = "SELECT broadcast, passed FROM unreleased \
     WHERE passed IS NOT NULL AND withdrawn_at IS NULL \
     AND NOT EXISTS (SELECT FROM pause WHERE scope = 'broadcast/bc_' || broadcast) ORDER BY waiting, broadcast LIMIT 1 FOR UPDATE SKIP LOCKED";
const NEXT_WRITE_OFF: &str = "SELECT broadcast, passed, withdrawn_at FROM unreleased \
     WHERE passed IS NOT NULL AND withdrawn_at IS NOT NULL ORDER BY waiting, broadcast LIMIT 1 FOR UPDATE SKIP LOCKED";

#[async_trait]
impl WriterRequest for ReleaseSlice {
    type Answer = bool;

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<bool, RunError> {
        let rows = transaction.rows(NEXT_RELEASE, &[]).await?;
        let Some(row) = rows.first() else { return transaction.resume_slice().await };
        let mut slice = transaction.slice(row.try_get(0)?, row.try_get(1)?).await?;
        // What was cancelled while it waited has ended by its line in the log, and would be sent if it got a chunk.
        transaction.leave_out_ended(&mut slice).await?;
        transaction.release(&slice).await?;
        Ok(true)
    }
}

#[async_trait]
impl WriterRequest for LogWithdrawn {
    type Answer = bool;

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<bool, RunError> {
        let rows = transaction.rows(NEXT_WRITE_OFF, &[]).await?;
        let Some(row) = rows.first() else { return Ok(false) };
        let withdrawn_at = Timestamp::from_millis(row.try_get(2)?);
        let mut slice = transaction.slice(row.try_get(0)?, row.try_get(1)?).await?;
        transaction.leave_out_ended(&mut slice).await?;
        let line = LogLine::unattempted(withdrawn_at, State::Cancelled);
        let mut writes = Writes::default();
        for batch in slice.batches.iter().filter(|batch| !batch.rest.is_empty()) {
            // The totals have them as cancelled since then.
            let mut row = LogRow::new();
            row.push(&line, batch.rest.iter());
            writes.log(batch.number(), &row);
        }
        transaction.write(writes).await?;
        transaction.pass(&slice).await?;
        Ok(true)
    }
}

// === impl WaitingBatch ===

impl WaitingBatch {
    pub(super) fn number(&self) -> BatchId {
        BatchId(self.id.cast_unsigned())
    }
}

// === impl Releaser ===

impl Releaser {
    pub(super) fn new(intake: &WriterHandle, work: &WriterHandle, waiting: &Arc<Notify>) -> Self {
        let (intake, work) = (intake.clone(), work.clone());
        Self { intake, work, waiting: Arc::clone(waiting) }
    }

    /// Goes on by itself, unless a test asks for each slice.
    pub(super) fn start(self, tasks: &mut Tasks, slicing: Slicing) {
        if slicing.goes_on {
            tasks.spawn("store-release", self.run());
        }
    }

    /// Makes slices whenever there are some, and looks at once for those of a process that is gone.
    async fn run(self) {
        loop {
            // The writer logs what is refused. It is tried again with the next broadcast that waits, or by the next process.
            while self.make_slice().await.unwrap_or(false) {}
            self.waiting.notified().await;
        }
    }

    /// Makes one slice; whether there was one. Requests of callers have their turn before the next.
    pub(super) async fn make_slice(&self) -> Result<bool, StoreError> {
        // Each by the writer that may: that of `work` alone writes to the log.
        let released = self.intake.run(ReleaseSlice).await;
        if released == Ok(true) {
            return released;
        }
        // What is withdrawn does not wait for a slice that is refused.
        if self.work.run(LogWithdrawn).await? { Ok(true) } else { released }
    }
}

// === impl Transaction ===

impl Transaction<'_> {
    /// The next batches of a broadcast behind `passed`. The caller holds its row.
    pub(super) async fn slice(
        &mut self,
        broadcast: i64,
        passed: i64,
    ) -> Result<WaitingSlice<WaitingBatch>, RunError> {
        // Due at the time of the broadcast, which may have changed since its batches were stored.
        let select = "SELECT batch.id, batch.lane, (SELECT due_at FROM broadcast AS b WHERE b.id = $1), count, channel, destination \
             FROM batch JOIN tenant_lane AS lane ON lane.id = batch.lane \
             WHERE broadcast = $1 AND batch.id > $2 ORDER BY batch.id LIMIT $3";
        let size = self.state.slicing.batches;
        // One more, to know whether it is the last slice.
        let mut rows = self.rows(select, &[&broadcast, &passed, &signed(size + 1)]).await?;
        let is_last = rows.len() <= size;
        rows.truncate(size);
        let mut batches = Vec::with_capacity(rows.len());
        for row in &rows {
            let count = usize::try_from(row.try_get::<_, i32>(3)?).unwrap_or(0);
            batches.push(WaitingBatch {
                id: row.try_get(0)?,
                lane: i64::from(row.try_get::<_, i32>(1)?),
                destination: DestinationHash::of(row.try_get(4)?, row.try_get(5)?),
                due_at: Timestamp::from_millis(row.try_get(2)?),
                count,
                rest: Members::all(count),
            });
        }
        Ok(WaitingSlice { broadcast, batches, is_last })
    }

    /// Makes the chunks of a slice.
    pub(super) async fn release(
        &mut self,
        slice: &WaitingSlice<WaitingBatch>,
    ) -> Result<(), RunError> {
        let (mut writes, mut chunks) = (Writes::default(), Vec::new());
        for batch in slice.batches.iter().filter(|batch| !batch.rest.is_empty()) {
            let is_whole = batch.rest.len() == batch.count;
            let (id, rest) = (batch.number(), batch.rest.clone());
            let chunk = NewChunk::first(id, batch.lane, batch.due_at, rest);
            chunks.push((batch.destination, NewChunk { is_whole, ..chunk }));
        }
        self.placed(chunks).for_each(|chunk| writes.chunk(chunk));
        self.write(writes).await?;
        self.pass(slice).await
    }

    /// Takes out what was cancelled one by one.
    pub(super) async fn leave_out_ended(
        &mut self,
        slice: &mut WaitingSlice<WaitingBatch>,
    ) -> Result<(), RunError> {
        let ids: Vec<i64> = slice.batches.iter().map(|batch| batch.id).collect();
        let logged = self.logged(&ids).await?;
        for batch in &mut slice.batches {
            if let Some(log) = logged.get(&batch.id) {
                batch.rest = release::without(batch.count, log);
            }
        }
        Ok(())
    }

    /// The log of batches.
    pub(super) async fn logged(
        &mut self,
        batches: &[i64],
    ) -> Result<HashMap<i64, Vec<LogGroup>>, RunError> {
        let select = "SELECT batch, entries FROM log WHERE batch = ANY($1)";
        let mut logged: HashMap<i64, Vec<LogGroup>> = HashMap::new();
        for row in &self.rows(select, &[&batches]).await? {
            logged.entry(row.try_get(0)?).or_default().extend(decode_log(row.try_get(1)?)?);
        }
        Ok(logged)
    }

    /// A slice is done.
    async fn pass(&mut self, slice: &WaitingSlice<WaitingBatch>) -> Result<(), RunError> {
        let WaitingSlice { broadcast, batches, is_last } = slice;
        if *is_last {
            self.execute("DELETE FROM unreleased WHERE broadcast = $1", &[broadcast]).await?;
            return Ok(());
        }
        let update =
            "UPDATE unreleased SET passed = $2, waiting = waiting - $3 WHERE broadcast = $1";
        let passed = batches.last().map_or(0, |batch| batch.id);
        let done: usize = batches.iter().map(|batch| batch.rest.len()).sum();
        self.execute(update, &[broadcast, &passed, &signed(done)]).await?;
        // Sealing makes the first slice only: the task that makes the rest is told.
        self.effects.waits = true;
        Ok(())
    }
}
