//! Claims and tickets: what is due is planned in memory, leased by one statement, and read.
//!
//! The plan looks at what the index has next in the lanes whose turn it is, without a lock; the lease takes what is
//! still there, and skips what another transaction holds.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use notification::{
    BroadcastId, Bytes, Chunk, ChunkId, Content, Epoch, State, Ticket, Timestamp, limits,
};

use super::board::Place;
use super::bury::end_lease;
use super::plan::{Candidate, Need, Plan, candidate};
use super::round::{Interrupted, Round};
use super::settle::{batches, missing};
use super::table::{self, Held, lane_number, returning_chunk, small, unsigned};
use super::work::WorkDesk;
use crate::rows::codec::LogLine;
use crate::rows::lanes::LaneId;
use crate::rows::members::Members;
use crate::rows::model::{BatchRow, ChunkRow, deliveries};
use crate::{Claim, ClaimRequest, StoreError};

/// The contents of the broadcasts that were claimed from last.
#[derive(Debug, Default)]
pub(super) struct Contents {
    known: VecDeque<(BroadcastId, Content)>,
}

/// Broadcasts under way at a time are few; each may have 256 KiB.
const CONTENTS_MAX: usize = 16;
/// Candidates read at once, at first and at most. More than is taken costs a little, another look costs more.
const CANDIDATES: usize = 32;
const CANDIDATES_MAX: usize = 4_096;

const NAME_LANES: &str =
    "SELECT l.id, l.channel, l.destination, l.priority FROM lane AS l WHERE l.id = ANY($1)";
const LEASES_ENDED: &str = returning_chunk!(
    "SELECT",
    "FROM chunk AS c WHERE c.lease_until > $2 AND c.lease_until <= $3 \
       AND c.partition = ANY(ARRAY(SELECT id FROM partition WHERE owner = $1)) \
     ORDER BY c.id FOR UPDATE SKIP LOCKED"
);
const NEXT_LEASE_END: &str = "SELECT min(c.lease_until) FROM chunk AS c WHERE c.lease_until > $2 \
     AND c.partition = ANY(ARRAY(SELECT id FROM partition WHERE owner = $1))";
const SELECT_CANDIDATES: &str = "SELECT n.lane, c.due_at, c.id, c.count, b.expires_at \
     FROM unnest($2::int[], $3::bigint[], $4::bigint[]) AS n (lane, due_at, id) \
     CROSS JOIN LATERAL ( \
       SELECT due_at, id, batch, count FROM chunk WHERE lane = n.lane AND lease_until IS NULL \
         AND (due_at, id) > (n.due_at, n.id) \
         AND partition = ANY(ARRAY(SELECT id FROM partition WHERE owner = $1)) \
       ORDER BY due_at, id LIMIT $5) AS c \
     JOIN batch AS b ON b.id = c.batch";
const LEASE: &str = returning_chunk!(
    "WITH wanted AS MATERIALIZED ( \
       SELECT id FROM chunk WHERE id = ANY($2) AND lease_until IS NULL \
         AND partition = ANY(ARRAY(SELECT id FROM partition WHERE owner = $1)) \
       ORDER BY id FOR UPDATE SKIP LOCKED) \
     UPDATE chunk AS c SET epoch = c.epoch + 1, lease_until = $3, worker = $4, is_ticket = $5 \
     FROM wanted WHERE c.id = wanted.id RETURNING",
    ""
);
const LOCK_READY: &str = returning_chunk!(
    "SELECT",
    "FROM chunk AS c WHERE c.id = ANY($1) AND c.lease_until IS NULL ORDER BY c.id \
     FOR UPDATE SKIP LOCKED"
);
const SELECT_CONTENTS: &str = "SELECT id, payload, options FROM broadcast WHERE id = ANY($1)";
const SELECT_SUPPRESSED: &str = "SELECT s.channel, s.recipient \
     FROM unnest($1::text[], $2::text[]) AS n (channel, recipient) JOIN suppression AS s \
     ON s.channel = n.channel COLLATE \"C\" AND s.recipient = n.recipient COLLATE \"C\"";

// === impl WorkDesk ===

impl WorkDesk {
    pub(super) async fn claim(
        &mut self,
        round: &mut Round<'_>,
        request: ClaimRequest,
    ) -> Result<Claim<Chunk>, Interrupted> {
        let lease_until = request.now.plus(request.lease);
        let worker = self.shared.worker();
        self.look(round, request.now).await?;
        let plan = self.plan(round, request, true).await?;
        self.end_expired(round, &plan, request.now).await?;
        let leased = self.lease(round, &plan, (lease_until, Some(worker))).await?;
        let chunks = self.open(round, leased, request.now).await?;
        Ok(Claim { chunks, next_at: self.finish(&request) })
    }

    pub(super) async fn issue(
        &mut self,
        round: &mut Round<'_>,
        request: ClaimRequest,
    ) -> Result<Claim<Ticket>, Interrupted> {
        let lease_until = request.now.plus(request.lease);
        self.look(round, request.now).await?;
        let request = ClaimRequest {
            lane_window: self.shared.scaled(request.lane_window),
            total_window: self.shared.scaled(request.total_window),
            ..request
        };
        let plan = self.plan(round, request, false).await?;
        let leased = self.lease(round, &plan, (lease_until, None)).await?;
        let mut tickets = Vec::with_capacity(leased.len());
        for held in leased {
            let lane = self.shared.board().lanes.lane(held.row.lane).cloned();
            let missing = || StoreError::Damaged(format!("lane {} is missing", held.row.lane));
            tickets.push(Ticket {
                chunk: held.row.id,
                epoch: held.row.epoch,
                priority: lane.ok_or_else(missing)?.priority,
                lease_until,
                count: small(held.row.count)?,
            });
        }
        Ok(Claim { chunks: tickets, next_at: self.finish(&request) })
    }

    /// Exchanges tickets for chunks; the chunks are in hand.
    pub(super) async fn take(
        &mut self,
        round: &mut Round<'_>,
        tickets: &[Ticket],
        (now, lease): (Timestamp, Duration),
    ) -> Result<Vec<Option<Chunk>>, Interrupted> {
        let lease_until = now.plus(lease);
        let mut taken = Vec::new();
        let mut places: HashMap<ChunkId, usize> = HashMap::new();
        for (place, ticket) in tickets.iter().enumerate() {
            let held = round.chunk(ticket.chunk).filter(|held| {
                held.is_ticket
                    && held.row.epoch == ticket.epoch
                    && held.row.lease_until.is_some_and(|until| until > now)
            });
            let Some(held) = held.cloned() else { continue };
            let epoch = Epoch(held.row.epoch.0.saturating_add(1));
            let row = ChunkRow { epoch, lease_until: Some(lease_until), ..held.row };
            let worker = Some(self.shared.worker());
            let held = Held { row, worker, is_ticket: false, ..held };
            round.change(held.clone());
            if self.shared.owns(held.partition) {
                self.shared.board().lease(held.row.id, lease_until);
            }
            places.insert(held.row.id, place);
            taken.push(held);
        }
        let mut chunks: Vec<Option<Chunk>> = vec![None; tickets.len()];
        for chunk in self.open(round, taken, now).await? {
            let place = places.get(&chunk.id).and_then(|place| chunks.get_mut(*place));
            if let Some(place) = place {
                *place = Some(chunk);
            }
        }
        Ok(chunks)
    }

    /// Ends the claims that ended by `now`, and learns what others told of.
    async fn look(&self, round: &mut Round<'_>, now: Timestamp) -> Result<(), Interrupted> {
        let (to_look_at, unknown) = {
            let mut board = self.shared.board();
            board.start_reading();
            (board.leases_to_look_at(now), board.take_unknown())
        };
        if let Some((since, is_last)) = to_look_at {
            let (since, now_millis, worker) = (since.millis(), now.millis(), self.shared.worker());
            for chunk in round.hold(LEASES_ENDED, &[&worker, &since, &now_millis]).await? {
                if let Some(held) = round.chunk(chunk).cloned() {
                    end_lease(round, held, now, "lease ended");
                }
            }
            let next = if is_last {
                round.query(NEXT_LEASE_END, &[&worker, &now_millis]).await?
            } else {
                Vec::new()
            };
            let mut board = self.shared.board();
            board.looked(now);
            if let Some(row) = next.first()
                && let Some(until) = row.try_get::<_, Option<i64>>(0)?
            {
                board.look_at(Timestamp::from_millis(until));
            }
        }
        // What this transaction made ready is there to be claimed.
        round.flush().await?;
        round.apply();
        if !unknown.is_empty() {
            let lanes: Vec<i32> = unknown.iter().map(|(lane, _)| lane_number(*lane)).collect();
            let rows = round.query(NAME_LANES, &[&lanes]).await?;
            let mut board = self.shared.board();
            for row in rows {
                board.learn(LaneId::from(row.try_get::<_, i32>(0)?), table::lane(&row, 1)?);
            }
            for (lane, due_at) in unknown {
                board.found_due(lane, Place { due_at, chunk: 0 });
            }
        }
        Ok(())
    }

    /// Decides what to take; the board counts it as claimed already.
    async fn plan(
        &self,
        round: &Round<'_>,
        request: ClaimRequest,
        ends_expired: bool,
    ) -> Result<Plan, Interrupted> {
        let mut plan = Plan::default();
        let mut limit = CANDIDATES;
        while plan.choose(&mut self.shared.board(), &request, ends_expired) == Need::Candidates {
            let wanted = plan.wanted(&mut self.shared.board(), &request);
            let lanes: Vec<i32> = wanted.iter().map(|(lane, _)| lane_number(*lane)).collect();
            let due: Vec<i64> = wanted.iter().map(|(_, from)| from.due_at.millis()).collect();
            let ids: Vec<i64> = wanted.iter().map(|(_, from)| from.chunk).collect();
            // One more than can be due says when the lane goes on.
            let of_lane = limit.div_ceil(wanted.len().max(1)) + 1;
            let (worker, rows_max) =
                (self.shared.worker(), i64::try_from(of_lane).unwrap_or(i64::MAX));
            let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 5] =
                [&worker, &lanes, &due, &ids, &rows_max];
            let rows = round.query(SELECT_CANDIDATES, &parameters).await?;
            let mut found: BTreeMap<LaneId, Vec<Candidate>> = BTreeMap::new();
            for row in &rows {
                let candidate = candidate(row)?;
                found.entry(candidate.lane).or_default().push(candidate);
            }
            for (lane, _) in wanted {
                plan.deal(lane, found.remove(&lane).unwrap_or_default(), of_lane);
            }
            limit = (4 * limit).min(CANDIDATES_MAX);
        }
        Ok(plan)
    }

    /// Settles as expired what the plan found to be.
    async fn end_expired(
        &self,
        round: &mut Round<'_>,
        plan: &Plan,
        now: Timestamp,
    ) -> Result<(), Interrupted> {
        if plan.expired.is_empty() {
            return Ok(());
        }
        let chunks: Vec<i64> = plan.expired.iter().map(|one| one.place.chunk).collect();
        let ended: BTreeSet<ChunkId> =
            round.hold(LOCK_READY, &[&chunks]).await?.into_iter().collect();
        for chunk in &ended {
            let Some(held) = round.chunk(*chunk).cloned() else { continue };
            let line = LogLine::unattempted(now, State::Expired);
            round.end(held.row.batch, &line, &held.row.members());
            round.shrink(*chunk, &Members::default());
        }
        let mut board = self.shared.board();
        for one in plan.expired.iter().filter(|one| !ended.contains(&one.id())) {
            board.found_due(one.lane, one.place);
        }
        Ok(())
    }

    /// Leases what was chosen, as far as it is still there.
    async fn lease(
        &self,
        round: &mut Round<'_>,
        plan: &Plan,
        (lease_until, worker): (Timestamp, Option<i64>),
    ) -> Result<Vec<Held>, Interrupted> {
        if plan.chosen.is_empty() {
            return Ok(Vec::new());
        }
        let ids: Vec<i64> = plan.chosen.iter().map(|one| one.place.chunk).collect();
        let (owner, until, is_ticket) =
            (self.shared.worker(), lease_until.millis(), worker.is_none());
        let rows = round.query(LEASE, &[&owner, &ids, &until, &worker, &is_ticket]).await?;
        let mut leased = HashMap::with_capacity(rows.len());
        for row in &rows {
            let held = table::held(row)?;
            round.take_in_hand(held.clone());
            leased.insert(held.row.id, held);
        }
        let mut in_order = Vec::with_capacity(leased.len());
        let mut board = self.shared.board();
        for one in &plan.chosen {
            if let Some(held) = leased.remove(&one.id()) {
                board.lease(held.row.id, lease_until);
                in_order.push(held);
            } else {
                // Somebody withdraws some of it just now.
                board.free(one.lane, one.count + limits::CHUNK_WEIGHT);
                board.found_due(one.lane, one.place);
            }
        }
        Ok(in_order)
    }

    /// Reads what leased chunks hold, and ends what must not be sent: those chunks are left out, or smaller.
    async fn open(
        &mut self,
        round: &mut Round<'_>,
        leased: Vec<Held>,
        now: Timestamp,
    ) -> Result<Vec<Chunk>, Interrupted> {
        if leased.is_empty() {
            return Ok(Vec::new());
        }
        let mut found = batches(round, leased.iter().map(|held| held.row.batch)).await?;
        self.contents.fetch(round, found.values()).await?;
        let mut chunks = Vec::with_capacity(leased.len());
        for held in leased {
            let batch = found.get_mut(&held.row.batch).ok_or_else(|| missing(held.row.batch))?;
            if let Some(broadcast) = batch.envelope.broadcast {
                batch.content = Some(self.contents.get(broadcast)?);
            }
            if batch.envelope.expires_at.is_some_and(|expires_at| expires_at <= now) {
                end_members(round, &held, &held.row.members(), State::Expired, now);
                continue;
            }
            chunks.push((chunk_of(&held.row, batch, self.shared.realm)?, held));
        }
        self.end_suppressed(round, &mut chunks, now).await?;
        Ok(chunks.into_iter().map(|(chunk, _)| chunk).collect())
    }

    /// Takes out of chunks who is on the suppression list.
    async fn end_suppressed(
        &self,
        round: &mut Round<'_>,
        chunks: &mut Vec<(Chunk, Held)>,
        now: Timestamp,
    ) -> Result<(), Interrupted> {
        let (mut channels, mut recipients) = (Vec::new(), Vec::new());
        {
            let board = self.shared.board();
            if board.suppressed.is_empty() {
                return Ok(());
            }
            for (chunk, _) in chunks.iter() {
                let channel = chunk.envelope.lane.channel.as_str();
                let suspects = chunk.deliveries.iter().map(|delivery| &*delivery.recipient);
                for recipient in suspects.filter(|it| board.suppressed.may_contain(channel, it)) {
                    channels.push(channel.to_owned());
                    recipients.push(recipient.to_owned());
                }
            }
        }
        if channels.is_empty() {
            return Ok(());
        }
        let rows = round.query(SELECT_SUPPRESSED, &[&channels, &recipients]).await?;
        let mut listed: BTreeSet<(&str, &str)> = BTreeSet::new();
        for row in &rows {
            listed.insert((row.try_get(0)?, row.try_get(1)?));
        }
        for (chunk, held) in chunks.iter_mut() {
            let channel = chunk.envelope.lane.channel.clone();
            let is_listed = |recipient: &str| listed.contains(&(channel.as_str(), recipient));
            let ended = chunk.deliveries.extract_if(.., |delivery| is_listed(&delivery.recipient));
            let ended: Members = ended.map(|delivery| delivery.index).collect();
            end_members(round, held, &ended, State::Suppressed, now);
        }
        chunks.retain(|(chunk, _)| !chunk.deliveries.is_empty());
        Ok(())
    }

    /// The board follows what came while the claim was made; says when the next one can bring something.
    fn finish(&self, request: &ClaimRequest) -> Option<Timestamp> {
        let mut board = self.shared.board();
        board.finish_reading();
        let next_due = board.lanes.next_at(request);
        next_due.into_iter().chain(board.next_lease_end()).min()
    }
}

// === impl Contents ===

impl Contents {
    /// Has the contents of the broadcasts of `batches`.
    async fn fetch(
        &mut self,
        round: &Round<'_>,
        batches: impl Iterator<Item = &BatchRow>,
    ) -> Result<(), Interrupted> {
        let wanted: BTreeSet<BroadcastId> =
            batches.filter_map(|batch| batch.envelope.broadcast).collect();
        let missing = wanted.iter().filter(|id| !self.known.iter().any(|(known, _)| known == *id));
        let missing: Vec<i64> = missing.map(|id| id.0.cast_signed()).collect();
        if missing.is_empty() {
            return Ok(());
        }
        while self.known.len() > CONTENTS_MAX {
            self.known.pop_front();
        }
        for row in round.query(SELECT_CONTENTS, &[&missing]).await? {
            let piece = |column| -> Result<Bytes, StoreError> {
                Ok(Bytes::copy_from_slice(row.try_get::<_, &[u8]>(column)?))
            };
            let content = Content { payload: piece(1)?, options: piece(2)? };
            self.known.push_back((BroadcastId(unsigned(&row, 0)?), content));
        }
        Ok(())
    }

    fn get(&self, id: BroadcastId) -> Result<Content, StoreError> {
        let found = self.known.iter().find(|(known, _)| *known == id);
        let missing = || StoreError::Damaged(format!("broadcast {id} is missing"));
        found.map(|(_, content)| content.clone()).ok_or_else(missing)
    }
}

/// A leased chunk as its claimant gets it.
fn chunk_of(row: &ChunkRow, batch: &BatchRow, realm: u16) -> Result<Chunk, StoreError> {
    Ok(Chunk {
        id: row.id,
        epoch: row.epoch,
        lease_until: row.lease_until.unwrap_or(Timestamp::MAX),
        batch: row.batch,
        realm,
        accepted_at: batch.accepted_at,
        envelope: batch.envelope.clone(),
        attempt: row.attempt,
        content: batch.content.clone(),
        deliveries: deliveries(batch, &row.members())?,
    })
}

/// Ends members of a leased chunk that must not be sent.
fn end_members(round: &mut Round<'_>, held: &Held, ended: &Members, state: State, now: Timestamp) {
    if ended.is_empty() {
        return;
    }
    let row = &held.row;
    let mut rest = row.members();
    for index in ended.iter() {
        rest.remove(index);
    }
    round.end(row.batch, &LogLine::unattempted(now, state), ended);
    round.shrink(row.id, &rest);
    let gone = if rest.is_empty() { limits::CHUNK_WEIGHT } else { 0 };
    round.free(held.partition, row.lane, ended.len() + gone);
}
