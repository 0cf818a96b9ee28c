//! The in-memory double: slow, obvious, and the oracle of every real backend.
//!
//! Each notification has one entry, moved only by [`State::after`]: a step that the lifecycle table does not allow is a bug of
//! the caller or of this crate, and panics.
//!
//! [`State::after`]: notification::State::after

mod acts;
mod books;
mod claim;
mod erase;
mod events;
mod ingest;
mod keys;
mod pause;
mod prune;
mod quota;
mod read;
mod requeue;
mod reschedule;
mod resolve;
mod settle;
mod source_shards;
mod suppress;
mod totals;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use notification::{
    Account, BroadcastId, ByteString, Chunk, Draft, Name, NotificationId, Pause, Pauses, Scope,
    Settlement, State, Ticket, Timestamp,
};
use tokio::sync::watch;

use crate::{
    ActBegun, ActEnded, ActFilter, ActPage, ActTrail, Admission, Audit, Begin, BroadcastDraft,
    BroadcastFilter, BroadcastOpened, BroadcastPage, BroadcastStatus, CancelPage, CancelScope,
    CancelTarget, Cancelled, Claim, ClaimRequest, Claims, ClusterStatus, DeliveryFilter,
    DeliveryPage, Ending, Erased, EventPosition, FeedCursor, Filter, History, Ingest, KeyChange,
    KeyChanged, KeyStore, KeyUse, LaneList, LanePace, Lift, LogPage, LogPosition, Mark, MarkAnswer,
    Offer, Operations, Page, ParkedChannel, Paused, Peers, ReadStore, RecipientGroup, Recovery,
    Requeued, Reschedule, Rescheduled, Resolution, Resolved, SearchIndex, Settled, Settlements,
    ShardCursor, Store, StoreError, StoredKeys, Suppression, SuppressionPage, TakeTickets,
    TenantPage, TotalsAssignment, WaitingCounts,
};
use books::Books;

/// A store in memory, lost when it is dropped.
#[derive(Debug, Default)]
pub struct Memory {
    books: Mutex<Books>,
    cluster: Mutex<Option<ClusterStatus>>,
    changes: watch::Sender<u64>,
    pauses: watch::Sender<Arc<Pauses>>,
    keys: watch::Sender<StoredKeys>,
    ledger: Mutex<quota::Ledger>,
    rates: Mutex<quota::RateRows>,
    peers: watch::Sender<Peers>,
    list_time: Mutex<Duration>,
}

// === impl Memory ===

impl Memory {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// Has [`ReadStore::cluster`] answer `status` from now on.
    pub fn show_cluster(&self, status: ClusterStatus) {
        *self.cluster.lock().unwrap_or_else(PoisonError::into_inner) = Some(status);
    }

    /// Has each page of a list of notifications take so long from now on.
    pub fn slow_lists(&self, time: Duration) {
        *self.list_time.lock().unwrap_or_else(PoisonError::into_inner) = time;
    }

    /// Recovers as a process does that starts at `now`, after the last one ended so.
    pub fn crash(&self, ending: Ending, now: Timestamp) -> Recovery {
        self.change(|books| books.recover(ending, now))
    }

    /// Runs one transaction.
    fn change<T>(&self, transaction: impl FnOnce(&mut Books) -> T) -> T {
        let mut books = self.books.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = books.transaction(transaction);
        let pauses = Arc::clone(&books.pauses);
        // While the books are locked: two changes must not show their views in the reverse order.
        self.pauses.send_if_modified(|view| {
            let is_new = !Arc::ptr_eq(view, &pauses);
            *view = pauses;
            is_new
        });
        self.keys.send_replace(Arc::clone(&books.api_keys));
        drop(books);
        self.changes.send_modify(|change| *change += 1);
        answer
    }

    fn read<T>(&self, question: impl FnOnce(&Books) -> T) -> T {
        question(&self.books.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[async_trait]
impl Ingest for Memory {
    async fn ingest(
        &self,
        drafts: Vec<Draft>,
        now: Timestamp,
    ) -> Result<Vec<Admission>, StoreError> {
        self.change(|books| books.ingest(drafts, now))
    }

    async fn open_broadcast(
        &self,
        draft: BroadcastDraft,
        now: Timestamp,
    ) -> Result<BroadcastOpened, StoreError> {
        self.change(|books| books.open_broadcast(draft, now))
    }

    async fn add_recipients(
        &self,
        broadcast: BroadcastId,
        groups: Vec<RecipientGroup>,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        self.change(|books| books.add_recipients(broadcast, groups, now))
    }

    async fn seal_broadcast(
        &self,
        broadcast: BroadcastId,
        now: Timestamp,
    ) -> Result<u64, StoreError> {
        self.change(|books| books.seal_broadcast(broadcast, now))
    }

    async fn abandon_broadcast(&self, broadcast: BroadcastId) -> Result<(), StoreError> {
        self.change(|books| books.abandon_broadcast(broadcast))
    }
}

#[async_trait]
impl Claims<Chunk> for Memory {
    async fn claim(&self, request: ClaimRequest) -> Result<Claim<Chunk>, StoreError> {
        // A claim makes nothing claimable, and a claim that woke the next one would never rest.
        let mut books = self.books.lock().unwrap_or_else(PoisonError::into_inner);
        let logged = books.log.len();
        let claim = books.transaction(|books| books.claim(request));
        // Feeds wait for what it ended.
        if books.log.len() > logged {
            self.changes.send_modify(|changes| *changes += 1);
        }
        Ok(claim)
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
}

#[async_trait]
impl Claims<Ticket> for Memory {
    async fn claim(&self, request: ClaimRequest) -> Result<Claim<Ticket>, StoreError> {
        let mut books = self.books.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(books.transaction(|books| books.issue(request)))
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
}

#[async_trait]
impl Offer for Memory {
    async fn offer(&self, channels: Arc<BTreeSet<Name>>) -> Result<(), StoreError> {
        self.change(|books| {
            books.offered = Some(channels);
            Ok(())
        })
    }
}

#[async_trait]
impl TakeTickets for Memory {
    async fn take(
        &self,
        tickets: Vec<Ticket>,
        now: Timestamp,
        lease: Duration,
    ) -> Result<Vec<Option<Chunk>>, StoreError> {
        let take = |books: &mut Books| {
            tickets.iter().map(|ticket| books.take(ticket, now, lease)).collect()
        };
        Ok(self.change(take))
    }
}

#[async_trait]
impl Begin for Memory {
    async fn begin(&self, marks: Vec<Mark>) -> Result<Vec<MarkAnswer>, StoreError> {
        Ok(self.change(|books| marks.into_iter().map(|mark| books.begin(mark)).collect()))
    }

    fn watch_pauses(&self) -> watch::Receiver<Arc<Pauses>> {
        self.pauses.subscribe()
    }
}

#[async_trait]
impl KeyStore for Memory {
    async fn change_key(&self, change: KeyChange) -> Result<KeyChanged, StoreError> {
        Ok(self.change(|books| books.change_key(change)))
    }

    fn watch_keys(&self) -> watch::Receiver<StoredKeys> {
        self.keys.subscribe()
    }
}

#[async_trait]
impl ActTrail for Memory {
    async fn begin_act(&self, act: ActBegun) -> Result<u64, StoreError> {
        Ok(self.change(|books| books.begin_act(act)))
    }

    async fn end_act(&self, id: u64, end: ActEnded) -> Result<(), StoreError> {
        self.change(|books| books.end_act(id, end));
        Ok(())
    }
}

#[async_trait]
impl Settlements for Memory {
    async fn settle(&self, settlements: Vec<Settlement>) -> Result<Vec<Settled>, StoreError> {
        Ok(self.change(|books| books.settle(&settlements)))
    }
}

/// Looks at everything, and so has no index.
#[async_trait]
impl SearchIndex for Memory {
    async fn advance(&self) -> Result<bool, StoreError> {
        Ok(false)
    }
}

impl Store for Memory {
    fn reader(&self) -> &dyn ReadStore {
        self
    }
}

#[async_trait]
impl ReadStore for Memory {
    async fn find(&self, id: NotificationId) -> Result<Option<History>, StoreError> {
        Ok(self.read(|books| books.find(id)))
    }

    async fn list(
        &self,
        filter: Filter,
        after: Option<NotificationId>,
        items: usize,
    ) -> Result<Page<History>, StoreError> {
        let time = *self.list_time.lock().unwrap_or_else(PoisonError::into_inner);
        if !time.is_zero() {
            tokio::time::sleep(time).await;
        }
        Ok(self.read(|books| books.list(&filter, after, items)))
    }

    async fn key_use(&self, tenant: Name, key: ByteString) -> Result<Option<KeyUse>, StoreError> {
        Ok(self.read(|books| books.keys.get(&(tenant, key)).map(|(used, _)| *used)))
    }

    async fn broadcast(&self, id: BroadcastId) -> Result<Option<BroadcastStatus>, StoreError> {
        Ok(self.read(|books| books.broadcast(id)))
    }

    async fn broadcasts(
        &self,
        filter: BroadcastFilter,
        after: Option<BroadcastId>,
        items: usize,
    ) -> Result<BroadcastPage, StoreError> {
        self.read(|books| books.broadcasts(&filter, after, items))
    }

    async fn totals(&self) -> Result<Account, StoreError> {
        Ok(self.read(Books::account))
    }

    async fn tenant_totals(&self, tenant: Name) -> Result<Option<Account>, StoreError> {
        Ok(self.read(|books| books.tenant_totals(&tenant)))
    }

    async fn tenants(
        &self,
        after: Option<Name>,
        items: usize,
    ) -> Result<Option<TenantPage>, StoreError> {
        Ok(self.read(|books| books.tenants(after.as_ref(), items)))
    }

    async fn lanes(&self) -> Result<LaneList, StoreError> {
        Ok(self.read(Books::lanes))
    }

    async fn paces(&self) -> Result<Vec<LanePace>, StoreError> {
        Ok(self.read(Books::paces))
    }

    async fn parked(&self, offered: BTreeSet<Name>) -> Result<Vec<ParkedChannel>, StoreError> {
        Ok(self.read(|books| books.parked(&offered)))
    }

    async fn waiting_counts(&self, chunks_max: usize) -> Result<WaitingCounts, StoreError> {
        Ok(self.read(|books| books.waiting_counts(chunks_max)))
    }

    async fn audit(&self) -> Result<Audit, StoreError> {
        Ok(self.read(Books::audit))
    }

    async fn log(&self, position: LogPosition, entries: usize) -> Result<LogPage, StoreError> {
        Ok(self.read(|books| books.log(position, entries)))
    }

    async fn suppressions(
        &self,
        channel: Name,
        after: Option<ByteString>,
        items: usize,
    ) -> Result<Vec<Suppression>, StoreError> {
        Ok(self.read(|books| books.suppressions(&channel, after.as_ref(), items)))
    }

    async fn cluster(&self) -> Result<Option<ClusterStatus>, StoreError> {
        Ok(self.cluster.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    async fn suppressed_channel(&self, after: Option<Name>) -> Result<Option<Name>, StoreError> {
        Ok(self.read(|books| books.suppressed_channel(after.as_ref())))
    }

    async fn suppression_events(
        &self,
        position: EventPosition,
        events: usize,
    ) -> Result<SuppressionPage, StoreError> {
        Ok(self.read(|books| books.suppression_events(position, events)))
    }

    async fn delivery_events(
        &self,
        filter: DeliveryFilter,
        position: EventPosition,
        events: usize,
    ) -> Result<DeliveryPage, StoreError> {
        Ok(self.read(|books| books.delivery_events(&filter, position, events)))
    }

    async fn events_end(&self) -> Result<EventPosition, StoreError> {
        Ok(self.read(Books::events_end))
    }

    async fn feed(&self, feed: Name) -> Result<FeedCursor, StoreError> {
        Ok(self.read(|books| books.feed(&feed)))
    }

    async fn shards(&self, source: Name) -> Result<BTreeMap<String, ShardCursor>, StoreError> {
        Ok(self.read(|books| books.shards_of(&source)))
    }

    async fn acts(
        &self,
        filter: ActFilter,
        after: Option<u64>,
        items_max: usize,
    ) -> Result<ActPage, StoreError> {
        Ok(self.read(|books| books.acts(&filter, after, items_max)))
    }

    async fn pauses(&self) -> Result<Pauses, StoreError> {
        Ok(self.read(|books| Pauses::clone(&books.pauses)))
    }
}

#[async_trait]
impl Operations for Memory {
    async fn cancel(
        &self,
        target: CancelTarget,
        tenant: Name,
        now: Timestamp,
    ) -> Result<Option<Cancelled>, StoreError> {
        Ok(self.change(|books| books.cancel(target, &tenant, now)))
    }

    async fn cancel_scope(&self, request: CancelScope) -> Result<Option<CancelPage>, StoreError> {
        Ok(self.change(|books| books.cancel_scope(&request)))
    }

    async fn reschedule(&self, request: Reschedule) -> Result<Rescheduled, StoreError> {
        Ok(self.change(|books| books.reschedule(&request)))
    }

    async fn requeue(
        &self,
        ids: Vec<NotificationId>,
        states: BTreeSet<State>,
        tenant: Name,
        now: Timestamp,
    ) -> Result<Vec<Requeued>, StoreError> {
        Ok(self.change(|books| books.requeue(&ids, &states, &tenant, now)))
    }

    async fn resolve(
        &self,
        ids: Vec<NotificationId>,
        resolution: Resolution,
        tenant: Name,
        now: Timestamp,
    ) -> Result<Vec<Resolved>, StoreError> {
        Ok(self.change(|books| {
            ids.iter().map(|&id| books.resolve(id, &resolution, &tenant, now)).collect()
        }))
    }

    async fn erase(
        &self,
        ids: Vec<NotificationId>,
        tenant: Name,
    ) -> Result<Vec<Erased>, StoreError> {
        Ok(self.change(|books| ids.iter().map(|&id| books.erase(id, &tenant)).collect()))
    }

    async fn forget(&self, recipient: ByteString) -> Result<u64, StoreError> {
        Ok(self.change(|books| books.forget(&recipient)))
    }

    async fn suppress(
        &self,
        suppressions: Vec<Suppression>,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        self.change(|books| {
            for one in suppressions {
                books.suppress(one, None, now);
            }
        });
        Ok(())
    }

    async fn lift(&self, lifts: Vec<Lift>, now: Timestamp) -> Result<Vec<bool>, StoreError> {
        Ok(self.change(|books| lifts.iter().map(|lift| books.lift(lift, now)).collect()))
    }

    async fn pause(&self, pause: Pause) -> Result<Paused, StoreError> {
        Ok(self.change(|books| books.pause(pause)))
    }

    async fn resume(&self, tenant: Name, scope: Scope) -> Result<bool, StoreError> {
        Ok(self.change(|books| books.resume(&tenant, &scope)))
    }

    async fn move_feed(
        &self,
        feed: Name,
        from: FeedCursor,
        to: FeedCursor,
    ) -> Result<FeedCursor, StoreError> {
        Ok(self.change(|books| books.move_feed(feed, from, to)))
    }

    async fn move_shard(
        &self,
        source: Name,
        shard: String,
        from: Option<ShardCursor>,
        to: Option<ShardCursor>,
    ) -> Result<bool, StoreError> {
        Ok(self.change(|books| books.move_shard((source, shard), from.as_ref(), to)))
    }

    async fn assign_totals(&self, assignment: TotalsAssignment) -> Result<bool, StoreError> {
        Ok(self.change(|books| books.assign_totals(&assignment)))
    }
}
