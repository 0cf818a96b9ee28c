//! The running totals: a row for each tenant and state in which any notification of it stands.
//!
//! What a version before totals of tenants has counted is in rows without a tenant, and is given to the tenants by what an audit has
//! counted for them.

use notification::{Account, Name};
use rusqlite::{Connection, OptionalExtension, params};

use super::read::Snapshot;
use super::transaction::Transaction;
use crate::rows::codes;
use crate::rows::model::ChunkRow;
use crate::tenant_page::TenantPageFiller;
use crate::totals::RecordedTotals;
use crate::{StoreError, TenantPage, TotalsAssignment};

/// The tenant of a row that has none.
const NO_TENANT: &str = "";
const SELECT_OF_TENANT: &str = "SELECT state, count FROM totals WHERE tenant = ?1";

// === impl Snapshot ===

impl Snapshot {
    /// The totals of all tenants together.
    pub(super) fn totals(&self) -> Result<Account, StoreError> {
        let mut account = Account::default();
        let select = "SELECT state, sum(count) FROM totals GROUP BY state";
        self.add_counts(select, [], &mut account)?;
        Ok(account)
    }

    /// The totals of a tenant; `None` while a count has no tenant.
    pub(super) fn tenant_totals(&self, tenant: &Name) -> Result<Option<Account>, StoreError> {
        if self.is_unassigned()? {
            return Ok(None);
        }
        let mut account = Account::default();
        self.add_counts(SELECT_OF_TENANT, [tenant.as_str()], &mut account)?;
        Ok(Some(account))
    }

    /// The totals of tenants by name; `None` while a count has no tenant.
    pub(super) fn tenants(
        &self,
        after: Option<&Name>,
        items: usize,
    ) -> Result<Option<TenantPage>, StoreError> {
        if self.is_unassigned()? {
            return Ok(None);
        }
        let mut filler = TenantPageFiller::new(items);
        // Left when the page is full.
        let mut select = self.connection.prepare_cached(
            "SELECT tenant, state, count FROM totals WHERE tenant > ?1 ORDER BY tenant, state",
        )?;
        let mut rows = select.query([after.map_or(NO_TENANT, Name::as_str)])?;
        while let Some(row) = rows.next()? {
            let count = row.get::<_, i64>(2)?.cast_unsigned();
            let tenant = codes::name(row.get_ref(0)?.as_str()?)?;
            if count > 0 && !filler.add(tenant, codes::state(row.get(1)?)?, count) {
                break;
            }
        }
        Ok(Some(filler.page()))
    }

    /// True while a count has no tenant.
    fn is_unassigned(&self) -> Result<bool, StoreError> {
        Ok(self.connection.prepare_cached(SELECT_OF_TENANT)?.exists([NO_TENANT])?)
    }

    /// All of the totals, as they are stored.
    pub(super) fn recorded_totals(&self) -> Result<RecordedTotals, StoreError> {
        let mut recorded = RecordedTotals::new(generation(&self.connection)?);
        let mut select =
            self.connection.prepare_cached("SELECT tenant, state, count FROM totals")?;
        let mut rows = select.query([])?;
        while let Some(row) = rows.next()? {
            let tenant = row.get_ref(0)?.as_str()?;
            let tenant = (tenant != NO_TENANT).then(|| codes::name(tenant)).transpose()?;
            recorded.add(tenant, row.get(1)?, row.get(2)?);
        }
        Ok(recorded)
    }
}

// === impl Transaction ===

impl Transaction<'_> {
    /// Adds `change` to the total of a tenant, or of none.
    pub(super) fn add_total(&self, tenant: &str, state: u8, change: i64) -> Result<(), StoreError> {
        self.sql(
            "INSERT INTO totals (tenant, state, count) VALUES (?1, ?2, ?3) \
             ON CONFLICT (tenant, state) DO UPDATE SET count = count + excluded.count",
        )?
        .execute(params![tenant, state, change])?;
        Ok(())
    }

    /// Applies an assignment; false if another one was applied since its audit began.
    pub(super) fn assign_totals(
        &mut self,
        assignment: &TotalsAssignment,
    ) -> Result<bool, StoreError> {
        if generation(self.connection)? != assignment.generation {
            return Ok(false);
        }
        for ((tenant, state), change) in &assignment.changes {
            self.add_total(tenant.as_str(), *state, *change)?;
        }
        for (state, sum) in assignment.sums() {
            self.add_total(NO_TENANT, state, -sum)?;
        }
        self.sql("DELETE FROM totals WHERE tenant = ?1 AND count = 0")?.execute([NO_TENANT])?;
        self.sql("INSERT OR REPLACE INTO meta (key, value) VALUES ('totals_generation', ?1)")?
            .execute([assignment.generation + 1])?;
        Ok(true)
    }

    /// The tenant of a chunk: that of its lane, or of its batch where this may be older than lanes of tenants.
    pub(super) fn tenant_of(&self, chunk: &ChunkRow) -> Result<Name, StoreError> {
        let batch = chunk.batch.0.cast_signed();
        if batch > self.state.mixed_batches_through {
            return Ok(self.lane(chunk.lane)?.tenant);
        }
        let mut select = self.sql("SELECT tenant FROM batch WHERE id = ?1")?;
        let tenant: String = select.query_row([batch], |row| row.get(0))?;
        codes::name(&tenant)
    }
}

/// Number of assignments that were applied.
fn generation(connection: &Connection) -> Result<i64, StoreError> {
    Ok(meta(connection, "totals_generation")?.unwrap_or(0))
}

/// The last batch that may be in a lane of another tenant.
pub(super) fn mixed_batches_through(connection: &Connection) -> Result<i64, StoreError> {
    Ok(meta(connection, "mixed_batches_through")?.unwrap_or(0))
}

fn meta(connection: &Connection, key: &str) -> Result<Option<i64>, StoreError> {
    let mut select = connection.prepare_cached("SELECT value FROM meta WHERE key = ?1")?;
    Ok(select.query_row([key], |row| row.get(0)).optional()?)
}
