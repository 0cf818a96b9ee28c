//! Reading rows.

use notification::{
    BatchId, BroadcastId, Bytes, ChunkId, Content, Envelope, Epoch, Guarantee, Timestamp,
};
use tokio_postgres::Row;

use crate::StoreError;
use crate::rows::lanes::LaneId;
use crate::rows::members::Members;
use crate::rows::model::{self, BatchRow, ChunkRow};

/// A row of `chunk` that this transaction has locked.
#[derive(Debug, Clone)]
pub(super) struct Held {
    pub(super) row: ChunkRow,
    pub(super) partition: u8,
    pub(super) worker: Option<i64>,
    /// Whether it is claimed as a ticket, and not taken yet.
    pub(super) is_ticket: bool,
}

/// A statement that reads, or returns, rows of `chunk AS c` for [`held`].
macro_rules! returning_chunk {
    ($before:literal, $after:literal) => {
        concat!(
            $before,
            " c.id, c.batch, c.lane, c.due_at, c.attempt, c.epoch, c.crashes, c.lease_until, \
             c.begun_through, c.count, c.members, c.partition, c.worker, c.is_ticket ",
            $after
        )
    };
}
pub(super) use returning_chunk;

/// Batches by their numbers, for [`batch`].
pub(super) const SELECT_BATCHES: &str = "SELECT b.id, b.guarantee, b.accepted_at, b.due_at, \
     b.expires_at, b.broadcast, b.tenant, b.options, b.payload, b.items, \
     l.channel, l.destination, l.priority \
     FROM batch AS b JOIN lane AS l ON l.id = b.lane WHERE b.id = ANY($1)";

/// A chunk that was locked.
pub(super) fn held(row: &Row) -> Result<Held, StoreError> {
    let members: Option<&[u8]> = row.try_get(10)?;
    let chunk = ChunkRow {
        id: ChunkId(unsigned(row, 0)?),
        batch: BatchId(unsigned(row, 1)?),
        lane: LaneId::from(row.try_get::<_, i32>(2)?),
        due_at: instant(row, 3)?,
        attempt: small(row.try_get::<_, i32>(4)?)?,
        epoch: Epoch(small(row.try_get::<_, i64>(5)?)?),
        crashes: small(row.try_get::<_, i32>(6)?)?,
        lease_until: instant_if_any(row, 7)?,
        begun_through: row.try_get::<_, Option<i32>>(8)?.map(small).transpose()?,
        count: small(row.try_get::<_, i32>(9)?)?,
        members: members.map(Members::from_blob),
    };
    Ok(Held {
        row: chunk,
        partition: small(row.try_get::<_, i16>(11)?)?,
        worker: row.try_get(12)?,
        is_ticket: row.try_get(13)?,
    })
}

/// A batch, with the content of its broadcast still missing.
pub(super) fn batch(row: &Row) -> Result<BatchRow, StoreError> {
    let piece = |column| -> Result<Option<Bytes>, StoreError> {
        Ok(row.try_get::<_, Option<&[u8]>>(column)?.map(Bytes::copy_from_slice))
    };
    let content = match (piece(7)?, piece(8)?) {
        (Some(options), Some(payload)) => Some(Content { payload, options }),
        _ => None,
    };
    let envelope = Envelope {
        tenant: model::name(row.try_get(6)?)?,
        lane: lane(row, 10)?,
        guarantee: guarantee(row, 1)?,
        due_at: instant(row, 3)?,
        expires_at: instant_if_any(row, 4)?,
        broadcast: row.try_get::<_, Option<i64>>(5)?.map(|id| BroadcastId(id.cast_unsigned())),
    };
    Ok(BatchRow {
        id: BatchId(unsigned(row, 0)?),
        envelope,
        accepted_at: instant(row, 2)?,
        content,
        items: Bytes::copy_from_slice(row.try_get(9)?),
    })
}

/// A lane from three columns, the first of which is `column`.
pub(super) fn lane(row: &Row, column: usize) -> Result<notification::Lane, StoreError> {
    Ok(notification::Lane {
        channel: model::name(row.try_get(column)?)?,
        destination: row.try_get::<_, &str>(column + 1)?.into(),
        priority: model::priority(small(row.try_get::<_, i16>(column + 2)?)?)?,
    })
}

pub(super) fn guarantee(row: &Row, column: usize) -> Result<Guarantee, StoreError> {
    model::guarantee(small(row.try_get::<_, i16>(column)?)?)
}

pub(super) fn unsigned(row: &Row, column: usize) -> Result<u64, StoreError> {
    Ok(row.try_get::<_, i64>(column)?.cast_unsigned())
}

pub(super) fn instant(row: &Row, column: usize) -> Result<Timestamp, StoreError> {
    Ok(Timestamp::from_millis(row.try_get(column)?))
}

fn instant_if_any(row: &Row, column: usize) -> Result<Option<Timestamp>, StoreError> {
    Ok(row.try_get::<_, Option<i64>>(column)?.map(Timestamp::from_millis))
}

/// A number that is small in every store that is not damaged.
pub(super) fn small<T: Copy + std::fmt::Display, U: TryFrom<T>>(
    number: T,
) -> Result<U, StoreError> {
    U::try_from(number).map_err(|_| StoreError::Damaged(format!("{number} is out of range")))
}

/// The number of a lane as the database keeps it.
pub(super) fn lane_number(lane: LaneId) -> i32 {
    i32::try_from(lane).unwrap_or(i32::MAX)
}
