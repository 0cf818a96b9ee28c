//! The lanes with work.

use std::collections::{BTreeMap, HashMap};

use notification::{Lane, Timestamp};
use tokio_postgres::Row;

use super::choose::SELECT_DUE;
use super::columns::{lane_at, narrow, signed};
use super::read::{Parameters, Snapshot, instant, unsigned};
use crate::rows::codes::LaneId;
use crate::rows::due::{DueCursor, LANES_PER_PAGE};
use crate::rows::evidence::EvidenceBook;
use crate::rows::lane_list::{FoundLane, LANES_LOOKED_AT, LaneChooser};
use crate::{LaneList, LanePace, LaneStatus, StoreError};

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
