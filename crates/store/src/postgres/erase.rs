//! Erasure of recipients and contents of notifications, and of what the suppression list has of a recipient.

use std::collections::BTreeMap;

use async_trait::async_trait;
use notification::{BatchId, ByteString, Bytes, Name, NotificationId, Timestamp};

use super::columns::{is_text, labels_at};
use super::request::WriterRequest;
use super::suppress::LOCK_FOR_LIFTING;
use super::transaction::{RunError, Transaction};
use crate::rows::erasure::{BatchToErase, ErasedBatch};
use crate::rows::members::Members;
use crate::rows::release::WaitingState;
use crate::rows::removal::without_recipients;
use crate::rows::requeue::by_batch;
use crate::{Erased, StoreError};

/// Erases notifications that have ended.
#[derive(Debug)]
pub(super) struct EraseNotifications {
    pub(super) ids: Vec<NotificationId>,
    pub(super) tenant: Name,
}

/// Erases a recipient from the suppression list.
#[derive(Debug)]
pub(super) struct ForgetRecipient(pub(super) ByteString);

/// The rows are locked, so that nothing of them is requeued meanwhile; in one order, so that two calls never wait for each other.
const LOCK_BATCHES: &str = "SELECT batch.id, accepted_at, count, batch.broadcast, removed, waiting.broadcast IS NOT NULL, withdrawn_at \
     FROM batch LEFT JOIN unreleased AS waiting ON waiting.broadcast = batch.broadcast AND passed < batch.id \
     WHERE batch.id = ANY($1) AND batch.tenant = $2 AND (batch.broadcast IS NULL \
     OR (SELECT sealed_at FROM broadcast AS b WHERE b.id = batch.broadcast) IS NOT NULL) \
     ORDER BY batch.id FOR UPDATE OF batch";
const SELECT_MEMBERS: &str = "SELECT count, members FROM chunk WHERE batch = $1";
const SELECT_LOG: &str = "SELECT txid, id, entries FROM log WHERE batch = $1";
const UPDATE_BATCH: &str = "UPDATE batch SET items = $2, erased = $3, labels = $4 WHERE id = $1";
const STRIP_BATCH: &str = "UPDATE batch SET options = NULL, payload = NULL, trace = NULL, items = $2, labels = NULL, removed = 2 \
     WHERE id = $1";
/// The first channel behind another with anything on its list, or a mark.
const NEXT_CHANNEL: &str = "SELECT least((SELECT min(channel) FROM suppression WHERE channel > $1), \
     (SELECT min(channel) FROM suppression_lift WHERE channel > $1))";
const DELETE_ENTRY: &str = "DELETE FROM suppression WHERE channel = $1 AND recipient = $2";
const DELETE_MARK: &str = "DELETE FROM suppression_lift WHERE channel = $1 AND recipient = $2";
const UPDATE_LOG: &str = "UPDATE log SET entries = $3 WHERE txid = $1 AND id = $2";

#[async_trait]
impl WriterRequest for EraseNotifications {
    type Answer = Vec<Erased>;

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<Self::Answer, RunError> {
        let mut answers = vec![Erased::Unknown; self.ids.len()];
        let asked = by_batch(&self.ids);
        let numbers: Vec<i64> = asked.keys().map(|batch| batch.0.cast_signed()).collect();
        let rows = transaction.rows(LOCK_BATCHES, &[&numbers, &self.tenant.as_str()]).await?;
        for row in &rows {
            let damaged = |_| StoreError::Damaged("a batch".to_owned());
            let waiting = WaitingState::new(row.try_get(6)?);
            let mut batch = BatchToErase {
                store_id: transaction.state.store_id,
                id: BatchId(row.try_get::<_, i64>(0)?.cast_unsigned()),
                accepted_at: Timestamp::from_millis(row.try_get(1)?),
                count: u16::try_from(row.try_get::<_, i32>(2)?).map_err(damaged)?,
                broadcast: row.try_get(3)?,
                removed: u8::try_from(row.try_get::<_, i16>(4)?).map_err(damaged)?,
                items: Bytes::new(),
                labels: None,
                waiting: row.try_get::<_, bool>(5)?.then_some(waiting),
                pending: Members::default(),
                log: BTreeMap::new(),
            };
            transaction.complete(&mut batch).await?;
            let asked = asked.get(&batch.id).map(Vec::as_slice).unwrap_or_default();
            if let Some(erased) = batch.answer(asked, &mut answers)? {
                transaction.write_erased(&batch, &erased).await?;
            }
        }
        Ok(answers)
    }
}

#[async_trait]
impl WriterRequest for ForgetRecipient {
    type Answer = u64;

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<Self::Answer, RunError> {
        let recipient: &str = &self.0;
        if !is_text(recipient) {
            return Ok(0);
        }
        transaction.execute(LOCK_FOR_LIFTING, &[]).await?;
        let (mut listed, mut channel) = (0, String::new());
        while let Some(next) =
            transaction.row(NEXT_CHANNEL, &[&channel]).await?.try_get::<_, Option<String>>(0)?
        {
            listed += transaction.execute(DELETE_ENTRY, &[&next, &recipient]).await?;
            transaction.execute(DELETE_MARK, &[&next, &recipient]).await?;
            channel = next;
        }
        transaction.state.takes_off_list |= listed > 0;
        let changes = "DELETE FROM suppression_event WHERE recipient = $1";
        transaction.execute(changes, &[&recipient]).await?;
        Ok(listed)
    }
}

// === impl Transaction ===

impl Transaction<'_> {
    /// Reads what a batch that is locked has in other rows: whether it waits was read with the lock, and then its chunks, each in a
    /// snapshot of its own. A release in between is seen by the second alone, and so is the end of a delivery, with its log.
    async fn complete(&mut self, batch: &mut BatchToErase) -> Result<(), RunError> {
        let number = batch.id.0.cast_signed();
        for row in self.rows(SELECT_MEMBERS, &[&number]).await? {
            let count = usize::try_from(row.try_get::<_, i32>(0)?).unwrap_or(0);
            let members: Option<&[u8]> = row.try_get(1)?;
            batch.pending.extend(&members.map_or_else(|| Members::all(count), Members::from_blob));
        }
        for row in self.rows(SELECT_LOG, &[&number]).await? {
            batch.log.insert((row.try_get(0)?, row.try_get(1)?), row.try_get(2)?);
        }
        let row = self.row("SELECT items, labels FROM batch WHERE id = $1", &[&number]).await?;
        batch.items = Bytes::from(row.try_get::<_, Vec<u8>>(0)?);
        batch.labels = labels_at(&row, 1)?;
        Ok(())
    }

    async fn write_erased(
        &mut self,
        batch: &BatchToErase,
        erased: &ErasedBatch,
    ) -> Result<(), RunError> {
        let number = batch.id.0.cast_signed();
        if erased.erased == usize::from(batch.count) {
            self.execute(STRIP_BATCH, &[&number, &without_recipients()]).await?;
            if batch.removed == 0
                && let Some(broadcast) = batch.broadcast
            {
                self.count_without_content([(broadcast, i64::from(batch.count))].into()).await?;
            }
        } else {
            let count = i32::try_from(erased.erased).unwrap_or(i32::MAX);
            let ErasedBatch { items, labels, .. } = erased;
            self.execute(UPDATE_BATCH, &[&number, items, &count, labels]).await?;
        }
        for ((txid, id), entries) in &erased.log {
            self.execute(UPDATE_LOG, &[txid, id, entries]).await?;
        }
        Ok(())
    }
}
