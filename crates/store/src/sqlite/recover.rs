//! What a new owner finds: leases of a process that is gone, and broadcasts that nobody will seal.

use notification::{State, Timestamp};
use rusqlite::params;

use super::round::Round;
use super::rows::{self, select_chunk};
use crate::rows::codec::LogLine;
use crate::rows::members::Members;
use crate::rows::model::ChunkRow;
use crate::rows::settlement::{self, Crashed};
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

    /// Notes that a chunk was in flight in one more crash; true when it is quarantined.
    fn count_crash(
        &mut self,
        chunk: &ChunkRow,
        rest: &Members,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let crashes = match settlement::crashed(chunk, rest) {
            Crashed::Quarantined(detail) => {
                let (attempt, state) = (chunk.attempt, State::Dead);
                let line = LogLine { at: now, attempt, state, status: 0, detail: &detail };
                self.end(chunk.batch, &line, rest)?;
                self.shrink(chunk.id, &Members::default())?;
                return Ok(true);
            }
            Crashed::Halved { first, second } => {
                self.shrink(chunk.id, &first)?;
                self.add_part(chunk, &second)?;
                second.crashes
            }
            Crashed::Returned { crashes } => crashes,
        };
        self.sql("UPDATE chunk SET crashes = ?2 WHERE id = ?1")?
            .execute(params![chunk.id.0.cast_signed(), crashes])?;
        Ok(false)
    }
}
