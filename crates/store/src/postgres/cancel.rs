//! Withdrawals: only what nobody holds can be cancelled.

use std::collections::HashMap;

use async_trait::async_trait;
use notification::{BroadcastId, Name, NotificationId, State, Timestamp, limits};

use super::round::{Failure, Round, Writes, chunk_at, select_chunk};
use super::writer::Ask;
use crate::rows::codec::{LogLine, decode_log};
use crate::rows::members::Members;
use crate::rows::model::ChunkRow;
use crate::rows::requeue::Deaths;
use crate::{CancelTarget, Cancelled};

/// Withdraws what is pending.
#[derive(Debug)]
pub(super) struct Cancel {
    pub(super) target: CancelTarget,
    pub(super) tenant: Name,
    pub(super) now: Timestamp,
}

#[async_trait]
impl Ask for Cancel {
    type Answer = Option<Cancelled>;

    async fn ask(&self, round: &mut Round<'_>) -> Result<Self::Answer, Failure> {
        match self.target {
            CancelTarget::Notification(id) => self.cancel_one(round, id).await,
            CancelTarget::Broadcast(id) => self.cancel_broadcast(round, id).await,
        }
    }
}

// === impl Cancel ===

impl Cancel {
    async fn cancel_one(
        &self,
        round: &mut Round<'_>,
        id: NotificationId,
    ) -> Result<Option<Cancelled>, Failure> {
        let select = "SELECT accepted_at, count FROM batch WHERE id = $1 AND tenant = $2 \
             AND (broadcast IS NULL OR (SELECT sealed_at FROM broadcast AS b \
             WHERE b.id = batch.broadcast) IS NOT NULL)";
        let number = id.batch().0.cast_signed();
        let rows = round.rows(select, &[&number, &self.tenant.as_str()]).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let accepted_at = Timestamp::from_millis(row.try_get(0)?);
        let same = NotificationId::new(accepted_at, round.desk.realm, id.batch(), id.index());
        if same != id || i32::from(id.index()) >= row.try_get(1)? {
            return Ok(None);
        }
        let mut cancelled = Cancelled::default();
        let mut writes = Writes::default();
        let only = Members::from_iter([id.index()]);
        for chunk in round.pending_of(&[number], &only).await? {
            if !chunk.members().contains(id.index()) {
                continue;
            }
            if chunk.lease_until.is_some() {
                cancelled.under_way = 1;
            } else {
                round.withdraw(&mut writes, &chunk, &only, self.now);
                cancelled.cancelled = 1;
            }
        }
        round.write(writes).await?;
        cancelled.ended = 1 - cancelled.under_way - cancelled.cancelled;
        Ok(Some(cancelled))
    }

    async fn cancel_broadcast(
        &self,
        round: &mut Round<'_>,
        id: BroadcastId,
    ) -> Result<Option<Cancelled>, Failure> {
        let number = id.0.cast_signed();
        let select =
            "SELECT FROM broadcast WHERE id = $1 AND tenant = $2 AND sealed_at IS NOT NULL";
        if round.rows(select, &[&number, &self.tenant.as_str()]).await?.is_empty() {
            return Ok(None);
        }
        let select = "SELECT id, count FROM batch WHERE broadcast = $1";
        let (mut batches, mut total) = (Vec::new(), 0);
        for row in &round.rows(select, &[&number]).await? {
            batches.push(row.try_get::<_, i64>(0)?);
            total += u64::try_from(row.try_get::<_, i32>(1)?).unwrap_or(0);
        }
        let mut cancelled = Cancelled::default();
        let mut writes = Writes::default();
        let everybody = Members::all(limits::BATCH_ITEMS);
        for chunk in round.pending_of(&batches, &everybody).await? {
            let count = chunk.count as u64;
            if chunk.lease_until.is_some() {
                cancelled.under_way += count;
            } else {
                round.withdraw(&mut writes, &chunk, &chunk.members(), self.now);
                cancelled.cancelled += count;
            }
        }
        round.write(writes).await?;
        cancelled.ended = total.saturating_sub(cancelled.under_way + cancelled.cancelled);
        Ok(Some(cancelled))
    }
}

// === impl Round ===

impl Round<'_> {
    fn withdraw(
        &mut self,
        writes: &mut Writes,
        chunk: &ChunkRow,
        members: &Members,
        now: Timestamp,
    ) {
        let mut rest = chunk.members();
        for index in members.iter() {
            rest.remove(index);
        }
        self.end(writes, chunk.batch, &LogLine::unattempted(now, State::Cancelled), members);
        writes.shrink(chunk, &rest);
    }

    /// The chunks of batches, locked. Another process may have replaced some of them just before they were locked, by
    /// chunks that could not be seen yet; so `wanted` members of every batch are accounted for, and looked for again
    /// where one is neither pending nor ended.
    async fn pending_of(
        &mut self,
        batches: &[i64],
        wanted: &Members,
    ) -> Result<Vec<ChunkRow>, Failure> {
        let locked = select_chunk!("batch = ANY($1) ORDER BY id FOR UPDATE");
        loop {
            let mut missing = self.counts(batches, wanted).await?;
            let rows = self.rows(locked, &[&batches]).await?;
            let chunks: Vec<ChunkRow> = rows.iter().map(chunk_at).collect::<Result<_, _>>()?;
            for chunk in &chunks {
                if let Some(missing) = missing.get_mut(&chunk.batch.0.cast_signed()) {
                    chunk.members().iter().for_each(|index| _ = missing.remove(index));
                }
            }
            missing.retain(|_, members| !members.is_empty());
            self.remove_ended(&mut missing).await?;
            if missing.is_empty() {
                return Ok(chunks);
            }
        }
    }

    /// Those of `wanted` that each batch has.
    async fn counts(
        &mut self,
        batches: &[i64],
        wanted: &Members,
    ) -> Result<HashMap<i64, Members>, Failure> {
        let select = "SELECT id, count FROM batch WHERE id = ANY($1)";
        let mut members = HashMap::with_capacity(batches.len());
        for row in &self.rows(select, &[&batches]).await? {
            let count: i32 = row.try_get(1)?;
            let of_batch = wanted.iter().filter(|index| i32::from(*index) < count);
            members.insert(row.try_get(0)?, of_batch.collect());
        }
        Ok(members)
    }

    /// Takes out of `missing` what the log says has ended.
    async fn remove_ended(&mut self, missing: &mut HashMap<i64, Members>) -> Result<(), Failure> {
        if missing.is_empty() {
            return Ok(());
        }
        let batches: Vec<i64> = missing.keys().copied().collect();
        let select = "SELECT batch, entries FROM log WHERE batch = ANY($1)";
        let mut deaths: HashMap<i64, Deaths> = HashMap::new();
        for row in &self.rows(select, &[&batches]).await? {
            let batch = row.try_get(0)?;
            let Some(missing) = missing.get_mut(&batch) else { continue };
            for group in decode_log(row.try_get(1)?)? {
                // A dead one may be pending again.
                deaths.entry(batch).or_default().add(&group);
                if group.state.is_terminal() && group.state != State::Dead {
                    group.indexes.iter().for_each(|index| _ = missing.remove(*index));
                }
            }
        }
        for (batch, deaths) in deaths {
            let Some(missing) = missing.get_mut(&batch) else { continue };
            deaths.members().iter().for_each(|index| _ = missing.remove(index));
        }
        missing.retain(|_, members| !members.is_empty());
        Ok(())
    }
}
