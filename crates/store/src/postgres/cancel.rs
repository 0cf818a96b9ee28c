//! Withdrawals: only what nobody holds can be cancelled. They read the chunks of one instant and lock the ready ones; a
//! chunk that changed since interrupts the transaction, which is run again.

use notification::{BroadcastId, Name, NotificationId, State, Timestamp};

use super::round::{Interrupted, Round};
use super::table::{Held, returning_chunk, small};
use crate::rows::codec::LogLine;
use crate::rows::members::Members;
use crate::{CancelTarget, Cancelled, StoreError};

const BATCH: &str = "SELECT accepted_at, count FROM batch AS b WHERE id = $1 AND tenant = $2 \
     AND (broadcast IS NULL \
       OR (SELECT sealed_at FROM broadcast AS o WHERE o.id = b.broadcast) IS NOT NULL)";
const BROADCAST: &str =
    "SELECT 1 FROM broadcast WHERE id = $1 AND tenant = $2 AND sealed_at IS NOT NULL";
const BROADCAST_COUNT: &str =
    "SELECT coalesce(sum(count), 0)::bigint FROM batch WHERE broadcast = $1";
const READY_OF_BATCH: &str = returning_chunk!(
    "SELECT",
    "FROM chunk AS c WHERE c.batch = $1 AND c.lease_until IS NULL ORDER BY c.id FOR UPDATE"
);
const READY_OF_BROADCAST: &str = returning_chunk!(
    "SELECT",
    "FROM batch AS b JOIN chunk AS c ON c.batch = b.id \
     WHERE b.broadcast = $1 AND c.lease_until IS NULL ORDER BY c.id FOR UPDATE OF c"
);
const HELD_OF_BATCH: &str =
    returning_chunk!("SELECT", "FROM chunk AS c WHERE c.batch = $1 AND c.lease_until IS NOT NULL");
const HELD_OF_BROADCAST: &str = "SELECT coalesce(sum(c.count), 0)::bigint FROM batch AS b \
     JOIN chunk AS c ON c.batch = b.id WHERE b.broadcast = $1 AND c.lease_until IS NOT NULL";

pub(super) async fn cancel(
    round: &mut Round<'_>,
    target: CancelTarget,
    tenant: &Name,
    now: Timestamp,
) -> Result<Option<Cancelled>, Interrupted> {
    match target {
        CancelTarget::Notification(id) => cancel_one(round, id, tenant, now).await,
        CancelTarget::Broadcast(id) => cancel_broadcast(round, id, tenant, now).await,
    }
}

async fn cancel_one(
    round: &mut Round<'_>,
    id: NotificationId,
    tenant: &Name,
    now: Timestamp,
) -> Result<Option<Cancelled>, Interrupted> {
    let batch = id.batch().0.cast_signed();
    let found = round.query(BATCH, &[&batch, &tenant.as_str()]).await?;
    let Some(row) = found.first() else { return Ok(None) };
    let accepted_at = Timestamp::from_millis(row.try_get(0)?);
    let count: u16 = small(row.try_get::<_, i32>(1)?)?;
    let same = NotificationId::new(accepted_at, round.shared.realm, id.batch(), id.index());
    if same != id || id.index() >= count {
        return Ok(None);
    }
    let mut cancelled = Cancelled::default();
    for row in round.query(HELD_OF_BATCH, &[&batch]).await? {
        let held = super::table::held(&row)?;
        cancelled.under_way += u64::from(held.row.members().contains(id.index()));
    }
    for chunk in round.hold(READY_OF_BATCH, &[&batch]).await? {
        let Some(held) = round.chunk(chunk).cloned() else { continue };
        if held.row.members().contains(id.index()) {
            withdraw(round, &held, &Members::from_iter([id.index()]), now);
            cancelled.cancelled = 1;
        }
    }
    cancelled.ended = 1 - cancelled.under_way - cancelled.cancelled;
    Ok(Some(cancelled))
}

async fn cancel_broadcast(
    round: &mut Round<'_>,
    id: BroadcastId,
    tenant: &Name,
    now: Timestamp,
) -> Result<Option<Cancelled>, Interrupted> {
    let number = id.0.cast_signed();
    if round.query(BROADCAST, &[&number, &tenant.as_str()]).await?.is_empty() {
        return Ok(None);
    }
    let mut cancelled = Cancelled::default();
    for chunk in round.hold(READY_OF_BROADCAST, &[&number]).await? {
        let Some(held) = round.chunk(chunk).cloned() else { continue };
        cancelled.cancelled += held.row.count as u64;
        withdraw(round, &held, &held.row.members(), now);
    }
    cancelled.under_way = sum(round, HELD_OF_BROADCAST, number).await?;
    let accepted = sum(round, BROADCAST_COUNT, number).await?;
    cancelled.ended = accepted - cancelled.under_way - cancelled.cancelled;
    Ok(Some(cancelled))
}

async fn sum(round: &Round<'_>, sql: &'static str, number: i64) -> Result<u64, Interrupted> {
    let rows = round.query(sql, &[&number]).await?;
    let row = rows.first().ok_or_else(|| StoreError::Damaged("no sum came".to_owned()))?;
    Ok(super::table::unsigned(row, 0)?)
}

fn withdraw(round: &mut Round<'_>, held: &Held, members: &Members, now: Timestamp) {
    let mut rest = held.row.members();
    for index in members.iter() {
        rest.remove(index);
    }
    round.end(held.row.batch, &LogLine::unattempted(now, State::Cancelled), members);
    round.shrink(held.row.id, &rest);
    round.thin(held.row.lane);
}
