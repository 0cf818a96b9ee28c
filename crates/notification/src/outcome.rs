//! Settlements: one decision per delivery, grouped because a chunk's deliveries mostly agree.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use crate::chunk::Epoch;
use crate::draft::Draft;
use crate::id::ChunkId;
use crate::lifecycle::State;
use crate::time::Timestamp;

/// The decision about a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Disposition {
    /// It ended. The state is terminal ([`State::is_terminal`]).
    Ended(State),
    /// The attempt is logged as deferred, and the next one is due at this instant.
    Retry {
        /// When the next attempt is due.
        at: Timestamp,
    },
    /// The attempt is logged, and the next one would be due when the notification has expired: it ends as [`State::Expired`] now.
    TooLate,
    /// No attempt was made: nothing is logged, and the same attempt is due at this instant.
    HandedBack {
        /// When the attempt is due.
        at: Timestamp,
    },
}

/// Deliveries of one chunk that came to the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutcomeGroup {
    /// The decision about them.
    pub disposition: Disposition,
    /// The protocol's status code, 0 when there was none.
    pub status: u16,
    /// The provider's reason; empty for a plain acceptance.
    pub detail: Cow<'static, str>,
    /// True if their recipients join the suppression list.
    pub suppress: bool,
    /// Since when recipients of the group are gone by the provider's own clock, by index; those of whom it said nothing
    /// are missing.
    pub gone_since: BTreeMap<u16, Timestamp>,
    /// Their places within the batch: never empty, ascending, distinct.
    pub indexes: Vec<u16>,
}

/// The outcomes of some deliveries of one chunk. A chunk may be settled in several parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settlement {
    /// The chunk.
    pub chunk: ChunkId,
    /// The claim that acted; another one makes this settlement stale.
    pub epoch: Epoch,
    /// When it was decided.
    pub at: Timestamp,
    /// Never empty; no index twice.
    pub groups: Vec<OutcomeGroup>,
    /// Attempts that may be under way to the lane's destination at a time, as its channel saw it last; 0 when that is not known.
    pub places: usize,
    /// How long its answers took on the wire lately, on the mean; `None` when there was none.
    pub latency: Option<Duration>,
    /// Messages a minute that go there by its refusals for the rate; `None` without any.
    pub rate_per_minute: Option<NonZeroU32>,
    /// The fallbacks of refused deliveries ([`Draft::in_place_of`]): accepted in the settling transaction, or not at all.
    pub fallbacks: Vec<Draft>,
}
