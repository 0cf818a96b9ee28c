//! Retention: how long what is settled is kept, and the removal of the rest.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use notification::{Name, State, Timestamp};
use serde::{Deserialize, Serialize};

use crate::StoreError;

/// A part of a settled notification that has a lifetime of its own. Parts are removed in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RetainedPart {
    /// Its payload and options, and those of its fallbacks.
    Content,
    /// Its recipient.
    Recipient,
    /// Everything else: the notification with its log. It is counted in a tombstone from then on.
    Outcome,
}

/// Lifetimes of the parts of a notification, from its end on. `None` is for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetimes {
    /// Lifetime of its content.
    pub content: Option<Duration>,
    /// Lifetime of its recipient, at least as long.
    pub recipient: Option<Duration>,
    /// Lifetime of its outcome, at least as long.
    pub outcome: Option<Duration>,
}

/// Lifetimes of the notifications of a tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantRetention {
    /// Lifetimes of notifications in the states without any of their own.
    pub lifetimes: Lifetimes,
    /// Lifetimes of those that ended in these states.
    pub by_state: BTreeMap<State, Lifetimes>,
}

/// All lifetimes. `None` is for ever.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retention {
    /// Lifetimes for the tenants without any of their own.
    pub default: TenantRetention,
    /// Lifetimes for single tenants.
    pub tenants: BTreeMap<Name, TenantRetention>,
    /// Lifetime of an idempotency key, from the acceptance of its notification or broadcast on. It is kept at least as long as the
    /// content of that.
    pub idempotency_keys: Option<Duration>,
    /// Lifetime of a change of the suppression list, from the change on.
    pub suppression_events: Option<Duration>,
    /// Lifetime of a row of the outbox that was rejected, on PostgreSQL.
    pub outbox_rejects: Option<Duration>,
    /// Lifetime of an act in the trail.
    pub acts: Option<Duration>,
}

/// Counts of what was removed. Its JSON is a part of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Removed {
    /// Notifications whose contents were removed.
    pub contents: u64,
    /// Notifications whose recipients were removed.
    pub recipients: u64,
    /// Notifications that were removed with their log.
    pub outcomes: u64,
    /// Idempotency keys.
    pub idempotency_keys: u64,
    /// Changes of the suppression list.
    pub suppression_events: u64,
    /// Rejected rows of the outbox.
    pub outbox_rejects: u64,
    /// Acts in the trail.
    #[serde(default)]
    pub acts: u64,
    /// Lanes that nothing is in any more.
    #[serde(default)]
    pub lanes: u64,
}

/// The result of one step of [`Prune::prune`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PruneStep {
    /// Counts of what this step removed.
    pub removed: Removed,
    /// True if another step has something to do at once.
    pub goes_on: bool,
    /// Time at which something stored so far may be due next, once no step has anything to do; `None` if nothing is.
    pub next_at: Option<Timestamp>,
}

/// Removes what has outlived its lifetime.
#[async_trait]
pub trait Prune: Send + Sync + std::fmt::Debug {
    /// Performs one step: a bounded number of rows in a transaction of its own, so that the caller decides how fast it goes. What
    /// is removed is out of every read at once; the account stays exact, by tombstones. While another process prunes the same
    /// store, or an audit reads it, nothing is done.
    async fn prune(&self, retention: &Retention, now: Timestamp) -> Result<PruneStep, StoreError>;
}

// === impl RetainedPart ===

impl RetainedPart {
    /// All parts, in the order of their removal.
    pub const ALL: [Self; 3] = [Self::Content, Self::Recipient, Self::Outcome];
}

// === impl Lifetimes ===

impl Lifetimes {
    /// Everything is kept for ever.
    pub const FOR_EVER: Self = Self { content: None, recipient: None, outcome: None };

    /// The lifetime of `part`.
    pub const fn of(&self, part: RetainedPart) -> Option<Duration> {
        match part {
            RetainedPart::Content => self.content,
            RetainedPart::Recipient => self.recipient,
            RetainedPart::Outcome => self.outcome,
        }
    }

    /// True if no part has a longer lifetime than one that is removed after it.
    pub fn are_in_order(&self) -> bool {
        let or_ever = |lifetime: Option<Duration>| lifetime.unwrap_or(Duration::MAX);
        or_ever(self.content) <= or_ever(self.recipient)
            && or_ever(self.recipient) <= or_ever(self.outcome)
    }
}

// === impl TenantRetention ===

impl TenantRetention {
    /// Lifetimes of a notification that ended in `state`.
    pub fn lifetimes(&self, state: State) -> &Lifetimes {
        self.by_state.get(&state).unwrap_or(&self.lifetimes)
    }

    fn all(&self) -> impl Iterator<Item = &Lifetimes> {
        std::iter::once(&self.lifetimes).chain(self.by_state.values())
    }
}

// === impl Retention ===

impl Retention {
    /// Everything is kept for ever.
    pub const fn for_ever() -> Self {
        let default = TenantRetention { lifetimes: Lifetimes::FOR_EVER, by_state: BTreeMap::new() };
        Self {
            default,
            tenants: BTreeMap::new(),
            idempotency_keys: None,
            suppression_events: None,
            outbox_rejects: None,
            acts: None,
        }
    }

    /// Lifetimes of the notifications of `tenant`.
    pub fn of(&self, tenant: &Name) -> &TenantRetention {
        self.tenants.get(tenant).unwrap_or(&self.default)
    }

    /// The shortest lifetime of `part` that any notification may have; `None` if it is kept for ever.
    pub fn shortest(&self, part: RetainedPart) -> Option<Duration> {
        let all = std::iter::once(&self.default).chain(self.tenants.values());
        all.flat_map(TenantRetention::all).filter_map(|lifetimes| lifetimes.of(part)).min()
    }
}

// === impl Removed ===

impl Removed {
    /// Adds the counts of `other`.
    pub const fn add(&mut self, other: &Self) {
        self.contents += other.contents;
        self.recipients += other.recipients;
        self.outcomes += other.outcomes;
        self.idempotency_keys += other.idempotency_keys;
        self.suppression_events += other.suppression_events;
        self.outbox_rejects += other.outbox_rejects;
        self.acts += other.acts;
        self.lanes += other.lanes;
    }

    /// The counts, and what each is of.
    pub const fn counts(&self) -> [(&'static str, u64); 8] {
        [
            ("contents", self.contents),
            ("recipients", self.recipients),
            ("outcomes", self.outcomes),
            ("idempotency_keys", self.idempotency_keys),
            ("suppression_events", self.suppression_events),
            ("outbox_rejects", self.outbox_rejects),
            ("acts", self.acts),
            ("lanes", self.lanes),
        ]
    }
}
