//! What the store does, as commands for its writers and questions for its reader.

use std::time::Duration;

use async_trait::async_trait;
use notification::{
    Account, BroadcastId, ByteString, Chunk, Draft, Name, NotificationId, Settlement, Ticket,
    Timestamp,
};
use tokio::sync::watch;

use super::Postgres;
use super::intake::Intake;
use super::work::Work;
use crate::{
    Admission, Audit, Begin, Begun, BroadcastDraft, BroadcastOpened, BroadcastStatus, CancelTarget,
    Cancelled, Claim, ClaimRequest, Claims, ClusterStatus, Filter, History, Ingest, LaneStatus,
    Ledger, LogPage, LogPosition, Mark, Page, RecipientGroup, Settle, Settled, StoreError,
    Suppression, Take,
};

#[async_trait]
impl Ingest for Postgres {
    async fn ingest(
        &self,
        drafts: Vec<Draft>,
        now: Timestamp,
    ) -> Result<Vec<Admission>, StoreError> {
        if drafts.is_empty() {
            return Ok(Vec::new());
        }
        self.ask_intake(|slot| Intake::Ingest { drafts, now, slot }).await
    }

    async fn open_broadcast(
        &self,
        draft: BroadcastDraft,
        _now: Timestamp,
    ) -> Result<BroadcastOpened, StoreError> {
        self.ask_intake(|slot| Intake::Open { draft, slot }).await
    }

    async fn add_recipients(
        &self,
        broadcast: BroadcastId,
        groups: Vec<RecipientGroup>,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        self.ask_intake(|slot| Intake::Add { id: broadcast, groups, now, slot }).await
    }

    async fn seal_broadcast(
        &self,
        broadcast: BroadcastId,
        now: Timestamp,
    ) -> Result<u64, StoreError> {
        self.ask_intake(|slot| Intake::Seal { id: broadcast, now, slot }).await
    }

    async fn abandon_broadcast(&self, broadcast: BroadcastId) -> Result<(), StoreError> {
        self.ask_intake(|slot| Intake::Abandon { id: broadcast, slot }).await
    }
}

#[async_trait]
impl Claims<Chunk> for Postgres {
    async fn claim(&self, request: ClaimRequest) -> Result<Claim<Chunk>, StoreError> {
        self.ask_work(|slot| Work::Claim { request, slot }).await
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.shared.changes.subscribe()
    }
}

#[async_trait]
impl Claims<Ticket> for Postgres {
    async fn claim(&self, request: ClaimRequest) -> Result<Claim<Ticket>, StoreError> {
        self.ask_work(|slot| Work::Issue { request, slot }).await
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.shared.changes.subscribe()
    }
}

#[async_trait]
impl Take for Postgres {
    async fn take(
        &self,
        tickets: Vec<Ticket>,
        now: Timestamp,
        lease: Duration,
    ) -> Result<Vec<Option<Chunk>>, StoreError> {
        if tickets.is_empty() {
            return Ok(Vec::new());
        }
        self.ask_work(|slot| Work::Take { tickets, now, lease, slot }).await
    }
}

#[async_trait]
impl Begin for Postgres {
    async fn begin(&self, marks: Vec<Mark>) -> Result<Vec<Begun>, StoreError> {
        if marks.is_empty() {
            return Ok(Vec::new());
        }
        self.ask_work(|slot| Work::Begin { marks, slot }).await
    }
}

#[async_trait]
impl Settle for Postgres {
    async fn settle(&self, settlements: Vec<Settlement>) -> Result<Vec<Settled>, StoreError> {
        if settlements.is_empty() {
            return Ok(Vec::new());
        }
        self.ask_work(|slot| Work::Settle { settlements, slot }).await
    }
}

#[async_trait]
impl Ledger for Postgres {
    async fn find(&self, id: NotificationId) -> Result<Option<History>, StoreError> {
        self.reader.find(id).await
    }

    async fn list(
        &self,
        filter: Filter,
        after: Option<NotificationId>,
        items: usize,
    ) -> Result<Page<History>, StoreError> {
        self.reader.list(filter, after, items).await
    }

    async fn broadcast(&self, id: BroadcastId) -> Result<Option<BroadcastStatus>, StoreError> {
        self.reader.broadcast(id).await
    }

    async fn cancel(
        &self,
        target: CancelTarget,
        tenant: Name,
        now: Timestamp,
    ) -> Result<Option<Cancelled>, StoreError> {
        self.ask_work(|slot| Work::Cancel { target, tenant, now, slot }).await
    }

    async fn totals(&self) -> Result<Account, StoreError> {
        self.reader.totals().await
    }

    async fn lanes(&self) -> Result<Vec<LaneStatus>, StoreError> {
        self.reader.lanes().await
    }

    async fn audit(&self) -> Result<Audit, StoreError> {
        self.reader.audit().await
    }

    async fn log(&self, position: LogPosition, entries: usize) -> Result<LogPage, StoreError> {
        self.reader.log(position, entries).await
    }

    async fn suppress(&self, suppressions: Vec<Suppression>) -> Result<(), StoreError> {
        self.ask_work(|slot| Work::Suppress { suppressions, slot }).await
    }

    async fn suppressions(
        &self,
        channel: Name,
        after: Option<ByteString>,
        items: usize,
    ) -> Result<Vec<Suppression>, StoreError> {
        self.reader.suppressions(channel, after, items).await
    }

    async fn cluster(&self) -> Result<Option<ClusterStatus>, StoreError> {
        self.reader.cluster().await
    }

    async fn unsuppress(
        &self,
        channel: Name,
        recipients: Vec<ByteString>,
    ) -> Result<Vec<bool>, StoreError> {
        self.ask_work(|slot| Work::Unsuppress { channel, recipients, slot }).await
    }
}
