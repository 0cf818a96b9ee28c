//! Erasure of recipients and contents of notifications, and of what the suppression list has of a recipient.

use notification::{BatchId, Bytes, Name, NotificationId, Timestamp};
use rusqlite::params;

use super::rows::{labels_at, signed};
use super::transaction::Transaction;
use crate::rows::erasure::{BatchToErase, ErasedBatch};
use crate::rows::members::Members;
use crate::rows::release::WaitingState;
use crate::rows::removal::without_recipients;
use crate::rows::requeue::by_batch;
use crate::{Erased, StoreError};

impl Transaction<'_> {
    pub(super) fn erase(
        &mut self,
        ids: &[NotificationId],
        tenant: &Name,
    ) -> Result<Vec<Erased>, StoreError> {
        let mut answers = vec![Erased::Unknown; ids.len()];
        for (id, asked) in by_batch(ids) {
            let Some(batch) = self.batch_to_erase(id, tenant)? else { continue };
            if let Some(erased) = batch.answer(&asked, &mut answers)? {
                self.write_erased(&batch, &erased)?;
            }
        }
        Ok(answers)
    }

    /// The batch, if `tenant` has it.
    fn batch_to_erase(
        &self,
        id: BatchId,
        tenant: &Name,
    ) -> Result<Option<BatchToErase>, StoreError> {
        let number = id.0.cast_signed();
        let mut select = self.sql(
            "SELECT accepted_at, count, batch.broadcast, removed, items, waiting.broadcast IS NOT NULL, withdrawn_at, labels FROM batch \
             LEFT JOIN unreleased AS waiting ON waiting.broadcast = batch.broadcast AND passed < batch.id \
             WHERE batch.id = ?1 AND tenant = ?2 AND (batch.broadcast IS NULL \
             OR (SELECT sealed_at FROM broadcast AS b WHERE b.id = batch.broadcast) IS NOT NULL)",
        )?;
        let mut rows = select.query(params![number, tenant.as_str()])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        let mut pending = Members::default();
        for chunk in self.chunks_of(id)? {
            pending.extend(&chunk.members());
        }
        let mut select = self.sql("SELECT id, entries FROM log WHERE batch = ?1")?;
        let log = select.query_map([number], |row| Ok(((0, row.get(0)?), row.get(1)?)))?;
        let waiting = WaitingState::new(row.get(6)?);
        Ok(Some(BatchToErase {
            store_id: self.state.store_id,
            id,
            accepted_at: Timestamp::from_millis(row.get(0)?),
            count: row.get(1)?,
            broadcast: row.get(2)?,
            removed: row.get(3)?,
            items: Bytes::from(row.get::<_, Vec<u8>>(4)?),
            labels: labels_at(row, 7)?,
            waiting: row.get::<_, bool>(5)?.then_some(waiting),
            pending,
            log: log.collect::<Result<_, _>>()?,
        }))
    }

    fn write_erased(&self, batch: &BatchToErase, erased: &ErasedBatch) -> Result<(), StoreError> {
        let number = batch.id.0.cast_signed();
        if erased.erased == usize::from(batch.count) {
            self.strip(batch.id, &without_recipients(), 2)?;
            if batch.removed == 0 {
                self.count_without_content(batch.broadcast, erased.erased)?;
            }
        } else {
            let ErasedBatch { items, labels, erased, .. } = erased;
            self.sql("UPDATE batch SET items = ?2, erased = ?3, labels = ?4 WHERE id = ?1")?
                .execute(params![number, items, signed(*erased), labels])?;
        }
        for ((_, row), entries) in &erased.log {
            self.sql("UPDATE log SET entries = ?2 WHERE id = ?1")?
                .execute(params![row, entries])?;
        }
        Ok(())
    }

    /// Removes `recipient` from the suppression list of every channel, with all that is kept of its changes; the number of channels
    /// that had it on their lists.
    pub(super) fn forget(&self, recipient: &str) -> Result<u64, StoreError> {
        let (mut listed, mut channel) = (0, String::new());
        while let Some(next) = self.listing_channel(&channel)? {
            let delete = "DELETE FROM suppression WHERE channel = ?1 AND recipient = ?2";
            listed += self.sql(delete)?.execute([&next, recipient])?;
            self.sql("DELETE FROM suppression_lift WHERE channel = ?1 AND recipient = ?2")?
                .execute([&next, recipient])?;
            channel = next;
        }
        // The last change stays, without the recipient: its number must not be given again.
        self.sql(
            "DELETE FROM suppression_event WHERE recipient = ?1 \
             AND id < (SELECT max(id) FROM suppression_event)",
        )?
        .execute([recipient])?;
        self.sql(
            "UPDATE suppression_event SET recipient = '', reason = iif(reason IS NULL, NULL, '') WHERE recipient = ?1",
        )?
        .execute([recipient])?;
        Ok(listed as u64)
    }

    /// The first channel behind `after` with anything on its list, or a mark.
    fn listing_channel(&self, after: &str) -> Result<Option<String>, StoreError> {
        let select = "SELECT min(channel) FROM (SELECT min(channel) AS channel FROM suppression WHERE channel > ?1 \
             UNION ALL SELECT min(channel) FROM suppression_lift WHERE channel > ?1)";
        Ok(self.sql(select)?.query_row([after], |row| row.get(0))?)
    }
}
