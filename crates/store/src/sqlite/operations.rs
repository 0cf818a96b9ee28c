//! The traits of the store, each call a command to its writer.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use notification::{
    ByteString, Chunk, Name, NotificationId, Pause, Pauses, Scope, Settlement, State, Timestamp,
};
use tokio::sync::watch;

use super::Sqlite;
use super::transaction::Transaction;
use super::writer::Durability::{Synced, WithTheNext};
use crate::{
    ActBegun, ActEnded, ActTrail, Begin, CancelPage, CancelScope, CancelTarget, Cancelled, Claim,
    ClaimRequest, Claims, Erased, FeedCursor, KeyChange, KeyChanged, KeyStore, Lift, Mark,
    MarkAnswer, Offer, Operations, Paused, Prune, PruneStep, ReadStore, Requeued, Reschedule,
    Rescheduled, Resolution, Resolved, Retention, Settled, Settlements, ShardCursor, Store,
    StoreError, StoredKeys, Suppression, TotalsAssignment,
};

#[async_trait]
impl Claims<Chunk> for Sqlite {
    async fn claim(&self, request: ClaimRequest) -> Result<Claim<Chunk>, StoreError> {
        self.write(WithTheNext, move |transaction| transaction.claim(request)).await
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.clone()
    }
}

#[async_trait]
impl Offer for Sqlite {
    async fn offer(&self, channels: Arc<BTreeSet<Name>>) -> Result<(), StoreError> {
        let offer = move |transaction: &mut Transaction<'_>| {
            // Nothing is written: this is a command because the lanes are the writer's.
            transaction.state.lanes.offer(Some(channels));
            transaction.woke = true;
            Ok(())
        };
        self.write(WithTheNext, offer).await
    }
}

#[async_trait]
impl Begin for Sqlite {
    async fn begin(&self, marks: Vec<Mark>) -> Result<Vec<MarkAnswer>, StoreError> {
        if marks.is_empty() {
            return Ok(Vec::new());
        }
        let begin = move |transaction: &mut Transaction<'_>| {
            marks.iter().map(|mark| transaction.begin_chunk(mark)).collect()
        };
        // Synced: a mark that a power cut undoes would have the delivery sent a second time.
        self.write_repeatable(begin).await
    }

    fn watch_pauses(&self) -> watch::Receiver<Arc<Pauses>> {
        self.pauses.clone()
    }
}

#[async_trait]
impl Settlements for Sqlite {
    async fn settle(&self, settlements: Vec<Settlement>) -> Result<Vec<Settled>, StoreError> {
        if settlements.is_empty() {
            return Ok(Vec::new());
        }
        self.write_repeatable(move |transaction| transaction.settle(&settlements)).await
    }
}

impl Store for Sqlite {
    fn reader(&self) -> &dyn ReadStore {
        &self.reader
    }
}

#[async_trait]
impl Operations for Sqlite {
    async fn cancel(
        &self,
        target: CancelTarget,
        tenant: Name,
        now: Timestamp,
    ) -> Result<Option<Cancelled>, StoreError> {
        match target {
            CancelTarget::Notification(id) => {
                self.write(Synced, move |transaction| transaction.cancel_one(id, &tenant, now))
                    .await
            }
            CancelTarget::Broadcast(id) => self.cancel_broadcast(id, tenant, now).await,
        }
    }

    async fn cancel_scope(&self, request: CancelScope) -> Result<Option<CancelPage>, StoreError> {
        self.write(Synced, move |transaction| transaction.cancel_scope(&request)).await
    }

    async fn reschedule(&self, request: Reschedule) -> Result<Rescheduled, StoreError> {
        match request.target {
            CancelTarget::Notification(id) => {
                self.write(Synced, move |transaction| transaction.reschedule_one(id, &request))
                    .await
            }
            CancelTarget::Broadcast(id) => self.reschedule_broadcast(id, request).await,
        }
    }

    async fn requeue(
        &self,
        ids: Vec<NotificationId>,
        states: BTreeSet<State>,
        tenant: Name,
        now: Timestamp,
    ) -> Result<Vec<Requeued>, StoreError> {
        self.write(Synced, move |transaction| transaction.requeue(&ids, &states, &tenant, now))
            .await
    }

    async fn resolve(
        &self,
        ids: Vec<NotificationId>,
        resolution: Resolution,
        tenant: Name,
        now: Timestamp,
    ) -> Result<Vec<Resolved>, StoreError> {
        self.write(Synced, move |transaction| transaction.resolve(&ids, &resolution, &tenant, now))
            .await
    }

    async fn erase(
        &self,
        ids: Vec<NotificationId>,
        tenant: Name,
    ) -> Result<Vec<Erased>, StoreError> {
        self.write(Synced, move |transaction| transaction.erase(&ids, &tenant)).await
    }

    async fn forget(&self, recipient: ByteString) -> Result<u64, StoreError> {
        self.write(Synced, move |transaction| transaction.forget(&recipient)).await
    }

    async fn suppress(
        &self,
        suppressions: Vec<Suppression>,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let suppress = move |transaction: &mut Transaction<'_>| {
            suppressions.iter().try_for_each(|one| transaction.suppress(one, None, now))
        };
        self.write(Synced, suppress).await
    }

    async fn lift(&self, lifts: Vec<Lift>, now: Timestamp) -> Result<Vec<bool>, StoreError> {
        self.write(Synced, move |transaction| {
            lifts.iter().map(|lift| transaction.lift(lift, now)).collect()
        })
        .await
    }

    async fn pause(&self, pause: Pause) -> Result<Paused, StoreError> {
        self.write(Synced, move |transaction| transaction.pause(&pause)).await
    }

    async fn resume(&self, tenant: Name, scope: Scope) -> Result<bool, StoreError> {
        self.write(Synced, move |transaction| transaction.resume(&tenant, &scope)).await
    }

    async fn move_feed(
        &self,
        feed: Name,
        from: FeedCursor,
        to: FeedCursor,
    ) -> Result<FeedCursor, StoreError> {
        self.write(Synced, move |transaction| transaction.move_feed(&feed, from, to)).await
    }

    async fn move_shard(
        &self,
        source: Name,
        shard: String,
        from: Option<ShardCursor>,
        to: Option<ShardCursor>,
    ) -> Result<bool, StoreError> {
        self.write(Synced, move |transaction| {
            transaction.move_shard((&source, &shard), from.as_ref(), to.as_ref())
        })
        .await
    }

    async fn assign_totals(&self, assignment: TotalsAssignment) -> Result<bool, StoreError> {
        self.write(Synced, move |transaction| transaction.assign_totals(&assignment)).await
    }
}

#[async_trait]
impl Prune for Sqlite {
    async fn prune(&self, retention: &Retention, now: Timestamp) -> Result<PruneStep, StoreError> {
        let retention = retention.clone();
        // A step that a power cut undoes is done again.
        self.write(WithTheNext, move |transaction| transaction.prune(&retention, now)).await
    }
}

#[async_trait]
impl KeyStore for Sqlite {
    async fn change_key(&self, change: KeyChange) -> Result<KeyChanged, StoreError> {
        self.write(Synced, move |transaction| transaction.change_key(change)).await
    }

    fn watch_keys(&self) -> watch::Receiver<StoredKeys> {
        self.keys.clone()
    }
}

#[async_trait]
impl ActTrail for Sqlite {
    async fn begin_act(&self, act: ActBegun) -> Result<u64, StoreError> {
        self.write(Synced, move |transaction| transaction.begin_act(&act)).await
    }

    async fn end_act(&self, id: u64, end: ActEnded) -> Result<(), StoreError> {
        self.write(WithTheNext, move |transaction| transaction.end_act(id, &end)).await
    }
}
