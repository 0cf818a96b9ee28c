//! The choice of the chunks to be claimed next: lanes in turn, within their windows, from the partitions that are ours.
//!
//! The lanes with due chunks are held in memory, from notices and from the index `chunk_due`, which is read a page at a time, and
//! from its beginning again now and then. A lane keeps a watermark, below which none of our chunks is ready, so no look at the
//! index passes chunks that were claimed before.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use async_trait::async_trait;
use notification::{ChunkId, Epoch, Lane, Name, Timestamp, limits};
use tokio_postgres::Row;

use super::Postgres;
use super::ahead::{NextChunk, ReadAhead};
use super::columns::{lane_at, narrow, signed};
use super::lease::Lease;
use super::request::WriterRequest;
use super::transaction::{RunError, Transaction, Writes};
use crate::rows::claim_load::ClaimLoad;
use crate::rows::codes::LaneId;
use crate::rows::due::LANES_PER_PAGE;
use crate::rows::lanes::Turn;
use crate::rows::model::{ChunkRow, NewChunk};
use crate::rows::room::LaneLoad;
use crate::{ClaimRequest, Offer, StoreError};

/// Lanes with a ready chunk behind a place, in the order of the index: each hop of the recursion is one step from an entry to the
/// next span or lane. There are no more hops than rows are requested.
pub(super) const SELECT_DUE: &str = "WITH RECURSIVE due (span, lane, due_at) AS ( \
       (SELECT due_at >> 14, lane, due_at FROM chunk WHERE lease_until IS NULL AND (due_at >> 14, lane) > ($1, $2) \
        ORDER BY due_at >> 14, lane, due_at LIMIT 1) \
       UNION ALL SELECT next.* FROM due CROSS JOIN LATERAL ( \
         SELECT due_at >> 14, lane, due_at FROM chunk \
         WHERE lease_until IS NULL AND (due_at >> 14, lane) > (due.span, due.lane) \
         ORDER BY due_at >> 14, lane, due_at LIMIT 1) AS next) \
     SELECT lane.id, channel, destination, priority, tenant, due_at \
     FROM (SELECT * FROM due LIMIT $3) AS page JOIN tenant_lane AS lane ON lane.id = page.lane";
const SELECT_CLAIMED: &str = "SELECT lane.id, channel, destination, priority, tenant, \
     (sum(count + weight) + count(*) * $2)::int8, min(lease_until), sum(count)::int8 \
     FROM chunk JOIN tenant_lane AS lane ON lane.id = chunk.lane \
     WHERE lease_until IS NOT NULL AND partition = ANY($1) GROUP BY lane.id";

/// Chunks to be claimed.
#[derive(Debug, Default)]
struct Chosen {
    chunks: Vec<ChunkRow>,
    /// Rests that were cut off some of them.
    rests: HashMap<ChunkId, NewChunk>,
    probes: HashMap<LaneId, Timestamp>,
}

/// Chunks that were leased.
#[derive(Debug, Default)]
pub(super) struct Leased {
    /// As they were before.
    pub(super) chunks: Vec<ChunkRow>,
    /// The lanes of which a probe was noted, and until when each was closed before.
    pub(super) probes: HashMap<LaneId, Timestamp>,
}

/// Parks the lanes of other channels.
#[derive(Debug)]
pub(super) struct OfferChannels(pub(super) Arc<BTreeSet<Name>>);

#[async_trait]
impl WriterRequest for OfferChannels {
    type Answer = ();

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<(), RunError> {
        // Kept beside the lanes as well: those are made anew when they are read again.
        transaction.state.offered = Some(Arc::clone(&self.0));
        transaction.state.claiming.lanes.offer(transaction.state.offered.clone());
        transaction.effects.woke = true;
        Ok(())
    }
}

#[async_trait]
impl Offer for Postgres {
    async fn offer(&self, channels: Arc<BTreeSet<Name>>) -> Result<(), StoreError> {
        self.work.run(OfferChannels(channels)).await
    }
}

// === impl Transaction ===

impl Transaction<'_> {
    /// The windows of all consumers, as far as this producer may fill them.
    pub(super) fn share_of(&self, request: ClaimRequest) -> ClaimRequest {
        let membership = self.state.membership.borrow();
        // Without a consumer nothing is issued: a ticket that no process takes would only come back when its lease ends.
        let share = |window: usize| {
            window.saturating_mul(membership.consumers).div_ceil(membership.producers.max(1))
        };
        let (lane_window, total_window) = (share(request.lane_window), share(request.total_window));
        let probe_window = request.probe_window.map(share);
        ClaimRequest { lane_window, total_window, probe_window, ..request }
    }

    /// Leases the due chunks that may be claimed now, in turn; those whose leases ended are due again first.
    pub(super) async fn claim(
        &mut self,
        request: ClaimRequest,
        lease: Lease,
    ) -> Result<Leased, RunError> {
        let Chosen { mut chunks, mut rests, probes } = self.choose(request).await?;
        let leased = self.lease(&chunks, lease).await?;
        // Of one that was not leased nothing may be ended or cut: it was changed since it was read, or this process may claim
        // no more.
        chunks.retain(|chunk| leased.contains(&chunk.id));
        let mut writes = Writes::default();
        for chunk in &chunks {
            // Only now: a chunk that is not leased may be cut by another process.
            if let Some(rest) = rests.remove(&chunk.id) {
                // The lease has raised its epoch, and a write that names the former one would undo the transaction.
                let leased = ChunkRow { epoch: Epoch(chunk.epoch.0 + 1), ..chunk.clone() };
                writes.set_members(&leased, &chunk.members());
                // Of this process's partition, as what it was cut off: it is nothing new to others.
                self.state.claiming.add_due(rest.lane, rest.due_at);
                writes.rest(rest);
            }
        }
        self.write(writes).await?;
        Ok(Leased { chunks, probes })
    }

    async fn choose(&mut self, request: ClaimRequest) -> Result<Chosen, RunError> {
        self.reload().await?;
        // One view for the whole claim: a pause that comes meanwhile is answered only when this transaction has ended.
        let pauses = Arc::clone(&self.state.pauses.borrow());
        self.state.claiming.lanes.pause(&pauses);
        self.end_overdue_leases(request.now).await?;
        self.read_due(&request).await?;
        self.resolve_unknown_lanes().await?;
        // Of this claim alone: nothing that it reads is locked, and the next one would go by chunks that others have taken.
        let mut ahead = ReadAhead::default();
        let mut chosen = Chosen::default();
        let mut load = ClaimLoad::new(&request);
        while load.items() < limits::TRANSACTION_ITEMS
            && let Some(Turn { lane, deliveries }) = self.state.claiming.lanes.next(&request)
        {
            let next = self.look_ahead(lane, &mut ahead, &request).await?;
            let lanes = &mut self.state.claiming.lanes;
            let (mut first, of_batch) = match next {
                NextChunk::Chunk(first, of_batch) if first.due_at <= request.now => {
                    (first, of_batch)
                }
                NextChunk::NotBefore(at) if at <= request.now => {
                    // The next claim goes on with it, when the other lanes have had their turns.
                    lanes.passed(lane, Some(at));
                    break;
                }
                next @ (NextChunk::Chunk(..) | NextChunk::NotBefore(_) | NextChunk::Nothing) => {
                    lanes.set_next_due(lane, next.due_at());
                    continue;
                }
            };
            let whole = first.count;
            // An expired chunk ends whole, however many deliveries may be sent, and a paused one is put away whole.
            let is_whole = of_batch.is_expired(request.now) || of_batch.is_paused(&pauses);
            let rest = if is_whole { None } else { first.cut(deliveries) };
            // By the lengths that the look has brought: contents are read of what is leased only.
            let bytes = of_batch.bytes(first.count, whole);
            let of_first = first.load(bytes);
            if !load.fits(of_first) {
                break;
            }
            load.add(of_first);
            first.weight = limits::weight_of_bytes(first.count, bytes);
            // Before it is leased: if the lease is lost, or the transaction, all of this is read anew.
            if let Some(place) = ahead.pop(lane) {
                self.move_watermark(lane, place, request.now);
            }
            let second = self.look_ahead(lane, &mut ahead, &request).await?;
            let lanes = &mut self.state.claiming.lanes;
            // What is ended or put away instead of sent will never report an answer, and is no probe.
            if !is_whole && let Some(before) = lanes.note_probe(lane, request.now) {
                chosen.probes.entry(lane).or_insert(before);
            }
            lanes.add_claimed(lane, first.count);
            lanes.add_load(lane, LaneLoad { deliveries: 0, weight: first.weight });
            // Of the rest it is told when it is there.
            lanes.served(lane, second.due_at());
            chosen.rests.extend(rest.map(|rest| (first.id, rest)));
            chosen.chunks.push(first);
        }
        Ok(chosen)
    }

    /// Time of the next claim if nothing changes before.
    pub(super) fn next_at(&self, request: &ClaimRequest) -> Option<Timestamp> {
        let claiming = &self.state.claiming;
        let next_lease_end = claiming.leases.first().map(|(until, _)| *until);
        claiming.lanes.next_at(request).into_iter().chain(next_lease_end).min()
    }

    /// Reads the next page of lanes with something due, if there may be more than are known.
    async fn read_due(&mut self, request: &ClaimRequest) -> Result<(), RunError> {
        let Some(place) = self.state.claiming.lanes.unread(request) else { return Ok(()) };
        if self.state.membership.borrow().partitions.is_empty() {
            // None of the chunks would be ours.
            self.state.claiming.lanes.read_all();
            return Ok(());
        }
        let limit = signed(LANES_PER_PAGE);
        let rows = self.rows(SELECT_DUE, &[&place.span, &narrow(place.lane), &limit]).await?;
        for row in &rows {
            let (id, lane) = lane_of(row)?;
            let due_at = Timestamp::from_millis(row.try_get(5)?);
            self.state.claiming.add_read(id, lane, due_at);
        }
        if rows.len() < LANES_PER_PAGE {
            self.state.claiming.lanes.read_all();
        }
        Ok(())
    }

    /// Reads the state of claims anew, if it was read for other partitions or was invalidated.
    pub(super) async fn reload(&mut self) -> Result<(), RunError> {
        let (worker, partitions) = {
            let membership = self.state.membership.borrow();
            (membership.worker, membership.partitions.clone())
        };
        // By worker, too: one that was removed and has joined anew may own the same partitions, of which others have claimed
        // meanwhile.
        let now_for = Some((worker, partitions.clone()));
        if self.state.claiming.read_for == now_for {
            return Ok(());
        }
        self.state.claiming = std::mem::take(&mut self.state.claiming).anew();
        self.state.claiming.lanes.offer(self.state.offered.clone());
        if partitions.is_empty() {
            self.state.claiming.read_for = now_for;
            return Ok(());
        }
        // Claims that another worker made of these partitions count as well: what they hold is under way, and fills the windows.
        let chunk_weight = i64::try_from(limits::CHUNK_WEIGHT).unwrap_or(0);
        for row in &self.rows(SELECT_CLAIMED, &[&partitions, &chunk_weight]).await? {
            let (id, lane) = lane_of(row)?;
            let claiming = &mut self.state.claiming;
            if claiming.lanes.lane(id).is_none() {
                claiming.lanes.add(id, lane);
            }
            let weight: i64 = row.try_get(5)?;
            let deliveries: i64 = row.try_get(7)?;
            let [deliveries, weight] =
                [deliveries, weight].map(|count| usize::try_from(count).unwrap_or(0));
            // Probes that are not answered would fill the window of the others.
            claiming.lanes.restore_load(id, LaneLoad { deliveries, weight }, self.begun_at);
            let until = Timestamp::from_millis(row.try_get(6)?);
            claiming.leases.insert((until, ChunkId(0)));
        }
        // Only now: if the look fails, the next claim looks again.
        self.state.claiming.read_for = now_for;
        Ok(())
    }

    /// The lane with number `id`.
    pub(super) async fn lane(&mut self, id: LaneId) -> Result<Lane, RunError> {
        if let Some(lane) = self.state.claiming.lanes.lane(id) {
            return Ok(lane.clone());
        }
        let select = "SELECT channel, destination, priority, tenant FROM tenant_lane WHERE id = $1";
        let row = self.row(select, &[&narrow(id)]).await?;
        Ok(lane_at(&row, 0)?)
    }

    /// Reads the names of lanes of which notices gave only the numbers.
    pub(super) async fn resolve_unknown_lanes(&mut self) -> Result<(), RunError> {
        if self.state.claiming.unknown_lanes.is_empty() {
            return Ok(());
        }
        let ids: Vec<i32> =
            self.state.claiming.unknown_lanes.keys().map(|id| narrow(*id)).collect();
        let select =
            "SELECT id, channel, destination, priority, tenant FROM tenant_lane WHERE id = ANY($1)";
        for row in &self.rows(select, &[&ids]).await? {
            let (id, lane) = lane_of(row)?;
            let Some(due_at) = self.state.claiming.unknown_lanes.remove(&id) else { continue };
            if self.state.claiming.lanes.lane(id).is_none() {
                self.state.claiming.lanes.add(id, lane);
            }
            self.state.claiming.lanes.add_due(id, due_at);
        }
        self.state.claiming.unknown_lanes.clear();
        Ok(())
    }
}

fn lane_of(row: &Row) -> Result<(LaneId, Lane), RunError> {
    Ok((i64::from(row.try_get::<_, i32>(0)?), lane_at(row, 1)?))
}
