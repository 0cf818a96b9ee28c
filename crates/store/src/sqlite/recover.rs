//! Recovery at start: the leases of the former process end, and its open broadcasts are removed.

use notification::{State, Timestamp, limits};
use rusqlite::params;

use super::rows::{self, select_chunk};
use super::transaction::Transaction;
use crate::rows::blame::{self, Fate, InFlight, ProcessEnd};
use crate::rows::codec::LogLine;
use crate::rows::members::Members;
use crate::rows::model::{ChunkRow, NewChunk};
use crate::{Ending, Recovery, StoreError};

impl Transaction<'_> {
    /// Ends every lease, and abandons every open broadcast.
    pub(super) fn recover(
        &mut self,
        ending: Ending,
        now: Timestamp,
    ) -> Result<Recovery, StoreError> {
        let mut recovery = Recovery::default();
        let select = self.sql(select_chunk!("lease_until IS NOT NULL ORDER BY lease_until, id"))?;
        let mut returned = Vec::new();
        for chunk in rows::chunks(select, [])? {
            let rest = self.leave_in_doubt(&chunk, now, "process ended")?;
            recovery.in_doubt += (chunk.count - rest.len()) as u64;
            if !rest.is_empty() {
                returned.push((chunk, rest));
            }
        }
        // Only of deliveries that are sent again: those in doubt cannot end another process.
        let in_flight: Vec<InFlight> =
            returned.iter().map(|(chunk, rest)| chunk.in_flight(rest)).collect();
        // None of those in flight is a suspect then, so the crashes held against them are not touched.
        if blame::clears_others(ending, &in_flight) {
            self.clear_suspects()?;
        }
        let fates = blame::judge(ProcessEnd { ending, before: now, now }, &in_flight);
        for ((chunk, rest), fate) in returned.iter().zip(fates) {
            recovery.count(&fate, rest.len());
            self.follow(chunk, rest, fate, now)?;
        }
        // Their batches first: it is by the broadcast's row that they are found.
        self.sql("DELETE FROM batch WHERE broadcast IN (SELECT id FROM broadcast WHERE sealed_at IS NULL)")?
            .execute([])?;
        self.sql("DELETE FROM unreleased WHERE passed IS NULL")?.execute([])?;
        let abandoned = self.sql("DELETE FROM broadcast WHERE sealed_at IS NULL")?.execute([])?;
        recovery.abandoned_broadcasts = abandoned as u64;
        Ok(recovery)
    }

    /// Writes what becomes of `rest`, which is all that is left of `chunk` and ready again.
    fn follow(
        &mut self,
        chunk: &ChunkRow,
        rest: &Members,
        fate: Fate,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let update = "UPDATE chunk SET crashes = ?2, due_at = ?3 WHERE id = ?1";
        let number = chunk.id.0.cast_signed();
        match fate {
            Fate::Returned => {}
            Fate::Counted(crashes) => {
                self.sql(update)?.execute(params![number, crashes, chunk.due_at.millis()])?;
            }
            Fate::Suspected { crashes, parts } => {
                let mut parts = NewChunk::divide(chunk, rest, crashes, parts);
                if let Some(first) = parts.next() {
                    self.sql(update)?.execute(params![number, crashes, first.due_at.millis()])?;
                    self.set_members(chunk.id, &first.members)?;
                }
                parts.try_for_each(|part| self.add_chunk(&part))?;
            }
            Fate::Quarantined => {
                let (attempt, state) = (chunk.attempt, State::Dead);
                let line =
                    LogLine { at: now, attempt, state, status: 0, detail: blame::QUARANTINED };
                self.end_of_chunk(chunk, &line, rest)?;
                self.set_members(chunk.id, &Members::default())?;
            }
        }
        Ok(())
    }

    /// Clears the crashes that were counted against suspects one by one: they are still tried apart.
    fn clear_suspects(&self) -> Result<(), StoreError> {
        // The bound is the index's own, as a literal.
        debug_assert_eq!(limits::CRASHES_BEFORE_SUSPICION, 3, "the statement and its index say 3");
        self.sql("UPDATE chunk SET crashes = 3 WHERE crashes > 3 AND lease_until IS NULL")?
            .execute([])?;
        Ok(())
    }
}
