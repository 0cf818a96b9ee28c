//! The kinds of calls in one schedule: few of them, so that calls that may conflict do.

use std::iter::repeat_n;

use Kind::{
    AddOrSeal, Assign, Begin, CancelBroadcast, CancelMember, CancelOne, CancelScope, Claim, Die,
    Doubt, Drain, Erase, Ingest, IngestKeyed, IngestOther, Issue, Lift, MoveFeed, OpenBroadcast,
    Pause, Prune, Reap, Release, Requeue, Reschedule, Resolve, Resume, Settle, SettleLate,
    Suppress, Take, WriteOff,
};

/// A kind of call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Ingest,
    IngestKeyed,
    OpenBroadcast,
    AddOrSeal,
    Claim,
    Issue,
    Take,
    Begin,
    Settle,
    /// Settles what another one has claimed since.
    SettleLate,
    /// Settles as dead.
    Die,
    /// Settles as in doubt.
    Doubt,
    CancelOne,
    CancelMember,
    CancelBroadcast,
    /// A lane, a channel, or all.
    CancelScope,
    Release,
    WriteOff,
    Pause,
    Resume,
    Suppress,
    Lift,
    Reap,
    Requeue,
    Resolve,
    /// Gives one, or a broadcast, another time.
    Reschedule,
    Drain,
    MoveFeed,
    /// Removes the contents of what has ended.
    Prune,
    /// Erases one that was said to have ended, perhaps.
    Erase,
    /// Of another tenant.
    IngestOther,
    /// Gives what was counted without a tenant to the tenants.
    Assign,
}

/// Kinds with the number of their places, which is their frequency; a schedule keeps to one of these themes. Where the first kind is
/// a claim, every other schedule begins with all chunks claimed; where it is a slice, all begin with a sealed broadcast.
const THEMES: [&[(Kind, usize)]; 17] = [
    &[
        (Ingest, 1),
        (IngestKeyed, 1),
        (OpenBroadcast, 1),
        (AddOrSeal, 1),
        (Claim, 3),
        (Issue, 1),
        (Take, 2),
        (Begin, 2),
        (Settle, 3),
        (SettleLate, 1),
        (CancelOne, 1),
        (Release, 1),
        (CancelBroadcast, 1),
        (Suppress, 1),
        (Lift, 1),
        (Reap, 1),
        (Requeue, 1),
        (Drain, 1),
        (MoveFeed, 1),
        (Prune, 1),
    ],
    // Few notifications, which all callers request.
    &[(Claim, 4), (Begin, 3), (Settle, 4), (SettleLate, 2), (CancelOne, 2), (Reap, 2)],
    &[
        (OpenBroadcast, 1),
        (AddOrSeal, 4),
        (Release, 3),
        (CancelMember, 2),
        (CancelBroadcast, 2),
        (WriteOff, 1),
        (Claim, 2),
        (Issue, 1),
        (Take, 3),
        (Settle, 2),
        (SettleLate, 1),
        (Reap, 2),
    ],
    &[
        (Ingest, 1),
        (IngestKeyed, 3),
        (Suppress, 2),
        (Lift, 1),
        (Claim, 3),
        (CancelOne, 1),
        (Settle, 2),
    ],
    // Claimed notifications are withdrawn at the same time.
    &[(Ingest, 1), (Claim, 4), (CancelOne, 5), (Begin, 2), (Settle, 1)],
    // Dead notifications are sent again, by several callers at once.
    &[(Claim, 3), (Die, 3), (Settle, 1), (Requeue, 6), (CancelOne, 1), (Reap, 1)],
    // Applications write to the outbox, and a feed hands on.
    &[(Drain, 4), (IngestKeyed, 2), (Claim, 1), (Settle, 1), (MoveFeed, 4)],
    // Of what waits for its slice some is cancelled.
    &[
        (Release, 3),
        (CancelMember, 3),
        (CancelBroadcast, 1),
        (WriteOff, 1),
        (Claim, 2),
        (Settle, 1),
        (Reap, 1),
    ],
    // A broadcast is paused and resumed while it is released, claimed and cancelled.
    &[
        (Release, 3),
        (Pause, 2),
        (Resume, 2),
        (Claim, 3),
        (Issue, 1),
        (Take, 2),
        (Settle, 2),
        (CancelMember, 1),
        (CancelBroadcast, 1),
        (WriteOff, 1),
        (Reap, 1),
    ],
    // A scope is cancelled while parts of it are released, claimed and put away, and some of it is sent again.
    &[
        (Release, 2),
        (CancelScope, 4),
        (Requeue, 3),
        (CancelMember, 1),
        (CancelBroadcast, 1),
        (WriteOff, 1),
        (Pause, 1),
        (Resume, 1),
        (Claim, 3),
        (Issue, 1),
        (Take, 1),
        (Settle, 2),
        (Reap, 1),
    ],
    // Few notifications, which are cancelled and sent again by several at once.
    &[
        (Claim, 2),
        (CancelScope, 3),
        (CancelOne, 2),
        (Requeue, 5),
        (Die, 1),
        (Settle, 1),
        (Ingest, 1),
        (Reap, 1),
    ],
    // Contents are removed of what is sent again and cancelled at the same time.
    &[
        (Claim, 3),
        (Die, 3),
        (Prune, 3),
        (Requeue, 4),
        (CancelOne, 1),
        (CancelScope, 1),
        (Settle, 1),
        (Reap, 1),
    ],
    // Some is erased that is sent again and cancelled at the same time.
    &[(Claim, 4), (Die, 3), (Erase, 4), (Requeue, 4), (CancelOne, 2), (Settle, 1), (Reap, 1)],
    // What is in doubt is resolved, sent again and erased by several callers at once.
    &[
        (Claim, 3),
        (Begin, 1),
        (Doubt, 4),
        (Resolve, 5),
        (Requeue, 2),
        (Erase, 1),
        (Prune, 1),
        (CancelOne, 1),
        (Settle, 1),
        (Reap, 2),
    ],
    // Few notifications have another time while they are claimed, put back, cancelled and sent again.
    &[
        (Claim, 4),
        (Reschedule, 6),
        (Issue, 1),
        (Take, 2),
        (Settle, 2),
        (CancelOne, 1),
        (Requeue, 1),
        (Reap, 1),
    ],
    // A broadcast has another time while it is released, claimed, paused and cancelled.
    &[
        (Release, 3),
        (Reschedule, 4),
        (Claim, 3),
        (Issue, 1),
        (Take, 1),
        (Settle, 2),
        (Pause, 1),
        (Resume, 1),
        (CancelMember, 1),
        (CancelBroadcast, 1),
        (WriteOff, 1),
        (Reap, 1),
    ],
    // Processes of an earlier version fold the totals, and several callers assign them while two tenants send.
    &[
        (Claim, 3),
        (Assign, 5),
        (IngestOther, 2),
        (Ingest, 1),
        (Begin, 1),
        (Settle, 3),
        (SettleLate, 1),
        (Doubt, 1),
        (Reap, 1),
    ],
];

/// The kinds of the theme that `seed` has, each as often as it has places.
pub(super) fn theme(seed: u64) -> Vec<Kind> {
    let theme = THEMES[usize::try_from(seed % THEMES.len() as u64).unwrap()];
    theme.iter().flat_map(|&(kind, places)| repeat_n(kind, places)).collect()
}
