//! Outcomes: a row of the log for each settlement, and new chunks for retries.

use std::collections::HashMap;

use notification::{Draft, OutcomeGroup, Settlement, Timestamp};

use super::rows::{self, select_chunk};
use super::transaction::Transaction;
use crate::rows::evidence::AttemptEvidence;
use crate::rows::labels;
use crate::rows::lanes::{SettledCall, SettledChunk};
use crate::rows::members::Members;
use crate::rows::model::{BatchRow, ChunkRow, NewChunk, deliveries};
use crate::rows::settlement;
use crate::{Settled, StoreError, Suppression};

impl Transaction<'_> {
    /// Applies settlements one after the other. [`note_settled`](Self::note_settled) tells the lanes of them, and not this: if
    /// the transaction is undone, it is done again.
    pub(super) fn settle(
        &mut self,
        settlements: &[Settlement],
    ) -> Result<Vec<Settled>, StoreError> {
        let mut answers = Vec::with_capacity(settlements.len());
        let mut call = SettledCall::default();
        for settlement in settlements {
            let Some((chunk, remaining)) = self.settle_chunk(settlement)? else {
                answers.push(Settled::Stale);
                continue;
            };
            let of_this = AttemptEvidence::of(settlement);
            let known = call.attempts.entry(chunk.lane);
            known.and_modify(|known| known.merge(of_this)).or_insert(of_this);
            answers.push(Settled::Applied { remaining });
            call.chunks.push(SettledChunk {
                id: chunk.id,
                lane: chunk.lane,
                items: chunk.count - remaining,
                is_gone: remaining == 0,
            });
            // A lane that was full has room again.
            self.woke = true;
        }
        self.settled.push(call);
        Ok(answers)
    }

    /// Tells the lanes of what was settled: at the commit, or earlier where the transaction goes by their load.
    pub(super) fn note_settled(&mut self) {
        for call in self.settled.drain(..) {
            self.state.lanes.note_settled(call);
        }
    }

    /// Writes one settlement; returns its chunk as it was before and how many deliveries are left of it, or `None` when it is
    /// stale.
    fn settle_chunk(
        &mut self,
        settlement: &Settlement,
    ) -> Result<Option<(ChunkRow, usize)>, StoreError> {
        let Some(chunk) = self.chunk(settlement.chunk)? else { return Ok(None) };
        let Some(applied) = settlement::apply(&chunk, settlement) else {
            return Ok(None);
        };
        if !applied.ended.is_empty() {
            let tenant = self.tenant_of(&chunk)?;
            for &(state, items) in &applied.ended {
                self.count_ended(&tenant, state, items);
            }
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
        Ok(Some((chunk, remaining)))
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
        mut drafts: Vec<Draft>,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        if drafts.is_empty() {
            return Ok(());
        }
        let mut labels = HashMap::new();
        for batch in labels::stood_in_for(&drafts) {
            labels.insert(batch, rows::batch_labels(self.connection, batch)?);
        }
        labels::inherit(&mut drafts, &labels);
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
