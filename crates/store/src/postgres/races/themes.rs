//! What is asked in one schedule: few kinds of calls, so that what may meet does.

use Kind::{
    AddOrSeal, Begin, Bury, CancelBroadcast, CancelOne, Claim, Die, Drain, Ingest, IngestKeyed,
    Issue, Lift, MoveFeed, OpenBroadcast, Requeue, Settle, Suppress, Take,
};

/// What can be asked.
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
    /// Settles as dead.
    Die,
    CancelOne,
    CancelBroadcast,
    Suppress,
    Lift,
    Bury,
    Requeue,
    Drain,
    MoveFeed,
}

/// How often each kind is asked, by its number of places; a schedule keeps to one of these.
pub(super) const THEMES: [&[Kind]; 6] = [
    &[
        Ingest,
        IngestKeyed,
        OpenBroadcast,
        AddOrSeal,
        Claim,
        Claim,
        Claim,
        Issue,
        Take,
        Take,
        Begin,
        Begin,
        Settle,
        Settle,
        Settle,
        CancelOne,
        CancelBroadcast,
        Suppress,
        Lift,
        Bury,
        Requeue,
        Drain,
        MoveFeed,
    ],
    // Few notifications, and everybody wants them.
    &[
        Claim, Claim, Claim, Claim, Begin, Begin, Begin, Settle, Settle, Settle, Settle, CancelOne,
        CancelOne, Bury, Bury,
    ],
    &[
        OpenBroadcast,
        AddOrSeal,
        AddOrSeal,
        AddOrSeal,
        AddOrSeal,
        CancelBroadcast,
        CancelBroadcast,
        Claim,
        Claim,
        Issue,
        Take,
        Take,
        Take,
        Settle,
        Settle,
        Bury,
        Bury,
    ],
    &[
        Ingest,
        IngestKeyed,
        IngestKeyed,
        IngestKeyed,
        Suppress,
        Suppress,
        Lift,
        Claim,
        Claim,
        Claim,
        CancelOne,
        Settle,
        Settle,
    ],
    // What died is sent again, by several at once.
    &[
        Claim, Claim, Claim, Die, Die, Die, Settle, Requeue, Requeue, Requeue, Requeue, Requeue,
        Requeue, CancelOne, Bury,
    ],
    // Applications write to the outbox, and a feed hands on.
    &[
        Drain,
        Drain,
        Drain,
        Drain,
        IngestKeyed,
        IngestKeyed,
        Claim,
        Settle,
        MoveFeed,
        MoveFeed,
        MoveFeed,
        MoveFeed,
    ],
];
