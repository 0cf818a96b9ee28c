//! A store that was opened from a copy of an earlier one: what happened since the copy was made is not known to it.
//!
//! - A notification that waited then may have been sent since. One with at most once is in doubt, unless it is scheduled and its time
//!   has not come yet; one with at least once is sent, perhaps once more, as its guarantee allows.
//! - Numbers that were given since must not be given again: callers have them in identifiers, and would read or cancel another
//!   broadcast by them. Numbers of batches and broadcasts, positions of the log and of the suppression feed are raised by more
//!   than any store gives between two copies.

use std::time::Duration;

use notification::{Guarantee, State, Timestamp};
use rusqlite::{Connection, OptionalExtension, params};

use super::rows::{self, select_chunk};
use super::transaction::Transaction;
use crate::StoreError;
use crate::rows::GIVEN_SINCE;
use crate::rows::codec::LogLine;
use crate::rows::codes;
use crate::rows::members::Members;
use crate::rows::model::ChunkRow;

/// The log's words for one that is in doubt.
const DETAIL: &str = "restored from a backup";
/// Margin of the former store's clock: it has not sent what is scheduled for later than this after the restoration.
const CLOCK_MARGIN: Duration = Duration::from_mins(1);
/// Chunks that are read at a time.
const PAGE: u32 = 1_000;

/// Notes at `now` that the database is a copy.
pub(super) fn mark(connection: &Connection, now: Timestamp) -> Result<(), StoreError> {
    let insert = "INSERT OR REPLACE INTO meta (key, value) VALUES ('backup_at', ?1)";
    connection.execute(insert, [now.millis()])?;
    Ok(())
}

/// When the copy was made that the database is; none if it is no copy, or was opened since.
pub(super) fn backup_at(connection: &Connection) -> Result<Option<Timestamp>, StoreError> {
    let select = "SELECT value FROM meta WHERE key = 'backup_at'";
    let found = connection.query_row(select, [], |row| row.get(0)).optional()?;
    Ok(found.map(Timestamp::from_millis))
}

impl Transaction<'_> {
    /// Makes a store of a copy. To be called before recovery, which ends leases.
    pub(super) fn restore(
        &mut self,
        backup_at: Timestamp,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        self.raise_numbers()?;
        self.release_at_most_once()?;
        let in_doubt = self.doubt_at_most_once(now)?;
        self.sql("DELETE FROM meta WHERE key = 'backup_at'")?.execute([])?;
        tracing::warn!(
            backup_at = %backup_at,
            in_doubt,
            "the store was restored from a backup: what waited then and has at most once is in doubt, the rest is sent, perhaps once more"
        );
        Ok(())
    }

    fn raise_numbers(&mut self) -> Result<(), StoreError> {
        for table in ["batch", "broadcast", "chunk"] {
            let raised = self
                .sql("UPDATE sqlite_sequence SET seq = seq + ?2 WHERE name = ?1")?
                .execute(params![table, GIVEN_SINCE])?;
            if raised == 0 {
                // None had one then. Some may have one since.
                self.sql("INSERT INTO sqlite_sequence (name, seq) VALUES (?1, ?2)")?
                    .execute(params![table, GIVEN_SINCE])?;
            }
        }
        // 16,000 restorations fit the 46 bits of a batch's number.
        self.state.next_batch += GIVEN_SINCE.cast_unsigned();
        // The next number is that of the last row and one. A reader of the last one reads it again.
        self.sql("UPDATE log SET id = id + ?1 WHERE id = (SELECT max(id) FROM log)")?
            .execute([GIVEN_SINCE])?;
        self.sql("UPDATE suppression_event SET id = id + ?1 WHERE id = (SELECT max(id) FROM suppression_event)")?
            .execute([GIVEN_SINCE])?;
        Ok(())
    }

    /// Makes all chunks of broadcasts with at most once, so that all that they have waiting is in chunks.
    fn release_at_most_once(&mut self) -> Result<(), StoreError> {
        let select = "SELECT broadcast, guarantee FROM unreleased CROSS JOIN broadcast ON broadcast.id = broadcast \
             WHERE passed IS NOT NULL AND withdrawn_at IS NULL";
        let mut select = self.sql(select)?;
        let rows = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let waiting: Vec<(i64, u8)> = rows.collect::<Result<_, _>>()?;
        let mut select = self.sql("SELECT passed FROM unreleased WHERE broadcast = ?1")?;
        for (broadcast, code) in waiting {
            if codes::guarantee(code)? != Guarantee::AtMostOnce {
                continue;
            }
            // Its row is gone with the last slice.
            while let Some(passed) = select.query_row([broadcast], |row| row.get(0)).optional()? {
                let slice = self.slice(broadcast, passed)?;
                self.release(&slice)?;
            }
        }
        Ok(())
    }

    /// Ends all in doubt that waits with at most once and may have been sent, and says how many those are.
    fn doubt_at_most_once(&mut self, now: Timestamp) -> Result<usize, StoreError> {
        let (mut passed, mut in_doubt) = (0, 0);
        loop {
            let select = self.sql(select_chunk!("id > ?1 ORDER BY id LIMIT ?2"))?;
            let chunks = rows::chunks(select, params![passed, PAGE])?;
            let Some(last) = chunks.last() else { return Ok(in_doubt) };
            passed = last.id.0.cast_signed();
            for chunk in &chunks {
                if !self.is_to_doubt(chunk, now)? {
                    continue;
                }
                let (attempt, state, detail) = (chunk.attempt, State::InDoubt, DETAIL);
                let line = LogLine { at: now, attempt, state, status: 0, detail };
                self.end_of_chunk(chunk, &line, &chunk.members())?;
                self.set_members(chunk.id, &Members::default())?;
                in_doubt += chunk.count;
            }
        }
    }

    /// True if a chunk has at most once, and the former store may have sent of it.
    fn is_to_doubt(&self, chunk: &ChunkRow, now: Timestamp) -> Result<bool, StoreError> {
        let mut select = self.sql(
            "SELECT guarantee, coalesce((SELECT due_at FROM broadcast AS b WHERE b.id = batch.broadcast), due_at) \
             FROM batch WHERE id = ?1",
        )?;
        let batch =
            select.query_row([chunk.batch.0.cast_signed()], |row| Ok((row.get(0)?, row.get(1)?)));
        let (code, due_at): (u8, i64) = batch?;
        // One that has another time was tried, or put away by a pause, which may have ended.
        let is_scheduled = chunk.due_at.millis() == due_at && chunk.lease_until.is_none();
        let is_early = is_scheduled && chunk.due_at > now.plus(CLOCK_MARGIN);
        Ok(codes::guarantee(code)? == Guarantee::AtMostOnce && !is_early)
    }
}
