//! Broadcasts: stored as they come in, due only once they are sealed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use notification::{BatchId, BroadcastId, ByteString, Content, Envelope, Lane, Timestamp};

use super::board::Place;
use super::connection::Session;
use super::ingest::fingerprint;
use super::intake::Intaken;
use super::round::{Interrupted, Round, ask};
use super::table::{guarantee, instant, small, unsigned};
use crate::rows::lanes::LaneId;
use crate::rows::model;
use crate::rows::packing::{Filling, Known};
use crate::{BroadcastDraft, BroadcastOpened, RecipientGroup, StoreError};

/// A broadcast whose recipients are still coming.
#[derive(Debug, Clone)]
pub(super) struct OpenBroadcast {
    /// What its batches have in common; the destination is left empty.
    pub(super) envelope: Envelope,
    pub(super) key: Option<(ByteString, [u8; 32])>,
}

const FIND_OPEN: &str = "SELECT id, tenant, channel, priority, guarantee, due_at, expires_at, key, \
     fingerprint FROM broadcast WHERE id = ANY($1) AND sealed_at IS NULL";
const LOCK_OPEN: &str = "SELECT id FROM broadcast WHERE id = ANY($1) AND sealed_at IS NULL \
     ORDER BY id FOR UPDATE";
const OPEN: &str = "INSERT INTO broadcast (tenant, channel, priority, guarantee, due_at, expires_at, \
     worker, key, fingerprint, options, payload) \
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) RETURNING id";
const SEAL: &str = "UPDATE broadcast SET sealed_at = $2, worker = NULL WHERE id = $1";
/// The partition is that of [`partition_of`](super::shared::partition_of).
const RELEASE: &str = "WITH added AS ( \
       INSERT INTO chunk (batch, lane, partition, due_at, attempt, count) \
       SELECT id, lane, ((id % 65521) * 40503 % 65536 / 1024)::smallint, due_at, 1, count \
       FROM batch WHERE broadcast = $1 ORDER BY id RETURNING id, lane, batch, count) \
     SELECT lane, min(id), min(batch), sum(count)::bigint FROM added GROUP BY lane";
const ABANDON_BATCHES: &str = "DELETE FROM batch WHERE broadcast = $1";
const ABANDON: &str = "DELETE FROM broadcast WHERE id = $1";

/// Those of `wanted` that are open.
pub(super) async fn find_open(
    session: &Session,
    wanted: &BTreeSet<BroadcastId>,
) -> Result<BTreeMap<BroadcastId, OpenBroadcast>, Interrupted> {
    if wanted.is_empty() {
        return Ok(BTreeMap::new());
    }
    let wanted: Vec<i64> = wanted.iter().map(|id| id.0.cast_signed()).collect();
    let mut open = BTreeMap::new();
    for row in ask(session, FIND_OPEN, &[&wanted]).await? {
        let id = BroadcastId(unsigned(&row, 0)?);
        let lane = Lane {
            channel: model::name(row.try_get(2)?)?,
            destination: "".into(),
            priority: model::priority(small(row.try_get::<_, i16>(3)?)?)?,
        };
        let envelope = Envelope {
            tenant: model::name(row.try_get(1)?)?,
            lane,
            guarantee: guarantee(&row, 4)?,
            due_at: instant(&row, 5)?,
            expires_at: row.try_get::<_, Option<i64>>(6)?.map(Timestamp::from_millis),
            broadcast: Some(id),
        };
        let key = match row.try_get::<_, Option<&str>>(7)? {
            Some(key) => Some((ByteString::from(key), fingerprint(row.try_get(8)?)?)),
            None => None,
        };
        open.insert(id, OpenBroadcast { envelope, key });
    }
    Ok(open)
}

/// Keeps open broadcasts from being ended by others. One that was ended meanwhile interrupts the transaction.
pub(super) async fn lock(
    round: &Round<'_>,
    open: &BTreeMap<BroadcastId, OpenBroadcast>,
) -> Result<(), Interrupted> {
    if open.is_empty() {
        return Ok(());
    }
    let ids: Vec<i64> = open.keys().map(|id| id.0.cast_signed()).collect();
    if round.query(LOCK_OPEN, &[&ids]).await?.len() == ids.len() {
        return Ok(());
    }
    Err(Interrupted::Again("a broadcast was ended by another process".to_owned()))
}

pub(super) async fn open(
    round: &Round<'_>,
    intaken: &Intaken,
    draft: &BroadcastDraft,
) -> Result<Result<BroadcastOpened, StoreError>, Interrupted> {
    let idempotency = draft.idempotency.as_ref();
    if let Some(idempotency) = idempotency {
        let key = (draft.tenant.clone(), idempotency.key.clone());
        match intaken.keys.get(&key) {
            Some((Known::Broadcast(id), fingerprint))
                if *fingerprint == idempotency.fingerprint =>
            {
                return Ok(Ok(BroadcastOpened::Replayed(*id)));
            }
            Some(_) => return Ok(Err(StoreError::KeyReused { index: 0 })),
            None => {}
        }
    }
    let (priority, guarantee) =
        (i16::from(draft.priority.code()), i16::from(draft.guarantee.code()));
    let rows = round
        .query(
            OPEN,
            &[
                &draft.tenant.as_str(),
                &draft.channel.as_str(),
                &priority,
                &guarantee,
                &draft.due_at.millis(),
                &draft.expires_at.map(Timestamp::millis),
                &round.shared.worker(),
                &idempotency.map(|idempotency| &*idempotency.key),
                &idempotency.map(|idempotency| &idempotency.fingerprint[..]),
                &&*draft.content.options,
                &&*draft.content.payload,
            ],
        )
        .await?;
    let row = rows.first().ok_or_else(|| StoreError::Damaged("no number came".to_owned()))?;
    Ok(Ok(BroadcastOpened::Opened(BroadcastId(unsigned(row, 0)?))))
}

/// Adds recipients to an open broadcast.
pub(super) fn add(
    intaken: &mut Intaken,
    id: BroadcastId,
    groups: &[RecipientGroup],
    now: Timestamp,
    next_batch: &mut impl FnMut() -> BatchId,
) -> Result<(), StoreError> {
    let broadcast = intaken.open.get(&id).ok_or(StoreError::NoOpenBroadcast(id))?;
    let content = Content::default();
    for group in groups {
        let mut envelope = broadcast.envelope.clone();
        envelope.lane.destination = Arc::clone(&group.destination);
        let mut batch: Option<Filling> = None;
        for recipient in &group.recipients {
            if let Some(full) = batch.take_if(|batch| !batch.fits(recipient, &content)) {
                intaken.batches.push(full);
            }
            let filling =
                batch.get_or_insert_with(|| Filling::new(next_batch(), envelope.clone(), now));
            filling.push(recipient.clone(), content.clone());
        }
        intaken.batches.extend(batch);
    }
    Ok(())
}

/// Accepts the whole of an open broadcast. Its batches are written.
pub(super) async fn seal(
    round: &mut Round<'_>,
    intaken: &mut Intaken,
    id: BroadcastId,
    now: Timestamp,
) -> Result<Result<u64, StoreError>, Interrupted> {
    let Some(broadcast) = intaken.open.get(&id).cloned() else {
        return Ok(Err(StoreError::NoOpenBroadcast(id)));
    };
    let OpenBroadcast { envelope, key } = broadcast;
    if let Some((key, fingerprint)) = key {
        if intaken.is_used(&envelope.tenant, &key) {
            return Ok(Err(StoreError::KeyReused { index: 0 }));
        }
        intaken.sealed.push((envelope.tenant.clone(), key, fingerprint, id));
    }
    intaken.open.remove(&id);
    let number = id.0.cast_signed();
    round.query(SEAL, &[&number, &now.millis()]).await?;
    let mut total = 0;
    for row in round.query(RELEASE, &[&number]).await? {
        let lane = LaneId::from(row.try_get::<_, i32>(0)?);
        let place = Place { due_at: envelope.due_at, chunk: row.try_get(1)? };
        round.due_everywhere(lane, place);
        total += unsigned(&row, 3)?;
    }
    round.count_accepted(total);
    Ok(Ok(total))
}

/// Removes an open broadcast.
pub(super) async fn abandon(
    round: &Round<'_>,
    intaken: &mut Intaken,
    id: BroadcastId,
) -> Result<Result<(), StoreError>, Interrupted> {
    if intaken.open.remove(&id).is_none() {
        return Ok(Err(StoreError::NoOpenBroadcast(id)));
    }
    // What was added in this very transaction is not written yet.
    intaken.batches.retain(|batch| batch.envelope.broadcast != Some(id));
    round.query(ABANDON_BATCHES, &[&id.0.cast_signed()]).await?;
    round.query(ABANDON, &[&id.0.cast_signed()]).await?;
    Ok(Ok(()))
}
