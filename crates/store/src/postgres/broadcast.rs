//! Broadcasts: stored as they come in, due only once they are sealed.

use std::sync::Arc;

use async_trait::async_trait;
use notification::{BroadcastId, Envelope, Timestamp};

use super::ingest::{fingerprint_at, number_of};
use super::round::{Failure, Round, TenantKey};
use super::writer::Ask;
use crate::rows::packing::{Filling, Known};
use crate::{BroadcastDraft, BroadcastOpened, RecipientGroup, StoreError};

/// Opens one.
#[derive(Debug)]
pub(super) struct Open(pub(super) BroadcastDraft);

/// Adds recipients to an open one.
#[derive(Debug)]
pub(super) struct AddRecipients {
    pub(super) broadcast: BroadcastId,
    pub(super) groups: Vec<RecipientGroup>,
    pub(super) now: Timestamp,
}

/// Accepts an open one.
#[derive(Debug)]
pub(super) struct Seal(pub(super) BroadcastId, pub(super) Timestamp);

/// Removes an open one, or part of it; whether nothing of it is left.
#[derive(Debug)]
pub(super) struct Abandon(pub(super) BroadcastId);

#[async_trait]
impl Ask for Open {
    type Answer = BroadcastOpened;

    async fn ask(&self, round: &mut Round<'_>) -> Result<Self::Answer, Failure> {
        let draft = &self.0;
        round.look_up(self.keys()).await?;
        if let Some(idempotency) = &draft.idempotency {
            let key = (draft.tenant.clone(), idempotency.key.clone());
            match round.known.get(&key) {
                Some((Known::Broadcast(id), fingerprint))
                    if *fingerprint == idempotency.fingerprint =>
                {
                    return Ok(BroadcastOpened::Replayed(*id));
                }
                Some(_) => return Err(StoreError::KeyReused { index: 0 }.into()),
                None => {}
            }
        }
        let insert = "INSERT INTO broadcast (tenant, channel, priority, guarantee, due_at, expires_at, worker, \
             key, fingerprint, options, payload) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) RETURNING id";
        let idempotency = draft.idempotency.as_ref();
        let worker = round.desk.membership.borrow().worker;
        let row = round
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
                ],
            )
            .await?;
        let id: i64 = row.try_get(0)?;
        Ok(BroadcastOpened::Opened(BroadcastId(id.cast_unsigned())))
    }

    fn keys(&self) -> Vec<TenantKey> {
        let Self(draft) = self;
        let key = draft.idempotency.as_ref().map(|idempotency| idempotency.key.clone());
        key.map(|key| (draft.tenant.clone(), key)).into_iter().collect()
    }
}

#[async_trait]
impl Ask for AddRecipients {
    type Answer = ();

    async fn ask(&self, round: &mut Round<'_>) -> Result<(), Failure> {
        let template = round.open_envelope(self.broadcast).await?;
        round.reserve_batches(self.items()).await?;
        let mut batches = Vec::new();
        let envelope_of = |group: &RecipientGroup| {
            let mut envelope = template.clone();
            envelope.lane.destination = Arc::clone(&group.destination);
            envelope
        };
        let envelopes: Vec<Envelope> = self.groups.iter().map(envelope_of).collect();
        let lanes = envelopes.iter().map(|envelope| &envelope.lane).collect();
        let lanes = round.lane_numbers(lanes).await?;
        for (group, envelope) in self.groups.iter().zip(envelopes) {
            let lane = number_of(&lanes, &envelope.lane);
            let new = |round: &mut Round<'_>| {
                let id = round.desk.next_batch();
                Filling::new(id, envelope.clone(), self.now, group.has_contents())
            };
            let mut batch = new(round);
            for (recipient, content) in group.items() {
                if !batch.fits(recipient, &content) {
                    batches.push((lane, std::mem::replace(&mut batch, new(round))));
                }
                batch.push(recipient.clone(), content);
            }
            if !batch.is_empty() {
                batches.push((lane, batch));
            }
        }
        if !batches.is_empty() {
            round.copy_batches(&batches).await?;
        }
        Ok(())
    }

    fn items(&self) -> usize {
        self.groups.iter().map(|group| group.recipients.len() + 1).sum()
    }
}

#[async_trait]
impl Ask for Seal {
    type Answer = u64;

    async fn ask(&self, round: &mut Round<'_>) -> Result<u64, Failure> {
        let Self(id, now) = *self;
        let envelope = round.open_envelope(id).await?;
        let number = id.0.cast_signed();
        let select = "SELECT key, fingerprint FROM broadcast WHERE id = $1";
        let row = round.row(select, &[&number]).await?;
        if let Some(key) = row.try_get::<_, Option<String>>(0)? {
            let key = (envelope.tenant.clone(), key.into());
            round.look_up(vec![key.clone()]).await?;
            if round.known.contains_key(&key) || round.packing.keys.contains_key(&key) {
                return Err(StoreError::KeyReused { index: 0 }.into());
            }
            let insert = "INSERT INTO idempotency (tenant, key, fingerprint, broadcast) \
                 SELECT tenant, key, fingerprint, id FROM broadcast WHERE id = $1";
            round.execute(insert, &[&number]).await?;
            round.known.insert(key, (Known::Broadcast(id), fingerprint_at(&row, 1)?));
        }
        round
            .execute(
                "UPDATE broadcast SET sealed_at = $2, worker = NULL WHERE id = $1",
                &[&number, &now.millis()],
            )
            .await?;
        let select = "SELECT id, lane, count FROM batch WHERE broadcast = $1 ORDER BY id";
        let batches = round.rows(select, &[&number]).await?;
        let mut writes = super::round::Writes::default();
        let mut total = 0;
        for row in &batches {
            let batch = notification::BatchId(row.try_get::<_, i64>(0)?.cast_unsigned());
            let count = usize::try_from(row.try_get::<_, i32>(2)?).unwrap_or(0);
            writes.chunk(super::round::NewChunk {
                batch,
                lane: i64::from(row.try_get::<_, i32>(1)?),
                due_at: envelope.due_at,
                attempt: 1,
                crashes: 0,
                count,
                members: None,
            });
            round.count_accepted(count);
            total += count as u64;
        }
        round.write(writes).await?;
        Ok(total)
    }
}

#[async_trait]
impl Ask for Abandon {
    type Answer = bool;

    async fn ask(&self, round: &mut Round<'_>) -> Result<bool, Failure> {
        round.open_envelope(self.0).await?;
        let number = self.0.0.cast_signed();
        let is_all = round.remove_batches(&[number]).await?;
        if is_all {
            round.execute("DELETE FROM broadcast WHERE id = $1", &[&number]).await?;
        }
        Ok(is_all)
    }
}
