//! Questions: a few connections of their own, each answer from one snapshot.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use notification::{Account, BroadcastId, ByteString, Name, NotificationId, Timestamp};
use tokio::sync::Semaphore;

use super::open::{open_reading, stored_realm};
use super::read::Snapshot;
use crate::{
    Audit, BroadcastStatus, CancelTarget, Cancelled, EventPosition, FeedCursor, Filter, History,
    LaneStatus, Ledger, Lift, LogPage, LogPosition, Page, StoreError, Suppression, SuppressionPage,
};

/// Answers questions about a store, whoever owns it; changes nothing.
#[derive(Debug, Clone)]
pub struct SqliteReader {
    pool: Arc<Pool>,
}

#[derive(Debug)]
struct Pool {
    directory: PathBuf,
    realm: u16,
    idle: Mutex<Vec<Snapshot>>,
    permits: Semaphore,
}

/// Questions answered at a time; more wait. Each may hold 4 MiB of pages.
const READERS: usize = 4;

// === impl SqliteReader ===

impl SqliteReader {
    pub(super) fn open(directory: &Path) -> Result<Self, StoreError> {
        let connection = open_reading(directory)?;
        let missing = || StoreError::Damaged("the store has no tag".to_owned());
        let realm = stored_realm(&connection)?.ok_or_else(missing)?;
        let pool = Pool {
            directory: directory.to_owned(),
            realm,
            idle: Mutex::new(vec![Snapshot { connection, realm }]),
            permits: Semaphore::new(READERS),
        };
        Ok(Self { pool: Arc::new(pool) })
    }

    async fn read<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Snapshot) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let gone = |error: &dyn std::fmt::Display| StoreError::Broken(error.to_string());
        let _permit = self.pool.permits.acquire().await.map_err(|error| gone(&error))?;
        let pool = Arc::clone(&self.pool);
        let answer = tokio::task::spawn_blocking(move || pool.read(question));
        answer.await.map_err(|error| gone(&error))?
    }
}

// === impl Pool ===

impl Pool {
    fn read<T>(
        &self,
        question: impl FnOnce(&Snapshot) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let snapshot = match idle {
            Some(snapshot) => snapshot,
            None => Snapshot { connection: open_reading(&self.directory)?, realm: self.realm },
        };
        let transaction = snapshot.connection.unchecked_transaction()?;
        let answer = question(&snapshot)?;
        transaction.finish()?;
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(snapshot);
        Ok(answer)
    }
}

#[async_trait]
impl Ledger for SqliteReader {
    async fn find(&self, id: NotificationId) -> Result<Option<History>, StoreError> {
        self.read(move |snapshot| snapshot.find(id)).await
    }

    async fn list(
        &self,
        filter: Filter,
        after: Option<NotificationId>,
        items: usize,
    ) -> Result<Page<History>, StoreError> {
        self.read(move |snapshot| snapshot.list(&filter, after, items)).await
    }

    async fn broadcast(&self, id: BroadcastId) -> Result<Option<BroadcastStatus>, StoreError> {
        self.read(move |snapshot| snapshot.broadcast(id)).await
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
        self.read(Snapshot::totals).await
    }

    async fn lanes(&self) -> Result<Vec<LaneStatus>, StoreError> {
        self.read(Snapshot::lanes).await
    }

    async fn audit(&self) -> Result<Audit, StoreError> {
        self.read(Snapshot::audit).await
    }

    async fn log(&self, position: LogPosition, entries: usize) -> Result<LogPage, StoreError> {
        self.read(move |snapshot| snapshot.log(position, entries)).await
    }

    async fn suppress(
        &self,
        _suppressions: Vec<Suppression>,
        _now: Timestamp,
    ) -> Result<(), StoreError> {
        Err(StoreError::ReadOnly)
    }

    async fn suppressions(
        &self,
        channel: Name,
        after: Option<ByteString>,
        items: usize,
    ) -> Result<Vec<Suppression>, StoreError> {
        self.read(move |snapshot| snapshot.suppressions(&channel, after.as_ref(), items)).await
    }

    async fn lift(&self, _lifts: Vec<Lift>, _now: Timestamp) -> Result<Vec<bool>, StoreError> {
        Err(StoreError::ReadOnly)
    }

    async fn suppressed_channel(&self, after: Option<Name>) -> Result<Option<Name>, StoreError> {
        self.read(move |snapshot| snapshot.suppressed_channel(after.as_ref())).await
    }

    async fn suppression_events(
        &self,
        position: EventPosition,
        events: usize,
    ) -> Result<SuppressionPage, StoreError> {
        self.read(move |snapshot| snapshot.suppression_events(position, events)).await
    }

    async fn feed(&self, feed: Name) -> Result<FeedCursor, StoreError> {
        self.read(move |snapshot| snapshot.feed(&feed)).await
    }

    async fn move_feed(
        &self,
        _feed: Name,
        _from: FeedCursor,
        _to: FeedCursor,
    ) -> Result<FeedCursor, StoreError> {
        Err(StoreError::ReadOnly)
    }
}
