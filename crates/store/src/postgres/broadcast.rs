//! Broadcasts: stored as they come in, due only once they are sealed.

use async_trait::async_trait;
use notification::{BroadcastId, ByteString, Envelope, Timestamp};

use super::columns::{labels_at, lane_at, signed};
use super::ingest::{fingerprint_at, number_of};
use super::request::WriterRequest;
use super::transaction::{RunError, TenantKey, Transaction};
use crate::rows::codes;
use crate::rows::labels::BatchLabels;
use crate::rows::packing::{OpenedBroadcast, check_bound, pack_group, used_before};
use crate::{BroadcastDraft, BroadcastOpened, KeyUse, RecipientGroup, StoreError};

/// Opens one.
#[derive(Debug)]
pub(super) struct OpenBroadcast(pub(super) BroadcastDraft, pub(super) Timestamp);

/// Adds recipients to an open one.
#[derive(Debug)]
pub(super) struct AddRecipients {
    pub(super) broadcast: BroadcastId,
    pub(super) groups: Vec<RecipientGroup>,
    pub(super) now: Timestamp,
}

/// Accepts an open one.
#[derive(Debug)]
pub(super) struct SealBroadcast(pub(super) BroadcastId, pub(super) Timestamp);

/// Removes an open one, or part of it; whether nothing of it is left.
#[derive(Debug)]
pub(super) struct AbandonBroadcast(pub(super) BroadcastId);

/// Seals a broadcast: from here on all of it waits for its chunks.
const SEAL: &str = "WITH sealed AS (UPDATE broadcast SET sealed_at = $2, worker = NULL, \
       recipients = (SELECT coalesce(sum(recipients), 0) FROM unreleased WHERE broadcast = $1) WHERE id = $1) \
     UPDATE unreleased SET passed = 0, waiting = recipients WHERE broadcast = $1 RETURNING recipients";

#[async_trait]
impl WriterRequest for OpenBroadcast {
    type Answer = BroadcastOpened;

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<Self::Answer, RunError> {
        let draft = &self.0;
        transaction.look_up(self.keys()).await?;
        // A caller gets the refusal before it uploads its recipients; a key that is used meanwhile is found by sealing.
        if let Some(idempotency) = &draft.idempotency {
            let key = (draft.tenant.clone(), idempotency.key.clone());
            if let Some(used) = transaction.key_uses.get(&key) {
                return Ok(used_before(*used, idempotency)?);
            }
        }
        check_bound(draft.idempotency.as_ref(), self.1)?;
        // The second row counts the recipients as they come, so that sealing walks over no batch.
        let insert = "WITH opened AS (INSERT INTO broadcast \
             (tenant, channel, priority, guarantee, due_at, expires_at, worker, key, fingerprint, options, payload, labels) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) RETURNING id) \
             INSERT INTO unreleased (broadcast) SELECT id FROM opened RETURNING broadcast";
        let idempotency = draft.idempotency.as_ref();
        // It lives with its worker, which alone adds to it and seals it: it is abandoned when the worker is reaped.
        let worker = transaction.state.membership.borrow().worker;
        let row = transaction
            .row(
                insert,
                &[
                    &draft.tenant.as_str(),
                    &draft.channel.as_str(),
                    &i16::from(draft.priority.code()),
                    &i16::from(draft.guarantee.code()),
                    &draft.due_at.millis(),
                    &draft.expires_at.map(Timestamp::millis),
                    &worker,
                    &idempotency.map(|idempotency| &*idempotency.key),
                    &idempotency.map(|idempotency| &idempotency.fingerprint[..]),
                    &&*draft.content.options,
                    &&*draft.content.payload,
                    &BatchLabels::one(draft.labels.clone()).encode(),
                ],
            )
            .await?;
        let id: i64 = row.try_get(0)?;
        Ok(BroadcastOpened::Opened(BroadcastId(id.cast_unsigned())))
    }

    fn keys(&self) -> Vec<TenantKey> {
        let Self(draft, _) = self;
        let key = draft.idempotency.as_ref().map(|idempotency| idempotency.key.clone());
        key.map(|key| (draft.tenant.clone(), key)).into_iter().collect()
    }
}

#[async_trait]
impl WriterRequest for AddRecipients {
    type Answer = ();

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<(), RunError> {
        let open = transaction.open_broadcast(self.broadcast).await?;
        transaction.reserve_batches(self.items()).await?;
        let mut batches = Vec::new();
        let envelopes: Vec<Envelope> =
            self.groups.iter().map(|group| open.envelope_of(group)).collect();
        let lanes = envelopes.iter().map(|envelope| &envelope.lane).collect();
        let lanes = transaction.lane_numbers(lanes).await?;
        for (group, envelope) in self.groups.iter().zip(envelopes) {
            let lane = number_of(&lanes, &envelope.lane);
            let packed = pack_group(group, (&envelope, &open.common), self.now, || {
                transaction.state.next_batch()
            });
            batches.extend(packed.into_iter().map(|batch| (lane, batch)));
        }
        if !batches.is_empty() {
            transaction.copy_batches(&batches).await?;
            let added: usize = batches.iter().map(|(_, batch)| batch.items.len()).sum();
            let update = "UPDATE unreleased SET recipients = recipients + $2 WHERE broadcast = $1";
            let number = self.broadcast.0.cast_signed();
            transaction.execute(update, &[&number, &signed(added)]).await?;
        }
        Ok(())
    }

    fn items(&self) -> usize {
        self.groups.iter().map(|group| group.recipients.len()).sum()
    }
}

#[async_trait]
impl WriterRequest for SealBroadcast {
    type Answer = u64;

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<u64, RunError> {
        let Self(id, now) = *self;
        let OpenedBroadcast { envelope, key, common: _ } = transaction.open_broadcast(id).await?;
        let number = id.0.cast_signed();
        if let Some((key, fingerprint)) = key {
            let owned = (envelope.lane.tenant.clone(), key.clone());
            transaction.look_up(vec![owned.clone()]).await?;
            // A draft of this transaction may have the key: it is written with the commit.
            if transaction.key_uses.contains_key(&owned)
                || transaction.packer.keys.contains_key(&owned)
            {
                return Err(StoreError::KeyReused { index: 0 }.into());
            }
            let insert = "INSERT INTO idempotency (tenant, key, fingerprint, broadcast) \
                 VALUES ($1, $2, $3, $4)";
            let tenant = envelope.lane.tenant.as_str();
            transaction.execute(insert, &[&tenant, &&*key, &&fingerprint[..], &number]).await?;
            // For the requests that come behind in this transaction: the key is not looked up again.
            transaction.key_uses.insert(owned, (KeyUse::Broadcast(id), fingerprint));
        }
        let row = transaction.row(SEAL, &[&number, &now.millis()]).await?;
        let recipients = row.try_get::<_, i64>(0)?.cast_unsigned();
        // Not while recipients are added: before it is sealed nothing of a broadcast is accepted, and it may still be abandoned.
        let accepted = usize::try_from(recipients).unwrap_or(usize::MAX);
        transaction.count_accepted(&envelope.lane.tenant, accepted);
        // A broadcast of one slice is due with this transaction.
        let slice = transaction.slice(number, 0).await?;
        transaction.release(&slice).await?;
        Ok(recipients)
    }
}

#[async_trait]
impl WriterRequest for AbandonBroadcast {
    type Answer = bool;

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<bool, RunError> {
        transaction.open_broadcast(self.0).await?;
        let number = self.0.0.cast_signed();
        let is_all = transaction.remove_batches(&[number]).await?;
        if is_all {
            transaction.remove_broadcasts(&[number]).await?;
        }
        Ok(is_all)
    }
}

// === impl Transaction ===

impl Transaction<'_> {
    /// A broadcast that this process has open, locked.
    async fn open_broadcast(&mut self, id: BroadcastId) -> Result<OpenedBroadcast, RunError> {
        // The worker is compared, since a broadcast whose removal has begun has none: it would be sealed without what is gone
        // already. The lock keeps the process that reaps this one from removing it before the commit.
        let select = "SELECT channel, '', priority, tenant, guarantee, due_at, expires_at, key, fingerprint, labels \
             FROM broadcast WHERE id = $1 AND sealed_at IS NULL AND worker = $2 FOR UPDATE";
        let worker = self.state.membership.borrow().worker;
        let rows = self.rows(select, &[&id.0.cast_signed(), &worker]).await?;
        let row = rows.first().ok_or(StoreError::NoOpenBroadcast(id))?;
        let guarantee: i16 = row.try_get(4)?;
        let envelope = Envelope {
            lane: lane_at(row, 0)?,
            guarantee: codes::guarantee(u8::try_from(guarantee).unwrap_or(u8::MAX))?,
            due_at: Timestamp::from_millis(row.try_get(5)?),
            expires_at: row.try_get::<_, Option<i64>>(6)?.map(Timestamp::from_millis),
            broadcast: Some(id),
        };
        let key = match row.try_get::<_, Option<&str>>(7)? {
            Some(key) => Some((ByteString::from(key), fingerprint_at(row, 8)?)),
            None => None,
        };
        let common = BatchLabels::decode(labels_at(row, 9)?, 1)?.of(0).common;
        Ok(OpenedBroadcast { envelope, key, common })
    }

    /// Removes open broadcasts that have no batches any more; how many there were.
    pub(super) async fn remove_broadcasts(&mut self, broadcasts: &[i64]) -> Result<u64, RunError> {
        let delete = "DELETE FROM unreleased WHERE broadcast = ANY($1)";
        self.execute(delete, &[&broadcasts]).await?;
        Ok(self.execute("DELETE FROM broadcast WHERE id = ANY($1)", &[&broadcasts]).await?)
    }
}
