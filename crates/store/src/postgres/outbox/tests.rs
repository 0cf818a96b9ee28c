//! The outbox against a server, as applications meet it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use flow::{Clock, Tasks};
use notification::Idempotency;
use testbed::Database;
use tokio_postgres::{Client, NoTls};

use super::*;
use crate::ReadStore as _;
use crate::conformance::{Shape, at, claim_all, name, the_books_balance};
use crate::postgres::Options;
use crate::postgres::connection::Connector;
use crate::postgres::setup_tests::open;

/// A store, and an application beside it.
pub(super) struct Bench {
    pub(super) database: Database,
    pub(super) store: Postgres,
    /// Tasks of the applications' connections.
    tasks: Mutex<Tasks>,
}

pub(super) const INSERT: &str = "INSERT INTO belfry.outbox (channel, recipient, content)";

impl Bench {
    pub(super) async fn new() -> Self {
        let database = testbed::postgres::shared().unwrap().create().unwrap();
        let store = open(&database).await;
        Self { database, store, tasks: Mutex::default() }
    }

    /// A connection as applications have: with no search path of ours.
    pub(super) async fn application(&self) -> Client {
        let (client, connection) =
            tokio_postgres::connect(self.database.url(), NoTls).await.unwrap();
        let driver = async move { connection.await.unwrap() };
        self.tasks.lock().unwrap().spawn("application", driver);
        client
    }

    pub(super) async fn drain(&self) -> DrainedRows {
        self.store.drain(validator(), at(0)).await.unwrap()
    }

    /// Recipients of all that is due, sorted.
    async fn recipients(&self) -> Vec<String> {
        let chunks = claim_all(&self.store, 1).await;
        let deliveries = chunks.iter().flat_map(|chunk| &chunk.deliveries);
        let mut recipients: Vec<String> = deliveries.map(|one| one.recipient.to_string()).collect();
        recipients.sort();
        recipients
    }
}

/// Accepts all rows but those with the refused recipient.
pub(super) fn validator() -> Arc<Validator> {
    Arc::new(|row: OutboxRow, _now| {
        if row.recipient == "nobody" {
            return Err("recipient: is nobody".to_owned());
        }
        let shape = Shape { payload: row.content.clone(), ..Shape::default() };
        let mut draft = shape.draft(&row.recipient);
        draft.envelope.lane.tenant = name(&row.tenant);
        let fingerprint = [u8::try_from(row.content.len()).unwrap(); 32];
        draft.idempotency = row.idempotency_key.map(|key| Idempotency {
            key: key.into(),
            fingerprint,
            passed: None,
        });
        Ok(draft)
    })
}

/// The SQL in a section of the contract.
pub(super) fn statements(section: &str) -> Vec<String> {
    let contract = include_str!("../../../../../docs/outbox.md");
    let section = contract.split(section).nth(1).unwrap().split("\n## ").next().unwrap();
    let blocks = section.split("```sql\n").skip(1);
    blocks.map(|block| block.split("```").next().unwrap().to_owned()).collect()
}

pub(super) const fn drained(accepted: u64, rejected: u64) -> DrainedRows {
    DrainedRows { accepted, rejected, more: false }
}

#[tokio::test]
async fn what_was_committed_is_taken_once_with_what_the_application_said() {
    let bench = Bench::new().await;
    let mut told = bench.store.outbox_changes();
    let insert = "INSERT INTO belfry.outbox (tenant, channel, recipient, content, options, priority, guarantee, send_at, \
         expires_at, idempotency_key, variables, fallback, external_id, tags, metadata) VALUES ('t', 'c', 'r', '{ \"a\": 1 }', '{}', \
         'urgent', 'at_most_once', '2030-01-01 00:00:00.0015+00', '2030-01-02 00:00:00+00', 'k', '{ \"n\": 1 }', '[ {} ]', \
         'user \u{fc} ', '[ \"\\u0061\",\"b\" ]', '{ \"b\": 1.0, \"a\": 2, \"b\": 3 }')";
    bench.application().await.batch_execute(insert).await.unwrap();
    told.changed().await.unwrap();
    let validator: Arc<Validator> = Arc::new(|row: OutboxRow, _now| {
        let expect = OutboxRow {
            tenant: "t".into(),
            channel: "c".into(),
            recipient: "r".into(),
            content: "{ \"a\": 1 }".into(),
            options: "{}".into(),
            template: None,
            variables: "{ \"n\": 1 }".into(),
            fallback: "[ {} ]".into(),
            priority: "urgent".into(),
            guarantee: "at_most_once".into(),
            send_at: Some(at(1_893_456_000_001)),
            expires_at: Some(at(1_893_542_400_000)),
            idempotency_key: Some("k".into()),
            external_id: Some("user \u{fc} ".into()),
            tags: r#"[ "\u0061","b" ]"#.into(),
            metadata: r#"{ "b": 1.0, "a": 2, "b": 3 }"#.into(),
        };
        assert_eq!(row, expect);
        Ok(Shape::default().draft("r"))
    });
    assert_eq!(bench.store.drain(Arc::clone(&validator), at(0)).await.unwrap(), drained(1, 0));
    assert_eq!(bench.store.drain(validator, at(0)).await.unwrap(), drained(0, 0));
    assert_eq!(bench.recipients().await, ["r"]);
}

#[tokio::test]
async fn a_transaction_that_began_first_and_commits_last_is_not_missed() {
    let bench = Bench::new().await;
    let (early, late, undone) =
        (bench.application().await, bench.application().await, bench.application().await);
    let insert = async |client: &Client, recipient: &str| {
        let insert = format!("{INSERT} VALUES ('c', '{recipient}', '1')");
        client.batch_execute(&insert).await.unwrap();
    };
    for client in [&early, &late, &undone] {
        client.batch_execute("BEGIN").await.unwrap();
    }
    insert(&early, "early").await;
    insert(&undone, "undone").await;
    insert(&late, "late").await;
    late.batch_execute("COMMIT").await.unwrap();
    assert_eq!(bench.drain().await, drained(1, 0));
    early.batch_execute("SAVEPOINT s").await.unwrap();
    insert(&early, "early, within").await;
    early.batch_execute("COMMIT").await.unwrap();
    undone.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(bench.drain().await, drained(2, 0));
    assert_eq!(bench.drain().await, drained(0, 0));
    assert_eq!(bench.recipients().await, ["early", "early, within", "late"]);
    the_books_balance(&bench.store).await;
}

#[tokio::test]
async fn a_transaction_larger_than_a_drain_is_taken_in_parts() {
    let bench = Bench::new().await;
    let rows = 2 * OUTBOX_ROWS + 1_000;
    let insert = format!("{INSERT} SELECT 'c', n, '1' FROM generate_series(1, {rows}) AS n");
    bench.application().await.batch_execute(&insert).await.unwrap();
    let (mut parts, mut more) = (Vec::new(), true);
    while more {
        let drained = bench.drain().await;
        parts.push(drained.accepted);
        more = drained.more;
    }
    assert_eq!(parts.iter().sum::<u64>(), rows as u64);
    assert!(
        parts.len() > 2 && parts.iter().all(|part| *part < OUTBOX_ROWS as u64 + 256),
        "{parts:?}"
    );
    let distinct: BTreeSet<String> = bench.recipients().await.into_iter().collect();
    assert_eq!(distinct.len(), rows);
    the_books_balance(&bench.store).await;
}

#[tokio::test]
async fn two_drainers_never_take_a_row_twice() {
    let bench = Bench::new().await;
    let other = open(&bench.database).await;
    let write = async |number: u16| {
        let client = bench.application().await;
        for turn in 0..40 {
            let end = if turn % 4 == 3 { "ROLLBACK" } else { "COMMIT" };
            let values = format!(
                "SELECT 'c', '{number}-{turn}-' || n, '1' FROM generate_series(1, 25) AS n"
            );
            client.batch_execute(&format!("BEGIN; {INSERT} {values}; {end}")).await.unwrap();
        }
    };
    let committed = 3 * 30 * 25;
    let drain = async |store: &Postgres| {
        while store.reader().totals().await.unwrap().accepted < committed {
            store.drain(validator(), at(0)).await.unwrap();
        }
    };
    tokio::join!(write(1), write(2), write(3), drain(&bench.store), drain(&other));
    assert_eq!(
        (bench.drain().await, other.drain(validator(), at(0)).await.unwrap()),
        (drained(0, 0), drained(0, 0))
    );
    assert_eq!(bench.store.reader().totals().await.unwrap().accepted, committed);
    let page = bench.store.reader().list(crate::Filter::default(), None, 10_000).await.unwrap();
    let distinct: BTreeSet<_> = page.items.iter().map(|history| &history.recipient).collect();
    assert_eq!((page.items.len(), distinct.len()), (2_250, 2_250));
    the_books_balance(&bench.store).await;
}

#[tokio::test]
async fn a_row_that_cannot_be_sent_is_put_aside_with_the_reason() {
    let bench = Bench::new().await;
    let insert = "INSERT INTO belfry.outbox (channel, recipient, content, idempotency_key) VALUES \
         ('c', 'a', '1', 'k'), ('c', 'nobody', '1', NULL), ('c', 'b', '1', 'k'), ('c', 'c', '22', 'k')";
    bench.application().await.batch_execute(insert).await.unwrap();
    assert_eq!(bench.drain().await, drained(1, 2), "a, and b is what a was");
    let again = "INSERT INTO belfry.outbox (channel, recipient, content, idempotency_key) VALUES \
         ('c', 'd', '1', 'k'), ('c', 'e', '333', 'k')";
    bench.application().await.batch_execute(again).await.unwrap();
    assert_eq!(bench.drain().await, drained(0, 1));
    let select = "SELECT recipient, content, reason FROM belfry.outbox_rejected ORDER BY id";
    assert_eq!(
        bench.database.query(select).unwrap(),
        "nobody|1|recipient: is nobody\nc|22|idempotency_key: was used before for something else\n\
         e|333|idempotency_key: was used before for something else"
    );
    assert_eq!(bench.store.reader().cluster().await.unwrap().unwrap().outbox.rejected, 3);
    assert_eq!(bench.recipients().await, ["a"]);
}

#[tokio::test]
async fn the_table_itself_refuses_what_can_be_seen_to_be_wrong() {
    let bench = Bench::new().await;
    let client = bench.application().await;
    let check = async |column: &str, value: &str, expect: &str| {
        let mut row = vec![("channel", "'c'"), ("recipient", "'r'"), ("content", "'1'")];
        row.retain(|(name, _)| column.split(", ").all(|given| given != *name));
        row.extend((!value.is_empty()).then_some((column, value)));
        let (columns, values): (Vec<&str>, Vec<&str>) = row.into_iter().unzip();
        let insert = format!(
            "INSERT INTO belfry.outbox ({}) VALUES ({})",
            columns.join(", "),
            values.join(", ")
        );
        let error = client.batch_execute(&insert).await.unwrap_err();
        let message = error.as_db_error().unwrap().message().to_owned();
        assert!(message.contains(expect), "{message}");
    };
    check("channel", "", "null value in column \"channel\"").await;
    check("recipient", "", "null value in column \"recipient\"").await;
    check("content", "", "content or template is given, and one of them only").await;
    check("template", "'t'", "content or template is given, and one of them only").await;
    check("content, template, options", "NULL, 't', '{}'", "options are part of the template")
        .await;
    check("content, template", "NULL, 'T'", "template is 1 to 64 of a-z, 0-9, - and _").await;
    check("variables", "'[]'", "variables are an object").await;
    check(
        "variables",
        "json_build_object('x', repeat('x', 65536))",
        "variables have at most 65536",
    )
    .await;
    check("fallback", "'{}'", "fallback is an array of at most 3").await;
    check("fallback", "'null'", "fallback is an array of at most 3").await;
    check("fallback", "'[1, 2, 3, 4]'", "fallback is an array of at most 3").await;
    check("fallback", "json_build_array(repeat('x', 262144))", "fallback has at most 262144").await;
    check("content", "'{'", "invalid input syntax for type json").await;
    check("content", "to_json(repeat('x', 262143))", "content has at most 262144 bytes").await;
    check("channel", "'No'", "channel is 1 to 64 of a-z, 0-9, - and _").await;
    check("tenant", "''", "tenant is 1 to 64 of a-z, 0-9, - and _").await;
    check("recipient", "''", "recipient has 1 to 2048 bytes").await;
    check("options", "'[]'", "options are an object").await;
    check("priority", "'high'", "priority is urgent, normal or bulk").await;
    check("guarantee", "'once'", "guarantee is at_least_once or at_most_once").await;
    check("send_at", "'infinity'", "send_at is an instant").await;
    check("expires_at", "'-infinity'", "expires_at is an instant").await;
    check("send_at, expires_at", "now(), now()", "expires_at is after send_at").await;
    check("idempotency_key", "repeat('k', 256)", "idempotency_key has 1 to 255 bytes").await;
    check("external_id", "''", "external_id has 1 to 255 bytes").await;
    check("external_id", "repeat('\u{fc}', 128)", "external_id has 1 to 255 bytes").await;
    for control in ["chr(1)", "'a' || chr(10)", "chr(127)", "chr(159)"] {
        check("external_id", control, "external_id has no control characters").await;
    }
    check("tags", "'{}'", "tags are an array of at most 8").await;
    check("tags", "'null'", "tags are an array of at most 8").await;
    check("tags", "'[1, 2, 3, 4, 5, 6, 7, 8, 9]'", "tags are an array of at most 8").await;
    check("tags", "json_build_array(repeat('x', 4093))", "tags have at most 4096 bytes").await;
    check("metadata", "'null'", "metadata are an object").await;
    let long = "json_build_object('x', repeat('x', 1015))";
    check("metadata", long, "metadata have at most 1024 bytes").await;
    check("id", "1", "cannot insert a non-DEFAULT value into column \"id\"").await;
    assert_eq!(bench.drain().await, drained(0, 0));
}

#[tokio::test]
async fn an_application_may_insert_and_nothing_else() {
    let bench = Bench::new().await;
    let grants = &statements("## Let an application in")[0];
    let role = testbed::unique_prefix();
    let client = bench.application().await;
    let make = format!("CREATE ROLE {role}; {}", grants.replace("shop", &role));
    client.batch_execute(&make).await.unwrap();
    client.batch_execute(&format!("SET ROLE {role}")).await.unwrap();
    client.batch_execute(&format!("{INSERT} VALUES ('c', 'r', '1')")).await.unwrap();
    for refused in [
        "INSERT INTO belfry.outbox (channel, recipient, content, txid) VALUES ('c', 'r', '1', '3')",
        "INSERT INTO belfry.outbox (channel, recipient, content, slot) VALUES ('c', 'r', '1', 3)",
        "DELETE FROM belfry.outbox",
        "SELECT recipient FROM belfry.outbox",
        "SELECT * FROM belfry.batch",
    ] {
        let error = client.batch_execute(refused).await.unwrap_err();
        assert_eq!(
            error.code(),
            Some(&tokio_postgres::error::SqlState::INSUFFICIENT_PRIVILEGE),
            "{refused}"
        );
    }
    assert_eq!(bench.drain().await, drained(1, 0));
    let drop = format!("RESET ROLE; DROP OWNED BY {role}; DROP ROLE {role}");
    client.batch_execute(&drop).await.unwrap();
}

#[tokio::test]
async fn the_examples_of_the_contract_do_what_it_says() {
    let bench = Bench::new().await;
    let client = bench.application().await;
    client.batch_execute("CREATE TABLE orders (id int, state text)").await.unwrap();
    for statement in statements("## Examples") {
        client.batch_execute(&statement).await.unwrap();
    }
    client.batch_execute(&format!("{INSERT} VALUES ('c', 'nobody', '1')")).await.unwrap();
    let template = "INSERT INTO belfry.outbox (channel, recipient, template, variables, fallback, external_id, tags, metadata) \
         VALUES ('c', 'nobody', 't', '{}', '[1]', 'x', '[2]', '{ }')";
    client.batch_execute(template).await.unwrap();
    assert_eq!(bench.drain().await, drained(3, 2));
    let hook = "https://shop.example/hooks/orders";
    assert_eq!(bench.recipients().await, [&*"3f1c9a77".repeat(8), hook, hook]);
    let reason = "UPDATE belfry.outbox_rejected SET reason = 'channel: was unknown'";
    client.batch_execute(reason).await.unwrap();
    for statement in statements("## What is refused later") {
        client.batch_execute(&statement).await.unwrap();
    }
    assert_eq!(bench.drain().await, drained(0, 2), "they were put in again");
    let select = "SELECT content, template, variables, fallback, external_id, tags, metadata \
         FROM belfry.outbox_rejected ORDER BY id";
    assert_eq!(bench.database.query(select).unwrap(), "1||||||\n|t|{}|[1]|x|[2]|{ }");
}

#[tokio::test]
async fn what_templates_make_of_rows_counts_for_the_size_of_a_drain() {
    let bench = Bench::new().await;
    let insert = "INSERT INTO belfry.outbox (channel, recipient, template) SELECT 'c', n, 't' FROM generate_series(1, 100) AS n";
    bench.application().await.batch_execute(insert).await.unwrap();
    let large: Arc<Validator> = Arc::new(|row: OutboxRow, _now| {
        let payload = vec![b'x'; OUTBOX_BYTES / 60].into();
        Ok(Shape { payload, ..Shape::default() }.draft(&row.recipient))
    });
    let (mut parts, mut more) = (Vec::new(), true);
    while more {
        let drained = bench.store.drain(Arc::clone(&large), at(0)).await.unwrap();
        parts.push(drained.accepted);
        more = drained.more;
    }
    assert_eq!(parts, [60, 40]);
}

#[tokio::test]
async fn rows_that_take_long_are_taken_in_parts_and_hold_up_no_other_ingest() {
    let database = testbed::postgres::shared().unwrap().create().unwrap();
    let (clock, steering) = Clock::system().steered();
    let store = Arc::new(Postgres::open(Options::new(database.url()), clock).await.unwrap());
    let insert = format!(
        "{INSERT} SELECT 'c', CASE n % 4 WHEN 0 THEN 'nobody' ELSE n::text END, '1' FROM generate_series(1, 4) AS n"
    );
    database.query(&insert).unwrap();
    let (runtime, url) = (tokio::runtime::Handle::current(), database.url().to_owned());
    let (other, inner) = (Arc::clone(&store), validator());
    let slow: Arc<Validator> = Arc::new(move |row, now| {
        steering.suspend(VALIDATED_FOR);
        // From within, while the row is validated: neither the writer nor a transaction waits for it.
        runtime.block_on(async {
            Shape::default().ingest(&*other, 1).await;
            let connector = Connector::new(&url, "test", None).unwrap();
            let session = connector.connect(None).await.unwrap();
            let held = "SELECT count(*) FROM pg_locks JOIN pg_class ON pg_class.oid = relation \
                 WHERE relname LIKE 'outbox%' AND pid <> pg_backend_pid()";
            assert_eq!(session.client.query_one(held, &[]).await.unwrap().get::<_, i64>(0), 0);
        });
        inner(row, now)
    });
    let (mut parts, mut more) = (Vec::new(), true);
    while more {
        let drained = store.drain(Arc::clone(&slow), at(0)).await.unwrap();
        parts.push((drained.accepted, drained.rejected));
        more = drained.more;
    }
    assert_eq!(parts, [(1, 0), (1, 0), (1, 0), (0, 1)]);
    assert_eq!(store.reader().totals().await.unwrap().accepted, 3 + 4);
    the_books_balance(&*store).await;
}

#[tokio::test]
async fn rows_that_another_process_took_while_they_were_validated_are_not_taken_again() {
    let bench = Bench::new().await;
    let insert = format!("{INSERT} SELECT 'c', n, '1' FROM generate_series(1, 5) AS n");
    bench.database.query(&insert).unwrap();
    let other = Arc::new(open(&bench.database).await);
    let taken = Arc::new(Mutex::new(Vec::new()));
    let (runtime, second, heard) =
        (tokio::runtime::Handle::current(), Arc::clone(&other), Arc::clone(&taken));
    let overtaken: Arc<Validator> = Arc::new(move |row, now| {
        let drained = runtime.block_on(second.drain(validator(), now)).unwrap();
        heard.lock().unwrap().push(drained);
        validator()(row, now)
    });
    assert_eq!(bench.store.drain(overtaken, at(0)).await.unwrap(), drained(0, 0));
    let taken: Vec<u64> = taken.lock().unwrap().iter().map(|drained| drained.accepted).collect();
    // On a slow machine the first drain ends before it has validated all five.
    assert_eq!((taken.first(), taken.iter().sum()), (Some(&5), 5));
    assert_eq!(bench.store.reader().totals().await.unwrap().accepted, 5);
    the_books_balance(&bench.store).await;
}

#[tokio::test]
async fn a_slot_is_emptied_when_all_of_it_is_taken_and_nobody_writes_to_it() {
    let bench = Bench::new().await;
    let (client, writer) = (bench.application().await, bench.application().await);
    // Slots are chosen by time: the rows in this one were written ten minutes ago, or will be.
    let slot = "SELECT ((belfry.outbox_slot() + 2) % 4)::int";
    let slot: i32 = client.query_one(slot, &[]).await.unwrap().get(0);
    let insert = |recipient: &str| {
        format!(
            "INSERT INTO belfry.outbox (slot, channel, recipient, content) \
             VALUES ({slot}, 'c', '{recipient}', '1')"
        )
    };
    let pages = async || {
        let sizes = "SELECT sum(pg_relation_size('belfry.outbox_' || slot))::int8 FROM generate_series(0, 3) AS slot";
        client.query_one(sizes, &[]).await.unwrap().get::<_, i64>(0) / 8192
    };
    client.batch_execute(&insert("first")).await.unwrap();
    writer.batch_execute(&format!("BEGIN; {}", insert("second"))).await.unwrap();
    assert_eq!(bench.drain().await, drained(1, 0));
    assert_eq!(pages().await, 1, "somebody writes to it");
    writer.batch_execute("COMMIT").await.unwrap();
    assert_eq!(bench.drain().await, drained(1, 0));
    assert_eq!(pages().await, 0);
    // Rolled back rows go with the next ones.
    client.batch_execute(&format!("BEGIN; {}; ROLLBACK", insert("undone"))).await.unwrap();
    assert_eq!(pages().await, 1);
    assert_eq!(bench.drain().await, drained(0, 0));
    assert_eq!(pages().await, 0);
    // The slot that is written to now stays.
    client.batch_execute(&format!("{INSERT} VALUES ('c', 'now', '1')")).await.unwrap();
    assert_eq!(bench.drain().await, drained(1, 0));
    assert_eq!(bench.recipients().await, ["first", "now", "second"]);
}

#[tokio::test]
async fn a_copy_from_another_server_is_not_passed_over_in_silence() {
    let bench = Bench::new().await;
    let ahead = "UPDATE belfry.outbox_position SET snapshot = '900000000:900000000:'";
    let client = bench.application().await;
    client.batch_execute(ahead).await.unwrap();
    let old = "INSERT INTO belfry.outbox (txid, channel, recipient, content) VALUES ('900000001', 'c', 'r', '1')";
    client.batch_execute(old).await.unwrap();
    let error = bench.store.drain(validator(), at(0)).await.unwrap_err();
    assert!(
        matches!(&error, StoreError::Schema(words) if words.contains("docs/outbox.md")),
        "{error}"
    );
    for statement in statements("## After a restore") {
        client.batch_execute(&statement).await.unwrap();
    }
    assert_eq!(bench.drain().await, drained(1, 0));
    assert_eq!(bench.recipients().await, ["r"]);
}
