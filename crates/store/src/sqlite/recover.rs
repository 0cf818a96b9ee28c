//! What a new owner finds: leases of a process that is gone, and broadcasts that nobody will seal.

use notification::{State, Timestamp, limits};
use rusqlite::params;

use super::codec::LogLine;
use super::members::Members;
use super::round::{NewChunk, Round};
use super::rows::{self, ChunkRow, select_chunk};
use crate::{Recovery, StoreError};

impl Round<'_> {
    /// Ends every lease, and abandons every open broadcast.
    pub(super) fn recover(&mut self, now: Timestamp) -> Result<Recovery, StoreError> {
        let mut recovery = Recovery::default();
        let select = self.sql(select_chunk!("lease_until IS NOT NULL ORDER BY lease_until"))?;
        for chunk in rows::chunks(select, [])? {
            let rest = self.leave_in_doubt(&chunk, now, "process ended")?;
            recovery.in_doubt += (chunk.count - rest.len()) as u64;
            if rest.is_empty() {
                continue;
            }
            if self.count_crash(&chunk, &rest, now)? {
                recovery.quarantined += 1;
            } else {
                recovery.returned += rest.len() as u64;
            }
        }
        self.sql("DELETE FROM batch WHERE broadcast IN (SELECT id FROM broadcast WHERE sealed_at IS NULL)")?
            .execute([])?;
        let abandoned = self.sql("DELETE FROM broadcast WHERE sealed_at IS NULL")?.execute([])?;
        recovery.abandoned_broadcasts = abandoned as u64;
        Ok(recovery)
    }

    /// Notes that a chunk was in flight in one more crash: a chunk that was in too many is halved, to find
    /// the notification that ends the process; a single one ends, and then this is true.
    fn count_crash(
        &mut self,
        chunk: &ChunkRow,
        rest: &Members,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let crashes = chunk.crashes.saturating_add(1);
        let count = rest.len();
        if count == 1 && crashes >= limits::CRASHES_BEFORE_QUARANTINE {
            let detail = format!("quarantined: in flight in {crashes} crashes");
            let (attempt, state) = (chunk.attempt, State::Dead);
            let line = LogLine { at: now, attempt, state, status: 0, detail: &detail };
            self.end(chunk.batch, &line, rest)?;
            self.shrink(chunk.id, &Members::default())?;
            return Ok(true);
        }
        let mut crashes_kept = crashes;
        if count > 1 && crashes >= limits::CRASHES_BEFORE_SPLIT {
            // One less, so that the next crash halves it again.
            crashes_kept = crashes - 1;
            let first: Members = rest.iter().take(count / 2).collect();
            let second: Members = rest.iter().skip(count / 2).collect();
            self.shrink(chunk.id, &first)?;
            self.add_chunk(&NewChunk {
                batch: chunk.batch,
                lane: chunk.lane,
                due_at: chunk.due_at,
                attempt: chunk.attempt,
                crashes: crashes_kept,
                count: second.len(),
                members: Some(&second),
            })?;
        }
        self.sql("UPDATE chunk SET crashes = ?2 WHERE id = ?1")?
            .execute(params![chunk.id.0.cast_signed(), crashes_kept])?;
        Ok(false)
    }
}
