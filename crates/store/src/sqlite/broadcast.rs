//! Broadcasts: stored as they come in, due only once they are sealed.

use notification::{BroadcastId, Envelope, Timestamp};
use rusqlite::params;

use super::rows;
use super::rows::signed;
use super::transaction::Transaction;
use crate::rows::codes;
use crate::rows::labels::BatchLabels;
use crate::rows::packing::{Batches as _, OpenedBroadcast, check_bound, pack_group, used_before};
use crate::{BroadcastDraft, BroadcastOpened, RecipientGroup, StoreError};

impl Transaction<'_> {
    pub(super) fn open_broadcast(
        &mut self,
        draft: &BroadcastDraft,
        now: Timestamp,
    ) -> Result<BroadcastOpened, StoreError> {
        let idempotency = draft.idempotency.as_ref();
        // A caller gets the refusal before it uploads its recipients; a key that is used meanwhile is found by sealing.
        if let Some(idempotency) = idempotency
            && let Some(used) = self.broadcast_key_use(&draft.tenant, &idempotency.key)?
        {
            return used_before(used, idempotency);
        }
        check_bound(idempotency, now)?;
        let id = self
            .sql(
                "INSERT INTO broadcast (tenant, channel, priority, guarantee, due_at, expires_at, \
                 key, fingerprint, options, payload, labels) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
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
                BatchLabels::one(draft.labels.clone()).encode(),
            ])?;
        // Counts have a row of their own: SQLite would write the broadcast's content again with each change of one.
        self.sql("INSERT INTO unreleased (broadcast) VALUES (?1)")?.execute([id])?;
        Ok(BroadcastOpened::Opened(BroadcastId(id.cast_unsigned())))
    }

    pub(super) fn add_recipients(
        &mut self,
        id: BroadcastId,
        groups: &[RecipientGroup],
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let open = self.open(id)?;
        let mut added = 0;
        for group in groups {
            let envelope = open.envelope_of(group);
            // Each batch has one recipient at least.
            let through = self.state.next_batch + group.recipients.len() as u64;
            let lane = self.lane_number(&envelope.lane, through)?;
            for batch in pack_group(group, (&envelope, &open.common), now, || self.next_batch()) {
                self.store_batch(&batch, lane)?;
            }
            // Nothing of it is due before it is sealed, and the lanes of a large broadcast would fill the memory.
            self.state.lanes.forget_if_idle(lane);
            added += group.recipients.len();
        }
        self.sql("UPDATE unreleased SET recipients = recipients + ?2 WHERE broadcast = ?1")?
            .execute([id.0.cast_signed(), signed(added)])?;
        Ok(())
    }

    pub(super) fn seal_broadcast(
        &mut self,
        id: BroadcastId,
        now: Timestamp,
    ) -> Result<u64, StoreError> {
        let OpenedBroadcast { envelope, key, common: _ } = self.open(id)?;
        let number = id.0.cast_signed();
        if let Some((key, fingerprint)) = key {
            // Used by another caller since this one was opened.
            if self.broadcast_key_use(&envelope.lane.tenant, &key)?.is_some() {
                return Err(StoreError::KeyReused { index: 0 });
            }
            self.sql(
                "INSERT INTO idempotency (tenant, key, fingerprint, broadcast) \
                 VALUES (?1, ?2, ?3, ?4)",
            )?
            .execute(params![
                envelope.lane.tenant.as_str(),
                &*key,
                fingerprint,
                number
            ])?;
        }
        // From here on all of it waits for its chunks; a broadcast of one slice is due with this transaction.
        let mut update = self.sql(
            "UPDATE unreleased SET passed = 0, waiting = recipients WHERE broadcast = ?1 \
             RETURNING recipients",
        )?;
        let recipients: i64 = update.query_row([number], |row| row.get(0))?;
        self.sql("UPDATE broadcast SET sealed_at = ?2, recipients = ?3 WHERE id = ?1")?
            .execute([number, now.millis(), recipients])?;
        // Not while recipients are added: nothing of an open broadcast is accepted, and it may still be abandoned.
        self.count_accepted(
            &envelope.lane.tenant,
            usize::try_from(recipients).unwrap_or(usize::MAX),
        );
        self.release_first(number)?;
        Ok(recipients.cast_unsigned())
    }

    /// Removes an open broadcast, or as much of it as one slice has; whether nothing of it is left.
    pub(super) fn abandon_broadcast(&mut self, id: BroadcastId) -> Result<bool, StoreError> {
        self.open(id)?;
        let number = id.0.cast_signed();
        let size = self.state.slicing.batches;
        let removed = self
            .sql(
                "DELETE FROM batch WHERE id IN ( \
                 SELECT id FROM batch WHERE broadcast = ?1 ORDER BY id LIMIT ?2)",
            )?
            .execute([number, signed(size)])?;
        if removed == size {
            return Ok(false);
        }
        // The broadcast goes last: cut off before, the next start finds it open and removes the rest.
        self.sql("DELETE FROM unreleased WHERE broadcast = ?1")?.execute([number])?;
        self.sql("DELETE FROM broadcast WHERE id = ?1")?.execute([number])?;
        Ok(true)
    }

    /// A broadcast that is open.
    fn open(&self, id: BroadcastId) -> Result<OpenedBroadcast, StoreError> {
        let mut select = self.sql(
            "SELECT channel, '', priority, tenant, guarantee, due_at, expires_at, key, fingerprint, labels \
             FROM broadcast WHERE id = ?1 AND sealed_at IS NULL",
        )?;
        let mut rows = select.query([id.0.cast_signed()])?;
        let row = rows.next()?.ok_or(StoreError::NoOpenBroadcast(id))?;
        let envelope = Envelope {
            lane: rows::lane_at(row, 0)?,
            guarantee: codes::guarantee(row.get(4)?)?,
            due_at: Timestamp::from_millis(row.get(5)?),
            expires_at: row.get::<_, Option<i64>>(6)?.map(Timestamp::from_millis),
            broadcast: Some(id),
        };
        let key = row.get::<_, Option<String>>(7)?;
        let key = key.map(|key| Ok::<_, rusqlite::Error>((key.into(), row.get(8)?))).transpose()?;
        let common = BatchLabels::decode(rows::labels_at(row, 9)?, 1)?.of(0).common;
        Ok(OpenedBroadcast { envelope, key, common })
    }
}
