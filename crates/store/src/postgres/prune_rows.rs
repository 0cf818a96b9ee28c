//! Retention of what is no notification: idempotency keys, changes of the suppression list, rejected rows of the outbox, lanes.

use std::collections::HashSet;
use std::time::Duration;

use notification::{NotificationId, Timestamp};
use uuid::Uuid;

use super::columns::{narrow, signed};
use super::prune::PruneRows;
use super::transaction::{RunError, Transaction};
use crate::rows::codes::LaneId;
use crate::rows::retention::{DailyWalk, KeyPlace, OldRows, ROWS_PER_STEP};
use crate::{PruneStep, RetainedPart};

/// Idempotency keys in order, and what each was used for.
#[derive(Default)]
struct KeyPage {
    keys: Vec<(String, String)>,
    notifications: Vec<Option<NotificationId>>,
    broadcasts: Vec<Option<i64>>,
}

const SELECT_KEY_WALK: &str =
    "SELECT tenant, key, begun_at FROM retention_walk WHERE name = 'keys'";
const UPDATE_KEY_WALK: &str = "INSERT INTO retention_walk (name, tenant, key, begun_at) VALUES ('keys', $1, $2, $3) \
     ON CONFLICT (name) DO UPDATE SET tenant = excluded.tenant, key = excluded.key, begun_at = excluded.begun_at";
const SELECT_KEYS: &str = "SELECT tenant, key, notification, broadcast FROM idempotency \
     WHERE (tenant, key) > ($1, $2) ORDER BY tenant, key LIMIT $3";
const DELETE_KEYS: &str = "DELETE FROM idempotency USING unnest($1::text[], $2::text[]) AS gone (tenant, key) \
     WHERE idempotency.tenant = gone.tenant AND idempotency.key = gone.key";
const WITH_CONTENT: &str = "SELECT id FROM batch WHERE id = ANY($1) AND removed = 0";
const BROADCASTS_KEPT: &str = "SELECT id FROM broadcast WHERE id = ANY($1) \
     AND (coalesce(sealed_at > $2, true) OR without_content < recipients)";
const SELECT_EVENTS: &str =
    "SELECT txid, id, at FROM suppression_event WHERE txid > 0 ORDER BY txid, id LIMIT $1";
const SELECT_REJECTED: &str = "SELECT id, (extract(epoch FROM rejected_at) * 1000)::int8 FROM outbox_rejected \
     WHERE id > 0 ORDER BY id LIMIT $1";
const SELECT_LANE_WALK: &str = "SELECT batch, begun_at FROM retention_walk WHERE name = 'lanes'";
const UPDATE_LANE_WALK: &str = "INSERT INTO retention_walk (name, batch, begun_at) VALUES ('lanes', $1, $2) \
     ON CONFLICT (name) DO UPDATE SET batch = excluded.batch, begun_at = excluded.begun_at";
const SELECT_LANES: &str =
    "SELECT id, kept_through FROM tenant_lane WHERE id > $1 ORDER BY id LIMIT $2";
/// Lanes of which retention has left no batch.
const WITHOUT_BATCH: &str = "SELECT id FROM unnest($1::int4[]) AS lane (id) \
     WHERE NOT EXISTS (SELECT FROM retention_later WHERE part = 2 AND retention_later.lane = lane.id)";
/// One that a writer has locked is about to be kept.
const DELETE_LANES: &str = "DELETE FROM tenant_lane WHERE id IN ( \
       SELECT id FROM tenant_lane WHERE id = ANY($1) AND kept_through <= $2 ORDER BY id FOR UPDATE SKIP LOCKED)";

// === impl PruneRows ===

impl PruneRows {
    /// Performs a step on what is no notification.
    pub(super) async fn prune_others(
        &self,
        transaction: &mut Transaction<'_>,
    ) -> Result<PruneStep, RunError> {
        let mut step = PruneStep::default();
        if let Some(lifetime) = self.retention.idempotency_keys {
            self.prune_keys(transaction, lifetime, &mut step).await?;
        }
        let page = signed(ROWS_PER_STEP + 1);
        if let Some(lifetime) = self.retention.suppression_events {
            let rows = transaction.rows(SELECT_EVENTS, &[&page]).await?;
            let times: Result<Vec<Timestamp>, _> =
                rows.iter().map(|row| row.try_get(2).map(Timestamp::from_millis)).collect();
            let old = OldRows::of(&times?, lifetime, self.now);
            if let Some(last) = old.count.checked_sub(1).and_then(|last| rows.get(last)) {
                let (txid, id): (i64, i64) = (last.try_get(0)?, last.try_get(1)?);
                let delete = "DELETE FROM suppression_event WHERE (txid, id) <= ($1, $2)";
                transaction.execute(delete, &[&txid, &id]).await?;
            }
            step.removed.suppression_events = old.count as u64;
            step.note(&old);
        }
        if let Some(lifetime) = self.retention.outbox_rejects {
            let rows = transaction.rows(SELECT_REJECTED, &[&page]).await?;
            let times: Result<Vec<Timestamp>, _> =
                rows.iter().map(|row| row.try_get(1).map(Timestamp::from_millis)).collect();
            let old = OldRows::of(&times?, lifetime, self.now);
            if let Some(last) = old.count.checked_sub(1).and_then(|last| rows.get(last)) {
                let last: i64 = last.try_get(0)?;
                transaction.execute("DELETE FROM outbox_rejected WHERE id <= $1", &[&last]).await?;
            }
            step.removed.outbox_rejects = old.count as u64;
            step.note(&old);
        }
        if let Some(lifetime) = self.retention.acts {
            let old = transaction.prune_acts(lifetime, self.now).await?;
            step.removed.acts = old.count as u64;
            step.note(&old);
        }
        self.prune_lanes(transaction, &mut step).await?;
        Ok(step)
    }

    /// Goes on with the walk over the idempotency keys, or begins it anew when it is time.
    async fn prune_keys(
        &self,
        transaction: &mut Transaction<'_>,
        lifetime: Duration,
        step: &mut PruneStep,
    ) -> Result<(), RunError> {
        let mut walk: DailyWalk<KeyPlace> = DailyWalk::NONE;
        for row in transaction.rows(SELECT_KEY_WALK, &[]).await? {
            let place: KeyPlace = (row.try_get(0)?, row.try_get(1)?);
            walk.passed = (!place.0.is_empty()).then_some(place);
            walk.begun_at = Timestamp::from_millis(row.try_get(2)?);
        }
        if let Some(begins_at) = walk.waits_until(lifetime, self.now) {
            step.look_at(Some(begins_at));
            return Ok(());
        }
        let page = KeyPage::read(transaction, walk.passed.as_ref()).await?;
        let until = self.now.minus(lifetime);
        let (tenants, keys) = page.over(transaction, until).await?;
        if !keys.is_empty() {
            transaction.execute(DELETE_KEYS, &[&tenants, &keys]).await?;
            step.removed.idempotency_keys = keys.len() as u64;
        }
        step.goes_on |= walk.pass(page.keys.into_iter().last(), self.now);
        step.look_at(walk.waits_until(lifetime, self.now));
        let begun_at = walk.begun_at.millis();
        let (tenant, key) = walk.passed.unwrap_or_default();
        transaction.execute(UPDATE_KEY_WALK, &[&tenant, &key, &begun_at]).await?;
        Ok(())
    }

    /// Goes on with the walk over the lanes, or begins it anew when it is time: those that nothing is in are removed. The number of the
    /// last lane is in the column `batch` of the walk.
    async fn prune_lanes(
        &self,
        transaction: &mut Transaction<'_>,
        step: &mut PruneStep,
    ) -> Result<(), RunError> {
        let Some(lifetime) = self.retention.shortest(RetainedPart::Outcome) else { return Ok(()) };
        let mut walk: DailyWalk<LaneId> = DailyWalk::NONE;
        for row in transaction.rows(SELECT_LANE_WALK, &[]).await? {
            walk.passed = Some(row.try_get(0)?).filter(|passed| *passed > 0);
            walk.begun_at = Timestamp::from_millis(row.try_get(1)?);
        }
        if let Some(begins_at) = walk.waits_until(lifetime, self.now) {
            step.look_at(Some(begins_at));
            return Ok(());
        }
        let passed = narrow(walk.passed.unwrap_or(0));
        let walked = transaction.passed_by_walk(RetainedPart::Outcome).await?;
        let (mut last, mut without_more) = (None, Vec::new());
        for row in transaction.rows(SELECT_LANES, &[&passed, &signed(ROWS_PER_STEP)]).await? {
            let lane: i32 = row.try_get(0)?;
            last = Some(LaneId::from(lane));
            // The walk over outcomes has passed every number that a batch of it may have.
            if row.try_get::<_, i64>(1)? <= walked {
                without_more.push(lane);
            }
        }
        let empty = transaction.rows(WITHOUT_BATCH, &[&without_more]).await?;
        let empty = empty.iter().map(|row| row.try_get(0)).collect::<Result<Vec<i32>, _>>()?;
        if !empty.is_empty() {
            step.removed.lanes = transaction.execute(DELETE_LANES, &[&empty, &walked]).await?;
        }
        step.goes_on |= walk.pass(last, self.now);
        step.look_at(walk.waits_until(lifetime, self.now));
        let (passed, begun_at) = (walk.passed.unwrap_or(0), walk.begun_at.millis());
        transaction.execute(UPDATE_LANE_WALK, &[&passed, &begun_at]).await?;
        Ok(())
    }
}

// === impl PruneStep ===

impl PruneStep {
    fn note(&mut self, old: &OldRows) {
        self.goes_on |= old.goes_on;
        self.look_at(old.next_at);
    }

    /// Notes that something may be due at `at`.
    fn look_at(&mut self, at: Option<Timestamp>) {
        self.next_at = self.next_at.into_iter().chain(at).min();
    }
}

// === impl KeyPage ===

impl KeyPage {
    /// The keys behind the place of a walk.
    async fn read(
        transaction: &mut Transaction<'_>,
        passed: Option<&KeyPlace>,
    ) -> Result<Self, RunError> {
        let mut page = Self::default();
        let (tenant, key) = passed.map_or(("", ""), |(tenant, key)| (tenant, key));
        let place: [&(dyn tokio_postgres::types::ToSql + Sync); 3] =
            [&tenant, &key, &signed(ROWS_PER_STEP)];
        for row in transaction.rows(SELECT_KEYS, &place).await? {
            page.keys.push((row.try_get(0)?, row.try_get(1)?));
            let notification: Option<Uuid> = row.try_get(2)?;
            let notification = notification.map(|id| NotificationId::from_bytes(id.into_bytes()));
            page.notifications.push(notification);
            page.broadcasts.push(row.try_get(3)?);
        }
        Ok(page)
    }

    /// Tenants and keys of those that were used before `until`, and whose notification or broadcast has lost its content.
    async fn over(
        &self,
        transaction: &mut Transaction<'_>,
        until: Timestamp,
    ) -> Result<(Vec<&str>, Vec<&str>), RunError> {
        let batch = |id: &NotificationId| id.batch().0.cast_signed();
        let batches: Vec<i64> = self.notifications.iter().flatten().map(batch).collect();
        let broadcasts: Vec<i64> = self.broadcasts.iter().flatten().copied().collect();
        let mut kept = HashSet::new();
        for row in transaction.rows(WITH_CONTENT, &[&batches]).await? {
            kept.insert(row.try_get::<_, i64>(0)?);
        }
        let mut kept_broadcasts = HashSet::new();
        for row in transaction.rows(BROADCASTS_KEPT, &[&broadcasts, &until.millis()]).await? {
            kept_broadcasts.insert(row.try_get::<_, i64>(0)?);
        }
        let uses = self.notifications.iter().zip(&self.broadcasts);
        let is_over = |(notification, broadcast): (&Option<NotificationId>, &Option<i64>)| {
            notification.is_none_or(|id| id.accepted_at() <= until && !kept.contains(&batch(&id)))
                && broadcast.is_none_or(|id| !kept_broadcasts.contains(&id))
        };
        let over = self.keys.iter().zip(uses).filter(|(_, used)| is_over(*used));
        Ok(over.map(|((tenant, key), _)| (tenant.as_str(), key.as_str())).unzip())
    }
}
