//! Answers from one snapshot of the database.

use std::collections::BTreeSet;

use notification::{Account, BatchId, BroadcastId, Name, NotificationId, State, Timestamp};
use rusqlite::{Connection, OptionalExtension, params};

use super::rows::{self, select_chunk};
use crate::rows::codec::decode_log;
use crate::rows::codes::{self, LaneId};
use crate::rows::labels::BatchLabels;
use crate::rows::members::Members;
use crate::rows::model::{BatchHistory, BatchRow};
use crate::rows::parked::{COUNTED_MAX, Counted};
use crate::rows::progress::{BroadcastParts, PendingChunk};
use crate::rows::release::WaitingState;
use crate::{BroadcastStatus, History, LogEntry, LogPage, LogPosition, ParkedChannel, StoreError};

/// The database at one instant: a question holds a transaction meanwhile.
#[derive(Debug)]
pub(super) struct Snapshot {
    pub(super) connection: Connection,
    pub(super) store_id: u16,
}

/// A batch of an open broadcast is not accepted yet.
pub(super) const ACCEPTED: &str = "(batch.broadcast IS NULL OR (SELECT sealed_at FROM broadcast AS b \
                        WHERE b.id = batch.broadcast) IS NOT NULL)";

// === impl Snapshot ===

impl Snapshot {
    /// Asks `question` within one transaction.
    pub(super) fn answer<T>(
        &self,
        question: impl FnOnce(&Self) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        // Unchecked: the pool lends the connection to one question at a time.
        let transaction = self.connection.unchecked_transaction()?;
        let answer = question(self)?;
        transaction.finish()?;
        Ok(answer)
    }

    pub(super) fn find(&self, id: NotificationId) -> Result<Option<History>, StoreError> {
        let sql = format!("SELECT lane, count FROM batch WHERE id = ?1 AND {ACCEPTED}");
        let mut select = self.connection.prepare_cached(&sql)?;
        let batch: Option<(LaneId, u16)> = select
            .query_row([id.batch().0.cast_signed()], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        let Some((lane, count)) = batch else { return Ok(None) };
        if id.index() >= count {
            return Ok(None);
        }
        let only = Members::from_iter([id.index()]);
        let history = self.batch_history(id.batch(), lane)?.histories(self.store_id, &only)?.pop();
        // The id also holds the time of acceptance and the store: one that differs in these is of no notification here.
        history.filter(|history| history.id == id).map(|history| self.linked(history)).transpose()
    }

    /// Adds the fallback that stands in for the notification.
    pub(super) fn linked(&self, history: History) -> Result<History, StoreError> {
        // The key under which a fallback is accepted is all that leads from a notification to it.
        let Some(key) = history.fallback_key() else { return Ok(history) };
        let mut select = self.connection.prepare_cached(
            "SELECT notification FROM idempotency WHERE tenant = ?1 AND key = ?2",
        )?;
        let parameters = params![history.envelope.lane.tenant.as_str(), &*key];
        let found: Option<[u8; 16]> = select.query_row(parameters, |row| row.get(0)).optional()?;
        Ok(History { fallback_id: found.map(NotificationId::from_bytes), ..history })
    }

    pub(super) fn batch_history(
        &self,
        id: BatchId,
        lane: LaneId,
    ) -> Result<BatchHistory, StoreError> {
        let lane = rows::lane(&self.connection, lane)?;
        let mut select = self.connection.prepare_cached(
            "SELECT withdrawn_at FROM unreleased \
             WHERE broadcast = (SELECT broadcast FROM batch WHERE id = ?1) AND passed < ?1",
        )?;
        let waiting = select
            .query_row([id.0.cast_signed()], |row| Ok(WaitingState::new(row.get(0)?)))
            .optional()?;
        let mut batch = BatchRow::read(&self.connection, id, &lane)?;
        if batch.content.is_none()
            && batch.removed == 0
            && let Some(broadcast) = batch.envelope.broadcast
        {
            batch.content = Some(rows::broadcast_content(&self.connection, broadcast)?);
        }
        let select = self.connection.prepare_cached(select_chunk!("batch = ?1"))?;
        let chunks = rows::chunks(select, [id.0.cast_signed()])?;
        let chunks = chunks.into_iter().map(|chunk| (chunk.members(), chunk));
        let chunks = chunks.map(|(members, chunk)| (chunk, members)).collect();
        let mut log = Vec::new();
        let mut select = self
            .connection
            .prepare_cached("SELECT entries FROM log WHERE batch = ?1 ORDER BY id")?;
        let mut entries = select.query([id.0.cast_signed()])?;
        while let Some(row) = entries.next()? {
            log.extend(decode_log(row.get_ref(0)?.as_blob()?)?);
        }
        let labels = rows::batch_labels(&self.connection, id)?;
        Ok(BatchHistory { batch, labels, chunks, log, waiting })
    }

    pub(super) fn broadcast(&self, id: BroadcastId) -> Result<Option<BroadcastStatus>, StoreError> {
        let number = id.0.cast_signed();
        let mut select = self.connection.prepare_cached(
            "SELECT tenant, channel, sealed_at, due_at, expires_at, labels FROM broadcast \
             WHERE id = ?1 AND sealed_at IS NOT NULL",
        )?;
        let mut rows = select.query([number])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        let mut account = Account::default();
        let accepted = "SELECT coalesce(sum(count), 0) FROM batch WHERE broadcast = ?1";
        account.accepted = self.count(accepted, id.0)?;
        let gone = "SELECT state, count FROM broadcast_tombstone WHERE broadcast = ?1";
        self.add_counts(gone, [number], &mut account)?;
        let mut select = self.connection.prepare_cached(
            "SELECT waiting, withdrawn_at FROM unreleased \
             WHERE broadcast = ?1 AND passed IS NOT NULL",
        )?;
        let waiting = select.query_row([number], |row| {
            Ok((row.get::<_, i64>(0)?.cast_unsigned(), WaitingState::new(row.get(1)?)))
        });
        let mut unreleased = 0;
        if let Some((count, waiting)) = waiting.optional()? {
            account.add(waiting.state(), count);
            // Once the broadcast is withdrawn, its waiting members are cancelled for every reader, though the log has no lines
            // for them yet.
            unreleased = if waiting.state() == State::Pending { count } else { 0 };
        }
        let mut parts = self.pending_parts(id, unreleased)?;
        // Those that wait for their chunk were counted above, in their own state.
        account.add(State::Pending, parts.pending() - unreleased);
        let mut select = self.connection.prepare_cached(
            "SELECT entries, lane FROM batch JOIN log ON log.batch = batch.id WHERE broadcast = ?1",
        )?;
        let mut entries = select.query([number])?;
        while let Some(row) = entries.next()? {
            let lane: LaneId = row.get(1)?;
            for group in decode_log(row.get_ref(0)?.as_blob()?)? {
                parts.add_group(&lane, &group, &mut account);
            }
        }
        let parts = parts.into_parts(&mut account);
        Ok(Some(BroadcastStatus {
            id,
            tenant: codes::name(row.get_ref(0)?.as_str()?)?,
            channel: codes::name(row.get_ref(1)?.as_str()?)?,
            accepted_at: Timestamp::from_millis(row.get(2)?),
            due_at: Timestamp::from_millis(row.get(3)?),
            expires_at: row.get::<_, Option<i64>>(4)?.map(Timestamp::from_millis),
            labels: BatchLabels::decode(rows::labels_at(row, 5)?, 1)?.of(0),
            account,
            parts,
        }))
    }

    /// Pending parts of a broadcast of which `unreleased` notifications have no chunk yet.
    fn pending_parts(
        &self,
        id: BroadcastId,
        unreleased: u64,
    ) -> Result<BroadcastParts<LaneId>, StoreError> {
        let mut parts = BroadcastParts::new(unreleased);
        let mut select = self.connection.prepare_cached(
            "SELECT chunk.lane, chunk.count, chunk.attempt, chunk.due_at, chunk.lease_until IS NULL FROM batch \
             JOIN chunk ON chunk.batch = batch.id WHERE broadcast = ?1",
        )?;
        let mut rows = select.query([id.0.cast_signed()])?;
        while let Some(row) = rows.next()? {
            let chunk = PendingChunk {
                count: row.get::<_, i64>(1)?.cast_unsigned(),
                attempt: row.get(2)?,
                due_at: Timestamp::from_millis(row.get(3)?),
                is_ready: row.get(4)?,
            };
            parts.add_chunk(row.get(0)?, chunk);
        }
        Ok(parts)
    }

    fn count(&self, sql: &str, parameter: u64) -> Result<u64, StoreError> {
        let mut select = self.connection.prepare_cached(sql)?;
        Ok(select.query_row([parameter.cast_signed()], |row| row.get::<_, i64>(0))?.cast_unsigned())
    }

    /// Adds notifications by state: the rows of `sql` are states and counts.
    pub(super) fn add_counts(
        &self,
        sql: &str,
        parameters: impl rusqlite::Params,
        account: &mut Account,
    ) -> Result<(), StoreError> {
        let mut select = self.connection.prepare_cached(sql)?;
        let mut rows = select.query(parameters)?;
        while let Some(row) = rows.next()? {
            let count = row.get::<_, i64>(1)?.cast_unsigned();
            account.add(codes::state(row.get(0)?)?, count);
            // Each notification stands in one state, so together they are all that were accepted.
            account.accepted += count;
        }
        Ok(())
    }

    pub(super) fn parked(
        &self,
        offered: &BTreeSet<Name>,
    ) -> Result<Vec<ParkedChannel>, StoreError> {
        // From channel to channel by a seek: one may have any number of lanes.
        let mut next = self
            .connection
            .prepare_cached("SELECT min(channel) FROM tenant_lane WHERE channel > ?1")?;
        let mut count = self.connection.prepare_cached(
            "SELECT count(*), count(DISTINCT lane), coalesce(sum(count), 0), min(due_at) \
             FROM (SELECT chunk.lane, chunk.count, chunk.due_at \
               FROM (SELECT id FROM tenant_lane WHERE channel = ?1 LIMIT ?2) AS wanted \
               LEFT JOIN chunk INDEXED BY chunk_ready ON chunk.lane = wanted.id AND chunk.lease_until IS NULL \
               LIMIT ?2)",
        )?;
        let (mut parked, mut after) = (Vec::new(), String::new());
        while let Some(channel) = next.query_row([&after], |row| row.get::<_, Option<String>>(0))? {
            let name = codes::name(&channel)?;
            if !offered.contains(&name) {
                let counted = count.query_row(params![channel, COUNTED_MAX], |row| {
                    let number = |column| row.get::<_, i64>(column).map(i64::cast_unsigned);
                    Ok(Counted {
                        rows: number(0)?,
                        lanes: number(1)?,
                        notifications: number(2)?,
                        next_due_at: row.get::<_, Option<i64>>(3)?.map(Timestamp::from_millis),
                    })
                })?;
                parked.extend(counted.of(name));
            }
            after = channel;
        }
        Ok(parked)
    }

    pub(super) fn log(&self, position: LogPosition, entries: usize) -> Result<LogPage, StoreError> {
        let mut select = self.connection.prepare_cached(
            "SELECT log.id, batch.id, accepted_at, entries FROM log JOIN batch ON batch.id = batch \
             WHERE log.id > ?1 ORDER BY log.id",
        )?;
        let mut rows = select.query([position.0.cast_signed()])?;
        let mut page = LogPage { entries: Vec::new(), next: position };
        while page.entries.len() < entries
            && let Some(row) = rows.next()?
        {
            page.next = LogPosition(row.get::<_, i64>(0)?.cast_unsigned());
            let batch = BatchId(row.get::<_, i64>(1)?.cast_unsigned());
            let accepted_at = Timestamp::from_millis(row.get(2)?);
            for group in decode_log(row.get_ref(3)?.as_blob()?)? {
                let entry = |&index: &u16| LogEntry {
                    id: NotificationId::new(accepted_at, self.store_id, batch, index),
                    attempted: group.attempted.clone(),
                };
                page.entries.extend(group.indexes.iter().map(entry));
            }
        }
        Ok(page)
    }
}
