//! What becomes of the work of processes that are gone.

use async_trait::async_trait;
use notification::{State, Timestamp};

use super::round::{Failure, Round, Writes, chunk_at};
use super::writer::Ask;
use crate::Recovery;
use crate::rows::codec::LogLine;
use crate::rows::members::Members;
use crate::rows::model::ChunkRow;
use crate::rows::settlement::{self, Crashed};

/// Ends the claims of workers whose leases on themselves are over, frees their partitions, abandons their open
/// broadcasts, and removes them. Somebody else may be doing the same: each worker is buried by one.
#[derive(Debug)]
pub(super) struct Bury {
    pub(super) now: Timestamp,
}

/// Chunks whose claims are ended in one round; whoever held more is buried in several.
const CHUNKS_PER_ROUND: i64 = 1_000;

/// Batches of open broadcasts that are removed in one round, likewise.
const BATCHES_PER_ROUND: i64 = 2_000;

#[async_trait]
impl Ask for Bury {
    type Answer = Recovery;

    async fn ask(&self, round: &mut Round<'_>) -> Result<Recovery, Failure> {
        let select =
            "SELECT id FROM worker WHERE alive_until < clock_timestamp() FOR UPDATE SKIP LOCKED";
        let dead: Vec<i64> = round
            .rows(select, &[])
            .await?
            .iter()
            .map(|row| row.try_get(0))
            .collect::<Result<_, _>>()?;
        if dead.is_empty() {
            return Ok(Recovery::default());
        }
        let mut recovery = Recovery::default();
        let select = "SELECT id, batch, lane, due_at, attempt, epoch, crashes, lease_until, begun_through, count, \
             members, is_ticket FROM chunk WHERE worker = ANY($1) AND lease_until IS NOT NULL \
             ORDER BY id LIMIT $2 FOR UPDATE";
        let rows = round.rows(select, &[&dead, &CHUNKS_PER_ROUND]).await?;
        let mut writes = Writes::default();
        let (mut ended, mut crashes) = (Vec::with_capacity(rows.len()), Vec::new());
        for row in &rows {
            let (chunk, is_ticket): (ChunkRow, bool) = (chunk_at(row)?, row.try_get(11)?);
            let rest = round.end_lease(&mut writes, &chunk, self.now, "process ended");
            round.freed(&chunk, chunk.count, true);
            recovery.in_doubt += (chunk.count - rest.len()) as u64;
            let seen = if is_ticket {
                chunk.crashes
            } else {
                self.crash(round, &mut writes, &mut recovery, (&chunk, &rest))
            };
            crashes.push(i32::from(seen));
            ended.push(chunk);
        }
        round.unlease(&ended).await?;
        let ids: Vec<i64> = ended.iter().map(|chunk| chunk.id.0.cast_signed()).collect();
        let update = "UPDATE chunk SET crashes = seen.crashes FROM unnest($1::int8[], $2::int4[]) \
             AS seen (id, crashes) WHERE chunk.id = seen.id";
        round.execute(update, &[&ids, &crashes]).await?;
        round.write(writes).await?;
        // First of all, so that others work on meanwhile: the rest may take several rounds.
        round.free_partitions(&dead).await?;
        if rows.len() < usize::try_from(CHUNKS_PER_ROUND).unwrap_or(0) {
            recovery.abandoned_broadcasts = round.forget_workers(&dead).await?;
        }
        Ok(recovery)
    }
}

// === impl Bury ===

impl Bury {
    /// Notes one more crash of what was in flight; returns how many it has seen.
    fn crash(
        &self,
        round: &mut Round<'_>,
        writes: &mut Writes,
        recovery: &mut Recovery,
        (chunk, rest): (&ChunkRow, &Members),
    ) -> u16 {
        if rest.is_empty() {
            return chunk.crashes;
        }
        match settlement::crashed(chunk, rest) {
            Crashed::Quarantined(detail) => {
                let (attempt, state) = (chunk.attempt, State::Dead);
                let line = LogLine { at: self.now, attempt, state, status: 0, detail: &detail };
                round.end(writes, chunk.batch, &line, rest);
                writes.shrink(chunk, &Members::default());
                recovery.quarantined += 1;
                chunk.crashes
            }
            Crashed::Halved { first, second } => {
                recovery.returned += rest.len() as u64;
                writes.shrink(chunk, &first);
                writes.part(chunk, &second);
                second.crashes
            }
            Crashed::Returned { crashes } => {
                recovery.returned += rest.len() as u64;
                crashes
            }
        }
    }
}

// === impl Round ===

impl Round<'_> {
    async fn free_partitions(&mut self, dead: &[i64]) -> Result<(), Failure> {
        let free = "UPDATE partition SET owner = NULL, epoch = epoch + 1 WHERE owner = ANY($1)";
        if self.execute(free, &[&dead]).await? > 0 {
            self.execute("SELECT pg_notify('belfry_cluster', '')", &[]).await?;
        }
        Ok(())
    }

    /// Removes their open broadcasts, and then them. Whoever seals one or adds to it holds its row, so it is locked first.
    async fn forget_workers(&mut self, dead: &[i64]) -> Result<u64, Failure> {
        let select = "SELECT id FROM broadcast WHERE sealed_at IS NULL AND worker = ANY($1) \
             ORDER BY id FOR UPDATE";
        let rows = self.rows(select, &[&dead]).await?;
        let open: Vec<i64> = rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
        if !self.remove_batches(&open).await? {
            return Ok(0);
        }
        let abandoned = self.execute("DELETE FROM broadcast WHERE id = ANY($1)", &[&open]).await?;
        self.execute("DELETE FROM worker WHERE id = ANY($1)", &[&dead]).await?;
        self.execute("SELECT pg_notify('belfry_cluster', '')", &[]).await?;
        Ok(abandoned)
    }

    /// Removes batches of open broadcasts, as many as a round has time for; whether none is left.
    pub(super) async fn remove_batches(&mut self, broadcasts: &[i64]) -> Result<bool, Failure> {
        let delete = "DELETE FROM batch WHERE id IN \
             (SELECT id FROM batch WHERE broadcast = ANY($1) ORDER BY broadcast, id LIMIT $2)";
        let removed = self.execute(delete, &[&broadcasts, &BATCHES_PER_ROUND]).await?;
        Ok(removed < BATCHES_PER_ROUND.cast_unsigned())
    }
}
