//! Rescheduling: what waits has another time.

use async_trait::async_trait;
use notification::{BroadcastId, NotificationId, Timestamp, limits};
use tokio_postgres::types::ToSql;

use super::cancel::BatchSlice;
use super::request::{WriterHandle, WriterRequest};
use super::transaction::{RunError, Transaction, Writes};
use crate::cancel::CancelCursor;
use crate::rows::members::Members;
use crate::rows::reschedule::{MemberMove, MoveTarget, RescheduleSlice, Rescheduling};
use crate::{Reschedule, Rescheduled, StoreError};

/// Gives one notification another time.
#[derive(Debug)]
pub(super) struct RescheduleNotification {
    pub(super) id: NotificationId,
    pub(super) request: Reschedule,
}

/// Gives a broadcast another time, by which what has no chunk yet goes.
#[derive(Debug)]
struct BeginReschedule(BroadcastId, Reschedule);

/// Gives the waiting chunks of some batches the time of their broadcast; `None` when it has another one by now.
#[derive(Debug)]
struct RescheduleChunks {
    broadcast: BroadcastId,
    place: CancelCursor,
    due_at: Timestamp,
}

/// Gives a broadcast that is due at `before` the time `due_at`.
#[derive(Debug)]
struct SetTime {
    broadcast: BroadcastId,
    before: Timestamp,
    due_at: Timestamp,
}

/// Locked, so that of two calls the second one sees what the first has done.
const SELECT_TIME: &str = "SELECT due_at, expires_at FROM broadcast \
     WHERE id = $1 AND tenant = $2 AND sealed_at IS NOT NULL FOR NO KEY UPDATE";
/// Locked, so that no other call changes it while chunks follow.
const CHECK_TIME: &str = "SELECT FROM broadcast WHERE id = $1 AND due_at = $2 FOR SHARE";
const SET_TIME: &str = "UPDATE broadcast SET due_at = $3 WHERE id = $1 AND due_at = $2";
/// A chunk has a new epoch then: a claim that has read its former time leases nothing.
const SET_DUE: &str = "UPDATE chunk SET due_at = $3, epoch = chunk.epoch + 1 \
     FROM unnest($1::int8[], $2::int8[]) AS moved (id, epoch) \
     WHERE chunk.id = moved.id AND chunk.epoch = moved.epoch AND lease_until IS NULL";
/// Alone in its batch, a notification takes the batch along.
const SET_BATCH: &str =
    "UPDATE batch SET due_at = $2 WHERE id = $1 AND count = 1 AND broadcast IS NULL";

#[async_trait]
impl WriterRequest for RescheduleNotification {
    type Answer = Rescheduled;

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<Self::Answer, RunError> {
        let Self { id, request } = self;
        let number = id.batch().0.cast_signed();
        let owned = transaction.owned(&request.tenant, &[number]).await?;
        let Some((lane, _, batch)) = owned.first() else { return Ok(Rescheduled::Unknown) };
        if let Some(answer) = batch.rescheduled(*id, request) {
            return Ok(answer);
        }
        let (due_at, only) = (request.due_at(), Members::from_iter([id.index()]));
        let chunks = transaction.pending_of(&[number], &only).await?;
        let way = MemberMove::new(&chunks, id.index(), due_at);
        let answer = way.answer();
        if let MemberMove::Moves { from, rest, to } = way {
            let mut writes = Writes::default();
            writes.set_members(from, &rest);
            match to {
                MoveTarget::Ready(ready, members) => writes.set_members(ready, &members),
                MoveTarget::New(chunk) => writes.chunk(chunk),
            }
            transaction.write(writes).await?;
            transaction.execute(SET_BATCH, &[&number, &due_at.millis()]).await?;
            transaction.due(*lane, due_at);
        }
        Ok(answer)
    }
}

#[async_trait]
impl WriterRequest for BeginReschedule {
    type Answer = Result<Rescheduling, Rescheduled>;

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<Self::Answer, RunError> {
        let Self(broadcast, request) = self;
        let number = broadcast.0.cast_signed();
        let rows = transaction.rows(SELECT_TIME, &[&number, &request.tenant.as_str()]).await?;
        let Some(row) = rows.first() else { return Ok(Err(Rescheduled::Unknown)) };
        let expires_at: Option<i64> = row.try_get(1)?;
        if let Some(refusal) = request.refusal(expires_at.map(Timestamp::from_millis)) {
            return Ok(Err(refusal));
        }
        let (due_at, before) = (request.due_at(), Timestamp::from_millis(row.try_get(0)?));
        // No slice is made until this is committed, and each that follows is due at the new time.
        let part = transaction.lock_unreleased(number).await?;
        transaction.set_time(*broadcast, before, due_at).await?;
        Ok(Ok(Rescheduling::new(due_at, before, part.as_ref())))
    }
}

#[async_trait]
impl WriterRequest for RescheduleChunks {
    type Answer = Option<RescheduleSlice>;

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<Self::Answer, RunError> {
        let Self { broadcast, place, due_at } = *self;
        let parameters: [&(dyn ToSql + Sync); 2] = [&broadcast.0.cast_signed(), &due_at.millis()];
        if transaction.rows(CHECK_TIME, &parameters).await?.is_empty() {
            return Ok(None);
        }
        let mut slice = RescheduleSlice::default();
        let BatchSlice { batches, total, last } = transaction.batches_of(broadcast, place).await?;
        let all_members = Members::all(limits::BATCH_ITEMS);
        let (mut ids, mut epochs) = (Vec::new(), Vec::new());
        for chunk in transaction.pending_of(&batches, &all_members).await? {
            // It may be on the wire already, and would arrive before its new time.
            if chunk.lease_until.is_some() {
                slice.counted.under_way += chunk.count as u64;
                continue;
            }
            slice.counted.rescheduled += chunk.count as u64;
            if chunk.due_at != due_at {
                ids.push(chunk.id.0.cast_signed());
                epochs.push(i64::from(chunk.epoch.0));
                transaction.due(chunk.lane, due_at);
            }
        }
        if !ids.is_empty() {
            transaction.change(SET_DUE, ids.len(), &[&ids, &epochs, &due_at.millis()]).await?;
        }
        let pending = slice.counted.rescheduled + slice.counted.under_way;
        slice.counted.ended = total.saturating_sub(pending);
        slice.ends_at(last, place.until);
        Ok(Some(slice))
    }
}

#[async_trait]
impl WriterRequest for SetTime {
    type Answer = ();

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<(), RunError> {
        transaction.set_time(self.broadcast, self.before, self.due_at).await
    }
}

// === impl WriterHandle ===

impl WriterHandle {
    /// Gives a broadcast another time, and then its chunks, slice by slice. The slices that are done stay done if this ends early.
    pub(super) async fn reschedule_broadcast(
        &self,
        broadcast: BroadcastId,
        request: Reschedule,
    ) -> Result<Rescheduled, StoreError> {
        let begin = self.run_or_give_up(BeginReschedule(broadcast, request)).await?;
        let mut rescheduling = match begin {
            Ok(rescheduling) => rescheduling,
            Err(refusal) => return Ok(refusal),
        };
        let (due_at, before) = (rescheduling.due_at, rescheduling.before);
        while let Some(place) = rescheduling.next {
            // To give up now would be to say that nothing was done.
            let slice = self.run(RescheduleChunks { broadcast, place, due_at }).await?;
            let Some(slice) = slice else { return Ok(Rescheduled::Overtaken) };
            rescheduling.add(&slice);
        }
        if rescheduling.was_too_late() {
            self.run(SetTime { broadcast, before: due_at, due_at: before }).await?;
        }
        Ok(rescheduling.answer())
    }
}

// === impl Transaction ===

impl Transaction<'_> {
    async fn set_time(
        &mut self,
        broadcast: BroadcastId,
        before: Timestamp,
        due_at: Timestamp,
    ) -> Result<(), RunError> {
        if before != due_at {
            let number = broadcast.0.cast_signed();
            let parameters: [&(dyn ToSql + Sync); 3] =
                [&number, &before.millis(), &due_at.millis()];
            self.execute(SET_TIME, &parameters).await?;
        }
        Ok(())
    }
}
