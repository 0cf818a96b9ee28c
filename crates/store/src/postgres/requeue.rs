//! Dead notifications that are sent again.

use std::collections::HashMap;

use async_trait::async_trait;
use notification::{BatchId, Name, NotificationId, State, Timestamp};

use super::columns::signed;
use super::transaction::{RunError, Transaction, Writes};
use super::writer::WriterRequest;
use crate::rows::codes::LaneId;
use crate::rows::members::Members;
use crate::rows::model::NewChunk;
use crate::rows::requeue::{Deaths, Owned, by_batch, log_row};
use crate::{Requeued, StoreError};

/// Sends dead notifications again.
#[derive(Debug)]
pub(super) struct RequeueNotifications {
    pub(super) ids: Vec<NotificationId>,
    pub(super) tenant: Name,
    pub(super) now: Timestamp,
}

/// The rows are locked so that of two who requeue the same, the second one sees what the first did. In one order, so
/// that they never wait for each other.
const SELECT_OWNED: &str = "SELECT id, lane, accepted_at, expires_at, count FROM batch WHERE id = ANY($1) AND tenant = $2 \
     AND (broadcast IS NULL OR (SELECT sealed_at FROM broadcast AS b WHERE b.id = batch.broadcast) IS NOT NULL) \
     ORDER BY id FOR NO KEY UPDATE OF batch";

#[async_trait]
impl WriterRequest for RequeueNotifications {
    type Answer = Vec<Requeued>;

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<Self::Answer, RunError> {
        let mut answers = vec![Requeued::Unknown; self.ids.len()];
        let asked = by_batch(&self.ids);
        let numbers: Vec<i64> = asked.keys().map(|batch| batch.0.cast_signed()).collect();
        let mut writes = Writes::default();
        for (lane, owned) in self.owned(transaction, &numbers).await? {
            let asked = asked.get(&owned.id).map(Vec::as_slice).unwrap_or_default();
            let members = owned.answer(transaction.state.store_id, self.now, asked, &mut answers);
            if members.is_empty() {
                continue;
            }
            writes.log(owned.id, &log_row(&members, self.now));
            *transaction.totals.entry(State::Dead.code()).or_default() -= signed(members.len());
            // They are pending again, as what is accepted is; all states together have as many as before.
            transaction.count_accepted(members.len());
            writes.chunk(NewChunk::first(owned.id, lane, self.now, members));
        }
        transaction.write(writes).await?;
        Ok(answers)
    }
}

// === impl RequeueNotifications ===

impl RequeueNotifications {
    /// The batches that the tenant has, locked.
    async fn owned(
        &self,
        transaction: &mut Transaction<'_>,
        numbers: &[i64],
    ) -> Result<Vec<(LaneId, Owned)>, RunError> {
        let rows = transaction.rows(SELECT_OWNED, &[&numbers, &self.tenant.as_str()]).await?;
        // Only now: what another one requeued meanwhile is committed.
        let mut deaths: HashMap<i64, Deaths> = HashMap::new();
        for (batch, log) in transaction.logged(numbers).await? {
            let deaths = deaths.entry(batch).or_default();
            for group in &log {
                deaths.add(group);
            }
        }
        let damaged = |_| StoreError::Damaged("a batch".to_owned());
        let mut owned = Vec::with_capacity(rows.len());
        for row in &rows {
            let number: i64 = row.try_get(0)?;
            let expires_at: Option<i64> = row.try_get(3)?;
            let dead = deaths.get(&number).map_or_else(Members::default, Deaths::members);
            let batch = Owned {
                id: BatchId(number.cast_unsigned()),
                accepted_at: Timestamp::from_millis(row.try_get(2)?),
                expires_at: expires_at.map(Timestamp::from_millis),
                count: u16::try_from(row.try_get::<_, i32>(4)?).map_err(damaged)?,
                dead,
            };
            owned.push((i64::from(row.try_get::<_, i32>(1)?), batch));
        }
        Ok(owned)
    }
}
