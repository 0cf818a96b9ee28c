//! Cancelling what waits of a lane, a channel, a tenant or a broadcast, some rows in each transaction.

use notification::{Name, Scope, State};
use rusqlite::{OptionalExtension, params};

use super::rows::{self, select_chunk, signed};
use super::transaction::Transaction;
use crate::cancel::{CancelStage, LanePlace};
use crate::rows::cancel_scope::{LaneWalk, channel_and_priority};
use crate::rows::codec::LogLine;
use crate::rows::codes::LaneId;
use crate::rows::model::ChunkRow;
use crate::rows::release::CancelSlice;
use crate::{CancelPage, CancelPlace, CancelScope, StoreError};

/// The first broadcast from a number on that waits to be released. In this order: there are few that wait.
const NEXT_WAITING: &str = "SELECT waiting.broadcast, waiting.waiting, passed FROM unreleased AS waiting \
     CROSS JOIN broadcast ON broadcast.id = waiting.broadcast \
     WHERE waiting.broadcast >= ?1 AND passed IS NOT NULL AND withdrawn_at IS NULL AND tenant = ?2 \
     AND (?3 IS NULL OR channel = ?3) AND (?4 IS NULL OR priority = ?4) ORDER BY waiting.broadcast LIMIT 1";

// === impl Transaction ===

impl Transaction<'_> {
    /// Runs one call of a cancellation; `None` when there is no such broadcast.
    pub(super) fn cancel_scope(
        &mut self,
        request: &CancelScope,
    ) -> Result<Option<CancelPage>, StoreError> {
        if let Scope::Broadcast(id) = request.scope {
            return Ok(self.cancel_slice(id, request)?.map(CancelSlice::into_page));
        }
        let mut page = CancelPage::default();
        let only = match request.scope.lane_of(&request.tenant) {
            Some(lane) => match self.find_lane(&lane)? {
                Some(id) => Some(id),
                // A lane without a number never had anything.
                None => return Ok(Some(page)),
            },
            None => None,
        };
        let (waiting, lane) = request.begins_at();
        let walk = LaneWalk::new(&request.tenant, &request.scope, only, lane);
        if request.from.is_none() {
            // With the first call alone, or each of the others would count the same claims again.
            page.under_way = self.claimed_of(request, only)?;
        }
        if let Some(place) = waiting {
            page.next = self.cancel_waiting_from(place, only, request, &mut page)?;
        }
        // Slices that are released by then are in their lanes.
        if page.next.is_none() {
            page.next = self.cancel_ready(&walk, request, &mut page)?;
        }
        Ok(Some(page))
    }

    /// Number of deliveries claimed in lanes of the scope.
    fn claimed_of(&self, request: &CancelScope, only: Option<LaneId>) -> Result<u64, StoreError> {
        // In this order: there are few that are claimed, and any number of lanes.
        let mut select = self.sql(
            "SELECT coalesce(sum(chunk.count), 0) FROM chunk INDEXED BY chunk_leased \
             CROSS JOIN tenant_lane AS lane ON lane.id = chunk.lane WHERE lease_until IS NOT NULL \
             AND lane.tenant = ?1 AND (?2 IS NULL OR lane.channel = ?2) AND (?3 IS NULL OR lane.id = ?3)",
        )?;
        let (channel, _) = channel_and_priority(&request.scope);
        let parameters = params![request.tenant.as_str(), channel, only];
        Ok(select.query_row(parameters, |row| row.get::<_, i64>(0))?.cast_unsigned())
    }

    /// Cancels, in the next broadcast that waits to be released, the notifications in the lane, or all; place of the next call,
    /// if there was such a broadcast.
    fn cancel_waiting_from(
        &mut self,
        (from, after): (i64, i64),
        only: Option<LaneId>,
        request: &CancelScope,
        page: &mut CancelPage,
    ) -> Result<Option<CancelPlace>, StoreError> {
        let (channel, priority) = channel_and_priority(&request.scope);
        let parameters = params![from, request.tenant.as_str(), channel, priority];
        let mut select = self.sql(NEXT_WAITING)?;
        let next = select.query_row(parameters, |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
        let Some((broadcast, waits, passed)): Option<(i64, i64, i64)> = next.optional()? else {
            return Ok(None);
        };
        let behind = CancelStage::Waiting { broadcast: broadcast + 1, batch: 0 };
        let Some(lane) = only else {
            self.withdraw_waiting(broadcast, waits, request)?;
            page.cancelled += waits.cast_unsigned();
            return Ok(Some(CancelPlace(behind)));
        };
        // Batches that were released since the last call are found in the lane.
        let after = if broadcast == from { passed.max(after) } else { passed };
        let slice = self.slice(broadcast, after)?;
        let end = LogLine::unattempted(request.now, State::Cancelled);
        let mut ended = 0;
        for batch in slice.batches.iter().filter(|batch| batch.lane == lane) {
            let rest = self.rest_of(batch)?;
            ended += rest.len();
            if !request.is_dry {
                self.end((&request.tenant, batch.id), &end, &rest)?;
            }
        }
        page.cancelled += ended as u64;
        if !request.is_dry && ended > 0 {
            // A withdrawal of the broadcast would count them as cancelled a second time.
            self.uncount_waiting(broadcast, ended)?;
        }
        let last = slice.batches.last().filter(|_| !slice.is_last);
        let next =
            last.map(|last| CancelStage::Waiting { broadcast, batch: last.id.0.cast_signed() });
        Ok(Some(CancelPlace(next.unwrap_or(behind))))
    }

    /// Cancels the next chunks that wait in these lanes; where the next call goes on.
    fn cancel_ready(
        &mut self,
        walk: &LaneWalk<'_>,
        request: &CancelScope,
        page: &mut CancelPage,
    ) -> Result<Option<CancelPlace>, StoreError> {
        // A lane without chunks counts as one: there may be very many.
        let mut left = self.state.slicing.batches;
        for lane in self.lanes_from(walk, left)? {
            let mut place = LanePlace::before(&walk.from.channel, lane);
            if lane == walk.from.lane {
                place = walk.from.clone();
            }
            let chunks = self.ready_behind(&place, left)?;
            let is_full = chunks.len() == left;
            left -= chunks.len().max(1);
            for chunk in &chunks {
                (place.due_at, place.chunk) = (chunk.due_at.millis(), chunk.id.0.cast_signed());
                if self.is_of(chunk, &request.tenant)? {
                    page.cancelled += chunk.count as u64;
                    if !request.is_dry {
                        self.take_out(chunk, &chunk.members(), request.now)?;
                    }
                }
            }
            if !chunks.is_empty() {
                // The memory has the due time of a chunk that may be gone. Once for the lane, since each look is a seek.
                self.reset_due(lane)?;
            }
            if is_full {
                return Ok(Some(CancelPlace(CancelStage::Lane(place))));
            }
            if left == 0 {
                let behind = LanePlace::before(&walk.from.channel, lane + 1);
                return Ok(walk.only.is_none().then_some(CancelPlace(CancelStage::Lane(behind))));
            }
        }
        Ok(self.next_channel(walk)?.map(|place| CancelPlace(CancelStage::Lane(place))))
    }

    /// The channel behind that of a walk, if there is one.
    fn next_channel(&self, walk: &LaneWalk<'_>) -> Result<Option<LanePlace>, StoreError> {
        if !walk.is_of_all_channels() {
            return Ok(None);
        }
        let mut select = self.sql(
            "SELECT min(tenant || '/' || channel) FROM tenant_lane WHERE tenant || '/' || channel > ?1",
        )?;
        let next: Option<String> = select.query_row([walk.key()], |row| row.get(0))?;
        Ok(next.and_then(|next| walk.before(&next)))
    }

    /// The next lanes, `lanes_max` at most.
    fn lanes_from(&self, walk: &LaneWalk<'_>, lanes_max: usize) -> Result<Vec<LaneId>, StoreError> {
        let mut select = self.sql(
            "SELECT id FROM tenant_lane WHERE tenant || '/' || channel = ?1 AND id >= ?2 ORDER BY id LIMIT ?3",
        )?;
        let parameters = params![walk.key(), walk.from.lane, signed(walk.lanes_max(lanes_max))];
        let lanes = select.query_map(parameters, |row| row.get(0))?;
        Ok(lanes.collect::<Result<_, _>>()?)
    }

    /// The next chunks of a lane that wait, in order of due time, `chunks` at most.
    fn ready_behind(&self, place: &LanePlace, chunks: usize) -> Result<Vec<ChunkRow>, StoreError> {
        let select = self.sql(select_chunk!(
            "lane = ?1 AND lease_until IS NULL AND (due_at, id) > (?2, ?3) ORDER BY due_at, id LIMIT ?4"
        ))?;
        rows::chunks(select, [place.lane, place.due_at, place.chunk, signed(chunks)])
    }

    /// True if a chunk is the tenant's: in a lane that is older than lanes of tenants others have some, too.
    fn is_of(&self, chunk: &ChunkRow, tenant: &Name) -> Result<bool, StoreError> {
        let mut select = self.sql("SELECT tenant = ?2 FROM batch WHERE id = ?1")?;
        let parameters = params![chunk.batch.0.cast_signed(), tenant.as_str()];
        Ok(select.query_row(parameters, |row| row.get(0))?)
    }
}
