//! Operations: what callers and operators may change about notifications that were accepted, and about the suppression list.

use async_trait::async_trait;
use notification::{BroadcastId, Name, NotificationId, Pause, Scope, Timestamp};

use crate::{FeedCursor, Lift, StoreError, Suppression};

/// A notification or a broadcast to cancel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelTarget {
    /// One notification.
    Notification(NotificationId),
    /// All pending notifications of a broadcast.
    Broadcast(BroadcastId),
}

/// How many notifications were cancelled, and how many were too late.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cancelled {
    /// Now cancelled.
    pub cancelled: u64,
    /// Too late: claimed, and perhaps on the wire.
    pub under_way: u64,
    /// Too late: ended before.
    pub ended: u64,
}

/// The answer to requeueing one notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Requeued {
    /// It is pending again and due now, with all attempts before it.
    Requeued,
    /// It was not dead: nothing has changed.
    NotDead,
    /// Its `expires_at` has passed: nothing has changed.
    Expired,
    /// This tenant has no such notification.
    Unknown,
}

/// The answer to a pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paused {
    /// It is durable: nothing of it is claimed any more, and no attempt of it begins in this process.
    InForce {
        /// Since when it is paused; an earlier instant than this call's if it was paused before.
        since: Timestamp,
        /// Whether no attempt of it begins in any other process either. Of a process that was not heard of in time this is
        /// not known.
        is_everywhere: bool,
    },
    /// This tenant has no such broadcast: nothing has changed.
    Unknown,
    /// There are [`limits::PAUSES`](notification::limits::PAUSES) already: nothing has changed.
    TooMany,
}

/// Changes what a store holds; every change is durable on return.
#[async_trait]
pub trait Operations: Send + Sync + std::fmt::Debug {
    /// Cancels what is pending of `target`, if it belongs to `tenant`; `None` when there is no such thing.
    async fn cancel(
        &self,
        target: CancelTarget,
        tenant: Name,
        now: Timestamp,
    ) -> Result<Option<Cancelled>, StoreError>;

    /// Sends dead notifications of `tenant` again, as new attempts of the same ones, and answers in order. One that is in
    /// doubt is never sent again; a dead one was accepted by no provider, whatever its guarantee. The log gets a line of the
    /// attempt 0 for each.
    async fn requeue(
        &self,
        ids: Vec<NotificationId>,
        tenant: Name,
        now: Timestamp,
    ) -> Result<Vec<Requeued>, StoreError>;

    /// Adds recipients to the suppression list at `now`, one report after the other. A settlement adds those that providers
    /// report, by the same rule:
    ///
    /// | listed | reported by | reason and status | since | an event |
    /// |---|---|---|---|---|
    /// | no | either | as reported | as reported | yes |
    /// | yes | an operator | as reported | the later | if reason or status changed |
    /// | yes | a provider | stay | the later | no |
    ///
    /// A provider's report of an instant is ignored when the recipient came back at that instant or later ([`Lift`]).
    async fn suppress(
        &self,
        suppressions: Vec<Suppression>,
        now: Timestamp,
    ) -> Result<(), StoreError>;

    /// Takes recipients off the list at `now`; says for each whether it was there and is not any more.
    async fn lift(&self, lifts: Vec<Lift>, now: Timestamp) -> Result<Vec<bool>, StoreError>;

    /// Pauses what is the tenant's, until it is resumed. What is under way ends; what is claimed and not begun is not begun when
    /// this returns ([`Begin::watch_pauses`](crate::Begin::watch_pauses)). What is paused is accepted, cancelled and expires as ever. To pause
    /// what is paused changes nothing.
    async fn pause(&self, pause: Pause) -> Result<Paused, StoreError>;

    /// Ends a pause; whether there was one. What another pause covers stays paused.
    async fn resume(&self, tenant: Name, scope: Scope) -> Result<bool, StoreError>;

    /// Moves the feed from `from` to `to` if it is at `from`, and says where it is then.
    async fn move_feed(
        &self,
        feed: Name,
        from: FeedCursor,
        to: FeedCursor,
    ) -> Result<FeedCursor, StoreError>;
}
