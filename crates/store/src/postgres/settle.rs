//! Outcomes: a row of the log for each settlement, and new chunks for what is tried again.

use std::collections::{BTreeSet, HashMap};

use notification::{BatchId, OutcomeGroup, Settlement, Timestamp, limits};

use super::round::{Interrupted, NewChunk, Round};
use super::table::{SELECT_BATCHES, batch};
use crate::rows::members::Members;
use crate::rows::model::{BatchRow, deliveries};
use crate::rows::settlement::apply;
use crate::{Settled, StoreError, Suppression};

/// Applies settlements to chunks in hand, in order.
pub(super) async fn settle(
    round: &mut Round<'_>,
    settlements: &[Settlement],
) -> Result<Vec<Settled>, Interrupted> {
    let mut answers = Vec::with_capacity(settlements.len());
    let mut suppressed = Vec::new();
    for settlement in settlements {
        let held = round.chunk(settlement.chunk).filter(|held| !held.is_ticket).cloned();
        let applied = held.as_ref().and_then(|held| apply(&held.row, settlement));
        let (Some(held), Some(applied)) = (held, applied) else {
            answers.push(Settled::Stale);
            continue;
        };
        let row = held.row;
        for part in applied.parts {
            round.add_chunk(NewChunk {
                batch: row.batch,
                lane: row.lane,
                due_at: part.due_at,
                attempt: part.attempt,
                crashes: part.crashes,
                count: part.members.len(),
                members: Some(part.members),
            });
        }
        for (state, items) in applied.ended {
            round.count_ended(state, items);
        }
        let groups = applied.suppressed.into_iter();
        suppressed.extend(groups.map(|group| (row.batch, group, settlement.at)));
        round.add_log(row.batch, applied.log);
        round.shrink(row.id, &applied.rest);
        let remaining = applied.rest.len();
        let gone = if remaining == 0 { limits::CHUNK_WEIGHT } else { 0 };
        round.free(held.partition, row.lane, row.count - remaining + gone);
        answers.push(Settled::Applied { remaining });
    }
    suppress(round, &suppressed).await?;
    Ok(answers)
}

/// Puts the recipients of groups on the suppression list.
async fn suppress(
    round: &mut Round<'_>,
    groups: &[(BatchId, &OutcomeGroup, Timestamp)],
) -> Result<(), Interrupted> {
    if groups.is_empty() {
        return Ok(());
    }
    let batches = batches(round, groups.iter().map(|(batch, ..)| *batch)).await?;
    for (id, group, since) in groups {
        let found = batches.get(id).ok_or_else(|| missing(*id))?;
        let members: Members = group.indexes.iter().copied().collect();
        for delivery in deliveries(found, &members)? {
            round.suppress(Suppression {
                channel: found.envelope.lane.channel.clone(),
                recipient: delivery.recipient,
                reason: group.detail.clone().into_owned(),
                since: *since,
            });
        }
    }
    Ok(())
}

/// Reads batches.
pub(super) async fn batches(
    round: &Round<'_>,
    wanted: impl Iterator<Item = BatchId>,
) -> Result<HashMap<BatchId, BatchRow>, Interrupted> {
    let wanted: BTreeSet<i64> = wanted.map(|id| id.0.cast_signed()).collect();
    let wanted: Vec<i64> = wanted.into_iter().collect();
    let mut batches = HashMap::with_capacity(wanted.len());
    for row in round.query(SELECT_BATCHES, &[&wanted]).await? {
        let found = batch(&row)?;
        batches.insert(found.id, found);
    }
    Ok(batches)
}

pub(super) fn missing(batch: BatchId) -> StoreError {
    StoreError::Damaged(format!("batch {} is missing", batch.0))
}
