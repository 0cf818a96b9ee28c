//! Questions: a few connections of their own, each answer from one snapshot.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use notification::{Account, BroadcastId, ByteString, Name, NotificationId, Timestamp};
use tokio::sync::Semaphore;
use tokio_postgres::IsolationLevel;

use super::connection::{Connection, Connector};
use super::errors;
use super::read::Snapshot;
use crate::{
    Audit, BroadcastStatus, CancelTarget, Cancelled, ClusterStatus, Filter, History, LaneStatus,
    Ledger, LogPage, LogPosition, Page, StoreError, Suppression,
};

/// Answers questions about a store, whoever else works on it; changes nothing.
#[derive(Debug, Clone)]
pub struct PostgresReader {
    pool: Arc<Pool>,
}

#[derive(Debug)]
struct Pool {
    connector: Connector,
    realm: u16,
    idle: Mutex<Vec<Connection>>,
    permits: Semaphore,
}

/// Questions answered at a time; more wait. Each has a session of the server.
const READERS: usize = 4;
const READ_ONLY: &str = "SET default_transaction_read_only = on";

/// Answers one question of the ledger.
macro_rules! ask {
    ($self:ident, $question:ident $(, $parameter:expr)*) => {
        $self.pool.read(async |snapshot: &Snapshot<'_>| snapshot.$question($($parameter),*).await).await
    };
}

// === impl PostgresReader ===

impl PostgresReader {
    /// Opens the store at `url` for questions only; its user needs no rights but `SELECT`.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when there is no connection, [`StoreError::Schema`] when there is no store.
    pub async fn open(url: &str, ca_file: Option<&Path>) -> Result<Self, StoreError> {
        Self::connect(Connector::new(url, "belfry (reading)", ca_file)?).await
    }

    pub(super) async fn connect(connector: Connector) -> Result<Self, StoreError> {
        let connection = connect(&connector).await?;
        let realm = stored_realm(&connection).await?;
        let pool = Pool {
            connector,
            realm,
            idle: Mutex::new(vec![connection]),
            permits: Semaphore::new(READERS),
        };
        Ok(Self { pool: Arc::new(pool) })
    }
}

// === impl Pool ===

impl Pool {
    /// Asks once more when it was an idle connection that turned out to be lost.
    async fn read<T>(
        &self,
        question: impl AsyncFn(&Snapshot<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let closed = |error: &dyn std::fmt::Display| StoreError::Broken(error.to_string());
        let _permit = self.permits.acquire().await.map_err(|error| closed(&error))?;
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        if let Some(connection) = idle {
            match self.ask(connection, &question).await {
                Err(StoreError::Unavailable(reason)) => {
                    tracing::debug!(reason, "a question is asked again on a new connection");
                    self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
                }
                answer => return answer,
            }
        }
        self.ask(connect(&self.connector).await?, &question).await
    }

    async fn ask<T>(
        &self,
        mut connection: Connection,
        question: &impl AsyncFn(&Snapshot<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let answer = answer(&mut connection, self.realm, question).await?;
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        Ok(answer)
    }
}

/// Asks within one snapshot.
async fn answer<T>(
    connection: &mut Connection,
    realm: u16,
    question: &impl AsyncFn(&Snapshot<'_>) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let transaction = connection
        .client
        .build_transaction()
        .isolation_level(IsolationLevel::RepeatableRead)
        .read_only(true)
        .start()
        .await?;
    let snapshot = Snapshot { transaction, realm };
    let answer = question(&snapshot).await?;
    snapshot.transaction.commit().await?;
    Ok(answer)
}

async fn connect(connector: &Connector) -> Result<Connection, StoreError> {
    let unavailable =
        |error: tokio_postgres::Error| StoreError::Unavailable(errors::in_words(&error));
    let connection = connector.connect().await.map_err(unavailable)?;
    connection.client.batch_execute(READ_ONLY).await.map_err(unavailable)?;
    Ok(connection)
}

/// The tag that is part of every identifier of this store.
async fn stored_realm(connection: &Connection) -> Result<u16, StoreError> {
    let missing = || {
        StoreError::Schema("there is no store in this database: start `belfry serve` first".into())
    };
    let exists = "SELECT to_regclass('belfry.meta') IS NOT NULL";
    if !connection.client.query_one(exists, &[]).await?.try_get::<_, bool>(0)? {
        return Err(missing());
    }
    let select = "SELECT value FROM meta WHERE key = 'realm'";
    let row = connection.client.query_opt(select, &[]).await?.ok_or_else(missing)?;
    u16::try_from(row.try_get::<_, i64>(0)?)
        .map_err(|_| StoreError::Damaged("the store's tag".to_owned()))
}

#[async_trait]
impl Ledger for PostgresReader {
    async fn find(&self, id: NotificationId) -> Result<Option<History>, StoreError> {
        ask!(self, find, id)
    }

    async fn list(
        &self,
        filter: Filter,
        after: Option<NotificationId>,
        items: usize,
    ) -> Result<Page<History>, StoreError> {
        ask!(self, list, &filter, after, items)
    }

    async fn broadcast(&self, id: BroadcastId) -> Result<Option<BroadcastStatus>, StoreError> {
        ask!(self, broadcast, id)
    }

    async fn cancel(
        &self,
        _target: CancelTarget,
        _tenant: Name,
        _now: Timestamp,
    ) -> Result<Option<Cancelled>, StoreError> {
        Err(StoreError::ReadOnly)
    }

    async fn totals(&self) -> Result<Account, StoreError> {
        ask!(self, totals)
    }

    async fn lanes(&self) -> Result<Vec<LaneStatus>, StoreError> {
        ask!(self, lanes)
    }

    async fn audit(&self) -> Result<Audit, StoreError> {
        ask!(self, audit)
    }

    async fn log(&self, position: LogPosition, entries: usize) -> Result<LogPage, StoreError> {
        ask!(self, log, position, entries)
    }

    async fn suppress(&self, _suppressions: Vec<Suppression>) -> Result<(), StoreError> {
        Err(StoreError::ReadOnly)
    }

    async fn suppressions(
        &self,
        channel: Name,
        after: Option<ByteString>,
        items: usize,
    ) -> Result<Vec<Suppression>, StoreError> {
        ask!(self, suppressions, &channel, after.as_ref(), items)
    }

    async fn cluster(&self) -> Result<Option<ClusterStatus>, StoreError> {
        ask!(self, cluster).map(Some)
    }

    async fn unsuppress(
        &self,
        _channel: Name,
        _recipients: Vec<ByteString>,
    ) -> Result<Vec<bool>, StoreError> {
        Err(StoreError::ReadOnly)
    }
}
