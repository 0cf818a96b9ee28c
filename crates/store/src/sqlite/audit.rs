//! The audit: three streams side by side, in constant memory.

use std::collections::BTreeSet;

use rusqlite::Rows;

use super::read::Snapshot;
use crate::rows::audit::BatchAudit;
use crate::{Audit, StoreError};

/// Rows that belong to batches, in order of batch, with the next one in hand.
struct Side<'a> {
    rows: Rows<'a>,
    next: Option<SideRow>,
}

struct SideRow {
    batch: i64,
    blob: Option<Vec<u8>>,
    count: usize,
}

// === impl Snapshot ===

impl Snapshot {
    /// Walks batches, chunks and log in order of batch, and accounts for every member of every batch.
    pub(super) fn audit(&self) -> Result<Audit, StoreError> {
        let mut audit = Audit::default();
        let open = self.open_broadcasts()?;
        let mut batches =
            self.connection.prepare("SELECT id, count, broadcast FROM batch ORDER BY id")?;
        let mut chunks =
            self.connection.prepare("SELECT batch, members, count FROM chunk ORDER BY batch")?;
        let mut log =
            self.connection.prepare("SELECT batch, entries, 0 FROM log ORDER BY batch, id")?;
        let mut batches = batches.query([])?;
        let mut chunks = Side::new(chunks.query([])?)?;
        let mut log = Side::new(log.query([])?)?;
        while let Some(row) = batches.next()? {
            let batch: i64 = row.get(0)?;
            let count = usize::from(row.get::<_, u16>(1)?);
            let is_open = row.get::<_, Option<i64>>(2)?.is_some_and(|it| open.contains(&it));
            let expected = if is_open { 0 } else { count };
            chunks.report_strays(batch, "chunk", &mut audit)?;
            log.report_strays(batch, "log row", &mut audit)?;
            let mut members = BatchAudit::new(batch, expected, &mut audit);
            while let Some(chunk) = chunks.take(batch)? {
                members.add_chunk(chunk.blob.as_deref(), chunk.count);
            }
            while let Some(row) = log.take(batch)? {
                members.add_log(&row.blob.unwrap_or_default())?;
            }
            members.finish();
        }
        chunks.report_strays(i64::MAX, "chunk", &mut audit)?;
        log.report_strays(i64::MAX, "log row", &mut audit)?;
        let totals = self.totals()?;
        if totals != audit.account {
            audit.report(format!("counted {:?}, and the totals say {totals:?}", audit.account));
        }
        Ok(audit)
    }

    fn open_broadcasts(&self) -> Result<BTreeSet<i64>, StoreError> {
        let mut select =
            self.connection.prepare("SELECT id FROM broadcast WHERE sealed_at IS NULL")?;
        let ids = select.query_map([], |row| row.get(0))?;
        Ok(ids.collect::<Result<_, _>>()?)
    }
}

// === impl Side ===

impl<'a> Side<'a> {
    fn new(rows: Rows<'a>) -> Result<Self, StoreError> {
        let mut side = Self { rows, next: None };
        side.advance()?;
        Ok(side)
    }

    /// The next row, if it belongs to `batch`.
    fn take(&mut self, batch: i64) -> Result<Option<SideRow>, StoreError> {
        let Some(row) = self.next.take_if(|next| next.batch == batch) else { return Ok(None) };
        self.advance()?;
        Ok(Some(row))
    }

    /// Reports rows whose batch should have come before `batch`.
    fn report_strays(
        &mut self,
        batch: i64,
        what: &str,
        audit: &mut Audit,
    ) -> Result<(), StoreError> {
        while let Some(stray) = self.next.take_if(|next| next.batch < batch) {
            audit.report(format!("a {what} belongs to batch {}, which is missing", stray.batch));
            self.advance()?;
        }
        Ok(())
    }

    fn advance(&mut self) -> Result<(), StoreError> {
        self.next = match self.rows.next()? {
            Some(row) => Some(SideRow {
                batch: row.get(0)?,
                blob: row.get(1)?,
                count: usize::from(row.get::<_, u16>(2)?),
            }),
            None => None,
        };
        Ok(())
    }
}
