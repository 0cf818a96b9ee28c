//! Chunks as the columns of one statement.

use tokio_postgres::types::ToSql;

use super::desk::partition_of;
use super::round::{NewChunk, counted, narrow};

/// New chunks by column.
pub(super) struct Columns<'a> {
    pub(super) batch: Vec<i64>,
    lane: Vec<i32>,
    partition: Vec<i16>,
    due_at: Vec<i64>,
    attempt: Vec<i32>,
    crashes: Vec<i32>,
    count: Vec<i32>,
    members: Vec<Option<&'a [u8]>>,
}

// === impl Columns ===

impl<'a> Columns<'a> {
    pub(super) fn new(chunks: &'a [NewChunk]) -> Self {
        Self {
            batch: chunks.iter().map(|chunk| chunk.batch.0.cast_signed()).collect(),
            lane: chunks.iter().map(|chunk| narrow(chunk.lane)).collect(),
            partition: chunks.iter().map(|chunk| partition_of(chunk.batch)).collect(),
            due_at: chunks.iter().map(|chunk| chunk.due_at.millis()).collect(),
            attempt: chunks.iter().map(|chunk| i32::from(chunk.attempt)).collect(),
            crashes: chunks.iter().map(|chunk| i32::from(chunk.crashes)).collect(),
            count: chunks.iter().map(|chunk| counted(chunk.count)).collect(),
            members: chunks.iter().map(|chunk| chunk.members.as_deref()).collect(),
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
