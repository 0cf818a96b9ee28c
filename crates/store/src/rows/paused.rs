//! Pauses as both backends store them, and the effect of a pause on a chunk that is claimed.

use std::time::Duration;

use notification::{Envelope, Pause, Pauses, Timestamp, limits};

use super::codes;
use crate::StoreError;

/// Time after which a chunk comes up again that is paused but not put away for longer: in a lane that is older than lanes of
/// tenants, and under a pause that has ended and is in force here for some milliseconds more.
const LOOK_AGAIN: Duration = limits::WORKER_BEAT;

/// Due time of a chunk of a broadcast that is put away, unless it expires before: the year 9999. Resuming the broadcast ends it.
pub(crate) const PUT_AWAY: Timestamp = Timestamp::from_millis(253_370_764_800_000);

/// Time until which a chunk of `envelope` that came up in a claim is put away; `None` when it is not paused. The `held` pauses
/// cannot end before this transaction does.
pub(crate) fn put_away_until(
    pauses: &Pauses,
    held: &Pauses,
    envelope: &Envelope,
    now: Timestamp,
) -> Option<Timestamp> {
    let until = match held.broadcast_of(envelope) {
        // It comes up when it expires, so that it ends on time though it is paused.
        Some(_) => envelope.expires_at.map_or(PUT_AWAY, |expires_at| expires_at.min(PUT_AWAY)),
        None => now.plus(LOOK_AGAIN),
    };
    pauses.covers(envelope).then_some(until)
}

/// Reads a row of `pause`.
pub(crate) fn pause_of(tenant: &str, scope: &str, since: i64) -> Result<Pause, StoreError> {
    let damaged = |_| StoreError::Damaged(format!("the pause {scope:?}"));
    let (tenant, since) = (codes::name(tenant)?, Timestamp::from_millis(since));
    Ok(Pause { tenant, scope: scope.parse().map_err(damaged)?, since })
}
