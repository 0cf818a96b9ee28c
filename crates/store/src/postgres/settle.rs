//! Outcomes: a row of the log for each settlement, and new chunks for retries.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use async_trait::async_trait;
use notification::{ChunkId, Epoch, Guarantee, OutcomeGroup, Settlement, Timestamp};

use super::columns::{chunk_at, select_chunk};
use super::request::{WriterHandle, WriterRequest};
use super::suppress::SuppressionReport;
use super::transaction::{RunError, Transaction, Writes};
use crate::rows::codes;
use crate::rows::evidence::AttemptEvidence;
use crate::rows::members::Members;
use crate::rows::model::{ChunkRow, NewChunk, deliveries};
use crate::rows::settlement;
use crate::{Mark, MarkAnswer, Settled, StoreError, Suppression};

/// Writes outcomes.
#[derive(Debug)]
pub(super) struct SettleChunks(pub(super) Arc<[Settlement]>);

/// Marks at-most-once deliveries as begun.
#[derive(Debug)]
pub(super) struct BeginDeliveries(pub(super) Vec<Mark>);

#[async_trait]
impl WriterRequest for SettleChunks {
    type Answer = Vec<Settled>;

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<Self::Answer, RunError> {
        let Self(settlements) = self;
        let ids: Vec<i64> = settlements.iter().map(|part| part.chunk.0.cast_signed()).collect();
        // Locked before anything is judged: the epoch that is compared below must still be the chunk's when its rows are written.
        let mut chunks = transaction.lock_chunks(&ids).await?;
        let tenants = transaction.tenants_of(chunks.values()).await?;
        let mut writes = Writes::default();
        let mut answers = Vec::with_capacity(settlements.len());
        let (mut suppressed, mut again) = (Vec::new(), Vec::new());
        for settlement in settlements.iter() {
            let applied = chunks
                .get(&settlement.chunk)
                .and_then(|chunk| Some((chunk, settlement::apply(chunk, settlement)?)));
            let Some((chunk, applied)) = applied else {
                answers.push(Settled::Stale);
                continue;
            };
            let tenant = tenants.of(chunk.batch)?;
            for &(state, items) in &applied.ended {
                transaction.count_ended(tenant, state, items);
            }
            writes.log(chunk.batch, &applied.log);
            again.extend(applied.parts);
            for group in applied.suppressed {
                suppressed.push((chunk.clone(), group, settlement.at));
            }
            writes.set_members(chunk, &applied.rest);
            let remaining = applied.rest.len();
            transaction.tried(chunk.lane, AttemptEvidence::of(settlement));
            // Parts that are due again are freed as well: they are no longer claimed, and count anew with the claim that takes
            // them.
            transaction.freed(chunk, chunk.count - remaining, remaining == 0);
            transaction.effects.settled += (chunk.count - remaining) as u64;
            answers.push(Settled::Applied { remaining });
            // A settlement behind this one may be of the same chunk, and applies to the rest of it.
            if let Some(chunk) = chunks.get_mut(&settlement.chunk) {
                chunk.count = remaining;
                chunk.members = Some(applied.rest);
            }
        }
        transaction.due_again(&mut writes, again).await?;
        transaction.suppress_groups(&suppressed).await?;
        transaction.write(writes).await?;
        // What is stale was settled by another holder of the chunk, and its fallbacks with it.
        let applied = settlements.iter().zip(&answers);
        let applied = applied.filter(|(_, answer)| **answer != Settled::Stale);
        for (settlement, _) in applied {
            transaction.accept_fallbacks(settlement.fallbacks.clone(), settlement.at).await?;
        }
        Ok(answers)
    }
}

#[async_trait]
impl WriterRequest for BeginDeliveries {
    type Answer = Vec<MarkAnswer>;

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<Self::Answer, RunError> {
        let ids: Vec<i64> = self.0.iter().map(|mark| mark.chunk.0.cast_signed()).collect();
        // Not by their numbers alone, as for a settlement: a mark permits an attempt, and a worker that is overdue may start none.
        let mut chunks = transaction.lock_held(&ids).await?;
        let overdue = transaction.overdue_among(&self.0, &chunks).await?;
        let guarantees = transaction.guarantees(chunks.values()).await?;
        let mut answers = Vec::with_capacity(self.0.len());
        let (mut marked, mut throughs) = (Vec::new(), Vec::new());
        for mark in &self.0 {
            let chunk = chunks
                .get_mut(&mark.chunk)
                .filter(|chunk| chunk.epoch == mark.epoch && chunk.lease_until.is_some());
            let Some(chunk) = chunk else {
                let is_overdue = overdue.contains(&(mark.chunk, mark.epoch));
                answers.push(if is_overdue { MarkAnswer::Overdue } else { MarkAnswer::Stale });
                continue;
            };
            if guarantees.get(&chunk.batch) == Some(&Guarantee::AtMostOnce) {
                // A queue may give the same chunk out twice, and the other run has begun this far: to send it again would break
                // at most once.
                if chunk.begun_through.is_some_and(|begun| mark.through <= begun) {
                    answers.push(MarkAnswer::Stale);
                    continue;
                }
                // A later mark in the same request is compared with this one.
                chunk.begun_through = Some(mark.through);
                marked.push(mark.chunk.0.cast_signed());
                throughs.push(i32::from(mark.through));
            }
            answers.push(MarkAnswer::Granted);
        }
        if !marked.is_empty() {
            let update = "UPDATE chunk SET begun_through = mark.through FROM ( \
                 SELECT id, max(through) AS through FROM unnest($1::int8[], $2::int4[]) AS mark (id, through) \
                 GROUP BY id) AS mark WHERE chunk.id = mark.id";
            // A chunk that is marked twice is changed once, to the higher mark.
            let distinct = marked.iter().collect::<HashSet<_>>().len();
            transaction.change(update, distinct, &[&marked, &throughs]).await?;
        }
        Ok(answers)
    }
}

// === impl WriterHandle ===

impl WriterHandle {
    /// Writes outcomes; each alone if one of them cannot be written.
    ///
    /// # Errors
    /// When one cannot be written even alone. The process must not go on: it would send settled deliveries again. All others are
    /// written by then.
    pub(super) async fn settle(
        &self,
        settlements: Arc<[Settlement]>,
    ) -> Result<Vec<Settled>, StoreError> {
        let settled = self.run(SettleChunks(Arc::clone(&settlements))).await;
        // The refusal may be of one settlement only, and what the others say was sent would be sent again if it went with it.
        let is_refused = |error: &StoreError| {
            matches!(
                error,
                StoreError::Invalid(_) | StoreError::Undone(_) | StoreError::Unavailable(_)
            )
        };
        if !settled.as_ref().is_err_and(is_refused) {
            return settled;
        }
        let mut answers = Vec::with_capacity(settlements.len());
        let mut failure = None;
        for settlement in settlements.iter() {
            match self.run_at_last(settlement).await {
                Ok(answer) => answers.extend(answer),
                // The rest is still written: these outcomes are known here alone, and the process ends behind them.
                Err(error) => failure = Some(error),
            }
        }
        failure.map_or(Ok(answers), |error| Err(error.ending()))
    }

    /// Writes the outcomes of one settlement, for as long as another transaction is in the way.
    async fn run_at_last(&self, settlement: &Settlement) -> Result<Vec<Settled>, StoreError> {
        loop {
            match self.run(SettleChunks([settlement.clone()].into())).await {
                Err(StoreError::Unavailable(reason)) => {
                    tracing::warn!(reason, "outcomes wait for another transaction to end");
                }
                settled => return settled,
            }
        }
    }
}

// === impl Transaction ===

impl Transaction<'_> {
    /// The rows, locked, of those chunks that this process holds, if it is alive: a process that reaps an expired worker has
    /// locked the same rows, and finds them begun, or ends their claims.
    async fn lock_held(&mut self, ids: &[i64]) -> Result<HashMap<ChunkId, ChunkRow>, RunError> {
        let select = select_chunk!(
            "FROM chunk WHERE id = ANY($1) AND worker = $2 AND EXISTS ( \
               SELECT FROM worker WHERE worker.id = $2 AND alive_until >= clock_timestamp()) \
             ORDER BY id FOR UPDATE"
        );
        let worker = self.state.membership.borrow().worker;
        let rows = self.rows(select, &[&ids, &worker]).await?;
        let chunks = rows.iter().map(|row| chunk_at(row).map(|chunk| (chunk.id, chunk)));
        Ok(chunks.collect::<Result<_, _>>()?)
    }

    /// The claims of `marks` that are this process's own and not among the chunks that it `held`: its lease on itself was over
    /// when those were looked for. It is about to be renewed, or another process to end its claims; if they were called stale, no
    /// process would send their chunks until the leases end.
    async fn overdue_among(
        &mut self,
        marks: &[Mark],
        held: &HashMap<ChunkId, ChunkRow>,
    ) -> Result<HashSet<(ChunkId, Epoch)>, RunError> {
        let others = marks.iter().filter(|mark| !held.contains_key(&mark.chunk));
        let ids: Vec<i64> = others.map(|mark| mark.chunk.0.cast_signed()).collect();
        if ids.is_empty() {
            return Ok(HashSet::new());
        }
        let select = select_chunk!(
            "FROM chunk WHERE id = ANY($1) AND worker = $2 AND lease_until IS NOT NULL"
        );
        let worker = self.state.membership.borrow().worker;
        let rows = self.rows(select, &[&ids, &worker]).await?;
        let claim = |row| chunk_at(row).map(|chunk| (chunk.id, chunk.epoch));
        Ok(rows.iter().map(claim).collect::<Result<_, _>>()?)
    }

    /// Guarantees of the batches of `chunks`.
    async fn guarantees<'c>(
        &mut self,
        chunks: impl Iterator<Item = &'c ChunkRow>,
    ) -> Result<HashMap<notification::BatchId, Guarantee>, RunError> {
        let batches: Vec<i64> = chunks.map(|chunk| chunk.batch.0.cast_signed()).collect();
        let select = "SELECT id, guarantee FROM batch WHERE id = ANY($1)";
        let rows = self.rows(select, &[&batches]).await?;
        let guarantees = rows.iter().map(|row| {
            let batch = notification::BatchId(row.try_get::<_, i64>(0)?.cast_unsigned());
            let code = u8::try_from(row.try_get::<_, i16>(1)?).unwrap_or(u8::MAX);
            Ok((batch, codes::guarantee(code)?))
        });
        guarantees.collect()
    }

    /// Makes members due again: those of a batch that are due at one instant after as many attempts are one chunk, whenever they
    /// were settled.
    async fn due_again(
        &mut self,
        writes: &mut Writes,
        again: Vec<NewChunk>,
    ) -> Result<(), RunError> {
        if again.is_empty() {
            return Ok(());
        }
        let (batches, dues): (Vec<i64>, Vec<i64>) =
            again.iter().map(|part| (part.batch.0.cast_signed(), part.due_at.millis())).unzip();
        // A chunk that another transaction holds is not waited for: the members become a chunk beside it. The conditions are written
        // so that the index by batch alone serves them.
        let select = select_chunk!(
            "FROM chunk WHERE batch = ANY($1) AND due_at + 0 = ANY($2) AND (lease_until IS NULL)::int = 1 \
             ORDER BY id FOR UPDATE SKIP LOCKED"
        );
        let rows = self.rows(select, &[&batches, &dues]).await?;
        let ready: Vec<ChunkRow> = rows.iter().map(chunk_at).collect::<Result<_, _>>()?;
        for part in together(again) {
            let Some(ready) = ready.iter().find(|ready| part.joins(ready)) else {
                writes.chunk(part);
                continue;
            };
            let mut members = ready.members();
            members.extend(&part.members);
            // It is told of again: a claim may have looked past it.
            self.due(ready.lane, ready.due_at);
            writes.set_members(ready, &members);
        }
        Ok(())
    }

    /// Lists the recipients of groups of chunks, each settled at an instant.
    async fn suppress_groups(
        &mut self,
        groups: &[(ChunkRow, &OutcomeGroup, Timestamp)],
    ) -> Result<(), RunError> {
        let batches = self.batches(groups.iter().map(|(chunk, ..)| chunk)).await?;
        let mut reports = Vec::new();
        for (chunk, group, at) in groups {
            let Some(batch) = batches.get(&chunk.batch) else { continue };
            let members: Members = group.indexes.iter().copied().collect();
            let report = |delivery: notification::Delivery| {
                let whose = (batch.envelope.lane.channel.clone(), delivery.recipient);
                let (reported, gone_since) =
                    Suppression::of_group(group, whose, delivery.index, *at);
                SuppressionReport { reported, gone_since, at: *at }
            };
            reports.extend(deliveries(batch, &members)?.into_iter().map(report));
        }
        self.suppress(reports).await
    }
}

/// Parts of several settlements, those that are one chunk in one.
fn together(parts: Vec<NewChunk>) -> impl Iterator<Item = NewChunk> {
    let mut chunks = BTreeMap::new();
    for part in parts {
        let key = (part.batch, part.due_at, part.attempt, part.crashes);
        match chunks.entry(key) {
            Entry::Vacant(vacant) => _ = vacant.insert(part),
            Entry::Occupied(mut known) => known.get_mut().members.extend(&part.members),
        }
    }
    chunks.into_values()
}
