//! The floor beside the store on PostgreSQL: one row for each notification, by COPY, and claims that skip locked rows.

use std::pin::pin;

use anyhow::{Result, ensure};
use flow::Tasks;
use futures_util::SinkExt as _;
use notification::Bytes;
use testbed::Database;
use tokio_postgres::{Client, NoTls};

use super::load::{StoreLoad, content, token};
use super::meter::{StepMeter, StoreStep};

/// A table in a database of its own.
pub(super) struct PostgresFloor {
    client: Client,
    server: Option<u32>,
    tasks: Tasks,
    _database: Database,
}

/// Rows of a transaction, but for the COPY, which is one.
const ROWS: i64 = 1_000;
const SCHEMA: &str =
    "CREATE TABLE notification (id bigint PRIMARY KEY, recipient text NOT NULL, content text)";
const COPY: &str = "COPY notification (id, recipient, content) FROM STDIN";
const CLAIM: &str = "\
SELECT id, recipient, content FROM notification WHERE id > $1 ORDER BY id LIMIT $2
FOR UPDATE SKIP LOCKED";
const SETTLE: &str = "DELETE FROM notification WHERE id = ANY ($1)";

// === impl PostgresFloor ===

impl PostgresFloor {
    /// The tool as a report names it.
    pub(super) const TOOL: &str = "PostgreSQL, COPY, FOR UPDATE SKIP LOCKED, DELETE";

    /// In `database` of the server whose first process is `server`.
    pub(super) async fn open(database: Database, server: Option<u32>) -> Result<Self> {
        let (client, connection) = tokio_postgres::connect(database.url(), NoTls).await?;
        let mut tasks = Tasks::default();
        tasks.spawn("connection", async {
            // Its end is seen by who uses it.
            let _ended = connection.await;
        });
        client.batch_execute(SCHEMA).await?;
        Ok(Self { client, server, tasks, _database: database })
    }

    /// Copies, claims and deletes `count` rows.
    pub(super) async fn run(&mut self, load: StoreLoad, count: usize) -> Result<[StoreStep; 3]> {
        let meter = StepMeter::start(self.server)?;
        let copied = self.copy(load, count).await?;
        ensure!(copied == count as u64, "{copied} rows of {count}");
        let copy = meter.stop(count)?;
        let meter = StepMeter::start(self.server)?;
        let claimed = self.claim().await?;
        ensure!(claimed.len() == count, "{} rows of {count}", claimed.len());
        let claim = meter.stop(count)?;
        let meter = StepMeter::start(self.server)?;
        self.settle(&claimed).await?;
        Ok([copy, claim, meter.stop(count)?])
    }

    /// Ends the connection.
    pub(super) async fn close(self) {
        let Self { client, mut tasks, .. } = self;
        drop(client);
        tasks.drain().await;
    }

    async fn copy(&self, load: StoreLoad, count: usize) -> Result<u64> {
        let mut sink = pin!(self.client.copy_in::<_, Bytes>(COPY).await?);
        for first in (0..count).step_by(1_000) {
            let rows = (first..count.min(first + 1_000)).map(|number| row(load, number));
            sink.send(Bytes::from(rows.collect::<String>())).await?;
        }
        Ok(sink.finish().await?)
    }

    async fn claim(&mut self) -> Result<Vec<i64>> {
        let statement = self.client.prepare(CLAIM).await?;
        let (mut all, mut last) = (Vec::new(), -1_i64);
        loop {
            let transaction = self.client.transaction().await?;
            let rows = transaction.query(&statement, &[&last, &ROWS]).await?;
            transaction.commit().await?;
            for row in &rows {
                let (recipient, content) = (row.get::<_, &str>(1), row.get::<_, Option<&str>>(2));
                std::hint::black_box((recipient, content));
                all.push(row.get(0));
            }
            match all.last() {
                Some(id) if !rows.is_empty() => last = *id,
                _ => return Ok(all),
            }
        }
    }

    async fn settle(&self, claimed: &[i64]) -> Result<()> {
        let statement = self.client.prepare(SETTLE).await?;
        for rows in claimed.chunks(usize::try_from(ROWS)?) {
            self.client.execute(&statement, &[&rows]).await?;
        }
        Ok(())
    }
}

/// A line of the text that COPY reads.
fn row(load: StoreLoad, number: usize) -> String {
    let recipient = token(number);
    match load {
        StoreLoad::Broadcast => format!("{number}\t{recipient}\t\\N\n"),
        StoreLoad::Own | StoreLoad::Scattered => {
            format!("{number}\t{recipient}\t{}\n", content(number))
        }
    }
}
