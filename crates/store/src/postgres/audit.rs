//! The audit: three portals side by side, in constant memory.

use std::collections::{BTreeMap, BTreeSet};
use std::vec;

use notification::{Account, State};
use tokio_postgres::{Portal, Row};

use super::read::{Snapshot, unsigned};
use crate::rows::audit::{BatchAudit, BatchCount};
use crate::rows::codes;
use crate::rows::release::WaitingState;
use crate::totals::RecordedTotals;
use crate::{Audit, StoreError};

/// Rows in order of batch, which is their first column, with the next one in hand.
struct AuditRows<'a> {
    snapshot: &'a Snapshot<'a>,
    portal: Portal,
    fetched: vec::IntoIter<Row>,
    next: Option<(i64, Row)>,
}

/// The part of a broadcast that waits for its chunks.
struct WaitingPart {
    /// Last batch that was passed.
    passed: i64,
    state: State,
    /// Members that are said to wait, less those that were found.
    uncounted: i64,
}

/// Rows fetched at once.
const ROWS: i32 = 512;

// === impl Snapshot ===

impl Snapshot<'_> {
    /// Walks batches, chunks and log in order of batch, and accounts for every member of every batch.
    pub(super) async fn audit(&self) -> Result<Audit, StoreError> {
        // The reading of these statements, and so their time, grows with the store.
        self.transaction.batch_execute("SET LOCAL statement_timeout = 0").await?;
        let mut audit = Audit::default();
        self.add_tombstones(&mut audit).await?;
        let open = "SELECT id FROM broadcast WHERE sealed_at IS NULL";
        let open: BTreeSet<Option<i64>> =
            self.transaction.query(open, &[]).await?.iter().map(|row| row.get(0)).collect();
        let mut waiting = self.waiting().await?;
        let batches = "SELECT batch.id, count, broadcast, lane.id IS NOT NULL, batch.tenant FROM batch \
             LEFT JOIN tenant_lane AS lane ON lane.id = batch.lane ORDER BY batch.id";
        let mut batches = self.side(batches).await?;
        let mut chunks =
            self.side("SELECT batch, count, members FROM chunk ORDER BY batch").await?;
        let mut log =
            self.side("SELECT batch, 0, entries FROM log ORDER BY batch, txid, id").await?;
        while let Some((batch, row)) = batches.advance().await? {
            let broadcast: Option<i64> = row.try_get(2)?;
            let is_open = open.contains(&broadcast);
            // Nothing of an open broadcast is accepted, so each chunk and each line of it is one too many.
            let expected = if is_open { 0 } else { count(&row)? };
            chunks.report_strays(batch, "chunk", &mut audit).await?;
            log.report_strays(batch, "log row", &mut audit).await?;
            let waits = broadcast.and_then(|id| waiting.get_mut(&id));
            // Up to the batch that was passed last all have had their chunks: none of their members may be without.
            let waits = waits.filter(|it| it.passed < batch);
            let state = waits.as_ref().map(|it| it.state);
            let mut members = BatchAudit::new(batch, expected, state, &mut audit);
            members.check_lane(row.try_get(3)?);
            while let Some(row) = chunks.take(batch).await? {
                members.add_chunk(row.try_get(2)?, count(&row)?);
            }
            while let Some(row) = log.take(batch).await? {
                members.add_log(row.try_get(2)?)?;
            }
            let BatchCount { account, waiting: found } = members.finish();
            audit.add(&codes::name(row.try_get(4)?)?, &account);
            if let Some(waits) = waits {
                // A withdrawal puts the number of the row into the totals without counting, so it must be right.
                waits.uncounted -= i64::try_from(found).unwrap_or(i64::MAX);
            }
        }
        for (id, waits) in waiting.iter().filter(|(_, waits)| waits.uncounted != 0) {
            let uncounted = waits.uncounted;
            audit.report(format!("broadcast {id}: {uncounted} more are said to wait than do"));
        }
        // Behind the last batch nothing may be left.
        chunks.report_strays(i64::MAX, "chunk", &mut audit).await?;
        log.report_strays(i64::MAX, "log row", &mut audit).await?;
        self.recorded_totals().await?.compare(&mut audit);
        Ok(audit)
    }

    /// Adds the notifications whose rows are gone.
    async fn add_tombstones(&self, audit: &mut Audit) -> Result<(), StoreError> {
        let select = "SELECT tenant, state, sum(count)::int8 FROM tombstone GROUP BY tenant, state";
        for row in &self.transaction.query(select, &[]).await? {
            let code = u8::try_from(row.try_get::<_, i16>(1)?).unwrap_or(u8::MAX);
            let mut account = Account { accepted: unsigned(row, 2)?, ..Account::default() };
            account.add(codes::state(code)?, account.accepted);
            audit.add(&codes::name(row.try_get(0)?)?, &account);
        }
        Ok(())
    }

    /// The running totals, of each tenant and of none.
    async fn recorded_totals(&self) -> Result<RecordedTotals, StoreError> {
        let assigned = "SELECT value FROM meta WHERE key = 'totals_assigned'";
        let assigned = self.transaction.query_one(assigned, &[]).await?.try_get(0)?;
        let mut recorded = RecordedTotals::new(assigned);
        let select =
            "SELECT tenant, state, sum(change)::int8 FROM totals_delta GROUP BY tenant, state";
        for row in &self.transaction.query(select, &[]).await? {
            let tenant = row.try_get::<_, Option<&str>>(0)?.map(codes::name).transpose()?;
            let state = u8::try_from(row.try_get::<_, i16>(1)?).unwrap_or(u8::MAX);
            recorded.add(tenant, state, row.try_get(2)?);
        }
        Ok(recorded)
    }

    /// The broadcasts of which not all batches have their chunks.
    async fn waiting(&self) -> Result<BTreeMap<i64, WaitingPart>, StoreError> {
        let select = "SELECT broadcast, passed, withdrawn_at, waiting FROM unreleased \
             WHERE passed IS NOT NULL";
        let mut waiting = BTreeMap::new();
        for row in &self.transaction.query(select, &[]).await? {
            let state = WaitingState::new(row.try_get(2)?).state();
            let waits = WaitingPart { passed: row.try_get(1)?, state, uncounted: row.try_get(3)? };
            waiting.insert(row.try_get(0)?, waits);
        }
        Ok(waiting)
    }

    async fn side(&self, sql: &'static str) -> Result<AuditRows<'_>, StoreError> {
        let portal = self.transaction.bind(sql, &[]).await?;
        let mut side =
            AuditRows { snapshot: self, portal, fetched: Vec::new().into_iter(), next: None };
        side.advance().await?;
        Ok(side)
    }
}

// === impl AuditRows ===

impl AuditRows<'_> {
    /// The next row, if it belongs to `batch`.
    async fn take(&mut self, batch: i64) -> Result<Option<Row>, StoreError> {
        if self.next.as_ref().is_none_or(|(next, _)| *next != batch) {
            return Ok(None);
        }
        Ok(self.advance().await?.map(|(_, row)| row))
    }

    /// Reports rows whose batch should have come before `batch`.
    async fn report_strays(
        &mut self,
        batch: i64,
        what: &str,
        audit: &mut Audit,
    ) -> Result<(), StoreError> {
        while let Some((stray, _)) = self.next.as_ref().filter(|(next, _)| *next < batch) {
            audit.report(format!("a {what} belongs to batch {stray}, which is missing"));
            self.advance().await?;
        }
        Ok(())
    }

    /// Gives the row in hand and takes up the one after it.
    async fn advance(&mut self) -> Result<Option<(i64, Row)>, StoreError> {
        if self.fetched.as_slice().is_empty() {
            let rows = self.snapshot.transaction.query_portal(&self.portal, ROWS).await?;
            self.fetched = rows.into_iter();
        }
        let following = match self.fetched.next() {
            Some(row) => Some((row.try_get(0)?, row)),
            None => None,
        };
        Ok(std::mem::replace(&mut self.next, following))
    }
}

fn count(row: &Row) -> Result<usize, StoreError> {
    Ok(usize::try_from(row.try_get::<_, i32>(1)?).unwrap_or(0))
}
