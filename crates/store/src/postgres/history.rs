//! Batches with everything that happened to them, and histories of single notifications.

use std::collections::HashMap;

use futures_util::try_join;
use notification::{BatchId, ByteString, NotificationId};
use uuid::Uuid;

use super::claim::{batches_at, select_batch};
use super::columns::{batch_labels_at, chunk_at, select_chunk};
use super::read::{Parameters, Snapshot};
use super::search::batch_id_at;
use crate::rows::codec::decode_log;
use crate::rows::members::Members;
use crate::rows::model::BatchHistory;
use crate::rows::release::WaitingState;
use crate::{History, StoreError};

/// Batches of an open broadcast are not accepted yet.
const SELECT_BATCHES: &str =
    select_batch!("batch.id = ANY($1) AND (batch.broadcast IS NULL OR sealed_at IS NOT NULL)");
const SELECT_LABELS: &str = "SELECT id, count, labels FROM batch WHERE id = ANY($1)";
const SELECT_CHUNKS: &str = select_chunk!("FROM chunk WHERE batch = ANY($1)");
const SELECT_LOG: &str = "SELECT batch, entries FROM log WHERE batch = ANY($1) ORDER BY txid, id";
/// Batches that wait for their chunk, with the time at which they were withdrawn.
const SELECT_WAITING: &str = "SELECT wanted.id, withdrawn_at FROM unnest($1::int8[]) AS wanted (id) \
     CROSS JOIN LATERAL (SELECT withdrawn_at FROM unreleased \
       WHERE broadcast = (SELECT broadcast FROM batch WHERE batch.id = wanted.id) AND passed < wanted.id) AS its";

// === impl Snapshot ===

impl Snapshot<'_> {
    pub(super) async fn find(&self, id: NotificationId) -> Result<Option<History>, StoreError> {
        let count = "SELECT count FROM batch WHERE id = $1";
        let rows = self.rows(count, &[&id.batch().0.cast_signed()]).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        if i32::from(id.index()) >= row.try_get(0)? {
            return Ok(None);
        }
        let batches = self.batch_histories(&[id.batch()]).await?;
        let Some(batch) = batches.get(&id.batch()) else { return Ok(None) };
        let mut found = batch.histories(self.store_id, &Members::from_iter([id.index()]))?;
        // The id also holds the time of acceptance and the store: one that differs in these is of no notification here.
        found.retain(|history| history.id == id);
        self.link(&mut found).await?;
        Ok(found.pop())
    }

    /// Those of these batches that are accepted, with everything that happened to them, in one flight.
    pub(super) async fn batch_histories(
        &self,
        ids: &[BatchId],
    ) -> Result<HashMap<BatchId, BatchHistory>, StoreError> {
        if ids.is_empty() {
            return Ok(HashMap::new());
        }
        let numbers: Vec<i64> = ids.iter().map(|id| id.0.cast_signed()).collect();
        let parameters: Parameters<'_> = &[&numbers];
        let (batches, labels, chunks, log, waiting) = try_join!(
            self.rows(SELECT_BATCHES, parameters),
            self.rows(SELECT_LABELS, parameters),
            self.rows(SELECT_CHUNKS, parameters),
            self.rows(SELECT_LOG, parameters),
            self.rows(SELECT_WAITING, parameters),
        )?;
        let batches = batches_at(&batches)?.into_iter();
        let mut found: HashMap<BatchId, BatchHistory> =
            batches.map(|(id, batch)| (id, BatchHistory::new(batch))).collect();
        for row in &labels {
            if let Some(history) = found.get_mut(&batch_id_at(row, 0)?) {
                history.labels = batch_labels_at(row, 1)?;
            }
        }
        for row in &chunks {
            let chunk = chunk_at(row)?;
            if let Some(history) = found.get_mut(&chunk.batch) {
                let members = chunk.members();
                history.chunks.push((chunk, members));
            }
        }
        for row in &log {
            if let Some(history) = found.get_mut(&batch_id_at(row, 0)?) {
                history.log.extend(decode_log(row.try_get(1)?)?);
            }
        }
        for row in &waiting {
            if let Some(history) = found.get_mut(&batch_id_at(row, 0)?) {
                history.waiting = Some(WaitingState::new(row.try_get(1)?));
            }
        }
        Ok(found)
    }

    /// Adds the fallbacks that stand in for these notifications.
    pub(super) async fn link(&self, histories: &mut [History]) -> Result<(), StoreError> {
        // The key under which a fallback is accepted is all that leads from a notification to it.
        let keys: Vec<Option<ByteString>> = histories.iter().map(History::fallback_key).collect();
        let (mut tenants, mut used): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
        for (history, key) in histories.iter().zip(&keys) {
            if let Some(key) = key {
                tenants.push(history.envelope.lane.tenant.as_str());
                used.push(key);
            }
        }
        if used.is_empty() {
            return Ok(());
        }
        let select = "SELECT key, notification FROM unnest($1::text[], $2::text[]) AS wanted (of, its) \
             JOIN idempotency ON idempotency.tenant = wanted.of AND idempotency.key = wanted.its";
        let mut found: HashMap<String, Option<Uuid>> = HashMap::new();
        for row in self.rows(select, &[&tenants, &used]).await? {
            found.insert(row.try_get(0)?, row.try_get(1)?);
        }
        for (history, key) in histories.iter_mut().zip(&keys) {
            let fallback = key.as_ref().and_then(|key| found.get(&**key).copied().flatten());
            history.fallback_id = fallback.map(|id| NotificationId::from_bytes(id.into_bytes()));
        }
        Ok(())
    }
}
