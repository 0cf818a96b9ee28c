//! Cancelling: unclaimed notifications can be cancelled.

use std::collections::HashMap;

use async_trait::async_trait;
use notification::{BroadcastId, Name, NotificationId, Scope, State, Timestamp, limits};
use tokio_postgres::types::ToSql;

use super::columns::{chunk_at, select_chunk, signed};
use super::request::{WriterHandle, WriterRequest};
use super::transaction::{RunError, Transaction, Writes};
use crate::cancel::CancelCursor;
use crate::rows::codec::LogLine;
use crate::rows::members::Members;
use crate::rows::model::ChunkRow;
use crate::rows::release::{CancelSlice, Cancellation, UnreleasedPart, WaitingState};
use crate::rows::requeue::EndCounts;
use crate::{CancelScope, Cancelled, StoreError};

/// Withdraws one notification.
#[derive(Debug)]
pub(super) struct CancelNotification {
    pub(super) id: NotificationId,
    pub(super) tenant: Name,
    pub(super) now: Timestamp,
}

/// Withdraws the pending members of some batches of a broadcast; with the first call all that wait for their chunk.
#[derive(Debug)]
struct CancelBroadcastSlice(BroadcastId, CancelScope);

/// Some batches of a broadcast.
#[derive(Debug)]
pub(super) struct BatchSlice {
    pub(super) batches: Vec<i64>,
    /// Number of their members.
    pub(super) total: u64,
    /// The last of them, if others may follow.
    pub(super) last: Option<i64>,
}

#[async_trait]
impl WriterRequest for CancelNotification {
    type Answer = Option<Cancelled>;

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<Self::Answer, RunError> {
        let id = self.id;
        let select = "SELECT accepted_at, count, broadcast FROM batch WHERE id = $1 AND tenant = $2 \
             AND (broadcast IS NULL OR (SELECT sealed_at FROM broadcast AS b \
             WHERE b.id = batch.broadcast) IS NOT NULL)";
        let number = id.batch().0.cast_signed();
        let rows = transaction.rows(select, &[&number, &self.tenant.as_str()]).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let accepted_at = Timestamp::from_millis(row.try_get(0)?);
        // The number of a batch can be guessed, and another store has the same: all of the id must fit.
        let same =
            NotificationId::new(accepted_at, transaction.state.store_id, id.batch(), id.index());
        if same != id || i32::from(id.index()) >= row.try_get(1)? {
            return Ok(None);
        }
        if let Some(broadcast) = row.try_get(2)?
            && let Some(cancelled) = self.cancel_waiting(transaction, broadcast).await?
        {
            return Ok(Some(cancelled));
        }
        let mut cancelled = Cancelled::default();
        let mut writes = Writes::default();
        let only = Members::from_iter([id.index()]);
        for chunk in transaction.pending_of(&[number], &only).await? {
            if !chunk.members().contains(id.index()) {
                continue;
            }
            // It may be on the wire already, and would arrive although it was called cancelled.
            if chunk.lease_until.is_some() {
                cancelled.under_way = 1;
            } else {
                transaction.withdraw(&mut writes, (&self.tenant, &chunk), &only, self.now);
                cancelled.cancelled = 1;
            }
        }
        transaction.write(writes).await?;
        // `pending_of` has found it in a chunk or as ended.
        cancelled.ended = 1 - cancelled.under_way - cancelled.cancelled;
        Ok(Some(cancelled))
    }
}

#[async_trait]
impl WriterRequest for CancelBroadcastSlice {
    type Answer = Option<CancelSlice>;

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<Self::Answer, RunError> {
        let Self(broadcast, request) = self;
        transaction.cancel_slice(*broadcast, request).await
    }
}

// === impl WriterHandle ===

impl WriterHandle {
    /// Withdraws the pending notifications of a broadcast, slice by slice. The slices that are done stay done if this ends early.
    pub(super) async fn cancel_broadcast(
        &self,
        broadcast: BroadcastId,
        tenant: Name,
        now: Timestamp,
    ) -> Result<Option<Cancelled>, StoreError> {
        let (mut cancellation, scope) = (Cancellation::default(), Scope::Broadcast(broadcast));
        let mut request = CancelScope { tenant, scope, from: None, is_dry: false, now };
        let mut slice =
            self.run_or_give_up(CancelBroadcastSlice(broadcast, request.clone())).await?;
        while let Some(done) = slice {
            request.from = cancellation.add(done);
            if request.from.is_none() {
                return Ok(Some(cancellation.answer()));
            }
            // To give up now would be to say that nothing was done.
            slice = self.run(CancelBroadcastSlice(broadcast, request.clone())).await?;
        }
        Ok(None)
    }
}

// === impl CancelNotification ===

impl CancelNotification {
    /// Cancels it if its batch waits for its chunk, which will be made without it; `None` if the batch does not wait.
    async fn cancel_waiting(
        &self,
        transaction: &mut Transaction<'_>,
        broadcast: i64,
    ) -> Result<Option<Cancelled>, RunError> {
        let (batch, index) = (self.id.batch(), self.id.index());
        let number = batch.0.cast_signed();
        // Locked, so that no slice passes the batch meanwhile.
        let select =
            "SELECT withdrawn_at FROM unreleased WHERE broadcast = $1 AND passed < $2 FOR UPDATE";
        let rows = transaction.rows(select, &[&broadcast, &number]).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        // The task that makes slices may have passed the row over while it was locked here: it looks again.
        transaction.effects.waits = true;
        let is_withdrawn = row.try_get::<_, Option<i64>>(0)?.is_some();
        let logged = transaction.logged(&[number]).await?;
        let mut groups = logged.values().flatten();
        if is_withdrawn || groups.any(|group| group.indexes.contains(&index)) {
            return Ok(Some(Cancelled { ended: 1, ..Cancelled::default() }));
        }
        let mut writes = Writes::default();
        let line = LogLine::unattempted(self.now, State::Cancelled);
        let of = (&self.tenant, batch);
        transaction.end(&mut writes, of, &line, &Members::from_iter([index]));
        transaction.write(writes).await?;
        // Withdrawing the broadcast counts its waiting notifications by this number, which counts the cancelled one here.
        transaction.uncount_waiting(broadcast, 1).await?;
        Ok(Some(Cancelled { cancelled: 1, ..Cancelled::default() }))
    }
}

// === impl Transaction ===

impl Transaction<'_> {
    /// Runs one call of the cancellation of a broadcast; `None` when there is no such broadcast.
    pub(super) async fn cancel_slice(
        &mut self,
        broadcast: BroadcastId,
        request: &CancelScope,
    ) -> Result<Option<CancelSlice>, RunError> {
        let mut slice = CancelSlice::default();
        let begin = self.begin_cancel(broadcast, request, &mut slice).await?;
        let Some(begin) = begin else { return Ok(None) };
        let place = slice.begins_at(request, begin);
        self.cancel_batches(broadcast, place, request, &mut slice).await?;
        Ok(Some(slice))
    }

    /// Withdraws all notifications that wait for their chunk, at once; begin of the slices, or `None` when there is no such
    /// broadcast.
    async fn begin_cancel(
        &mut self,
        broadcast: BroadcastId,
        request: &CancelScope,
        slice: &mut CancelSlice,
    ) -> Result<Option<CancelCursor>, RunError> {
        let number = broadcast.0.cast_signed();
        let select =
            "SELECT FROM broadcast WHERE id = $1 AND tenant = $2 AND sealed_at IS NOT NULL";
        if self.rows(select, &[&number, &request.tenant.as_str()]).await?.is_empty() {
            return Ok(None);
        }
        let Some(part) = self.lock_unreleased(number).await? else {
            // Every batch has its chunk.
            return Ok(Some(CancelCursor { after: 0, until: i64::MAX }));
        };
        slice.recipients = Some(part.recipients);
        // Asked a second time, those that wait are cancelled already, and in the totals.
        if part.state == WaitingState::Pending {
            self.withdraw_waiting(number, part.waiting, request).await?;
            slice.counted.cancelled = part.waiting;
        }
        // Behind `passed` no batch has a chunk, and from now on none gets one.
        Ok(Some(CancelCursor { after: 0, until: part.passed }))
    }

    /// The part of a sealed broadcast that waits for its chunks, locked; `None` when every batch has its own.
    pub(super) async fn lock_unreleased(
        &mut self,
        broadcast: i64,
    ) -> Result<Option<UnreleasedPart>, RunError> {
        let select = "SELECT recipients, waiting, passed, withdrawn_at FROM unreleased \
             WHERE broadcast = $1 AND passed IS NOT NULL FOR UPDATE";
        let rows = self.rows(select, &[&broadcast]).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        // Lines of the log may be to be written, and the row may have been passed over while it was locked.
        self.effects.waits = true;
        Ok(Some(UnreleasedPart {
            recipients: row.try_get::<_, i64>(0)?.cast_unsigned(),
            waiting: row.try_get::<_, i64>(1)?.cast_unsigned(),
            passed: row.try_get(2)?,
            state: WaitingState::new(row.try_get(3)?),
        }))
    }

    /// Withdraws the pending members of the batches from a place on.
    async fn cancel_batches(
        &mut self,
        broadcast: BroadcastId,
        CancelCursor { after, until }: CancelCursor,
        request: &CancelScope,
        slice: &mut CancelSlice,
    ) -> Result<(), RunError> {
        let BatchSlice { batches, total, last } =
            self.batches_of(broadcast, CancelCursor { after, until }).await?;
        let (mut under_way, mut cancelled) = (0, 0);
        let mut writes = Writes::default();
        let all_members = Members::all(limits::BATCH_ITEMS);
        for chunk in self.pending_of(&batches, &all_members).await? {
            let count = chunk.count as u64;
            if chunk.lease_until.is_some() {
                under_way += count;
                continue;
            }
            cancelled += count;
            if !request.is_dry {
                self.withdraw(
                    &mut writes,
                    (&request.tenant, &chunk),
                    &chunk.members(),
                    request.now,
                );
            }
        }
        self.write(writes).await?;
        slice.counted.under_way += under_way;
        slice.counted.cancelled += cancelled;
        slice.counted.ended += total.saturating_sub(under_way + cancelled);
        slice.ends_at(last, until);
        Ok(())
    }

    /// The next batches of a broadcast.
    pub(super) async fn batches_of(
        &mut self,
        broadcast: BroadcastId,
        CancelCursor { after, until }: CancelCursor,
    ) -> Result<BatchSlice, RunError> {
        let select = "SELECT id, count FROM batch WHERE broadcast = $1 AND id > $2 AND id <= $3 \
             ORDER BY id LIMIT $4";
        let size = self.state.slicing.batches;
        let parameters: [&(dyn ToSql + Sync); 4] =
            [&broadcast.0.cast_signed(), &after, &until, &signed(size)];
        let (mut batches, mut total) = (Vec::new(), 0);
        for row in &self.rows(select, &parameters).await? {
            batches.push(row.try_get::<_, i64>(0)?);
            total += u64::try_from(row.try_get::<_, i32>(1)?).unwrap_or(0);
        }
        let last = batches.last().filter(|_| batches.len() == size).copied();
        Ok(BatchSlice { batches, total, last })
    }

    /// Cancels the `waiting` members of a broadcast that have no chunk, all at once. The caller holds its row.
    pub(super) async fn withdraw_waiting(
        &mut self,
        broadcast: i64,
        waiting: u64,
        request: &CancelScope,
    ) -> Result<(), RunError> {
        if !request.is_dry {
            let update = "UPDATE unreleased SET withdrawn_at = $2 WHERE broadcast = $1";
            self.execute(update, &[&broadcast, &request.now.millis()]).await?;
            let cancelled = usize::try_from(waiting).unwrap_or(usize::MAX);
            self.count_ended(&request.tenant, State::Cancelled, cancelled);
        }
        Ok(())
    }

    /// Subtracts `items` from the notifications of a broadcast that wait for their chunk. The caller holds its row.
    pub(super) async fn uncount_waiting(
        &mut self,
        broadcast: i64,
        items: usize,
    ) -> Result<(), RunError> {
        let update = "UPDATE unreleased SET waiting = waiting - $2 WHERE broadcast = $1";
        self.execute(update, &[&broadcast, &signed(items)]).await?;
        Ok(())
    }

    pub(super) fn withdraw(
        &mut self,
        writes: &mut Writes,
        (tenant, chunk): (&Name, &ChunkRow),
        members: &Members,
        now: Timestamp,
    ) {
        let mut rest = chunk.members();
        for index in members.iter() {
            rest.remove(index);
        }
        let line = LogLine::unattempted(now, State::Cancelled);
        self.end(writes, (tenant, chunk.batch), &line, members);
        writes.set_members(chunk, &rest);
    }

    /// The chunks of batches, locked. Another process may have replaced some of them just before they were locked, by chunks that
    /// could not be seen yet; the `wanted` members of every batch are therefore accounted for, and looked for again where one is
    /// neither pending nor ended.
    pub(super) async fn pending_of(
        &mut self,
        batches: &[i64],
        wanted: &Members,
    ) -> Result<Vec<ChunkRow>, RunError> {
        let locked = select_chunk!("FROM chunk WHERE batch = ANY($1) ORDER BY id FOR UPDATE");
        loop {
            let mut missing = self.counts(batches, wanted).await?;
            let rows = self.rows(locked, &[&batches]).await?;
            let chunks: Vec<ChunkRow> = rows.iter().map(chunk_at).collect::<Result<_, _>>()?;
            for chunk in &chunks {
                if let Some(missing) = missing.get_mut(&chunk.batch.0.cast_signed()) {
                    chunk.members().iter().for_each(|index| _ = missing.remove(index));
                }
            }
            missing.retain(|_, members| !members.is_empty());
            self.remove_ended(&mut missing).await?;
            // Each statement sees the transactions that were committed before it: the next look finds the chunks in their place.
            if missing.is_empty() {
                return Ok(chunks);
            }
        }
    }

    /// Members of `wanted` that each batch has.
    async fn counts(
        &mut self,
        batches: &[i64],
        wanted: &Members,
    ) -> Result<HashMap<i64, Members>, RunError> {
        let select = "SELECT id, count FROM batch WHERE id = ANY($1)";
        let mut members = HashMap::with_capacity(batches.len());
        for row in &self.rows(select, &[&batches]).await? {
            let count: i32 = row.try_get(1)?;
            let of_batch = wanted.iter().filter(|index| i32::from(*index) < count);
            members.insert(row.try_get(0)?, of_batch.collect());
        }
        Ok(members)
    }

    /// Removes from `missing` the members that have ended by the log.
    async fn remove_ended(&mut self, missing: &mut HashMap<i64, Members>) -> Result<(), RunError> {
        if missing.is_empty() {
            return Ok(());
        }
        let batches: Vec<i64> = missing.keys().copied().collect();
        let mut ends: HashMap<i64, EndCounts> = HashMap::new();
        for (batch, log) in self.logged(&batches).await? {
            let Some(missing) = missing.get_mut(&batch) else { continue };
            for group in log {
                // A requeued member is pending again.
                ends.entry(batch).or_default().add(&group);
                let state = group.attempted.state;
                if state.is_terminal() && !state.may_be_requeued() {
                    group.indexes.iter().for_each(|index| _ = missing.remove(*index));
                }
            }
        }
        for (batch, ends) in ends {
            let Some(missing) = missing.get_mut(&batch) else { continue };
            ends.members().iter().for_each(|index| _ = missing.remove(index));
        }
        missing.retain(|_, members| !members.is_empty());
        Ok(())
    }
}
