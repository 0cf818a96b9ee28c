//! Answers from one snapshot of the database.

use std::collections::BTreeSet;
use std::pin::pin;
use std::time::Duration;

use futures_util::TryStreamExt as _;
use notification::{
    Account, BatchId, BroadcastId, ByteString, Name, NotificationId, State, Timestamp,
};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, IsolationLevel, Row, Transaction};

use super::columns::{is_text, labels_at, signed};
use super::connection::{PostgresSession, StatementCache};
use super::ingest::key_use_at;
use crate::rows::codec::{LogGroup, decode_log};
use crate::rows::codes;
use crate::rows::labels::BatchLabels;
use crate::rows::parked::{COUNTED_MAX, Counted};
use crate::rows::progress::{BroadcastParts, PendingChunk};
use crate::rows::release::WaitingState;
use crate::tenant_page::TenantPageFiller;
use crate::{
    BroadcastStatus, ClusterStatus, KeyUse, LogEntry, LogPage, LogPosition, OUTBOX_ROWS_COUNTED,
    OutboxStatus, ParkedChannel, StoreError, StoreSpace, TenantPage, WorkerStatus,
};

/// The database at one instant.
pub(super) struct Snapshot<'a> {
    /// Sees nothing newer than its first statement, and cannot write.
    pub(super) transaction: Transaction<'a>,
    statements: &'a StatementCache,
    pub(super) store_id: u16,
}

pub(super) type Parameters<'a> = &'a [&'a (dyn ToSql + Sync)];

/// Rows of the log fetched at once.
const LOG_ROWS: i32 = 256;

// === impl Snapshot ===

impl<'a> Snapshot<'a> {
    pub(super) async fn begin(
        session: &'a mut PostgresSession,
        store_id: u16,
    ) -> Result<Self, StoreError> {
        let PostgresSession { client, statements, .. } = session;
        let transaction = client
            .build_transaction()
            // One snapshot for all statements: a member that is settled between two of them would be missing, or counted twice.
            .isolation_level(IsolationLevel::RepeatableRead)
            .read_only(true)
            .start()
            .await?;
        Ok(Self { transaction, statements, store_id })
    }

    pub(super) async fn end(self) -> Result<(), StoreError> {
        Ok(self.transaction.commit().await?)
    }

    /// Rows of a statement that is asked often. It is prepared once for a session, and planned each time.
    pub(super) async fn rows(
        &self,
        sql: &'static str,
        parameters: Parameters<'_>,
    ) -> Result<Vec<Row>, Error> {
        let statement = self.statements.prepared(&self.transaction, sql).await?;
        self.transaction.query(&statement, parameters).await
    }

    /// [`Snapshot::rows`] of a statement that gives one or none.
    async fn first_row(
        &self,
        sql: &'static str,
        parameters: Parameters<'_>,
    ) -> Result<Option<Row>, Error> {
        Ok(self.rows(sql, parameters).await?.into_iter().next())
    }

    /// The notification or broadcast for which `tenant` used `key`.
    pub(super) async fn key_use(
        &self,
        tenant: Name,
        key: ByteString,
    ) -> Result<Option<KeyUse>, StoreError> {
        if !is_text(&key) {
            return Ok(None);
        }
        let select =
            "SELECT notification, broadcast FROM idempotency WHERE tenant = $1 AND key = $2";
        let row = self.first_row(select, &[&tenant.as_str(), &&*key]).await?;
        row.map(|row| Ok(key_use_at(&row, 0)?)).transpose()
    }

    /// The tables with their indexes. How much room is left is known to the server alone.
    pub(super) async fn space(&self) -> Result<StoreSpace, StoreError> {
        let select = "SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::int8 FROM pg_class \
             WHERE relnamespace = 'belfry'::regnamespace AND relkind = 'r'";
        let row = self.transaction.query_one(select, &[]).await?;
        Ok(StoreSpace { used: unsigned(&row, 0)?, left: None })
    }

    pub(super) async fn broadcast(
        &self,
        id: BroadcastId,
    ) -> Result<Option<BroadcastStatus>, StoreError> {
        let number = id.0.cast_signed();
        let select = "SELECT tenant, channel, sealed_at, \
             (SELECT coalesce(sum(count), 0)::int8 FROM batch WHERE broadcast = $1), due_at, expires_at, labels \
             FROM broadcast WHERE id = $1 AND sealed_at IS NOT NULL";
        let rows = self.transaction.query(select, &[&number]).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let mut account = Account { accepted: unsigned(row, 3)?, ..Account::default() };
        let gone = "SELECT state, count FROM broadcast_tombstone WHERE broadcast = $1";
        self.add_counts(gone, &[&number], &mut account).await?;
        let mut unreleased = 0;
        let waiting = "SELECT waiting, withdrawn_at FROM unreleased \
             WHERE broadcast = $1 AND passed IS NOT NULL";
        if let Some(row) = self.transaction.query_opt(waiting, &[&number]).await? {
            let (state, count) = (WaitingState::new(row.try_get(1)?).state(), unsigned(&row, 0)?);
            account.add(state, count);
            // Once the broadcast is withdrawn, its waiting members are cancelled for every reader, though the log has no lines
            // for them yet.
            unreleased = if state == State::Pending { count } else { 0 };
        }
        let mut parts = self.pending_parts(id, unreleased).await?;
        // Those that wait for their chunk were counted above, in their own state.
        account.add(State::Pending, parts.pending() - unreleased);
        // Batch by batch: a join would read all of the log while nothing is known of it.
        let select = "SELECT entries, lane FROM batch \
             CROSS JOIN LATERAL (SELECT entries FROM log WHERE log.batch = batch.id OFFSET 0) AS its WHERE broadcast = $1";
        // Row by row: the log of a large broadcast is not to be in memory as a whole.
        let mut entries = pin!(self.transaction.query_raw(select, [number]).await?);
        while let Some(row) = entries.try_next().await? {
            let lane: i32 = row.try_get(1)?;
            for group in decode_log(row.try_get(0)?)? {
                parts.add_group(&lane, &group, &mut account);
            }
        }
        let parts = parts.into_parts(&mut account);
        Ok(Some(BroadcastStatus {
            id,
            tenant: codes::name(row.try_get(0)?)?,
            channel: codes::name(row.try_get(1)?)?,
            accepted_at: instant(row, 2)?,
            due_at: instant(row, 4)?,
            expires_at: row.try_get::<_, Option<i64>>(5)?.map(Timestamp::from_millis),
            labels: BatchLabels::decode(labels_at(row, 6)?, 1)?.of(0),
            account,
            parts,
        }))
    }

    /// Pending parts of a broadcast of which `unreleased` notifications have no chunk yet.
    async fn pending_parts(
        &self,
        id: BroadcastId,
        unreleased: u64,
    ) -> Result<BroadcastParts<i32>, StoreError> {
        let mut parts = BroadcastParts::new(unreleased);
        // Batch by batch, and row by row, as the log is read.
        let select = "SELECT its.lane, its.count, its.attempt, its.due_at, its.lease_until IS NULL FROM batch \
             CROSS JOIN LATERAL (SELECT chunk.lane, chunk.count, attempt, chunk.due_at, lease_until FROM chunk \
               WHERE chunk.batch = batch.id OFFSET 0) AS its WHERE broadcast = $1";
        let number = id.0.cast_signed();
        let mut rows = pin!(self.transaction.query_raw(select, [number]).await?);
        while let Some(row) = rows.try_next().await? {
            let count = u64::try_from(row.try_get::<_, i32>(1)?).unwrap_or(0);
            let attempt = u16::try_from(row.try_get::<_, i32>(2)?).unwrap_or(u16::MAX);
            let (due_at, is_ready) = (instant(&row, 3)?, row.try_get(4)?);
            let chunk = PendingChunk { count, attempt, due_at, is_ready };
            parts.add_chunk(row.try_get(0)?, chunk);
        }
        Ok(parts)
    }

    pub(super) async fn totals(&self) -> Result<Account, StoreError> {
        let mut account = Account::default();
        let select = "SELECT state, sum(change)::int8 FROM totals_delta GROUP BY state";
        self.add_counts(select, &[], &mut account).await?;
        Ok(account)
    }

    /// Totals of `tenant`; `None` while there is a row without a tenant.
    pub(super) async fn tenant_totals(&self, tenant: &Name) -> Result<Option<Account>, StoreError> {
        // One walk over the rows, which are few for each tenant and have no index.
        let select = "SELECT state, sum(change)::int8, tenant IS NULL FROM totals_delta \
             WHERE tenant = $1 OR tenant IS NULL GROUP BY state, tenant IS NULL";
        let mut account = Account::default();
        for row in &self.rows(select, &[&tenant.as_str()]).await? {
            if row.try_get(2)? {
                return Ok(None);
            }
            add_count(row, &mut account)?;
        }
        Ok(Some(account))
    }

    /// Totals of tenants by name; `None` while there is a row without a tenant.
    pub(super) async fn tenants(
        &self,
        after: Option<&Name>,
        items: usize,
    ) -> Result<Option<TenantPage>, StoreError> {
        // One walk over the rows, as for one tenant. As many counts as the tenants of a page have, and some of the next.
        let select = "SELECT state, sum(change)::int8, tenant FROM totals_delta \
             WHERE tenant > $1 OR tenant IS NULL GROUP BY tenant, state HAVING tenant IS NULL OR sum(change) <> 0 \
             ORDER BY tenant NULLS FIRST LIMIT $2";
        let after = after.map_or("", Name::as_str);
        let counts_max = signed(State::ALL.len().saturating_mul(items).saturating_add(1));
        let mut filler = TenantPageFiller::new(items);
        for row in &self.rows(select, &[&after, &counts_max]).await? {
            let Some(tenant) = row.try_get::<_, Option<&str>>(2)? else { return Ok(None) };
            let (state, count) = (state_at(row, 0)?, unsigned(row, 1)?);
            if !filler.add(codes::name(tenant)?, state, count) {
                break;
            }
        }
        Ok(Some(filler.page()))
    }

    /// Adds notifications by state: the rows of `sql` are states and counts.
    pub(super) async fn add_counts(
        &self,
        sql: &str,
        parameters: Parameters<'_>,
        account: &mut Account,
    ) -> Result<(), StoreError> {
        for row in self.transaction.query(sql, parameters).await? {
            add_count(&row, account)?;
        }
        Ok(())
    }

    /// The lanes of a channel are looked up one by one: there may be more chunks than lanes by far, or the reverse.
    pub(super) async fn parked(
        &self,
        offered: &BTreeSet<Name>,
    ) -> Result<Vec<ParkedChannel>, StoreError> {
        let next = "SELECT min(channel) FROM tenant_lane WHERE channel > $1";
        let count = "SELECT count(*), count(DISTINCT lane), coalesce(sum(count), 0)::int8, min(due_at) \
             FROM (SELECT ready.* FROM (SELECT id FROM tenant_lane WHERE channel = $1 \
                 ORDER BY channel, destination, priority, tenant LIMIT $2) AS wanted \
               LEFT JOIN LATERAL (SELECT lane, count, due_at FROM chunk \
                 WHERE lane = wanted.id AND lease_until IS NULL ORDER BY due_at, id LIMIT $2) AS ready ON true \
               LIMIT $2) AS counted";
        // From one channel to the next by the index, since there are few channels and any number of lanes.
        let (mut parked, mut after) = (Vec::new(), String::new());
        loop {
            let found = self.transaction.query_one(next, &[&after]).await?;
            let Some(channel) = found.try_get::<_, Option<String>>(0)? else { return Ok(parked) };
            let name = codes::name(&channel)?;
            if !offered.contains(&name) {
                let row = self.transaction.query_one(count, &[&channel, &COUNTED_MAX]).await?;
                let counted = Counted {
                    rows: unsigned(&row, 0)?,
                    lanes: unsigned(&row, 1)?,
                    notifications: unsigned(&row, 2)?,
                    next_due_at: row.try_get::<_, Option<i64>>(3)?.map(Timestamp::from_millis),
                };
                parked.extend(counted.of(name));
            }
            after = channel;
        }
    }

    /// Rows of transactions that were complete when the snapshot was taken, and before which none can follow; and whether
    /// it is sure that no more of them are.
    pub(super) async fn log(
        &self,
        position: LogPosition,
        entries: usize,
    ) -> Result<(LogPage, bool), StoreError> {
        let mut page = LogPage { entries: Vec::new(), next: position };
        let (horizon, is_sure) = self.horizon().await?;
        let select = "SELECT txid, batch, (SELECT accepted_at FROM batch WHERE batch.id = log.batch), entries FROM log \
             WHERE txid > $1 AND txid < $2 ORDER BY txid, id";
        // A portal and no LIMIT: a row has any number of entries, and a transaction must not be cut, so the rows of a page are
        // not known before.
        let portal = self.transaction.bind(select, &[&position.0.cast_signed(), &horizon]).await?;
        loop {
            let rows = self.transaction.query_portal(&portal, LOG_ROWS).await?;
            for row in &rows {
                let txid = unsigned(row, 0)?;
                // A position is the number of a transaction: entries of one that are left behind a page would never be read.
                if page.entries.len() >= entries && txid != page.next.0 {
                    return Ok((page, is_sure));
                }
                page.next = LogPosition(txid);
                page.entries.extend(log_entries(row, self.store_id)?);
            }
            if rows.is_empty() {
                return Ok((page, is_sure));
            }
        }
    }

    /// The transaction before which no further one can write to the log, and whether none after it is known to be.
    pub(super) async fn horizon(&self) -> Result<(i64, bool), StoreError> {
        let horizon = "SELECT horizon, is_sure FROM log_horizon()";
        let row = self.transaction.query_one(horizon, &[]).await?;
        Ok((row.try_get(0)?, row.try_get(1)?))
    }

    /// The processes of the cluster, in order of start.
    pub(super) async fn cluster(&self) -> Result<ClusterStatus, StoreError> {
        let select = "SELECT id, name, version, produces, consumes, listen, is_standing_by, settled, settled_per_second, \
             (extract(epoch FROM started_at) * 1000)::int8, \
             (greatest(extract(epoch FROM alive_until - clock_timestamp()), 0) * 1000)::int8, \
             (SELECT count(*) FROM partition WHERE owner = worker.id), \
             (SELECT coalesce(sum(count), 0)::int8 FROM chunk WHERE chunk.worker = worker.id AND NOT is_ticket) \
             FROM worker ORDER BY id";
        let rows = self.transaction.query(select, &[]).await?;
        let free = "SELECT count(*) FROM partition WHERE owner IS NULL OR owner NOT IN (SELECT worker.id FROM worker)";
        let free = self.transaction.query_one(free, &[]).await?;
        Ok(ClusterStatus {
            workers: rows.iter().map(worker_at).collect::<Result<_, _>>()?,
            partitions_free: u16::try_from(unsigned(&free, 0)?).unwrap_or(u16::MAX),
            outbox: self.outbox().await?,
        })
    }

    async fn outbox(&self) -> Result<OutboxStatus, StoreError> {
        let select = "SELECT waiting, (coalesce(greatest(extract(epoch FROM clock_timestamp() - oldest), 0), 0) * 1000)::int8, \
             (SELECT count(*) FROM (SELECT FROM outbox_rejected LIMIT $1::int4) AS counted) FROM outbox_waiting($1::int4)";
        let row = self.transaction.query_one(select, &[&OUTBOX_ROWS_COUNTED.cast_signed()]).await?;
        Ok(OutboxStatus {
            waiting: unsigned(&row, 0)?,
            oldest: Duration::from_millis(unsigned(&row, 1)?),
            rejected: unsigned(&row, 2)?,
        })
    }
}

/// The entries in a row of the log: its transaction, the batch and when that was accepted, the groups.
fn log_entries(row: &Row, store_id: u16) -> Result<Vec<LogEntry>, StoreError> {
    let (batch, accepted_at) = (BatchId(unsigned(row, 1)?), instant(row, 2)?);
    let entries = |group: LogGroup| {
        let LogGroup { attempted, indexes } = group;
        let entry = move |index| LogEntry {
            id: NotificationId::new(accepted_at, store_id, batch, index),
            attempted: attempted.clone(),
        };
        indexes.into_iter().map(entry)
    };
    Ok(decode_log(row.try_get(3)?)?.into_iter().flat_map(entries).collect())
}

/// Adds a number of notifications, in the second column, by the state in the first.
fn add_count(row: &Row, account: &mut Account) -> Result<(), StoreError> {
    let count = unsigned(row, 1)?;
    account.add(state_at(row, 0)?, count);
    // Each notification stands in one state, so together they are all that were accepted.
    account.accepted += count;
    Ok(())
}

fn state_at(row: &Row, column: usize) -> Result<State, StoreError> {
    codes::state(u8::try_from(row.try_get::<_, i16>(column)?).unwrap_or(u8::MAX))
}

fn worker_at(row: &Row) -> Result<WorkerStatus, StoreError> {
    Ok(WorkerStatus {
        id: row.try_get(0)?,
        name: row.try_get(1)?,
        version: row.try_get(2)?,
        produces: row.try_get(3)?,
        consumes: row.try_get(4)?,
        listen: row.try_get(5)?,
        started_at: instant(row, 9)?,
        alive_for: Duration::from_millis(unsigned(row, 10)?),
        is_standing_by: row.try_get(6)?,
        partitions: u16::try_from(unsigned(row, 11)?).unwrap_or(u16::MAX),
        claimed: unsigned(row, 12)?,
        settled: unsigned(row, 7)?,
        settled_per_second: f64::from(row.try_get::<_, f32>(8)?),
    })
}

pub(super) fn instant(row: &Row, column: usize) -> Result<Timestamp, StoreError> {
    Ok(Timestamp::from_millis(row.try_get(column)?))
}

pub(super) fn unsigned(row: &Row, column: usize) -> Result<u64, StoreError> {
    Ok(row.try_get::<_, i64>(column)?.cast_unsigned())
}
