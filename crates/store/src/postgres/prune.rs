//! Retention: what has outlived its lifetime is removed in small transactions, by one process at a time.
//!
//! For each part of a notification a walk goes over the batches in order of their numbers, as far as they are old enough.
//! Batches that it has to leave, because they are pending or others have longer lifetimes, are noted with the time of the next
//! look. Rows of batches are locked before their chunks and their log are read, as a requeue does: neither acts on what the other
//! has changed.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use notification::{BatchId, Bytes, Timestamp};
use tokio_postgres::types::ToSql;

use super::columns::{narrow, signed};
use super::request::WriterRequest;
use super::transaction::{RunError, Transaction};
use crate::rows::codes;
use crate::rows::removal::{without_contents, without_recipients};
use crate::rows::retention::{
    BATCHES_PER_STEP, BYTES_PER_STEP, BatchToPrune, KEPT_FOR, PruneLook, code, walk_name,
    walk_until, walked_at,
};
use crate::{PruneStep, Removed, RetainedPart, Retention, StoreError};

/// One step of retention.
#[derive(Debug)]
pub(super) struct PruneRows {
    pub(super) retention: Arc<Retention>,
    pub(super) now: Timestamp,
}

/// Batches that a step looks at, for one part.
struct PrunePage {
    /// Notes of which these are, by time and batch.
    noted: (Vec<i64>, Vec<i64>),
    /// Batches, in order of their numbers.
    batches: Vec<i64>,
    /// Where the walk is when they are done, if it goes on.
    passed: Option<i64>,
    /// Time of the next look, if there are no batches.
    next_at: Option<Timestamp>,
}

/// Age of a batch below which one with a lower number may be committed yet. Numbers are in hand for
/// [`NUMBERS_KEPT_FOR`](super::ingest::NUMBERS_KEPT_FOR) at most, and a transaction takes less than the rest.
const UNDERCUT_FOR: Duration = Duration::from_mins(20);
const _: () = assert!(UNDERCUT_FOR.as_secs() >= 2 * super::ingest::NUMBERS_KEPT_FOR.as_secs());

const ONE_AT_A_TIME: &str = "SELECT pg_try_advisory_xact_lock(4782301, 5)";
const SELECT_NOTED: &str =
    "SELECT at, batch FROM retention_later WHERE part = $1 ORDER BY at, batch LIMIT $2";
const SELECT_WALK: &str = "SELECT batch FROM retention_walk WHERE name = $1";
const SELECT_NEXT: &str = "SELECT id, accepted_at FROM batch WHERE id > $1 ORDER BY id LIMIT $2";
const UPDATE_WALK: &str = "INSERT INTO retention_walk (name, batch) VALUES ($1, $2) \
     ON CONFLICT (name) DO UPDATE SET batch = excluded.batch";
const DELETE_NOTED: &str = "DELETE FROM retention_later USING unnest($2::int8[], $3::int8[]) AS seen (at, batch) \
     WHERE part = $1 AND retention_later.at = seen.at AND retention_later.batch = seen.batch";
const INSERT_NOTED: &str = "INSERT INTO retention_later (part, at, batch, lane) \
     SELECT $1, * FROM unnest($2::int8[], $3::int8[], $4::int4[]) ON CONFLICT DO NOTHING";
const LOCK_BATCHES: &str = "SELECT batch.id, batch.tenant, lane.channel, batch.broadcast, count, removed, batch.due_at, \
     waiting.broadcast IS NOT NULL AND (passed IS NULL OR passed < batch.id), lane.id FROM batch \
     JOIN tenant_lane AS lane ON lane.id = batch.lane \
     LEFT JOIN unreleased AS waiting ON waiting.broadcast = batch.broadcast \
     WHERE batch.id = ANY($1) ORDER BY batch.id FOR UPDATE OF batch";
const SELECT_PENDING: &str =
    "SELECT batch, min(due_at) FROM chunk WHERE batch = ANY($1) GROUP BY batch";
/// Batches whose items hold contents of their own, with their sizes; items of others are as they would be without them.
const SELECT_SIZES: &str = "SELECT id, octet_length(items)::int8 FROM batch \
     WHERE id = ANY($1) AND substr(items, 2, 1) <> '\\x00' ORDER BY id";
const SELECT_ITEMS: &str = "SELECT id, count, items FROM batch WHERE id = ANY($1)";
const UPDATE_BATCHES: &str = "UPDATE batch SET options = NULL, payload = NULL, trace = NULL, items = coalesce(new.items, batch.items), \
     labels = CASE WHEN $3::int2 < 2 THEN batch.labels END, removed = $3 \
     FROM unnest($1::int8[], $2::bytea[]) AS new (id, items) WHERE batch.id = new.id";
const COUNT_CONTENTS: &str = "UPDATE broadcast SET without_content = without_content + gone.count \
     FROM unnest($1::int8[], $2::int8[]) AS gone (id, count) WHERE broadcast.id = gone.id";
const REMOVE_SHARED: &str = "UPDATE broadcast SET payload = '', options = '' \
     WHERE id = ANY($1) AND without_content >= recipients";
const INSERT_TOMBSTONES: &str = "INSERT INTO tombstone (tenant, channel, state, count) \
     SELECT * FROM unnest($1::text[], $2::text[], $3::int2[], $4::int8[]) \
     ON CONFLICT (tenant, channel, state) DO UPDATE SET count = tombstone.count + excluded.count";
const DROP_EMPTY_RUNS: &str = "UPDATE search_run SET state = 2 WHERE id > 0 AND state = 1 \
     AND NOT EXISTS (SELECT FROM batch WHERE batch.id >= first_batch AND batch.id <= last_batch)";
const INSERT_BROADCAST_TOMBSTONES: &str = "INSERT INTO broadcast_tombstone (broadcast, state, count) \
     SELECT * FROM unnest($1::int8[], $2::int2[], $3::int8[]) \
     ON CONFLICT (broadcast, state) DO UPDATE SET count = broadcast_tombstone.count + excluded.count";
const DELETE_BROADCASTS: &str = "DELETE FROM broadcast WHERE id = ANY($1) AND recipients <= \
     (SELECT sum(count) FROM broadcast_tombstone WHERE broadcast = broadcast.id) RETURNING id";

#[async_trait]
impl WriterRequest for PruneRows {
    type Answer = PruneStep;

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<PruneStep, RunError> {
        if !transaction.row(ONE_AT_A_TIME, &[]).await?.try_get::<_, bool>(0)? {
            let next_at = Some(self.now.plus(KEPT_FOR));
            return Ok(PruneStep { next_at, ..PruneStep::default() });
        }
        let mut next_at: Option<Timestamp> = None;
        // Outcomes first: of a batch whose whole time is over, no part is removed before the rest. One part in a transaction, so
        // that all rows are locked in the order of their numbers.
        for part in RetainedPart::ALL.into_iter().rev() {
            let page = self.page(transaction, part).await?;
            if !page.batches.is_empty() {
                let removed = self.prune(transaction, part, &page).await?;
                return Ok(PruneStep { removed, goes_on: true, next_at: None });
            }
            next_at = next_at.into_iter().chain(page.next_at).min();
        }
        // What the index has of batches that are gone is removed by the process that keeps it.
        transaction.effects.woke |= transaction.execute(DROP_EMPTY_RUNS, &[]).await? > 0;
        let mut step = self.prune_others(transaction).await?;
        step.next_at = step.next_at.into_iter().chain(next_at).min();
        Ok(step)
    }
}

// === impl PruneRows ===

impl PruneRows {
    /// The batches to be looked at next for `part`.
    async fn page(
        &self,
        transaction: &mut Transaction<'_>,
        part: RetainedPart,
    ) -> Result<PrunePage, RunError> {
        let mut page = PrunePage {
            noted: (Vec::new(), Vec::new()),
            batches: Vec::new(),
            passed: None,
            next_at: None,
        };
        let limit = signed(BATCHES_PER_STEP);
        let stored_part = i16::from(code(part));
        for row in transaction.rows(SELECT_NOTED, &[&stored_part, &limit]).await? {
            let (at, batch): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
            if at > self.now.millis() {
                page.next_at = Some(Timestamp::from_millis(at));
                break;
            }
            page.noted.0.push(at);
            page.noted.1.push(batch);
            page.batches.push(batch);
        }
        let Some(until) = walk_until(&self.retention, part, self.now) else { return Ok(page) };
        let until = until.min(self.now.minus(UNDERCUT_FOR));
        let passed = transaction.passed_by_walk(part).await?;
        let limit = limit - signed(page.batches.len());
        for row in transaction.rows(SELECT_NEXT, &[&passed, &limit]).await? {
            let accepted_at = Timestamp::from_millis(row.try_get(1)?);
            if accepted_at > until {
                let walked_at = walked_at(&self.retention, part, accepted_at);
                let walked_at = walked_at.map(|at| at.max(accepted_at.plus(UNDERCUT_FOR)));
                page.next_at = page.next_at.into_iter().chain(walked_at).min();
                break;
            }
            let batch: i64 = row.try_get(0)?;
            page.passed = Some(batch);
            page.batches.push(batch);
        }
        page.batches.sort_unstable();
        page.batches.dedup();
        Ok(page)
    }

    /// Removes what may be removed of the batches of a page, and notes when to look at the others again.
    async fn prune(
        &self,
        transaction: &mut Transaction<'_>,
        part: RetainedPart,
        page: &PrunePage,
    ) -> Result<Removed, RunError> {
        let mut of_part: BTreeMap<RetainedPart, Vec<BatchToPrune>> = BTreeMap::new();
        let (mut at, mut later, mut lanes) = (Vec::new(), Vec::new(), Vec::new());
        for batch in transaction.batches_to_prune(&page.batches).await? {
            match batch.look(&self.retention, part, self.now) {
                PruneLook::Gone => {}
                PruneLook::Remove(part) => of_part.entry(part).or_default().push(batch),
                PruneLook::Again(next) => {
                    at.push(next.millis());
                    later.push(batch.id.0.cast_signed());
                    lanes.push(narrow(batch.lane));
                }
            }
        }
        let stored_part = i16::from(code(part));
        if !page.noted.0.is_empty() {
            let noted = [&stored_part as &(dyn ToSql + Sync), &page.noted.0, &page.noted.1];
            transaction.execute(DELETE_NOTED, &noted).await?;
        }
        if !later.is_empty() {
            let notes = [&stored_part as &(dyn ToSql + Sync), &at, &later, &lanes];
            transaction.execute(INSERT_NOTED, &notes).await?;
        }
        if let Some(passed) = page.passed {
            transaction.execute(UPDATE_WALK, &[&walk_name(part), &passed]).await?;
        }
        let mut removed = Removed::default();
        for (part, batches) in of_part {
            match part {
                RetainedPart::Content => transaction.remove_contents(&batches).await?,
                RetainedPart::Recipient => transaction.remove_recipients(&batches).await?,
                RetainedPart::Outcome => transaction.remove_outcomes(&batches).await?,
            }
            removed.count(part, &batches);
        }
        Ok(removed)
    }
}

// === impl Removed ===

impl Removed {
    /// Counts `batches` of which `part` was removed, and what goes before it.
    fn count(&mut self, part: RetainedPart, batches: &[BatchToPrune]) {
        for batch in batches {
            let count = batch.count as u64;
            let is_new = |of: RetainedPart| of <= part && batch.removed <= code(of);
            self.contents += if is_new(RetainedPart::Content) { count } else { 0 };
            self.recipients += if is_new(RetainedPart::Recipient) { count } else { 0 };
            self.outcomes += if is_new(RetainedPart::Outcome) { count } else { 0 };
        }
    }
}

// === impl Transaction ===

impl Transaction<'_> {
    /// Number of the last batch that the walk for `part` has looked at.
    pub(super) async fn passed_by_walk(&mut self, part: RetainedPart) -> Result<i64, RunError> {
        let walk = self.rows(SELECT_WALK, &[&walk_name(part)]).await?;
        Ok(walk.first().map_or(Ok(0), |row| row.try_get(0))?)
    }

    /// Batches, locked, with what is known of their ends.
    async fn batches_to_prune(&mut self, ids: &[i64]) -> Result<Vec<BatchToPrune>, RunError> {
        let rows = self.rows(LOCK_BATCHES, &[&ids]).await?;
        // In this order, each in a snapshot of its own: a settlement in between is seen by both or by the second alone.
        let mut pending = HashMap::new();
        for row in self.rows(SELECT_PENDING, &[&ids]).await? {
            pending.insert(row.try_get::<_, i64>(0)?, row.try_get::<_, i64>(1)?);
        }
        let mut logged = self.logged(ids).await?;
        let damaged = |_| StoreError::Damaged("a batch".to_owned());
        let mut batches = Vec::with_capacity(rows.len());
        for row in &rows {
            let number: i64 = row.try_get(0)?;
            // All of a broadcast that is open waits, and the rest of one that is released slice by slice.
            let waits_until: Option<i64> =
                if row.try_get(7)? { Some(row.try_get(6)?) } else { pending.get(&number).copied() };
            batches.push(BatchToPrune {
                id: BatchId(number.cast_unsigned()),
                lane: row.try_get::<_, i32>(8)?.into(),
                tenant: codes::name(row.try_get(1)?)?,
                channel: codes::name(row.try_get(2)?)?,
                broadcast: row.try_get(3)?,
                count: usize::try_from(row.try_get::<_, i32>(4)?).unwrap_or(0),
                removed: u8::try_from(row.try_get::<_, i16>(5)?).map_err(damaged)?,
                pending: waits_until.map(Timestamp::from_millis),
                log: logged.remove(&number).unwrap_or_default(),
            });
        }
        Ok(batches)
    }

    async fn remove_contents(&mut self, batches: &[BatchToPrune]) -> Result<(), RunError> {
        let ids = numbers(batches);
        // A batch may have a MiB of them: they are read some at a time.
        let (mut group, mut bytes) = (Vec::new(), 0);
        for row in self.rows(SELECT_SIZES, &[&ids]).await? {
            group.push(row.try_get::<_, i64>(0)?);
            bytes += usize::try_from(row.try_get::<_, i64>(1)?).unwrap_or(0);
            if bytes >= BYTES_PER_STEP {
                self.strip_items(&std::mem::take(&mut group)).await?;
                bytes = 0;
            }
        }
        self.strip_items(&group).await?;
        let items: Vec<Option<Vec<u8>>> = vec![None; ids.len()];
        self.execute(UPDATE_BATCHES, &[&ids, &items, &1_i16]).await?;
        self.count_contents(batches).await
    }

    /// Removes the contents from the items of these batches.
    async fn strip_items(&mut self, ids: &[i64]) -> Result<(), RunError> {
        if ids.is_empty() {
            return Ok(());
        }
        let mut items = (Vec::with_capacity(ids.len()), Vec::with_capacity(ids.len()));
        for row in self.rows(SELECT_ITEMS, &[&ids]).await? {
            let count = usize::try_from(row.try_get::<_, i32>(1)?).unwrap_or(0);
            items.0.push(row.try_get::<_, i64>(0)?);
            items.1.push(without_contents(Bytes::copy_from_slice(row.try_get(2)?), count)?);
        }
        self.execute(UPDATE_BATCHES, &[&items.0, &items.1, &1_i16]).await?;
        Ok(())
    }

    async fn remove_recipients(&mut self, batches: &[BatchToPrune]) -> Result<(), RunError> {
        let ids = numbers(batches);
        let items = vec![Some(without_recipients()); ids.len()];
        self.execute(UPDATE_BATCHES, &[&ids, &items, &2_i16]).await?;
        self.count_contents(batches).await
    }

    /// Counts the contents that were there.
    async fn count_contents(&mut self, batches: &[BatchToPrune]) -> Result<(), RunError> {
        let mut of_broadcast = BTreeMap::<i64, i64>::new();
        let had_content = |batch: &&BatchToPrune| batch.removed <= code(RetainedPart::Content);
        for batch in batches.iter().filter(had_content) {
            if let Some(broadcast) = batch.broadcast {
                *of_broadcast.entry(broadcast).or_default() += signed(batch.count);
            }
        }
        self.count_without_content(of_broadcast).await
    }

    /// Counts the members of broadcasts, by the broadcast, that have lost their content, which goes with the last of them.
    pub(super) async fn count_without_content(
        &mut self,
        of_broadcast: BTreeMap<i64, i64>,
    ) -> Result<(), RunError> {
        if of_broadcast.is_empty() {
            return Ok(());
        }
        let (broadcasts, counts): (Vec<i64>, Vec<i64>) = of_broadcast.into_iter().unzip();
        self.execute(COUNT_CONTENTS, &[&broadcasts, &counts]).await?;
        self.execute(REMOVE_SHARED, &[&broadcasts]).await?;
        Ok(())
    }

    /// Removes batches and their log, and leaves tombstones.
    async fn remove_outcomes(&mut self, batches: &[BatchToPrune]) -> Result<(), RunError> {
        let mut ended = BTreeMap::<(&str, &str, i16), i64>::new();
        let mut of_broadcast = BTreeMap::<(i64, i16), i64>::new();
        for batch in batches {
            for (state, count) in batch.ends().unwrap_or_default() {
                let (state, count) = (i16::from(state.code()), count.cast_signed());
                let key = (batch.tenant.as_str(), batch.channel.as_str(), state);
                *ended.entry(key).or_default() += count;
                if let Some(broadcast) = batch.broadcast {
                    *of_broadcast.entry((broadcast, state)).or_default() += count;
                }
            }
        }
        let counts: Vec<i64> = ended.values().copied().collect();
        let tenants: Vec<&str> = ended.keys().map(|(tenant, ..)| *tenant).collect();
        let channels: Vec<&str> = ended.keys().map(|(_, channel, _)| *channel).collect();
        let states: Vec<i16> = ended.keys().map(|(.., state)| *state).collect();
        self.execute(INSERT_TOMBSTONES, &[&tenants, &channels, &states, &counts]).await?;
        self.count_contents(batches).await?;
        let ids = numbers(batches);
        self.execute("DELETE FROM log WHERE batch = ANY($1)", &[&ids]).await?;
        self.execute("DELETE FROM undelivered WHERE batch = ANY($1)", &[&ids]).await?;
        self.execute("DELETE FROM batch WHERE id = ANY($1)", &[&ids]).await?;
        if of_broadcast.is_empty() {
            return Ok(());
        }
        let counts: Vec<i64> = of_broadcast.values().copied().collect();
        let (broadcasts, states): (Vec<i64>, Vec<i16>) = of_broadcast.into_keys().unzip();
        let tombstones: [&(dyn ToSql + Sync); 3] = [&broadcasts, &states, &counts];
        self.execute(INSERT_BROADCAST_TOMBSTONES, &tombstones).await?;
        let mut gone = Vec::new();
        for row in self.rows(DELETE_BROADCASTS, &[&broadcasts]).await? {
            gone.push(row.try_get::<_, i64>(0)?);
        }
        self.execute("DELETE FROM broadcast_tombstone WHERE broadcast = ANY($1)", &[&gone]).await?;
        Ok(())
    }
}

fn numbers(batches: &[BatchToPrune]) -> Vec<i64> {
    batches.iter().map(|batch| batch.id.0.cast_signed()).collect()
}
