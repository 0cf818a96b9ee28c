//! Operations: the changes that callers and operators may make to accepted notifications and to the suppression list.

use std::collections::BTreeSet;

use async_trait::async_trait;
use notification::{ByteString, Name, NotificationId, Pause, Scope, State, Timestamp};

use crate::{
    CancelPage, CancelScope, CancelTarget, Cancelled, Erased, FeedCursor, Lift, Reschedule,
    Rescheduled, Resolution, Resolved, ShardCursor, StoreError, Suppression, TotalsAssignment,
};

/// The answer to requeueing one notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Requeued {
    /// The notification is pending again and due now, with all attempts before it.
    Requeued,
    /// The notification is in none of the requested states: nothing has changed.
    OtherState,
    /// Its `expires_at` has passed: nothing has changed.
    Expired,
    /// The notification was cancelled while its broadcast waits to be released (decision 0023), and can be sent again when its
    /// slice has passed: nothing has changed.
    NotYet,
    /// Its content was removed ([`Retention`](crate::Retention)): nothing has changed.
    ContentRemoved,
    /// The tenant has no such notification.
    Unknown,
}

/// The answer to a pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paused {
    /// The pause is durable: nothing of its scope is claimed any more, and no attempt of it begins in this process.
    InForce {
        /// Begin of the pause; an instant before this call if the scope was paused already.
        since: Timestamp,
        /// True if no attempt of the scope begins in any other process either. Unknown, and so false, of a process that did not
        /// answer in time.
        is_everywhere: bool,
    },
    /// The tenant has no such broadcast: nothing has changed.
    Unknown,
    /// The limit of [`limits::PAUSES`](notification::limits::PAUSES) pauses is reached: nothing has changed.
    TooMany,
}

/// Changes the contents of a store; every change is durable on return.
#[async_trait]
pub trait Operations: Send + Sync + std::fmt::Debug {
    /// Cancels the pending notifications of `target`, if it belongs to `tenant`; `None` when there is no such target.
    async fn cancel(
        &self,
        target: CancelTarget,
        tenant: Name,
        now: Timestamp,
    ) -> Result<Option<Cancelled>, StoreError>;

    /// Cancels the waiting notifications of a scope, or counts them, a bounded number of rows at a time; `None` when there is no
    /// such broadcast. See [`CancelScope`].
    async fn cancel_scope(&self, request: CancelScope) -> Result<Option<CancelPage>, StoreError>;

    /// Gives what waits of a notification or of a broadcast another due time, earlier or later. See [`Reschedule`].
    async fn reschedule(&self, request: Reschedule) -> Result<Rescheduled, StoreError>;

    /// Sends notifications of `tenant` again that stand in one of `states`, of those from which they may be
    /// ([`State::may_be_requeued`]), as new attempts of the same ones, and answers in order. A dead one and a refused one were
    /// accepted by no provider, and a cancelled one was waiting, for its first attempt or a further one. One in doubt may have
    /// arrived: the caller answers for its being sent twice. The log gets a line of the attempt 0 for each.
    async fn requeue(
        &self,
        ids: Vec<NotificationId>,
        states: BTreeSet<State>,
        tenant: Name,
        now: Timestamp,
    ) -> Result<Vec<Requeued>, StoreError>;

    /// Writes down what became of notifications of `tenant` that are in doubt, which an operator has found out, and answers in
    /// order. Nothing is sent, so one whose time has passed or whose content was removed can be resolved as well. The log gets two
    /// lines of the attempt 0 for each: one that takes the doubt back, and the end, with the note. Of calls that resolve or requeue
    /// the same notification one does.
    async fn resolve(
        &self,
        ids: Vec<NotificationId>,
        resolution: Resolution,
        tenant: Name,
        now: Timestamp,
    ) -> Result<Vec<Resolved>, StoreError>;

    /// Erases recipients and contents of notifications of `tenant` that have ended, with the words of providers about them, and
    /// answers in order. What is counted stays as it is, and so does the log but for those words. A content that others share goes
    /// with the last of them. A notification that was erased is found by its identifier, is in no list by recipient, and cannot be
    /// requeued.
    async fn erase(
        &self,
        ids: Vec<NotificationId>,
        tenant: Name,
    ) -> Result<Vec<Erased>, StoreError>;

    /// Erases `recipient` from the suppression list, on every channel, with its marks ([`Lift`]) and all changes that were told of
    /// it. Feeds are not told. Returns the number of channels that had it on their lists.
    async fn forget(&self, recipient: ByteString) -> Result<u64, StoreError>;

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

    /// Pauses a scope of the tenant's, until it is resumed. Attempts under way end; claimed deliveries that are not begun are not
    /// begun when this returns ([`Begin::watch_pauses`](crate::Begin::watch_pauses)). Paused notifications are accepted,
    /// cancelled and expire as ever. To pause a paused scope changes nothing.
    async fn pause(&self, pause: Pause) -> Result<Paused, StoreError>;

    /// Ends a pause; true if there was one. Notifications that another pause covers stay paused.
    async fn resume(&self, tenant: Name, scope: Scope) -> Result<bool, StoreError>;

    /// Moves the feed from `from` to `to` if it is at `from`, and says where it is then.
    async fn move_feed(
        &self,
        feed: Name,
        from: FeedCursor,
        to: FeedCursor,
    ) -> Result<FeedCursor, StoreError>;

    /// Moves a shard of a source from the state `from` to `to`, where `None` is that it is not known, if it is in that state; true
    /// if it was.
    async fn move_shard(
        &self,
        source: Name,
        shard: String,
        from: Option<ShardCursor>,
        to: Option<ShardCursor>,
    ) -> Result<bool, StoreError>;

    /// Gives what the running totals have without a tenant to the tenants, as an audit has counted it; the sum stays as it is. True
    /// if that was done; false, and nothing has changed, if another assignment was applied since the instant of the audit.
    async fn assign_totals(&self, assignment: TotalsAssignment) -> Result<bool, StoreError>;
}
