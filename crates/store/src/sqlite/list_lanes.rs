//! The lanes with work.

use std::collections::BTreeMap;

use notification::Timestamp;
use rusqlite::OptionalExtension as _;

use super::read::Snapshot;
use super::rows::{self, next_due};
use crate::rows::codes::{self, LaneId};
use crate::rows::due::{DueCursor, LANES_PER_PAGE};
use crate::rows::evidence::EvidenceBook;
use crate::rows::lane_list::{FoundLane, LANES_LOOKED_AT, LaneChooser};
use crate::{LaneList, LanePace, LaneStatus, StoreError, WaitingCounts};

// === impl Snapshot ===

impl Snapshot {
    pub(super) fn lanes(&self, evidence: &EvidenceBook) -> Result<LaneList, StoreError> {
        let mut chooser = LaneChooser::new(self.claimed_lanes()?);
        if !chooser.add_first(self.waiting_lanes(0, LANES_LOOKED_AT)?) {
            chooser.add_due(self.first_due()?);
        }
        let chosen = chooser.choose();
        let status = |(id, found): (LaneId, FoundLane)| {
            let (lane, evidence) = (rows::lane(&self.connection, id)?, evidence.of(id).into());
            let FoundLane { claimed, next_due_at } = found;
            Ok(LaneStatus { lane, claimed, next_due_at, evidence })
        };
        let mut lanes: Vec<LaneStatus> =
            chosen.lanes.into_iter().map(status).collect::<Result<_, StoreError>>()?;
        lanes.sort_unstable_by(|one, other| one.lane.cmp(&other.lane));
        Ok(LaneList { lanes, until: chosen.until })
    }

    fn claimed_lanes(&self) -> Result<BTreeMap<LaneId, FoundLane>, StoreError> {
        let mut select = self.connection.prepare_cached(
            "SELECT lane, sum(count) FROM chunk INDEXED BY chunk_leased \
             WHERE lease_until IS NOT NULL GROUP BY lane",
        )?;
        let mut rows = select.query([])?;
        let mut lanes = BTreeMap::new();
        while let Some(row) = rows.next()? {
            let (id, claimed): (LaneId, i64) = (row.get(0)?, row.get(1)?);
            let next_due_at = next_due(&self.connection, id)?;
            lanes.insert(id, FoundLane { claimed: claimed.cast_unsigned(), next_due_at });
        }
        Ok(lanes)
    }

    /// Lanes behind `after` in which something waits, in order of their numbers, with the earliest due time of each: a seek for
    /// each of them.
    pub(super) fn waiting_lanes(
        &self,
        after: LaneId,
        lanes_max: usize,
    ) -> Result<Vec<(LaneId, Timestamp)>, StoreError> {
        let mut select = self.connection.prepare_cached(
            "SELECT lane, due_at FROM chunk INDEXED BY chunk_ready \
             WHERE lease_until IS NULL AND lane > ?1 ORDER BY lane, due_at LIMIT 1",
        )?;
        let (mut lanes, mut last) = (Vec::new(), after);
        while lanes.len() < lanes_max
            && let Some((lane, due_at)) =
                select.query_row([last], |row| Ok((row.get(0)?, row.get(1)?))).optional()?
        {
            lanes.push((lane, Timestamp::from_millis(due_at)));
            last = lane;
        }
        Ok(lanes)
    }

    /// Of the chunks that wait, the first `chunks_max` in order of their lanes.
    pub(super) fn waiting_counts(&self, chunks_max: usize) -> Result<WaitingCounts, StoreError> {
        let mut select = self.connection.prepare_cached(
            "SELECT channel, priority, count(*), sum(ready.count) \
             FROM (SELECT lane, count FROM chunk INDEXED BY chunk_ready \
               WHERE lease_until IS NULL ORDER BY lane, due_at LIMIT ?1) AS ready \
             CROSS JOIN tenant_lane ON tenant_lane.id = ready.lane GROUP BY channel, priority",
        )?;
        let (mut counts, mut chunks) = (WaitingCounts::default(), 0);
        let chunks_max = i64::try_from(chunks_max).unwrap_or(i64::MAX);
        let mut rows = select.query([chunks_max])?;
        while let Some(row) = rows.next()? {
            let channel = codes::name(row.get_ref(0)?.as_str()?)?;
            let priority = codes::priority(row.get(1)?)?;
            chunks += row.get::<_, i64>(2)?;
            let notifications = row.get::<_, i64>(3)?.cast_unsigned();
            counts.notifications.insert((channel, priority), notifications);
        }
        counts.is_at_least = chunks >= chunks_max;
        Ok(counts)
    }

    /// The first entries of the index `chunk_due`.
    fn first_due(&self) -> Result<Vec<(LaneId, Timestamp)>, StoreError> {
        let (mut entries, mut place) = (Vec::with_capacity(LANES_PER_PAGE), DueCursor::START);
        while entries.len() < LANES_PER_PAGE
            && let Some((next, at)) = rows::due_after(&self.connection, place)?
        {
            entries.push((next.lane, at));
            place = next;
        }
        Ok(entries)
    }

    pub(super) fn paces(&self, evidence: &EvidenceBook) -> Result<Vec<LanePace>, StoreError> {
        let pace = |(id, answered, at)| {
            let lane = rows::lane(&self.connection, id)?;
            Ok(LanePace { lane, answered, at })
        };
        evidence.paces().into_iter().map(pace).collect()
    }
}
