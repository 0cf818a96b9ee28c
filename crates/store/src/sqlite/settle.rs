//! Outcomes: a row of the log for each settlement, and new chunks for retries.

use notification::{Draft, OutcomeGroup, Settlement, Timestamp};

use super::rows::{self, select_chunk};
use super::transaction::Transaction;
use crate::rows::evidence::AttemptEvidence;
use crate::rows::members::Members;
use crate::rows::model::{BatchRow, ChunkRow, NewChunk, deliveries};
use crate::rows::settlement;
use crate::{Settled, StoreError, Suppression};

impl Transaction<'_> {
    pub(super) fn settle(&mut self, settlement: &Settlement) -> Result<Settled, StoreError> {
        let Some(chunk) = self.chunk(settlement.chunk)? else { return Ok(Settled::Stale) };
        let Some(applied) = settlement::apply(&chunk, settlement) else {
            return Ok(Settled::Stale);
        };
        for &(state, items) in &applied.ended {
            self.count_ended(state, items);
        }
        self.add_log(chunk.batch, &applied.log)?;
        for part in &applied.parts {
            self.due_again(part)?;
        }
        for group in applied.suppressed {
            self.suppress_group(&chunk, group, settlement.at)?;
        }
        self.set_members(chunk.id, &applied.rest)?;
        self.accept_fallbacks(settlement.fallbacks.clone(), settlement.at)?;
        let remaining = applied.rest.len();
        // Before some of its load is freed: a lane was busy by what it held when it was answered.
        self.state.lanes.note_attempts(chunk.lane, AttemptEvidence::of(settlement));
        if remaining == 0 {
            // The bytes of a chunk stay in memory until all of it is settled.
            self.state.lanes.remove_bytes(chunk.lane, chunk.id);
        }
        self.state.lanes.remove_claimed(chunk.lane, chunk.count - remaining, remaining == 0);
        // A lane that was full has room again.
        self.woke = true;
        Ok(Settled::Applied { remaining })
    }

    /// Makes members due again: those of a batch that are due at one instant after as many attempts are one chunk, whenever they
    /// were settled.
    fn due_again(&mut self, part: &NewChunk) -> Result<(), StoreError> {
        let select = self
            .sql(select_chunk!("batch = ?1 AND due_at = ?2 AND lease_until IS NULL ORDER BY id"))?;
        let ready = rows::chunks(select, [part.batch.0.cast_signed(), part.due_at.millis()])?;
        let Some(ready) = ready.into_iter().find(|ready| part.joins(ready)) else {
            return self.add_chunk(part);
        };
        let mut members = ready.members();
        members.extend(&part.members);
        self.set_members(ready.id, &members)?;
        self.add_due(part.lane, part.due_at)
    }

    /// Accepts what stands in for notifications that end in this transaction.
    pub(super) fn accept_fallbacks(
        &mut self,
        drafts: Vec<Draft>,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        if drafts.is_empty() {
            return Ok(());
        }
        self.pack(drafts, now)?;
        self.store_packed()
    }

    fn suppress_group(
        &mut self,
        chunk: &ChunkRow,
        group: &OutcomeGroup,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        let lane = self.lane(chunk.lane)?;
        let batch = BatchRow::read(self.connection, chunk.batch, &lane)?;
        let members: Members = group.indexes.iter().copied().collect();
        for delivery in deliveries(&batch, &members)? {
            let whose = (lane.channel.clone(), delivery.recipient);
            let (suppression, gone_since) = Suppression::of_group(group, whose, delivery.index, at);
            self.suppress(&suppression, gone_since, at)?;
        }
        Ok(())
    }
}
