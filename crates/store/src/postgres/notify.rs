//! When notices to other processes are sent: not while this process is alone, and not while the server refuses them.
//!
//! PostgreSQL commits the transactions that notify one after the other, cluster-wide. A session that listens and never
//! reads (one idle in a transaction) lets its queue grow until it is full; then every COMMIT with a notification fails
//! with SQLSTATE 54000, and its transaction is rolled back. Notices only make things faster: each process looks at
//! everything now and then. So what was refused with its notices is repeated without, and none are sent for a while.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use flow::Clock;
use tokio_postgres::Error;

use super::errors;
use super::notices::Notice;

/// The rule by which this process notifies the other ones. Its writers and its membership share one.
#[derive(Debug)]
pub(super) struct NotifyPolicy {
    clock: Clock,
    /// True if there are other workers, as of the last look.
    has_listeners: AtomicBool,
    /// The time since boot from which on notices are sent again.
    muted_until: Mutex<Duration>,
    /// True if notices were kept back while muted.
    has_missed: AtomicBool,
}

/// Time without notices after the server had no room for one: each try costs a transaction.
pub(super) const MUTED_FOR: Duration = Duration::from_secs(5);

// === impl NotifyPolicy ===

impl NotifyPolicy {
    /// Other processes are taken to listen until the first look at the cluster.
    pub(super) const fn new(clock: Clock) -> Self {
        Self {
            clock,
            has_listeners: AtomicBool::new(true),
            muted_until: Mutex::new(Duration::ZERO),
            has_missed: AtomicBool::new(false),
        }
    }

    /// Notes whether there are other workers. A process that joins needs no notices before that is seen: it joins, tells the
    /// cluster, and reads all that its partitions have once it owns some. It gets those of this process only from a
    /// beat, which looks for other workers first. What a transaction commits that was under way during that beat is found by
    /// the look at everything.
    pub(super) fn set_has_listeners(&self, has_listeners: bool) {
        self.has_listeners.store(has_listeners, Ordering::Release);
    }

    /// Those of `notices` that are to be sent. After a pause, one that stands for all that was kept back.
    pub(super) fn select(&self, notices: Vec<Notice>) -> Vec<Notice> {
        if notices.is_empty() || !self.has_listeners.load(Ordering::Acquire) {
            return Vec::new();
        }
        if self.is_muted() {
            self.note_missed();
            return Vec::new();
        }
        if self.has_missed.swap(false, Ordering::AcqRel) {
            return vec![Notice::Everything];
        }
        notices
    }

    pub(super) fn is_muted(&self) -> bool {
        self.clock.boot() < *self.lock()
    }

    /// Begins a pause if `error` says that the server had no room for a notification; whether it does. The caller has
    /// sent one.
    pub(super) fn mute_after(&self, error: &Error) -> bool {
        if !errors::is_notify_queue_full(error) {
            return false;
        }
        let now = self.clock.boot();
        let mut muted_until = self.lock();
        // If another writer has begun the pause, it is neither made longer nor told twice.
        if *muted_until <= now {
            let reason = errors::in_words(error);
            tracing::warn!(
                reason,
                seconds = MUTED_FOR.as_secs(),
                "the queue of notifications is full, so none are sent for some seconds: other processes see new work later; \
                 end the session that keeps it full (SELECT pg_notification_queue_usage())"
            );
            *muted_until = now + MUTED_FOR;
        }
        true
    }

    /// Notices were not sent: the next ones are one that stands for all.
    pub(super) fn note_missed(&self) {
        self.has_missed.store(true, Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, Duration> {
        self.muted_until.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
