//! The columns of a chunk and of a lane: how a statement names them, reads them and writes them.

use notification::{BatchId, Bytes, ChunkId, Epoch, Lane, Timestamp};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row};

use crate::StoreError;
use crate::rows::codes::{self, LaneId};
use crate::rows::labels::BatchLabels;
use crate::rows::members::Members;
use crate::rows::model::{ChunkRow, NewChunk};

/// New chunks by column.
pub(super) struct ChunkColumns {
    pub(super) batch: Vec<i64>,
    lane: Vec<i32>,
    partition: Vec<i16>,
    due_at: Vec<i64>,
    attempt: Vec<i32>,
    crashes: Vec<i32>,
    count: Vec<i32>,
    members: Vec<Option<Vec<u8>>>,
}

/// A statement whose rows [`chunk_at`] reads, from where the columns end. Further columns are read by name.
macro_rules! select_chunk {
    ($rest:literal) => {
        concat!(
            "SELECT id, batch, lane, due_at, attempt, epoch, crashes, lease_until, begun_through, count, members, weight, partition ",
            $rest
        )
    };
}
pub(super) use select_chunk;

/// Stores the rows of [`ChunkColumns`].
pub(super) const INSERT_CHUNK: &str = "INSERT INTO chunk (batch, lane, partition, due_at, attempt, crashes, count, members) \
     SELECT * FROM unnest($1::int8[], $2::int4[], $3::int2[], $4::int8[], $5::int4[], $6::int4[], $7::int4[], $8::bytea[])";

// === impl ChunkColumns ===

impl ChunkColumns {
    pub(super) fn new(chunks: &[NewChunk]) -> Self {
        Self {
            batch: chunks.iter().map(|chunk| chunk.batch.0.cast_signed()).collect(),
            lane: chunks.iter().map(|chunk| narrow(chunk.lane)).collect(),
            partition: chunks.iter().map(|chunk| chunk.partition).collect(),
            due_at: chunks.iter().map(|chunk| chunk.due_at.millis()).collect(),
            attempt: chunks.iter().map(|chunk| i32::from(chunk.attempt)).collect(),
            crashes: chunks.iter().map(|chunk| i32::from(chunk.crashes)).collect(),
            count: chunks.iter().map(|chunk| counted(chunk.members.len())).collect(),
            members: chunks.iter().map(NewChunk::members_blob).collect(),
        }
    }

    pub(super) fn parameters(&self) -> [&(dyn ToSql + Sync); 8] {
        [
            &self.batch,
            &self.lane,
            &self.partition,
            &self.due_at,
            &self.attempt,
            &self.crashes,
            &self.count,
            &self.members,
        ]
    }
}

/// Reads a row of [`select_chunk`].
pub(super) fn chunk_at(row: &Row) -> Result<ChunkRow, StoreError> {
    let damaged = |_| StoreError::Damaged("a chunk".to_owned());
    let small = |column: usize| u16::try_from(row.try_get::<_, i32>(column)?).map_err(damaged);
    let members: Option<&[u8]> = row.try_get(10)?;
    let begun_through: Option<i32> = row.try_get(8)?;
    Ok(ChunkRow {
        id: ChunkId(row.try_get::<_, i64>(0)?.cast_unsigned()),
        batch: BatchId(row.try_get::<_, i64>(1)?.cast_unsigned()),
        lane: i64::from(row.try_get::<_, i32>(2)?),
        due_at: Timestamp::from_millis(row.try_get(3)?),
        attempt: small(4)?,
        // Not cut to fit, as counts are: an epoch that wrapped around would be that of a claim long past.
        epoch: Epoch(u32::try_from(row.try_get::<_, i64>(5)?).map_err(damaged)?),
        crashes: small(6)?,
        lease_until: row.try_get::<_, Option<i64>>(7)?.map(Timestamp::from_millis),
        begun_through: begun_through.map(u16::try_from).transpose().map_err(damaged)?,
        count: usize::from(small(9)?),
        weight: usize::try_from(row.try_get::<_, i32>(11)?).unwrap_or(0),
        members: members.map(Members::from_blob),
        partition: row.try_get(12)?,
    })
}

/// A lane from four columns, the first of which is `column`.
pub(super) fn lane_at(row: &Row, column: usize) -> Result<Lane, StoreError> {
    let code: i16 = row.try_get(column + 2)?;
    Ok(Lane {
        channel: codes::name(row.try_get(column)?)?,
        destination: row.try_get::<_, &str>(column + 1)?.into(),
        priority: codes::priority(u8::try_from(code).unwrap_or(u8::MAX))?,
        tenant: codes::name(row.try_get(column + 3)?)?,
    })
}

/// The column of labels of a batch, or of a broadcast.
pub(super) fn labels_at(row: &Row, column: usize) -> Result<Option<Bytes>, Error> {
    Ok(row.try_get::<_, Option<&[u8]>>(column)?.map(Bytes::copy_from_slice))
}

/// The labels of a batch, from the number of its members, in `column`, and the column of its labels behind that.
pub(super) fn batch_labels_at(row: &Row, column: usize) -> Result<BatchLabels, StoreError> {
    let count = usize::try_from(row.try_get::<_, i32>(column)?).unwrap_or(0);
    BatchLabels::decode(labels_at(row, column + 1)?, count)
}

/// A count as the database keeps it.
pub(super) fn counted(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

pub(super) fn signed(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// The number of a lane as the database keeps it.
pub(super) fn narrow(lane: LaneId) -> i32 {
    i32::try_from(lane).unwrap_or(i32::MAX)
}

/// True if PostgreSQL can keep it as a text. A recipient with a NUL in its name cannot be sent to, so none is missed.
pub(super) fn is_text(recipient: &str) -> bool {
    !recipient.contains('\0')
}
