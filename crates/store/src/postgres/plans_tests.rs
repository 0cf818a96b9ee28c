//! No statement reads more of a large table than it is asked for, however full the tables are and whenever its plan was
//! made.
//!
//! The statements are all of this folder, as [`statements::read`] finds them in the sources. Each is explained as its
//! sessions run it, on tables of 100,000 rows: a writer's plan, which is made once for all parameters, before and after
//! ANALYZE; another session's, which is made anew each time, after it.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use flow::Tasks;
use serde_json::Value;
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

use super::round::FORGET_PLANS;
use super::writer::PLANS;
use crate::Postgres;
use crate::postgres::Options;
use crate::statements::{self, Statement};

/// How a session makes its plans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Session {
    /// Once for all parameters, with a writer's settings.
    Writer,
    /// Whenever it asks.
    Other,
}

/// Rows of every large table.
const ROWS: u32 = 100_000;
/// Tables that grow with the work. The others have a bound of their own: processes, partitions, feeds, a server's
/// catalogue, totals that are folded.
const LARGE: [&str; 10] = [
    "batch",
    "broadcast",
    "chunk",
    "idempotency",
    "lane",
    "log",
    "outbox_rejected",
    "suppression",
    "suppression_event",
    "suppression_lift",
];
/// What a node costs more that the planner was told not to use, and uses.
const DISABLED_COST: f64 = 1e10;
/// Files whose statements run outside of writers; those of `BOTH` run there and in writers.
const OTHERS: [&str; 3] = ["membership.rs", "read.rs", "reader.rs"];
const BOTH: [&str; 1] = ["suppress.rs"];
/// Files whose statements are not of a working process: they count everything on request, or run once at a start.
const APART: [&str; 3] = ["audit.rs", "restored.rs", "schema.rs"];
/// Literals that are more than one statement, or none: settings, the way in of new rows, a message, the repair of an outbox that
/// was restored, the database's time.
const APART_LITERALS: [&str; 6] = [
    "SET search_path",
    "COPY batch (",
    "the queue of notifications is full",
    "BEGIN; DELETE FROM outbox ",
    "(extract(epoch FROM clock_timestamp())",
    "{first}; SELECT {}",
];
/// Statements that pass rows, or have no condition, and why that is bounded: file, beginning, reason.
const BOUNDED: &[(&str, &str, &str)] = &[
    (
        "bury.rs",
        "DELETE FROM worker",
        "a chunk with a worker is claimed, and windows bound what is claimed",
    ),
    ("bury.rs", "SELECT id, batch, lane", "what one worker has claimed"),
    (
        "bury.rs",
        "SELECT id FROM broadcast",
        "the index has open ones only: its condition is looked at again",
    ),
    (
        "bury.rs",
        "UPDATE broadcast",
        "the index has open ones only: its condition is looked at again",
    ),
    ("bury.rs", "UPDATE chunk SET crashes = 3", "the index has suspects only"),
    ("choose.rs", "SELECT chunk.id", "what others own of a lane, up to the first of ours"),
    ("choose.rs", "SELECT lane.id, channel, destination, priority, (sum", "what is claimed"),
    ("ingest.rs", "SELECT channel, ''", "what one worker has open"),
    ("lease.rs", "SELECT id, batch, lane", "what is claimed, by anybody"),
    ("lease.rs", "SELECT min(lease_until)", "what is claimed, by anybody"),
    (
        "membership.rs",
        "UPDATE worker SET alive_until = clock_timestamp() - ",
        "what one worker has claimed",
    ),
    ("read.rs", "SELECT (SELECT count(*) FROM partition", "it counts to a bound"),
    ("read.rs", "SELECT batch.id, count", "a page looks at so many batches at most"),
    ("read.rs", "SELECT channel, destination, priority, claimed", "what is claimed"),
    ("read.rs", "SELECT id, name, version", "what is claimed"),
    ("settle.rs", "SELECT id, batch, lane", "what one worker has claimed"),
    ("suppress.rs", "SELECT EXISTS (SELECT FROM suppression)", "it ends at the first row"),
];

/// All statements of this folder.
fn statements() -> BTreeSet<Statement> {
    statements::read("postgres", &APART_LITERALS)
}

// === impl Session ===

impl Session {
    fn of(file: &str) -> Vec<Self> {
        match file {
            file if OTHERS.contains(&file) => vec![Self::Other],
            file if BOTH.contains(&file) => vec![Self::Writer, Self::Other],
            _ => vec![Self::Writer],
        }
    }

    /// Whose settings these are. A plan for all parameters stands for the plans of each.
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
        let prepared = client.batch_execute(&format!("PREPARE s{number} AS {sql}")).await;
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
        let explain = format!("EXPLAIN (FORMAT JSON) EXECUTE s{number}{parameters}{end}");
        let rows = client.simple_query(&explain).await;
        let rows = rows.unwrap_or_else(|error| panic!("{statement:?}: {error:?}"));
        let plan = rows.iter().find_map(|message| {
            let SimpleQueryMessage::Row(row) = message else { return None };
            row.get(0).map(ToOwned::to_owned)
        });
        plans.push(serde_json::from_str(&plan.unwrap()).unwrap());
    }
    plans
}

/// What a plan reads that grows with what it does not return.
fn faults(plan: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    match plan {
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        Value::Array(plans) => plans.iter().for_each(|plan| faults.extend(self::faults(plan))),
        Value::Object(node) => {
            node.values().for_each(|inner| faults.extend(self::faults(inner)));
            let text = |key: &str| node.get(key).and_then(Value::as_str).unwrap_or_default();
            let (kind, table) = (text("Node Type"), text("Relation Name"));
            let is_large = LARGE.contains(&table);
            if is_large && kind == "Seq Scan" {
                faults.push(format!("reads all of {table}"));
            } else if is_large && kind.starts_with("Index") && !node.contains_key("Index Cond") {
                faults.push(format!("reads all of {}", text("Index Name")));
            }
            if is_large
                && node.contains_key("Filter")
                && !is_unique(text("Index Name"), text("Index Cond"))
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

/// Whether an index gives one row for each look-up, so that there is none to be passed.
fn is_unique(index: &str, condition: &str) -> bool {
    (index.ends_with("_pkey") || index.ends_with("_key")) && !condition.contains(['<', '>'])
}

/// Full tables, not analyzed: a statement's plan needs no more of them than their sizes.
async fn fill(client: &Client) {
    let fill = format!(
        "INSERT INTO lane (channel, destination, priority) SELECT 'channel', n::text, 1 FROM generate_series(1, {ROWS}) AS n; \
         INSERT INTO broadcast (tenant, channel, priority, guarantee, due_at, sealed_at, options, payload) \
           SELECT 'tenant', 'channel', 1, 0, n, n, '', '' FROM generate_series(1, {ROWS}) AS n; \
         INSERT INTO batch SELECT n, n, 0, n, n, NULL, n, 1, 'tenant', NULL, NULL, '' FROM generate_series(1, {ROWS}) AS n; \
         INSERT INTO chunk (batch, lane, partition, due_at, attempt, count) \
           SELECT n, n, n % 64, n, 1, 1 FROM generate_series(1, {ROWS}) AS n; \
         INSERT INTO log (txid, batch, entries) SELECT n, n, '' FROM generate_series(1, {ROWS}) AS n; \
         INSERT INTO idempotency SELECT 'tenant', n::text, '', NULL, n FROM generate_series(1, {ROWS}) AS n; \
         INSERT INTO suppression SELECT 'channel', n::text, '', 1, n, n FROM generate_series(1, {ROWS}) AS n; \
         INSERT INTO suppression_lift SELECT 'channel', n::text, n, n FROM generate_series(1, {ROWS}) AS n; \
         INSERT INTO suppression_event (txid, at, channel, recipient) \
           SELECT n, n, 'channel', n::text FROM generate_series(1, {ROWS}) AS n; \
         INSERT INTO outbox_rejected (id, reason, tenant, channel, recipient, content, priority, guarantee) \
           SELECT n, '', 'tenant', 'channel', 'r', '1', '', '' FROM generate_series(1, {ROWS}) AS n"
    );
    client.batch_execute(&fill).await.unwrap();
}

#[tokio::test]
async fn no_statement_reads_what_it_does_not_return() {
    let database = testbed::postgres::shared().unwrap().create().unwrap();
    let store = Postgres::open(Options::new(database.url()), flow::Clock::system()).await.unwrap();
    store.close().await;
    let mut tasks = Tasks::default();
    let all = statements();
    let of = |session: Session| -> Vec<&Statement> {
        let is_of = |it: &&Statement| {
            Session::of(&it.file).contains(&session) && !APART.contains(&it.file.as_str())
        };
        all.iter().filter(is_of).collect()
    };
    let (by_writers, by_others) = (of(Session::Writer), of(Session::Other));
    let client = connect(database.url(), &mut tasks).await;
    fill(&client).await;
    let writer = Session::Writer.connect(database.url(), &mut tasks).await;
    prepare(&writer, &by_writers).await;
    let mut plans = vec![("full", &by_writers, explain(&writer, &by_writers).await)];
    client.batch_execute("ANALYZE").await.unwrap();
    for (session, statements) in [(Session::Writer, &by_writers), (Session::Other, &by_others)] {
        let new = session.connect(database.url(), &mut tasks).await;
        prepare(&new, statements).await;
        plans.push(("full and analyzed", statements, explain(&new, statements).await));
    }
    let mut found = Vec::new();
    let mut needed = BTreeSet::new();
    for (state, statements, plans) in &plans {
        for (statement, plan) in statements.iter().zip(plans) {
            let bounded = BOUNDED.iter().position(|(file, beginning, _)| {
                *file == statement.file && statement.sql.starts_with(beginning)
            });
            let faults = faults(plan);
            let is_disabled = faults.iter().any(|fault| fault.starts_with("has no way"));
            match bounded {
                Some(place) if !faults.is_empty() && !is_disabled => {
                    needed.insert(place);
                }
                _ if faults.is_empty() => {}
                _ => found.push(format!(
                    "{state}: {} {}\n    {}",
                    statement.file,
                    statement.sql,
                    faults.join("; ")
                )),
            }
        }
    }
    assert!(found.is_empty(), "{} findings:\n{}", found.len(), found.join("\n"));
    assert_eq!(needed.len(), BOUNDED.len(), "what needs no leave gets none");
    assert!(by_writers.len() > 60 && by_others.len() > 15, "the sources are read");
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
    let writer = Session::Writer.connect(database.url(), &mut tasks).await;
    prepare(&writer, &[&claim]).await;
    let faults = faults(&explain(&writer, &[&claim]).await[0]);
    assert!(faults.contains(&"has no way but Seq Scan of partition".to_owned()), "{faults:?}");
}

#[tokio::test]
async fn a_plan_that_was_made_for_an_empty_table_is_good_once_plans_are_forgotten() {
    let database = testbed::postgres::shared().unwrap().create().unwrap();
    let store = Postgres::open(Options::new(database.url()), flow::Clock::system()).await.unwrap();
    store.close().await;
    let mut tasks = Tasks::default();
    let client = connect(database.url(), &mut tasks).await;
    // Of a table without a page, the planner takes it that everything costs the same.
    client.batch_execute("VACUUM").await.unwrap();
    let writer = Session::Writer.connect(database.url(), &mut tasks).await;
    let all = statements();
    let joins: Vec<&Statement> =
        all.iter().filter(|it| it.sql.starts_with("DELETE FROM chunk USING")).collect();
    prepare(&writer, &joins).await;
    fill(&client).await;
    let faults_now = async || faults(&explain(&writer, &joins).await[0]);
    assert_eq!(faults_now().await, ["reads all of chunk_pkey"]);
    // Within a transaction, as a writer does.
    writer.batch_execute(&format!("BEGIN; {FORGET_PLANS}; COMMIT")).await.unwrap();
    assert_eq!(faults_now().await, [""; 0]);
}
