//! Claims, tickets and their exchange, and the end of leases.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use async_trait::async_trait;
use notification::{
    BatchId, BroadcastId, Bytes, Chunk, ChunkId, Content, Delivery, Envelope, Epoch, Lane, State,
    Ticket, Timestamp, limits,
};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::round::{
    Failure, Round, Writes, chunk_at, counted, lane_at, narrow, select_chunk, signed,
};
use super::writer::Ask;
use crate::rows::codec::LogLine;
use crate::rows::lanes::LaneId;
use crate::rows::members::Members;
use crate::rows::model::{self, BatchRow, ChunkRow, deliveries};
use crate::rows::settlement;
use crate::{Claim, ClaimRequest, StoreError};

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

/// Ready chunks of one lane that were read and not claimed yet.
#[derive(Debug, Default)]
struct Ahead {
    chunks: VecDeque<ChunkRow>,
    /// How many are read at once.
    limit: i64,
    /// Whether nothing lies behind them.
    is_all: bool,
}

/// A lease to be written.
#[derive(Debug, Clone, Copy)]
struct Lease {
    until: Timestamp,
    is_ticket: bool,
    /// Whether only partitions of this process may be touched.
    is_guarded: bool,
}

/// Ready chunks of a lane read at first, and at most: lanes of small chunks are read in growing steps.
const LOOK_AHEAD: i64 = 9;
const LOOK_AHEAD_MAX: i64 = 256;
/// Lanes read at once.
const LANES_AHEAD: usize = 16;

const SELECT_READY: &str = "SELECT chunk.id, chunk.batch, chunk.lane, chunk.due_at, chunk.attempt, chunk.epoch, \
     chunk.crashes, chunk.lease_until, chunk.begun_through, chunk.count, chunk.members \
     FROM unnest($1::int4[], $2::int8[], $3::int8[]) AS wanted (lane, due_at, id) CROSS JOIN LATERAL ( \
       SELECT * FROM chunk WHERE lane = wanted.lane AND lease_until IS NULL \
         AND (due_at, id) > (wanted.due_at, wanted.id) AND partition = ANY($4) \
       ORDER BY due_at, id LIMIT $5) AS chunk";
const LEASE: &str = "UPDATE chunk SET epoch = chunk.epoch + 1, lease_until = $5, worker = $6, is_ticket = $7, \
     begun_through = NULL, count = new.count, members = new.members \
     FROM unnest($1::int8[], $2::int8[], $3::int4[], $4::bytea[]) AS new (id, epoch, count, members) \
     WHERE chunk.id = new.id AND chunk.epoch = new.epoch AND (chunk.lease_until IS NULL OR chunk.is_ticket) \
       AND (NOT $8 OR partition IN (SELECT id FROM partition WHERE owner = $6)) RETURNING chunk.id";
const SELECT_OVERDUE: &str = select_chunk!(
    "lease_until > $1 AND lease_until <= $2 AND partition = ANY($3) ORDER BY lease_until, id FOR UPDATE SKIP LOCKED"
);
const SELECT_BATCHES: &str = "SELECT batch.id, batch.guarantee, accepted_at, batch.due_at, batch.expires_at, broadcast, \
     batch.tenant, coalesce(batch.options, broadcast.options), coalesce(batch.payload, broadcast.payload), items, \
     lane.channel, lane.destination, lane.priority \
     FROM batch JOIN lane ON lane.id = batch.lane LEFT JOIN broadcast ON broadcast.id = batch.broadcast \
     WHERE batch.id = ANY($1)";
/// Every lane with something ready, by skipping from one to the next in the index, and its first due time.
const SELECT_LANES: &str = "WITH RECURSIVE ready (lane, due_at) AS ( \
       (SELECT lane, due_at FROM chunk WHERE lease_until IS NULL ORDER BY lane, due_at LIMIT 1) \
       UNION ALL SELECT next.lane, next.due_at FROM ready CROSS JOIN LATERAL ( \
         SELECT lane, due_at FROM chunk WHERE lease_until IS NULL AND lane > ready.lane \
         ORDER BY lane, due_at LIMIT 1) AS next) \
     SELECT lane.id, channel, destination, priority, due_at FROM ready JOIN lane ON lane.id = ready.lane";
const SELECT_CLAIMED: &str = "SELECT lane.id, channel, destination, priority, \
     (sum(count) + count(*) * $2)::int8, min(lease_until) FROM chunk JOIN lane ON lane.id = lane \
     WHERE lease_until IS NOT NULL AND partition = ANY($1) GROUP BY lane.id";

#[async_trait]
impl Ask for ClaimChunks {
    type Answer = Claim<Chunk>;

    async fn ask(&self, round: &mut Round<'_>) -> Result<Self::Answer, Failure> {
        let now = self.0.now;
        let lease = Lease { until: now.plus(self.0.lease), is_ticket: false, is_guarded: true };
        let chosen = round.choose(self.0).await?;
        let chunks = round.open(chosen, now, lease).await?.into_iter().flatten().collect();
        Ok(Claim { chunks, next_at: round.next_at(&self.0) })
    }
}

#[async_trait]
impl Ask for IssueTickets {
    type Answer = Claim<Ticket>;

    async fn ask(&self, round: &mut Round<'_>) -> Result<Self::Answer, Failure> {
        let request = round.share_of(self.0);
        let lease =
            Lease { until: request.now.plus(request.lease), is_ticket: true, is_guarded: true };
        let chosen = round.choose(request).await?;
        let leased = round.lease(&chosen, lease).await?;
        let mut chunks = Vec::with_capacity(chosen.len());
        for chunk in chosen.iter().filter(|chunk| leased.contains(&chunk.id)) {
            chunks.push(Ticket {
                chunk: chunk.id,
                epoch: Epoch(chunk.epoch.0 + 1),
                priority: round.lane(chunk.lane).await?.priority,
                lease_until: lease.until,
                count: u16::try_from(chunk.count).unwrap_or(u16::MAX),
            });
        }
        Ok(Claim { chunks, next_at: round.next_at(&request) })
    }
}

#[async_trait]
impl Ask for TakeChunks {
    type Answer = Vec<Option<Chunk>>;

    async fn ask(&self, round: &mut Round<'_>) -> Result<Self::Answer, Failure> {
        let ids: Vec<i64> =
            self.tickets.iter().map(|ticket| ticket.chunk.0.cast_signed()).collect();
        let mut chunks = round.lock_chunks(&ids).await?;
        let mut good = Vec::new();
        let places: Vec<Option<usize>> = self
            .tickets
            .iter()
            .map(|ticket| {
                let chunk = chunks.get(&ticket.chunk)?;
                let is_good = chunk.epoch == ticket.epoch
                    && chunk.lease_until.is_some_and(|until| until > self.now);
                // The same ticket twice is good once.
                let chunk = is_good.then(|| chunks.remove(&ticket.chunk)).flatten()?;
                good.push(chunk);
                Some(good.len() - 1)
            })
            .collect();
        let lease = Lease { until: self.now.plus(self.lease), is_ticket: false, is_guarded: false };
        let mut taken = round.open(good, self.now, lease).await?;
        let take = |place: Option<usize>| taken.get_mut(place?).and_then(Option::take);
        Ok(places.into_iter().map(take).collect())
    }
}

// === impl Round ===

impl Round<'_> {
    /// The windows of all consumers, as far as this producer may fill them.
    fn share_of(&self, request: ClaimRequest) -> ClaimRequest {
        let membership = self.desk.membership.borrow();
        let share = |window: usize| {
            window.saturating_mul(membership.consumers).div_ceil(membership.producers.max(1))
        };
        let (lane_window, total_window) = (share(request.lane_window), share(request.total_window));
        ClaimRequest { lane_window, total_window, ..request }
    }

    /// The due chunks that may be claimed now, in turn; those whose leases ended are due again first.
    async fn choose(&mut self, request: ClaimRequest) -> Result<Vec<ChunkRow>, Failure> {
        self.look_around().await?;
        self.end_overdue_leases(request.now).await?;
        self.meet_strangers().await?;
        let mut ahead: HashMap<LaneId, Ahead> = HashMap::new();
        let mut chosen = Vec::new();
        let mut items = 0;
        while items < limits::ROUND_ITEMS
            && let Some(lane) = self.desk.claiming.lanes.next(&request)
        {
            let first = self.look_ahead(lane, &mut ahead, &request).await?;
            let lanes = &mut self.desk.claiming.lanes;
            let Some(first) = first.filter(|first| first.due_at <= request.now) else {
                let next_due = ahead.get(&lane).and_then(|ahead| ahead.chunks.front());
                lanes.set_next_due(lane, next_due.map(|chunk| chunk.due_at));
                continue;
            };
            if items > 0 && items + first.count > request.items {
                break;
            }
            items += first.count;
            self.desk.claiming.watermarks.insert(lane, place_of(&first));
            if let Some(ahead) = ahead.get_mut(&lane) {
                ahead.chunks.pop_front();
            }
            let second = self.look_ahead(lane, &mut ahead, &request).await?;
            let lanes = &mut self.desk.claiming.lanes;
            lanes.add_claimed(lane, first.count);
            lanes.served(lane, second.map(|second| second.due_at));
            chosen.push(first);
        }
        Ok(chosen)
    }

    /// The lane's first ready chunk that was not chosen yet.
    async fn look_ahead(
        &mut self,
        lane: LaneId,
        ahead: &mut HashMap<LaneId, Ahead>,
        request: &ClaimRequest,
    ) -> Result<Option<ChunkRow>, Failure> {
        if let Some(known) = ahead.get(&lane)
            && (known.is_all || !known.chunks.is_empty())
        {
            return Ok(known.chunks.front().cloned());
        }
        let claiming = &self.desk.claiming;
        let mut wanted = claiming.lanes.open(request, LANES_AHEAD);
        wanted.retain(|other| *other != lane && !ahead.contains_key(other));
        wanted.push(lane);
        let mark = |lane: &LaneId| claiming.watermarks.get(lane).copied().unwrap_or((i64::MIN, 0));
        let (dues, ids): (Vec<i64>, Vec<i64>) = wanted.iter().map(mark).unzip();
        let lanes: Vec<i32> = wanted.iter().map(|lane| narrow(*lane)).collect();
        let limit =
            ahead.get(&lane).map_or(LOOK_AHEAD, |known| 4 * known.limit).min(LOOK_AHEAD_MAX);
        let partitions = self.desk.membership.borrow().partitions.clone();
        let parameters: [&(dyn ToSql + Sync); 5] = [&lanes, &dues, &ids, &partitions, &limit];
        let rows = self.rows(SELECT_READY, &parameters).await?;
        for lane in &wanted {
            ahead.insert(*lane, Ahead { limit, ..Ahead::default() });
        }
        for row in &rows {
            let chunk = chunk_at(row)?;
            ahead.entry(chunk.lane).or_default().chunks.push_back(chunk);
        }
        // Of lanes that were read before, some is taken already: their number says nothing any more.
        for lane in &wanted {
            if let Some(ahead) = ahead.get_mut(lane) {
                ahead.is_all = signed(ahead.chunks.len()) < limit;
            }
        }
        Ok(ahead.get(&lane).and_then(|ahead| ahead.chunks.front().cloned()))
    }

    /// Leases `chunks`; returns those that could be.
    async fn lease(
        &mut self,
        chunks: &[ChunkRow],
        lease: Lease,
    ) -> Result<HashSet<ChunkId>, Failure> {
        if chunks.is_empty() {
            return Ok(HashSet::new());
        }
        // In one order everywhere, so that two processes never wait for each other.
        let mut chunks: Vec<&ChunkRow> = chunks.iter().collect();
        chunks.sort_unstable_by_key(|chunk| chunk.id);
        let ids: Vec<i64> = chunks.iter().map(|chunk| chunk.id.0.cast_signed()).collect();
        let epochs: Vec<i64> = chunks.iter().map(|chunk| i64::from(chunk.epoch.0)).collect();
        let counts: Vec<i32> = chunks.iter().map(|chunk| counted(chunk.count)).collect();
        let members: Vec<Option<Vec<u8>>> =
            chunks.iter().map(|chunk| chunk.members.as_ref().map(Members::to_blob)).collect();
        let Lease { until, is_ticket, is_guarded } = lease;
        let worker = self.desk.membership.borrow().worker;
        let parameters: [&(dyn ToSql + Sync); 8] =
            [&ids, &epochs, &counts, &members, &until.millis(), &worker, &is_ticket, &is_guarded];
        let rows = self.rows(LEASE, &parameters).await?;
        let mut leased = HashSet::new();
        for row in &rows {
            leased.insert(ChunkId(row.try_get::<_, i64>(0)?.cast_unsigned()));
        }
        if leased.len() < chunks.len() {
            // Somebody else took some, or took the partitions over: what we know is old.
            self.desk.lose_track();
        }
        let own = leased.iter().map(|chunk| (until, *chunk));
        self.desk.claiming.leases.extend(own);
        Ok(leased)
    }

    /// Leases `chosen` chunks and reads what they hold, in their order. What is expired or suppressed of them ends
    /// instead; `None` where nothing is left to send.
    async fn open(
        &mut self,
        mut chosen: Vec<ChunkRow>,
        now: Timestamp,
        lease: Lease,
    ) -> Result<Vec<Option<Chunk>>, Failure> {
        let mut batches = self.batches(chosen.iter()).await?;
        let contents = deliveries_of(&chosen, &batches)?;
        let suppressed = self.suppressed_among(&contents, &batches).await?;
        let mut writes = Writes::default();
        let mut opened = Vec::with_capacity(chosen.len());
        let mut place = 0;
        for (chunk, (batch, mut deliveries)) in chosen.iter_mut().zip(contents) {
            let places = place..place + deliveries.len();
            place = places.end;
            let envelope = &batches.get(&batch).ok_or_else(|| missing(batch))?.envelope;
            let is_expired = envelope.expires_at.is_some_and(|expires_at| expires_at <= now);
            let (state, ended): (State, Members) = if is_expired {
                (State::Expired, chunk.members())
            } else {
                let listed = deliveries.iter().zip(places);
                let listed = listed.filter(|(_, place)| suppressed.contains(place));
                (State::Suppressed, listed.map(|(delivery, _)| delivery.index).collect())
            };
            if !ended.is_empty() {
                self.end(&mut writes, batch, &LogLine::unattempted(now, state), &ended);
                deliveries.retain(|delivery| !ended.contains(delivery.index));
                self.freed(chunk, ended.len(), deliveries.is_empty());
                let rest: Members = deliveries.iter().map(|delivery| delivery.index).collect();
                if rest.is_empty() {
                    writes.shrink(chunk.id, &rest);
                }
                (chunk.count, chunk.members) = (rest.len(), Some(rest));
            }
            opened.push(deliveries);
        }
        self.write(writes).await?;
        let alive: Vec<ChunkRow> = chosen.iter().filter(|chunk| chunk.count > 0).cloned().collect();
        let leased = self.lease(&alive, lease).await?;
        let realm = self.desk.realm;
        let tenure = self.desk.membership.borrow().worker.cast_unsigned();
        let chunk = |(chunk, deliveries): (&ChunkRow, Vec<Delivery>)| {
            let batch = batches.get_mut(&chunk.batch).filter(|_| leased.contains(&chunk.id))?;
            Some(Chunk {
                id: chunk.id,
                epoch: Epoch(chunk.epoch.0 + 1),
                lease_until: lease.until,
                tenure,
                batch: chunk.batch,
                realm,
                accepted_at: batch.accepted_at,
                envelope: batch.envelope.clone(),
                attempt: chunk.attempt,
                content: batch.content.clone(),
                deliveries,
            })
        };
        Ok(chosen.iter().zip(opened).map(chunk).collect())
    }

    /// The places of suppressed ones, counted over all deliveries.
    async fn suppressed_among(
        &mut self,
        contents: &[(BatchId, Vec<Delivery>)],
        batches: &HashMap<BatchId, BatchRow>,
    ) -> Result<HashSet<usize>, Failure> {
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

    /// The batches of `chunks`, with their contents.
    pub(super) async fn batches(
        &mut self,
        chunks: impl Iterator<Item = &ChunkRow>,
    ) -> Result<HashMap<BatchId, BatchRow>, Failure> {
        let mut ids: Vec<i64> = chunks.map(|chunk| chunk.batch.0.cast_signed()).collect();
        ids.sort_unstable();
        ids.dedup();
        if ids.is_empty() {
            return Ok(HashMap::new());
        }
        let rows = self.rows(SELECT_BATCHES, &[&ids]).await?;
        let batches = rows.iter().map(|row| batch_at(row).map(|batch| (batch.id, batch)));
        Ok(batches.collect::<Result<_, _>>()?)
    }

    /// When to claim again if nothing changes before.
    fn next_at(&self, request: &ClaimRequest) -> Option<Timestamp> {
        let claiming = &self.desk.claiming;
        let next_lease_end = claiming.leases.first().map(|(until, _)| *until);
        claiming.lanes.next_at(request).into_iter().chain(next_lease_end).min()
    }

    /// Reads everything anew, if what is in memory was read for other partitions or may be wrong.
    async fn look_around(&mut self) -> Result<(), Failure> {
        let (worker, partitions) = {
            let membership = self.desk.membership.borrow();
            (membership.worker, membership.partitions.clone())
        };
        let now_for = Some((worker, partitions.clone()));
        if self.desk.claiming.read_for == now_for {
            return Ok(());
        }
        self.desk.claiming = super::desk::Claiming::default();
        if partitions.is_empty() {
            self.desk.claiming.read_for = now_for;
            return Ok(());
        }
        for row in &self.rows(SELECT_LANES, &[]).await? {
            let (id, lane) = lane_of(row)?;
            let due_at = Timestamp::from_millis(row.try_get(4)?);
            self.desk.claiming.lanes.add(id, lane);
            self.desk.claiming.lanes.add_due(id, due_at);
        }
        let chunk_weight = i64::try_from(limits::CHUNK_WEIGHT).unwrap_or(0);
        for row in &self.rows(SELECT_CLAIMED, &[&partitions, &chunk_weight]).await? {
            let (id, lane) = lane_of(row)?;
            let claiming = &mut self.desk.claiming;
            if claiming.lanes.lane(id).is_none() {
                claiming.lanes.add(id, lane);
            }
            let weight: i64 = row.try_get(4)?;
            claiming.lanes.add_weight(id, usize::try_from(weight).unwrap_or(0));
            let until = Timestamp::from_millis(row.try_get(5)?);
            claiming.leases.insert((until, ChunkId(0)));
        }
        self.desk.claiming.read_for = now_for;
        Ok(())
    }

    /// Learns the names of lanes that notices spoke of.
    async fn meet_strangers(&mut self) -> Result<(), Failure> {
        if self.desk.claiming.strangers.is_empty() {
            return Ok(());
        }
        let ids: Vec<i32> = self.desk.claiming.strangers.keys().map(|id| narrow(*id)).collect();
        let select = "SELECT id, channel, destination, priority FROM lane WHERE id = ANY($1)";
        for row in &self.rows(select, &[&ids]).await? {
            let (id, lane) = lane_of(row)?;
            let Some(due_at) = self.desk.claiming.strangers.remove(&id) else { continue };
            if self.desk.claiming.lanes.lane(id).is_none() {
                self.desk.claiming.lanes.add(id, lane);
            }
            self.desk.claiming.lanes.add_due(id, due_at);
        }
        self.desk.claiming.strangers.clear();
        Ok(())
    }

    /// Makes due again what nobody may act on any more.
    async fn end_overdue_leases(&mut self, now: Timestamp) -> Result<(), Failure> {
        let claiming = &mut self.desk.claiming;
        if claiming.leases.first().is_none_or(|(until, _)| *until > now) {
            return Ok(());
        }
        let rest = claiming.leases.split_off(&(now, ChunkId(u64::MAX)));
        claiming.leases = rest;
        let before = claiming.checked.replace(now).map_or(i64::MIN, Timestamp::millis);
        let partitions = self.desk.membership.borrow().partitions.clone();
        let rows = self.rows(SELECT_OVERDUE, &[&before, &now.millis(), &partitions]).await?;
        let mut writes = Writes::default();
        let mut unleased = Vec::new();
        for row in &rows {
            let chunk = chunk_at(row)?;
            self.end_lease(&mut writes, &chunk, now, "lease ended");
            // This process claims on in the same round, from partitions that are its own.
            self.desk.claiming.lanes.free(chunk.lane, chunk.count + limits::CHUNK_WEIGHT);
            self.desk.claiming.add_due(chunk.lane, chunk.due_at);
            unleased.push(chunk.id.0.cast_signed());
        }
        self.unlease(&unleased).await?;
        self.write(writes).await?;
        // What they may hold that others claimed since: the next of them.
        let select =
            "SELECT min(lease_until) FROM chunk WHERE lease_until > $1 AND partition = ANY($2)";
        let next: Option<i64> =
            self.row(select, &[&now.millis(), &partitions]).await?.try_get(0)?;
        let next = next.map(|next| (Timestamp::from_millis(next), ChunkId(0)));
        self.desk.claiming.leases.extend(next);
        Ok(())
    }

    /// Logs as in doubt what had begun of a chunk whose claim is void; the rest is due again. Returns the rest.
    pub(super) fn end_lease(
        &mut self,
        writes: &mut Writes,
        chunk: &ChunkRow,
        now: Timestamp,
        detail: &str,
    ) -> Members {
        let (begun, rest) = settlement::begun_and_rest(chunk);
        if !begun.is_empty() {
            let (attempt, state) = (chunk.attempt, State::InDoubt);
            let line = LogLine { at: now, attempt, state, status: 0, detail };
            self.end(writes, chunk.batch, &line, &begun);
            writes.shrink(chunk.id, &rest);
        }
        if !rest.is_empty() {
            self.due(chunk.lane, chunk.due_at);
        }
        rest
    }

    /// Makes chunks ready; their epochs stay, so that the next claim has a new one.
    pub(super) async fn unlease(&mut self, ids: &[i64]) -> Result<(), Failure> {
        if !ids.is_empty() {
            let update = "UPDATE chunk SET lease_until = NULL, worker = NULL, is_ticket = false, \
                 begun_through = NULL WHERE id = ANY($1)";
            self.execute(update, &[&ids]).await?;
        }
        Ok(())
    }
}

fn lane_of(row: &Row) -> Result<(LaneId, Lane), Failure> {
    Ok((i64::from(row.try_get::<_, i32>(0)?), lane_at(row, 1)?))
}

/// What the chosen chunks hold.
fn deliveries_of(
    chosen: &[ChunkRow],
    batches: &HashMap<BatchId, BatchRow>,
) -> Result<Vec<(BatchId, Vec<Delivery>)>, Failure> {
    let of = |chunk: &ChunkRow| {
        let batch = batches.get(&chunk.batch).ok_or_else(|| missing(chunk.batch))?;
        Ok((chunk.batch, deliveries(batch, &chunk.members())?))
    };
    chosen.iter().map(of).collect()
}

/// Where a chunk stands in its lane.
fn place_of(chunk: &ChunkRow) -> (i64, i64) {
    (chunk.due_at.millis(), chunk.id.0.cast_signed())
}

fn missing(batch: BatchId) -> StoreError {
    StoreError::Damaged(format!("batch {} is missing", batch.0))
}

/// Reads a row of [`SELECT_BATCHES`].
fn batch_at(row: &Row) -> Result<BatchRow, StoreError> {
    let code: i16 = row.try_get(1)?;
    let content = match (row.try_get::<_, Option<&[u8]>>(7)?, row.try_get::<_, Option<&[u8]>>(8)?) {
        (Some(options), Some(payload)) => Some(Content {
            payload: Bytes::copy_from_slice(payload),
            options: Bytes::copy_from_slice(options),
        }),
        _ => None,
    };
    let broadcast: Option<i64> = row.try_get(5)?;
    Ok(BatchRow {
        id: BatchId(row.try_get::<_, i64>(0)?.cast_unsigned()),
        envelope: Envelope {
            tenant: model::name(row.try_get(6)?)?,
            lane: lane_at(row, 10)?,
            guarantee: model::guarantee(u8::try_from(code).unwrap_or(u8::MAX))?,
            due_at: Timestamp::from_millis(row.try_get(3)?),
            expires_at: row.try_get::<_, Option<i64>>(4)?.map(Timestamp::from_millis),
            broadcast: broadcast.map(|id| BroadcastId(id.cast_unsigned())),
        },
        accepted_at: Timestamp::from_millis(row.try_get(2)?),
        content,
        items: Bytes::copy_from_slice(row.try_get(9)?),
    })
}
