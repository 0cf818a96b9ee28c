//! Pauses: their rows, and the view of them that claims and deliver go by.

use std::sync::Arc;

use notification::{Name, Pause, Pauses, Scope, limits};
use rusqlite::{Connection, OptionalExtension, params};

use super::transaction::Transaction;
use crate::rows::paused::{PUT_AWAY, pause_of};
use crate::{Paused, StoreError};

// === impl Transaction ===

impl Transaction<'_> {
    pub(super) fn pause(&mut self, pause: &Pause) -> Result<Paused, StoreError> {
        let Pause { tenant, scope, since } = pause;
        if let Scope::Broadcast(id) = scope {
            let select =
                "SELECT 1 FROM broadcast WHERE id = ?1 AND tenant = ?2 AND sealed_at IS NOT NULL";
            if !self.sql(select)?.exists(params![id.0.cast_signed(), tenant.as_str()])? {
                return Ok(Paused::Unknown);
            }
        }
        let pauses = pauses(self.connection)?;
        let known = pauses.since(tenant, scope);
        // All of them are held in memory. One that is there keeps its time, and finds room even now.
        if known.is_none() && pauses.len() >= limits::PAUSES {
            return Ok(Paused::TooMany);
        }
        if known.is_none() {
            self.sql("INSERT INTO pause (tenant, scope, since) VALUES (?1, ?2, ?3)")?
                .execute(params![tenant.as_str(), scope.to_string(), since.millis()])?;
            self.change_pauses()?;
        }
        // The store has no other process.
        Ok(Paused::InForce { since: known.unwrap_or(*since), is_everywhere: true })
    }

    pub(super) fn resume(&mut self, tenant: &Name, scope: &Scope) -> Result<bool, StoreError> {
        let ended = self
            .sql("DELETE FROM pause WHERE scope = ?1 AND tenant = ?2")?
            .execute(params![scope.to_string(), tenant.as_str()])?;
        if ended > 0 {
            self.change_pauses()?;
            // What was paused has no place in memory, so nothing else wakes a claim for it.
            self.woke = true;
            if let Scope::Broadcast(id) = scope {
                // From the first batch again, if it is being resumed already: the pause in between may have put away chunks
                // that were passed.
                self.sql("INSERT OR REPLACE INTO resuming (broadcast, passed) VALUES (?1, 0)")?
                    .execute([id.0.cast_signed()])?;
                // Of its slices, too.
                self.state.waits = true;
            }
        }
        Ok(ended > 0)
    }

    /// Makes put-away chunks of the next batches of a resumed broadcast due again; true if there was such a broadcast.
    pub(super) fn resume_slice(&mut self) -> Result<bool, StoreError> {
        let mut select = self.sql("SELECT broadcast, passed FROM resuming LIMIT 1")?;
        let next = select.query_row([], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
        let Some((broadcast, passed)) = next else { return Ok(false) };
        let slice = self.slice(broadcast, passed)?;
        for batch in &slice.batches {
            // By the due time alone: a retry that waits for its own time was not put away, and keeps that time.
            let mut update = self.sql(
                "UPDATE chunk SET due_at = ?2 WHERE batch = ?1 AND lease_until IS NULL \
                 AND due_at >= (SELECT min(?3, coalesce(expires_at, ?3)) FROM batch WHERE id = ?1)",
            )?;
            let (id, due_at) = (batch.id.0.cast_signed(), batch.due_at);
            if update.execute(params![id, due_at.millis(), PUT_AWAY.millis()])? > 0 {
                self.add_due(batch.lane, due_at)?;
            }
        }
        if slice.is_last {
            self.sql("DELETE FROM resuming WHERE broadcast = ?1")?.execute([broadcast])?;
        } else {
            let passed = slice.batches.last().map_or(0, |batch| batch.id.0.cast_signed());
            self.sql("UPDATE resuming SET passed = ?2 WHERE broadcast = ?1")?
                .execute([broadcast, passed])?;
        }
        Ok(true)
    }

    /// Reads the changed pauses, which are in force with the commit.
    fn change_pauses(&mut self) -> Result<(), StoreError> {
        self.pauses = Some(Arc::new(pauses(self.connection)?));
        Ok(())
    }
}

/// All pauses.
pub(super) fn pauses(connection: &Connection) -> Result<Pauses, StoreError> {
    let mut select = connection.prepare_cached("SELECT tenant, scope, since FROM pause")?;
    let mut rows = select.query([])?;
    let mut pauses = Vec::new();
    while let Some(row) = rows.next()? {
        pauses.push(pause_of(row.get_ref(0)?.as_str()?, row.get_ref(1)?.as_str()?, row.get(2)?)?);
    }
    Ok(pauses.into_iter().collect())
}
