//! The bound on reading: no statement reads more of a large table than its result needs, however full the tables are.
//!
//! The statements are all of this folder, as [`statements::read`] finds them in the sources. Each is run on tables of
//! 100,000 rows, and the steps that SQLite takes for it are counted: they are bounded by the rows that it gives or changes.
//! The plan says the same of all parameters: no table or index is scanned, and nothing is sorted. Both hold before and
//! after ANALYZE, which a user may run. No statement is compiled anew for the values that it is given.

use std::collections::BTreeSet;
use std::sync::Arc;

use rusqlite::types::Value;
use rusqlite::{Connection, StatementStatus, params_from_iter};

use super::disk::Statvfs;
use super::open::{Options, open};
use crate::conformance::at;
use crate::statements::{self, Case, Statement};

/// The result of running a statement.
#[derive(Debug)]
struct Run {
    /// Rows that it gave, up to [`TAKEN`], or changed.
    rows: usize,
    /// Steps of SQLite's virtual machine.
    steps: usize,
    /// Number of times that it was compiled anew for the values that it was given.
    compiled: i32,
}

/// Rows of every large table.
const ROWS: u32 = 100_000;
/// Rows taken of a statement's result: several statements are left by their callers when they have enough.
const TAKEN: usize = 100;
/// Steps that a statement may take for itself, and for each row that it returns or changes. A statement that walks over a table
/// takes three for every row of it, at least.
const STEPS: usize = 200;
const STEPS_PER_ROW: usize = 100;

/// The cases that the statements are tried with.
const CASES: &[Case] = &[
    Case::new("backup.rs", "FROM sqlite_schema", ""),
    Case::new("audit.rs", "FROM log WHERE batch", "40000, 40010"),
    Case::new("audit.rs", "FROM chunk WHERE batch", "40000, 40010"),
    Case::new("audit.rs", "max(id), 0) FROM batch", ""),
    Case::new("audit.rs", "max(id), 0) FROM log", ""),
    Case::new("audit.rs", "SELECT id FROM broadcast", ""),
    Case::new("audit.rs", "SELECT broadcast, passed", ""),
    Case::new("audit.rs", "SELECT batch.id, count, broadcast", "40000, 40010"),
    Case::new("broadcast.rs", "DELETE FROM batch", "40000, 10"),
    Case::new("broadcast.rs", "DELETE FROM broadcast", "40000"),
    Case::new(
        "broadcast.rs",
        "INSERT INTO broadcast",
        "'tenant', 'channel', 1, 0, 1, 1, 'k', x'00', x'', x'', NULL",
    ),
    Case::new("broadcast.rs", "INSERT INTO idempotency", "'tenant', 'new', x'00', 40000"),
    Case::new("broadcast.rs", "SELECT channel, ''", "7"),
    Case::new("broadcast.rs", "UPDATE broadcast", "7, 1, 1"),
    Case::new("broadcast.rs", "DELETE FROM unreleased", "7"),
    Case::new("broadcast.rs", "INSERT INTO unreleased", "1000000"),
    Case::new("broadcast.rs", "SET passed = 0", "7"),
    Case::new("broadcast.rs", "SET recipients", "7, 1"),
    Case::new("broadcasts.rs", "ORDER BY id LIMIT", "'tenant', 40000, 50000, 1001, 1"),
    Case::new("broadcasts.rs", "ORDER BY id DESC", "'tenant', 40000, 50000, 1001, 1"),
    Case::new("broadcasts.rs", "SELECT recipients", "40000"),
    Case::new("cancel.rs", "SELECT 1 FROM broadcast", "40000, 'tenant'"),
    Case::new("cancel.rs", "SELECT accepted_at", "40000, 'tenant'"),
    Case::new("cancel.rs", "FROM chunk WHERE batch", "40000"),
    Case::new("cancel.rs", "SELECT id, count FROM batch", "40000, 0, 50000, 10"),
    Case::new("cancel.rs", "SELECT recipients", "7"),
    Case::new("cancel.rs", "SELECT withdrawn_at", "7, 7"),
    Case::new("cancel.rs", "SET waiting", "7, 1"),
    Case::new("cancel.rs", "SET withdrawn_at", "7, 1"),
    Case::new("cancel_scope.rs", "SELECT waiting.broadcast", "7, 'tenant', 'channel', 1"),
    Case::new("cancel_scope.rs", "SELECT coalesce", "'tenant', NULL, NULL"),
    Case::new("cancel_scope.rs", "SELECT id FROM", "'tenant/channel', 40000, 20"),
    Case::new("cancel_scope.rs", "SELECT min", "'tenant/'"),
    Case::new("cancel_scope.rs", "FROM chunk WHERE lane", "1, 50000000, 50000, 20"),
    Case::new("cancel_scope.rs", "SELECT tenant", "40000, 'tenant'"),
    Case::new("claim.rs", "SELECT guarantee", "5, 1"),
    Case::new("claim.rs", "WHERE lane = ?1", "1"),
    Case::new("claim.rs", "lease_until <= ?1", "4"),
    Case::new("claim.rs", "SELECT min(lease_until)", ""),
    Case::new("claim.rs", "SET begun_through", "5, 10"),
    Case::new("claim.rs", "SET due_at", "40000, 2000"),
    Case::new("claim.rs", "SET epoch", "40000, 2, 1000"),
    Case::new("erase.rs", "SELECT accepted_at", "40000, 'tenant'"),
    Case::new("erase.rs", "SELECT id, entries", "40000"),
    Case::new("erase.rs", "UPDATE batch", "40000, x'0100', 1, x'01'"),
    Case::new("erase.rs", "UPDATE log", "40000, x'01'"),
    Case::new("erase.rs", "DELETE FROM suppression WHERE", "'channel', '40000'"),
    Case::new("erase.rs", "DELETE FROM suppression_lift", "'channel', '40000'"),
    Case::new("erase.rs", "SELECT min(channel) FROM (SELECT", "'a'"),
    Case::new("erase.rs", "DELETE FROM suppression_event", "'40000'"),
    Case::new("erase.rs", "UPDATE suppression_event", "'40000'"),
    Case::new("events.rs", "SELECT log.id", "40000, 'tenant', 20"),
    Case::new("events.rs", "SELECT coalesce(max(id), 0)", ""),
    Case::new("suppress.rs", "SELECT channel, recipient FROM", ""),
    Case::new(
        "ingest.rs",
        "INSERT INTO batch",
        "1000000, 1, 0, 1, 1, NULL, NULL, 1, 'tenant', NULL, NULL, x'', NULL, NULL",
    ),
    Case::new("ingest.rs", "INSERT INTO idempotency", "'tenant', 'new', x'00', x'00'"),
    Case::new("list.rs", "ORDER BY batch.id LIMIT", "40000, 'tenant', 'channel', NULL, 64, 44096"),
    Case::new("list.rs", "ORDER BY batch.id DESC", "40000, 'tenant', 'channel', NULL, 64, 44096"),
    Case::new("list.rs", "SELECT id, accepted_at", "40000"),
    Case::new("list.rs", "SELECT items", "40000"),
    Case::new("list.rs", "SELECT lane, count", "40000"),
    Case::new("list.rs", "max(id) FROM batch WHERE id", "0, 40000"),
    Case::new("acts.rs", "INSERT INTO act", "1, '', NULL, 'tenant', 'tenant', '', ''"),
    Case::new("acts.rs", "UPDATE act", "40000, 1, 200, NULL, NULL"),
    Case::new("acts.rs", "SELECT id, at FROM act", "513"),
    Case::new("acts.rs", "DELETE FROM act", "512"),
    Case::new("acts.rs", "WHERE tenant = ?1", "'tenant', 40000, 1000"),
    Case::new("acts.rs", "WHERE id < ?1", "40000, 1000"),
    Case::new("keys.rs", "DELETE FROM api_key", "'40000'"),
    Case::new("keys.rs", "INSERT INTO api_key", "'new', 'tenant', x'00', '{}', 1"),
    Case::new("keys.rs", "SELECT 1 FROM api_key", "'40000'"),
    Case::new("keys.rs", "made_at FROM api_key WHERE name", "'40000'"),
    Case::new("keys.rs", "SELECT count(*)", ""),
    Case::new("keys.rs", "ORDER BY name", ""),
    Case::new("keys.rs", "UPDATE api_key", "'40000', x'01', 2"),
    Case::new("list.rs", "min(id) FROM batch WHERE id", "40000, 70368744177664"),
    Case::new("list.rs", "FROM batch WHERE broadcast", "40000"),
    Case::new(
        "list_sources.rs",
        "= ?5 AND state = ?1 AND batch >= ?2 AND batch < ?3 ORDER BY batch LIMIT",
        "4, 40000, 70368744177664, 256, 'tenant'",
    ),
    Case::new(
        "list_sources.rs",
        "= ?5 AND state = ?1 AND batch >= ?2 AND batch < ?3 ORDER BY batch DESC",
        "4, 0, 40000, 256, 'tenant'",
    ),
    Case::new(
        "list_sources.rs",
        "?5 IS NULL AND state = ?1 AND batch >= ?2 AND batch < ?3 ORDER BY batch LIMIT",
        "4, 40000, 70368744177664, 256, NULL",
    ),
    Case::new(
        "list_sources.rs",
        "?5 IS NULL AND state = ?1 AND batch >= ?2 AND batch < ?3 ORDER BY batch DESC",
        "4, 0, 40000, 256, NULL",
    ),
    Case::new("list_sources.rs", "INDEXED BY chunk_leased", ""),
    Case::new("list_sources.rs", "?2 ORDER BY batch LIMIT", "40000, 70368744177664, 256"),
    Case::new("list_sources.rs", "?2 ORDER BY batch DESC", "0, 40000, 256"),
    Case::new("list_sources.rs", "SELECT waiting.broadcast", "0, 'tenant', 'channel', NULL"),
    Case::new("list_sources.rs", "ORDER BY id LIMIT", "40000, 0, 70368744177664, 256"),
    Case::new("list_sources.rs", "ORDER BY id DESC", "40000, 0, 70368744177664, 256"),
    Case::new("open.rs", "INSERT INTO meta", "1"),
    Case::new("open.rs", "INSERT OR IGNORE INTO meta", "'key', 2"),
    Case::new("open.rs", "SELECT max(version)", ""),
    Case::new("open.rs", "SELECT seq", ""),
    Case::new("open.rs", "SELECT value FROM meta", ""),
    Case::new("pause.rs", "DELETE FROM pause", "'tenant', 'tenant'"),
    Case::new("pause.rs", "DELETE FROM resuming", "40000"),
    Case::new("pause.rs", "INSERT OR REPLACE INTO resuming", "40000"),
    Case::new("pause.rs", "SELECT 1 FROM broadcast", "40000, 'tenant'"),
    Case::new("pause.rs", "SELECT broadcast, passed", ""),
    Case::new("pause.rs", "UPDATE chunk", "40000, 1, 253370764800000"),
    Case::new("pause.rs", "UPDATE resuming", "40000, 1"),
    Case::new("pause.rs", "INSERT INTO pause", "'tenant', 'tenant', 1"),
    Case::new("pause.rs", "SELECT tenant, scope", ""),
    Case::new("audit.rs", "FROM tombstone", ""),
    Case::new("prune.rs", "AND at = ?2 AND batch", "1, 40000, 40000"),
    Case::new("prune.rs", "SELECT at, batch", "1, 257"),
    Case::new("prune.rs", "INSERT OR IGNORE", "1, 1, 40000, 1"),
    Case::new("prune.rs", "SELECT batch FROM retention_walk", "'contents'"),
    Case::new("prune.rs", "INSERT INTO retention_walk (name, batch)", "'contents', 40000"),
    Case::new("prune.rs", "SELECT id, accepted_at", "40000, 257"),
    Case::new("prune.rs", "SELECT batch.tenant", "40000"),
    Case::new("prune.rs", "SELECT min(due_at)", "40000"),
    Case::new("prune.rs", "SELECT max(id) FROM log", "40000"),
    Case::new("prune.rs", "SELECT items", "40000"),
    Case::new("prune.rs", "UPDATE batch", "40000, x'0104', 2"),
    Case::new("prune.rs", "SET without_content", "40000, 1"),
    Case::new("prune.rs", "SET payload", "40000"),
    Case::new("prune.rs", "INSERT INTO tombstone", "'tenant', 'channel', 3, 1"),
    Case::new("prune.rs", "INSERT INTO broadcast_tombstone", "40000, 3, 1"),
    Case::new("prune.rs", "DELETE FROM log", "40000"),
    Case::new("prune.rs", "DELETE FROM undelivered", "40000"),
    Case::new("prune.rs", "DELETE FROM batch", "40000"),
    Case::new("prune.rs", "DELETE FROM broadcast WHERE", "40000"),
    Case::new("prune.rs", "DELETE FROM broadcast_tombstone", "40000"),
    Case::new("prune_rows.rs", "SELECT tenant, key, begun_at", ""),
    Case::new("prune_rows.rs", "DELETE FROM idempotency", "'tenant', '40000'"),
    Case::new("prune_rows.rs", "INSERT INTO retention_walk (name, tenant", "'tenant', '40000', 1"),
    Case::new("prune_rows.rs", "SELECT tenant, key, notification", "'tenant', '40000', 512"),
    Case::new("prune_rows.rs", "SELECT removed", "40000"),
    Case::new("prune_rows.rs", "SELECT coalesce(sealed_at", "40000, 1"),
    Case::new("prune_rows.rs", "SELECT id, at", "513"),
    Case::new("prune_rows.rs", "DELETE FROM suppression_event", "512"),
    Case::new("prune_rows.rs", "SELECT batch, begun_at", ""),
    Case::new("prune_rows.rs", "INSERT INTO retention_walk (name, batch, begun_at", "40000, 1"),
    Case::new("prune_rows.rs", "SELECT id, kept_through", "40000, 1000000, 512"),
    Case::new("prune_rows.rs", "DELETE FROM tenant_lane", "40000"),
    Case::new("read.rs", "FROM broadcast_tombstone", "40000"),
    Case::new("read.rs", "chunk.lease_until IS NULL FROM batch", "40000"),
    Case::new("read.rs", "sum(count), 0) FROM batch", "40000"),
    Case::new("read.rs", "SELECT entries, lane FROM batch JOIN log", "40000"),
    Case::new("read.rs", "SELECT entries FROM log", "40000"),
    Case::new("read.rs", "FROM chunk WHERE batch", "40000"),
    Case::new("read.rs", "SELECT lane, count FROM batch", "40000"),
    Case::new("read.rs", "SELECT lane, sum(count)", ""),
    Case::new("read.rs", "SELECT min(channel) FROM tenant_lane", "'a'"),
    Case::new("read.rs", "count(DISTINCT lane)", "'channel', 2"),
    Case::new("read.rs", "SELECT log.id", "40000"),
    Case::new("read.rs", "SELECT notification", "'tenant', '40000'"),
    Case::new("read.rs", "FROM totals", ""),
    Case::new("read.rs", "SELECT waiting", "40000"),
    Case::new("read.rs", "SELECT withdrawn_at", "40000"),
    Case::new("read.rs", "SELECT tenant, channel", "40000"),
    Case::new("recover.rs", "DELETE FROM batch", ""),
    Case::new("recover.rs", "DELETE FROM broadcast", ""),
    Case::new("recover.rs", "DELETE FROM unreleased", ""),
    Case::new("recover.rs", "lease_until IS NOT NULL", ""),
    Case::new("recover.rs", "crashes = 3", ""),
    Case::new("recover.rs", "crashes = ?2", "40000, 2, 1"),
    Case::new("release.rs", "DELETE FROM unreleased", "7"),
    Case::new("release.rs", "SELECT broadcast, passed", ""),
    Case::new("release.rs", "SELECT entries", "40000"),
    Case::new("release.rs", "SELECT id, lane", "40000, 0, 10"),
    Case::new("release.rs", "SET passed", "7, 1, 1"),
    Case::new("requeue.rs", "SELECT lane, accepted_at", "40000, 'tenant'"),
    Case::new("reschedule.rs", "SELECT due_at, expires_at", "40000, 'tenant'"),
    Case::new("reschedule.rs", "SELECT 1 FROM broadcast", "40000, 40000"),
    Case::new("reschedule.rs", "UPDATE batch", "40000, 1"),
    Case::new("reschedule.rs", "UPDATE broadcast", "40000, 40000, 1"),
    Case::new("settle.rs", "batch = ?1 AND due_at = ?2", "40000, 40000000"),
    Case::new("transaction.rs", "DELETE FROM chunk", "40000"),
    Case::new("transaction.rs", "INSERT INTO tenant_lane", "'channel', 'new', 1, 'tenant', 1"),
    Case::new("transaction.rs", "UPDATE tenant_lane", "40000, 1"),
    Case::new("transaction.rs", "INSERT INTO log", "40000, x'00'"),
    Case::new("transaction.rs", "INTO undelivered", "40000, 5"),
    Case::new("transaction.rs", "INSERT INTO totals", "1, 1"),
    Case::new(
        "transaction.rs",
        "SELECT id, kept_through FROM tenant_lane",
        "'channel', '40000', 1, 'tenant'",
    ),
    Case::new("transaction.rs", "batch, lane, due_at", "40000"),
    Case::new("transaction.rs", "UPDATE chunk SET count", "40000, 1, x'00'"),
    Case::new("transaction.rs", "UPDATE chunk SET lease_until", "5"),
    Case::new("rows.rs", "INSERT INTO chunk", "40000, 1, 1, 1, 0, 1, x'00'"),
    Case::new("rows.rs", "FROM tenant_lane WHERE id", "40000"),
    Case::new("rows.rs", "FROM batch WHERE id", "40000"),
    Case::new("rows.rs", "SELECT fingerprint", "'tenant', '40000'"),
    Case::new("rows.rs", "FROM broadcast WHERE id", "40000"),
    Case::new("rows.rs", "SELECT min(due_at)", "1"),
    Case::new("rows.rs", "SELECT span", "2000, 1"),
    Case::new("restored.rs", "DELETE FROM meta", ""),
    Case::new("restored.rs", "INSERT INTO sqlite_sequence", "'batch', 1"),
    Case::new("restored.rs", "INSERT OR REPLACE", "1"),
    Case::new("restored.rs", "FROM chunk", "40000, 10"),
    Case::new("restored.rs", "SELECT broadcast", ""),
    Case::new("restored.rs", "SELECT guarantee", "40000"),
    Case::new("restored.rs", "SELECT passed", "7"),
    Case::new("restored.rs", "SELECT value", ""),
    Case::new("restored.rs", "UPDATE log", "1"),
    Case::new("restored.rs", "UPDATE sqlite_sequence", "'batch', 1"),
    Case::new("restored.rs", "UPDATE suppression_event", "1"),
    Case::new("search.rs", "(term, place) <=", "1, 40000, 40000"),
    Case::new("search.rs", "(term, place) >", "1, 40000, 40000"),
    Case::new("search.rs", "DELETE FROM search_block", "1, 64"),
    Case::new("search.rs", "DELETE FROM search_run", "40"),
    Case::new("search.rs", "INSERT INTO search_block", "200000, 1, 1, x'00'"),
    Case::new("search.rs", "INSERT INTO search_run", "0, 1, 2, 1"),
    Case::new("search.rs", "INSERT OR REPLACE INTO meta", "1"),
    Case::new("search.rs", "SELECT count FROM batch", "40000, 1024"),
    Case::new("search.rs", "SELECT id, level", ""),
    Case::new("search.rs", "SELECT batch.id, batch.tenant", "40000, 1024"),
    Case::new("search.rs", "SELECT value", "'search_cursor'"),
    Case::new("search.rs", "WHERE state = 1", ""),
    Case::new("search.rs", "SELECT id FROM batch", "40000, 50000"),
    Case::new("search.rs", "SET state = ?2", "40, 1"),
    Case::new("source_shards.rs", "DELETE FROM source_shard", "'orders', 'shard', '', 1, 1"),
    Case::new("source_shards.rs", "INSERT INTO source_shard", "'orders', 'new', '', 1, 1"),
    Case::new("source_shards.rs", "SELECT shard", "'orders'"),
    Case::new("source_shards.rs", "UPDATE source_shard", "'orders', 'shard', '', 1, 1, '7', 1, 2"),
    Case::new("suppress.rs", "DELETE FROM suppression", "'channel', '40000', NULL"),
    Case::new("suppress.rs", "INSERT INTO feed", "'feed', 1, 2, 0"),
    Case::new("suppress.rs", "INSERT INTO suppression (", "'channel', '40000', 'r', 1, 1"),
    Case::new("suppress.rs", "recipient) VALUES (?1, ?2, ?3)", "1, 'channel', '40000'"),
    Case::new("suppress.rs", "VALUES (?1, ?2, ?3, ?4, ?5, ?6)", "1, 'channel', '40000', 'r', 1, 1"),
    Case::new("suppress.rs", "INSERT INTO suppression_lift", "'channel', '40000', 1"),
    Case::new("suppress.rs", "SELECT event", "'feed'"),
    Case::new("suppress.rs", "SELECT id, at", "40000, 20"),
    Case::new("suppress.rs", "SELECT lifted_at", "'channel', '40000'"),
    Case::new("suppress.rs", "SELECT min(channel)", "'a'"),
    Case::new("suppress.rs", "SELECT reason, since", "'channel', '40000'"),
    Case::new("suppress.rs", "SELECT reason, status", "'channel', '40000'"),
    Case::new("suppress.rs", "SELECT recipient", "'channel', '40000', 20"),
];

/// Statements that scan or sort, and why that is bounded: file, part, reason.
const BOUNDED: &[(&str, &str, &str)] = &[
    ("backup.rs", "FROM sqlite_schema", "a row for each table and index"),
    ("restored.rs", "SELECT broadcast", "broadcasts that are open, or wait for slices"),
    ("restored.rs", "UPDATE sqlite_sequence", "a row for each table with such numbers"),
    ("audit.rs", "FROM tombstone", "a row for each tenant, channel and state"),
    ("audit.rs", "FROM unreleased", "broadcasts that are open, or wait for slices"),
    ("list_sources.rs", "FROM unreleased", "broadcasts that are open, or wait for slices"),
    ("recover.rs", "FROM unreleased", "broadcasts that are open, or wait for slices"),
    ("release.rs", "withdrawn_at FROM unreleased", "broadcasts that are open, or wait for slices"),
    ("audit.rs", "SELECT id FROM broadcast", "the index has open broadcasts only"),
    ("open.rs", "SELECT seq", "a row for each table with such numbers"),
    ("read.rs", "SELECT lane, sum(count)", "what is claimed, which windows bound"),
    ("read.rs", "count(DISTINCT lane)", "it counts to a bound"),
    ("read.rs", "FROM totals", "a row for each state"),
    ("recover.rs", "DELETE FROM batch", "the index has open broadcasts only"),
    ("recover.rs", "DELETE FROM broadcast", "the index has open broadcasts only"),
    ("suppress.rs", "SELECT channel, recipient FROM", "it gives the whole list, once at a start"),
    ("search.rs", "SELECT id, level", "it gives all runs, which are some for each level"),
    ("search.rs", "WHERE state = 1", "runs are some for each level"),
    (
        "keys.rs",
        "SELECT count(*) FROM api_key",
        "it counts them before one is added, and there are few",
    ),
    ("keys.rs", "FROM api_key ORDER BY name", "it gives all keys, and there are few"),
    ("pause.rs", "SELECT tenant, scope", "it gives all pauses, and there are few"),
    ("pause.rs", "SELECT broadcast, passed", "it ends at the first row"),
];

/// Full tables. One lane has half of all chunks, eight are claimed, eight are suspects; one broadcast is open.
fn fill(connection: &Connection) {
    let numbers = format!(
        "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {ROWS})"
    );
    let inserts = [
        "tenant_lane (id, channel, destination, priority, tenant) SELECT n, 'channel', n, 1, 'tenant'",
        "broadcast (id, tenant, channel, priority, guarantee, due_at, sealed_at, options, payload) \
         SELECT n, 'tenant', 'channel', 1, 0, n, iif(n = 7, NULL, n), x'', x''",
        "batch (id, lane, guarantee, accepted_at, due_at, broadcast, count, tenant, items) \
         SELECT n, n, 0, n, n, n, 1, 'tenant', x''",
        "chunk (id, batch, lane, due_at, attempt, epoch, crashes, lease_until, count) \
         SELECT n, n, iif(n % 2, n, 1), n * 1000, 1, 1, iif(n BETWEEN 11 AND 18, 4, 0), iif(n <= 8, n, NULL), 1",
        "log (id, batch, entries) SELECT n, n, x''",
        "undelivered (batch, state, tenant) SELECT n, 4, 'tenant'",
        "idempotency (tenant, key, fingerprint, broadcast) SELECT 'tenant', n, x'00', n",
        "suppression (channel, recipient, reason, status, since) SELECT 'channel', n, 'r', 1, n",
        "suppression_lift (channel, recipient, lifted_at) SELECT 'channel', n, n",
        "suppression_event (id, at, channel, recipient) SELECT n, n, 'channel', n",
        "tombstone (tenant, channel, state, count) SELECT 'tenant', 'channel', n, n",
        "broadcast_tombstone (broadcast, state, count) SELECT n, 3, 1",
        "retention_walk (name, batch) SELECT 'contents', n",
        "retention_later (part, at, batch, lane) SELECT 2, n, n, n",
        "totals (state, count) SELECT n, n",
        "feed (name, event, tries) SELECT 'feed', n, 0",
        "source_shard (source, shard, position, reader, until) SELECT n, 'shard', '', 1, 1",
        "act (id, at, request, caller, tenant, call, asked) SELECT n, n, '', 'tenant', 'tenant', '', ''",
        "api_key (name, tenant, sha256, grants, made_at) SELECT n, 'tenant', x'00', '{}', n",
        "search_run (id, level, first_batch, last_batch, state) SELECT n, 0, n, n, 1",
        "search_block (run, term, place, postings) SELECT iif(n % 2, n, 1), n, n, x''",
    ];
    connection.execute_batch("DELETE FROM meta").unwrap();
    for insert in inserts {
        let small = ["totals", "feed", "tombstone", "retention_walk"];
        let small = small.iter().any(|table| insert.starts_with(table));
        let few = insert.starts_with("search_run");
        let rows = if small {
            " WHERE n <= 1"
        } else if few {
            " WHERE n <= 100"
        } else {
            ""
        };
        let sql = insert.replacen("SELECT", &format!("{numbers} SELECT"), 1);
        connection.execute_batch(&format!("INSERT INTO {sql} FROM numbers{rows}")).unwrap();
    }
}

/// Runs a statement in a transaction that is undone.
fn run(connection: &Connection, statement: &Statement) -> Run {
    let parameters: Vec<Value> = match statement.case(CASES).parameters {
        "" => Vec::new(),
        list => {
            let mut select = connection.prepare(&format!("SELECT {list}")).unwrap();
            let columns = select.column_count();
            select
                .query_row([], |row| (0..columns).map(|column| row.get(column)).collect())
                .unwrap()
        }
    };
    connection.execute_batch("BEGIN").unwrap();
    let mut prepared = connection.prepare(&statement.sql).unwrap();
    let mut rows = prepared.query(params_from_iter(parameters)).unwrap();
    let mut given = 0;
    while given < TAKEN && rows.next().unwrap().is_some() {
        given += 1;
    }
    drop(rows);
    if !prepared.readonly() {
        given += usize::try_from(connection.changes()).unwrap();
    }
    let steps = usize::try_from(prepared.get_status(StatementStatus::VmStep)).unwrap();
    let compiled = prepared.get_status(StatementStatus::RePrepare);
    drop(prepared);
    connection.execute_batch("ROLLBACK").unwrap();
    Run { rows: given, steps, compiled }
}

/// Reads of a plan that grow with rows that it does not give.
fn faults(connection: &Connection, sql: &str) -> Vec<String> {
    let mut explain = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
    let parameters = vec![Value::Null; explain.parameter_count()];
    let details = explain.query_map(params_from_iter(parameters), |row| row.get(3)).unwrap();
    let details = details.map(Result::<String, _>::unwrap);
    let is_fault = |detail: &String| {
        let is_scan = detail.starts_with("SCAN ") && detail != "SCAN CONSTANT ROW";
        is_scan || detail.contains("TEMP B-TREE")
    };
    details.filter(is_fault).collect()
}

/// The finding about a statement, if there is one; `needed` are places of [`BOUNDED`].
fn find(
    connection: &Connection,
    statement: &Statement,
    needed: &mut BTreeSet<usize>,
) -> Option<String> {
    let Run { rows, steps, compiled } = run(connection, statement);
    let mut faults = faults(connection, &statement.sql);
    let bounded = BOUNDED
        .iter()
        .position(|(file, part, _)| *file == statement.file && statement.sql.contains(part));
    if let Some(place) = bounded
        && !faults.is_empty()
    {
        needed.insert(place);
        faults.clear();
    }
    if steps > STEPS + rows * STEPS_PER_ROW {
        faults.push(format!("takes {steps} steps for {rows} rows"));
    }
    if compiled > 0 {
        faults.push("is compiled anew with each use".to_owned());
    }
    let Statement { file, sql } = statement;
    (!faults.is_empty()).then(|| format!("{file} {sql}\n    {}", faults.join("; ")))
}

#[test]
fn no_statement_reads_what_it_does_not_give() {
    let directory = tempfile::tempdir().unwrap();
    let opened = open(directory.path(), Options::new(1), Arc::new(Statvfs), at(0)).unwrap();
    let connection = &opened.connection;
    fill(connection);
    let all = statements::read("sqlite", &[]);
    statements::check_needed(CASES, &all);
    let mut needed = BTreeSet::new();
    let found = |needed: &mut _| -> Vec<String> {
        all.iter().filter_map(|statement| find(connection, statement, needed)).collect()
    };
    let before = found(&mut needed);
    assert!(before.is_empty(), "{} findings:\n{}", before.len(), before.join("\n"));
    connection.execute_batch("ANALYZE").unwrap();
    let after = found(&mut needed);
    assert!(after.is_empty(), "{} findings after ANALYZE:\n{}", after.len(), after.join("\n"));
    assert_eq!(needed.len(), BOUNDED.len(), "what needs no leave gets none");
    assert!(all.len() > 60, "the sources are read");
}

/// Statements as a mistake might make them, each of which must be found.
#[test]
fn what_reads_too_much_is_found() {
    let directory = tempfile::tempdir().unwrap();
    let opened = open(directory.path(), Options::new(1), Arc::new(Statvfs), at(0)).unwrap();
    fill(&opened.connection);
    let mistakes = [
        // Not in the order of its index.
        (
            "claim.rs",
            "SELECT id FROM chunk WHERE lane = ?1 AND lease_until IS NULL ORDER BY id, due_at LIMIT 2",
            "TEMP B-TREE",
        ),
        // Not by the beginning of its index.
        (
            "transaction.rs",
            "SELECT id, kept_through FROM tenant_lane WHERE (channel = ?1 OR ?1 = '') AND destination = ?2 AND priority = ?3 AND tenant = ?4",
            "SCAN tenant_lane",
        ),
        // By one index and in the order of another: the plan looks good, and the steps show it.
        ("rows.rs", "SELECT min(due_at) FROM chunk WHERE lane = ?1", "steps for 1 rows"),
        (
            "claim.rs",
            "SELECT id FROM chunk WHERE lane = ?1 AND lease_until IS NULL AND attempt > 1 ORDER BY due_at, id LIMIT 2",
            "steps for 0 rows",
        ),
    ];
    for (file, sql, fault) in mistakes {
        let (file, sql) = (file.to_owned(), sql.to_owned());
        let statement = Statement { file, sql };
        let found = find(&opened.connection, &statement, &mut BTreeSet::new());
        let found = found.unwrap_or_else(|| panic!("{statement:?} passes"));
        assert!(found.contains(fault), "{found}");
    }
}
