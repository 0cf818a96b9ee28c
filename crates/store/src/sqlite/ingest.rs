//! Ingest: the drafts of all callers of a transaction, packed into shared batches.

use async_trait::async_trait;
use notification::{BatchId, BroadcastId, Draft, Name, Timestamp};
use rusqlite::params;

use super::Sqlite;
use super::rows::{self, signed};
use super::transaction::Transaction;
use super::writer::Durability::{Synced, WithTheNext};
use crate::rows::codes::LaneId;
use crate::rows::members::Members;
use crate::rows::model::NewChunk;
use crate::rows::packing::{BatchBuilder, Batches};
use crate::{
    Admission, BroadcastDraft, BroadcastOpened, Ingest, KeyUse, RecipientGroup, StoreError,
};

#[async_trait]
impl Ingest for Sqlite {
    async fn ingest(
        &self,
        drafts: Vec<Draft>,
        now: Timestamp,
    ) -> Result<Vec<Admission>, StoreError> {
        if drafts.is_empty() {
            return Ok(Vec::new());
        }
        self.accept(drafts.len(), Synced, move |transaction| transaction.pack(drafts, now)).await
    }

    async fn open_broadcast(
        &self,
        draft: BroadcastDraft,
        now: Timestamp,
    ) -> Result<BroadcastOpened, StoreError> {
        self.accept(0, WithTheNext, move |transaction| transaction.open_broadcast(&draft, now))
            .await
    }

    async fn add_recipients(
        &self,
        broadcast: BroadcastId,
        groups: Vec<RecipientGroup>,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        // They are written like notifications, and so count towards the size of a transaction.
        let items = groups.iter().map(|group| group.recipients.len()).sum();
        let add = move |transaction: &mut Transaction<'_>| {
            transaction.add_recipients(broadcast, &groups, now)
        };
        self.accept(items, WithTheNext, add).await
    }

    async fn seal_broadcast(
        &self,
        broadcast: BroadcastId,
        now: Timestamp,
    ) -> Result<u64, StoreError> {
        self.accept(0, Synced, move |transaction| transaction.seal_broadcast(broadcast, now)).await
    }

    async fn abandon_broadcast(&self, broadcast: BroadcastId) -> Result<(), StoreError> {
        // In slices, so that other commands have their turn. On a full disk as well: to remove something makes room.
        while !self
            .write(Synced, move |transaction| transaction.abandon_broadcast(broadcast))
            .await?
        {}
        Ok(())
    }
}

// === impl Transaction ===

impl Batches for Transaction<'_> {
    fn store_id(&self) -> u16 {
        self.state.store_id
    }

    fn key_use(&self, tenant: &Name, key: &str) -> Result<Option<(KeyUse, [u8; 32])>, StoreError> {
        rows::key_use(self.connection, tenant, key)
    }

    fn next_batch(&mut self) -> BatchId {
        let id = BatchId(self.state.next_batch);
        // Not taken back when the transaction is undone: gaps do no harm.
        self.state.next_batch += 1;
        id
    }
}

impl Transaction<'_> {
    /// Packs drafts into batches that the drafts of all callers of this transaction share; or refuses them all.
    pub(super) fn pack(
        &mut self,
        drafts: Vec<Draft>,
        now: Timestamp,
    ) -> Result<Vec<Admission>, StoreError> {
        // Taken out meanwhile: the packer asks the transaction for keys and numbers.
        let mut packer = std::mem::take(&mut self.packer);
        let admissions = packer.pack(self, drafts, now);
        self.packer = packer;
        admissions
    }

    /// The use of a broadcast's key. Those that came in with drafts of this transaction are written first, to be found.
    pub(super) fn broadcast_key_use(
        &mut self,
        tenant: &Name,
        key: &str,
    ) -> Result<Option<(KeyUse, [u8; 32])>, StoreError> {
        self.store_packed()?;
        self.key_use(tenant, key)
    }

    /// Writes the batches packed in this transaction, due from now on.
    pub(super) fn store_packed(&mut self) -> Result<(), StoreError> {
        let packer = std::mem::take(&mut self.packer);
        for batch in &packer.batches {
            let lane = self.lane_number(&batch.envelope.lane, batch.id.0)?;
            self.store_batch(batch, lane)?;
            let all = Members::all(batch.items.len());
            let chunk = NewChunk::first(batch.id, lane, batch.envelope.due_at, all);
            self.add_chunk(&NewChunk { is_whole: true, ..chunk })?;
            self.count_accepted(&batch.envelope.lane.tenant, batch.items.len());
        }
        // None of them can be there: they were looked up in this transaction, and no other one writes.
        let mut insert = self.sql(
            "INSERT INTO idempotency (tenant, key, fingerprint, notification) \
             VALUES (?1, ?2, ?3, ?4)",
        )?;
        for ((tenant, key), (fingerprint, id)) in packer.keys {
            insert.execute(params![tenant.as_str(), &*key, fingerprint, id.to_bytes()])?;
        }
        Ok(())
    }

    /// Writes one batch, and nothing that would make it due.
    pub(super) fn store_batch(&self, batch: &BatchBuilder, lane: LaneId) -> Result<(), StoreError> {
        let envelope = &batch.envelope;
        let shared = batch.shared_content();
        self.sql(
            "INSERT INTO batch (id, lane, guarantee, accepted_at, due_at, expires_at, broadcast, \
             count, tenant, options, payload, items, of_feed, labels, trace) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)",
        )?
        .execute(params![
            batch.id.0.cast_signed(),
            lane,
            envelope.guarantee.code(),
            batch.accepted_at.millis(),
            envelope.due_at.millis(),
            envelope.expires_at.map(Timestamp::millis),
            envelope.broadcast.map(|id| id.0.cast_signed()),
            signed(batch.items.len()),
            envelope.lane.tenant.as_str(),
            shared.map(|content| &*content.options),
            shared.map(|content| &*content.payload),
            batch.encoded_items(),
            batch.is_of_feed.then_some(true),
            batch.labels.encode(),
            batch.traces.to_bytes(),
        ])?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::{Shape, at};
    use crate::sqlite::disk::Statvfs;
    use crate::sqlite::open::{Options, open};
    use std::sync::Arc;

    #[test]
    fn callers_of_one_round_share_batches_and_a_refused_one_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let mut opened = open(directory.path(), Options::new(1), Arc::new(Statvfs), at(0)).unwrap();
        let mut transaction = Transaction::begin(&opened.connection, &mut opened.state).unwrap();
        let keyed = |content| Shape { key: Some(("key", content)), ..Shape::default() }.drafts(1);
        let mut pack = |drafts| transaction.pack(drafts, at(0));
        let first = pack(keyed(1)).unwrap()[0];
        let Admission::Accepted(first) = first else { panic!("{first:?}") };
        assert_eq!(pack(keyed(1)).unwrap(), [Admission::Replayed(first)]);
        let mut refused = Shape::default().drafts(5);
        refused.extend(keyed(2));
        assert_eq!(pack(refused), Err(StoreError::KeyReused { index: 5 }));
        let last = pack(Shape::default().drafts(1)).unwrap()[0];
        let Admission::Accepted(last) = last else { panic!("{last:?}") };
        assert_eq!((last.batch(), last.index()), (first.batch(), 1));
        transaction.commit().unwrap();
        let count = "SELECT sum(count) FROM batch";
        assert_eq!(opened.connection.query_row(count, [], |row| row.get(0)), Ok(2));
    }
}
