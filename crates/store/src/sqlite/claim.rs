//! Claims, the fence before the first byte, and the end of leases.

use std::sync::Arc;

use notification::{Chunk, Content, Delivery, Draft, Epoch, Guarantee, State, Timestamp, limits};
use rusqlite::{OptionalExtension, params};

use super::disk::DiskSpace;
use super::rows::{self, select_chunk};
use super::transaction::Transaction;
use crate::rows::claim_load::{ChunkLoad, ClaimLoad};
use crate::rows::codec::LogLine;
use crate::rows::codes::{self, LaneId};
use crate::rows::due::LANES_PER_PAGE;
use crate::rows::lanes::Turn;
use crate::rows::listing;
use crate::rows::members::Members;
use crate::rows::model::{self, BatchRow, ChunkRow, deliveries};
use crate::rows::paused::put_away_until;
use crate::rows::settlement;
use crate::{Claim, ClaimRequest, Mark, MarkAnswer, StoreError};

/// Bounds under which a due chunk is taken.
#[derive(Clone, Copy)]
struct TakeBounds<'a> {
    request: ClaimRequest,
    /// The chunks that were taken before it.
    load: &'a ClaimLoad,
    /// Deliveries taken of a chunk, at most.
    deliveries: usize,
}

/// The outcome of taking a due chunk.
enum TakenChunk {
    /// The chunk has ended: no member was left to send.
    Ended(usize),
    /// The chunk is paused, and due later.
    PutAway(usize),
    /// The chunk is claimed.
    Leased(Box<Chunk>, ChunkLoad),
    /// The chunk is left: it exceeds the claim.
    Left,
}

// === impl Transaction ===

impl Transaction<'_> {
    pub(super) fn claim(&mut self, request: ClaimRequest) -> Result<Claim<Chunk>, StoreError> {
        // First: lanes have the room that settlements of this transaction freed.
        self.note_settled();
        let now = request.now;
        if self.state.room == DiskSpace::Spent {
            // The rest of the reserve is for settling. Room that was made meanwhile is found by claiming again.
            return Ok(Claim { chunks: Vec::new(), next_at: Some(now.plus(limits::DISK_LOOK)) });
        }
        for chunk in self.leases_ended(now)? {
            self.end_lease(&chunk, now, "lease ended")?;
        }
        let pauses = Arc::clone(&self.state.pauses.borrow());
        self.state.lanes.pause(&pauses);
        self.read_due(&request)?;
        let mut chunks = Vec::new();
        let (mut load, mut ended) = (ClaimLoad::new(&request), 0);
        // The number of ends here is bounded like all work of a transaction; the caller comes again at once.
        while ended < limits::TRANSACTION_ITEMS
            && let Some(Turn { lane, deliveries }) = self.state.lanes.next(&request)
        {
            let (first, next_due) = self.first_ready(lane)?;
            // A transaction that was undone may have noted work that is not there.
            let Some(mut first) = first.filter(|first| first.due_at <= now) else {
                self.reset_due(lane)?;
                continue;
            };
            // Accepted chunk by chunk: those of all chunks of a claim could fill the memory.
            let mut fallbacks = Vec::new();
            let is_large = first.count > deliveries;
            let wanted = TakeBounds { request, load: &load, deliveries };
            let taken = self.take(&mut first, wanted, &mut fallbacks)?;
            let is_later = matches!(taken, TakenChunk::PutAway(_));
            let next_due = if fallbacks.is_empty() && !is_large && !is_later {
                next_due
            } else {
                // A fallback may be due in this lane, and the rest of a chunk that was cut or put away is.
                self.accept_fallbacks(fallbacks, now)?;
                rows::next_due(self.connection, lane)?
            };
            match taken {
                TakenChunk::Left => break,
                TakenChunk::Ended(count) | TakenChunk::PutAway(count) => {
                    ended += count;
                    // It was given nothing to send, so it keeps its turn.
                    self.state.lanes.set_next_due(lane, next_due);
                }
                TakenChunk::Leased(chunk, of_chunk) => {
                    load.add(of_chunk);
                    self.state.lanes.note_probe(lane, now);
                    self.state.lanes.add_claimed(lane, of_chunk.items);
                    self.state.lanes.add_bytes(lane, chunk.id, (of_chunk.items, of_chunk.bytes));
                    self.state.lanes.served(lane, next_due);
                    chunks.push(*chunk);
                }
            }
        }
        let next_due = self.state.lanes.next_at(&request);
        // Only a transaction looks at the disk: without one an idle process would not learn that there is room again.
        let look = (self.state.room != DiskSpace::Plenty).then(|| now.plus(limits::DISK_LOOK));
        let next_at = next_due.into_iter().chain(self.next_lease_end()?).chain(look).min();
        Ok(Claim { chunks, next_at })
    }

    /// Reads the next page of lanes with something due, if there may be more than are known.
    fn read_due(&mut self, request: &ClaimRequest) -> Result<(), StoreError> {
        let Some(mut place) = self.state.lanes.unread(request) else { return Ok(()) };
        for _ in 0..LANES_PER_PAGE {
            let Some((next, at)) = rows::due_after(self.connection, place)? else {
                self.state.lanes.read_all();
                return Ok(());
            };
            let lane = self.lane(next.lane)?;
            self.state.lanes.add_read(next.lane, lane, at);
            place = next;
        }
        Ok(())
    }

    /// The lane's first ready chunk, and when the one after it is due.
    fn first_ready(
        &self,
        lane: LaneId,
    ) -> Result<(Option<ChunkRow>, Option<Timestamp>), StoreError> {
        let select = self.sql(select_chunk!(
            "lane = ?1 AND lease_until IS NULL \
             ORDER BY due_at, id LIMIT 2"
        ))?;
        let mut ready = rows::chunks(select, [lane])?.into_iter();
        let first = ready.next();
        Ok((first, ready.next().map(|second| second.due_at)))
    }

    fn take(
        &mut self,
        chunk: &mut ChunkRow,
        TakeBounds { request, load, deliveries }: TakeBounds<'_>,
        fallbacks: &mut Vec<Draft>,
    ) -> Result<TakenChunk, StoreError> {
        let now = request.now;
        let lane = self.lane(chunk.lane)?;
        let mut batch = BatchRow::read(self.connection, chunk.batch, &lane)?;
        // Before its size is looked at: an expired chunk needs no room.
        if batch.envelope.expires_at.is_some_and(|expires_at| expires_at <= now) {
            let of_batch = (&batch.envelope.lane.tenant, chunk.batch);
            self.end(of_batch, &LogLine::unattempted(now, State::Expired), &chunk.members())?;
            self.set_members(chunk.id, &Members::default())?;
            return Ok(TakenChunk::Ended(chunk.count));
        }
        // Behind the look at its expiry: what is paused expires on time.
        let pauses = Arc::clone(&self.state.pauses.borrow());
        if let Some(until) = put_away_until(&pauses, &pauses, &batch.envelope, now) {
            self.set_due(chunk, until)?;
            return Ok(TakenChunk::PutAway(chunk.count));
        }
        // Before it is decoded, which a chunk that is left would cost with every claim.
        if !load.fits(ChunkLoad { items: chunk.count.min(deliveries), bytes: 0 }) {
            return Ok(TakenChunk::Left);
        }
        if let Some(rest) = chunk.cut(deliveries) {
            // When the lane is due is read anew after this.
            rest.insert(self.connection)?;
            self.set_members(chunk.id, &chunk.members())?;
        }
        let deliveries = self.end_suppressed(chunk, &batch, now, fallbacks)?;
        if deliveries.is_empty() {
            return Ok(TakenChunk::Ended(chunk.count));
        }
        let leased = Chunk {
            id: chunk.id,
            epoch: Epoch(chunk.epoch.0.saturating_add(1)),
            lease_until: now.plus(request.lease),
            worker: 0,
            batch: chunk.batch,
            store_id: self.state.store_id,
            accepted_at: batch.accepted_at,
            content: self.content_of(&mut batch)?,
            envelope: chunk.envelope_of(&batch),
            attempt: chunk.attempt,
            traces: batch.traces.of(deliveries.iter().map(|delivery| delivery.index)),
            deliveries,
            origins: Vec::new(),
        };
        let items = leased.deliveries.len();
        let of_chunk = ChunkLoad { items, ..chunk.load(leased.bytes()) };
        // Its bytes are known only now.
        if !load.fits(of_chunk) {
            return Ok(TakenChunk::Left);
        }
        self.sql("UPDATE chunk SET epoch = ?2, lease_until = ?3 WHERE id = ?1")?.execute(
            params![chunk.id.0.cast_signed(), leased.epoch.0, leased.lease_until.millis()],
        )?;
        Ok(TakenChunk::Leased(Box::new(leased), of_chunk))
    }

    /// Gives a chunk that is not claimed another due time. The caller resets when its lane is due.
    pub(super) fn set_due(&self, chunk: &ChunkRow, at: Timestamp) -> Result<(), StoreError> {
        self.sql("UPDATE chunk SET due_at = ?2 WHERE id = ?1")?
            .execute(params![chunk.id.0.cast_signed(), at.millis()])?;
        Ok(())
    }

    /// Settles the suppressed deliveries of a chunk, and takes them out; returns those left to send.
    fn end_suppressed(
        &mut self,
        chunk: &ChunkRow,
        batch: &BatchRow,
        now: Timestamp,
        fallbacks: &mut Vec<Draft>,
    ) -> Result<Vec<Delivery>, StoreError> {
        let mut members = chunk.members();
        let mut deliveries = deliveries(batch, &members)?;
        let suppressed = self.suppressed_of(&batch.envelope.lane.channel, &deliveries)?;
        if !suppressed.is_empty() {
            self.count_ended(&batch.envelope.lane.tenant, State::Suppressed, suppressed.len());
            self.add_log(chunk.batch, &listing::log_row(&suppressed, now))?;
            for index in suppressed.keys() {
                members.remove(*index);
            }
            let is_suppressed = |delivery: &Delivery| suppressed.contains_key(&delivery.index);
            let gone = deliveries.iter().filter(|delivery| is_suppressed(delivery));
            fallbacks.extend(model::fallbacks(batch, self.state.store_id, gone, now));
            deliveries.retain(|delivery| !is_suppressed(delivery));
            self.set_members(chunk.id, &members)?;
        }
        Ok(deliveries)
    }

    /// The content of all members, if they have one.
    fn content_of(&mut self, batch: &mut BatchRow) -> Result<Option<Content>, StoreError> {
        let (None, Some(broadcast)) = (&batch.content, batch.envelope.broadcast) else {
            return Ok(batch.content.take());
        };
        if let Some((last, content)) = &self.state.last_content
            && *last == broadcast
        {
            return Ok(Some(content.clone()));
        }
        let content = rows::broadcast_content(self.connection, broadcast)?;
        self.state.last_content = Some((broadcast, content.clone()));
        Ok(Some(content))
    }

    fn leases_ended(&self, now: Timestamp) -> Result<Vec<ChunkRow>, StoreError> {
        let select = self.sql(select_chunk!(
            "lease_until IS NOT NULL AND lease_until <= ?1 \
             ORDER BY lease_until"
        ))?;
        rows::chunks(select, [now.millis()])
    }

    fn next_lease_end(&self) -> Result<Option<Timestamp>, StoreError> {
        let mut select =
            self.sql("SELECT min(lease_until) FROM chunk WHERE lease_until IS NOT NULL")?;
        let millis: Option<i64> = select.query_row([], |row| row.get(0))?;
        Ok(millis.map(Timestamp::from_millis))
    }

    /// Ends the current claim: its holder may not act for it any more.
    fn end_lease(
        &mut self,
        chunk: &ChunkRow,
        now: Timestamp,
        detail: &str,
    ) -> Result<(), StoreError> {
        self.leave_in_doubt(chunk, now, detail)?;
        self.state.lanes.remove_bytes(chunk.lane, chunk.id);
        self.state.lanes.remove_claimed(chunk.lane, chunk.count, true);
        Ok(())
    }

    /// Logs begun members as in doubt, and makes the rest ready; returns the rest.
    pub(super) fn leave_in_doubt(
        &mut self,
        chunk: &ChunkRow,
        now: Timestamp,
        detail: &str,
    ) -> Result<Members, StoreError> {
        let (begun, rest) = settlement::begun_and_rest(chunk);
        if !begun.is_empty() {
            let (attempt, state) = (chunk.attempt, State::InDoubt);
            let line = LogLine { at: now, attempt, state, status: 0, detail };
            self.end_of_chunk(chunk, &line, &begun)?;
            self.set_members(chunk.id, &rest)?;
        }
        if !rest.is_empty() {
            self.unlease(chunk)?;
        }
        Ok(rest)
    }

    pub(super) fn begin_chunk(&self, mark: &Mark) -> Result<MarkAnswer, StoreError> {
        // The epoch stays when a lease ends, so it alone would not refuse a holder that is late.
        let mut select = self.sql(
            "SELECT guarantee, begun_through FROM chunk JOIN batch ON batch.id = chunk.batch \
             WHERE chunk.id = ?1 AND epoch = ?2 AND lease_until IS NOT NULL",
        )?;
        let parameters = params![mark.chunk.0.cast_signed(), mark.epoch.0];
        let row = select.query_row(parameters, |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
        let Some((code, begun_through)): Option<(u8, Option<u16>)> = row else {
            return Ok(MarkAnswer::Stale);
        };
        if codes::guarantee(code)? == Guarantee::AtMostOnce {
            // A queue may give the same chunk out twice, and the other run has begun this far: to send it again would break at
            // most once.
            if begun_through.is_some_and(|begun| mark.through <= begun) {
                return Ok(MarkAnswer::Stale);
            }
            self.sql("UPDATE chunk SET begun_through = ?2 WHERE id = ?1")?
                .execute(params![mark.chunk.0.cast_signed(), mark.through])?;
        }
        Ok(MarkAnswer::Granted)
    }
}
