//! Rows, and the few statements that several parts share.

use std::sync::Arc;

use notification::{
    BatchId, BroadcastId, Bytes, ChunkId, Content, Envelope, Epoch, ItemTraces, Lane, Name,
    NotificationId, Timestamp,
};
use rusqlite::types::ValueRef;
use rusqlite::{CachedStatement, Connection, OptionalExtension, Row, params};

use crate::rows::codes::{self, LaneId};
use crate::rows::due::DueCursor;
use crate::rows::labels::BatchLabels;
use crate::rows::members::Members;
use crate::rows::model::{BatchRow, ChunkRow, NewChunk};
use crate::{KeyUse, StoreError};

/// A statement whose rows [`ChunkRow::read`] reads.
macro_rules! select_chunk {
    ($condition:literal) => {
        concat!(
            "SELECT id, batch, lane, due_at, attempt, epoch, crashes, lease_until, begun_through, \
             count, members FROM chunk WHERE ",
            $condition
        )
    };
}
pub(super) use select_chunk;

// === impl ChunkRow ===

impl ChunkRow {
    pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        let members: Option<&[u8]> = row.get_ref(10)?.as_blob_or_null()?;
        Ok(Self {
            id: ChunkId(row.get::<_, i64>(0)?.cast_unsigned()),
            batch: BatchId(row.get::<_, i64>(1)?.cast_unsigned()),
            lane: row.get(2)?,
            due_at: Timestamp::from_millis(row.get(3)?),
            attempt: row.get(4)?,
            epoch: Epoch(row.get(5)?),
            crashes: row.get(6)?,
            lease_until: row.get::<_, Option<i64>>(7)?.map(Timestamp::from_millis),
            begun_through: row.get(8)?,
            count: usize::from(row.get::<_, u16>(9)?),
            // Only one process claims, and it keeps the weight of its chunks' bytes in memory.
            weight: 0,
            members: members.map(Members::from_blob),
            partition: 0,
        })
    }
}

// === impl NewChunk ===

impl NewChunk {
    pub(super) fn insert(&self, connection: &Connection) -> Result<(), StoreError> {
        let mut insert = connection.prepare_cached(
            "INSERT INTO chunk (batch, lane, due_at, attempt, epoch, crashes, count, members) \
             VALUES (?1, ?2, ?3, ?4, 0, ?5, ?6, ?7)",
        )?;
        insert.execute(params![
            self.batch.0.cast_signed(),
            self.lane,
            self.due_at.millis(),
            self.attempt,
            self.crashes,
            signed(self.members.len()),
            self.members_blob(),
        ])?;
        Ok(())
    }
}

// === impl BatchRow ===

impl BatchRow {
    /// Reads a batch of a lane that is known.
    pub(super) fn read(
        connection: &Connection,
        id: BatchId,
        lane: &Lane,
    ) -> Result<Self, StoreError> {
        let mut select = connection.prepare_cached(
            "SELECT guarantee, accepted_at, \
             coalesce((SELECT due_at FROM broadcast AS b WHERE b.id = batch.broadcast), due_at), \
             expires_at, broadcast, tenant, options, payload, items, removed, trace FROM batch WHERE id = ?1",
        )?;
        let mut rows = select.query([id.0.cast_signed()])?;
        let missing = || StoreError::Damaged(format!("batch {} is missing", id.0));
        let row = rows.next()?.ok_or_else(missing)?;
        let content = match (row.get_ref(6)?, row.get_ref(7)?) {
            (ValueRef::Blob(options), ValueRef::Blob(payload)) => Some(Content {
                payload: Bytes::copy_from_slice(payload),
                options: Bytes::copy_from_slice(options),
                // A content with fallbacks is never shared: it stands with its item.
                fallback: None,
            }),
            _ => None,
        };
        let envelope = Envelope {
            // Not the lane's: one that is older than lanes of tenants has what several of them sent.
            lane: Lane { tenant: codes::name(row.get_ref(5)?.as_str()?)?, ..lane.clone() },
            guarantee: codes::guarantee(row.get(0)?)?,
            due_at: Timestamp::from_millis(row.get(2)?),
            expires_at: row.get::<_, Option<i64>>(3)?.map(Timestamp::from_millis),
            broadcast: row.get::<_, Option<i64>>(4)?.map(|id| BroadcastId(id.cast_unsigned())),
        };
        let traces = row.get_ref(10)?.as_blob_or_null()?;
        Ok(Self {
            id,
            envelope,
            accepted_at: Timestamp::from_millis(row.get(1)?),
            content,
            removed: row.get(9)?,
            items: Bytes::copy_from_slice(row.get_ref(8)?.as_blob()?),
            traces: traces.map(ItemTraces::from_bytes).unwrap_or_default(),
        })
    }
}

/// The column of labels of a batch, or of a broadcast.
pub(super) fn labels_at(row: &Row<'_>, column: usize) -> Result<Option<Bytes>, rusqlite::Error> {
    Ok(row.get::<_, Option<Vec<u8>>>(column)?.map(Bytes::from))
}

/// The labels of a batch of `count` members.
pub(super) fn batch_labels(
    connection: &Connection,
    id: BatchId,
) -> Result<BatchLabels, StoreError> {
    let mut select = connection.prepare_cached("SELECT count, labels FROM batch WHERE id = ?1")?;
    let row = |row: &Row<'_>| Ok((usize::from(row.get::<_, u16>(0)?), labels_at(row, 1)?));
    let found = select.query_row([id.0.cast_signed()], row).optional()?;
    found.map_or(Ok(BatchLabels::default()), |(count, labels)| BatchLabels::decode(labels, count))
}

/// The use of an idempotency key and the fingerprint of that, if it was used.
pub(super) fn key_use(
    connection: &Connection,
    tenant: &Name,
    key: &str,
) -> Result<Option<(KeyUse, [u8; 32])>, StoreError> {
    let mut select = connection.prepare_cached(
        "SELECT fingerprint, notification, broadcast FROM idempotency \
         WHERE tenant = ?1 AND key = ?2",
    )?;
    let row = select.query_row(params![tenant.as_str(), key], |row| {
        let known = match row.get::<_, Option<[u8; 16]>>(1)? {
            Some(bytes) => KeyUse::Notification(NotificationId::from_bytes(bytes)),
            None => KeyUse::Broadcast(BroadcastId(row.get::<_, i64>(2)?.cast_unsigned())),
        };
        Ok((known, row.get(0)?))
    });
    Ok(row.optional()?)
}

/// The content of a broadcast.
pub(super) fn broadcast_content(
    connection: &Connection,
    id: BroadcastId,
) -> Result<Content, StoreError> {
    let mut select =
        connection.prepare_cached("SELECT payload, options FROM broadcast WHERE id = ?1")?;
    let content = select.query_row([id.0.cast_signed()], |row| {
        Ok(Content {
            payload: Bytes::copy_from_slice(row.get_ref(0)?.as_blob()?),
            options: Bytes::copy_from_slice(row.get_ref(1)?.as_blob()?),
            fallback: None,
        })
    });
    content.optional()?.ok_or_else(|| StoreError::Damaged(format!("broadcast {id} is missing")))
}

/// The lane with number `id`.
pub(super) fn lane(connection: &Connection, id: LaneId) -> Result<Lane, StoreError> {
    let mut select = connection.prepare_cached(
        "SELECT channel, destination, priority, tenant FROM tenant_lane WHERE id = ?1",
    )?;
    let mut rows = select.query([id])?;
    let missing = || StoreError::Damaged(format!("lane {id} is missing"));
    lane_at(rows.next()?.ok_or_else(missing)?, 0)
}

/// A lane from four columns, the first of which is `column`.
pub(super) fn lane_at(row: &Row<'_>, column: usize) -> Result<Lane, StoreError> {
    Ok(Lane {
        channel: codes::name(row.get_ref(column)?.as_str()?)?,
        destination: Arc::from(row.get_ref(column + 1)?.as_str()?),
        priority: codes::priority(row.get(column + 2)?)?,
        tenant: codes::name(row.get_ref(column + 3)?.as_str()?)?,
    })
}

/// The next entry of the index `chunk_due` that is of another span or lane than `place`, and when it is due: one seek.
pub(super) fn due_after(
    connection: &Connection,
    place: DueCursor,
) -> Result<Option<(DueCursor, Timestamp)>, StoreError> {
    let mut select = connection.prepare_cached(
        "SELECT span, lane, due_at FROM chunk WHERE lease_until IS NULL AND (span, lane) > (?1, ?2) \
         ORDER BY span, lane, due_at LIMIT 1",
    )?;
    let entry = select.query_row([place.span, place.lane], |row| {
        let place = DueCursor { span: row.get(0)?, lane: row.get(1)? };
        Ok((place, Timestamp::from_millis(row.get(2)?)))
    });
    Ok(entry.optional()?)
}

/// All rows of a statement that is ready to run.
pub(super) fn chunks(
    mut select: CachedStatement<'_>,
    parameters: impl rusqlite::Params,
) -> Result<Vec<ChunkRow>, StoreError> {
    let rows = select.query_map(parameters, ChunkRow::read)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Due time of the next ready chunk of `lane`: one seek in the index.
pub(super) fn next_due(
    connection: &Connection,
    lane: LaneId,
) -> Result<Option<Timestamp>, StoreError> {
    let mut select = connection
        .prepare_cached("SELECT min(due_at) FROM chunk WHERE lane = ?1 AND lease_until IS NULL")?;
    let millis: Option<i64> = select.query_row([lane], |row| row.get(0))?;
    Ok(millis.map(Timestamp::from_millis))
}

/// A count as the database keeps it.
pub(super) fn signed(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
