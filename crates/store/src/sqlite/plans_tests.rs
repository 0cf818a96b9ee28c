//! The bound on reading: no statement reads more of a large table than its result needs, however full the tables are.
//!
//! The statements are all of this folder, as [`statements::read`] finds them in the sources. Each is run on tables of
//! 100,000 rows, and the steps that SQLite takes for it are counted: they are bounded by the rows that it gives or changes.
//! The plan says the same of all parameters: no table or index is scanned, and nothing is sorted. Both hold before and
//! after ANALYZE, which a user may run. No statement is compiled anew for the values that it is given.

mod cases_tests;

use std::collections::BTreeSet;
use std::sync::Arc;

use rusqlite::types::Value;
use rusqlite::{Connection, StatementStatus, params_from_iter};

use super::disk::Statvfs;
use super::open::{Options, open};
use crate::conformance::at;
use crate::statements::{self, Statement};
use cases_tests::{BOUNDED, CASES};

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
        "totals (tenant, state, count) SELECT 'tenant', n, n",
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
