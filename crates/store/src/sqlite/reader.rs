//! Questions: a few connections of their own, each answer from one snapshot.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use notification::limits::READERS;
use notification::{Account, BroadcastId, ByteString, Name, NotificationId, Pauses};
use rusqlite::InterruptHandle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::audit::{AuditSlice, SLICE_ROWS};
use super::files::{DATABASE, WAL, WalBounds};
use super::open::{open_reading, read_store_id};
use super::pause::pauses;
use super::read::Snapshot;
use super::{audit_lock, disk};
use crate::reader_shares::{Asker, ReaderShares};
use crate::rows::evidence::EvidenceBook;
use crate::{
    ActFilter, ActPage, Audit, BroadcastFilter, BroadcastPage, BroadcastStatus, DeliveryFilter,
    DeliveryPage, EventPosition, FeedCursor, Filter, History, KeyUse, LaneList, LanePace, LogPage,
    LogPosition, Page, ParkedChannel, Patience, ReadStore, ShardCursor, StoreError, StoreSpace,
    Suppression, SuppressionPage, TenantPage, TenantReads, WaitingCounts,
};

/// Answers questions about a store, owned by another process or not; changes nothing.
#[derive(Debug, Clone)]
pub struct SqliteReader {
    pool: Arc<ReadConnectionPool>,
    evidence: EvidenceBook,
    asker: Asker,
}

#[derive(Debug)]
pub(super) struct ReadConnectionPool {
    directory: PathBuf,
    store_id: u16,
    beside: Beside,
    idle: Mutex<Vec<Snapshot>>,
    shares: ReaderShares,
    permits: Arc<Semaphore>,
    active: Mutex<Active>,
    /// Bytes of the write-ahead log when this process last made way.
    made_way_at: AtomicU64,
    /// The database, in the writer's process. Closed behind the connections, as the last field is.
    database: Option<File>,
}

/// The writer for which a reader makes way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Beside {
    /// The writer of the same process, which has readers make way.
    Writer,
    /// A writer of another process, which cannot request it.
    AnotherProcess,
}

/// Reads under way.
#[derive(Default)]
struct Active {
    last: u64,
    handles: BTreeMap<u64, InterruptHandle>,
}

/// Time between two looks of a process that is not the writer's whether the write-ahead log has begun anew, and their number: a
/// second in all, in which a busy writer tries several times.
const MAKE_WAY: Duration = Duration::from_millis(10);
const MAKE_WAY_LOOKS: usize = 100;

// === impl SqliteReader ===

impl SqliteReader {
    /// Opens a reader that shows the lanes' `evidence`.
    pub(super) fn open(
        directory: &Path,
        beside: Beside,
        evidence: EvidenceBook,
    ) -> Result<Self, StoreError> {
        let connection = open_reading(directory)?;
        let missing = || StoreError::Damaged("the store has no id".to_owned());
        let store_id = read_store_id(&connection)?.ok_or_else(missing)?;
        let pool = ReadConnectionPool {
            directory: directory.to_owned(),
            store_id,
            beside,
            idle: Mutex::new(vec![Snapshot { connection, store_id }]),
            shares: ReaderShares::new(),
            // Each may hold 4 MiB of pages.
            permits: Arc::new(Semaphore::new(READERS as usize)),
            active: Mutex::default(),
            made_way_at: AtomicU64::new(0),
            database: (beside == Beside::Writer)
                .then(|| File::open(directory.join(DATABASE)))
                .transpose()
                .map_err(|error| StoreError::Broken(error.to_string()))?,
        };
        Ok(Self { pool: Arc::new(pool), evidence, asker: Asker::Engine })
    }

    pub(super) fn pool(&self) -> Arc<ReadConnectionPool> {
        Arc::clone(&self.pool)
    }

    pub(super) async fn read<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Snapshot) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let gone = |error: &dyn std::fmt::Display| StoreError::Broken(error.to_string());
        self.pool.make_way().await;
        let turn = self.pool.shares.turn(&self.asker).await?;
        let permit = Arc::clone(&self.pool.permits).acquire_owned().await;
        let permit = permit.map_err(|error| gone(&error))?;
        let pool = Arc::clone(&self.pool);
        // The turn and the permit go along: the read goes on when its caller is gone. `shut` must wait for it, and a tenant that
        // hangs up again and again must have no more of them than others.
        let answer = tokio::task::spawn_blocking(move || {
            let answer = pool.read(question);
            drop((permit, turn));
            answer
        });
        answer.await.map_err(|error| gone(&error))?
    }

    /// An audit whose slices read about `rows_max` rows; `between` is called before each of them.
    pub(super) async fn audit_in_slices(
        &self,
        rows_max: usize,
        mut between: impl AsyncFnMut(),
    ) -> Result<Audit, StoreError> {
        let _until_it_ends = audit_lock::keep_outcomes(&self.pool.directory)?;
        let mut auditing = self.read(move |snapshot| snapshot.begin_audit(rows_max)).await?;
        loop {
            between().await;
            match self.read(move |snapshot| snapshot.audit_slice(auditing)).await? {
                AuditSlice::More(rest) => auditing = rest,
                AuditSlice::Done(audit) => return Ok(audit),
            }
        }
    }
}

// === impl ReadConnectionPool ===

impl ReadConnectionPool {
    fn read<T>(
        &self,
        question: impl FnOnce(&Snapshot) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let idle = lock(&self.idle).pop();
        let snapshot = match idle {
            Some(snapshot) => snapshot,
            None => {
                Snapshot { connection: open_reading(&self.directory)?, store_id: self.store_id }
            }
        };
        let number = lock(&self.active).begin(snapshot.connection.get_interrupt_handle());
        let answer = snapshot.answer(question);
        // Before the connection is idle: an interrupt that comes late would hit its next question.
        lock(&self.active).handles.remove(&number);
        // A connection on which a question failed is not used again.
        let answer = answer?;
        lock(&self.idle).push(snapshot);
        Ok(answer)
    }

    /// Syncs the database, of the writer's process.
    ///
    /// By a descriptor that stays open as long as the pool: to close any descriptor of a file gives up all locks that the process has on
    /// it (fcntl(2)), and SQLite's connections go by theirs. So one process opens a store once, and drops its readers with it.
    pub(super) fn sync_database(&self) -> Result<(), StoreError> {
        let synced = self.database.as_ref().map_or(Ok(()), File::sync_data);
        synced.map_err(|error| StoreError::Broken(error.to_string()))
    }

    /// Lets no new read begin, and is ready when there is none: until the permit is dropped.
    pub(super) fn shut(&self) -> impl Future<Output = OwnedSemaphorePermit> + Send + use<> {
        let permits = Arc::clone(&self.permits);
        async move {
            // The semaphore is fair: reads that come later wait behind this.
            match permits.acquire_many_owned(READERS).await {
                Ok(all) => all,
                // It is never closed.
                Err(_closed) => std::future::pending().await,
            }
        }
    }

    /// Ends all reads under way.
    pub(super) fn interrupt(&self) {
        for handle in lock(&self.active).handles.values() {
            handle.interrupt();
        }
    }

    /// Leaves the writer of another process the time to begin its log anew, each time that this has become long.
    async fn make_way(&self) {
        if self.beside == Beside::Writer {
            return;
        }
        let wal = self.directory.join(WAL);
        let bytes = || wal.metadata().map_or(0, |wal| wal.len());
        let (max, step) = (WalBounds::DEFAULT.max_bytes(), WalBounds::DEFAULT.checkpoint_bytes());
        let mut looks = 0;
        while looks < MAKE_WAY_LOOKS
            && bytes() >= max.max(self.made_way_at.load(Ordering::Relaxed) + step)
        {
            tokio::time::sleep(MAKE_WAY).await;
            looks += 1;
        }
        if looks > 0 {
            // A log that another reader keeps from beginning anew must not hold up every question from now on.
            self.made_way_at.store(bytes(), Ordering::Relaxed);
        }
    }
}

// === impl Active ===

impl Active {
    fn begin(&mut self, handle: InterruptHandle) -> u64 {
        self.last += 1;
        self.handles.insert(self.last, handle);
        self.last
    }
}

impl std::fmt::Debug for Active {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_set().entries(self.handles.keys()).finish()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every critical section leaves its data whole, even if it panicked.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl TenantReads for SqliteReader {
    fn of_tenant(&self, tenant: &Name, patience: Patience) -> Arc<dyn ReadStore> {
        Arc::new(Self { asker: Asker::Tenant(tenant.clone(), patience), ..self.clone() })
    }
}

#[async_trait]
impl ReadStore for SqliteReader {
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

    async fn key_use(&self, tenant: Name, key: ByteString) -> Result<Option<KeyUse>, StoreError> {
        let used = self
            .read(move |snapshot| super::rows::key_use(&snapshot.connection, &tenant, &key))
            .await?;
        Ok(used.map(|(used, _)| used))
    }

    async fn broadcast(&self, id: BroadcastId) -> Result<Option<BroadcastStatus>, StoreError> {
        self.read(move |snapshot| snapshot.broadcast(id)).await
    }

    async fn broadcasts(
        &self,
        filter: BroadcastFilter,
        after: Option<BroadcastId>,
        items: usize,
    ) -> Result<BroadcastPage, StoreError> {
        self.read(move |snapshot| snapshot.broadcasts(&filter, after, items)).await
    }

    async fn totals(&self) -> Result<Account, StoreError> {
        self.read(Snapshot::totals).await
    }

    async fn tenant_totals(&self, tenant: Name) -> Result<Option<Account>, StoreError> {
        self.read(move |snapshot| snapshot.tenant_totals(&tenant)).await
    }

    async fn tenants(
        &self,
        after: Option<Name>,
        items: usize,
    ) -> Result<Option<TenantPage>, StoreError> {
        self.read(move |snapshot| snapshot.tenants(after.as_ref(), items)).await
    }

    async fn space(&self) -> Result<Option<StoreSpace>, StoreError> {
        let directory = self.pool.directory.clone();
        self.read(move |snapshot| disk::space(&snapshot.connection, &directory).map(Some)).await
    }

    async fn lanes(&self) -> Result<LaneList, StoreError> {
        let evidence = self.evidence.clone();
        self.read(move |snapshot| snapshot.lanes(&evidence)).await
    }

    async fn paces(&self) -> Result<Vec<LanePace>, StoreError> {
        let evidence = self.evidence.clone();
        self.read(move |snapshot| snapshot.paces(&evidence)).await
    }

    async fn parked(&self, offered: BTreeSet<Name>) -> Result<Vec<ParkedChannel>, StoreError> {
        self.read(move |snapshot| snapshot.parked(&offered)).await
    }

    async fn waiting_counts(&self, chunks_max: usize) -> Result<WaitingCounts, StoreError> {
        self.read(move |snapshot| snapshot.waiting_counts(chunks_max)).await
    }

    async fn audit(&self) -> Result<Audit, StoreError> {
        self.audit_in_slices(SLICE_ROWS, async || ()).await
    }

    async fn log(&self, position: LogPosition, entries: usize) -> Result<LogPage, StoreError> {
        self.read(move |snapshot| snapshot.log(position, entries)).await
    }

    async fn suppressions(
        &self,
        channel: Name,
        after: Option<ByteString>,
        items: usize,
    ) -> Result<Vec<Suppression>, StoreError> {
        self.read(move |snapshot| snapshot.suppressions(&channel, after.as_ref(), items)).await
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

    async fn delivery_events(
        &self,
        filter: DeliveryFilter,
        position: EventPosition,
        events: usize,
    ) -> Result<DeliveryPage, StoreError> {
        self.read(move |snapshot| snapshot.delivery_events(&filter, position, events)).await
    }

    async fn events_end(&self) -> Result<EventPosition, StoreError> {
        self.read(Snapshot::events_end).await
    }

    async fn feed(&self, feed: Name) -> Result<FeedCursor, StoreError> {
        self.read(move |snapshot| snapshot.feed(&feed)).await
    }

    async fn shards(&self, source: Name) -> Result<BTreeMap<String, ShardCursor>, StoreError> {
        self.read(move |snapshot| snapshot.shards(&source)).await
    }

    async fn acts(
        &self,
        filter: ActFilter,
        after: Option<u64>,
        items_max: usize,
    ) -> Result<ActPage, StoreError> {
        self.read(move |snapshot| snapshot.acts(&filter, after, items_max)).await
    }

    async fn pauses(&self) -> Result<Pauses, StoreError> {
        self.read(|snapshot| pauses(&snapshot.connection)).await
    }
}
