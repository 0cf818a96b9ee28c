//! The bound on reading: no statement reads more of a large table than its result needs, however full the tables are and whenever
//! its plan was made.
//!
//! The statements are all of this folder, as [`statements::read`] finds them in the sources. Each is run as its
//! sessions run it, on tables of 100,000 rows: a writer's plan, which is made once for all parameters, before and after
//! ANALYZE; another session's, which is made anew each time, after it.

mod ahead_tests;
mod cases_tests;
mod growth_tests;
mod kept_tests;

use std::collections::BTreeSet;
use std::fmt::Write as _;

use cases_tests::{APART, BOTH, CASES, OTHERS};
use flow::Tasks;
use serde_json::Value;
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

use super::growth::TABLES;
use super::writer::PLANS;
use crate::Postgres;
use crate::postgres::Options;
use crate::statements::{self, Statement};
pub(super) use growth_tests::Seat;

/// Kinds of sessions, by the way in which their plans are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PostgresSession {
    /// Made once for all parameters, with a writer's settings.
    Writer,
    /// Made with each query.
    Other,
}

/// Rows of every large table.
const ROWS: u32 = 100_000;
/// Extra cost of a node that the planner is set not to use, and uses.
const DISABLED_COST: f64 = 1e10;
/// Statements that read more than they give, rows and blocks, and why that is bounded: file, beginning, bound, reason.
const READ_MORE: &[(&str, &str, f64, &str)] = &[
    (
        "ahead.rs",
        "SELECT id, batch, lane",
        700.0,
        "it looks at 256 chunks of a lane, and passes most",
    ),
    (
        "membership.rs",
        "DELETE FROM commit_token",
        150_000.0,
        "once for each process that joins, and each session leaves some hundred rows",
    ),
    ("mod.rs", "SELECT outbox_rotate()", 800.0, "three slots are emptied"),
    ("keys.rs", "SELECT count(*)", 12_500.0, "it counts to 10,000"),
    ("read.rs", "SELECT waiting, (coalesce", 10_500.0, "it counts to 10,000"),
    ("read.rs", "SELECT coalesce(sum(pg_total", 2_000.0, "the catalogue has some hundred rows"),
    (
        "list_batches.rs",
        "SELECT batch.id, count",
        40_000.0,
        "a page looks at 4,096 batches at most",
    ),
];
/// Rows that a statement may read for itself, and for each row that it gives or changes: small tables have up to 64.
const READ: f64 = 400.0;
const READ_PER_ROW: f64 = 4.0;
/// Blocks that a statement may read, likewise: those of indexes count, too, and a large table has some hundreds.
const BLOCKS: f64 = 100.0;
const BLOCKS_PER_ROW: f64 = 20.0;
/// Literals that are more than one statement, or none: settings, the way in of new rows, a message, the repair of an outbox that
/// was restored, the database's time.
const APART_LITERALS: [&str; 6] = [
    "SET search_path",
    "COPY batch (",
    "the queue of notifications is full",
    "BEGIN; DELETE FROM outbox ",
    "(extract(epoch FROM clock_timestamp())",
    "{first}; SELECT {wanted}",
];
/// Statements that pass rows, or have no condition, and why that is bounded: file, beginning, reason.
const BOUNDED: &[(&str, &str, &str)] = &[
    ("broadcast.rs", "SELECT channel, ''", "what one worker has open"),
    (
        "reap.rs",
        "DELETE FROM worker",
        "a chunk with a worker is claimed, and windows bound what is claimed",
    ),
    ("reap.rs", "SELECT id, batch, lane", "what one worker has claimed"),
    (
        "reap.rs",
        "SELECT id FROM broadcast",
        "the index has open ones only: its condition is looked at again",
    ),
    (
        "reap.rs",
        "UPDATE broadcast",
        "the index has open ones only: its condition is looked at again",
    ),
    ("reap.rs", "UPDATE chunk SET crashes = 3", "the index has suspects only"),
    (
        "choose.rs",
        "SELECT lane.id, channel, destination, priority, tenant, (sum",
        "what is claimed",
    ),
    ("lease.rs", "SELECT id, batch, lane", "what is claimed, by any worker"),
    ("lease.rs", "SELECT min(lease_until)", "what is claimed, by any worker"),
    (
        "membership.rs",
        "UPDATE worker SET alive_until = clock_timestamp() - ",
        "what one worker has claimed",
    ),
    ("keys.rs", "SELECT count(*)", "it counts them before one is added, and there are few"),
    ("read.rs", "SELECT waiting, (coalesce", "it counts to a bound"),
    ("list_lanes.rs", "SELECT channel, priority, sum", "it counts to a bound"),
    ("list_batches.rs", "SELECT batch.id, count", "a page looks at so many batches at most"),
    ("read.rs", "SELECT id, name, version", "what is claimed"),
    (
        "settle.rs",
        "SELECT id, batch, lane",
        "what one worker has claimed, and what is left of a batch",
    ),
];

/// All statements of this folder.
fn statements() -> BTreeSet<Statement> {
    statements::read("postgres", &APART_LITERALS)
}

// === impl PostgresSession ===

impl PostgresSession {
    fn of(file: &str) -> Vec<Self> {
        match file {
            file if OTHERS.contains(&file) => vec![Self::Other],
            file if BOTH.contains(&file) => vec![Self::Writer, Self::Other],
            _ => vec![Self::Writer],
        }
    }

    /// A connection with the settings of this session. A plan for all parameters stands for the plans of each.
    async fn connect(self, url: &str, tasks: &mut Tasks) -> Client {
        let client = connect(url, tasks).await;
        client.batch_execute("SET plan_cache_mode = force_generic_plan").await.unwrap();
        if self == Self::Writer {
            client.batch_execute(PLANS).await.unwrap();
        }
        client
    }
}

async fn connect(url: &str, tasks: &mut Tasks) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tasks.spawn("plans", async move {
        let _over = connection.await;
    });
    client.batch_execute("SET search_path = belfry, pg_catalog").await.unwrap();
    client
}

/// Prepares every statement and makes its plan.
async fn prepare(client: &Client, statements: &[&Statement]) {
    for (number, statement) in statements.iter().enumerate() {
        let sql = &statement.sql;
        let prepared = client.batch_execute(&format!("PREPARE plan{number} AS {sql}")).await;
        prepared.unwrap_or_else(|error| panic!("{statement:?}: {error:?}"));
    }
    explain(client, statements).await;
}

/// The plans of prepared statements.
async fn explain(client: &Client, statements: &[&Statement]) -> Vec<Value> {
    let mut plans = Vec::new();
    for (number, statement) in statements.iter().enumerate() {
        let mut parameters = String::new();
        for place in (1..100).take_while(|place| statement.sql.contains(&format!("${place}"))) {
            write!(parameters, "{}NULL", if place > 1 { ", " } else { "(" }).unwrap();
        }
        let end = if parameters.is_empty() { "" } else { ")" };
        let explain = format!("EXPLAIN (FORMAT JSON) EXECUTE plan{number}{parameters}{end}");
        let rows = client.simple_query(&explain).await;
        let rows = rows.unwrap_or_else(|error| panic!("{statement:?}: {error:?}"));
        plans.push(plan_of(&rows));
    }
    plans
}

/// The plan in the answer to an `EXPLAIN` of the format JSON.
pub(super) fn plan_of(answer: &[SimpleQueryMessage]) -> Value {
    let plan = answer.iter().find_map(|message| {
        let SimpleQueryMessage::Row(row) = message else { return None };
        row.get(0)
    });
    serde_json::from_str(plan.unwrap()).unwrap()
}

/// Reads of a plan that grow with rows that it does not return.
fn faults(plan: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    match plan {
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        Value::Array(plans) => plans.iter().for_each(|plan| faults.extend(self::faults(plan))),
        Value::Object(node) => {
            node.values().for_each(|inner| faults.extend(self::faults(inner)));
            let text = |key: &str| node.get(key).and_then(Value::as_str).unwrap_or_default();
            let (kind, table) = (text("Node Type"), text("Relation Name"));
            // The other statements have a bound of their own: processes, partitions, feeds, a server's catalogue, totals that are folded.
            let is_large = TABLES.contains(&table);
            if is_large && kind == "Seq Scan" {
                faults.push(format!("reads all of {table}"));
            } else if is_large && kind.starts_with("Index") && !node.contains_key("Index Cond") {
                faults.push(format!("reads all of {}", text("Index Name")));
            }
            // A bitmap scan of the table has its index below it.
            let below = (kind == "Bitmap Heap Scan").then(|| &node["Plans"][0]);
            let of_index = |key: &str| {
                below.map_or_else(|| text(key), |scan| scan[key].as_str().unwrap_or_default())
            };
            if is_large
                && node.contains_key("Filter")
                && !is_unique(of_index("Index Name"), of_index("Index Cond"))
            {
                faults.push(format!("passes rows of {table}: {}", text("Filter")));
            }
            let cost = node.get("Total Cost").and_then(Value::as_f64).unwrap_or_default();
            if cost >= DISABLED_COST && !node.contains_key("Plans") {
                faults.push(format!("has no way but {kind} of {table}"));
            }
        }
    }
    faults
}

/// True if an index gives one row for each look-up, so that there is none to be passed.
fn is_unique(index: &str, condition: &str) -> bool {
    (index.ends_with("_pkey") || index.ends_with("_key")) && !condition.contains(['<', '>'])
}

/// Full tables, not analyzed: a statement's plan needs no more of them than their sizes. One lane has half of all chunks; 64
/// chunks are claimed, by four workers of which one is overdue, eight are suspects; two broadcasts are open; ten rows of
/// the outbox are not taken.
async fn fill(client: &Client) {
    let fill = format!(
        "INSERT INTO tenant_lane (channel, destination, priority, tenant) SELECT 'channel', n::text, 1, 'tenant' FROM generate_series(1, {ROWS}) AS n; \
         INSERT INTO broadcast (tenant, channel, priority, guarantee, due_at, sealed_at, worker, key, fingerprint, options, payload) SELECT 'tenant', 'channel', 1, 0, n, CASE WHEN n NOT BETWEEN 7 AND 8 THEN n END, CASE n WHEN 7 THEN 1 END, CASE n WHEN 9 THEN 'nine' END, CASE n WHEN 9 THEN ''::bytea END, '', '' FROM generate_series(1, {ROWS}) AS n; \
         INSERT INTO batch SELECT n, n, 0, n, n, NULL, n, 1, 'tenant', NULL, NULL, '' FROM generate_series(1, {ROWS}) AS n; \
         INSERT INTO chunk (batch, lane, partition, due_at, attempt, crashes, lease_until, worker, count) SELECT n, CASE n % 2 WHEN 1 THEN n ELSE 1 END, n % 64, n * 1000, 1, CASE WHEN n BETWEEN 65 AND 72 THEN 4 ELSE 0 END,   CASE WHEN n <= 64 THEN n END, CASE WHEN n <= 64 THEN 1 + n % 4 END, 1 FROM generate_series(1, {ROWS}) AS n; \
         INSERT INTO log (txid, batch, entries) SELECT n, n, '' FROM generate_series(1, {ROWS}) AS n; \
         INSERT INTO undelivered SELECT n, 4, 'tenant' FROM generate_series(1, {ROWS}) AS n; \
         INSERT INTO idempotency SELECT 'tenant', n::text, '', NULL, n FROM generate_series(1, {ROWS}) AS n; \
         INSERT INTO suppression SELECT 'channel', n::text, '', 1, n, n - {ROWS} FROM generate_series(1, {ROWS}) AS n; \
         INSERT INTO suppression_lift SELECT 'channel', n::text, n, 1 FROM generate_series(1, {ROWS}) AS n; \
         INSERT INTO suppression_event (txid, at, channel, recipient) SELECT n, n, 'channel', n::text FROM generate_series(1, {ROWS}) AS n; \
         INSERT INTO outbox_rejected (id, reason, tenant, channel, recipient, content, priority, guarantee) SELECT n, '', 'tenant', 'channel', 'r', '1', '', '' FROM generate_series({ROWS} + 1, 2 * {ROWS}) AS n; \
         INSERT INTO outbox (slot, txid, id, channel, recipient, content) OVERRIDING SYSTEM VALUE SELECT CASE WHEN n > 99990 THEN outbox_slot() ELSE n % 4 END, (n + 1000)::text::xid8, n, 'channel', 'r', '1' FROM generate_series(1, {ROWS}) AS n; \
         UPDATE outbox_position SET snapshot = '100991:100991:'; \
         INSERT INTO worker (id, name, version, produces, consumes, alive_until) OVERRIDING SYSTEM VALUE SELECT n, n, '1', true, true, clock_timestamp() + CASE n WHEN 4 THEN -1 ELSE 1 END * interval '1 hour' FROM generate_series(1, 4) AS n; \
         UPDATE partition SET owner = CASE WHEN id < 63 THEN 1 + id % 4 END; \
         SELECT setval(pg_get_serial_sequence('worker', 'id'), 100); \
         INSERT INTO commit_token SELECT '00000000-0000-0000-0000-000000000001'::uuid, n FROM generate_series(1, {ROWS}) AS n; \
         INSERT INTO quota_share SELECT n::text, 2, 1, 1, 1, clock_timestamp() + interval '1 hour' FROM generate_series(1, {ROWS}) AS n; \
         INSERT INTO learned_rate SELECT n::text, 1, 1, 1, 1, 1, 1, 1, 0, n FROM generate_series(1, {ROWS}) AS n; \
         INSERT INTO retention_later SELECT 2, n, n, n FROM generate_series(1, {ROWS}) AS n; \
         INSERT INTO search_run (level, first_batch, last_batch, state) SELECT 0, n * 25000 - 24999, n * 25000, 1 FROM generate_series(1, 4) AS n; \
         INSERT INTO search_block SELECT n % 4 + 1, n, 7, '' FROM generate_series(1, {ROWS}) AS n; \
         INSERT INTO tombstone VALUES ('tenant', 'channel', 3, 1); \
         INSERT INTO broadcast_tombstone SELECT n, 3, 1 FROM generate_series(1, {ROWS}) AS n; \
         INSERT INTO feed (name) VALUES ('feed'); \
         INSERT INTO source_shard SELECT n::text, 'shard', '', 1, 1 FROM generate_series(1, {ROWS}) AS n; \
         INSERT INTO act (at, request, caller, tenant, call, asked) SELECT n, '', 'tenant', 'tenant', '', '' FROM generate_series(1, {ROWS}) AS n; \
         INSERT INTO api_key SELECT n::text, 'tenant', '', NULL, NULL, '{{}}', n FROM generate_series(1, {ROWS}) AS n; \
         INSERT INTO totals_delta VALUES (0, 1, 'tenant'), (1, 1, NULL);"
    );
    client.batch_execute(&fill).await.unwrap();
}

/// Runs prepared statements, each in a transaction that is undone; returns their plans with their actual rows.
async fn run(client: &Client, statements: &[&Statement]) -> Vec<Value> {
    let mut plans = Vec::new();
    for (number, statement) in statements.iter().enumerate() {
        let parameters = match statement.case(CASES).parameters {
            "" => String::new(),
            list => format!("({list})"),
        };
        let explain = format!(
            "BEGIN; EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) EXECUTE plan{number}{parameters}; ROLLBACK"
        );
        // The first one reads the catalogue as well.
        client.simple_query(&explain).await.unwrap_or_else(|it| panic!("{statement:?}: {it:?}"));
        plans.push(plan_of(&client.simple_query(&explain).await.unwrap()));
    }
    plans
}

/// Rows that the nodes of a plan read of tables, or made and threw away, and rows that it changed.
fn rows_of(node: &Value) -> (f64, f64) {
    let number = |key: &str| node[key].as_f64().unwrap_or_default();
    let text = |key: &str| node[key].as_str().unwrap_or_default();
    let loops = number("Actual Loops");
    let removed = ["Filter", "Join Filter", "Index Recheck"];
    let removed = removed.map(|by| number(&format!("Rows Removed by {by}"))).iter().sum::<f64>();
    let is_change = text("Node Type") == "ModifyTable";
    let is_read = !text("Relation Name").is_empty() && !is_change;
    let read = if is_read { removed + number("Actual Rows") } else { removed };
    let (mut read, mut changed) = (read * loops, 0.0);
    for inner in node["Plans"].as_array().into_iter().flatten() {
        let of_inner = rows_of(inner);
        read += of_inner.0;
        changed += of_inner.1;
        if is_change && inner["Parent Relationship"] == "Outer" {
            changed +=
                inner["Actual Rows"].as_f64().unwrap() * inner["Actual Loops"].as_f64().unwrap();
        }
    }
    (read, changed)
}

/// Rows and blocks that a run read, if they do not stand in relation to the rows that it gave or changed.
fn excess(plan: &Value) -> Option<(f64, String)> {
    let plan = &plan[0]["Plan"];
    let number = |key: &str| plan[key].as_f64().unwrap_or_default();
    let (read, changed) = rows_of(plan);
    let given = changed.max(number("Actual Rows"));
    let blocks = number("Shared Hit Blocks") + number("Shared Read Blocks");
    let is_excess = read > READ + given * READ_PER_ROW || blocks > BLOCKS + given * BLOCKS_PER_ROW;
    is_excess.then(|| (read + blocks, format!("reads {read} rows and {blocks} blocks for {given}")))
}

/// Findings about statements of a session, in this state of the tables.
async fn find(
    (session, statements): (&Client, &[&Statement]),
    state: &str,
    needed: &mut BTreeSet<(&'static str, &'static str)>,
) -> Vec<String> {
    let mut found = Vec::new();
    for (statement, plan) in statements.iter().zip(run(session, statements).await) {
        let is_of = |file: &str, beginning: &str| {
            file == statement.file && statement.sql.starts_with(beginning)
        };
        let mut faults = faults(&plan);
        let is_disabled = faults.iter().any(|fault| fault.starts_with("has no way"));
        let bounded = BOUNDED.iter().find(|(file, beginning, _)| is_of(file, beginning));
        if let Some((file, beginning, _)) = bounded.filter(|_| !faults.is_empty() && !is_disabled) {
            needed.insert((file, beginning));
            faults.clear();
        }
        if let Some((read, fault)) = excess(&plan) {
            let more = READ_MORE.iter().find(|(file, beginning, ..)| is_of(file, beginning));
            match more.filter(|(_, _, bound, _)| read <= *bound) {
                Some((file, beginning, ..)) => _ = needed.insert((*file, *beginning)),
                None => faults.push(fault),
            }
        }
        if !faults.is_empty() {
            let Statement { file, sql } = statement;
            found.push(format!("{state}: {file} {sql}\n    {}", faults.join("; ")));
        }
    }
    found
}

#[tokio::test]
async fn no_statement_reads_what_it_does_not_return() {
    let database = testbed::postgres::shared().unwrap().create().unwrap();
    let store = Postgres::open(Options::new(database.url()), flow::Clock::system()).await.unwrap();
    store.close().await;
    let mut tasks = Tasks::default();
    let all: BTreeSet<Statement> =
        statements().into_iter().filter(|it| !APART.contains(&it.file.as_str())).collect();
    statements::check_needed(CASES, &all);
    let of = |session: PostgresSession| -> Vec<&Statement> {
        all.iter().filter(|it| PostgresSession::of(&it.file).contains(&session)).collect()
    };
    let client = connect(database.url(), &mut tasks).await;
    fill(&client).await;
    let mut found = Vec::new();
    let mut needed = BTreeSet::new();
    // The state of autovacuum must not matter. After a vacuum the planner has the sizes of indexes: it takes bitmaps then.
    for (state, next) in [("full", "ANALYZE"), ("analyzed", "VACUUM"), ("vacuumed", "")] {
        for session in [PostgresSession::Writer, PostgresSession::Other] {
            let statements = of(session);
            let new = session.connect(database.url(), &mut tasks).await;
            prepare(&new, &statements).await;
            found.extend(find((&new, &statements), state, &mut needed).await);
        }
        client.batch_execute(next).await.unwrap();
    }
    assert!(found.is_empty(), "{} findings:\n{}", found.len(), found.join("\n"));
    let bounded = BOUNDED.iter().map(|(file, beginning, _)| (*file, *beginning));
    let more = READ_MORE.iter().map(|(file, beginning, ..)| (*file, *beginning));
    let leaves: BTreeSet<(&str, &str)> = bounded.chain(more).collect();
    // After ANALYZE, which takes samples, the plan of this statement is of either kind.
    needed.insert(("settle.rs", "SELECT id, batch, lane"));
    assert_eq!(needed, leaves, "what needs no leave gets none");
    assert!(of(PostgresSession::Writer).len() > 60 && of(PostgresSession::Other).len() > 15);
}

#[tokio::test]
async fn a_claim_that_looks_its_partitions_up_by_owner_is_found() {
    let database = testbed::postgres::shared().unwrap().create().unwrap();
    let store = Postgres::open(Options::new(database.url()), flow::Clock::system()).await.unwrap();
    store.close().await;
    let mut tasks = Tasks::default();
    let client = connect(database.url(), &mut tasks).await;
    fill(&client).await;
    let sql = "UPDATE chunk SET epoch = chunk.epoch + 1, lease_until = $5, worker = $6, is_ticket = $7, \
         begun_through = NULL, count = new.count, members = new.members \
         FROM unnest($1::int8[], $2::int8[], $3::int4[], $4::bytea[]) AS new (id, epoch, count, members) \
         WHERE chunk.id = new.id AND chunk.epoch = new.epoch AND (chunk.lease_until IS NULL OR chunk.is_ticket) \
         AND (NOT $8 OR partition IN (SELECT id FROM partition WHERE owner = $6)) RETURNING chunk.id";
    let claim = Statement { file: "lease.rs".to_owned(), sql: sql.to_owned() };
    let writer = PostgresSession::Writer.connect(database.url(), &mut tasks).await;
    prepare(&writer, &[&claim]).await;
    let faults = faults(&explain(&writer, &[&claim]).await[0]);
    assert!(faults.contains(&"has no way but Seq Scan of partition".to_owned()), "{faults:?}");
}

#[tokio::test]
async fn a_question_that_joins_all_of_the_log_is_found() {
    let database = testbed::postgres::shared().unwrap().create().unwrap();
    let store = Postgres::open(Options::new(database.url()), flow::Clock::system()).await.unwrap();
    store.close().await;
    let mut tasks = Tasks::default();
    let client = connect(database.url(), &mut tasks).await;
    fill(&client).await;
    let sql =
        "SELECT entries, lane FROM batch JOIN log ON log.batch = batch.id WHERE broadcast = $1";
    let join = Statement { file: "read.rs".to_owned(), sql: sql.to_owned() };
    let reader = PostgresSession::Other.connect(database.url(), &mut tasks).await;
    prepare(&reader, &[&join]).await;
    let plan = &run(&reader, &[&join]).await[0];
    let (read, fault) = excess(plan).unwrap();
    assert!(read > f64::from(ROWS), "{fault}");
}
