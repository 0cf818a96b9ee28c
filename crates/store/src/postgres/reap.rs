//! Reaping: the work of a process that ended without handing it back is made due again, and its worker removed.

use async_trait::async_trait;
use notification::{State, Timestamp, limits};

use super::chunk_tenants::BatchTenants;
use super::columns::{chunk_at, select_chunk, signed};
use super::request::WriterRequest;
use super::transaction::{RunError, Transaction, Writes};
use crate::rows::blame::{self, Fate, InFlight, ProcessEnd};
use crate::rows::codec::LogLine;
use crate::rows::members::Members;
use crate::rows::model::{ChunkRow, NewChunk};
use crate::{Ending, Recovery};

/// Reaps an expired worker, one whose lease on itself is over: ends its claims, frees its partitions, abandons its open
/// broadcasts, and removes it. Several processes may try; the lock on the worker's row lets one of them.
#[derive(Debug)]
pub(super) struct ReapWorker {
    pub(super) now: Timestamp,
}

/// A worker whose lease is over.
struct Expired {
    id: i64,
    end: ProcessEnd,
}

/// Chunks whose claims are ended in one transaction: all that one process delivers, and some tickets. A worker that held
/// more is reaped in several.
const CHUNKS_PER_TRANSACTION: usize = 16_384;
const _: () = assert!(
    limits::CLAIMED_ITEMS / (limits::CHUNK_WEIGHT + 1) < CHUNKS_PER_TRANSACTION,
    "what was in flight in one process is judged as a whole"
);

/// Batches of open broadcasts that are removed in one transaction, likewise.
const BATCHES_PER_TRANSACTION: i64 = 2_000;

/// The ways in which a worker ended, in its row.
pub(super) const IN_ORDER: &str = "in order";
pub(super) const BY_A_FAULT: &str = "by a fault";

/// The next expired worker, what it said of its end, and whether it still has the connection of its last beat: a process
/// that was killed has none, one that was stopped or cut off, and one whose machine is gone, has. One whose row is locked is
/// being reaped by another process, or leases something: it is not waited for, as each process looks again with its next beat.
const SELECT_EXPIRED: &str = "SELECT id, ended, (extract(epoch FROM alive_until) * 1000)::int8, EXISTS ( \
       SELECT FROM pg_stat_activity WHERE pid = worker.backend AND datname = current_database()) \
     FROM worker WHERE alive_until < clock_timestamp() ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED";
/// Chunks that were being delivered come before tickets, so that they are judged in one transaction.
const SELECT_HELD: &str = select_chunk!(
    ", is_ticket FROM chunk WHERE worker = $1 AND lease_until IS NOT NULL AND id IN ( \
       SELECT id FROM chunk WHERE worker = $1 AND lease_until IS NOT NULL ORDER BY is_ticket, id LIMIT $2) \
     ORDER BY id FOR UPDATE"
);
const COUNT: &str = "UPDATE chunk SET crashes = counted.crashes, due_at = counted.due_at \
     FROM unnest($1::int8[], $2::int8[], $3::int4[], $4::int8[]) AS counted (id, epoch, crashes, due_at) \
     WHERE chunk.id = counted.id AND chunk.epoch = counted.epoch";
/// Only what was held against suspects one by one is void: they are still tried apart. `lease_until IS NULL` would make the
/// planner take an index of all that is ready, while it has no statistics.
const CLEAR_SUSPECTS: &str = "UPDATE chunk SET crashes = 3 WHERE id IN ( \
     SELECT id FROM chunk WHERE crashes > 3 AND coalesce(lease_until, 0) = 0 ORDER BY id FOR UPDATE SKIP LOCKED)";

#[async_trait]
impl WriterRequest for ReapWorker {
    type Answer = Recovery;

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<Recovery, RunError> {
        let Some(worker) = self.expired(transaction).await? else { return Ok(Recovery::default()) };
        let mut recovery = Recovery::default();
        let rows =
            transaction.rows(SELECT_HELD, &[&worker.id, &signed(CHUNKS_PER_TRANSACTION)]).await?;
        let mut writes = Writes::default();
        let (mut ended, mut returned) = (Vec::with_capacity(rows.len()), Vec::new());
        let chunks: Vec<ChunkRow> = rows.iter().map(chunk_at).collect::<Result<_, _>>()?;
        let tenants = transaction.tenants_of(chunks.iter()).await?;
        for (chunk, row) in chunks.into_iter().zip(&rows) {
            let is_ticket: bool = row.try_get("is_ticket")?;
            let of = (tenants.of(chunk.batch)?, &chunk);
            let rest = transaction.end_lease(&mut writes, of, self.now, "process ended");
            // To the producers of its partitions, whose windows the dead worker filled.
            transaction.freed(&chunk, chunk.count, true);
            recovery.in_doubt += (chunk.count - rest.len()) as u64;
            if is_ticket {
                // What stood on a ticket was not in flight: nothing is held against it.
                recovery.returned += rest.len() as u64;
            } else if !rest.is_empty() {
                returned.push((chunk.clone(), rest));
            }
            ended.push(chunk);
        }
        // Before the writes: those delete the chunks of which nothing is left, and each must still be found here.
        transaction.unlease(&ended).await?;
        judge(transaction, &mut writes, &mut recovery, (worker.end, returned), &tenants).await?;
        transaction.write(writes).await?;
        // Before the broadcasts, which may take several transactions: the partitions have new owners meanwhile.
        transaction.free_partitions(&[worker.id]).await?;
        // Else it may hold more: it stays expired, and is reaped again.
        if rows.len() < CHUNKS_PER_TRANSACTION {
            recovery.abandoned_broadcasts = transaction.forget_workers(&[worker.id]).await?;
        }
        Ok(recovery)
    }
}

// === impl ReapWorker ===

impl ReapWorker {
    async fn expired(
        &self,
        transaction: &mut Transaction<'_>,
    ) -> Result<Option<Expired>, RunError> {
        let rows = transaction.rows(SELECT_EXPIRED, &[]).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let ending = match (row.try_get::<_, Option<&str>>(1)?, row.try_get(3)?) {
            (Some(BY_A_FAULT), _) => Ending::Faulted,
            (Some(_), _) | (None, true) => Ending::Left,
            (None, false) => Ending::Killed,
        };
        let before = Timestamp::from_millis(row.try_get(2)?);
        let end = ProcessEnd { ending, before, now: self.now };
        Ok(Some(Expired { id: row.try_get(0)?, end }))
    }
}

/// Decides what becomes of chunks that are ready again, and of suspects that wait.
async fn judge(
    transaction: &mut Transaction<'_>,
    writes: &mut Writes,
    recovery: &mut Recovery,
    (end, returned): (ProcessEnd, Vec<(ChunkRow, Members)>),
    tenants: &BatchTenants,
) -> Result<(), RunError> {
    let in_flight: Vec<InFlight> =
        returned.iter().map(|(chunk, rest)| chunk.in_flight(rest)).collect();
    // None of those in flight is a suspect then, so what they have against them is not touched.
    if blame::clears_others(end.ending, &in_flight) {
        transaction.execute(CLEAR_SUSPECTS, &[]).await?;
    }
    let fates = blame::judge(end, &in_flight);
    let (mut counted, mut epochs) = (Vec::new(), Vec::new());
    let (mut crashes, mut dues) = (Vec::new(), Vec::new());
    for ((chunk, rest), fate) in returned.iter().zip(fates) {
        let mut count = |now_counted: u16, due_at: Timestamp| {
            counted.push(chunk.id.0.cast_signed());
            epochs.push(i64::from(chunk.epoch.0));
            crashes.push(i32::from(now_counted));
            dues.push(due_at.millis());
        };
        recovery.count(&fate, rest.len());
        match fate {
            Fate::Returned => {}
            Fate::Counted(now_counted) => count(now_counted, chunk.due_at),
            Fate::Suspected { crashes, parts } => {
                let mut parts = NewChunk::divide(chunk, rest, crashes, parts);
                if let Some(first) = parts.next() {
                    count(crashes, first.due_at);
                    writes.set_members(chunk, &first.members);
                }
                parts.for_each(|part| writes.chunk(part));
            }
            Fate::Quarantined => {
                let (at, attempt, state) = (end.now, chunk.attempt, State::Dead);
                let line = LogLine { at, attempt, state, status: 0, detail: blame::QUARANTINED };
                let of = (tenants.of(chunk.batch)?, chunk.batch);
                transaction.end(writes, of, &line, rest);
                writes.set_members(chunk, &Members::default());
            }
        }
    }
    // Before the writes as well: a chunk that is cut gets a new epoch, and is found by the old one here.
    if !counted.is_empty() {
        transaction.change(COUNT, counted.len(), &[&counted, &epochs, &crashes, &dues]).await?;
    }
    Ok(())
}

// === impl Transaction ===

impl Transaction<'_> {
    async fn free_partitions(&mut self, dead: &[i64]) -> Result<(), RunError> {
        let free = "UPDATE partition SET owner = NULL, epoch = epoch + 1 \
             WHERE id IN (SELECT id FROM partition WHERE owner = ANY($1) ORDER BY id FOR UPDATE)";
        if self.execute(free, &[&dead]).await? > 0 {
            self.notify_cluster().await?;
        }
        Ok(())
    }

    /// Removes the open broadcasts of workers, and then the workers. A call that seals a broadcast or adds to it locks its row,
    /// so the rows are locked first.
    async fn forget_workers(&mut self, dead: &[i64]) -> Result<u64, RunError> {
        // They have no owner from now on: what is left of one that takes several transactions is never sealed.
        let disown =
            "UPDATE broadcast SET worker = NULL WHERE sealed_at IS NULL AND worker = ANY($1)";
        self.execute(disown, &[&dead]).await?;
        let select = "SELECT id FROM broadcast WHERE sealed_at IS NULL AND worker IS NULL \
             ORDER BY id FOR UPDATE";
        let rows = self.rows(select, &[]).await?;
        let open: Vec<i64> = rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
        // The worker's row stays until the last batch is gone: by it the rest is found.
        if !self.remove_batches(&open).await? {
            return Ok(0);
        }
        let abandoned = self.remove_broadcasts(&open).await?;
        // One that is found to hold more is left for the next transaction.
        let remove = "DELETE FROM worker WHERE id = ANY($1) \
             AND NOT EXISTS (SELECT FROM chunk WHERE chunk.worker = worker.id AND lease_until IS NOT NULL)";
        self.execute(remove, &[&dead]).await?;
        self.notify_cluster().await?;
        Ok(abandoned)
    }

    /// Removes batches of open broadcasts, as many as a transaction has time for; whether none is left.
    pub(super) async fn remove_batches(&mut self, broadcasts: &[i64]) -> Result<bool, RunError> {
        let delete = "DELETE FROM batch WHERE id = ANY(ARRAY( \
             SELECT id FROM batch WHERE broadcast = ANY($1) ORDER BY broadcast, id LIMIT $2))";
        let removed = self.execute(delete, &[&broadcasts, &BATCHES_PER_TRANSACTION]).await?;
        Ok(removed < BATCHES_PER_TRANSACTION.cast_unsigned())
    }
}
