//! Broadcasts: stored as they come in, due only once they are sealed.

use std::sync::Arc;

use notification::{BroadcastId, Envelope, Timestamp};
use rusqlite::params;

use super::round::Round;
use super::rows;
use crate::rows::lanes::LaneId;
use crate::rows::model;
use crate::rows::packing::{Batches as _, Filling, Known};
use crate::{BroadcastDraft, BroadcastOpened, RecipientGroup, StoreError};

impl Round<'_> {
    pub(super) fn open_broadcast(
        &mut self,
        draft: &BroadcastDraft,
    ) -> Result<BroadcastOpened, StoreError> {
        let idempotency = draft.idempotency.as_ref();
        if let Some(idempotency) = idempotency
            && let Some((known, fingerprint)) = self.known_key(&draft.tenant, &idempotency.key)?
        {
            return match known {
                Known::Broadcast(id) if fingerprint == idempotency.fingerprint => {
                    Ok(BroadcastOpened::Replayed(id))
                }
                Known::Broadcast(_) | Known::Notification(_) => {
                    Err(StoreError::KeyReused { index: 0 })
                }
            };
        }
        let id = self
            .sql(
                "INSERT INTO broadcast (tenant, channel, priority, guarantee, due_at, expires_at, \
                 key, fingerprint, options, payload) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
            )?
            .insert(params![
                draft.tenant.as_str(),
                draft.channel.as_str(),
                draft.priority.code(),
                draft.guarantee.code(),
                draft.due_at.millis(),
                draft.expires_at.map(Timestamp::millis),
                idempotency.map(|idempotency| &*idempotency.key),
                idempotency.map(|idempotency| idempotency.fingerprint),
                &*draft.content.options,
                &*draft.content.payload,
            ])?;
        Ok(BroadcastOpened::Opened(BroadcastId(id.cast_unsigned())))
    }

    pub(super) fn add_recipients(
        &mut self,
        id: BroadcastId,
        groups: &[RecipientGroup],
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let template = self.open_envelope(id)?;
        for group in groups {
            let mut envelope = template.clone();
            envelope.lane.destination = Arc::clone(&group.destination);
            let lane = self.lane_number(&envelope.lane)?;
            let new = |round: &mut Self| {
                Filling::new(round.next_batch(), envelope.clone(), now, group.has_contents())
            };
            let mut batch = new(self);
            for (recipient, content) in group.items() {
                if !batch.fits(recipient, &content) {
                    self.store_batch(&batch, lane)?;
                    batch = new(self);
                }
                batch.push(recipient.clone(), content);
            }
            if !batch.is_empty() {
                self.store_batch(&batch, lane)?;
            }
            self.desk.lanes.forget_if_idle(lane);
        }
        Ok(())
    }

    pub(super) fn seal_broadcast(
        &mut self,
        id: BroadcastId,
        now: Timestamp,
    ) -> Result<u64, StoreError> {
        let envelope = self.open_envelope(id)?;
        let number = id.0.cast_signed();
        let mut select = self.sql("SELECT key, fingerprint FROM broadcast WHERE id = ?1")?;
        let (key, fingerprint): (Option<String>, Option<[u8; 32]>) =
            select.query_row([number], |row| Ok((row.get(0)?, row.get(1)?)))?;
        if let Some(key) = key {
            if self.known_key(&envelope.tenant, &key)?.is_some() {
                return Err(StoreError::KeyReused { index: 0 });
            }
            self.sql(
                "INSERT INTO idempotency (tenant, key, fingerprint, broadcast) \
                 VALUES (?1, ?2, ?3, ?4)",
            )?
            .execute(params![envelope.tenant.as_str(), key, fingerprint, number])?;
        }
        self.sql("UPDATE broadcast SET sealed_at = ?2 WHERE id = ?1")?
            .execute([number, now.millis()])?;
        self.sql(
            "INSERT INTO chunk (batch, lane, due_at, attempt, epoch, crashes, count) \
             SELECT id, lane, due_at, 1, 0, 0, count FROM batch WHERE broadcast = ?1 ORDER BY id",
        )?
        .execute([number])?;
        let mut select =
            self.sql("SELECT lane, sum(count) FROM batch WHERE broadcast = ?1 GROUP BY lane")?;
        let lanes: Vec<(LaneId, u32)> = select
            .query_map([number], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<Result<_, _>>()?;
        let mut total = 0;
        for (lane, count) in lanes {
            self.add_due(lane, envelope.due_at)?;
            self.count_accepted(count as usize);
            total += u64::from(count);
        }
        Ok(total)
    }

    pub(super) fn abandon_broadcast(&mut self, id: BroadcastId) -> Result<(), StoreError> {
        self.open_envelope(id)?;
        self.sql("DELETE FROM batch WHERE broadcast = ?1")?.execute([id.0.cast_signed()])?;
        self.sql("DELETE FROM broadcast WHERE id = ?1")?.execute([id.0.cast_signed()])?;
        Ok(())
    }

    /// What the batches of an open broadcast have in common; the destination is left empty.
    fn open_envelope(&self, id: BroadcastId) -> Result<Envelope, StoreError> {
        let mut select = self.sql(
            "SELECT channel, '', priority, tenant, guarantee, due_at, expires_at \
             FROM broadcast WHERE id = ?1 AND sealed_at IS NULL",
        )?;
        let mut rows = select.query([id.0.cast_signed()])?;
        let row = rows.next()?.ok_or(StoreError::NoOpenBroadcast(id))?;
        Ok(Envelope {
            tenant: model::name(row.get_ref(3)?.as_str()?)?,
            lane: rows::lane_at(row, 0)?,
            guarantee: model::guarantee(row.get(4)?)?,
            due_at: Timestamp::from_millis(row.get(5)?),
            expires_at: row.get::<_, Option<i64>>(6)?.map(Timestamp::from_millis),
            broadcast: Some(id),
        })
    }
}
