//! Another time for a notification that waits, or for what waits of a broadcast.

use notification::{Name, Timestamp};

use crate::CancelTarget;

/// A change of the time at which what waits of a target is due.
///
/// What is claimed, or has ended, is left as it is and counted. A claim that is under way meanwhile either has the notification,
/// and then it counts as under way, or finds it at its new time. The times of attempts, states and counts are no part of the
/// change: a notification that waits for a retry keeps the number of its attempt.
///
/// The chunks of a broadcast follow slice by slice, behind a first transaction that changes the time of all that has no chunk yet
/// (decision 0023). A call that is cut off has changed the time of these, and of some of the rest: asked again, it does the
/// remainder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reschedule {
    /// A notification, or a broadcast.
    pub target: CancelTarget,
    /// Tenant that owns the target.
    pub tenant: Name,
    /// The new time. One that has passed stands for `now`.
    pub send_at: Timestamp,
    /// Time of the call.
    pub now: Timestamp,
}

/// Counts of notifications that have a new time, and of those for which it came too late.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RescheduleCounts {
    /// Waiting, and due at the new time; those that were due then before are among them.
    pub rescheduled: u64,
    /// Too late: claimed, and perhaps on the wire.
    pub under_way: u64,
    /// Too late: ended before.
    pub ended: u64,
}

/// The answer to a [`Reschedule`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rescheduled {
    /// It was done as far as these counts say.
    Counted(RescheduleCounts),
    /// It would be due at its `expires_at` or later: nothing has changed.
    Expired {
        /// Time from which on it is not sent.
        expires_at: Timestamp,
    },
    /// The notification waits with its broadcast, which is not released so far (decision 0023), and has no time of its own until
    /// then: nothing has changed.
    NotYet,
    /// Another call gave the broadcast another time meanwhile: what waits of it has that one, or will have when that call ends.
    Overtaken,
    /// The tenant has no such notification or broadcast.
    Unknown,
}

// === impl Reschedule ===

impl Reschedule {
    /// The new due time.
    pub(crate) fn due_at(&self) -> Timestamp {
        self.send_at.max(self.now)
    }

    /// The refusal for a target that ends at `expires_at`, if it would be due then or later.
    pub(crate) fn refusal(&self, expires_at: Option<Timestamp>) -> Option<Rescheduled> {
        let expires_at = expires_at.filter(|expires_at| *expires_at <= self.due_at())?;
        Some(Rescheduled::Expired { expires_at })
    }
}

// === impl RescheduleCounts ===

impl RescheduleCounts {
    pub(crate) const ONE: Self = Self { rescheduled: 1, under_way: 0, ended: 0 };
    pub(crate) const ONE_UNDER_WAY: Self = Self { rescheduled: 0, under_way: 1, ended: 0 };
    pub(crate) const ONE_ENDED: Self = Self { rescheduled: 0, under_way: 0, ended: 1 };
}
