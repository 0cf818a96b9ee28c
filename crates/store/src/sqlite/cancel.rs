//! Cancelling: unclaimed notifications can be cancelled.

use notification::{BatchId, BroadcastId, Name, NotificationId, Scope, State, Timestamp};
use rusqlite::{OptionalExtension, params};

use super::Sqlite;
use super::rows::{self, select_chunk, signed};
use super::transaction::Transaction;
use super::writer::Durability::Synced;
use crate::cancel::CancelCursor;
use crate::rows::codec::LogLine;
use crate::rows::members::Members;
use crate::rows::model::ChunkRow;
use crate::rows::release::{CancelSlice, Cancellation, UnreleasedPart, WaitingState};
use crate::{CancelScope, Cancelled, StoreError};

// === impl Sqlite ===

impl Sqlite {
    /// Withdraws the pending notifications of a broadcast, slice by slice. The slices that are done stay done if this ends early.
    pub(super) async fn cancel_broadcast(
        &self,
        id: BroadcastId,
        tenant: Name,
        now: Timestamp,
    ) -> Result<Option<Cancelled>, StoreError> {
        let (mut cancellation, scope) = (Cancellation::default(), Scope::Broadcast(id));
        let mut request = CancelScope { tenant, scope, from: None, is_dry: false, now };
        loop {
            let next = request.clone();
            let cancel =
                move |transaction: &mut Transaction<'_>| transaction.cancel_slice(id, &next);
            let Some(slice) = self.write(Synced, cancel).await? else { return Ok(None) };
            request.from = cancellation.add(slice);
            if request.from.is_none() {
                return Ok(Some(cancellation.answer()));
            }
        }
    }
}

// === impl Transaction ===

impl Transaction<'_> {
    pub(super) fn cancel_one(
        &mut self,
        id: NotificationId,
        tenant: &Name,
        now: Timestamp,
    ) -> Result<Option<Cancelled>, StoreError> {
        let mut select = self.sql(
            "SELECT accepted_at, count, broadcast FROM batch WHERE id = ?1 AND tenant = ?2 \
             AND (batch.broadcast IS NULL OR (SELECT sealed_at FROM broadcast AS b \
             WHERE b.id = batch.broadcast) IS NOT NULL)",
        )?;
        let parameters = params![id.batch().0.cast_signed(), tenant.as_str()];
        let batch: Option<(i64, u16, Option<i64>)> = select
            .query_row(parameters, |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
            .optional()?;
        let Some((accepted_at, count, broadcast)) = batch else { return Ok(None) };
        let accepted_at = Timestamp::from_millis(accepted_at);
        // The number of a batch can be guessed, and another store has the same: all of the id must fit.
        let same = NotificationId::new(accepted_at, self.state.store_id, id.batch(), id.index());
        if same != id || id.index() >= count {
            return Ok(None);
        }
        if let Some(broadcast) = broadcast
            && let Some(cancelled) = self.cancel_waiting(broadcast, (tenant, id), now)?
        {
            return Ok(Some(cancelled));
        }
        let mut cancelled = Cancelled::default();
        for chunk in self.chunks_of(id.batch())? {
            if !chunk.members().contains(id.index()) {
                continue;
            }
            // It may be on the wire already, and would arrive although it was called cancelled.
            if chunk.lease_until.is_some() {
                cancelled.under_way = 1;
            } else {
                self.withdraw(&chunk, &Members::from_iter([id.index()]), now)?;
                cancelled.cancelled = 1;
            }
        }
        // A member in no chunk has ended, in an accepted batch that waits for nothing.
        cancelled.ended = 1 - cancelled.under_way - cancelled.cancelled;
        Ok(Some(cancelled))
    }

    /// Cancels it if its batch waits for its chunk, which will be made without it; `None` if the batch does not wait.
    fn cancel_waiting(
        &mut self,
        broadcast: i64,
        (tenant, id): (&Name, NotificationId),
        now: Timestamp,
    ) -> Result<Option<Cancelled>, StoreError> {
        let (batch, index) = (id.batch(), id.index());
        let mut select =
            self.sql("SELECT withdrawn_at FROM unreleased WHERE broadcast = ?1 AND passed < ?2")?;
        let parameters = [broadcast, batch.0.cast_signed()];
        let waiting = select.query_row(parameters, |row| Ok(WaitingState::new(row.get(0)?)));
        let Some(waiting) = waiting.optional()? else { return Ok(None) };
        let has_ended = self.logged(batch)?.iter().any(|group| group.indexes.contains(&index));
        if has_ended || waiting != WaitingState::Pending {
            return Ok(Some(Cancelled { ended: 1, ..Cancelled::default() }));
        }
        let line = LogLine::unattempted(now, State::Cancelled);
        self.end((tenant, batch), &line, &Members::from_iter([index]))?;
        // Withdrawing the broadcast counts its waiting notifications by this number, which counts the cancelled one here.
        self.uncount_waiting(broadcast, 1)?;
        Ok(Some(Cancelled { cancelled: 1, ..Cancelled::default() }))
    }

    /// Subtracts `items` from the notifications of a broadcast that wait for their chunk.
    pub(super) fn uncount_waiting(&self, broadcast: i64, items: usize) -> Result<(), StoreError> {
        self.sql("UPDATE unreleased SET waiting = waiting - ?2 WHERE broadcast = ?1")?
            .execute([broadcast, signed(items)])?;
        Ok(())
    }

    /// Withdraws the pending members of some batches of a broadcast; with the first call all that wait for their chunk. `None` when
    /// there is no such broadcast.
    pub(super) fn cancel_slice(
        &mut self,
        id: BroadcastId,
        request: &CancelScope,
    ) -> Result<Option<CancelSlice>, StoreError> {
        let mut slice = CancelSlice::default();
        let Some(begin) = self.begin_cancel(id, request, &mut slice)? else { return Ok(None) };
        let place = slice.begins_at(request, begin);
        self.cancel_batches(id, place, request, &mut slice)?;
        Ok(Some(slice))
    }

    /// Withdraws the pending members of the batches from a place on.
    fn cancel_batches(
        &mut self,
        id: BroadcastId,
        CancelCursor { after, until }: CancelCursor,
        request: &CancelScope,
        slice: &mut CancelSlice,
    ) -> Result<(), StoreError> {
        let batches = self.batches_of(id, CancelCursor { after, until })?;
        for &(batch, count) in &batches {
            let mut pending = 0;
            for chunk in self.chunks_of(BatchId(batch.cast_unsigned()))? {
                pending += chunk.count as u64;
                if chunk.lease_until.is_some() {
                    slice.counted.under_way += chunk.count as u64;
                } else {
                    slice.counted.cancelled += chunk.count as u64;
                    if !request.is_dry {
                        self.withdraw(&chunk, &chunk.members(), request.now)?;
                    }
                }
            }
            slice.counted.ended += u64::from(count) - pending;
        }
        slice.ends_at(self.last_of_slice(&batches), until);
        Ok(())
    }

    /// The next batches of a broadcast, and how many members each has.
    pub(super) fn batches_of(
        &self,
        id: BroadcastId,
        CancelCursor { after, until }: CancelCursor,
    ) -> Result<Vec<(i64, u16)>, StoreError> {
        // The index is named: by the order alone SQLite might take the table, and walk over the batches of all others.
        let mut select = self.sql(
            "SELECT id, count FROM batch INDEXED BY batch_of_broadcast \
             WHERE broadcast = ?1 AND id > ?2 AND id <= ?3 ORDER BY id LIMIT ?4",
        )?;
        let parameters = [id.0.cast_signed(), after, until, signed(self.state.slicing.batches)];
        let batches = select.query_map(parameters, |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(batches.collect::<Result<_, _>>()?)
    }

    /// The last of these batches, if others may follow.
    pub(super) fn last_of_slice(&self, batches: &[(i64, u16)]) -> Option<i64> {
        let is_full = batches.len() == self.state.slicing.batches;
        batches.last().filter(|_| is_full).map(|(batch, _)| *batch)
    }

    /// Withdraws all notifications that wait for their chunk, at once; begin of the slices, or `None` when there is no such
    /// broadcast.
    fn begin_cancel(
        &mut self,
        id: BroadcastId,
        request: &CancelScope,
        slice: &mut CancelSlice,
    ) -> Result<Option<CancelCursor>, StoreError> {
        let number = id.0.cast_signed();
        let mut select = self.sql(
            "SELECT 1 FROM broadcast WHERE id = ?1 AND tenant = ?2 AND sealed_at IS NOT NULL",
        )?;
        if !select.exists(params![number, request.tenant.as_str()])? {
            return Ok(None);
        }
        let Some(part) = self.unreleased(number)? else {
            // Every batch has its chunk.
            return Ok(Some(CancelCursor { after: 0, until: i64::MAX }));
        };
        slice.recipients = Some(part.recipients);
        // Asked a second time, those that wait are cancelled already, and in the totals.
        if part.state == WaitingState::Pending {
            self.withdraw_waiting(number, part.waiting.cast_signed(), request)?;
            slice.counted.cancelled = part.waiting;
        }
        // Behind `passed` no batch has a chunk, and from now on none gets one.
        Ok(Some(CancelCursor { after: 0, until: part.passed }))
    }

    /// The part of a sealed broadcast that waits for its chunks; `None` when every batch has its own.
    pub(super) fn unreleased(&self, broadcast: i64) -> Result<Option<UnreleasedPart>, StoreError> {
        let mut select = self.sql(
            "SELECT recipients, waiting, passed, withdrawn_at FROM unreleased \
             WHERE broadcast = ?1 AND passed IS NOT NULL",
        )?;
        let part = select.query_row([broadcast], |row| {
            Ok(UnreleasedPart {
                recipients: row.get::<_, i64>(0)?.cast_unsigned(),
                waiting: row.get::<_, i64>(1)?.cast_unsigned(),
                passed: row.get(2)?,
                state: WaitingState::new(row.get(3)?),
            })
        });
        Ok(part.optional()?)
    }

    /// Cancels the `waits` members of a broadcast that have no chunk, all at once.
    pub(super) fn withdraw_waiting(
        &mut self,
        broadcast: i64,
        waits: i64,
        request: &CancelScope,
    ) -> Result<(), StoreError> {
        if !request.is_dry {
            self.sql("UPDATE unreleased SET withdrawn_at = ?2 WHERE broadcast = ?1")?
                .execute([broadcast, request.now.millis()])?;
            let waits = usize::try_from(waits).unwrap_or(usize::MAX);
            self.count_ended(&request.tenant, State::Cancelled, waits);
            // The lines of the log are still to be written, and a paused broadcast alone is not looked at.
            self.state.waits = true;
        }
        Ok(())
    }

    fn withdraw(
        &mut self,
        chunk: &ChunkRow,
        members: &Members,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        self.take_out(chunk, members, now)?;
        // It may have been the chunk that was due next.
        self.reset_due(chunk.lane)
    }

    /// Cancels members of a chunk. The caller resets when its lane is due.
    pub(super) fn take_out(
        &mut self,
        chunk: &ChunkRow,
        members: &Members,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let mut rest = chunk.members();
        for index in members.iter() {
            rest.remove(index);
        }
        self.end_of_chunk(chunk, &LogLine::unattempted(now, State::Cancelled), members)?;
        self.set_members(chunk.id, &rest)
    }

    pub(super) fn chunks_of(&self, batch: BatchId) -> Result<Vec<ChunkRow>, StoreError> {
        let select = self.sql(select_chunk!("batch = ?1"))?;
        rows::chunks(select, [batch.0.cast_signed()])
    }
}
