//! Notifications that ended undelivered and are sent again.

use std::collections::BTreeSet;

use async_trait::async_trait;
use notification::{BatchId, Name, NotificationId, State, Timestamp};

use super::placement::DestinationHash;
use super::request::WriterRequest;
use super::transaction::{RunError, Transaction, Writes};
use crate::rows::codes::LaneId;
use crate::rows::model::NewChunk;
use crate::rows::release::WaitingState;
use crate::rows::requeue::{EndedBatch, by_batch, without_content};
use crate::{Requeued, StoreError};

/// Sends notifications again that stand in one of `states`.
#[derive(Debug)]
pub(super) struct RequeueNotifications {
    pub(super) ids: Vec<NotificationId>,
    pub(super) states: BTreeSet<State>,
    pub(super) tenant: Name,
    pub(super) now: Timestamp,
}

/// The rows are locked, so that of two calls that requeue or resolve the same notification, the second one sees the result of the
/// first. In one order, so that they never wait for each other.
const SELECT_OWNED: &str = "SELECT batch.id, batch.lane, accepted_at, expires_at, count, waiting.broadcast IS NOT NULL, withdrawn_at, \
     channel, destination, removed > 0, CASE WHEN erased > 0 THEN items END FROM batch JOIN tenant_lane AS lane ON lane.id = batch.lane \
     LEFT JOIN unreleased AS waiting ON waiting.broadcast = batch.broadcast AND passed < batch.id \
     WHERE batch.id = ANY($1) AND batch.tenant = $2 AND (batch.broadcast IS NULL \
     OR (SELECT sealed_at FROM broadcast AS b WHERE b.id = batch.broadcast) IS NOT NULL) \
     ORDER BY batch.id FOR NO KEY UPDATE OF batch";

#[async_trait]
impl WriterRequest for RequeueNotifications {
    type Answer = Vec<Requeued>;

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<Self::Answer, RunError> {
        let mut answers = vec![Requeued::Unknown; self.ids.len()];
        let asked = by_batch(&self.ids);
        let numbers: Vec<i64> = asked.keys().map(|batch| batch.0.cast_signed()).collect();
        let (mut writes, mut chunks) = (Writes::default(), Vec::new());
        for (lane, destination, owned) in transaction.owned(&self.tenant, &numbers).await? {
            let asked = asked.get(&owned.id).map(Vec::as_slice).unwrap_or_default();
            let returned = owned.answer(&self.states, self.now, asked, &mut answers);
            for (state, members) in returned.by_state() {
                transaction.count_taken_back(&self.tenant, state, members.len());
            }
            writes.log(owned.id, &returned.log_row(self.now));
            let members = returned.into_members();
            if !members.is_empty() {
                chunks.push((destination, NewChunk::first(owned.id, lane, self.now, members)));
            }
        }
        transaction.placed(chunks).for_each(|chunk| writes.chunk(chunk));
        transaction.write(writes).await?;
        Ok(answers)
    }
}

impl Transaction<'_> {
    /// The batches that the tenant has, locked.
    pub(super) async fn owned(
        &mut self,
        tenant: &Name,
        numbers: &[i64],
    ) -> Result<Vec<(LaneId, DestinationHash, EndedBatch)>, RunError> {
        let rows = self.rows(SELECT_OWNED, &[&numbers, &tenant.as_str()]).await?;
        // Only now: requeues and resolutions of other calls meanwhile are committed.
        let mut logged = self.logged(numbers).await?;
        let damaged = |_| StoreError::Damaged("a batch".to_owned());
        let mut owned = Vec::with_capacity(rows.len());
        for row in &rows {
            let number: i64 = row.try_get(0)?;
            let expires_at: Option<i64> = row.try_get(3)?;
            let waiting = WaitingState::new(row.try_get(6)?);
            let count = u16::try_from(row.try_get::<_, i32>(4)?).map_err(damaged)?;
            let batch = EndedBatch {
                store_id: self.state.store_id,
                id: BatchId(number.cast_unsigned()),
                accepted_at: Timestamp::from_millis(row.try_get(2)?),
                expires_at: expires_at.map(Timestamp::from_millis),
                count,
                without_content: without_content(count, row.try_get(9)?, row.try_get(10)?)?,
                waiting: row.try_get::<_, bool>(5)?.then_some(waiting),
                log: logged.remove(&number).unwrap_or_default(),
            };
            let destination = DestinationHash::of(row.try_get(7)?, row.try_get(8)?);
            owned.push((i64::from(row.try_get::<_, i32>(1)?), destination, batch));
        }
        Ok(owned)
    }
}
