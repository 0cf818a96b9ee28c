//! Notifications that ended undelivered and are sent again.

use std::collections::BTreeSet;

use notification::{BatchId, Name, NotificationId, State, Timestamp};
use rusqlite::params;

use super::transaction::Transaction;
use crate::rows::codes::LaneId;
use crate::rows::model::NewChunk;
use crate::rows::release::WaitingState;
use crate::rows::requeue::{EndedBatch, by_batch, without_content};
use crate::{Requeued, StoreError};

impl Transaction<'_> {
    pub(super) fn requeue(
        &mut self,
        ids: &[NotificationId],
        states: &BTreeSet<State>,
        tenant: &Name,
        now: Timestamp,
    ) -> Result<Vec<Requeued>, StoreError> {
        let mut answers = vec![Requeued::Unknown; ids.len()];
        for (batch, asked) in by_batch(ids) {
            let Some((lane, owned)) = self.owned(batch, tenant)? else { continue };
            let returned = owned.answer(states, now, &asked, &mut answers);
            for (state, members) in returned.by_state() {
                self.count_taken_back(tenant, state, members.len());
            }
            self.add_log(batch, &returned.log_row(now))?;
            let members = returned.into_members();
            if !members.is_empty() {
                self.add_chunk(&NewChunk::first(batch, lane, now, members))?;
            }
        }
        Ok(answers)
    }

    /// The batch, if `tenant` has it.
    pub(super) fn owned(
        &self,
        id: BatchId,
        tenant: &Name,
    ) -> Result<Option<(LaneId, EndedBatch)>, StoreError> {
        let number = id.0.cast_signed();
        let mut select = self.sql(
            "SELECT lane, accepted_at, expires_at, count, waiting.broadcast IS NOT NULL, withdrawn_at, removed > 0, \
             iif(erased > 0, items, NULL) FROM batch \
             LEFT JOIN unreleased AS waiting ON waiting.broadcast = batch.broadcast AND passed < batch.id \
             WHERE batch.id = ?1 AND tenant = ?2 AND (batch.broadcast IS NULL \
             OR (SELECT sealed_at FROM broadcast AS b WHERE b.id = batch.broadcast) IS NOT NULL)",
        )?;
        let mut rows = select.query(params![number, tenant.as_str()])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        let (expires_at, count): (Option<i64>, u16) = (row.get(2)?, row.get(3)?);
        let waiting = WaitingState::new(row.get(5)?);
        let owned = EndedBatch {
            store_id: self.state.store_id,
            id,
            accepted_at: Timestamp::from_millis(row.get(1)?),
            expires_at: expires_at.map(Timestamp::from_millis),
            count,
            without_content: without_content(count, row.get(6)?, row.get(7)?)?,
            waiting: row.get::<_, bool>(4)?.then_some(waiting),
            log: self.logged(id)?,
        };
        Ok(Some((row.get(0)?, owned)))
    }
}
