//! What packing needs of the database, and what it writes there.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::pin::pin;

use futures_util::SinkExt as _;
use notification::{BatchId, BroadcastId, ByteString, Bytes, Lane, Name, NotificationId};
use uuid::Uuid;

use super::connection::Session;
use super::copy::encode;
use super::intake::Intaken;
use super::round::{Interrupted, Round, WRITING_MAX, ask, in_time};
use super::shared::Shared;
use super::table::{self, unsigned};
use crate::StoreError;
use crate::rows::lanes::LaneId;
use crate::rows::model;
use crate::rows::packing::{Batches, Filling, Known};

/// What stored keys were used for.
pub(super) type StoredKeys = HashMap<(Name, ByteString), (Known, [u8; 32])>;

/// Hands out numbers to batches.
pub(super) struct Numbering<'a> {
    pub(super) realm: u16,
    pub(super) numbers: &'a mut VecDeque<BatchId>,
    pub(super) keys: &'a StoredKeys,
}

/// Numbers that the sequence skips with each draw.
const BLOCK: u64 = 64;

const DRAW_NUMBERS: &str = "SELECT nextval('batch_number') FROM generate_series(1, $1)";
const SELECT_KEYS: &str = "SELECT i.tenant, i.key, i.fingerprint, i.notification, i.broadcast \
     FROM unnest($1::text[], $2::text[]) AS n (tenant, key) JOIN idempotency AS i \
     ON i.tenant = n.tenant COLLATE \"C\" AND i.key = n.key COLLATE \"C\"";
const ADD_KEYS: &str = "INSERT INTO idempotency (tenant, key, fingerprint, notification, broadcast) \
     SELECT * FROM unnest($1::text[], $2::text[], $3::bytea[], $4::uuid[], $5::bigint[])";
const ADD_LANES: &str = "INSERT INTO lane (channel, destination, priority) \
     SELECT * FROM unnest($1::text[], $2::text[], $3::smallint[]) ON CONFLICT DO NOTHING";
const SELECT_LANES: &str = "SELECT l.id, l.channel, l.destination, l.priority FROM lane AS l \
     JOIN unnest($1::text[], $2::text[], $3::smallint[]) AS n (channel, destination, priority) \
     ON l.channel = n.channel COLLATE \"C\" AND l.destination = n.destination COLLATE \"C\" \
       AND l.priority = n.priority";
const COPY_BATCHES: &str = "COPY batch (id, lane, guarantee, accepted_at, due_at, expires_at, \
     broadcast, count, tenant, options, payload, items) FROM STDIN (FORMAT binary)";

// === impl Numbering ===

impl Batches for Numbering<'_> {
    fn realm(&self) -> u16 {
        self.realm
    }

    fn known_key(&self, tenant: &Name, key: &str) -> Result<Option<(Known, [u8; 32])>, StoreError> {
        Ok(self.keys.get(&(tenant.clone(), ByteString::from(key))).copied())
    }

    fn next_batch(&mut self) -> BatchId {
        next_number(self.numbers)
    }
}

/// Has a number in hand for every batch that `items` notifications may need: one for each, at most. What is not used is
/// kept.
pub(super) async fn draw_numbers(
    session: &Session,
    numbers: &mut VecDeque<BatchId>,
    items: usize,
) -> Result<(), Interrupted> {
    let missing = items.saturating_sub(numbers.len()) as u64;
    if missing == 0 {
        return Ok(());
    }
    let blocks = i32::try_from(missing.div_ceil(BLOCK)).unwrap_or(i32::MAX);
    for row in ask(session, DRAW_NUMBERS, &[&blocks]).await? {
        let first = unsigned(&row, 0)?;
        numbers.extend((first..first + BLOCK).map(BatchId));
    }
    Ok(())
}

#[expect(clippy::expect_used, reason = "one was drawn for every notification of the round")]
pub(super) fn next_number(numbers: &mut VecDeque<BatchId>) -> BatchId {
    numbers.pop_front().expect("enough numbers were drawn")
}

/// What is stored under `wanted` keys.
pub(super) async fn find_keys(
    session: &Session,
    wanted: &BTreeSet<(&Name, &ByteString)>,
) -> Result<StoredKeys, Interrupted> {
    let mut stored = StoredKeys::new();
    if wanted.is_empty() {
        return Ok(stored);
    }
    let tenants: Vec<&str> = wanted.iter().map(|(tenant, _)| tenant.as_str()).collect();
    let keys: Vec<&str> = wanted.iter().map(|(_, key)| &***key).collect();
    for row in ask(session, SELECT_KEYS, &[&tenants, &keys]).await? {
        let known = match row.try_get::<_, Option<Uuid>>(3)? {
            Some(id) => Known::Notification(NotificationId::from_bytes(id.into_bytes())),
            None => Known::Broadcast(BroadcastId(unsigned(&row, 4)?)),
        };
        let (tenant, key) = (model::name(row.try_get(0)?)?, row.try_get::<_, &str>(1)?);
        stored.insert((tenant, ByteString::from(key)), (known, fingerprint(row.try_get(2)?)?));
    }
    Ok(stored)
}

pub(super) fn fingerprint(bytes: &[u8]) -> Result<[u8; 32], StoreError> {
    let damaged = |_| StoreError::Damaged("a fingerprint is not 32 bytes long".to_owned());
    bytes.try_into().map_err(damaged)
}

/// Notes what keys are used for: in one order, so that two processes never wait for each other. A key that another
/// process used first undoes the transaction.
pub(super) async fn add_keys(round: &Round<'_>, intaken: &Intaken) -> Result<(), Interrupted> {
    let notifications = intaken.packing.keys.iter().map(|((tenant, key), (fingerprint, id))| {
        (tenant, key, &fingerprint[..], Some(Uuid::from_bytes(id.to_bytes())), None)
    });
    let broadcasts = intaken.sealed.iter().map(|(tenant, key, fingerprint, id)| {
        (tenant, key, &fingerprint[..], None, Some(id.0.cast_signed()))
    });
    let mut used: Vec<_> = notifications.chain(broadcasts).collect();
    if used.is_empty() {
        return Ok(());
    }
    used.sort_by_key(|(tenant, key, ..)| (*tenant, *key));
    let tenants: Vec<&str> = used.iter().map(|(tenant, ..)| tenant.as_str()).collect();
    let keys: Vec<&str> = used.iter().map(|(_, key, ..)| &***key).collect();
    let prints: Vec<&[u8]> = used.iter().map(|(_, _, fingerprint, ..)| *fingerprint).collect();
    let notifications: Vec<Option<Uuid>> = used.iter().map(|(_, _, _, id, _)| *id).collect();
    let broadcasts: Vec<Option<i64>> = used.iter().map(|(.., id)| *id).collect();
    round.query(ADD_KEYS, &[&tenants, &keys, &prints, &notifications, &broadcasts]).await?;
    Ok(())
}

/// The numbers of lanes. New ones are stored at once, in a transaction of their own: others need them, too.
pub(super) async fn lane_numbers(
    session: &Session,
    shared: &Shared,
    wanted: BTreeSet<&Lane>,
) -> Result<HashMap<Lane, LaneId>, Interrupted> {
    let mut known = HashMap::new();
    let mut missing = Vec::new();
    {
        let board = shared.board();
        for lane in wanted {
            match board.number_of(lane) {
                Some(id) => _ = known.insert(lane.clone(), id),
                None => missing.push(lane),
            }
        }
    }
    if missing.is_empty() {
        return Ok(known);
    }
    let channels: Vec<&str> = missing.iter().map(|lane| lane.channel.as_str()).collect();
    let destinations: Vec<&str> = missing.iter().map(|lane| &*lane.destination).collect();
    let priorities: Vec<i16> = missing.iter().map(|lane| i16::from(lane.priority.code())).collect();
    ask(session, ADD_LANES, &[&channels, &destinations, &priorities]).await?;
    let rows = ask(session, SELECT_LANES, &[&channels, &destinations, &priorities]).await?;
    let mut board = shared.board();
    for row in rows {
        let (id, lane) = (LaneId::from(row.try_get::<_, i32>(0)?), table::lane(&row, 1)?);
        board.learn(id, lane.clone());
        known.insert(lane, id);
    }
    Ok(known)
}

pub(super) fn lane_of(
    lanes: &HashMap<Lane, LaneId>,
    batch: &Filling,
) -> Result<LaneId, StoreError> {
    let lane = &batch.envelope.lane;
    let missing = || StoreError::Damaged(format!("the lane of {} is missing", lane.destination));
    lanes.get(lane).copied().ok_or_else(missing)
}

/// Writes the batches, and nothing that would make them due.
pub(super) async fn copy(session: &Session, intaken: &Intaken) -> Result<(), Interrupted> {
    let batches = intaken.packing.batches.iter().chain(&intaken.batches);
    if batches.clone().next().is_none() {
        return Ok(());
    }
    let pieces = encode(batches, |batch| lane_of(&intaken.lanes, batch))?;
    let statement = session.prepared(COPY_BATCHES).await?;
    let copy = async {
        let mut sink = pin!(session.client.copy_in::<_, Bytes>(&statement).await?);
        for piece in pieces {
            sink.feed(piece).await?;
        }
        sink.finish().await
    };
    in_time(WRITING_MAX, copy).await??;
    Ok(())
}
