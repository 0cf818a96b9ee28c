//! Leases on chunks: given, and ended when they are over or their worker is.

use std::collections::HashSet;
use std::time::Duration;

use notification::{ChunkId, Name, State, Timestamp, limits};
use tokio_postgres::types::ToSql;

use super::columns::{chunk_at, counted, select_chunk};
use super::transaction::{RunError, Transaction, Writes};
use crate::rows::codec::LogLine;
use crate::rows::members::Members;
use crate::rows::model::ChunkRow;
use crate::rows::room::LaneLoad;
use crate::rows::settlement;

/// A lease to be written.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lease {
    /// Worker of the lease: this process as it was when the transaction began. A process that was removed meanwhile and has
    /// joined anew follows pauses that this transaction has not seen.
    pub(super) worker: i64,
    pub(super) until: Timestamp,
    pub(super) is_ticket: bool,
    /// True if only partitions of this process may be touched.
    pub(super) is_guarded: bool,
}

/// Leases a chunk only as it was read: its epoch is compared. The row of the worker is held until the end of the transaction, so
/// that the process that reaps the worker sees this claim: a worker that is expired, or about to be removed, leases nothing.
const LEASE: &str = "WITH alive AS MATERIALIZED (SELECT id FROM worker \
       WHERE id = $4 AND alive_until >= clock_timestamp() FOR KEY SHARE SKIP LOCKED) \
     UPDATE chunk SET epoch = chunk.epoch + 1, lease_until = $3, worker = alive.id, is_ticket = $5, begun_through = NULL, \
       weight = wanted.weight \
     FROM unnest($1::int8[], $2::int8[], $7::int4[]) AS wanted (id, epoch, weight), alive \
     WHERE chunk.id = wanted.id AND chunk.epoch = wanted.epoch AND (chunk.lease_until IS NULL OR chunk.is_ticket) \
       AND (NOT $6 OR EXISTS (SELECT FROM partition WHERE partition.id = chunk.partition AND owner = $4)) \
     RETURNING chunk.id";
const UNLEASE: &str = "UPDATE chunk SET lease_until = NULL, worker = NULL, is_ticket = false, begun_through = NULL \
     FROM unnest($1::int8[], $2::int8[]) AS held (id, epoch) WHERE chunk.id = held.id AND chunk.epoch = held.epoch";
const SELECT_OVERDUE: &str = select_chunk!(
    "FROM chunk WHERE lease_until > $1 AND lease_until <= $2 AND partition = ANY($3) \
     ORDER BY lease_until, id FOR UPDATE SKIP LOCKED"
);

/// Time after which a chunk is looked at again whose lease has ended and that is locked. It is not waited for: the lock may be
/// that of a process that was stopped.
const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(1);

// === impl Transaction ===

impl Transaction<'_> {
    /// Leases `chunks`; returns those that could be. Nothing of a chunk may be ended that is not among them.
    pub(super) async fn lease(
        &mut self,
        chunks: &[ChunkRow],
        lease: Lease,
    ) -> Result<HashSet<ChunkId>, RunError> {
        if chunks.is_empty() {
            return Ok(HashSet::new());
        }
        // In one order everywhere, so that two processes never wait for each other.
        let mut chunks: Vec<&ChunkRow> = chunks.iter().collect();
        chunks.sort_unstable_by_key(|chunk| chunk.id);
        let ids: Vec<i64> = chunks.iter().map(|chunk| chunk.id.0.cast_signed()).collect();
        let epochs: Vec<i64> = chunks.iter().map(|chunk| i64::from(chunk.epoch.0)).collect();
        // Kept in the row, so that any process that ends the lease gives back as much as was taken.
        let weights: Vec<i32> = chunks.iter().map(|chunk| counted(chunk.weight)).collect();
        let Lease { worker, until, is_ticket, is_guarded } = lease;
        let parameters: [&(dyn ToSql + Sync); 7] =
            [&ids, &epochs, &until.millis(), &worker, &is_ticket, &is_guarded, &weights];
        let rows = self.rows(LEASE, &parameters).await?;
        let mut leased = HashSet::new();
        for row in &rows {
            leased.insert(ChunkId(row.try_get::<_, i64>(0)?.cast_unsigned()));
        }
        if leased.len() < chunks.len() {
            // Another process took some, or took the partitions over: the memory is out of date.
            self.state.invalidate();
        }
        // Before the commit: if that fails, all of this is read anew.
        let own = leased.iter().map(|chunk| (until, *chunk));
        self.state.claiming.leases.extend(own);
        Ok(leased)
    }

    /// Makes chunks due again whose leases are over.
    pub(super) async fn end_overdue_leases(&mut self, now: Timestamp) -> Result<(), RunError> {
        let claiming = &mut self.state.claiming;
        if claiming.leases.first().is_none_or(|(until, _)| *until > now) {
            return Ok(());
        }
        // The largest number, so that what ends right now is among those that are over.
        let rest = claiming.leases.split_off(&(now, ChunkId(u64::MAX)));
        claiming.leases = rest;
        // From the last look on only: the index still has the entries of claims that were settled long ago.
        let before = claiming.checked.replace(now).map_or(i64::MIN, Timestamp::millis);
        let partitions = self.state.membership.borrow().partitions.clone();
        let rows = self.rows(SELECT_OVERDUE, &[&before, &now.millis(), &partitions]).await?;
        let mut writes = Writes::default();
        let chunks: Vec<ChunkRow> = rows.iter().map(chunk_at).collect::<Result<_, _>>()?;
        let tenants = self.tenants_of(chunks.iter()).await?;
        for chunk in &chunks {
            let of = (tenants.of(chunk.batch)?, chunk);
            self.end_lease(&mut writes, of, now, "lease ended");
            // This process claims on in the same transaction, from partitions that are its own.
            let weight = chunk.count + chunk.weight + limits::CHUNK_WEIGHT;
            let load = LaneLoad { deliveries: chunk.count, weight };
            self.state.claiming.lanes.free(chunk.lane, load);
            self.state.claiming.add_due(chunk.lane, chunk.due_at);
        }
        // Before the writes: those delete the chunks of which nothing is left, and each must still be found here.
        self.unlease(&chunks).await?;
        self.write(writes).await?;
        // The next lease to end: of a claim by another process, or of a chunk that was locked just now.
        let select =
            "SELECT min(lease_until) FROM chunk WHERE lease_until > $1 AND partition = ANY($2)";
        let next: Option<i64> = self.row(select, &[&before, &partitions]).await?.try_get(0)?;
        let Some(next) = next.map(Timestamp::from_millis) else { return Ok(()) };
        let claiming = &mut self.state.claiming;
        let look_at = if next > now {
            next
        } else {
            // The next look begins right before the one that was locked.
            claiming.checked = Some(Timestamp::from_millis(next.millis() - 1));
            now.plus(LOOK_AGAIN_AFTER)
        };
        claiming.leases.insert((look_at, ChunkId(0)));
        Ok(())
    }

    /// Logs the begun members of a chunk whose claim is void as in doubt; the rest is due again. Returns the rest.
    pub(super) fn end_lease(
        &mut self,
        writes: &mut Writes,
        (tenant, chunk): (&Name, &ChunkRow),
        now: Timestamp,
        detail: &str,
    ) -> Members {
        let (begun, rest) = settlement::begun_and_rest(chunk);
        if !begun.is_empty() {
            let (attempt, state) = (chunk.attempt, State::InDoubt);
            let line = LogLine { at: now, attempt, state, status: 0, detail };
            self.end(writes, (tenant, chunk.batch), &line, &begun);
            writes.set_members(chunk, &rest);
        }
        if !rest.is_empty() {
            self.due(chunk.lane, chunk.due_at);
        }
        rest
    }

    /// Makes chunks ready; their epochs stay, so that the next claim has a new one.
    pub(super) async fn unlease(&mut self, chunks: &[ChunkRow]) -> Result<(), RunError> {
        if chunks.is_empty() {
            return Ok(());
        }
        let (ids, epochs): (Vec<i64>, Vec<i64>) =
            chunks.iter().map(|chunk| (chunk.id.0.cast_signed(), i64::from(chunk.epoch.0))).unzip();
        self.change(UNLEASE, ids.len(), &[&ids, &epochs]).await
    }
}
