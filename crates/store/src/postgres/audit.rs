//! The audit: three portals side by side, in constant memory.

use std::collections::BTreeSet;
use std::vec;

use tokio_postgres::{Portal, Row};

use super::read::Snapshot;
use crate::rows::audit::BatchAudit;
use crate::{Audit, StoreError};

/// Rows in order of batch, which is their first column, with the next one in hand.
struct Side<'a> {
    snapshot: &'a Snapshot<'a>,
    portal: Portal,
    fetched: vec::IntoIter<Row>,
    next: Option<(i64, Row)>,
}

/// Rows fetched at once.
const ROWS: i32 = 512;

// === impl Snapshot ===

impl Snapshot<'_> {
    /// Walks batches, chunks and log in order of batch, and accounts for every member of every batch.
    pub(super) async fn audit(&self) -> Result<Audit, StoreError> {
        self.transaction.batch_execute("SET LOCAL statement_timeout = 0").await?;
        let mut audit = Audit::default();
        let open = "SELECT id FROM broadcast WHERE sealed_at IS NULL";
        let open: BTreeSet<Option<i64>> =
            self.transaction.query(open, &[]).await?.iter().map(|row| row.get(0)).collect();
        let mut batches = self.side("SELECT id, count, broadcast FROM batch ORDER BY id").await?;
        let mut chunks =
            self.side("SELECT batch, count, members FROM chunk ORDER BY batch").await?;
        let mut log =
            self.side("SELECT batch, 0, entries FROM log ORDER BY batch, txid, id").await?;
        while let Some((batch, row)) = batches.advance().await? {
            let is_open = open.contains(&row.try_get(2)?);
            let expected = if is_open { 0 } else { count(&row)? };
            chunks.report_strays(batch, "chunk", &mut audit).await?;
            log.report_strays(batch, "log row", &mut audit).await?;
            let mut members = BatchAudit::new(batch, expected, &mut audit);
            while let Some(row) = chunks.take(batch).await? {
                members.add_chunk(row.try_get(2)?, count(&row)?);
            }
            while let Some(row) = log.take(batch).await? {
                members.add_log(row.try_get(2)?)?;
            }
            members.finish();
        }
        chunks.report_strays(i64::MAX, "chunk", &mut audit).await?;
        log.report_strays(i64::MAX, "log row", &mut audit).await?;
        let totals = self.totals().await?;
        if totals != audit.account {
            audit.report(format!("counted {:?}, and the totals say {totals:?}", audit.account));
        }
        Ok(audit)
    }

    async fn side(&self, sql: &'static str) -> Result<Side<'_>, StoreError> {
        let portal = self.transaction.bind(sql, &[]).await?;
        let mut side = Side { snapshot: self, portal, fetched: Vec::new().into_iter(), next: None };
        side.advance().await?;
        Ok(side)
    }
}

// === impl Side ===

impl Side<'_> {
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
