//! Lanes by their numbers. A lane that nothing is in may be removed, so a writer says up to which number batches may come
//! (decision 0062).

use std::collections::{BTreeSet, HashMap};

use notification::Lane;
use tokio_postgres::types::ToSql;

use super::columns::narrow;
use super::transaction::{RunError, Transaction};
use super::writer_state::KeptLane;
use crate::rows::codes::LaneId;
use crate::rows::retention::LANE_KEPT_FOR;

/// Parameters that name lanes, by column.
struct LaneColumns<'a> {
    channels: Vec<&'a str>,
    destinations: Vec<&'a str>,
    priorities: Vec<i16>,
    tenants: Vec<&'a str>,
}

/// Inserts the lanes that are missing: no number is spent on those that are there. They are kept for longer while there are processes of
/// several versions: one may look a lane up, and write to it without saying so.
const INSERT_LANES: &str = "INSERT INTO tenant_lane (channel, destination, priority, tenant, kept_through) \
     SELECT *, (SELECT CASE WHEN count(DISTINCT version) > 1 THEN $6::int8 ELSE $5 END FROM worker WHERE id > 0) \
     FROM unnest($1::text[], $2::text[], $3::int2[], $4::text[]) AS wanted (channel, destination, priority, tenant) \
     WHERE NOT EXISTS (SELECT FROM tenant_lane AS lane WHERE lane.channel = wanted.channel \
       AND lane.destination = wanted.destination AND lane.priority = wanted.priority AND lane.tenant = wanted.tenant) \
     ON CONFLICT DO NOTHING";
const SELECT_LANES: &str = "SELECT lane.id, kept_through \
     FROM unnest($1::text[], $2::text[], $3::int2[], $4::text[]) \
       WITH ORDINALITY AS wanted (channel, destination, priority, tenant, place) \
     JOIN tenant_lane AS lane USING (channel, destination, priority, tenant) ORDER BY place";
/// In the order of their numbers, so that two processes do not wait for each other.
const KEEP_LANES: &str = "UPDATE tenant_lane SET kept_through = greatest(tenant_lane.kept_through, $2) \
     FROM (SELECT id FROM tenant_lane WHERE id = ANY($1) ORDER BY id FOR UPDATE) AS locked WHERE tenant_lane.id = locked.id";

/// Numbers of batches for which a new lane is kept while there are processes of several versions: what an earlier version writes in an
/// hour at 4,600 batches a second.
const KEPT_BESIDE_OTHERS: u64 = 1 << 24;

// === impl Transaction ===

impl Transaction<'_> {
    /// Number of `lane`, if it is stored.
    pub(super) async fn find_lane(&mut self, lane: &Lane) -> Result<Option<LaneId>, RunError> {
        let columns = LaneColumns::of(&[lane]);
        let rows = self.rows(SELECT_LANES, &columns.parameters()).await?;
        Ok(rows.first().map(|row| row.try_get::<_, i32>(0).map(i64::from)).transpose()?)
    }

    /// The numbers of `lanes`, to which batches with numbers that were drawn are to be written; a new lane gets one.
    pub(super) async fn lane_numbers(
        &mut self,
        lanes: BTreeSet<&Lane>,
    ) -> Result<HashMap<Lane, LaneId>, RunError> {
        let through = self.state.batch_numbers_end;
        let mut numbers = HashMap::with_capacity(lanes.len());
        // In order, so that two processes do not wait for each other; if their transactions do this more than once, one may be done again.
        let mut wanted = Vec::new();
        for lane in lanes {
            match self.state.kept_lanes.get(lane).filter(|kept| through <= kept.through) {
                Some(kept) => drop(numbers.insert(lane.clone(), kept.id)),
                None => wanted.push(lane),
            }
        }
        if wanted.is_empty() {
            return Ok(numbers);
        }
        for (lane, kept) in self.keep_lanes(&wanted, through).await? {
            numbers.insert(lane.clone(), kept.id);
            // Remembered with the commit only: a lane that is new is gone if the transaction is undone.
            self.effects.lanes.push((lane.clone(), kept));
        }
        Ok(numbers)
    }

    /// Stores the lanes that are missing, and sees to it that all are there as long as a batch with a number up to `through` is.
    async fn keep_lanes<'a>(
        &mut self,
        lanes: &[&'a Lane],
        through: u64,
    ) -> Result<Vec<(&'a Lane, KeptLane)>, RunError> {
        let columns = LaneColumns::of(lanes);
        let wanted = columns.parameters();
        let kept_for = (through + LANE_KEPT_FOR).cast_signed();
        let [channels, destinations, priorities, tenants] = wanted;
        let beside_others = (through + KEPT_BESIDE_OTHERS).cast_signed();
        let new = [channels, destinations, priorities, tenants, &kept_for, &beside_others];
        let inserted = self.execute(INSERT_LANES, &new).await?;
        self.follow_own_growth(inserted).await?;
        // A statement of its own: it sees lanes that another process has committed while the first one waited.
        let rows = self.rows(SELECT_LANES, &wanted).await?;
        let (mut kept, mut ending) = (Vec::with_capacity(lanes.len()), Vec::new());
        for (lane, row) in lanes.iter().zip(&rows) {
            let id = i64::from(row.try_get::<_, i32>(0)?);
            let mut kept_through = row.try_get::<_, i64>(1)?.cast_unsigned();
            if kept_through < through {
                ending.push(narrow(id));
                kept_through = kept_for.cast_unsigned();
            }
            kept.push((*lane, KeptLane { id, through: kept_through }));
        }
        if kept.len() < lanes.len() || self.keep(&ending, kept_for).await? < ending.len() {
            return Err(RunError::Conflict("a lane was removed while it was looked up"));
        }
        Ok(kept)
    }

    /// Keeps lanes for batches up to a number; returns how many of them are still there.
    async fn keep(&mut self, lanes: &[i32], kept_for: i64) -> Result<usize, RunError> {
        if lanes.is_empty() {
            return Ok(0);
        }
        let kept = self.execute(KEEP_LANES, &[&lanes, &kept_for]).await?;
        Ok(usize::try_from(kept).unwrap_or(usize::MAX))
    }
}

// === impl LaneColumns ===

impl<'a> LaneColumns<'a> {
    fn of(lanes: &[&'a Lane]) -> Self {
        Self {
            channels: lanes.iter().map(|lane| lane.channel.as_str()).collect(),
            destinations: lanes.iter().map(|lane| &*lane.destination).collect(),
            priorities: lanes.iter().map(|lane| lane.priority.code().into()).collect(),
            tenants: lanes.iter().map(|lane| lane.tenant.as_str()).collect(),
        }
    }

    fn parameters(&self) -> [&(dyn ToSql + Sync); 4] {
        [&self.channels, &self.destinations, &self.priorities, &self.tenants]
    }
}
