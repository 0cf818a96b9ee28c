//! Ingest: the drafts of all callers of a transaction, packed into shared batches.

use std::collections::{BTreeMap, HashMap};
use std::pin::pin;
use std::time::Duration;

use async_trait::async_trait;
use notification::{
    BatchId, BroadcastId, ByteString, Draft, Lane, Name, NotificationId, Timestamp,
};
use tokio_postgres::binary_copy::BinaryCopyInWriter;
use tokio_postgres::types::Type;
use tokio_postgres::{Error, Row};
use uuid::Uuid;

use super::columns::{batch_labels_at, counted, narrow};
use super::placement::DestinationHash;
use super::request::WriterRequest;
use super::transaction::{RunError, TenantKey, Transaction, Writes};
use super::writer_state::WriterState;
use crate::rows::codes::{self, LaneId};
use crate::rows::labels;
use crate::rows::members::Members;
use crate::rows::model::NewChunk;
use crate::rows::packing::{BatchBuilder, Batches};
use crate::{Admission, KeyUse, StoreError};

/// Drafts of one caller.
#[derive(Debug)]
pub(super) struct IngestDrafts {
    pub(super) drafts: Vec<Draft>,
    pub(super) now: Timestamp,
}

/// The [`Batches`] of a transaction: keys that were looked up, and numbers that were reserved.
struct ReservedBatches<'a> {
    key_uses: &'a HashMap<TenantKey, (KeyUse, [u8; 32])>,
    state: &'a mut WriterState,
}

const COPY_BATCHES: &str = "COPY batch (id, lane, guarantee, accepted_at, due_at, expires_at, \
     broadcast, count, tenant, options, payload, items, of_feed, labels, trace) FROM STDIN BINARY";
const BATCH_TYPES: [Type; 15] = [
    Type::INT8,
    Type::INT4,
    Type::INT2,
    Type::INT8,
    Type::INT8,
    Type::INT8,
    Type::INT8,
    Type::INT4,
    Type::TEXT,
    Type::BYTEA,
    Type::BYTEA,
    Type::BYTEA,
    Type::BOOL,
    Type::BYTEA,
    Type::BYTEA,
];
const SELECT_LABELS: &str =
    "SELECT id, count, labels FROM batch WHERE id = ANY($1) AND labels IS NOT NULL";
/// Numbers that one value of the sequence stands for; its increment.
pub(super) const NUMBERS: u64 = 64;
/// Time for which numbers are given after they were drawn: batches of all processes are in the order of their numbers but for this
/// long, and retention goes by that order.
pub(super) const NUMBERS_KEPT_FOR: Duration = Duration::from_mins(10);

#[async_trait]
impl WriterRequest for IngestDrafts {
    type Answer = Vec<Admission>;

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<Self::Answer, RunError> {
        transaction.look_up(self.keys()).await?;
        // Before packing, which cannot query the server: each draft may need a batch of its own.
        transaction.reserve_batches(self.drafts.len()).await?;
        // Copied: if the transaction comes to nothing, the same drafts are packed again.
        Ok(transaction.pack(self.drafts.clone(), self.now)?)
    }

    fn keys(&self) -> Vec<TenantKey> {
        keys_of(&self.drafts)
    }

    fn items(&self) -> usize {
        self.drafts.len()
    }
}

// === impl ReservedBatches ===

impl Batches for ReservedBatches<'_> {
    fn store_id(&self) -> u16 {
        self.state.store_id
    }

    fn key_use(&self, tenant: &Name, key: &str) -> Result<Option<(KeyUse, [u8; 32])>, StoreError> {
        Ok(self.key_uses.get(&(tenant.clone(), ByteString::from(key))).copied())
    }

    fn next_batch(&mut self) -> BatchId {
        self.state.next_batch()
    }
}

// === impl WriterState ===

impl WriterState {
    /// The next of the reserved numbers.
    pub(super) fn next_batch(&mut self) -> BatchId {
        while let Some(last) = self.batch_numbers.last_mut() {
            // A number that was given is spent, even if its transaction comes to nothing: gaps do no harm.
            if let Some(number) = last.next() {
                return BatchId(number);
            }
            self.batch_numbers.pop();
        }
        debug_assert!(false, "numbers are reserved before they are given");
        BatchId(0)
    }
}

// === impl Transaction ===

impl Transaction<'_> {
    /// Packs drafts whose keys were looked up, and for which numbers are in hand; or refuses them all.
    pub(super) fn pack(
        &mut self,
        drafts: Vec<Draft>,
        now: Timestamp,
    ) -> Result<Vec<Admission>, StoreError> {
        let Self { packer, key_uses, state, .. } = self;
        packer.pack(&mut ReservedBatches { key_uses, state }, drafts, now)
    }

    /// Accepts what stands in for notifications that end in this transaction.
    pub(super) async fn accept_fallbacks(
        &mut self,
        mut drafts: Vec<Draft>,
        now: Timestamp,
    ) -> Result<(), RunError> {
        if drafts.is_empty() {
            return Ok(());
        }
        let originals = labels::stood_in_for(&drafts);
        let originals: Vec<i64> = originals.iter().map(|batch| batch.0.cast_signed()).collect();
        let mut labels = HashMap::new();
        for row in self.rows(SELECT_LABELS, &[&originals]).await? {
            let batch = BatchId(row.try_get::<_, i64>(0)?.cast_unsigned());
            labels.insert(batch, batch_labels_at(&row, 1)?);
        }
        labels::inherit(&mut drafts, &labels);
        self.reserve_batches(drafts.len()).await?;
        self.look_up(keys_of(&drafts)).await?;
        self.pack(drafts, now)?;
        Ok(())
    }

    /// Sees to it that `count` numbers of batches are in hand.
    pub(super) async fn reserve_batches(&mut self, count: usize) -> Result<(), Error> {
        let (now, since) = (self.begun_at, self.state.batch_numbers_since);
        if now.since(since) >= NUMBERS_KEPT_FOR {
            self.state.batch_numbers.clear();
        }
        if !self.state.batch_numbers.is_empty() {
            let announced = self.announced().await?;
            self.state.batch_numbers.retain(|numbers| numbers.start > announced);
        }
        if self.state.batch_numbers.is_empty() {
            self.state.batch_numbers_since = now;
        }
        let in_hand: u64 =
            self.state.batch_numbers.iter().map(|numbers| numbers.end - numbers.start).sum();
        let missing = (count as u64).saturating_sub(in_hand).div_ceil(NUMBERS);
        if missing == 0 {
            return Ok(());
        }
        let draw = "SELECT nextval('batch_number') FROM generate_series(1, $1::int4)";
        let missing = i32::try_from(missing).unwrap_or(i32::MAX);
        // Numbers are taken from the last range, so the lowest goes there.
        for row in self.rows(draw, &[&missing]).await?.iter().rev() {
            let first = row.try_get::<_, i64>(0)?.cast_unsigned();
            let numbers = first..first + NUMBERS;
            self.state.batch_numbers_end = numbers.end.max(self.state.batch_numbers_end);
            self.state.batch_numbers.push(numbers);
        }
        Ok(())
    }

    /// Looks up the uses of those `keys` that were not looked up in this transaction. A part of the transaction that writes a key
    /// to the table adds it to [`Transaction::key_uses`].
    pub(super) async fn look_up(&mut self, mut keys: Vec<TenantKey>) -> Result<(), RunError> {
        keys.retain(|key| self.looked_up.insert(key.clone()));
        if keys.is_empty() {
            return Ok(());
        }
        let (tenants, keys): (Vec<String>, Vec<String>) =
            keys.iter().map(|(tenant, key)| (tenant.to_string(), key.to_string())).unzip();
        let select = "SELECT tenant, key, fingerprint, notification, broadcast FROM idempotency \
             JOIN unnest($1::text[], $2::text[]) AS wanted (tenant, key) USING (tenant, key)";
        for row in self.rows(select, &[&tenants, &keys]).await? {
            let tenant = codes::name(row.try_get(0)?)?;
            let key = ByteString::from(row.try_get::<_, &str>(1)?);
            let fingerprint = fingerprint_at(&row, 2)?;
            self.key_uses.insert((tenant, key), (key_use_at(&row, 3)?, fingerprint));
        }
        Ok(())
    }

    /// Writes the batches packed in this transaction, due from now on.
    pub(super) async fn store_packed(&mut self) -> Result<(), RunError> {
        let packer = std::mem::take(&mut self.packer);
        if packer.batches.is_empty() {
            return Ok(());
        }
        let mut writes = Writes::default();
        let (mut batches, mut chunks) = (Vec::with_capacity(packer.batches.len()), Vec::new());
        let lanes = packer.batches.iter().map(|batch| &batch.envelope.lane).collect();
        let lanes = self.lane_numbers(lanes).await?;
        for batch in packer.batches {
            let lane = number_of(&lanes, &batch.envelope.lane);
            let all = Members::all(batch.items.len());
            let chunk = NewChunk::first(batch.id, lane, batch.envelope.due_at, all);
            let Lane { channel, destination, .. } = &batch.envelope.lane;
            let destination = DestinationHash::of(channel.as_str(), destination);
            chunks.push((destination, NewChunk { is_whole: true, ..chunk }));
            self.count_accepted(&batch.envelope.lane.tenant, batch.items.len());
            batches.push((lane, batch));
        }
        self.placed(chunks).for_each(|chunk| writes.chunk(chunk));
        self.copy_batches(&batches).await?;
        self.write(writes).await?;
        let mut keys = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        // In one order everywhere, so that two processes never wait for each other.
        let in_order: BTreeMap<_, _> = packer.keys.into_iter().collect();
        for ((tenant, key), (fingerprint, id)) in in_order {
            keys.0.push(tenant.to_string());
            keys.1.push(key.to_string());
            keys.2.push(fingerprint.to_vec());
            keys.3.push(Uuid::from_bytes(id.to_bytes()));
        }
        if !keys.0.is_empty() {
            // Another process may have used one meanwhile: then the transaction is done again, and finds it.
            let insert = "INSERT INTO idempotency (tenant, key, fingerprint, notification) \
                 SELECT * FROM unnest($1::text[], $2::text[], $3::bytea[], $4::uuid[])";
            self.execute(insert, &[&keys.0, &keys.1, &keys.2, &keys.3]).await?;
        }
        Ok(())
    }

    /// Writes batches, and nothing that would make them due.
    pub(super) async fn copy_batches(
        &mut self,
        batches: &[(LaneId, BatchBuilder)],
    ) -> Result<(), Error> {
        let copy = self.session.prepared(COPY_BATCHES).await?;
        self.session.pause(COPY_BATCHES).await?;
        let sink = self.session.client.copy_in(&copy).await?;
        let mut writer = pin!(BinaryCopyInWriter::new(sink, &BATCH_TYPES));
        for (lane, batch) in batches {
            let envelope = &batch.envelope;
            let shared = batch.shared_content();
            writer
                .as_mut()
                .write(&[
                    &batch.id.0.cast_signed(),
                    &narrow(*lane),
                    &i16::from(envelope.guarantee.code()),
                    &batch.accepted_at.millis(),
                    &envelope.due_at.millis(),
                    &envelope.expires_at.map(Timestamp::millis),
                    &envelope.broadcast.map(|id| id.0.cast_signed()),
                    &counted(batch.items.len()),
                    &envelope.lane.tenant.as_str(),
                    &shared.map(|content| &*content.options),
                    &shared.map(|content| &*content.payload),
                    &batch.encoded_items(),
                    &batch.is_of_feed.then_some(true),
                    &batch.labels.encode(),
                    &batch.traces.to_bytes(),
                ])
                .await?;
        }
        let copied = writer.finish().await?;
        self.follow_own_growth(copied).await
    }
}

/// The idempotency keys of drafts.
pub(super) fn keys_of<'a>(drafts: impl IntoIterator<Item = &'a Draft>) -> Vec<TenantKey> {
    let key = |draft: &Draft| {
        let key = draft.idempotency.as_ref()?.key.clone();
        Some((draft.envelope.lane.tenant.clone(), key))
    };
    drafts.into_iter().filter_map(key).collect()
}

/// The fingerprint of what an idempotency key was used for.
pub(super) fn fingerprint_at(row: &Row, column: usize) -> Result<[u8; 32], StoreError> {
    let damaged = |_| StoreError::Damaged("a fingerprint".to_owned());
    row.try_get::<_, &[u8]>(column)?.try_into().map_err(damaged)
}

/// The use of an idempotency key, from two columns of which the first is `column`.
pub(super) fn key_use_at(row: &Row, column: usize) -> Result<KeyUse, Error> {
    Ok(match row.try_get::<_, Option<Uuid>>(column)? {
        Some(id) => KeyUse::Notification(NotificationId::from_bytes(id.into_bytes())),
        None => KeyUse::Broadcast(BroadcastId(row.try_get::<_, i64>(column + 1)?.cast_unsigned())),
    })
}

/// The number of a lane that was looked up.
pub(super) fn number_of(lanes: &HashMap<Lane, LaneId>, lane: &Lane) -> LaneId {
    debug_assert!(lanes.contains_key(lane), "lanes are looked up before they are used");
    lanes.get(lane).copied().unwrap_or_default()
}
