//! Dead notifications that are sent again.

use notification::{BatchId, Name, NotificationId, Timestamp};
use rusqlite::{OptionalExtension, params};

use super::transaction::Transaction;
use crate::rows::codes::LaneId;
use crate::rows::members::Members;
use crate::rows::model::NewChunk;
use crate::rows::requeue::{Deaths, Owned, by_batch, log_row};
use crate::{Requeued, StoreError};

impl Transaction<'_> {
    pub(super) fn requeue(
        &mut self,
        ids: &[NotificationId],
        tenant: &Name,
        now: Timestamp,
    ) -> Result<Vec<Requeued>, StoreError> {
        let mut answers = vec![Requeued::Unknown; ids.len()];
        for (batch, asked) in by_batch(ids) {
            let Some((lane, owned)) = self.owned(batch, tenant)? else { continue };
            let members = owned.answer(self.state.store_id, now, &asked, &mut answers);
            if members.is_empty() {
                continue;
            }
            self.add_log(batch, &log_row(&members, now))?;
            self.count_requeued(members.len());
            self.add_chunk(&NewChunk::first(batch, lane, now, members))?;
        }
        Ok(answers)
    }

    /// The batch, if `tenant` has it.
    fn owned(&self, id: BatchId, tenant: &Name) -> Result<Option<(LaneId, Owned)>, StoreError> {
        let number = id.0.cast_signed();
        let mut select = self.sql(
            "SELECT lane, accepted_at, expires_at, count FROM batch WHERE id = ?1 AND tenant = ?2 \
             AND (batch.broadcast IS NULL OR (SELECT sealed_at FROM broadcast AS b \
             WHERE b.id = batch.broadcast) IS NOT NULL)",
        )?;
        let owned = select.query_row(params![number, tenant.as_str()], |row| {
            let expires_at: Option<i64> = row.get(2)?;
            Ok((
                row.get(0)?,
                Owned {
                    id,
                    accepted_at: Timestamp::from_millis(row.get(1)?),
                    expires_at: expires_at.map(Timestamp::from_millis),
                    count: row.get(3)?,
                    dead: Members::default(),
                },
            ))
        });
        let Some((lane, mut owned)) = owned.optional()? else { return Ok(None) };
        let mut deaths = Deaths::default();
        for group in self.logged(id)? {
            deaths.add(&group);
        }
        owned.dead = deaths.members();
        Ok(Some((lane, owned)))
    }
}
