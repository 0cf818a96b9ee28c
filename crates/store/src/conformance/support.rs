//! Shapes of notifications, and helpers of the cases.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use notification::{
    Account, ByteString, Bytes, Chunk, Content, Disposition, Draft, Envelope, Guarantee,
    Idempotency, Labels, Lane, Name, NotificationId, OutcomeGroup, Priority, Scope, Settlement,
    State, Timestamp,
};

pub use notification::sample::name;

use crate::{
    Admission, BroadcastDraft, BroadcastOpened, CancelPage, CancelScope, ClaimRequest, Filter,
    History, Lifetimes, ListOrder, LogEntry, LogPosition, Prune, RecipientGroup, Removed,
    Retention, Settled, Store, Suppression, TenantRetention,
};

/// A notification to be stored, with defaults for all that a case does not set.
#[derive(Debug, Clone)]
pub struct Shape {
    /// Destination of the notification.
    pub destination: &'static str,
    /// Priority, which decides the order.
    pub priority: Priority,
    /// Its guarantee.
    pub guarantee: Guarantee,
    /// Milliseconds.
    pub due_at: i64,
    /// Milliseconds.
    pub expires_at: Option<i64>,
    /// Its content.
    pub payload: Bytes,
    /// The caller's key, and the number that stands for the content's fingerprint.
    pub key: Option<(&'static str, u8)>,
    /// Tenant that owns it.
    pub tenant: &'static str,
    /// Its labels.
    pub labels: Labels,
}

/// A broadcast to be opened.
#[derive(Debug, Clone, Copy, Default)]
pub struct BroadcastShape {
    /// The caller's key, and the number that stands for the content's fingerprint.
    pub key: Option<(&'static str, u8)>,
}

pub(crate) const DELIVERED: Disposition = Disposition::Ended(State::Delivered);
/// Lease of a claim in these tests.
pub(super) const LEASE: Duration = Duration::from_mins(1);

// === impl Shape ===

impl Default for Shape {
    fn default() -> Self {
        Self {
            destination: "here",
            priority: Priority::Normal,
            guarantee: Guarantee::AtLeastOnce,
            due_at: 0,
            expires_at: None,
            payload: Bytes::from_static(br#"{"text":"news"}"#),
            key: None,
            tenant: "tenant",
            labels: Labels::default(),
        }
    }
}

impl Shape {
    /// The draft for one recipient.
    pub fn draft(&self, recipient: &str) -> Draft {
        Draft {
            envelope: Envelope {
                lane: Lane {
                    channel: name("channel"),
                    destination: self.destination.into(),
                    priority: self.priority,
                    tenant: name(self.tenant),
                },
                guarantee: self.guarantee,
                due_at: at(self.due_at),
                expires_at: self.expires_at.map(at),
                broadcast: None,
            },
            recipient: ByteString::from(recipient),
            content: Content { payload: self.payload.clone(), ..Content::default() },
            idempotency: self.key.map(idempotency),
            labels: self.labels.clone(),
            trace: None,
        }
    }

    /// Drafts for recipients `0`, `1`, ...
    pub fn drafts(&self, count: usize) -> Vec<Draft> {
        (0..count).map(|number| self.draft(&number.to_string())).collect()
    }

    /// Has `count` of these accepted at the instant 0.
    pub async fn ingest(&self, store: &dyn Store, count: usize) -> Vec<NotificationId> {
        let admissions = store.ingest(self.drafts(count), at(0)).await.expect("ingest");
        admissions.into_iter().map(accepted).collect()
    }
}

// === impl BroadcastShape ===

impl BroadcastShape {
    /// The broadcast without its recipients.
    pub fn draft(self) -> BroadcastDraft {
        BroadcastDraft {
            tenant: name("tenant"),
            channel: name("channel"),
            priority: Priority::Bulk,
            guarantee: Guarantee::AtLeastOnce,
            due_at: at(0),
            expires_at: None,
            content: Content {
                payload: Bytes::from_static(b"{\"all\":1}"),
                options: Bytes::from_static(b"{}"),
                fallback: None,
            },
            idempotency: self.key.map(idempotency),
            labels: Labels::default(),
        }
    }

    /// Opens a broadcast and gives it recipients.
    pub async fn open(self, store: &dyn Store, recipients: usize) -> notification::BroadcastId {
        let opened = store.open_broadcast(self.draft(), at(0)).await.expect("open");
        let BroadcastOpened::Opened(id) = opened else { panic!("{opened:?}") };
        store.add_recipients(id, groups(recipients), at(0)).await.expect("add");
        id
    }
}

/// A group of the recipients `0`, `1`, ...
pub fn groups(count: usize) -> Vec<RecipientGroup> {
    let recipients = (0..count).map(|number| number.to_string().into()).collect();
    vec![RecipientGroup { recipients, ..RecipientGroup::new("here".into()) }]
}

/// Recipients `0`, `1`, ... in groups of one, to two destinations in turn: a broadcast of two of them has two batches.
pub fn groups_in_turn(count: usize) -> Vec<RecipientGroup> {
    let group = |(number, destination): (usize, &str)| {
        let recipients = vec![number.to_string().into()];
        RecipientGroup { recipients, ..RecipientGroup::new(destination.into()) }
    };
    (0..count).zip(["here", "there"].into_iter().cycle()).map(group).collect()
}

/// An instant.
pub const fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

pub(super) fn idempotency((key, content): (&'static str, u8)) -> Idempotency {
    Idempotency { key: ByteString::from_static(key), fingerprint: [content; 32], passed: None }
}

pub(super) fn accepted(admission: Admission) -> NotificationId {
    match admission {
        Admission::Accepted(id) => id,
        Admission::Replayed(id) => panic!("{id} was there before"),
    }
}

/// A claim of everything, at `millis`.
pub const fn claim_request(millis: i64) -> ClaimRequest {
    let (items, window) = (usize::MAX, usize::MAX);
    let lowest = Priority::Bulk;
    let (lane_window, total_window) = (window, window);
    let probe_window = None;
    let now = at(millis);
    ClaimRequest { now, lease: LEASE, items, lowest, lane_window, total_window, probe_window }
}

/// Claims everything that is due.
pub async fn claim_all(store: &dyn Store, millis: i64) -> Vec<Chunk> {
    store.claim(claim_request(millis)).await.expect("claim").chunks
}

/// Claims everything that is due: of each chunk the tenant and how many deliveries, in order.
pub async fn claim_by_tenant(store: &dyn Store, millis: i64) -> Vec<(String, usize)> {
    let claimed = claim_all(store, millis).await;
    let of = |chunk: &Chunk| (chunk.envelope.lane.tenant.to_string(), chunk.deliveries.len());
    let mut counts: Vec<_> = claimed.iter().map(of).collect();
    counts.sort_unstable();
    counts
}

pub(super) async fn claim_one(store: &dyn Store, millis: i64) -> Chunk {
    let mut chunks = claim_all(store, millis).await;
    assert_eq!(chunks.len(), 1, "{chunks:?}");
    chunks.remove(0)
}

/// An operator's entry of the list, since 1.
pub(super) fn suppression(recipient: &str, reason: &str) -> Suppression {
    Suppression {
        channel: name("channel"),
        recipient: recipient.into(),
        reason: reason.to_owned(),
        status: 0,
        since: at(1),
    }
}

/// A settlement of `indexes` of `chunk` that all came to the same.
pub(crate) fn part(chunk: &Chunk, indexes: &[u16], disposition: Disposition) -> Settlement {
    let group = OutcomeGroup {
        disposition,
        status: 200,
        detail: "".into(),
        suppress: false,
        gone_since: [].into(),
        indexes: indexes.to_vec(),
    };
    Settlement {
        chunk: chunk.id,
        epoch: chunk.epoch,
        at: at(7),
        groups: vec![group],
        places: 0,
        latency: None,
        rate_per_minute: None,
        fallbacks: Vec::new(),
    }
}

pub(crate) fn indexes(chunk: &Chunk) -> Vec<u16> {
    chunk.deliveries.iter().map(|delivery| delivery.index).collect()
}

pub(super) async fn settle_one(store: &dyn Store, settlement: Settlement) -> Settled {
    store.settle(vec![settlement]).await.expect("settle")[0]
}

/// Settles all deliveries of `chunk` alike.
pub async fn settle_all(store: &dyn Store, chunk: &Chunk, disposition: Disposition) {
    let settled = settle_one(store, part(chunk, &indexes(chunk), disposition)).await;
    assert_eq!(settled, Settled::Applied { remaining: 0 });
}

/// Cancels a scope from its first page to its last, at 2.
pub(super) async fn cancel_scope(store: &dyn Store, tenant: &str, scope: &str) -> CancelPage {
    scope_pages(store, tenant, scope, false).await
}

/// Page of a cancellation of a scope that counts only.
pub(super) async fn count_scope(store: &dyn Store, tenant: &str, scope: &str) -> CancelPage {
    scope_pages(store, tenant, scope, true).await
}

async fn scope_pages(store: &dyn Store, tenant: &str, scope: &str, is_dry: bool) -> CancelPage {
    let scope: Scope = scope.parse().expect("a scope");
    let (mut total, mut from) = (CancelPage::default(), None);
    loop {
        let (tenant, scope) = (name(tenant), scope.clone());
        let request = CancelScope { tenant, scope, from, is_dry, now: at(2) };
        let page = store.cancel_scope(request).await.expect("cancel").expect("it is there");
        total.cancelled += page.cancelled;
        total.under_way += page.under_way;
        from = page.next;
        if from.is_none() {
            return total;
        }
    }
}

/// A cancellation that came to this, and is over.
pub(super) const fn cancelled(cancelled: u64, under_way: u64) -> CancelPage {
    CancelPage { cancelled, under_way, next: None }
}

pub(super) async fn find(store: &dyn Store, id: NotificationId) -> History {
    store.reader().find(id).await.expect("find").expect("it was accepted")
}

/// Counted anew, everything is somewhere, once, and the totals say the same, of each tenant and of all.
pub async fn the_books_balance(store: &dyn Store) {
    let audit = store.reader().audit().await.expect("audit");
    assert_eq!((audit.problem_count, audit.problems), (0, Vec::new()));
    assert!(audit.account.is_balanced(), "{:?}", audit.account);
    assert_eq!(store.reader().totals().await.expect("totals"), audit.account);
    assert_eq!(audit.unassigned, None, "every count has its tenant");
    let mut sum = Account::default();
    let counted = audit.tenants;
    for (tenant, counted) in &counted {
        assert!(counted.accepted > 0, "{tenant} has none");
        assert_eq!(tenant_totals(store, tenant.as_str()).await, *counted, "of {tenant}");
        sum.add_all(counted);
    }
    assert_eq!(sum, audit.account);
    tenants_are_listed(store, counted).await;
    assert_eq!(tenant_totals(store, "has-never-sent").await, Account::default());
    states_are_listed(store).await;
}

/// The list of tenants has those that were counted, in pages of any length.
async fn tenants_are_listed(store: &dyn Store, counted: BTreeMap<Name, Account>) {
    let all: Vec<_> = counted.into_iter().collect();
    for items in [1, 2, all.len().max(1)] {
        let (mut listed, mut after) = (Vec::new(), None);
        loop {
            let page = store.reader().tenants(after, items).await.expect("tenants");
            let page = page.expect("every count has its tenant");
            assert!(page.items.len() <= items);
            listed.extend(page.items);
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(listed, all, "in pages of {items}");
    }
}

/// The running totals of a tenant.
pub(super) async fn tenant_totals(store: &dyn Store, tenant: &str) -> Account {
    let totals = store.reader().tenant_totals(name(tenant)).await.expect("totals");
    totals.expect("every count has its tenant")
}

/// A list by states or by a reason has what the list of all has of these, in either order, of a tenant and of all.
async fn states_are_listed(store: &dyn Store) {
    let all = list_in_pages(store, &Filter::default(), 1_000).await;
    let tenant = all.last().map(|history| history.envelope.lane.tenant.clone());
    let (mut states, mut reasons) = (BTreeSet::new(), BTreeSet::new());
    for history in &all {
        states.insert(history.state);
        reasons.extend(history.attempts.last().map(|last| last.detail.clone()));
    }
    // All lines of the log have the empty one.
    reasons.remove("");
    let mut sets: Vec<BTreeSet<State>> = states.iter().map(|state| [*state].into()).collect();
    for is_terminal in [false, true] {
        let of_these = |state: &&State| state.is_terminal() == is_terminal;
        let several = State::ALL.iter().filter(of_these).copied();
        let several = several.filter(|state| *state != State::Delivered);
        let several: BTreeSet<State> = several.collect();
        // With one of them alone there it is the list of that.
        if states.intersection(&several).count() > 1 {
            sets.push(several);
        }
    }
    let by_states = sets.into_iter().map(|states| Filter { states, ..Filter::default() });
    let of_reason = |reason| Filter { reason: Some(reason), ..Filter::default() };
    let by_reason = reasons.into_iter().take(3).map(of_reason);
    for (number, filter) in by_states.chain(by_reason).enumerate() {
        let mut tenants = [None, tenant.clone()];
        if number % 2 == 1 {
            tenants.reverse();
        }
        for (order, tenant) in
            [ListOrder::OldestFirst, ListOrder::NewestFirst].into_iter().zip(tenants)
        {
            let filter = Filter { tenant, order, ..filter.clone() };
            is_part_of(store, &filter, &all, 100).await;
        }
    }
}

/// Asserts that `filter` lists what matches it of `all`, which are in the order of a list, in pages of `items`.
pub(super) async fn is_part_of(store: &dyn Store, filter: &Filter, all: &[History], items: usize) {
    let matching = all.iter().filter(|history| filter.matches(history));
    let mut expect: Vec<NotificationId> = matching.map(|history| history.id).collect();
    if filter.order == ListOrder::NewestFirst {
        expect.reverse();
    }
    let listed = list_in_pages(store, filter, items).await;
    let listed: Vec<NotificationId> = listed.iter().map(|history| history.id).collect();
    assert_eq!(listed, expect, "{filter:?}");
}

/// All that `filter` matches, page by page.
pub(crate) async fn list_in_pages(
    store: &dyn Store,
    filter: &Filter,
    items: usize,
) -> Vec<History> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let page = store.reader().list(filter.clone(), after, items).await.expect("list");
        assert!(page.items.len() <= items);
        all.extend(page.items);
        after = page.next;
        if after.is_none() {
            return all;
        }
    }
}

/// The log from its start to its end, in pages of about `entries`. A page may end early: entries after a transaction that ends
/// while the log is read are left for the next page.
pub(super) async fn whole_log(store: &dyn Store, entries: usize) -> Vec<LogEntry> {
    let (mut all, mut position) = (Vec::new(), LogPosition::default());
    loop {
        let page = store.reader().log(position, entries).await.unwrap();
        if page.next == position {
            assert!(page.entries.is_empty());
            return all;
        }
        assert!(page.next > position);
        all.extend(page.entries);
        position = page.next;
    }
}

/// Notifications are kept for a day, with all that they have.
pub(crate) fn kept_for_a_day() -> Retention {
    let day = Some(Duration::from_hours(24));
    let lifetimes = Lifetimes { content: day, recipient: day, outcome: day };
    let default = TenantRetention { lifetimes, by_state: BTreeMap::new() };
    Retention { default, ..Retention::for_ever() }
}

/// Prunes until nothing is left to do at `now`.
pub(crate) async fn prune_all(store: &dyn Prune, retention: &Retention, now: Timestamp) -> Removed {
    let mut removed = Removed::default();
    for _ in 0..1_000 {
        let step = store.prune(retention, now).await.expect("prune");
        removed.add(&step.removed);
        if !step.goes_on {
            assert!(step.next_at.is_none_or(|next_at| next_at > now), "{step:?}");
            return removed;
        }
    }
    panic!("pruning does not end");
}
