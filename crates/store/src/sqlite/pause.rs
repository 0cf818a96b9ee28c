//! Pauses: their rows, and the view of them that claims and deliver go by.

use std::sync::Arc;

use notification::{Name, Pause, PauseScope, Pauses, limits};
use rusqlite::{Connection, params};

use super::transaction::Transaction;
use crate::rows::paused::pause_of;
use crate::{Paused, StoreError};

// === impl Transaction ===

impl Transaction<'_> {
    pub(super) fn pause(&mut self, pause: &Pause) -> Result<Paused, StoreError> {
        let Pause { tenant, scope, since } = pause;
        let pauses = pauses(self.connection)?;
        let known = pauses.since(tenant, scope);
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

    pub(super) fn resume(&mut self, tenant: &Name, scope: &PauseScope) -> Result<bool, StoreError> {
        let ended = self
            .sql("DELETE FROM pause WHERE scope = ?1 AND tenant = ?2")?
            .execute(params![scope.to_string(), tenant.as_str()])?;
        if ended > 0 {
            self.change_pauses()?;
            self.woke = true;
        }
        Ok(ended > 0)
    }

    /// With the commit, they are in force.
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
