//! How many rows of the outbox wait, and for how long.

use super::tests::{Bench, INSERT, drained};
use crate::postgres::plans_tests::plan_of;
use crate::{OUTBOX_ROWS_COUNTED, OutboxStatus, ReadStore as _};

/// Pages that are read at most: of the catalogue, the position, the indexes of four slots, and of 10,000 rows, some seventy a page.
const PAGES_MAX: u64 = 600;

impl Bench {
    async fn waiting(&self) -> OutboxStatus {
        self.store.reader().cluster().await.unwrap().unwrap().outbox
    }

    /// The pages that a second look reads.
    async fn pages(&self) -> u64 {
        let client = self.application().await;
        client.batch_execute("SET search_path = belfry, pg_catalog").await.unwrap();
        let explain = format!(
            "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT * FROM outbox_waiting({OUTBOX_ROWS_COUNTED})"
        );
        client.simple_query(&explain).await.unwrap();
        let plan = plan_of(&client.simple_query(&explain).await.unwrap());
        let pages = |name: &str| plan[0]["Plan"][name].as_u64().unwrap();
        pages("Shared Hit Blocks") + pages("Shared Read Blocks")
    }
}

#[tokio::test]
async fn what_was_committed_and_is_not_taken_waits_since_it_was_inserted() {
    let bench = Bench::new().await;
    let client = bench.application().await;
    assert_eq!(bench.waiting().await, OutboxStatus::default());
    let aged = |recipient: &str, seconds: u32| {
        format!(
            "INSERT INTO belfry.outbox (channel, recipient, content, inserted_at) \
             VALUES ('c', '{recipient}', '1', clock_timestamp() - interval '{seconds} s')"
        )
    };
    let late = bench.application().await;
    late.batch_execute(&format!("BEGIN; {}", aged("late", 900))).await.unwrap();
    client.batch_execute(&aged("early", 300)).await.unwrap();
    client.batch_execute(&format!("{INSERT} VALUES ('c', 'nobody', '1')")).await.unwrap();
    let waiting = bench.waiting().await;
    assert_eq!((waiting.waiting, waiting.oldest.as_secs() / 300), (2, 1), "not what runs");

    assert_eq!(bench.drain().await, drained(1, 1));
    assert_eq!(bench.waiting().await, OutboxStatus { rejected: 1, ..OutboxStatus::default() });
    late.batch_execute("COMMIT").await.unwrap();
    client.batch_execute(&format!("{INSERT} VALUES ('c', 'new', '1')")).await.unwrap();
    let waiting = bench.waiting().await;
    assert_eq!((waiting.waiting, waiting.oldest.as_secs() / 300), (2, 3), "what ended late, too");
    assert_eq!(bench.drain().await, drained(2, 0));
    assert_eq!(bench.waiting().await, OutboxStatus { rejected: 1, ..OutboxStatus::default() });
}

#[tokio::test]
async fn a_row_of_the_version_before_waits_for_no_time_that_is_known() {
    let bench = Bench::new().await;
    let insert = "INSERT INTO belfry.outbox (channel, recipient, content, inserted_at) VALUES ('c', 'r', '1', NULL)";
    bench.application().await.batch_execute(insert).await.unwrap();
    assert_eq!(bench.waiting().await, OutboxStatus { waiting: 1, ..OutboxStatus::default() });
}

/// One transaction of a million rows, as a `COPY` is: what was taken of it is not passed again with each look.
#[tokio::test]
async fn counting_ends_at_its_bound_and_begins_behind_what_was_taken_of_a_transaction() {
    let bench = Bench::new().await;
    let client = bench.application().await;
    let rows = 1_000_000;
    let insert = format!("{INSERT} SELECT 'c', n, '1' FROM generate_series(1, {rows}) AS n");
    client.batch_execute(&insert).await.unwrap();
    assert_eq!(bench.waiting().await.waiting, u64::from(OUTBOX_ROWS_COUNTED));
    let pages = bench.pages().await;
    assert!(pages < PAGES_MAX, "{pages} pages for {OUTBOX_ROWS_COUNTED} of {rows} rows");

    // As if all but seven were taken: fifty drains take a minute.
    let moved = "UPDATE belfry.outbox_position SET txid = last.txid, id = last.id - 7, \
             snapshot = format('%s:%s:%s', last.txid, pg_snapshot_xmax(pg_current_snapshot()), last.txid)::pg_snapshot \
         FROM (SELECT txid, id FROM belfry.outbox ORDER BY txid DESC, id DESC LIMIT 1) AS last";
    client.batch_execute(moved).await.unwrap();
    assert_eq!(bench.waiting().await.waiting, 7);
    let pages = bench.pages().await;
    assert!(pages < PAGES_MAX, "{pages} pages for 7 rows behind {rows}");
    assert_eq!(bench.drain().await, drained(7, 0));
    assert_eq!(bench.waiting().await, OutboxStatus::default());
}

#[tokio::test]
async fn rows_of_a_transaction_that_runs_are_not_looked_at() {
    let bench = Bench::new().await;
    let (client, running) = (bench.application().await, bench.application().await);
    let insert =
        |rows: u32| format!("{INSERT} SELECT 'c', n, '1' FROM generate_series(1, {rows}) AS n");
    running.batch_execute(&format!("BEGIN; {}", insert(200_000))).await.unwrap();
    client.batch_execute(&insert(7)).await.unwrap();
    assert_eq!(bench.waiting().await.waiting, 7, "behind one that runs");
    let pages = bench.pages().await;
    assert!(pages < PAGES_MAX, "{pages} pages for 7 rows behind one that runs");

    assert_eq!(bench.drain().await, drained(7, 0));
    client.batch_execute(&insert(3)).await.unwrap();
    assert_eq!(bench.waiting().await.waiting, 3, "one that ran at the last drain, and runs");
    let pages = bench.pages().await;
    assert!(pages < PAGES_MAX, "{pages} pages for 3 rows beside one that ran before");

    running.batch_execute("COMMIT").await.unwrap();
    assert_eq!(bench.waiting().await.waiting, u64::from(OUTBOX_ROWS_COUNTED));
}
