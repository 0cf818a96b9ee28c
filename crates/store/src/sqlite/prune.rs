//! Retention: what has outlived its lifetime is removed in small transactions.
//!
//! For each part of a notification a walk goes over the batches in order of their numbers, as far as they are old enough.
//! Batches that it has to leave, because they are pending or others have longer lifetimes, are noted with the time of the next
//! look. So nothing is written for retention while notifications come and go, and no step depends on how many there are.

use notification::{BatchId, Bytes, Timestamp};
use rusqlite::{OptionalExtension, params};

use super::rows::signed;
use super::transaction::Transaction;
use crate::rows::codes;
use crate::rows::removal::{without_contents, without_recipients};
use crate::rows::retention::{
    BATCHES_PER_STEP, BYTES_PER_STEP, BatchToPrune, KEPT_FOR, OldRows, PruneLook, code, walk_name,
    walk_until, walked_at,
};
use crate::{PruneStep, RetainedPart, Retention, StoreError};

/// A step: what it goes by, what it has done, and how much it has looked at.
#[derive(Debug)]
pub(super) struct StepUnderWay<'a> {
    pub(super) retention: &'a Retention,
    pub(super) now: Timestamp,
    pub(super) result: PruneStep,
    batches: usize,
    bytes: usize,
}

/// Free pages from which on some are given back: a quarter of the file, and as many as a busy minute fills.
const FREE_PAGES_MIN: i64 = 4096;
/// Free pages that one step gives back.
const PAGES_PER_STEP: i64 = 512;

// === impl StepUnderWay ===

impl StepUnderWay<'_> {
    fn has_room(&self) -> bool {
        self.batches < BATCHES_PER_STEP && self.bytes < BYTES_PER_STEP
    }

    /// Notes what is left behind `old` rows that were removed.
    pub(super) fn note(&mut self, old: &OldRows) {
        self.result.goes_on |= old.goes_on;
        self.look_at(old.next_at);
    }

    /// Notes that something may be due at `at`.
    pub(super) fn look_at(&mut self, at: Option<Timestamp>) {
        self.result.next_at = self.result.next_at.into_iter().chain(at).min();
    }
}

impl Transaction<'_> {
    /// Performs a step.
    pub(super) fn prune(
        &mut self,
        retention: &Retention,
        now: Timestamp,
    ) -> Result<PruneStep, StoreError> {
        let (result, batches, bytes) = (PruneStep::default(), 0, 0);
        let step = &mut StepUnderWay { retention, now, result, batches, bytes };
        // Outcomes first: of a batch whose whole time is over, no part is removed before the rest.
        self.no_audit = self.state.audits.hold_off();
        for part in RetainedPart::ALL.into_iter().rev() {
            if part == RetainedPart::Outcome && self.no_audit.is_none() {
                step.look_at(Some(now.plus(KEPT_FOR)));
                continue;
            }
            self.prune_noted(part, step)?;
            self.prune_next(part, step)?;
        }
        self.prune_keys(step)?;
        self.prune_suppression_events(step)?;
        self.prune_acts(step)?;
        self.prune_lanes(step)?;
        if !step.result.goes_on {
            // What of the index is left of batches that are gone is removed by the task that keeps it.
            self.woke |= self.drop_empty_runs()?;
            step.result.goes_on = self.give_pages_back()?;
        }
        Ok(step.result)
    }

    /// Looks at batches that walks have left, and that are to be looked at by now.
    fn prune_noted(
        &mut self,
        part: RetainedPart,
        step: &mut StepUnderWay<'_>,
    ) -> Result<(), StoreError> {
        let noted: Vec<(i64, i64)> = {
            let mut select = self.sql(
                "SELECT at, batch FROM retention_later WHERE part = ?1 ORDER BY at, batch LIMIT ?2",
            )?;
            let page = params![code(part), signed(BATCHES_PER_STEP + 1)];
            let rows = select.query_map(page, |row| Ok((row.get(0)?, row.get(1)?)))?;
            rows.collect::<Result<_, _>>()?
        };
        for (at, batch) in noted {
            if at > step.now.millis() {
                step.look_at(Some(Timestamp::from_millis(at)));
                return Ok(());
            }
            if !step.has_room() {
                step.result.goes_on = true;
                return Ok(());
            }
            self.sql("DELETE FROM retention_later WHERE part = ?1 AND at = ?2 AND batch = ?3")?
                .execute(params![code(part), at, batch])?;
            self.prune_batch(BatchId(batch.cast_unsigned()), part, step)?;
        }
        Ok(())
    }

    /// Goes on with the walk for `part`.
    fn prune_next(
        &mut self,
        part: RetainedPart,
        step: &mut StepUnderWay<'_>,
    ) -> Result<(), StoreError> {
        let Some(until) = walk_until(step.retention, part, step.now) else { return Ok(()) };
        let walk = walk_name(part);
        let passed = self.passed_by_walk(part)?;
        let batches: Vec<(i64, i64)> = {
            let mut select =
                self.sql("SELECT id, accepted_at FROM batch WHERE id > ?1 ORDER BY id LIMIT ?2")?;
            let page = params![passed, signed(BATCHES_PER_STEP + 1)];
            let rows = select.query_map(page, |row| Ok((row.get(0)?, row.get(1)?)))?;
            rows.collect::<Result<_, _>>()?
        };
        let mut last = passed;
        for (batch, accepted_at) in batches {
            if accepted_at > until.millis() {
                let accepted_at = Timestamp::from_millis(accepted_at);
                step.look_at(walked_at(step.retention, part, accepted_at));
                break;
            }
            if !step.has_room() {
                step.result.goes_on = true;
                break;
            }
            self.prune_batch(BatchId(batch.cast_unsigned()), part, step)?;
            last = batch;
        }
        if last > passed {
            let insert = "INSERT INTO retention_walk (name, batch) VALUES (?1, ?2) \
                 ON CONFLICT (name) DO UPDATE SET batch = excluded.batch";
            self.sql(insert)?.execute(params![walk, last])?;
        }
        Ok(())
    }

    /// Number of the last batch that the walk for `part` has looked at.
    pub(super) fn passed_by_walk(&self, part: RetainedPart) -> Result<i64, StoreError> {
        let mut select = self.sql("SELECT batch FROM retention_walk WHERE name = ?1")?;
        let passed = select.query_row([walk_name(part)], |row| row.get(0)).optional()?;
        Ok(passed.unwrap_or(0))
    }

    /// Removes what may be removed of a batch, or notes when to look again.
    fn prune_batch(
        &mut self,
        id: BatchId,
        part: RetainedPart,
        step: &mut StepUnderWay<'_>,
    ) -> Result<(), StoreError> {
        step.batches += 1;
        let Some(batch) = self.batch_to_prune(id)? else { return Ok(()) };
        let again = match batch.look(step.retention, part, step.now) {
            PruneLook::Gone => return Ok(()),
            PruneLook::Again(at) => at,
            PruneLook::Remove(RetainedPart::Outcome) if self.no_audit.is_none() => {
                self.remove_recipients(&batch, step)?;
                step.now.plus(KEPT_FOR)
            }
            PruneLook::Remove(RetainedPart::Outcome) if self.has_last_log_row(id)? => {
                // The next row of the log would get its number, which readers have passed.
                self.remove_recipients(&batch, step)?;
                step.now.plus(KEPT_FOR)
            }
            PruneLook::Remove(RetainedPart::Outcome) => return self.remove_batch(&batch, step),
            PruneLook::Remove(RetainedPart::Recipient) => {
                return self.remove_recipients(&batch, step);
            }
            PruneLook::Remove(RetainedPart::Content) => {
                return self.remove_contents(&batch, step);
            }
        };
        let insert =
            "INSERT OR IGNORE INTO retention_later (part, at, batch, lane) VALUES (?1, ?2, ?3, ?4)";
        let note = params![code(part), again.millis(), id.0.cast_signed(), batch.lane];
        self.sql(insert)?.execute(note)?;
        step.look_at(Some(again));
        Ok(())
    }

    fn batch_to_prune(&self, id: BatchId) -> Result<Option<BatchToPrune>, StoreError> {
        let number = id.0.cast_signed();
        let mut select = self.sql(
            "SELECT batch.tenant, lane.channel, batch.broadcast, count, removed, batch.due_at, \
             waiting.broadcast IS NOT NULL AND (passed IS NULL OR passed < batch.id), lane.id FROM batch \
             JOIN tenant_lane AS lane ON lane.id = batch.lane \
             LEFT JOIN unreleased AS waiting ON waiting.broadcast = batch.broadcast WHERE batch.id = ?1",
        )?;
        let mut rows = select.query([number])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        // All of a broadcast that is open waits, and the rest of one that is released slice by slice.
        let mut pending: Option<i64> = row.get::<_, bool>(6)?.then(|| row.get(5)).transpose()?;
        if pending.is_none() {
            let mut select = self.sql("SELECT min(due_at) FROM chunk WHERE batch = ?1")?;
            pending = select.query_row([number], |row| row.get(0))?;
        }
        let log = if pending.is_none() { self.logged(id)? } else { Vec::new() };
        Ok(Some(BatchToPrune {
            id,
            lane: row.get(7)?,
            tenant: codes::name(row.get_ref(0)?.as_str()?)?,
            channel: codes::name(row.get_ref(1)?.as_str()?)?,
            broadcast: row.get(2)?,
            count: usize::from(row.get::<_, u16>(3)?),
            removed: row.get(4)?,
            pending: pending.map(Timestamp::from_millis),
            log,
        }))
    }

    fn has_last_log_row(&self, batch: BatchId) -> Result<bool, StoreError> {
        let mut select =
            self.sql("SELECT batch = ?1 FROM log WHERE id = (SELECT max(id) FROM log)")?;
        let is_last = select.query_row([batch.0.cast_signed()], |row| row.get(0)).optional()?;
        Ok(is_last.unwrap_or(false))
    }

    fn remove_contents(
        &mut self,
        batch: &BatchToPrune,
        step: &mut StepUnderWay<'_>,
    ) -> Result<(), StoreError> {
        let number = batch.id.0.cast_signed();
        let mut select = self.sql("SELECT items FROM batch WHERE id = ?1")?;
        let items: Vec<u8> = select.query_row([number], |row| row.get(0))?;
        step.bytes += items.len();
        let items = without_contents(Bytes::from(items), batch.count)?;
        self.strip(batch.id, &items, 1)?;
        self.count_contents(batch, step)
    }

    fn remove_recipients(
        &mut self,
        batch: &BatchToPrune,
        step: &mut StepUnderWay<'_>,
    ) -> Result<(), StoreError> {
        if batch.removed > code(RetainedPart::Recipient) {
            return Ok(());
        }
        self.strip(batch.id, &without_recipients(), 2)?;
        step.result.removed.recipients += batch.count as u64;
        self.count_contents(batch, step)
    }

    /// Gives a batch `items` that have lost the first `removed` parts. Traces go with the contents, without which it is not sent again,
    /// labels with the recipients, the second part.
    pub(super) fn strip(
        &self,
        batch: BatchId,
        items: &[u8],
        removed: u8,
    ) -> Result<(), StoreError> {
        let update = "UPDATE batch SET options = NULL, payload = NULL, trace = NULL, items = ?2, removed = ?3, \
             labels = iif(?3 > 1, NULL, labels) WHERE id = ?1";
        self.sql(update)?.execute(params![batch.0.cast_signed(), items, removed])?;
        Ok(())
    }

    /// Counts the contents of a batch as removed, if they were there.
    fn count_contents(
        &self,
        batch: &BatchToPrune,
        step: &mut StepUnderWay<'_>,
    ) -> Result<(), StoreError> {
        if batch.removed > code(RetainedPart::Content) {
            return Ok(());
        }
        step.result.removed.contents += batch.count as u64;
        self.count_without_content(batch.broadcast, batch.count)
    }

    /// Counts `members` of a broadcast that have lost their content, which goes with the last of them.
    pub(super) fn count_without_content(
        &self,
        broadcast: Option<i64>,
        members: usize,
    ) -> Result<(), StoreError> {
        let Some(broadcast) = broadcast else { return Ok(()) };
        self.sql("UPDATE broadcast SET without_content = without_content + ?2 WHERE id = ?1")?
            .execute([broadcast, signed(members)])?;
        let update = "UPDATE broadcast SET payload = x'', options = x'' \
             WHERE id = ?1 AND without_content >= recipients";
        self.sql(update)?.execute([broadcast])?;
        Ok(())
    }

    /// Removes a batch and its log, and leaves tombstones.
    fn remove_batch(
        &mut self,
        batch: &BatchToPrune,
        step: &mut StepUnderWay<'_>,
    ) -> Result<(), StoreError> {
        let ends = batch.ends().unwrap_or_default();
        for (state, count) in &ends {
            let count = count.cast_signed();
            let insert = "INSERT INTO tombstone (tenant, channel, state, count) VALUES (?1, ?2, ?3, ?4) \
                 ON CONFLICT (tenant, channel, state) DO UPDATE SET count = count + excluded.count";
            let (tenant, channel) = (batch.tenant.as_str(), batch.channel.as_str());
            self.sql(insert)?.execute(params![tenant, channel, state.code(), count])?;
            let Some(broadcast) = batch.broadcast else { continue };
            let insert = "INSERT INTO broadcast_tombstone (broadcast, state, count) VALUES (?1, ?2, ?3) \
                 ON CONFLICT (broadcast, state) DO UPDATE SET count = count + excluded.count";
            self.sql(insert)?.execute(params![broadcast, state.code(), count])?;
        }
        let number = batch.id.0.cast_signed();
        self.sql("DELETE FROM log WHERE batch = ?1")?.execute([number])?;
        self.sql("DELETE FROM undelivered WHERE batch = ?1")?.execute([number])?;
        self.sql("DELETE FROM batch WHERE id = ?1")?.execute([number])?;
        step.result.removed.outcomes += batch.count as u64;
        if batch.removed <= code(RetainedPart::Recipient) {
            step.result.removed.recipients += batch.count as u64;
        }
        self.count_contents(batch, step)?;
        batch.broadcast.map_or(Ok(()), |broadcast| self.remove_broadcast(broadcast))
    }

    /// Removes a broadcast whose notifications are all gone.
    fn remove_broadcast(&self, broadcast: i64) -> Result<(), StoreError> {
        let delete = "DELETE FROM broadcast WHERE id = ?1 AND recipients <= \
             (SELECT sum(count) FROM broadcast_tombstone WHERE broadcast = ?1)";
        if self.sql(delete)?.execute([broadcast])? > 0 {
            self.sql("DELETE FROM broadcast_tombstone WHERE broadcast = ?1")?
                .execute([broadcast])?;
        }
        Ok(())
    }

    /// Gives free pages back to the file system, if there are many; whether there are more. A store that was made before pages
    /// could be given back keeps them, and fills them again.
    fn give_pages_back(&self) -> Result<bool, StoreError> {
        let pragma =
            |name: &str| self.connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
        let is_many = |free: i64, pages: i64| free >= FREE_PAGES_MIN && free > pages / 4;
        let (free, pages) = (pragma("freelist_count")?, pragma("page_count")?);
        // 2: pages are given back when it is asked for.
        if !is_many(free, pages) || pragma("auto_vacuum")? != 2 {
            return Ok(false);
        }
        let vacuum = format!("PRAGMA incremental_vacuum({PAGES_PER_STEP})");
        self.connection.execute_batch(&vacuum)?;
        Ok(is_many(free - PAGES_PER_STEP, pages - PAGES_PER_STEP))
    }
}
