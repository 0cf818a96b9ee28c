//! Rescheduling: what waits has another time.

use std::collections::BTreeSet;

use notification::{BatchId, BroadcastId, NotificationId, Timestamp};
use rusqlite::{OptionalExtension, params};

use super::Sqlite;
use super::transaction::Transaction;
use super::writer::Durability::Synced;
use crate::cancel::CancelCursor;
use crate::rows::codes::LaneId;
use crate::rows::reschedule::{MemberMove, MoveTarget, RescheduleSlice, Rescheduling};
use crate::{Reschedule, Rescheduled, StoreError};

// === impl Sqlite ===

impl Sqlite {
    /// Gives a broadcast another time, and then its chunks, slice by slice. The slices that are done stay done if this ends early.
    pub(super) async fn reschedule_broadcast(
        &self,
        id: BroadcastId,
        request: Reschedule,
    ) -> Result<Rescheduled, StoreError> {
        let begin =
            move |transaction: &mut Transaction<'_>| transaction.begin_reschedule(id, &request);
        let mut rescheduling = match self.write(Synced, begin).await? {
            Ok(rescheduling) => rescheduling,
            Err(refusal) => return Ok(refusal),
        };
        let (due_at, before) = (rescheduling.due_at, rescheduling.before);
        while let Some(place) = rescheduling.next {
            let slice = move |transaction: &mut Transaction<'_>| {
                transaction.reschedule_slice(id, place, due_at)
            };
            let Some(slice) = self.write(Synced, slice).await? else {
                return Ok(Rescheduled::Overtaken);
            };
            rescheduling.add(&slice);
        }
        if rescheduling.was_too_late() {
            let undo =
                move |transaction: &mut Transaction<'_>| transaction.set_time(id, due_at, before);
            self.write(Synced, undo).await?;
        }
        Ok(rescheduling.answer())
    }
}

// === impl Transaction ===

impl Transaction<'_> {
    pub(super) fn reschedule_one(
        &mut self,
        id: NotificationId,
        request: &Reschedule,
    ) -> Result<Rescheduled, StoreError> {
        let Some((lane, batch)) = self.owned(id.batch(), &request.tenant)? else {
            return Ok(Rescheduled::Unknown);
        };
        if let Some(answer) = batch.rescheduled(id, request) {
            return Ok(answer);
        }
        let (due_at, chunks) = (request.due_at(), self.chunks_of(id.batch())?);
        let way = MemberMove::new(&chunks, id.index(), due_at);
        if let MemberMove::Moves { from, rest, to } = &way {
            self.set_members(from.id, rest)?;
            match to {
                MoveTarget::Ready(ready, members) => self.set_members(ready.id, members)?,
                MoveTarget::New(chunk) => self.add_chunk(chunk)?,
            }
            // Alone in its batch, it takes the batch along.
            self.sql(
                "UPDATE batch SET due_at = ?2 WHERE id = ?1 AND count = 1 AND broadcast IS NULL",
            )?
            .execute([id.batch().0.cast_signed(), due_at.millis()])?;
            self.follow_due(lane, due_at)?;
        }
        Ok(way.answer())
    }

    /// Gives a broadcast its new time, by which what has no chunk yet goes; or the reason why not.
    fn begin_reschedule(
        &mut self,
        id: BroadcastId,
        request: &Reschedule,
    ) -> Result<Result<Rescheduling, Rescheduled>, StoreError> {
        let number = id.0.cast_signed();
        let mut select = self.sql(
            "SELECT due_at, expires_at FROM broadcast WHERE id = ?1 AND tenant = ?2 AND sealed_at IS NOT NULL",
        )?;
        let row = select.query_row(params![number, request.tenant.as_str()], |row| {
            Ok((row.get(0)?, row.get::<_, Option<i64>>(1)?))
        });
        let Some((before, expires_at)) = row.optional()? else {
            return Ok(Err(Rescheduled::Unknown));
        };
        if let Some(refusal) = request.refusal(expires_at.map(Timestamp::from_millis)) {
            return Ok(Err(refusal));
        }
        let (due_at, before) = (request.due_at(), Timestamp::from_millis(before));
        let part = self.unreleased(number)?;
        self.set_time(id, before, due_at)?;
        Ok(Ok(Rescheduling::new(due_at, before, part.as_ref())))
    }

    /// Gives the waiting chunks of the next batches of a broadcast its time, `due_at`; `None` when it has another one by now.
    fn reschedule_slice(
        &mut self,
        id: BroadcastId,
        place: CancelCursor,
        due_at: Timestamp,
    ) -> Result<Option<RescheduleSlice>, StoreError> {
        let parameters = [id.0.cast_signed(), due_at.millis()];
        if !self.sql("SELECT 1 FROM broadcast WHERE id = ?1 AND due_at = ?2")?.exists(parameters)? {
            return Ok(None);
        }
        let (mut slice, mut lanes) = (RescheduleSlice::default(), BTreeSet::new());
        let batches = self.batches_of(id, place)?;
        for &(batch, count) in &batches {
            let mut pending = 0;
            for chunk in self.chunks_of(BatchId(batch.cast_unsigned()))? {
                pending += chunk.count as u64;
                if chunk.lease_until.is_some() {
                    slice.counted.under_way += chunk.count as u64;
                    continue;
                }
                slice.counted.rescheduled += chunk.count as u64;
                if chunk.due_at != due_at {
                    self.set_due(&chunk, due_at)?;
                    lanes.insert(chunk.lane);
                }
            }
            slice.counted.ended += u64::from(count) - pending;
        }
        for lane in lanes {
            self.follow_due(lane, due_at)?;
        }
        slice.ends_at(self.last_of_slice(&batches), place.until);
        Ok(Some(slice))
    }

    /// Gives a broadcast that is due at `before` the time `due_at`.
    fn set_time(
        &self,
        id: BroadcastId,
        before: Timestamp,
        due_at: Timestamp,
    ) -> Result<(), StoreError> {
        if before != due_at {
            self.sql("UPDATE broadcast SET due_at = ?3 WHERE id = ?1 AND due_at = ?2")?
                .execute([id.0.cast_signed(), before.millis(), due_at.millis()])?;
        }
        Ok(())
    }

    /// Notes that chunks of a lane are due at `due_at`, and no longer at their former times.
    fn follow_due(&mut self, lane: LaneId, due_at: Timestamp) -> Result<(), StoreError> {
        self.add_due(lane, due_at)?;
        self.reset_due(lane)
    }
}
