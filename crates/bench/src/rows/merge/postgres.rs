//! One connection to PostgreSQL, and both variants on it by the mechanism alone: each group is one transaction, whose statements
//! are sent before the first is answered.

use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow};
use flow::Tasks;
use flow::merge::{
    Bounds, Control, Counts, Groups, Merge, MergeHandle, Merging, Undone, Unmerge, Weighted,
};
use futures_util::future::try_join_all;
use testbed::postgres::{Database, PostgresServer};
use tokio::sync::{Mutex, oneshot};
use tokio_postgres::{Client, NoTls, Statement};

/// A database of its own, with one connection to it.
pub(super) struct OneConnection {
    callers: [MergeHandle<MergeRequest>; 2],
    control: Control,
    /// The loops and the connection; waited for when it is closed.
    tasks: Mutex<Tasks>,
    database: Database,
}

/// Request of a caller: parameters of the statement of its kind.
struct MergeRequest {
    kind: MergeKind,
    caller: i64,
    /// Counts the operations of the caller.
    number: i64,
    outcome: oneshot::Sender<Result<(), String>>,
}

#[derive(Clone, Copy)]
enum MergeKind {
    Insert,
    Change,
}

/// The connection, and its statements.
struct MergeSession {
    client: Client,
    insert: Statement,
    change: Statement,
}

const BOUNDS: Bounds = Bounds { items: 1_024, weight: usize::MAX, waiting: 4_096 };
/// About the content of a push message.
const BODY_BYTES: usize = 200;

// === impl OneConnection ===

impl OneConnection {
    /// With a row for each of the `callers` that change one.
    pub(super) async fn open(
        server: &PostgresServer,
        merging: Merging,
        callers: usize,
    ) -> Result<Self> {
        let database = server.create_database()?;
        let (client, connection) = tokio_postgres::connect(database.url(), NoTls).await?;
        let mut tasks = Tasks::default();
        tasks.spawn("connection", async {
            // Its end is seen by who uses it.
            let _ended = connection.await;
        });
        let tables = "CREATE TABLE accepted (caller bigint, number bigint, body bytea, PRIMARY KEY (caller, number)); \
             CREATE TABLE begun (caller bigint PRIMARY KEY, changes bigint)";
        client.batch_execute(tables).await?;
        let rows = "INSERT INTO begun SELECT row, 0 FROM generate_series(0, $1::bigint) AS row";
        client.execute(rows, &[&i64::try_from(callers)?]).await?;
        let insert = client.prepare("INSERT INTO accepted VALUES ($1, $2, $3)").await?;
        let change =
            client.prepare("UPDATE begun SET changes = changes + 1 WHERE caller = $1").await?;
        let session = Arc::new(Mutex::new(MergeSession { client, insert, change }));
        let Merge { callers, loops, control } = Merge::new(merging, BOUNDS);
        for groups in loops {
            tasks.spawn("loop", perform_all(Arc::clone(&session), groups));
        }
        Ok(Self { callers, control, tasks: Mutex::new(tasks), database })
    }

    /// Even callers insert a row, odd ones change theirs.
    pub(super) async fn operate(&self, caller: usize, number: usize) -> Result<()> {
        let [inserts, changes] = &self.callers;
        let (kind, handle) = if caller.is_multiple_of(2) {
            (MergeKind::Insert, inserts)
        } else {
            (MergeKind::Change, changes)
        };
        let (caller, number) = (i64::try_from(caller)?, i64::try_from(number)?);
        let request = |outcome| MergeRequest { kind, caller, number, outcome };
        let outcome = handle.call(request).await.ok().context("the loop has ended")?;
        outcome.map_err(|error| anyhow!(error))
    }

    /// Operations whose rows and changes are in the database; asked over another connection.
    pub(super) fn stored(&self) -> Result<u64> {
        let count = "SELECT (SELECT count(*) FROM accepted) + (SELECT sum(changes) FROM begun)";
        let answer = self.database.query(count)?;
        answer.trim().parse().with_context(|| format!("a count, not {answer}"))
    }

    pub(super) fn counts(&self) -> Counts {
        self.control.counts()
    }

    pub(super) async fn close(&self) {
        self.control.close().await;
        self.tasks.lock().await.drain().await;
    }
}

// === impl MergeRequest ===

impl Weighted for MergeRequest {
    fn weight(&self) -> usize {
        1
    }
}

// === impl MergeSession ===

impl MergeSession {
    /// All of `requests` in one transaction, or none.
    async fn perform(&self, requests: &[MergeRequest]) -> Result<(), Undone<String>> {
        let Err(error) = self.transaction(requests).await else { return Ok(()) };
        let told = error.to_string();
        if error.code().is_none() || self.client.batch_execute("ROLLBACK").await.is_err() {
            return Err(Undone::AllFailed(told));
        }
        Err(Undone::OneItemFailed(told))
    }

    async fn transaction(&self, requests: &[MergeRequest]) -> Result<(), tokio_postgres::Error> {
        let begin = self.client.batch_execute("BEGIN");
        let statements = try_join_all(requests.iter().map(|request| self.run(request)));
        // Sent in this order, all before the first is answered.
        let (opened, done) = tokio::join!(begin, statements);
        opened.and(done)?;
        self.client.batch_execute("COMMIT").await
    }

    async fn run(&self, request: &MergeRequest) -> Result<u64, tokio_postgres::Error> {
        let MergeRequest { kind, caller, number, .. } = request;
        match kind {
            MergeKind::Insert => {
                let body: &[u8] = &[7; BODY_BYTES];
                self.client.execute(&self.insert, &[caller, number, &body]).await
            }
            MergeKind::Change => self.client.execute(&self.change, &[caller]).await,
        }
    }
}

/// A loop: what waits when the connection is free is one transaction.
async fn perform_all(session: Arc<Mutex<MergeSession>>, mut groups: Groups<MergeRequest>) {
    while groups.ready().await {
        let session = session.lock().await;
        let group = groups.take().await;
        let mut parts = Unmerge::new(group.len());
        while let Some(part) = parts.part() {
            parts.ended(session.perform(group.get(part).unwrap_or_default()).await);
        }
        drop(session);
        for (request, outcome) in group.into_iter().zip(parts.outcomes()) {
            let _caller_may_be_gone = request.outcome.send(outcome);
        }
    }
}
