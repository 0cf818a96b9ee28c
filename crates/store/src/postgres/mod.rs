//! The store on PostgreSQL: shared by any number of processes, everything in chunks.
//!
//! Rows are those of the sibling on SQLite: a *batch* of up to [`BATCH_ITEMS`] notifications that never changes, a *chunk*
//! that says which of them are due together, and a *log* of what was settled together.
//!
//! - [`connection`], [`tls`], [`schema`], [`errors`]: how the database is reached, and what is wrong with it in words.
//! - [`writer`]: two tasks that each own a connection. What arrived while the last commit ran is the next transaction.
//! - [`round`] and [`writes`]: one transaction, decided in memory and written in flights of statements.
//! - [`intake`], [`ingest`], [`broadcast`], [`copy`]: what comes in.
//! - [`work`], [`plan`], [`claim`], [`settle`], [`cancel`], [`bury`]: what is under way. A write on a chunk is fenced by its epoch.
//! - [`board`], [`notices`], [`shared`]: what this process knows without asking, and what processes tell each other.
//! - [`reader`], [`read`], [`audit`]: questions.
//!
//! Who claims is decided by partitions ([`membership`]); that nothing is claimed twice, by row locks alone.
//!
//! Nothing is lost with a connection: commands wait while the database is away, and where a commit may or may not have
//! been heard, the database is asked.
//!
//! [`BATCH_ITEMS`]: notification::limits::BATCH_ITEMS

mod audit;
mod board;
mod broadcast;
mod bury;
mod cancel;
mod claim;
mod connection;
mod copy;
mod errors;
mod ingest;
mod intake;
mod membership;
mod notices;
mod plan;
mod read;
#[cfg(test)]
mod read_tests;
mod reader;
mod round;
mod schema;
mod settle;
mod shared;
mod table;
mod tls;
mod totals;
mod traits;
mod work;
mod writer;
mod writes;
mod xid;

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use flow::{Clock, Tasks, Tenure};
use tokio::sync::{mpsc, oneshot, watch};

pub use reader::PostgresReader;

use crate::StoreError;
use connection::Connector;
use intake::{Intake, IntakeDesk};
use shared::{Role, Shared};
use work::{Work, WorkDesk};
use writer::{Asked, Message, Slot, Writer};

/// How a store is opened.
#[derive(Debug, Clone)]
pub struct Options {
    /// `postgres://role:password@host:port/database`.
    pub url: String,
    /// Certificates to trust besides the system's, PEM.
    pub ca_file: Option<PathBuf>,
    /// What this process is called: host and process.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Whether it owns partitions and claims from them.
    pub produces: bool,
    /// Whether it delivers.
    pub consumes: bool,
    /// Where its API listens.
    pub listen: Option<String>,
    /// A random number: a new store draws its tag from it, and delays their jitter.
    pub seed: u64,
}

/// An open store. Other processes may have it open as well.
#[derive(Debug)]
pub struct Postgres {
    shared: Arc<Shared>,
    intake: mpsc::Sender<Message<Intake>>,
    work: mpsc::Sender<Message<Work>>,
    reader: PostgresReader,
    time_offset_ms: i64,
    /// The writers; they end with the store.
    _tasks: Mutex<Tasks>,
}

/// Held by every transaction that writes to the log, so that its reader can tell which ones are not complete yet. The
/// function `log_horizon` of the schema knows it by its numbers.
const LOG_WRITERS: &str = "SELECT pg_advisory_xact_lock_shared(4782301, 1)";

// === impl Postgres ===

impl Postgres {
    /// Opens the store in a database, which is made ready for it when it is not, and registers this process.
    ///
    /// # Errors
    /// [`StoreError::Refused`] when the database cannot be reached or does not let us in, [`StoreError::Schema`] when it
    /// is of no use as it is. Both say what to do.
    pub async fn open(options: Options, clock: Clock) -> Result<Self, StoreError> {
        let connector = Connector::new(&options.url, &options.name, options.ca_file.as_deref())?;
        connector.prepare().await?;
        let session = connector.connect(None).await.map_err(|error| connector.at_start(&error))?;
        let time_offset_ms = time_offset(&session, clock).await?;
        let mut random = fastrand::Rng::with_seed(options.seed);
        let realm = realm(&session, &mut random).await?;
        let shared = Arc::new(Shared::new(clock, realm, options.produces));
        membership::join(&session, &shared, &options).await?;
        drop(session);
        let (intake, intake_sender) = Writer::new(
            Role::Intake,
            IntakeDesk::new(&shared),
            &shared,
            connector.clone(),
            random.fork(),
        );
        let (work, work_sender) =
            Writer::new(Role::Work, WorkDesk::new(&shared), &shared, connector.clone(), random);
        let mut tasks = Tasks::default();
        tasks.spawn("store-intake", intake.run());
        tasks.spawn("store-work", work.run());
        let reader = PostgresReader::connect(connector).await?;
        Ok(Self {
            shared,
            intake: intake_sender,
            work: work_sender,
            reader,
            time_offset_ms,
            _tasks: Mutex::new(tasks),
        })
    }

    /// Turns into the reason when the store fails; the process should then exit and start again.
    pub fn failed(&self) -> watch::Receiver<Option<StoreError>> {
        self.shared.failed.subscribe()
    }

    /// Whether the database can be reached; calls wait while it cannot.
    pub fn available(&self) -> watch::Receiver<bool> {
        self.shared.available.subscribe()
    }

    /// Until when this process may start attempts.
    pub fn tenure(&self) -> Tenure {
        self.shared.tenure.clone()
    }

    /// The database's clock minus ours, milliseconds, as measured when the store was opened.
    pub const fn time_offset(&self) -> i64 {
        self.time_offset_ms
    }

    /// Finishes what was asked, and leaves the cluster: what this process still holds is due again at once. Later calls
    /// are refused.
    pub async fn close(&self) {
        let worker = self.shared.worker();
        let now = notification::Timestamp::from_millis(self.wall_ms() + self.time_offset_ms);
        let bury = |slot| Work::Bury { worker, is_orderly: true, now, slot };
        if let Err(error) = self.ask_work(bury).await {
            tracing::warn!(%error, "could not leave the cluster in order: others will notice");
        }
        let (closing, intake_closed) = oneshot::channel();
        let _closed_before = self.intake.send(Message::Close(closing)).await;
        let (closing, work_closed) = oneshot::channel();
        let _closed_before = self.work.send(Message::Close(closing)).await;
        let _both_closed = (intake_closed.await, work_closed.await);
    }

    fn wall_ms(&self) -> i64 {
        i64::try_from(self.shared.clock.wall().as_millis()).unwrap_or(i64::MAX)
    }

    async fn ask_intake<T>(
        &self,
        command: impl FnOnce(Slot<T>) -> Intake,
    ) -> Result<T, StoreError> {
        self.ask(&self.intake, command).await
    }

    async fn ask_work<T>(&self, command: impl FnOnce(Slot<T>) -> Work) -> Result<T, StoreError> {
        self.ask(&self.work, command).await
    }

    async fn ask<T, C>(
        &self,
        writer: &mpsc::Sender<Message<C>>,
        command: impl FnOnce(Slot<T>) -> C,
    ) -> Result<T, StoreError> {
        let (slot, answered) = Slot::new();
        let asked = Asked { command: command(slot), since: self.shared.clock.monotonic() };
        if writer.send(Message::Asked(asked)).await.is_err() {
            return Err(self.refusal());
        }
        match answered.await {
            Ok(answer) => answer,
            Err(_unanswered) => Err(self.refusal()),
        }
    }

    /// Why a writer does not answer.
    fn refusal(&self) -> StoreError {
        let reason = self.shared.failed.borrow().clone();
        reason.unwrap_or_else(|| StoreError::Broken("it was closed".to_owned()))
    }
}

/// The tag that is part of every identifier of this store; the first process draws it.
async fn realm(
    session: &connection::Session,
    random: &mut fastrand::Rng,
) -> Result<u16, StoreError> {
    let drawn = i64::from(random.u16(0..1 << 12));
    let add = "INSERT INTO meta (key, value) VALUES ('realm', $1) ON CONFLICT DO NOTHING";
    session.client.execute(add, &[&drawn]).await?;
    let select = "SELECT value FROM meta WHERE key = 'realm'";
    let realm: i64 = session.client.query_one(select, &[]).await?.try_get(0)?;
    u16::try_from(realm).map_err(|_| StoreError::Damaged("the tag of the store".to_owned()))
}

/// The database's clock minus ours, milliseconds: it was read about halfway through the round trip.
async fn time_offset(session: &connection::Session, clock: Clock) -> Result<i64, StoreError> {
    let select = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint";
    let statement = session.client.prepare(select).await?;
    let before = clock.wall();
    let theirs: i64 = session.client.query_one(&statement, &[]).await?.try_get(0)?;
    let ours = (before + clock.wall()) / 2;
    Ok(theirs - i64::try_from(ours.as_millis()).unwrap_or(i64::MAX))
}
