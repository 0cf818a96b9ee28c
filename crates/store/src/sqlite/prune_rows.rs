//! Retention of what is no notification: idempotency keys, changes of the suppression list, lanes.

use std::time::Duration;

use notification::{BroadcastId, NotificationId, Timestamp};
use rusqlite::{CachedStatement, OptionalExtension, params};

use super::prune::StepUnderWay;
use super::rows::signed;
use super::transaction::Transaction;
use crate::rows::codes::LaneId;
use crate::rows::retention::{DailyWalk, KeyPlace, OldRows, ROWS_PER_STEP};
use crate::{RetainedPart, StoreError};

/// The row of an idempotency key.
struct KeyRow {
    tenant: String,
    key: String,
    notification: Option<[u8; 16]>,
    broadcast: Option<i64>,
}

// === impl OldRows ===

impl OldRows {
    /// Those among the rows of `select`, the numbers and times of the first rows of a table by number, as many as its parameter says;
    /// with the number of the last that may go.
    pub(super) fn read(
        mut select: CachedStatement<'_>,
        lifetime: Duration,
        now: Timestamp,
    ) -> Result<(Self, Option<i64>), StoreError> {
        let rows = select.query_map([signed(ROWS_PER_STEP + 1)], |row| {
            Ok((row.get::<_, i64>(0)?, Timestamp::from_millis(row.get(1)?)))
        })?;
        let (ids, times): (Vec<i64>, Vec<Timestamp>) =
            rows.collect::<Result<Vec<_>, _>>()?.into_iter().unzip();
        let old = Self::of(&times, lifetime, now);
        let last = old.count.checked_sub(1).and_then(|last| ids.get(last).copied());
        Ok((old, last))
    }
}

// === impl Transaction ===

impl Transaction<'_> {
    /// Goes on with the walk over the idempotency keys, or begins it anew when it is time.
    pub(super) fn prune_keys(&mut self, step: &mut StepUnderWay<'_>) -> Result<(), StoreError> {
        let Some(lifetime) = step.retention.idempotency_keys else { return Ok(()) };
        let mut select =
            self.sql("SELECT tenant, key, begun_at FROM retention_walk WHERE name = 'keys'")?;
        let walk = select.query_row([], |row| {
            let place: KeyPlace = (row.get(0)?, row.get(1)?);
            let passed = (!place.0.is_empty()).then_some(place);
            Ok(DailyWalk { passed, begun_at: Timestamp::from_millis(row.get(2)?) })
        });
        let mut walk = walk.optional()?.unwrap_or(DailyWalk::NONE);
        if let Some(begins_at) = walk.waits_until(lifetime, step.now) {
            step.look_at(Some(begins_at));
            return Ok(());
        }
        let page = self.key_page(walk.passed.as_ref())?;
        for row in &page {
            if !self.is_key_over(row, step.now.minus(lifetime))? {
                continue;
            }
            self.sql("DELETE FROM idempotency WHERE tenant = ?1 AND key = ?2")?
                .execute([&row.tenant, &row.key])?;
            step.result.removed.idempotency_keys += 1;
        }
        let last = page.into_iter().last().map(|row| (row.tenant, row.key));
        step.result.goes_on |= walk.pass(last, step.now);
        if !step.result.goes_on {
            step.look_at(walk.waits_until(lifetime, step.now));
        }
        let insert = "INSERT INTO retention_walk (name, tenant, key, begun_at) VALUES ('keys', ?1, ?2, ?3) \
             ON CONFLICT (name) DO UPDATE SET tenant = excluded.tenant, key = excluded.key, begun_at = excluded.begun_at";
        let (tenant, key) = walk.passed.unwrap_or_default();
        self.sql(insert)?.execute(params![tenant, key, walk.begun_at.millis()])?;
        Ok(())
    }

    /// The keys behind the place of a walk.
    fn key_page(&self, passed: Option<&KeyPlace>) -> Result<Vec<KeyRow>, StoreError> {
        let (tenant, key) = passed.map_or(("", ""), |(tenant, key)| (tenant, key));
        let mut select = self.sql(
            "SELECT tenant, key, notification, broadcast FROM idempotency \
             WHERE (tenant, key) > (?1, ?2) ORDER BY tenant, key LIMIT ?3",
        )?;
        let rows = select.query_map(params![tenant, key, signed(ROWS_PER_STEP)], |row| {
            Ok(KeyRow {
                tenant: row.get(0)?,
                key: row.get(1)?,
                notification: row.get(2)?,
                broadcast: row.get(3)?,
            })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// True if a key was used before `until`, and the content of its notification or broadcast is gone.
    fn is_key_over(&self, row: &KeyRow, until: Timestamp) -> Result<bool, StoreError> {
        if let Some(id) = row.notification.map(NotificationId::from_bytes) {
            if id.accepted_at() > until {
                return Ok(false);
            }
            let mut select = self.sql("SELECT removed > 0 FROM batch WHERE id = ?1")?;
            let removed = select.query_row([id.batch().0.cast_signed()], |row| row.get(0));
            return Ok(removed.optional()?.unwrap_or(true));
        }
        let mut select = self.sql(
            "SELECT coalesce(sealed_at <= ?2, 0) AND without_content >= recipients FROM broadcast WHERE id = ?1",
        )?;
        let id = BroadcastId(row.broadcast.unwrap_or_default().cast_unsigned());
        let over = select.query_row([id.0.cast_signed(), until.millis()], |row| row.get(0));
        Ok(over.optional()?.unwrap_or(true))
    }

    /// Removes old changes of the suppression list, but the last: its number must not be given again.
    pub(super) fn prune_suppression_events(
        &mut self,
        step: &mut StepUnderWay<'_>,
    ) -> Result<(), StoreError> {
        let Some(lifetime) = step.retention.suppression_events else { return Ok(()) };
        let select =
            self.sql("SELECT id, at FROM suppression_event WHERE id > 0 ORDER BY id LIMIT ?1")?;
        let (old, last) = OldRows::read(select, lifetime, step.now)?;
        if let Some(last) = last {
            self.sql("DELETE FROM suppression_event WHERE id <= ?1")?.execute([last])?;
        }
        step.result.removed.suppression_events += old.count as u64;
        step.note(&old);
        Ok(())
    }

    /// Goes on with the walk over the lanes, or begins it anew when it is time: those that nothing is in are removed. The number of the
    /// last lane is in the column `batch` of the walk.
    pub(super) fn prune_lanes(&mut self, step: &mut StepUnderWay<'_>) -> Result<(), StoreError> {
        let Some(lifetime) = step.retention.shortest(RetainedPart::Outcome) else { return Ok(()) };
        let mut select =
            self.sql("SELECT batch, begun_at FROM retention_walk WHERE name = 'lanes'")?;
        let walk = select.query_row([], |row| {
            let passed = Some(row.get(0)?).filter(|passed| *passed > 0);
            Ok(DailyWalk { passed, begun_at: Timestamp::from_millis(row.get(1)?) })
        });
        let mut walk: DailyWalk<LaneId> = walk.optional()?.unwrap_or(DailyWalk::NONE);
        if let Some(begins_at) = walk.waits_until(lifetime, step.now) {
            step.look_at(Some(begins_at));
            return Ok(());
        }
        let passed = walk.passed.unwrap_or(0);
        let lanes = self.lane_page(passed)?;
        for (lane, is_empty) in &lanes {
            // A lane in memory may be about to get a batch; it is removed by a later walk.
            if *is_empty && self.state.lanes.lane(*lane).is_none() {
                self.sql("DELETE FROM tenant_lane WHERE id = ?1")?.execute([lane])?;
                self.state.kept_lanes.remove(lane);
                step.result.removed.lanes += 1;
            }
        }
        step.result.goes_on |= walk.pass(lanes.last().map(|(lane, _)| *lane), step.now);
        step.look_at(walk.waits_until(lifetime, step.now));
        let insert = "INSERT INTO retention_walk (name, batch, begun_at) VALUES ('lanes', ?1, ?2) \
             ON CONFLICT (name) DO UPDATE SET batch = excluded.batch, begun_at = excluded.begun_at";
        self.sql(insert)?.execute(params![walk.passed.unwrap_or(0), walk.begun_at.millis()])?;
        Ok(())
    }

    /// The lanes behind `passed`, and whether nothing is in them: the walk over outcomes has passed every number that a batch of them
    /// may have, and has left none of these batches. The last lane of all is never said to be empty: its number must not be given again.
    fn lane_page(&self, passed: LaneId) -> Result<Vec<(LaneId, bool)>, StoreError> {
        let mut select = self.sql(
            "SELECT id, kept_through <= ?2 AND id < (SELECT max(id) FROM tenant_lane) \
               AND NOT EXISTS (SELECT 1 FROM retention_later WHERE part = 2 AND retention_later.lane = tenant_lane.id) \
             FROM tenant_lane WHERE id > ?1 ORDER BY id LIMIT ?3",
        )?;
        let page =
            params![passed, self.passed_by_walk(RetainedPart::Outcome)?, signed(ROWS_PER_STEP)];
        let rows = select.query_map(page, |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }
}
