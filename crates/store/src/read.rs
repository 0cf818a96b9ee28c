//! Reads: the state of notifications, broadcasts, lanes and the suppression list, and the log.

use std::collections::{BTreeMap, BTreeSet};
use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use async_trait::async_trait;
use flow::forecast::Series;
use notification::{
    Account, BroadcastId, ByteString, Content, Envelope, Idempotency, Labels, Lane, Name,
    NotificationId, Pauses, Priority, State, Timestamp,
};
use serde::Serialize;

use crate::{
    ActFilter, ActPage, Attempted, BroadcastFilter, BroadcastPage, ClusterStatus, DeliveryFilter,
    DeliveryPage, EventPosition, FeedCursor, KeyUse, ListOrder, ShardCursor, StoreError,
    StoreSpace, Suppression, SuppressionPage, TenantPage, TotalsAssignment,
};

/// A notification with its content, its state and its log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct History {
    /// Its identifier.
    pub id: NotificationId,
    /// Its envelope, which it shares with the notifications of its batch.
    pub envelope: Envelope,
    /// Time of acceptance.
    pub accepted_at: Timestamp,
    /// Device token, endpoint, address; `None` once it was removed.
    pub recipient: Option<ByteString>,
    /// Its content; `None` once it was removed.
    pub content: Option<Content>,
    /// Its labels. They are removed with the recipient.
    pub labels: Labels,
    /// Its state.
    pub state: State,
    /// Due time of its next attempt, while it is pending.
    pub next_attempt_at: Option<Timestamp>,
    /// Its log, oldest first.
    pub attempts: Vec<Attempted>,
    /// The fallback of this notification, which was refused or suppressed.
    pub fallback_id: Option<NotificationId>,
}

/// A filter of notifications, and the order in which they are listed. A field that is not set matches all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Tenant of the notifications.
    pub tenant: Option<Name>,
    /// Channel of the notifications.
    pub channel: Option<Name>,
    /// States, of which one must match; an empty set matches any state.
    pub states: BTreeSet<State>,
    /// Broadcast of the notifications.
    pub broadcast: Option<BroadcastId>,
    /// Accepted at this instant or later.
    pub since: Option<Timestamp>,
    /// Accepted before this instant.
    pub until: Option<Timestamp>,
    /// Recipient of the notifications, byte for byte. With a tenant, an index finds them (decision 0053); without, all notifications
    /// are walked over.
    pub recipient: Option<ByteString>,
    /// True to have those match as well that have a fallback to this recipient.
    pub or_fallback: bool,
    /// External id of the notifications, byte for byte. With a tenant, the index finds them.
    pub external_id: Option<ByteString>,
    /// A tag that the notifications have, byte for byte. With a tenant, the index finds them.
    pub tag: Option<ByteString>,
    /// A part of what the last line of their log says.
    pub reason: Option<String>,
    /// The order.
    pub order: ListOrder,
}

/// Some of a list, and where it goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    /// Items in the order of the filter. May be empty although more follow: a call reads a bounded number
    /// of rows.
    pub items: Vec<T>,
    /// Pass this to go on; `None` at the end.
    pub next: Option<NotificationId>,
}

/// A place in the log. Starts at zero; ascending.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct LogPosition(pub u64);

/// An entry of the log. Its JSON is a part of the API.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LogEntry {
    /// Notification of the entry.
    pub id: NotificationId,
    /// The attempt, or the end.
    #[serde(flatten)]
    pub attempted: Attempted,
}

/// Some of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogPage {
    /// Entries in the order of settling. Entries that were settled together are never split over pages, so a page may exceed the
    /// number requested.
    pub entries: Vec<LogEntry>,
    /// Position at which the next page begins. Equal to the requested one at the end of the log.
    pub next: LogPosition,
}

/// A broadcast as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BroadcastStatus {
    /// Its number.
    pub id: BroadcastId,
    /// Tenant that owns the broadcast.
    pub tenant: Name,
    /// The channel.
    pub channel: Name,
    /// Time at which it was sealed.
    pub accepted_at: Timestamp,
    /// Due time.
    pub due_at: Timestamp,
    /// Expiry of its pending notifications.
    pub expires_at: Option<Timestamp>,
    /// Its labels.
    pub labels: Labels,
    /// Counts of its notifications by state.
    pub account: Account,
    /// The rest of the broadcast, by lane: up to 32 lanes by themselves, and all further ones together.
    pub parts: Vec<BroadcastPart>,
}

/// The rest of a broadcast in one lane, or in several, and the progress of it so far. Times count from the Unix epoch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BroadcastPart {
    /// Notifications that are pending, the retries among them.
    pub pending: u64,
    /// Retries that are not claimed, as deferred at the time when they are due. Chunks that are put away because of a pause are
    /// not among them.
    pub retries: Series,
    /// The highest number of these attempts.
    pub retry_attempt: u16,
    /// Ends and deferrals of settled deliveries. Notifications that were cancelled or expired are not counted.
    pub series: Series,
}

/// The lanes with work, or some of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LaneList {
    /// In order of lane.
    pub lanes: Vec<LaneStatus>,
    /// `None` if these are all. Otherwise the due time up to which lanes are listed: one that is not listed is due 16 s before it at
    /// the earliest.
    pub until: Option<Timestamp>,
}

/// A lane with work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneStatus {
    /// The lane.
    pub lane: Lane,
    /// Deliveries claimed and unsettled.
    pub claimed: u64,
    /// The earliest due time of unclaimed deliveries.
    pub next_due_at: Option<Timestamp>,
    /// Evidence of its destination that this process has; empty if it settles nothing.
    pub evidence: LaneEvidence,
}

/// Pace of a lane while it had more to send than its destination took at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LanePace {
    /// The lane.
    pub lane: Lane,
    /// Deliveries that were answered in each of the last seconds of that kind, up to 16 of them.
    pub answered: Vec<u32>,
    /// End of the last of these seconds.
    pub at: Timestamp,
}

/// Evidence of a lane's destination, from attempts to it since the start of a process (decision 0026).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LaneEvidence {
    /// Time of its last answer, whatever the answer was.
    pub answered_at: Option<Timestamp>,
    /// Time of the next attempt at the earliest, while every attempt fails.
    pub closed_until: Option<Timestamp>,
    /// Attempts at what this process claims that may be under way to it at a time, as of its last answer.
    pub limit: Option<NonZeroUsize>,
    /// Mean latency of its answers on the wire lately, as of its last answer.
    pub latency: Option<Duration>,
    /// Messages a minute that the process which sent last goes by, after refusals for the rate; as of its last answer.
    pub rate_per_minute: Option<NonZeroU32>,
}

/// A channel that is not configured, and what waits for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParkedChannel {
    /// Its name.
    pub channel: Name,
    /// Lanes in which something waits.
    pub lanes: u64,
    /// Notifications that wait, due or not.
    pub notifications: u64,
    /// The earliest due time of these.
    pub next_due_at: Timestamp,
    /// True if there may be more, because the channel has 10,000 lanes or chunks: counting ends there.
    pub is_at_least: bool,
}

/// How much waits in all lanes, by channel and priority.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WaitingCounts {
    /// Notifications that wait, due or not; one that is missing has none, or was not reached.
    pub notifications: BTreeMap<(Name, Priority), u64>,
    /// True if the bound of the count was reached: then there may be more of each.
    pub is_at_least: bool,
}

/// The result of a full count.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Audit {
    /// Counted from batches, chunks and log, not from running totals.
    pub account: Account,
    /// The counted account of each tenant that has any: `account` is the sum of these.
    pub tenants: BTreeMap<Name, Account>,
    /// The assignment to the tenants of what the running totals have without one, because an older version counted it
    /// ([`assign_totals`](crate::assign_totals)); `None` when every count has its tenant.
    pub unassigned: Option<TotalsAssignment>,
    /// The contradictions, in words; empty when there are none. At most 100, then counted only.
    pub problems: Vec<String>,
    /// Number of problems.
    pub problem_count: u64,
}

// === impl BroadcastPart ===

impl BroadcastPart {
    /// Counts `other` as a part of this one.
    pub fn add(&mut self, other: &Self) {
        self.pending += other.pending;
        self.retries.merge(&other.retries);
        self.retry_attempt = self.retry_attempt.max(other.retry_attempt);
        self.series.merge(&other.series);
    }
}

// === impl LaneList ===

impl LaneList {
    /// True if no lane with work is missing.
    pub const fn are_all(&self) -> bool {
        self.until.is_none()
    }
}

// === impl History ===

impl History {
    /// The notification in whose place this one was sent; not known any more once its content was removed.
    pub fn fallback_of(&self) -> Option<NotificationId> {
        self.content.as_ref()?.fallback.as_ref()?.of
    }

    /// The key under which to look for [`History::fallback_id`], if something may be there.
    pub(crate) fn fallback_key(&self) -> Option<ByteString> {
        let fallback = self.content.as_ref().and_then(|content| content.fallback.as_ref());
        let has_next = fallback.is_some_and(|it| !it.next.is_empty());
        // After any other end it may have arrived, or is no longer wanted, and nothing was sent in its place.
        let falls_back = has_next && matches!(self.state, State::Refused | State::Suppressed);
        falls_back.then(|| Idempotency::in_place_of(self.id).key)
    }
}

// === impl Filter ===

impl Filter {
    /// True if `history` matches the filter.
    pub fn matches(&self, history: &History) -> bool {
        let Self { tenant, channel, states, broadcast, since, until, recipient, reason, .. } = self;
        let envelope = &history.envelope;
        let says = |reason: &String| {
            history.attempts.last().is_some_and(|last| last.detail.contains(&**reason))
        };
        tenant.as_ref().is_none_or(|tenant| tenant == &envelope.lane.tenant)
            && channel.as_ref().is_none_or(|channel| channel == &envelope.lane.channel)
            && (states.is_empty() || states.contains(&history.state))
            && broadcast.is_none_or(|broadcast| Some(broadcast) == envelope.broadcast)
            && since.is_none_or(|since| history.accepted_at >= since)
            && until.is_none_or(|until| history.accepted_at < until)
            && recipient.as_ref().is_none_or(|recipient| {
                Some(recipient) == history.recipient.as_ref()
                    || self.has_fallback(history, recipient)
            })
            && history.labels.have(self.external_id.as_ref(), self.tag.as_ref())
            && reason.as_ref().is_none_or(says)
    }

    fn has_fallback(&self, history: &History, recipient: &ByteString) -> bool {
        let fallback = history.content.as_ref().and_then(|content| content.fallback.as_ref());
        self.or_fallback
            && fallback.is_some_and(|it| it.next.iter().any(|next| next.recipient == *recipient))
    }

    /// True if it says to whom notifications are, or what labels they have: what the index knows of them.
    pub(crate) fn is_searched(&self) -> bool {
        self.recipient.is_some() || self.external_id.is_some() || self.tag.is_some()
    }

    /// True if a notification to `own`, with fallbacks to `others`, is to or may fall back to the recipient of the filter.
    pub(crate) fn has_recipient(&self, own: &ByteString, others: &[ByteString]) -> bool {
        self.recipient.as_ref().is_none_or(|recipient| {
            own == recipient || self.or_fallback && others.contains(recipient)
        })
    }
}

/// Answers questions about a store, each from one snapshot; changes nothing. A reader has no [`Operations`](crate::Operations):
///
/// ```compile_fail
/// fn operations(reader: store::SqliteReader) -> Box<dyn store::Operations> {
///     Box::new(reader)
/// }
/// ```
#[async_trait]
pub trait ReadStore: Send + Sync + std::fmt::Debug {
    /// The notification `id`, or `None` if this store never accepted it.
    async fn find(&self, id: NotificationId) -> Result<Option<History>, StoreError>;

    /// Notifications behind `after`, at most `items`, in the order of their numbers, ascending or descending. That is not the order
    /// of their commits: on PostgreSQL each process draws numbers in advance, so one that is accepted later may stand before `after`. To follow a
    /// store, read [`ReadStore::log`], in which nothing appears before a position that was read.
    async fn list(
        &self,
        filter: Filter,
        after: Option<NotificationId>,
        items: usize,
    ) -> Result<Page<History>, StoreError>;

    /// The notification or broadcast for which `tenant` used an idempotency key, while the key is kept.
    async fn key_use(&self, tenant: Name, key: ByteString) -> Result<Option<KeyUse>, StoreError>;

    /// A sealed broadcast.
    async fn broadcast(&self, id: BroadcastId) -> Result<Option<BroadcastStatus>, StoreError>;

    /// Sealed broadcasts of a tenant behind `after`, at most `items`, in the order of their numbers, ascending or descending. A
    /// number is drawn when a broadcast is opened, so one that is sealed later may stand before `after`. A page looks at 1,000
    /// broadcasts of the tenant at most, those that do not match among them.
    async fn broadcasts(
        &self,
        filter: BroadcastFilter,
        after: Option<BroadcastId>,
        items: usize,
    ) -> Result<BroadcastPage, StoreError>;

    /// Running totals of all tenants together: cheap, for status and metrics.
    async fn totals(&self) -> Result<Account, StoreError>;

    /// Running totals of `tenant`, exact at every commit; empty for one that never had any notification. `None`, for every tenant,
    /// until what an older version counted without its tenant is assigned ([`assign_totals`](crate::assign_totals)).
    async fn tenant_totals(&self, tenant: Name) -> Result<Option<Account>, StoreError>;

    /// The tenants behind `after` that have something, by name, each with its running totals, at most `items`, which is at least 1.
    /// `None` as for [`ReadStore::tenant_totals`]. The cost is that of the totals, however many notifications there are.
    async fn tenants(
        &self,
        after: Option<Name>,
        items: usize,
    ) -> Result<Option<TenantPage>, StoreError>;

    /// Lanes with work: those with claimed deliveries, and of the rest [`LANES_LISTED`](crate::LANES_LISTED), or all if there are
    /// fewer, however much waits in each. Of more, those are listed that are due first, as far as 1,000 spans of 16 s in which a
    /// lane has something due show them, and others to fill the list. The lane whose work is due first of all is listed, or one that
    /// is due 16 s later at most: waiting work adds nothing to the cost of an answer.
    async fn lanes(&self) -> Result<LaneList, StoreError>;

    /// Paces of lanes that this process has seen since its start: of up to 256 that were busy last, with work now or without, in
    /// no order.
    async fn paces(&self) -> Result<Vec<LanePace>, StoreError>;

    /// The channels that are not among `offered` and have waiting notifications, in order of name. Claimed ones, and the part of
    /// a broadcast that has no chunks yet, are not counted. The cost is bounded for each channel, and nothing while all are
    /// offered.
    async fn parked(&self, offered: BTreeSet<Name>) -> Result<Vec<ParkedChannel>, StoreError>;

    /// How much waits and is not claimed, of every channel, configured or not. At most `chunks_max` chunks are counted, lane after
    /// lane: nothing else adds to the cost. The part of a broadcast that has no chunks yet is not counted.
    async fn waiting_counts(&self, chunks_max: usize) -> Result<WaitingCounts, StoreError>;

    /// Counts everything from the ground up and compares: every notification of every accepted batch is
    /// pending exactly once or ended exactly once, and the running totals say the same, of each tenant where every count has its
    /// tenant, and else of all of them together.
    async fn audit(&self) -> Result<Audit, StoreError>;

    /// The log from `position` on, about `entries` of it. On PostgreSQL it is in the order in which transactions began to
    /// write: of two that are concurrent, the later one to end may stand first.
    async fn log(&self, position: LogPosition, entries: usize) -> Result<LogPage, StoreError>;

    /// The suppression list of `channel` in order of recipient, after `after`, at most `items`.
    async fn suppressions(
        &self,
        channel: Name,
        after: Option<ByteString>,
        items: usize,
    ) -> Result<Vec<Suppression>, StoreError>;

    /// The first channel after `after`, in order of name, that has recipients on its list.
    async fn suppressed_channel(&self, after: Option<Name>) -> Result<Option<Name>, StoreError>;

    /// The changes of the list from `position` on, at most `events`.
    async fn suppression_events(
        &self,
        position: EventPosition,
        events: usize,
    ) -> Result<SuppressionPage, StoreError>;

    /// Delivery events from `position` on, at most `events`, in the order of the log. Nothing is ever written before a position
    /// that was read. A page passes [`EVENT_ROWS`](crate::EVENT_ROWS) rows of the log at most, those of other tenants among them:
    /// it may be empty although more follow, and has then moved on. Notifications by which feeds hand events on have no events. A
    /// position before the oldest row goes on there.
    async fn delivery_events(
        &self,
        filter: DeliveryFilter,
        position: EventPosition,
        events: usize,
    ) -> Result<DeliveryPage, StoreError>;

    /// The position behind all delivery events that were written when this was asked, on PostgreSQL up to the first transaction
    /// that may still write. Never [`EventPosition::default`], so that a feed that starts here is known to have started.
    async fn events_end(&self) -> Result<EventPosition, StoreError>;

    /// Cursor of the feed named `feed`; at the start if it was never moved.
    async fn feed(&self, feed: Name) -> Result<FeedCursor, StoreError>;

    /// The shards of a source that are known, by name: as many as its stream has, and its readers.
    async fn shards(&self, source: Name) -> Result<BTreeMap<String, ShardCursor>, StoreError>;

    /// Some of the acts behind the act `after`, newest first, at most `items_max`.
    async fn acts(
        &self,
        filter: ActFilter,
        after: Option<u64>,
        items_max: usize,
    ) -> Result<ActPage, StoreError>;

    /// The pauses in force.
    async fn pauses(&self) -> Result<Pauses, StoreError>;

    /// The room that the store takes on a disk; `None` for one that has none.
    async fn space(&self) -> Result<Option<StoreSpace>, StoreError> {
        Ok(None)
    }

    /// The processes that share this store; `None` for one that belongs to a single process.
    async fn cluster(&self) -> Result<Option<ClusterStatus>, StoreError> {
        Ok(None)
    }
}
