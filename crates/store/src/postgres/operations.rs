//! What callers may do with the store: each call is a request to one of its writers, or a question to its reader.

use std::collections::BTreeSet;

use async_trait::async_trait;
use notification::{
    Account, BroadcastId, ByteString, Chunk, Draft, Name, NotificationId, Settlement, Ticket,
    Timestamp,
};
use tokio::sync::watch;

use super::{Postgres, broadcast, cancel, claim, ingest, requeue, settle, suppress};
use crate::{
    Admission, Audit, Begin, Begun, BroadcastDraft, BroadcastOpened, BroadcastStatus, CancelTarget,
    Cancelled, Claim, ClaimRequest, Claims, ClusterStatus, EventPosition, FeedCursor, Filter,
    History, Ingest, LaneStatus, Ledger, Lift, LogPage, LogPosition, Mark, Page, ParkedChannel,
    RecipientGroup, Requeued, Settle, Settled, StoreError, Suppression, SuppressionPage,
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
        self.intake.run_or_give_up(ingest::IngestDrafts { drafts, now }).await
    }

    async fn open_broadcast(
        &self,
        draft: BroadcastDraft,
        _now: Timestamp,
    ) -> Result<BroadcastOpened, StoreError> {
        self.intake.run_or_give_up(broadcast::OpenBroadcast(draft)).await
    }

    async fn add_recipients(
        &self,
        broadcast: BroadcastId,
        groups: Vec<RecipientGroup>,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        self.intake.run_or_give_up(broadcast::AddRecipients { broadcast, groups, now }).await
    }

    async fn seal_broadcast(
        &self,
        broadcast: BroadcastId,
        now: Timestamp,
    ) -> Result<u64, StoreError> {
        self.intake.run_or_give_up(broadcast::SealBroadcast(broadcast, now)).await
    }

    async fn abandon_broadcast(&self, broadcast: BroadcastId) -> Result<(), StoreError> {
        while !self.intake.run_or_give_up(broadcast::AbandonBroadcast(broadcast)).await? {}
        Ok(())
    }
}

#[async_trait]
impl Claims<Chunk> for Postgres {
    async fn claim(&self, request: ClaimRequest) -> Result<Claim<Chunk>, StoreError> {
        self.work.run(claim::ClaimChunks(request)).await
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.clone()
    }
}

#[async_trait]
impl Claims<Ticket> for Postgres {
    async fn claim(&self, request: ClaimRequest) -> Result<Claim<Ticket>, StoreError> {
        self.work.run(claim::IssueTickets(request)).await
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.clone()
    }
}

#[async_trait]
impl Begin for Postgres {
    async fn begin(&self, marks: Vec<Mark>) -> Result<Vec<Begun>, StoreError> {
        if marks.is_empty() {
            return Ok(Vec::new());
        }
        self.work.run(settle::BeginDeliveries(marks)).await
    }
}

#[async_trait]
impl Settle for Postgres {
    async fn settle(&self, settlements: Vec<Settlement>) -> Result<Vec<Settled>, StoreError> {
        if settlements.is_empty() {
            return Ok(Vec::new());
        }
        self.work.run(settle::SettleChunks(settlements)).await
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
        match target {
            CancelTarget::Notification(id) => {
                self.work.run_or_give_up(cancel::CancelNotification { id, tenant, now }).await
            }
            CancelTarget::Broadcast(id) => self.work.cancel_broadcast(id, tenant, now).await,
        }
    }

    async fn requeue(
        &self,
        ids: Vec<NotificationId>,
        tenant: Name,
        now: Timestamp,
    ) -> Result<Vec<Requeued>, StoreError> {
        self.work.run_or_give_up(requeue::RequeueNotifications { ids, tenant, now }).await
    }

    async fn totals(&self) -> Result<Account, StoreError> {
        self.reader.totals().await
    }

    async fn lanes(&self) -> Result<Vec<LaneStatus>, StoreError> {
        self.reader.lanes().await
    }

    async fn parked(&self, offered: BTreeSet<Name>) -> Result<Vec<ParkedChannel>, StoreError> {
        self.reader.parked(offered).await
    }

    async fn audit(&self) -> Result<Audit, StoreError> {
        self.reader.audit().await
    }

    async fn log(&self, position: LogPosition, entries: usize) -> Result<LogPage, StoreError> {
        self.reader.log(position, entries).await
    }

    async fn suppress(
        &self,
        suppressions: Vec<Suppression>,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        self.work.run_or_give_up(suppress::AddSuppressions { suppressions, now }).await
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

    async fn lift(&self, lifts: Vec<Lift>, now: Timestamp) -> Result<Vec<bool>, StoreError> {
        self.work.run_or_give_up(suppress::LiftSuppressions { lifts, now }).await
    }

    async fn suppressed_channel(&self, after: Option<Name>) -> Result<Option<Name>, StoreError> {
        self.reader.suppressed_channel(after).await
    }

    async fn suppression_events(
        &self,
        position: EventPosition,
        events: usize,
    ) -> Result<SuppressionPage, StoreError> {
        self.reader.suppression_events(position, events).await
    }

    async fn feed(&self, feed: Name) -> Result<FeedCursor, StoreError> {
        self.reader.feed(feed).await
    }

    async fn move_feed(
        &self,
        feed: Name,
        from: FeedCursor,
        to: FeedCursor,
    ) -> Result<FeedCursor, StoreError> {
        self.work.run_or_give_up(suppress::MoveFeed { feed, from, to }).await
    }
}
