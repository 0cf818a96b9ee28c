//! What a process left that is gone: what it held is due again, its partitions are free, its broadcasts never were.

use notification::{State, Timestamp, limits};

use super::board::Place;
use super::round::{Interrupted, NewChunk, Round};
use super::table::{Held, returning_chunk};
use crate::rows::codec::LogLine;
use crate::rows::members::Members;
use crate::rows::settlement::{Crashed, begun_and_rest, crashed};

const LOCK_WORKER: &str = "SELECT id FROM worker \
     WHERE id = $1 AND ($2 OR alive_until < clock_timestamp()) FOR UPDATE SKIP LOCKED";
const LOCK_CHUNKS: &str = returning_chunk!(
    "SELECT",
    "FROM chunk AS c WHERE c.worker = $1 AND c.lease_until IS NOT NULL AND NOT c.is_ticket \
     ORDER BY c.id FOR UPDATE"
);
const ABANDON_BATCHES: &str = "DELETE FROM batch WHERE broadcast = ANY(ARRAY( \
     SELECT id FROM broadcast WHERE worker = $1 AND sealed_at IS NULL FOR UPDATE))";
const ABANDON: &str = "DELETE FROM broadcast WHERE worker = $1 AND sealed_at IS NULL";
const FREE_PARTITIONS: &str = "UPDATE partition SET owner = NULL, epoch = epoch + 1 WHERE id = ANY(ARRAY( \
     SELECT id FROM partition WHERE owner = $1 ORDER BY id FOR UPDATE))";
const REMOVE_WORKER: &str = "DELETE FROM worker WHERE id = $1";

/// Removes `worker` if it is overdue, or leaves in an orderly way; false when it is alive, gone, or somebody else is
/// at it.
pub(super) async fn bury(
    round: &mut Round<'_>,
    worker: i64,
    is_orderly: bool,
    now: Timestamp,
) -> Result<bool, Interrupted> {
    if round.query(LOCK_WORKER, &[&worker, &is_orderly]).await?.is_empty() {
        return Ok(false);
    }
    for chunk in round.hold(LOCK_CHUNKS, &[&worker]).await? {
        let Some(held) = round.chunk(chunk).cloned() else { continue };
        let rest = end_lease(round, held, now, "process ended");
        if !rest.is_empty() {
            count_crash(round, chunk, &rest, now);
        }
    }
    round.query(ABANDON_BATCHES, &[&worker]).await?;
    round.query(ABANDON, &[&worker]).await?;
    round.query(FREE_PARTITIONS, &[&worker]).await?;
    round.query(REMOVE_WORKER, &[&worker]).await?;
    round.tell_everything();
    Ok(true)
}

/// Ends the claim of a chunk in hand: logs as in doubt what had begun, and makes the rest, which is returned, ready.
pub(super) fn end_lease(
    round: &mut Round<'_>,
    held: Held,
    now: Timestamp,
    detail: &str,
) -> Members {
    let (begun, rest) = begun_and_rest(&held.row);
    let (attempt, state) = (held.row.attempt, State::InDoubt);
    round.end(held.row.batch, &LogLine { at: now, attempt, state, status: 0, detail }, &begun);
    round.free(held.partition, held.row.lane, held.row.count + limits::CHUNK_WEIGHT);
    let (id, batch, lane) = (held.row.id, held.row.batch, held.row.lane);
    let place = Place { due_at: held.row.due_at, chunk: id.0.cast_signed() };
    let row = crate::rows::model::ChunkRow { lease_until: None, begun_through: None, ..held.row };
    round.change(Held { row, worker: None, is_ticket: false, ..held });
    if !begun.is_empty() {
        round.shrink(id, &rest);
    }
    if !rest.is_empty() {
        round.due(batch, lane, place);
    }
    rest
}

/// Notes that `rest` of a chunk in hand was in flight in one more crash.
fn count_crash(
    round: &mut Round<'_>,
    chunk: notification::ChunkId,
    rest: &Members,
    now: Timestamp,
) {
    let Some(mut held) = round.chunk(chunk).cloned() else { return };
    match crashed(&held.row, rest) {
        Crashed::Returned { crashes } => {
            held.row.crashes = crashes;
            round.change(held);
        }
        Crashed::Halved { first, second } => {
            held.row.crashes = second.crashes;
            let (batch, lane) = (held.row.batch, held.row.lane);
            round.change(held);
            round.shrink(chunk, &first);
            round.add_chunk(NewChunk {
                batch,
                lane,
                due_at: second.due_at,
                attempt: second.attempt,
                crashes: second.crashes,
                count: second.members.len(),
                members: Some(second.members),
            });
        }
        Crashed::Quarantined(detail) => {
            let (attempt, state) = (held.row.attempt, State::Dead);
            let line = LogLine { at: now, attempt, state, status: 0, detail: &detail };
            round.end(held.row.batch, &line, rest);
            round.shrink(chunk, &Members::default());
        }
    }
}
