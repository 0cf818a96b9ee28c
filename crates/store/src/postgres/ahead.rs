//! Ready chunks of lanes, read ahead of being chosen.
//!
//! In a lane, the chunks of our partitions lie between those of other workers, which are skipped. [`LOOK_AT_MAX`] bounds one look
//! at a lane, and `left` a claim beyond its first looks. The lane's watermark marks how far it was read, so no chunk is skipped
//! twice. A lane that was not read to its end is due at once, behind the other lanes, and its tenant behind the others: the next
//! claim continues there.
//!
//! A chunk that was passed may become ours with its partition: then all watermarks are dropped ([`Transaction::reload`]). A chunk
//! that becomes ready again below the watermark is announced by a notice, which lowers it, as for chunks that were claimed.

use std::collections::{HashMap, VecDeque};

use notification::{BroadcastId, Pauses, Timestamp};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row};

use super::columns::{chunk_at, narrow, select_chunk};
use super::transaction::{RunError, Transaction};
use crate::ClaimRequest;
use crate::rows::codes::LaneId;
use crate::rows::model::ChunkRow;

/// Chunks of lanes that a claim has read ahead.
#[derive(Debug)]
pub(super) struct ReadAhead {
    lanes: HashMap<LaneId, LaneReadAhead>,
    /// Chunks of other workers that the claim may pass yet beyond its first look at each lane.
    left: i64,
}

/// Ready chunks of one lane that were read and not chosen yet.
#[derive(Debug)]
struct LaneReadAhead {
    /// Ours.
    chunks: VecDeque<(ChunkRow, BatchFacts)>,
    /// Number of our chunks read at once.
    limit: i64,
    /// Number of chunks looked at for that, of all workers.
    looked_at: i64,
    /// Place of the last chunk that was looked at, if the look ended at its bound or at the end of the lane. Of our chunks, only
    /// `chunks` lie before it.
    end: Option<LanePosition>,
    /// True if no chunk lies behind them.
    is_all: bool,
}

/// The batch of a chunk, as far as a claim depends on it.
#[derive(Debug, Clone, Copy)]
pub(super) struct BatchFacts {
    /// About how many bytes its members have each for itself.
    own_bytes: usize,
    /// Bytes of the content that all of them share.
    shared_bytes: usize,
    expires_at: Option<Timestamp>,
    broadcast: Option<BroadcastId>,
}

/// The next chunk of a lane, as far as it was read.
#[derive(Debug)]
pub(super) enum NextChunk {
    Chunk(ChunkRow, BatchFacts),
    /// No chunk that is due before this instant. Later ones were not looked at.
    NotBefore(Timestamp),
    Nothing,
}

/// Place of a chunk in its lane: its due time, milliseconds, and its number.
pub(super) type LanePosition = (i64, i64);

/// Ready chunks of a lane read at first, and at most: lanes of small chunks are read in growing steps.
const LOOK_AHEAD: i64 = 9;
const LOOK_AHEAD_MAX: i64 = 256;
/// Chunks of a lane looked at for these at first, and at most, also in growing steps.
const LOOK_AT: i64 = 256;
const LOOK_AT_MAX: i64 = 4_096;
/// Chunks that a claim looks at beyond its first look at each lane.
const GO_ON_MAX: i64 = 16_384;
/// Lanes read at once.
const LANES_AHEAD: usize = 64;

/// Ours among the next chunks of lanes, and the last one of these, whosever it is.
const SELECT_READY: &str = select_chunk!(
    ", (SELECT ARRAY[octet_length(items)::int8 * chunk.count / greatest(batch.count, 1), \
          coalesce(octet_length(batch.payload), octet_length(broadcast.payload), 0), batch.expires_at, batch.broadcast] \
        FROM batch LEFT JOIN broadcast ON broadcast.id = batch.broadcast WHERE batch.id = chunk.batch) AS of_batch, \
     partition = ANY($4) AS is_ours, is_last, place \
     FROM unnest($1::int4[], $2::int8[], $3::int8[]) AS wanted (of_lane, after_due, after_id) CROSS JOIN LATERAL ( \
       SELECT * FROM ( \
         SELECT *, row_number() OVER in_order AS place, lead(id) OVER in_order IS NULL AS is_last FROM ( \
           SELECT * FROM chunk WHERE lane = of_lane AND lease_until IS NULL \
             AND (due_at, id) > (after_due, after_id) ORDER BY due_at, id LIMIT $6) AS ready \
         WINDOW in_order AS (ORDER BY due_at, id)) AS looked_at \
       WHERE partition = ANY($4) OR is_last ORDER BY due_at, id LIMIT $5) AS chunk"
);

// === impl ReadAhead ===

impl Default for ReadAhead {
    fn default() -> Self {
        Self { lanes: HashMap::new(), left: GO_ON_MAX }
    }
}

impl ReadAhead {
    /// The next chunk of the lane; `None` when more must be read first.
    fn next(&self, lane: LaneId, now: Timestamp) -> Option<NextChunk> {
        let known = self.lanes.get(&lane)?;
        if let Some((chunk, of_batch)) = known.chunks.front() {
            return Some(NextChunk::Chunk(chunk.clone(), *of_batch));
        }
        if known.is_all {
            return Some(NextChunk::Nothing);
        }
        let (due_at, _) = known.end?;
        let due_at = Timestamp::from_millis(due_at);
        // No chunk behind one that is not due is needed, and a claim passes a bounded number of chunks of other workers.
        (due_at > now || self.left <= 0).then_some(NextChunk::NotBefore(due_at))
    }

    /// Takes the lane's first chunk away; gives the place up to which nothing of ours is left then.
    pub(super) fn pop(&mut self, lane: LaneId) -> Option<LanePosition> {
        let known = self.lanes.get_mut(&lane)?;
        let (first, _) = known.chunks.pop_front()?;
        // The end of a look lies behind all chunks of ours that it found, and holds once the last of them is chosen.
        let end = known.end.filter(|_| known.chunks.is_empty());
        Some(end.unwrap_or((first.due_at.millis(), first.id.0.cast_signed())))
    }

    /// Number of chunks that the next look at the lane is to give, and to look at.
    fn step(&mut self, lane: LaneId) -> (i64, i64) {
        let Some(known) = self.lanes.get(&lane) else { return (LOOK_AHEAD, LOOK_AT) };
        // Where chunks of other workers lay in between it looks further; where there were many of ours it takes more.
        let (limit, looked_at) = match known.end {
            Some(_) => (known.limit, 4 * known.looked_at),
            None => (4 * known.limit, known.looked_at),
        };
        let looked_at = looked_at.min(LOOK_AT_MAX);
        self.left -= looked_at;
        (limit.min(LOOK_AHEAD_MAX), looked_at)
    }
}

// === impl BatchFacts ===

impl BatchFacts {
    fn read(row: &Row) -> Result<Self, Error> {
        let columns: Option<Vec<Option<i64>>> = row.try_get("of_batch")?;
        let column = |place: usize| columns.as_ref()?.get(place).copied().flatten();
        let bytes = |place| usize::try_from(column(place).unwrap_or(0)).unwrap_or(0);
        let expires_at = column(2).map(Timestamp::from_millis);
        let broadcast = column(3).map(|id| BroadcastId(id.cast_unsigned()));
        Ok(Self { own_bytes: bytes(0), shared_bytes: bytes(1), expires_at, broadcast })
    }

    /// About how many bytes `some` of `all` members hold.
    pub(super) fn bytes(self, some: usize, all: usize) -> usize {
        // A content that several chunks share counts for each of them, as it does in the queue.
        self.own_bytes * some / all.max(1) + self.shared_bytes
    }

    pub(super) fn is_expired(self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|expires_at| expires_at <= now)
    }

    /// True if its broadcast is paused.
    pub(super) fn is_paused(self, pauses: &Pauses) -> bool {
        self.broadcast.is_some_and(|id| pauses.has_broadcast(id))
    }
}

// === impl NextChunk ===

impl NextChunk {
    /// Earliest due time of the chunk or the rest; `None` when there is nothing.
    pub(super) fn due_at(&self) -> Option<Timestamp> {
        match self {
            Self::Chunk(chunk, _) => Some(chunk.due_at),
            Self::NotBefore(at) => Some(*at),
            Self::Nothing => None,
        }
    }
}

// === impl Transaction ===

impl Transaction<'_> {
    /// The lane's first ready chunk that was not chosen yet.
    pub(super) async fn look_ahead(
        &mut self,
        lane: LaneId,
        ahead: &mut ReadAhead,
        request: &ClaimRequest,
    ) -> Result<NextChunk, RunError> {
        loop {
            if let Some(next) = ahead.next(lane, request.now) {
                return Ok(next);
            }
            self.look(lane, ahead, request).await?;
        }
    }

    /// Reads on in the lane, and at the beginnings of the lanes whose turn comes soon.
    async fn look(
        &mut self,
        lane: LaneId,
        ahead: &mut ReadAhead,
        request: &ClaimRequest,
    ) -> Result<(), RunError> {
        let (limit, looked_at) = ahead.step(lane);
        let claiming = &self.state.claiming;
        // A statement looks as far in each lane that it names, so a long look is for this lane alone.
        let more = if looked_at > LOOK_AT { 0 } else { LANES_AHEAD };
        let mut wanted = claiming.lanes.open(request, more);
        // Chunks of a lane that were read and not chosen yet would be replaced below.
        wanted.retain(|other| *other != lane && !ahead.lanes.contains_key(other));
        wanted.push(lane);
        // Not from the lane's beginning: while an old snapshot is held, the index keeps the entries of chunks that were claimed
        // long ago.
        let mark = |lane: &LaneId| claiming.watermarks.get(lane).copied().unwrap_or((i64::MIN, 0));
        let (dues, ids): (Vec<i64>, Vec<i64>) = wanted.iter().map(mark).unzip();
        let lanes: Vec<i32> = wanted.iter().map(|lane| narrow(*lane)).collect();
        // Watermarks are true of these only.
        let read_for = claiming.read_for.clone();
        let partitions = read_for.map(|(_, partitions)| partitions).unwrap_or_default();
        let parameters: [&(dyn ToSql + Sync); 6] =
            [&lanes, &dues, &ids, &partitions, &limit, &looked_at];
        let rows = self.rows(SELECT_READY, &parameters).await?;
        for lane in &wanted {
            let (chunks, end) = (VecDeque::new(), None);
            // A lane without a row has nothing ready behind its watermark.
            ahead
                .lanes
                .insert(*lane, LaneReadAhead { chunks, limit, looked_at, end, is_all: true });
        }
        for row in &rows {
            let chunk = chunk_at(row)?;
            let Some(known) = ahead.lanes.get_mut(&chunk.lane) else { continue };
            let (is_ours, is_last): (bool, bool) =
                (row.try_get("is_ours")?, row.try_get("is_last")?);
            // The last of as many as may be looked at need not be the lane's last.
            known.is_all = is_last && row.try_get::<_, i64>("place")? < looked_at;
            if is_last {
                known.end = Some((chunk.due_at.millis(), chunk.id.0.cast_signed()));
            }
            if is_ours {
                let of_batch = BatchFacts::read(row)?;
                known.chunks.push_back((chunk, of_batch));
            }
        }
        for lane in wanted {
            // With chunks in hand the watermark moves as they are chosen.
            if let Some(known) = ahead.lanes.get(&lane)
                && known.chunks.is_empty()
                && let Some(end) = known.end
            {
                self.move_watermark(lane, end, request.now);
            }
        }
        Ok(())
    }

    /// Notes that none of our chunks is ready up to `place` of the lane. The watermark stays behind `now`, so that a chunk which
    /// becomes ready and due is not found by its notice alone.
    pub(super) fn move_watermark(&mut self, lane: LaneId, place: LanePosition, now: Timestamp) {
        self.state.claiming.set_watermark(lane, place.min((now.millis(), i64::MAX)));
    }
}
