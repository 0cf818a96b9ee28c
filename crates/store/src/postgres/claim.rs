//! Claims, tickets, and the exchange of tickets for chunks.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use notification::{
    BatchId, BroadcastId, Bytes, Chunk, ChunkId, Content, Delivery, Envelope, Epoch, ItemTraces,
    State, Ticket, Timestamp,
};
use tokio_postgres::Row;

use super::Postgres;
use super::choose::Leased;
use super::columns::lane_at;
use super::lease::Lease;
use super::request::WriterRequest;
use super::transaction::{RunError, Transaction, Writes};
use crate::rows::codec::LogLine;
use crate::rows::codes::{self, LaneId};
use crate::rows::listing::{self, SuppressedMembers};
use crate::rows::members::Members;
use crate::rows::model::{self, BatchRow, ChunkRow, NewChunk, deliveries};
use crate::rows::paused::put_away_until;
use crate::{Claim, ClaimRequest, StoreError, TakeTickets};

/// Claims chunks for this process to deliver.
#[derive(Debug)]
pub(super) struct ClaimChunks(pub(super) ClaimRequest);

/// Claims chunks to be published as tickets.
#[derive(Debug)]
pub(super) struct IssueTickets(pub(super) ClaimRequest);

/// Exchanges tickets for their chunks.
#[derive(Debug)]
pub(super) struct TakeChunks {
    pub(super) tickets: Vec<Ticket>,
    pub(super) now: Timestamp,
    pub(super) lease: Duration,
}

/// Time after which a process that lost a lease to another one claims again. Not at once: its partitions, or its own row, may be
/// gone, which its next beat only finds.
const CLAIM_AGAIN_AFTER: Duration = Duration::from_millis(100);
/// Number of times that a claim chooses while all recipients of a probe turn out to be suppressed: after as many rounds the next
/// claim goes on, so that a long list of suppressed recipients does not hold up the other requests of the writer.
const ROUNDS_MAX: usize = 16;

/// A statement whose rows [`batch_at`] reads. The content of a broadcast is in the first row of each only.
macro_rules! select_batch {
    ($condition:literal) => {
        concat!(
            "SELECT batch.id, batch.guarantee, accepted_at, coalesce(broadcast.due_at, batch.due_at), batch.expires_at, batch.broadcast, \
             coalesce(batch.options, broadcast.options), \
             CASE WHEN batch.payload IS NOT NULL THEN batch.payload \
               WHEN row_number() OVER (PARTITION BY broadcast.id, batch.payload IS NULL) = 1 THEN broadcast.payload END, \
             items, lane.channel, lane.destination, lane.priority, batch.tenant, batch.payload IS NULL, removed, trace \
             FROM batch JOIN tenant_lane AS lane ON lane.id = batch.lane LEFT JOIN broadcast ON broadcast.id = batch.broadcast \
             WHERE ",
            $condition
        )
    };
}
pub(super) use select_batch;

#[async_trait]
impl WriterRequest for ClaimChunks {
    type Answer = Claim<Chunk>;

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<Self::Answer, RunError> {
        let now = transaction.no_later(self.0.now);
        let mut request = ClaimRequest { now, ..self.0 };
        // Before the pauses are read: a process that is removed and joins anew within this claim must not lease under a number
        // that follows later ones.
        let (worker, until) = (transaction.worker(), now.plus(request.lease));
        let lease = Lease { worker, until, is_ticket: false, is_guarded: true };
        let mut chunks = Vec::new();
        for _ in 0..ROUNDS_MAX {
            let Leased { chunks: leased, probes } = transaction.claim(request, lease).await?;
            let claimed: usize = leased.iter().map(|chunk| chunk.count).sum();
            request.items = request.items.saturating_sub(claimed);
            let opened = transaction.open(leased, now, lease).await?;
            let not_made = transaction.take_back_probes(probes, &opened, now);
            chunks.extend(opened);
            if not_made == 0 || request.items == 0 {
                break;
            }
        }
        Ok(Claim { chunks, next_at: transaction.claim_again_at(&request) })
    }
}

#[async_trait]
impl WriterRequest for IssueTickets {
    type Answer = Claim<Ticket>;

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<Self::Answer, RunError> {
        let now = transaction.no_later(self.0.now);
        let request = transaction.share_of(ClaimRequest { now, ..self.0 });
        let (worker, until) = (transaction.worker(), request.now.plus(request.lease));
        let lease = Lease { worker, until, is_ticket: true, is_guarded: true };
        // Whether anything is left to send of a ticket's chunk is looked up when it is taken: each is a probe.
        let claimed = transaction.claim(request, lease).await?.chunks;
        let mut chunks = Vec::with_capacity(claimed.len());
        for chunk in &claimed {
            chunks.push(Ticket {
                chunk: chunk.id,
                // The lease has raised the epoch: the chunk is as it was read before.
                epoch: Epoch(chunk.epoch.0 + 1),
                priority: transaction.lane(chunk.lane).await?.priority,
                lease_until: lease.until,
                count: u16::try_from(chunk.count).unwrap_or(u16::MAX),
            });
        }
        Ok(Claim { chunks, next_at: transaction.claim_again_at(&request) })
    }
}

#[async_trait]
impl WriterRequest for TakeChunks {
    type Answer = Vec<Option<Chunk>>;

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<Self::Answer, RunError> {
        let (worker, now) = (transaction.worker(), transaction.no_later(self.now));
        let ids: Vec<i64> =
            self.tickets.iter().map(|ticket| ticket.chunk.0.cast_signed()).collect();
        let mut chunks = transaction.lock_chunks(&ids).await?;
        let good = |ticket: &Ticket| {
            let chunk = chunks.get(&ticket.chunk)?;
            // One whose lease has ended is void: its chunk is due again, and another ticket for it may be on its way.
            let is_good =
                chunk.epoch == ticket.epoch && chunk.lease_until.is_some_and(|until| until > now);
            // The same ticket twice is good once.
            is_good.then(|| chunks.remove(&ticket.chunk)).flatten()
        };
        let good: Vec<ChunkRow> = self.tickets.iter().filter_map(good).collect();
        // Not guarded: any consumer may take a ticket, of any partition.
        let lease =
            Lease { worker, until: now.plus(self.lease), is_ticket: false, is_guarded: false };
        let leased = transaction.lease(&good, lease).await?;
        let (good, refused): (Vec<ChunkRow>, Vec<ChunkRow>) =
            good.into_iter().partition(|chunk| leased.contains(&chunk.id));
        transaction.hand_back(&refused).await?;
        let taken = transaction.open(good, now, lease).await?.into_iter();
        let mut taken: HashMap<(ChunkId, Epoch), Chunk> =
            taken.map(|chunk| ((chunk.id, chunk.epoch), chunk)).collect();
        let of_ticket = |ticket: &Ticket| taken.remove(&(ticket.chunk, Epoch(ticket.epoch.0 + 1)));
        Ok(self.tickets.iter().map(of_ticket).collect())
    }
}

#[async_trait]
impl TakeTickets for Postgres {
    async fn take(
        &self,
        tickets: Vec<Ticket>,
        now: Timestamp,
        lease: Duration,
    ) -> Result<Vec<Option<Chunk>>, StoreError> {
        self.work.run(TakeChunks { tickets, now, lease }).await.map_err(StoreError::ending)
    }
}

// === impl Transaction ===

impl Transaction<'_> {
    /// `now`, by a caller's clock, or the database's time if that is earlier: a caller whose clock is ahead sends nothing before it
    /// is due, and ends no lease that lasts.
    fn no_later(&self, now: Timestamp) -> Timestamp {
        now.min(self.begun_at)
    }

    /// The number of this process as a worker, as of now.
    fn worker(&self) -> i64 {
        self.state.membership.borrow().worker
    }

    /// Time of the next claim if nothing changes before. Once a lease was lost, the claims left to this process are unknown.
    fn claim_again_at(&self, request: &ClaimRequest) -> Option<Timestamp> {
        let lost = self.state.claiming.read_for.is_none();
        let again = lost.then(|| request.now.plus(CLAIM_AGAIN_AFTER));
        self.next_at(request).into_iter().chain(again).min()
    }

    /// Takes back the probes, noted at `now`, of lanes of which nothing is left to send, since all recipients are suppressed;
    /// returns how many.
    fn take_back_probes(
        &mut self,
        mut probes: HashMap<LaneId, Timestamp>,
        opened: &[Chunk],
        now: Timestamp,
    ) -> usize {
        let lanes = &mut self.state.claiming.lanes;
        probes.retain(|id, _| {
            let Some(lane) = lanes.lane(*id) else { return false };
            !opened.iter().any(|chunk| chunk.envelope.lane == *lane)
        });
        for (id, before) in &probes {
            lanes.take_back_probe(*id, *before, now);
        }
        probes.len()
    }

    /// Makes due again the chunks of good tickets, locked, that this worker may not take because it is overdue or removed:
    /// the tickets are spent, and the chunks would wait until their leases end.
    async fn hand_back(&mut self, refused: &[ChunkRow]) -> Result<(), RunError> {
        self.unlease(refused).await?;
        for chunk in refused {
            self.freed(chunk, chunk.count, true);
            self.due(chunk.lane, chunk.due_at);
        }
        Ok(())
    }

    /// Reads the contents of chunks that were leased just now, in their order. Expired and suppressed deliveries end instead; a
    /// chunk without any left to send is left out.
    async fn open(
        &mut self,
        mut leased: Vec<ChunkRow>,
        now: Timestamp,
        lease: Lease,
    ) -> Result<Vec<Chunk>, RunError> {
        for chunk in &mut leased {
            // As the lease has left the rows: all that follows is written by the new epoch.
            chunk.epoch = Epoch(chunk.epoch.0 + 1);
            (chunk.lease_until, chunk.begun_through) = (Some(lease.until), None);
        }
        let batches = self.batches(leased.iter()).await?;
        self.note_tenants(&leased, &batches).await?;
        let contents = self.end_what_must_not_be_sent(&leased, &batches, now).await?;
        let store_id = self.state.store_id;
        let chunk = |(chunk, deliveries): (&ChunkRow, Vec<Delivery>)| {
            let batch = batches.get(&chunk.batch).filter(|_| !deliveries.is_empty())?;
            Some(Chunk {
                id: chunk.id,
                epoch: chunk.epoch,
                lease_until: lease.until,
                worker: lease.worker.cast_unsigned(),
                batch: chunk.batch,
                store_id,
                accepted_at: batch.accepted_at,
                envelope: chunk.envelope_of(batch),
                attempt: chunk.attempt,
                content: batch.content.clone(),
                traces: batch.traces.of(deliveries.iter().map(|delivery| delivery.index)),
                deliveries,
                origins: Vec::new(),
            })
        };
        Ok(leased.iter().zip(contents).filter_map(chunk).collect())
    }

    /// Ends the expired and suppressed deliveries of `chunks`, which are leased in this transaction, and puts away paused ones;
    /// returns the rest of each.
    async fn end_what_must_not_be_sent(
        &mut self,
        chunks: &[ChunkRow],
        batches: &HashMap<BatchId, BatchRow>,
        now: Timestamp,
    ) -> Result<Vec<Vec<Delivery>>, RunError> {
        let contents = deliveries_of(chunks, batches)?;
        let mut suppressed = self.suppressed_among(&contents, batches).await?;
        let pauses = Arc::clone(&self.state.pauses.borrow());
        let held = self.hold_pauses(&pauses, batches.values().map(|it| &it.envelope)).await?;
        let mut writes = Writes::default();
        let mut left = Vec::with_capacity(chunks.len());
        let mut fallbacks = Vec::new();
        let mut place = 0;
        for (chunk, (batch, mut deliveries)) in chunks.iter().zip(contents) {
            let places = place..place + deliveries.len();
            place = places.end;
            let row = batches.get(&batch).ok_or_else(|| missing(batch))?;
            let tenant = &row.envelope.lane.tenant;
            let is_expired = row.envelope.expires_at.is_some_and(|expires_at| expires_at <= now);
            let later = put_away_until(&pauses, &held, &row.envelope, now);
            // Expiry first: what is paused expires on time.
            let ended: Members = if is_expired {
                let members = chunk.members();
                let line = LogLine::unattempted(now, State::Expired);
                self.end(&mut writes, (tenant, batch), &line, &members);
                members
            } else if let Some(later) = later {
                // The chunk that came up is leased in this transaction already, so what is put away becomes a ready one of its
                // own.
                writes.chunk(NewChunk::part(chunk, later, chunk.members()));
                chunk.members()
            } else {
                let detail = |(delivery, place): (&Delivery, usize)| {
                    Some((delivery.index, suppressed.remove(&place)?))
                };
                let listed: SuppressedMembers =
                    deliveries.iter().zip(places).filter_map(detail).collect();
                self.count_ended(tenant, State::Suppressed, listed.len());
                writes.log(batch, &listing::log_row(&listed, now));
                let is_listed = |delivery: &&Delivery| listed.contains_key(&delivery.index);
                let gone = deliveries.iter().filter(is_listed);
                fallbacks.extend(model::fallbacks(row, self.state.store_id, gone, now));
                listed.into_keys().collect()
            };
            if !ended.is_empty() {
                deliveries.retain(|delivery| !ended.contains(delivery.index));
                // No settlement will come for these, and it is settlements that give a lane its window back.
                self.freed(chunk, ended.len(), deliveries.is_empty());
                let rest: Members = deliveries.iter().map(|delivery| delivery.index).collect();
                writes.set_members(chunk, &rest);
            }
            left.push(deliveries);
        }
        self.write(writes).await?;
        // In the transaction that ends what they stand in for: a crash in between would lose them, or make them twice.
        self.accept_fallbacks(fallbacks, now).await?;
        Ok(left)
    }

    /// Positions of the suppressed deliveries, counted over all deliveries, with the detail for the log.
    async fn suppressed_among(
        &mut self,
        contents: &[(BatchId, Vec<Delivery>)],
        batches: &HashMap<BatchId, BatchRow>,
    ) -> Result<HashMap<usize, String>, RunError> {
        let recipients: Vec<(&str, &str)> = contents
            .iter()
            .filter_map(|(batch, deliveries)| Some((batches.get(batch)?, deliveries)))
            .flat_map(|(batch, deliveries)| {
                let channel = batch.envelope.lane.channel.as_str();
                deliveries.iter().map(move |delivery| (channel, &*delivery.recipient))
            })
            .collect();
        Ok(self.suppressed_of(&recipients).await?)
    }

    /// The batches of `chunks`, with their contents. Batches of one broadcast share its content.
    pub(super) async fn batches(
        &mut self,
        chunks: impl Iterator<Item = &ChunkRow>,
    ) -> Result<HashMap<BatchId, BatchRow>, RunError> {
        let mut ids: Vec<i64> = chunks.map(|chunk| chunk.batch.0.cast_signed()).collect();
        ids.sort_unstable();
        // Chunks that were cut share a batch, and its contents may be large.
        ids.dedup();
        if ids.is_empty() {
            return Ok(HashMap::new());
        }
        Ok(batches_at(&self.rows(select_batch!("batch.id = ANY($1)"), &[&ids]).await?)?)
    }
}

/// The contents of the chosen chunks.
fn deliveries_of(
    chosen: &[ChunkRow],
    batches: &HashMap<BatchId, BatchRow>,
) -> Result<Vec<(BatchId, Vec<Delivery>)>, RunError> {
    let of = |chunk: &ChunkRow| {
        let batch = batches.get(&chunk.batch).ok_or_else(|| missing(chunk.batch))?;
        Ok((chunk.batch, deliveries(batch, &chunk.members())?))
    };
    chosen.iter().map(of).collect()
}

pub(super) fn missing(batch: BatchId) -> StoreError {
    StoreError::Damaged(format!("batch {} is missing", batch.0))
}

/// The batches in all rows that a statement of [`select_batch`] gave, with their contents: any row of a broadcast's batches may be the
/// one that has what they share.
pub(super) fn batches_at(rows: &[Row]) -> Result<HashMap<BatchId, BatchRow>, StoreError> {
    let mut batches = HashMap::with_capacity(rows.len());
    let (mut shared, mut sharing) = (HashMap::new(), Vec::new());
    for row in rows {
        let batch = batch_at(row)?;
        if let Some(broadcast) = batch.envelope.broadcast
            && row.try_get(13)?
        {
            sharing.push((batch.id, broadcast));
            shared.extend(batch.content.clone().map(|content| (broadcast, content)));
        }
        batches.insert(batch.id, batch);
    }
    for (id, broadcast) in sharing {
        if let Some(batch) = batches.get_mut(&id) {
            batch.content = shared.get(&broadcast).cloned();
        }
    }
    Ok(batches)
}

/// Reads a row of [`select_batch`].
fn batch_at(row: &Row) -> Result<BatchRow, StoreError> {
    let code: i16 = row.try_get(1)?;
    let content = match (row.try_get::<_, Option<&[u8]>>(6)?, row.try_get::<_, Option<&[u8]>>(7)?) {
        (Some(options), Some(payload)) => Some(Content {
            payload: Bytes::copy_from_slice(payload),
            options: Bytes::copy_from_slice(options),
            fallback: None,
        }),
        _ => None,
    };
    let broadcast: Option<i64> = row.try_get(5)?;
    let traces: Option<&[u8]> = row.try_get(15)?;
    Ok(BatchRow {
        id: BatchId(row.try_get::<_, i64>(0)?.cast_unsigned()),
        envelope: Envelope {
            lane: lane_at(row, 9)?,
            guarantee: codes::guarantee(u8::try_from(code).unwrap_or(u8::MAX))?,
            due_at: Timestamp::from_millis(row.try_get(3)?),
            expires_at: row.try_get::<_, Option<i64>>(4)?.map(Timestamp::from_millis),
            broadcast: broadcast.map(|id| BroadcastId(id.cast_unsigned())),
        },
        accepted_at: Timestamp::from_millis(row.try_get(2)?),
        content,
        removed: u8::try_from(row.try_get::<_, i16>(14)?).unwrap_or(u8::MAX),
        items: Bytes::copy_from_slice(row.try_get(8)?),
        traces: traces.map(ItemTraces::from_bytes).unwrap_or_default(),
    })
}
