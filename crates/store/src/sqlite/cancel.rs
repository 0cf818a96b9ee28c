//! Withdrawals: only what nobody holds can be cancelled.

use notification::{BatchId, BroadcastId, Name, NotificationId, State, Timestamp};
use rusqlite::{OptionalExtension, params};

use super::round::Round;
use super::rows::{self, select_chunk};
use crate::rows::codec::LogLine;
use crate::rows::members::Members;
use crate::rows::model::ChunkRow;
use crate::{CancelTarget, Cancelled, StoreError};

impl Round<'_> {
    pub(super) fn cancel(
        &mut self,
        target: CancelTarget,
        tenant: &Name,
        now: Timestamp,
    ) -> Result<Option<Cancelled>, StoreError> {
        match target {
            CancelTarget::Notification(id) => self.cancel_one(id, tenant, now),
            CancelTarget::Broadcast(id) => self.cancel_broadcast(id, tenant, now),
        }
    }

    fn cancel_one(
        &mut self,
        id: NotificationId,
        tenant: &Name,
        now: Timestamp,
    ) -> Result<Option<Cancelled>, StoreError> {
        let mut select = self.sql(
            "SELECT accepted_at, count FROM batch WHERE id = ?1 AND tenant = ?2 \
             AND (batch.broadcast IS NULL OR (SELECT sealed_at FROM broadcast AS b \
             WHERE b.id = batch.broadcast) IS NOT NULL)",
        )?;
        let parameters = params![id.batch().0.cast_signed(), tenant.as_str()];
        let batch: Option<(i64, u16)> =
            select.query_row(parameters, |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
        let is_ours = |&(accepted_at, count): &(i64, u16)| {
            let accepted_at = Timestamp::from_millis(accepted_at);
            let same = NotificationId::new(accepted_at, self.desk.realm, id.batch(), id.index());
            same == id && id.index() < count
        };
        if batch.as_ref().is_none_or(|batch| !is_ours(batch)) {
            return Ok(None);
        }
        let mut cancelled = Cancelled::default();
        for chunk in self.chunks_of(id.batch())? {
            if !chunk.members().contains(id.index()) {
                continue;
            }
            if chunk.lease_until.is_some() {
                cancelled.under_way = 1;
            } else {
                self.withdraw(&chunk, &Members::from_iter([id.index()]), now)?;
                cancelled.cancelled = 1;
            }
        }
        cancelled.ended = 1 - cancelled.under_way - cancelled.cancelled;
        Ok(Some(cancelled))
    }

    fn cancel_broadcast(
        &mut self,
        id: BroadcastId,
        tenant: &Name,
        now: Timestamp,
    ) -> Result<Option<Cancelled>, StoreError> {
        let number = id.0.cast_signed();
        let mut select = self.sql(
            "SELECT 1 FROM broadcast WHERE id = ?1 AND tenant = ?2 AND sealed_at IS NOT NULL",
        )?;
        if !select.exists(params![number, tenant.as_str()])? {
            return Ok(None);
        }
        let mut select = self.sql("SELECT id, count FROM batch WHERE broadcast = ?1")?;
        let batches: Vec<(i64, u16)> = select
            .query_map([number], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<Result<_, _>>()?;
        let mut cancelled = Cancelled::default();
        for (batch, count) in batches {
            let mut pending = 0;
            for chunk in self.chunks_of(BatchId(batch.cast_unsigned()))? {
                pending += chunk.count as u64;
                if chunk.lease_until.is_some() {
                    cancelled.under_way += chunk.count as u64;
                } else {
                    self.withdraw(&chunk, &chunk.members(), now)?;
                    cancelled.cancelled += chunk.count as u64;
                }
            }
            cancelled.ended += u64::from(count) - pending;
        }
        Ok(Some(cancelled))
    }

    fn withdraw(
        &mut self,
        chunk: &ChunkRow,
        members: &Members,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let mut rest = chunk.members();
        for index in members.iter() {
            rest.remove(index);
        }
        self.end(chunk.batch, &LogLine::unattempted(now, State::Cancelled), members)?;
        self.shrink(chunk.id, &rest)?;
        self.reset_due(chunk.lane)
    }

    fn chunks_of(&self, batch: BatchId) -> Result<Vec<ChunkRow>, StoreError> {
        let select = self.sql(select_chunk!("batch = ?1"))?;
        rows::chunks(select, [batch.0.cast_signed()])
    }
}
