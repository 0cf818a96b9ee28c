//! A chunk that is to be stored, as both backends write it.

use notification::{BatchId, Timestamp};

use super::codes::LaneId;
use super::members::Members;
use super::model::ChunkRow;
use super::settlement::ChunkPart;

/// A chunk to be stored, ready.
#[derive(Debug)]
pub(crate) struct NewChunk {
    pub(crate) batch: BatchId,
    pub(crate) lane: LaneId,
    pub(crate) due_at: Timestamp,
    pub(crate) attempt: u16,
    pub(crate) crashes: u16,
    pub(crate) count: usize,
    /// Encoded; `None` means all of the batch.
    pub(crate) members: Option<Vec<u8>>,
}

// === impl NewChunk ===

impl NewChunk {
    /// `count` notifications of a batch, or `members` of it, before their first attempt.
    pub(crate) fn first(
        batch: BatchId,
        lane: LaneId,
        due_at: Timestamp,
        (count, members): (usize, Option<&Members>),
    ) -> Self {
        let members = members.map(Members::to_blob);
        Self { batch, lane, due_at, attempt: 1, crashes: 0, count, members }
    }

    /// Members of `chunk` as a chunk of their own.
    pub(crate) fn part(chunk: &ChunkRow, part: &ChunkPart) -> Self {
        Self {
            batch: chunk.batch,
            lane: chunk.lane,
            due_at: part.due_at,
            attempt: part.attempt,
            crashes: part.crashes,
            count: part.members.len(),
            members: Some(part.members.to_blob()),
        }
    }
}
