//! A transaction of the writer, and the writer's memory between transactions.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use notification::{BatchId, BroadcastId, ChunkId, Content, Lane, Name, Pauses, State, Timestamp};
use rusqlite::{CachedStatement, Connection, OptionalExtension, Row, params};
use tokio::sync::watch;

use super::audit_lock::{AuditLock, NoAudit};
use super::disk::DiskSpace;
use super::rows::{self, next_due, select_chunk, signed};
use crate::rows::codec::{LogLine, LogRow};
use crate::rows::codes::LaneId;
use crate::rows::lanes::{Lanes, SettledCall};
use crate::rows::members::Members;
use crate::rows::model::{ChunkRow, NewChunk};
use crate::rows::packing::BatchPacker;
use crate::rows::recipient_filter::RecipientFilter;
use crate::rows::release::Slicing;
use crate::rows::retention::LANE_KEPT_FOR;
use crate::{CommitCounts, StoreError, StoredKeys};

/// The state of the writer: its memory of the database. Read anew when a store is opened.
#[derive(Debug)]
pub(super) struct WriterState {
    pub(super) store_id: u16,
    pub(super) lanes: Lanes,
    pub(super) suppressed: RecipientFilter,
    /// The number of the next batch.
    pub(super) next_batch: u64,
    /// Content of the broadcast that was claimed from last, which its next chunk needs too.
    pub(super) last_content: Option<(BroadcastId, Content)>,
    /// The work that the disk has room for.
    pub(super) room: DiskSpace,
    pub(super) slicing: Slicing,
    /// True if a broadcast may wait for its next slice.
    pub(super) waits: bool,
    /// Lanes that this transaction stored: if it is undone, they do not exist.
    pub(super) new_lanes: Vec<LaneId>,
    /// Lanes, and the number up to which batches may be written to them.
    pub(super) kept_lanes: HashMap<LaneId, u64>,
    /// Last batch that may be in a lane of another tenant, because it is older than lanes of tenants.
    pub(super) mixed_batches_through: i64,
    /// Keeps audits and the removal of outcomes apart.
    pub(super) audits: AuditLock,
    /// Pauses, for claims and for deliver.
    pub(super) pauses: watch::Sender<Arc<Pauses>>,
    /// API keys that calls made.
    pub(super) keys: watch::Sender<StoredKeys>,
    /// True if commits are synced now; also with [`Synchronous::Normal`](super::Synchronous::Normal), under which they never are.
    pub(super) is_synced: bool,
    /// True unless the store was opened with [`Synchronous::Normal`](super::Synchronous::Normal).
    pub(super) may_sync: bool,
    /// Counts of commits.
    pub(super) commits: Arc<CommitCounts>,
}

/// The transaction under way. Refusals are found before anything of their command is written: a
/// transaction is never undone in part.
#[derive(Debug)]
pub(super) struct Transaction<'a> {
    pub(super) connection: &'a Connection,
    pub(super) state: &'a mut WriterState,
    /// True if more may be claimable after the commit.
    pub(super) woke: bool,
    /// Pauses after the commit, if the transaction changed them.
    pub(super) pauses: Option<Arc<Pauses>>,
    /// The API keys after the commit, if the transaction changed them.
    pub(super) keys: Option<StoredKeys>,
    /// Held by a transaction that removes outcomes, until it is committed.
    pub(super) no_audit: Option<NoAudit>,
    /// Drafts that were accepted, and are not written yet.
    pub(super) packer: BatchPacker,
    /// Settlements of which the lanes are not told yet.
    pub(super) settled: Vec<SettledCall>,
    /// Rows that the connection had written before it.
    rows_before: u64,
    /// Changes of the totals, by tenant and the code of the state.
    totals: BTreeMap<(Name, u8), i64>,
}

/// The result of a transaction.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Committed {
    /// True if more may be claimable now.
    pub(super) woke: bool,
    /// True if any notification was accepted or ended.
    pub(super) counted: bool,
}

/// Lanes of which it is remembered up to which number batches may be written to them.
const KEPT_LANES_MAX: usize = 65_536;

// === impl WriterState ===

impl WriterState {
    /// Drops the lanes of a transaction that was undone. Its other notes, of lanes with work, are found to be wrong by the next
    /// claim.
    pub(super) fn forget_new_lanes(&mut self) {
        for lane in self.new_lanes.drain(..) {
            self.lanes.remove(lane);
        }
        self.kept_lanes.clear();
    }

    fn remember_kept(&mut self, lane: LaneId, through: u64) {
        if self.kept_lanes.len() >= KEPT_LANES_MAX {
            // All of them: which ones will be used again is not known, and they are read again for little.
            self.kept_lanes.clear();
        }
        self.kept_lanes.insert(lane, through);
    }
}

// === impl Transaction ===

impl<'a> Transaction<'a> {
    pub(super) fn begin(
        connection: &'a Connection,
        state: &'a mut WriterState,
    ) -> Result<Self, StoreError> {
        // The right to write is had at once: a transaction that begins as a read may be refused it half-way.
        connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        state.new_lanes.clear();
        let (packer, settled, totals) = (BatchPacker::default(), Vec::new(), BTreeMap::new());
        let (no_audit, pauses, keys) = (None, None, None);
        let rows_before = connection.total_changes();
        let woke = false;
        Ok(Self {
            connection,
            state,
            woke,
            pauses,
            keys,
            no_audit,
            packer,
            settled,
            rows_before,
            totals,
        })
    }

    /// Commits; durable when it returns, as far as the connection is set to sync.
    pub(super) fn commit(mut self) -> Result<Committed, StoreError> {
        // First: what was packed is counted in the totals, and wakes the claims.
        self.store_packed()?;
        for ((tenant, state), &change) in self.totals.iter().filter(|(_, change)| **change != 0) {
            self.add_total(tenant.as_str(), *state, change)?;
        }
        let begun_at = CommitCounts::begin();
        self.sql("COMMIT")?.execute([])?;
        // A commit that wrote nothing is none for the disk, and takes no time.
        if self.connection.total_changes() > self.rows_before {
            let state = &*self.state;
            state.commits.committed(begun_at, state.is_synced && state.may_sync);
        }
        self.note_settled();
        // Here, and not where it is answered: a caller that is gone must not leave an old view behind.
        if let Some(pauses) = self.pauses {
            self.state.pauses.send_replace(pauses);
        }
        if let Some(keys) = self.keys {
            self.state.keys.send_replace(keys);
        }
        // Also where the changes cancel each other out: the log has ends that a reader must not see undone.
        Ok(Committed { woke: self.woke, counted: !self.totals.is_empty() })
    }

    pub(super) fn sql(&self, statement: &str) -> Result<CachedStatement<'a>, StoreError> {
        Ok(self.connection.prepare_cached(statement)?)
    }

    /// Counts `items` of `tenant` that were accepted.
    pub(super) fn count_accepted(&mut self, tenant: &Name, items: usize) {
        self.count(tenant, State::Pending, signed(items));
    }

    /// Counts `items` of `tenant` that were pending and ended.
    pub(super) fn count_ended(&mut self, tenant: &Name, state: State, items: usize) {
        debug_assert!(state.is_terminal(), "only an end changes the totals");
        self.count(tenant, State::Pending, -signed(items));
        self.count(tenant, state, signed(items));
    }

    /// Counts `items` of `tenant` that had ended in `state`, which is taken back: they are pending again.
    pub(super) fn count_taken_back(&mut self, tenant: &Name, state: State, items: usize) {
        self.count(tenant, state, -signed(items));
        self.count(tenant, State::Pending, signed(items));
    }

    fn count(&mut self, tenant: &Name, state: State, change: i64) {
        *self.totals.entry((tenant.clone(), state.code())).or_default() += change;
    }

    /// Ends members of a chunk as `line` says. The caller takes them out of it.
    pub(super) fn end_of_chunk(
        &mut self,
        chunk: &ChunkRow,
        line: &LogLine<'_>,
        members: &Members,
    ) -> Result<(), StoreError> {
        let tenant = self.tenant_of(chunk)?;
        self.end((&tenant, chunk.batch), line, members)
    }

    /// Ends `members` of a batch of a tenant as `line` says. The caller takes them out of their chunk.
    pub(super) fn end(
        &mut self,
        (tenant, batch): (&Name, BatchId),
        line: &LogLine<'_>,
        members: &Members,
    ) -> Result<(), StoreError> {
        if members.is_empty() {
            return Ok(());
        }
        let mut row = LogRow::new();
        row.push(line, members.iter());
        self.count_ended(tenant, line.state, members.len());
        // Feeds wait for the same changes as claims.
        self.woke = true;
        self.add_log(batch, &row)
    }

    pub(super) fn add_log(&self, batch: BatchId, row: &LogRow) -> Result<(), StoreError> {
        if !row.is_empty() {
            self.sql("INSERT INTO log (batch, entries) VALUES (?1, ?2)")?
                .execute(params![batch.0.cast_signed(), row.as_bytes()])?;
        }
        for state in &row.listed {
            let insert = "INSERT OR IGNORE INTO undelivered (batch, state, tenant) SELECT id, ?2, tenant FROM batch WHERE id = ?1";
            self.sql(insert)?.execute(params![batch.0.cast_signed(), state.code()])?;
        }
        Ok(())
    }

    pub(super) fn chunk(&self, id: ChunkId) -> Result<Option<ChunkRow>, StoreError> {
        let mut select = self.sql(select_chunk!("id = ?1"))?;
        Ok(select.query_row([id.0.cast_signed()], ChunkRow::read).optional()?)
    }

    pub(super) fn add_chunk(&mut self, chunk: &NewChunk) -> Result<(), StoreError> {
        chunk.insert(self.connection)?;
        self.add_due(chunk.lane, chunk.due_at)
    }

    /// Gives a chunk these members; without any it is gone.
    pub(super) fn set_members(&self, id: ChunkId, members: &Members) -> Result<(), StoreError> {
        // No epoch is compared, unlike on PostgreSQL: one thread writes, so the chunk is still as it was read.
        if members.is_empty() {
            self.sql("DELETE FROM chunk WHERE id = ?1")?.execute([id.0.cast_signed()])?;
        } else {
            self.sql("UPDATE chunk SET count = ?2, members = ?3 WHERE id = ?1")?
                .execute(params![id.0.cast_signed(), signed(members.len()), members.to_blob()])?;
        }
        Ok(())
    }

    /// Makes a chunk ready that was leased; its epoch stays, so that the next claim has a new one.
    pub(super) fn unlease(&mut self, chunk: &ChunkRow) -> Result<(), StoreError> {
        self.sql("UPDATE chunk SET lease_until = NULL, begun_through = NULL WHERE id = ?1")?
            .execute([chunk.id.0.cast_signed()])?;
        self.add_due(chunk.lane, chunk.due_at)
    }

    /// Number of `lane`, if it is stored.
    pub(super) fn find_lane(&self, lane: &Lane) -> Result<Option<LaneId>, StoreError> {
        match self.state.lanes.number_of(lane) {
            Some(id) => Ok(Some(id)),
            None => Ok(self.stored_lane(lane)?.map(|(id, _)| id)),
        }
    }

    /// Number of `lane`, and the number up to which batches may be written to it.
    fn stored_lane(&self, lane: &Lane) -> Result<Option<(LaneId, u64)>, StoreError> {
        let mut select = self.sql(
            "SELECT id, kept_through FROM tenant_lane \
             WHERE channel = ?1 AND destination = ?2 AND priority = ?3 AND tenant = ?4",
        )?;
        let row = |row: &Row<'_>| Ok((row.get(0)?, row.get::<_, i64>(1)?.cast_unsigned()));
        Ok(select.query_row(lane_key(lane), row).optional()?)
    }

    /// The number of `lane`, to which batches with numbers up to `through` are to be written; a new lane gets one. The lane is there as
    /// long as they are.
    pub(super) fn lane_number(&mut self, lane: &Lane, through: u64) -> Result<LaneId, StoreError> {
        let known = self.state.lanes.number_of(lane);
        let is_kept = |id: &LaneId| self.state.kept_lanes.get(id).is_some_and(|it| through <= *it);
        if let Some(id) = known.filter(is_kept) {
            return Ok(id);
        }
        let (id, mut kept_through) = match self.stored_lane(lane)? {
            Some(stored) => stored,
            None => self.insert_lane(lane, through)?,
        };
        if kept_through < through {
            kept_through = through + LANE_KEPT_FOR;
            self.sql("UPDATE tenant_lane SET kept_through = ?2 WHERE id = ?1")?
                .execute([id, kept_through.cast_signed()])?;
        }
        self.state.remember_kept(id, kept_through);
        if known.is_none() {
            self.state.lanes.add(id, lane.clone());
        }
        Ok(id)
    }

    fn insert_lane(&mut self, lane: &Lane, through: u64) -> Result<(LaneId, u64), StoreError> {
        let kept_through = through + LANE_KEPT_FOR;
        let insert = "INSERT INTO tenant_lane (channel, destination, priority, tenant, kept_through) VALUES (?1, ?2, ?3, ?4, ?5)";
        let (channel, destination, priority, tenant) = lane_key(lane);
        let row = params![channel, destination, priority, tenant, kept_through.cast_signed()];
        let id = self.sql(insert)?.insert(row)?;
        self.state.new_lanes.push(id);
        Ok((id, kept_through))
    }

    /// The lane with number `id`.
    pub(super) fn lane(&self, id: LaneId) -> Result<Lane, StoreError> {
        match self.state.lanes.lane(id) {
            Some(lane) => Ok(lane.clone()),
            None => rows::lane(self.connection, id),
        }
    }

    pub(super) fn add_due(&mut self, lane: LaneId, at: Timestamp) -> Result<(), StoreError> {
        if self.state.lanes.lane(lane).is_none() {
            let known = rows::lane(self.connection, lane)?;
            self.state.lanes.add(lane, known);
        }
        self.state.lanes.add_due(lane, at);
        self.woke = true;
        Ok(())
    }

    /// Reads anew when the lane's next chunk is due.
    pub(super) fn reset_due(&mut self, lane: LaneId) -> Result<(), StoreError> {
        let next_due = next_due(self.connection, lane)?;
        self.state.lanes.set_next_due(lane, next_due);
        Ok(())
    }
}

/// Key of a lane, by which it is looked up and stored.
fn lane_key(lane: &Lane) -> (&str, &str, u8, &str) {
    (lane.channel.as_str(), &lane.destination, lane.priority.code(), lane.tenant.as_str())
}
