//! The floor beside the embedded store: one row for each notification.

use std::path::Path;

use anyhow::{Result, ensure};
use rusqlite::{Connection, params};

use super::load::{StoreLoad, content, token};
use super::meter::{StepMeter, StoreStep};

/// A table in a database of its own, as safe as the store's.
#[derive(Debug)]
pub(super) struct SqliteFloor(Connection);

/// Rows of a transaction.
const ROWS: usize = 1_000;
const SCHEMA: &str = "\
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
CREATE TABLE notification (id INTEGER PRIMARY KEY, recipient TEXT NOT NULL, content TEXT, is_claimed INTEGER NOT NULL);
CREATE INDEX due ON notification (id) WHERE NOT is_claimed";
const INSERT: &str =
    "INSERT INTO notification (id, recipient, content, is_claimed) VALUES (?1, ?2, ?3, 0)";
const CLAIM: &str = "\
UPDATE notification SET is_claimed = 1
WHERE id IN (SELECT id FROM notification WHERE NOT is_claimed ORDER BY id LIMIT ?1)
RETURNING id, recipient, content";
const SETTLE: &str = "DELETE FROM notification WHERE id = ?1";

// === impl SqliteFloor ===

impl SqliteFloor {
    /// The tool as a report names it.
    pub(super) const TOOL: &str = "SQLite, a row for each, 1,000 in a transaction";

    pub(super) fn open(directory: &Path) -> Result<Self> {
        let connection = Connection::open(directory.join("floor.db"))?;
        connection.execute_batch(SCHEMA)?;
        Ok(Self(connection))
    }

    /// Inserts, claims and deletes `count` rows.
    pub(super) fn run(&mut self, load: StoreLoad, count: usize) -> Result<[StoreStep; 3]> {
        let meter = StepMeter::start(None)?;
        self.insert(load, 0..count, ROWS)?;
        let insert = meter.stop(count)?;
        let meter = StepMeter::start(None)?;
        let claimed = self.claim()?;
        ensure!(claimed.len() == count, "{} rows of {count}", claimed.len());
        let claim = meter.stop(count)?;
        let meter = StepMeter::start(None)?;
        self.settle(&claimed)?;
        Ok([insert, claim, meter.stop(count)?])
    }

    /// Inserts `count` rows, each in a transaction of its own.
    pub(super) fn one_by_one(&mut self, count: usize) -> Result<StoreStep> {
        let meter = StepMeter::start(None)?;
        self.insert(StoreLoad::Own, 0..count, 1)?;
        meter.stop(count)
    }

    fn insert(
        &mut self,
        load: StoreLoad,
        numbers: std::ops::Range<usize>,
        rows: usize,
    ) -> Result<()> {
        for first in numbers.clone().step_by(rows) {
            let transaction = self.0.transaction()?;
            let mut insert = transaction.prepare_cached(INSERT)?;
            for number in first..numbers.end.min(first + rows) {
                let content = (load != StoreLoad::Broadcast).then(|| content(number));
                insert.execute(params![i64::try_from(number)?, token(number), content])?;
            }
            drop(insert);
            transaction.commit()?;
        }
        Ok(())
    }

    fn claim(&mut self) -> Result<Vec<i64>> {
        let mut all = Vec::new();
        loop {
            let transaction = self.0.transaction()?;
            let mut claim = transaction.prepare_cached(CLAIM)?;
            let mut rows = claim.query([i64::try_from(ROWS)?])?;
            let before = all.len();
            while let Some(row) = rows.next()? {
                let (recipient, content) =
                    (row.get::<_, String>(1)?, row.get::<_, Option<String>>(2)?);
                std::hint::black_box((recipient, content));
                all.push(row.get(0)?);
            }
            drop(rows);
            drop(claim);
            transaction.commit()?;
            if all.len() == before {
                return Ok(all);
            }
        }
    }

    fn settle(&mut self, claimed: &[i64]) -> Result<()> {
        for rows in claimed.chunks(ROWS) {
            let transaction = self.0.transaction()?;
            let mut settle = transaction.prepare_cached(SETTLE)?;
            for id in rows {
                settle.execute([id])?;
            }
            drop(settle);
            transaction.commit()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_rows_go_through() {
        let directory = tempfile::tempdir().unwrap();
        let mut floor = SqliteFloor::open(directory.path()).unwrap();
        for load in StoreLoad::ALL {
            let steps = floor.run(load, 2_500).unwrap();
            assert!(steps.iter().all(|step| step.per_minute > 0.0), "{steps:?}");
        }
        let left: i64 =
            floor.0.query_row("SELECT count(*) FROM notification", [], |row| row.get(0)).unwrap();
        assert_eq!(left, 0);
        floor.one_by_one(3).unwrap();
    }
}
