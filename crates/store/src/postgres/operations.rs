//! The traits of the store, each call a request to one of its writers.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use notification::{
    BroadcastId, ByteString, Chunk, Draft, Name, NotificationId, Pause, Pauses, Scope, Settlement,
    State, Ticket, Timestamp,
};
use tokio::sync::watch;

use super::{
    Postgres, acts, broadcast, cancel, claim, erase, ingest, pause, prune, requeue, reschedule,
    resolve, settle, source_shards, suppress, totals,
};
use crate::{
    ActBegun, ActEnded, ActTrail, Admission, Begin, BroadcastDraft, BroadcastOpened, CancelPage,
    CancelScope, CancelTarget, Cancelled, Claim, ClaimRequest, Claims, Erased, FeedCursor, Ingest,
    KeyChange, KeyChanged, KeyStore, Lift, Mark, MarkAnswer, Operations, Paused, Prune, PruneStep,
    ReadStore, RecipientGroup, Requeued, Reschedule, Rescheduled, Resolution, Resolved, Retention,
    Settled, Settlements, ShardCursor, Store, StoreError, StoredKeys, Suppression,
    TotalsAssignment,
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
        now: Timestamp,
    ) -> Result<BroadcastOpened, StoreError> {
        self.intake.run_or_give_up(broadcast::OpenBroadcast(draft, now)).await
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
        // In slices, so that other requests have their turn.
        while !self.intake.run_or_give_up(broadcast::AbandonBroadcast(broadcast)).await? {}
        Ok(())
    }
}

#[async_trait]
impl Claims<Chunk> for Postgres {
    async fn claim(&self, request: ClaimRequest) -> Result<Claim<Chunk>, StoreError> {
        // What a claim fails at is stored, and the next claim would meet it again: an engine that delivers nothing must not
        // look well.
        self.work.run(claim::ClaimChunks(request)).await.map_err(StoreError::ending)
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.clone()
    }
}

#[async_trait]
impl Claims<Ticket> for Postgres {
    async fn claim(&self, request: ClaimRequest) -> Result<Claim<Ticket>, StoreError> {
        self.work.run(claim::IssueTickets(request)).await.map_err(StoreError::ending)
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.clone()
    }
}

#[async_trait]
impl Begin for Postgres {
    async fn begin(&self, marks: Vec<Mark>) -> Result<Vec<MarkAnswer>, StoreError> {
        if marks.is_empty() {
            return Ok(Vec::new());
        }
        self.work.run(settle::BeginDeliveries(marks)).await
    }

    fn watch_pauses(&self) -> watch::Receiver<Arc<Pauses>> {
        self.pauses.clone()
    }
}

#[async_trait]
impl Settlements for Postgres {
    async fn settle(&self, settlements: Vec<Settlement>) -> Result<Vec<Settled>, StoreError> {
        if settlements.is_empty() {
            return Ok(Vec::new());
        }
        // Never given up: these outcomes are held here alone, and a delivery without one is sent again, or in doubt.
        self.work.settle(settlements.into()).await
    }
}

impl Store for Postgres {
    fn reader(&self) -> &dyn ReadStore {
        &self.reader
    }
}

#[async_trait]
impl Prune for Postgres {
    async fn prune(&self, retention: &Retention, now: Timestamp) -> Result<PruneStep, StoreError> {
        let retention = Arc::new(retention.clone());
        self.work.run_or_give_up(prune::PruneRows { retention, now }).await
    }
}

#[async_trait]
impl Operations for Postgres {
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

    async fn cancel_scope(&self, request: CancelScope) -> Result<Option<CancelPage>, StoreError> {
        self.work.run_or_give_up(request).await
    }

    async fn reschedule(&self, request: Reschedule) -> Result<Rescheduled, StoreError> {
        match request.target {
            CancelTarget::Notification(id) => {
                self.work.run_or_give_up(reschedule::RescheduleNotification { id, request }).await
            }
            CancelTarget::Broadcast(id) => self.work.reschedule_broadcast(id, request).await,
        }
    }

    async fn requeue(
        &self,
        ids: Vec<NotificationId>,
        states: BTreeSet<State>,
        tenant: Name,
        now: Timestamp,
    ) -> Result<Vec<Requeued>, StoreError> {
        let request = requeue::RequeueNotifications { ids, states, tenant, now };
        self.work.run_or_give_up(request).await
    }

    async fn resolve(
        &self,
        ids: Vec<NotificationId>,
        resolution: Resolution,
        tenant: Name,
        now: Timestamp,
    ) -> Result<Vec<Resolved>, StoreError> {
        let request = resolve::ResolveNotifications { ids, resolution, tenant, now };
        self.work.run_or_give_up(request).await
    }

    async fn erase(
        &self,
        ids: Vec<NotificationId>,
        tenant: Name,
    ) -> Result<Vec<Erased>, StoreError> {
        self.work.run_or_give_up(erase::EraseNotifications { ids, tenant }).await
    }

    async fn forget(&self, recipient: ByteString) -> Result<u64, StoreError> {
        self.work.run_or_give_up(erase::ForgetRecipient(recipient)).await
    }

    async fn suppress(
        &self,
        suppressions: Vec<Suppression>,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        self.work.run_or_give_up(suppress::AddSuppressions { suppressions, now }).await
    }

    async fn lift(&self, lifts: Vec<Lift>, now: Timestamp) -> Result<Vec<bool>, StoreError> {
        self.work.run_or_give_up(suppress::LiftSuppressions { lifts, now }).await
    }

    async fn pause(&self, pause: Pause) -> Result<Paused, StoreError> {
        self.add_pause(pause).await
    }

    async fn resume(&self, tenant: Name, scope: Scope) -> Result<bool, StoreError> {
        self.end_pause(pause::EndPause { tenant, scope }).await
    }

    async fn move_feed(
        &self,
        feed: Name,
        from: FeedCursor,
        to: FeedCursor,
    ) -> Result<FeedCursor, StoreError> {
        self.work.run_or_give_up(suppress::MoveFeed { feed, from, to }).await
    }

    async fn move_shard(
        &self,
        source: Name,
        shard: String,
        from: Option<ShardCursor>,
        to: Option<ShardCursor>,
    ) -> Result<bool, StoreError> {
        let move_shard = source_shards::MoveShard { source, shard, from, to };
        self.work.run_or_give_up(move_shard).await
    }

    async fn assign_totals(&self, assignment: TotalsAssignment) -> Result<bool, StoreError> {
        self.work.run_or_give_up(totals::AssignTotals(assignment)).await
    }
}

#[async_trait]
impl KeyStore for Postgres {
    async fn change_key(&self, change: KeyChange) -> Result<KeyChanged, StoreError> {
        let (changed, version) = self.work.run_or_give_up(change).await?;
        Ok(match changed {
            KeyChanged::Done { key, .. } => {
                KeyChanged::Done { key, is_everywhere: self.is_followed(version).await }
            }
            KeyChanged::Revoked { key, .. } => {
                KeyChanged::Revoked { key, is_everywhere: self.is_followed(version).await }
            }
            KeyChanged::Exists
            | KeyChanged::Unknown
            | KeyChanged::Overtaken
            | KeyChanged::TooMany => changed,
        })
    }

    fn watch_keys(&self) -> watch::Receiver<StoredKeys> {
        self.keys.clone()
    }
}

#[async_trait]
impl ActTrail for Postgres {
    async fn begin_act(&self, act: ActBegun) -> Result<u64, StoreError> {
        self.work.run_or_give_up(acts::BeginAct(act)).await
    }

    async fn end_act(&self, id: u64, end: ActEnded) -> Result<(), StoreError> {
        self.work.run_or_give_up(acts::EndAct { id, end }).await
    }
}
