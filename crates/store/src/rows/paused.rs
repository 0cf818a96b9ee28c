//! Pauses as both backends store them, and what a claim does with a chunk that is paused.

use std::time::Duration;

use notification::{Envelope, Pause, Pauses, Timestamp};

use super::codes;
use crate::StoreError;

/// When a chunk comes up again of which only the notifications are paused, and not the lane: in a lane that is older than lanes
/// of tenants. There are none for long.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// Until when a chunk of `envelope` that came up in a claim is put away; `None` when it is not paused.
pub(crate) fn put_away_until(
    pauses: &Pauses,
    envelope: &Envelope,
    now: Timestamp,
) -> Option<Timestamp> {
    pauses.covers(envelope).then(|| now.plus(LOOK_AGAIN))
}

/// Reads a row of `pause`.
pub(crate) fn pause_of(tenant: &str, scope: &str, since: i64) -> Result<Pause, StoreError> {
    let damaged = |_| StoreError::Damaged(format!("the pause {scope:?}"));
    let (tenant, since) = (codes::name(tenant)?, Timestamp::from_millis(since));
    Ok(Pause { tenant, scope: scope.parse().map_err(damaged)?, since })
}
