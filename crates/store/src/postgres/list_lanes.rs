//! The lanes with work.

use std::collections::{BTreeMap, HashMap};

use notification::{Lane, Timestamp};
use tokio_postgres::Row;

use super::choose::SELECT_DUE;
use super::columns::{lane_at, narrow, signed};
use super::read::{Parameters, Snapshot, instant, unsigned};
use crate::rows::codes::{self, LaneId};
use crate::rows::due::{DueCursor, LANES_PER_PAGE};
use crate::rows::evidence::EvidenceBook;
use crate::rows::lane_list::{FoundLane, LANES_LOOKED_AT, LaneChooser};
use crate::{LaneList, LanePace, LaneStatus, StoreError, WaitingCounts};

// === impl Snapshot ===

impl Snapshot<'_> {
    pub(super) async fn lanes(&self, evidence: &EvidenceBook) -> Result<LaneList, StoreError> {
        let mut chooser = LaneChooser::new(self.claimed_lanes().await?);
        if !chooser.add_first(self.waiting_lanes(0, LANES_LOOKED_AT).await?) {
            let DueCursor { span, lane } = DueCursor::START;
            let page: Parameters<'_> = &[&span, &narrow(lane), &signed(LANES_PER_PAGE)];
            let rows = self.rows(SELECT_DUE, page).await?;
            let entry = |row: &Row| {
                Ok::<_, StoreError>((LaneId::from(row.try_get::<_, i32>(0)?), instant(row, 5)?))
            };
            chooser.add_due(rows.iter().map(entry).collect::<Result<_, _>>()?);
        }
        let chosen = chooser.choose();
        let mut names = self.lanes_of(chosen.lanes.keys().copied()).await?;
        let mut lanes = Vec::with_capacity(chosen.lanes.len());
        for (id, FoundLane { claimed, next_due_at }) in chosen.lanes {
            let missing = || StoreError::Damaged(format!("lane {id} is missing"));
            let (lane, evidence) = (names.remove(&id).ok_or_else(missing)?, evidence.of(id).into());
            lanes.push(LaneStatus { lane, claimed, next_due_at, evidence });
        }
        lanes.sort_unstable_by(|one, other| one.lane.cmp(&other.lane));
        Ok(LaneList { lanes, until: chosen.until })
    }

    /// Claimed chunks are selected as a span of leases: of a span the planner knows that it is small, before it knows anything.
    async fn claimed_lanes(&self) -> Result<BTreeMap<LaneId, FoundLane>, StoreError> {
        let select = "SELECT lane, claimed, \
             (SELECT due_at FROM chunk WHERE lane = held.lane AND lease_until IS NULL ORDER BY due_at, id LIMIT 1) \
             FROM (SELECT lane, sum(count)::int8 AS claimed FROM chunk \
               WHERE lease_until BETWEEN 0 AND 9223372036854775807 GROUP BY lane) AS held";
        let mut lanes = BTreeMap::new();
        for row in self.rows(select, &[]).await? {
            let next_due_at = row.try_get::<_, Option<i64>>(2)?.map(Timestamp::from_millis);
            let lane = FoundLane { claimed: unsigned(&row, 1)?, next_due_at };
            lanes.insert(row.try_get::<_, i32>(0)?.into(), lane);
        }
        Ok(lanes)
    }

    /// Lanes behind `after` in which something waits, in order of their numbers, with the earliest due time of each: a look into
    /// the index for each of them.
    pub(super) async fn waiting_lanes(
        &self,
        after: LaneId,
        lanes_max: usize,
    ) -> Result<Vec<(LaneId, Timestamp)>, StoreError> {
        let select = "WITH RECURSIVE waiting (lane, due_at) AS ( \
               (SELECT lane, due_at FROM chunk WHERE lease_until IS NULL AND lane > $1 ORDER BY lane, due_at, id LIMIT 1) \
               UNION ALL SELECT next.* FROM waiting CROSS JOIN LATERAL ( \
                 SELECT lane, due_at FROM chunk WHERE lease_until IS NULL AND lane > waiting.lane \
                 ORDER BY lane, due_at, id LIMIT 1) AS next) \
             SELECT lane, due_at FROM waiting LIMIT $2";
        let rows = self.rows(select, &[&narrow(after), &signed(lanes_max)]).await?;
        let lane = |row: &Row| Ok((row.try_get::<_, i32>(0)?.into(), instant(row, 1)?));
        rows.iter().map(lane).collect()
    }

    /// Of the chunks that wait, the first `chunks_max` in order of their lanes. The lanes are looked up one by one: the planner does
    /// not know that they are few.
    pub(super) async fn waiting_counts(
        &self,
        chunks_max: usize,
    ) -> Result<WaitingCounts, StoreError> {
        let select = "SELECT channel, priority, sum(chunks)::int8, sum(waiting)::int8 \
             FROM (SELECT lane, count(*) AS chunks, sum(count) AS waiting \
               FROM (SELECT lane, count FROM chunk WHERE lease_until IS NULL ORDER BY lane, due_at, id LIMIT $1) AS ready \
               GROUP BY lane) AS of_lane \
             CROSS JOIN LATERAL (SELECT channel, priority FROM tenant_lane WHERE id = of_lane.lane OFFSET 0) AS its \
             GROUP BY channel, priority";
        let (mut counts, mut chunks) = (WaitingCounts::default(), 0);
        for row in self.rows(select, &[&signed(chunks_max)]).await? {
            let priority: i16 = row.try_get(1)?;
            let priority = codes::priority(u8::try_from(priority).unwrap_or(u8::MAX))?;
            chunks += row.try_get::<_, i64>(2)?;
            let key = (codes::name(row.try_get(0)?)?, priority);
            counts.notifications.insert(key, unsigned(&row, 3)?);
        }
        counts.is_at_least = chunks >= signed(chunks_max);
        Ok(counts)
    }

    pub(super) async fn paces(&self, evidence: &EvidenceBook) -> Result<Vec<LanePace>, StoreError> {
        let paces = evidence.paces();
        let mut lanes = self.lanes_of(paces.iter().map(|(id, ..)| *id)).await?;
        let pace = |(id, answered, at)| Some(LanePace { lane: lanes.remove(&id)?, answered, at });
        Ok(paces.into_iter().filter_map(pace).collect())
    }

    async fn lanes_of(
        &self,
        ids: impl Iterator<Item = LaneId>,
    ) -> Result<HashMap<LaneId, Lane>, StoreError> {
        let ids: Vec<i32> = ids.map(narrow).collect();
        let select =
            "SELECT id, channel, destination, priority, tenant FROM tenant_lane WHERE id = ANY($1)";
        let mut lanes = HashMap::with_capacity(ids.len());
        for row in self.rows(select, &[&ids]).await? {
            lanes.insert(LaneId::from(row.try_get::<_, i32>(0)?), lane_at(&row, 1)?);
        }
        Ok(lanes)
    }
}
