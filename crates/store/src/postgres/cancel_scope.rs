//! Cancelling what waits of a lane, a channel, a tenant or a broadcast, some rows in each transaction.

use std::collections::BTreeMap;

use async_trait::async_trait;
use notification::{Scope, State};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::columns::{narrow, signed};
use super::request::WriterRequest;
use super::transaction::{RunError, Transaction, Writes};
use crate::cancel::{CancelStage, LanePlace};
use crate::rows::cancel_scope::{LaneWalk, channel_and_priority};
use crate::rows::codec::LogLine;
use crate::rows::codes::LaneId;
use crate::rows::release::CancelSlice;
use crate::{CancelPage, CancelPlace, CancelScope};

/// The first broadcast from a number on that waits to be released. It is locked, so that no slice passes it meanwhile.
const NEXT_WAITING: &str = "SELECT waiting.broadcast, waiting.waiting, passed FROM unreleased AS waiting \
     JOIN broadcast ON broadcast.id = waiting.broadcast \
     WHERE waiting.broadcast >= $1 AND passed IS NOT NULL AND withdrawn_at IS NULL AND tenant = $2 \
     AND ($3::text IS NULL OR channel = $3) AND ($4::int2 IS NULL OR priority = $4) \
     ORDER BY waiting.broadcast LIMIT 1 FOR UPDATE OF waiting";
/// Claimed deliveries of lanes, lane by lane of the claims: there are few of these, and any number of lanes.
const CLAIMED: &str = "SELECT coalesce(sum(items), 0)::int8 \
     FROM (SELECT lane, sum(count) AS items FROM chunk WHERE lease_until BETWEEN 0 AND 9223372036854775807 GROUP BY lane) AS claimed \
     CROSS JOIN LATERAL (SELECT FROM tenant_lane WHERE id = claimed.lane AND tenant = $1 \
       AND ($2::text IS NULL OR channel = $2) AND ($3::int4 IS NULL OR id = $3) OFFSET 0) AS wanted";
/// The chunks that wait in the next lanes of a channel, up to a number of rows; a lane without any has a row of its own. In the
/// order of the index over lanes and of that over the chunks of each: no row is read that is not returned. In a lane that is
/// older than lanes of tenants others have chunks, too.
const READY: &str = "SELECT lane.id, ready.due_at, ready.id, ready.count, \
       (SELECT tenant FROM batch WHERE batch.id = ready.batch) IS NOT DISTINCT FROM $1 \
     FROM (SELECT tenant || '/' || channel AS key, id FROM tenant_lane WHERE (tenant || '/' || channel, id) >= ($2, $3) \
       AND tenant || '/' || channel <= $2 ORDER BY tenant || '/' || channel, id LIMIT $4) AS lane \
     LEFT JOIN LATERAL (SELECT id, batch, due_at, count FROM chunk WHERE chunk.lane = lane.id AND lease_until IS NULL \
       AND (due_at, id) > (CASE WHEN lane.id = $3 THEN $5::int8 ELSE $7::int8 END, \
         CASE WHEN lane.id = $3 THEN $6::int8 ELSE $7::int8 END) ORDER BY due_at, id LIMIT $8) AS ready ON true \
     ORDER BY lane.key, lane.id, ready.due_at, ready.id LIMIT $8";
const NEXT_CHANNEL: &str =
    "SELECT min(tenant || '/' || channel) FROM tenant_lane WHERE tenant || '/' || channel > $1";

#[async_trait]
impl WriterRequest for CancelScope {
    type Answer = Option<CancelPage>;

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<Self::Answer, RunError> {
        if let Scope::Broadcast(id) = self.scope {
            let slice = transaction.cancel_slice(id, self).await?;
            return Ok(slice.map(CancelSlice::into_page));
        }
        let mut page = CancelPage::default();
        let only = match self.scope.lane_of(&self.tenant) {
            Some(lane) => match transaction.find_lane(&lane).await? {
                Some(id) => Some(id),
                // A lane without a number never had anything.
                None => return Ok(Some(page)),
            },
            None => None,
        };
        let (waiting, lane) = self.begins_at();
        let walk = LaneWalk::new(&self.tenant, &self.scope, only, lane);
        if self.from.is_none() {
            // First: a chunk that is not among them waits, and is found below.
            page.under_way = self.claimed(only, transaction).await?;
        }
        if let Some(place) = waiting {
            page.next = self.cancel_waiting(place, only, transaction, &mut page).await?;
        }
        // Slices that are released by then are in their lanes.
        if page.next.is_none() {
            page.next = self.cancel_ready(&walk, transaction, &mut page).await?;
        }
        Ok(Some(page))
    }
}

// === impl CancelScope ===

impl CancelScope {
    /// Number of deliveries claimed in lanes of the scope.
    async fn claimed(
        &self,
        only: Option<LaneId>,
        transaction: &mut Transaction<'_>,
    ) -> Result<u64, RunError> {
        let (channel, _) = channel_and_priority(&self.scope);
        let parameters: [&(dyn ToSql + Sync); 3] =
            [&self.tenant.as_str(), &channel, &only.map(narrow)];
        Ok(transaction.row(CLAIMED, &parameters).await?.try_get::<_, i64>(0)?.cast_unsigned())
    }

    /// Cancels, in the next broadcast that waits to be released, the notifications in the lane, or all; place of the next call,
    /// if there was such a broadcast.
    async fn cancel_waiting(
        &self,
        (from, after): (i64, i64),
        only: Option<LaneId>,
        transaction: &mut Transaction<'_>,
        page: &mut CancelPage,
    ) -> Result<Option<CancelPlace>, RunError> {
        let (channel, priority) = channel_and_priority(&self.scope);
        let priority = priority.map(i16::from);
        let parameters: [&(dyn ToSql + Sync); 4] =
            [&from, &self.tenant.as_str(), &channel, &priority];
        let rows = transaction.rows(NEXT_WAITING, &parameters).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        // The task that makes slices may have passed the row over while it was locked here: it looks again.
        transaction.effects.waits = true;
        let (broadcast, passed): (i64, i64) = (row.try_get(0)?, row.try_get(2)?);
        let behind = CancelStage::Waiting { broadcast: broadcast + 1, batch: 0 };
        let Some(lane) = only else {
            let waiting = row.try_get::<_, i64>(1)?.cast_unsigned();
            transaction.withdraw_waiting(broadcast, waiting, self).await?;
            page.cancelled += waiting;
            return Ok(Some(CancelPlace(behind)));
        };
        // Batches that were released since the last call are found in the lane.
        let after = if broadcast == from { passed.max(after) } else { passed };
        let mut slice = transaction.slice(broadcast, after).await?;
        let last = slice.batches.last().filter(|_| !slice.is_last);
        let next = last.map(|last| CancelStage::Waiting { broadcast, batch: last.id });
        slice.batches.retain(|batch| batch.lane == lane);
        transaction.leave_out_ended(&mut slice).await?;
        let ended: usize = slice.batches.iter().map(|batch| batch.rest.len()).sum();
        page.cancelled += ended as u64;
        if !self.is_dry && ended > 0 {
            let end = LogLine::unattempted(self.now, State::Cancelled);
            let mut writes = Writes::default();
            for batch in &slice.batches {
                let of = (&self.tenant, batch.number());
                transaction.end(&mut writes, of, &end, &batch.rest);
            }
            transaction.write(writes).await?;
            // A withdrawal of the broadcast would count them as cancelled a second time.
            transaction.uncount_waiting(broadcast, ended).await?;
        }
        Ok(Some(CancelPlace(next.unwrap_or(behind))))
    }

    /// Cancels the next chunks that wait in these lanes; where the next call goes on.
    async fn cancel_ready(
        &self,
        walk: &LaneWalk<'_>,
        transaction: &mut Transaction<'_>,
        page: &mut CancelPage,
    ) -> Result<Option<CancelPlace>, RunError> {
        let size = transaction.state.slicing.batches;
        let LanePlace { lane, due_at, chunk, .. } = &walk.from;
        let parameters: [&(dyn ToSql + Sync); 8] = [
            &self.tenant.as_str(),
            &walk.key(),
            &narrow(*lane),
            &signed(walk.lanes_max(size)),
            due_at,
            chunk,
            &i64::MIN,
            &signed(size),
        ];
        let rows = transaction.rows(READY, &parameters).await?;
        let mut ready = Vec::with_capacity(rows.len());
        for row in &rows {
            if let Some(id) = row.try_get::<_, Option<i64>>(2)?
                && row.try_get(4)?
            {
                ready.push((id, u64::try_from(row.try_get::<_, i32>(3)?).unwrap_or(0)));
            }
        }
        if self.is_dry {
            page.cancelled += ready.iter().map(|(_, count)| count).sum::<u64>();
        } else {
            self.withdraw_ready(ready.into_iter().collect(), transaction, page).await?;
        }
        let next = match rows.last().filter(|_| rows.len() == size) {
            Some(last) => place_behind(last, walk)?,
            None => transaction.next_channel(walk).await?,
        };
        Ok(next.map(|place| CancelPlace(CancelStage::Lane(place))))
    }

    /// Cancels chunks that waited when they were read, if they do still; `ready` has their sizes.
    async fn withdraw_ready(
        &self,
        mut ready: BTreeMap<i64, u64>,
        transaction: &mut Transaction<'_>,
        page: &mut CancelPage,
    ) -> Result<(), RunError> {
        let mut writes = Writes::default();
        let numbers: Vec<i64> = ready.keys().copied().collect();
        for chunk in transaction.lock_chunks(&numbers).await?.into_values() {
            ready.remove(&chunk.id.0.cast_signed());
            if chunk.lease_until.is_some() {
                page.under_way += chunk.count as u64;
                continue;
            }
            page.cancelled += chunk.count as u64;
            transaction.withdraw(&mut writes, (&self.tenant, &chunk), &chunk.members(), self.now);
        }
        // A claim took them meanwhile and put them away, or cut them: their fate is not known here.
        page.under_way += ready.values().sum::<u64>();
        transaction.write(writes).await
    }
}

// === impl Transaction ===

impl Transaction<'_> {
    /// The channel behind that of a walk, if there is one.
    async fn next_channel(&mut self, walk: &LaneWalk<'_>) -> Result<Option<LanePlace>, RunError> {
        if !walk.is_of_all_channels() {
            return Ok(None);
        }
        let row = self.row(NEXT_CHANNEL, &[&walk.key()]).await?;
        Ok(row.try_get::<_, Option<&str>>(0)?.and_then(|next| walk.before(next)))
    }
}

/// Place behind a row of [`READY`]; `None` at the end of a walk over one lane.
fn place_behind(row: &Row, walk: &LaneWalk<'_>) -> Result<Option<LanePlace>, RunError> {
    let (channel, lane) = (walk.from.channel.clone(), row.try_get::<_, i32>(0)?.into());
    Ok(match (row.try_get(1)?, row.try_get(2)?) {
        (Some(due_at), Some(chunk)) => Some(LanePlace { channel, lane, due_at, chunk }),
        _ if walk.only.is_some() => None,
        _ => Some(LanePlace::before(&channel, lane + 1)),
    })
}
