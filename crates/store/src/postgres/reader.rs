//! Questions: a few connections of their own, each answer from one snapshot.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use notification::limits::READERS;
use notification::{Account, BroadcastId, ByteString, Name, NotificationId, Pauses};
use tokio::sync::{AcquireError, Semaphore, SemaphorePermit};
use tokio_postgres::Error;

use super::connection::{Connector, PostgresSession};
use super::read::Snapshot;
use super::{errors, schema, store_id};
use crate::reader_shares::{Asker, ReaderShares};
use crate::rows::evidence::EvidenceBook;
use crate::{
    ActFilter, ActPage, Audit, BroadcastFilter, BroadcastPage, BroadcastStatus, ClusterStatus,
    DeliveryFilter, DeliveryPage, EventPosition, FeedCursor, Filter, History, KeyUse, LaneList,
    LanePace, LogPage, LogPosition, Page, ParkedChannel, Patience, ReadStore, ShardCursor,
    StoreError, StoreSpace, Suppression, SuppressionPage, TenantPage, TenantReads, WaitingCounts,
};

/// Answers questions about a store, beside the processes that work on it; changes nothing.
#[derive(Debug, Clone)]
pub struct PostgresReader {
    pool: Arc<ReadSessionPool>,
    evidence: EvidenceBook,
    asker: Asker,
}

#[derive(Debug)]
struct ReadSessionPool {
    connector: Connector,
    store_id: u16,
    idle: Mutex<Vec<PostgresSession>>,
    shares: ReaderShares,
    permits: Semaphore,
}

/// Looks at the log before its end is believed, while transactions end too fast to be told apart.
const LOG_LOOKS: usize = 8;
/// Settings of a session for questions. Their statements are planned each time: the tables may have grown.
const READ_ONLY: &str =
    "SET default_transaction_read_only = on; SET plan_cache_mode = force_custom_plan";

/// Answers one question from one snapshot. A session on which anything failed is not used again.
macro_rules! answer {
    ($self:ident, $question:ident $(, $parameter:expr)*) => {{
        let _turn = $self.pool.shares.turn(&$self.asker).await?;
        let (_permit, mut session) = $self.pool.take().await?;
        let snapshot = Snapshot::begin(&mut session, $self.pool.store_id).await?;
        let answer = snapshot.$question($($parameter),*).await?;
        // Before the session is idle: a snapshot that stays open keeps dead rows from being removed.
        snapshot.end().await?;
        $self.pool.give_back(session);
        answer
    }};
}

// === impl PostgresReader ===

impl PostgresReader {
    /// Opens the store at `url` for questions only; its user needs no rights but `SELECT`.
    ///
    /// # Errors
    /// [`StoreError::Refused`] when it cannot be reached or does not let us in, [`StoreError::Schema`] when there is no
    /// store, or one of another version.
    pub async fn open(url: &str, ca_file: Option<&Path>) -> Result<Self, StoreError> {
        let connector = Connector::new(url, "reading", ca_file)?.for_questions();
        let session = connector.connect(None).await.map_err(|error| connector.at_start(&error))?;
        schema::check(&session.client).await?;
        Self::connect(connector, EvidenceBook::default()).await
    }

    /// To a store that is known to be there; shows what is known in `evidence`.
    pub(super) async fn connect(
        connector: Connector,
        evidence: EvidenceBook,
    ) -> Result<Self, StoreError> {
        let session = connect(&connector).await?;
        let store_id = store_id::read(&session).await?;
        let pool = ReadSessionPool {
            connector,
            store_id,
            idle: Mutex::new(vec![session]),
            shares: ReaderShares::new(),
            // Each has a session of the server.
            permits: Semaphore::new(READERS as usize),
        };
        Ok(Self { pool: Arc::new(pool), evidence, asker: Asker::Engine })
    }

    /// Workers that are alive and may not go by `version` of the pauses yet.
    pub(super) async fn workers_behind(&self, version: i64) -> Result<i64, StoreError> {
        Ok(answer!(self, workers_behind, version))
    }
}

// === impl ReadSessionPool ===

impl ReadSessionPool {
    /// A session that answers, and the permission to use it.
    async fn take(&self) -> Result<(SemaphorePermit<'_>, PostgresSession), StoreError> {
        let closed = |error: AcquireError| StoreError::Broken(error.to_string());
        // The permits are never closed while the pool is there: the error is for the type alone.
        let permit = self.permits.acquire().await.map_err(closed)?;
        // With a permit in hand, so there are never more sessions than permits.
        while let Some(session) = self.next_idle() {
            // It may have been cut while it was idle: a question need not fail for that.
            if session.client.check_connection().await.is_ok() {
                return Ok((permit, session));
            }
        }
        Ok((permit, connect(&self.connector).await?))
    }

    fn next_idle(&self) -> Option<PostgresSession> {
        // A panic elsewhere leaves the list whole, so a poisoned lock is no reason to refuse every later question.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    fn give_back(&self, session: PostgresSession) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(session);
    }
}

async fn connect(connector: &Connector) -> Result<PostgresSession, StoreError> {
    let unavailable = |error: Error| StoreError::Unavailable(errors::in_words(&error));
    let session = connector.connect(None).await.map_err(unavailable)?;
    session.client.batch_execute(READ_ONLY).await.map_err(unavailable)?;
    Ok(session)
}

impl TenantReads for PostgresReader {
    fn of_tenant(&self, tenant: &Name, patience: Patience) -> Arc<dyn ReadStore> {
        Arc::new(Self { asker: Asker::Tenant(tenant.clone(), patience), ..self.clone() })
    }
}

#[async_trait]
impl ReadStore for PostgresReader {
    async fn find(&self, id: NotificationId) -> Result<Option<History>, StoreError> {
        Ok(answer!(self, find, id))
    }

    async fn list(
        &self,
        filter: Filter,
        after: Option<NotificationId>,
        items: usize,
    ) -> Result<Page<History>, StoreError> {
        Ok(answer!(self, list, &filter, after, items))
    }

    async fn key_use(&self, tenant: Name, key: ByteString) -> Result<Option<KeyUse>, StoreError> {
        Ok(answer!(self, key_use, tenant, key))
    }

    async fn broadcast(&self, id: BroadcastId) -> Result<Option<BroadcastStatus>, StoreError> {
        Ok(answer!(self, broadcast, id))
    }

    async fn broadcasts(
        &self,
        filter: BroadcastFilter,
        after: Option<BroadcastId>,
        items: usize,
    ) -> Result<BroadcastPage, StoreError> {
        Ok(answer!(self, broadcasts, &filter, after, items))
    }

    async fn totals(&self) -> Result<Account, StoreError> {
        Ok(answer!(self, totals))
    }

    async fn tenant_totals(&self, tenant: Name) -> Result<Option<Account>, StoreError> {
        Ok(answer!(self, tenant_totals, &tenant))
    }

    async fn tenants(
        &self,
        after: Option<Name>,
        items: usize,
    ) -> Result<Option<TenantPage>, StoreError> {
        Ok(answer!(self, tenants, after.as_ref(), items))
    }

    async fn lanes(&self) -> Result<LaneList, StoreError> {
        Ok(answer!(self, lanes, &self.evidence))
    }

    async fn paces(&self) -> Result<Vec<LanePace>, StoreError> {
        Ok(answer!(self, paces, &self.evidence))
    }

    async fn parked(&self, offered: BTreeSet<Name>) -> Result<Vec<ParkedChannel>, StoreError> {
        Ok(answer!(self, parked, &offered))
    }

    async fn waiting_counts(&self, chunks_max: usize) -> Result<WaitingCounts, StoreError> {
        Ok(answer!(self, waiting_counts, chunks_max))
    }

    async fn audit(&self) -> Result<Audit, StoreError> {
        Ok(answer!(self, audit))
    }

    async fn log(&self, position: LogPosition, entries: usize) -> Result<LogPage, StoreError> {
        let mut looks = 0;
        loop {
            let (page, is_sure) = answer!(self, log, position, entries);
            looks += 1;
            // An empty page that is not sure may stand before entries that are committed: a caller would take it for the end of
            // the log.
            if is_sure || !page.entries.is_empty() || looks == LOG_LOOKS {
                return Ok(page);
            }
        }
    }

    async fn suppressions(
        &self,
        channel: Name,
        after: Option<ByteString>,
        items: usize,
    ) -> Result<Vec<Suppression>, StoreError> {
        Ok(answer!(self, suppressions, &channel, after.as_ref(), items))
    }

    async fn space(&self) -> Result<Option<StoreSpace>, StoreError> {
        Ok(Some(answer!(self, space)))
    }

    async fn cluster(&self) -> Result<Option<ClusterStatus>, StoreError> {
        Ok(Some(answer!(self, cluster)))
    }

    async fn suppressed_channel(&self, after: Option<Name>) -> Result<Option<Name>, StoreError> {
        Ok(answer!(self, suppressed_channel, after.as_ref()))
    }

    async fn suppression_events(
        &self,
        position: EventPosition,
        events: usize,
    ) -> Result<SuppressionPage, StoreError> {
        let mut looks = 0;
        loop {
            let (page, is_sure) = answer!(self, suppression_events, position, events);
            looks += 1;
            if is_sure || !page.events.is_empty() || looks == LOG_LOOKS {
                return Ok(page);
            }
        }
    }

    async fn delivery_events(
        &self,
        filter: DeliveryFilter,
        position: EventPosition,
        events: usize,
    ) -> Result<DeliveryPage, StoreError> {
        let mut looks = 0;
        loop {
            let (page, is_sure) = answer!(self, delivery_events, &filter, position, events);
            looks += 1;
            if is_sure || page.next != position || looks == LOG_LOOKS {
                return Ok(page);
            }
        }
    }

    async fn events_end(&self) -> Result<EventPosition, StoreError> {
        Ok(answer!(self, events_end))
    }

    async fn feed(&self, feed: Name) -> Result<FeedCursor, StoreError> {
        Ok(answer!(self, feed, &feed))
    }

    async fn shards(&self, source: Name) -> Result<BTreeMap<String, ShardCursor>, StoreError> {
        Ok(answer!(self, shards, &source))
    }

    async fn acts(
        &self,
        filter: ActFilter,
        after: Option<u64>,
        items_max: usize,
    ) -> Result<ActPage, StoreError> {
        Ok(answer!(self, acts, &filter, after, items_max))
    }

    async fn pauses(&self) -> Result<Pauses, StoreError> {
        Ok(answer!(self, pauses))
    }
}
