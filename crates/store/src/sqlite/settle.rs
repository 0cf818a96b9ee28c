//! Outcomes: a row of the log for each settlement, and new chunks for what is tried again.

use notification::{Disposition, OutcomeGroup, Settlement, State, Timestamp};

use super::claim::deliveries;
use super::codec::{LogLine, LogRow};
use super::members::Members;
use super::round::{NewChunk, Round};
use super::rows::{BatchRow, ChunkRow};
use crate::{Settled, StoreError};

impl Round<'_> {
    pub(super) fn settle(&mut self, settlement: &Settlement) -> Result<Settled, StoreError> {
        let Some(chunk) = self.chunk(settlement.chunk)? else { return Ok(Settled::Stale) };
        if chunk.epoch != settlement.epoch || chunk.lease_until.is_none() {
            return Ok(Settled::Stale);
        }
        let mut rest = chunk.members();
        let mut indexes = settlement.groups.iter().flat_map(|group| &group.indexes);
        if !indexes.all(|&index| rest.remove(index)) {
            return Ok(Settled::Stale);
        }
        let mut row = LogRow::new();
        for group in &settlement.groups {
            self.settle_group(&chunk, group, settlement.at, &mut row)?;
        }
        self.add_log(chunk.batch, &row)?;
        self.shrink(chunk.id, &rest)?;
        let remaining = rest.len();
        self.desk.lanes.remove_claimed(chunk.lane, chunk.count - remaining, remaining == 0);
        // A lane that was full has room again.
        self.woke = true;
        Ok(Settled::Applied { remaining })
    }

    fn settle_group(
        &mut self,
        chunk: &ChunkRow,
        group: &OutcomeGroup,
        at: Timestamp,
        row: &mut LogRow,
    ) -> Result<(), StoreError> {
        let (status, detail) = (group.status, &*group.detail);
        let line = |attempt, state| LogLine { at, attempt, state, status, detail };
        let indexes = || group.indexes.iter().copied();
        match group.disposition {
            Disposition::Ended(state) => {
                let attempt = if state == State::Expired { 0 } else { chunk.attempt };
                row.push(&line(attempt, state), indexes());
                self.count_ended(state, group.indexes.len());
            }
            Disposition::Retry { at: due_at } => {
                row.push(&line(chunk.attempt, State::Pending), indexes());
                let attempt = chunk.attempt.saturating_add(1);
                self.add_part(&ChunkRow { due_at, attempt, crashes: 0, ..chunk.clone() }, group)?;
            }
            Disposition::HandedBack { at: due_at } => {
                // It was not started, so it ended no process.
                self.add_part(&ChunkRow { due_at, crashes: 0, ..chunk.clone() }, group)?;
            }
        }
        if group.suppress {
            self.suppress_group(chunk, group, at)?;
        }
        Ok(())
    }

    /// A chunk like `model`, of the members in `group`.
    fn add_part(&mut self, model: &ChunkRow, group: &OutcomeGroup) -> Result<(), StoreError> {
        let members: Members = group.indexes.iter().copied().collect();
        self.add_chunk(&NewChunk {
            batch: model.batch,
            lane: model.lane,
            due_at: model.due_at,
            attempt: model.attempt,
            crashes: model.crashes,
            count: group.indexes.len(),
            members: Some(&members),
        })
    }

    fn suppress_group(
        &mut self,
        chunk: &ChunkRow,
        group: &OutcomeGroup,
        since: Timestamp,
    ) -> Result<(), StoreError> {
        let lane = self.lane(chunk.lane)?;
        let missing = || StoreError::Damaged(format!("batch {} is missing", chunk.batch.0));
        let batch = BatchRow::find(self.connection, chunk.batch, &lane)?.ok_or_else(missing)?;
        let members: Members = group.indexes.iter().copied().collect();
        for delivery in deliveries(&batch, &members)? {
            self.suppress(&lane.channel, &delivery.recipient, &group.detail, since)?;
        }
        Ok(())
    }
}
