//! The search index on PostgreSQL, beside a walk over everything, with numbers that are committed late.

use std::sync::Arc;

use flow::Tasks;
use tokio::sync::oneshot;
use tokio_postgres::Client;

use super::setup_tests::{connect, fresh, open, until_blocked};
use crate::conformance::{Shape, at};
use crate::rows::search::searches::{
    Sent, check, check_few_beside_many, check_few_of_many, fill, fill_at, fill_rare, labels_of,
    list_all, to,
};
use crate::{Filter, Ingest as _, ListOrder, Prune as _, Retention, SearchIndex as _};

async fn number(client: &Client, sql: &str) -> i64 {
    client.query_one(sql, &[]).await.unwrap().get(0)
}

#[tokio::test]
async fn a_search_finds_all_after_every_step_of_either_process() {
    let (database, mut tasks) = (fresh(), Tasks::default());
    let client = connect(&database, &mut tasks).await;
    let stores = [open(&database).await, open(&database).await];
    let mut sent = Sent::new();
    for round in 0..9 {
        fill_rare(&stores[0], &mut sent).await;
        for store in &stores {
            fill(store, 600, &mut sent).await;
        }
        let mut steps = 0;
        // Both have something to do as long as one has.
        while stores[0].advance().await.unwrap() | stores[1].advance().await.unwrap() {
            steps += 1;
            if steps % 3 == 1 {
                check(&stores[steps % 2], &sent).await;
            }
        }
        check(&stores[round % 2], &sent).await;
    }
    let runs = "SELECT count(*) FROM search_run WHERE state = 1 AND level = 1";
    assert_eq!(number(&client, runs).await, 1, "eight runs were merged");
    assert_eq!(number(&client, "SELECT count(*) FROM search_run WHERE state <> 1").await, 0);
    let strays = "SELECT count(*) FROM search_block WHERE run NOT IN (SELECT id FROM search_run)";
    assert_eq!(number(&client, strays).await, 0);
    let last = "SELECT max(id) - (SELECT indexed FROM search_progress) FROM batch";
    assert!(number(&client, last).await < 4 * 1_024, "little is left to walk over");
    for store in stores {
        store.close().await;
    }
}

#[tokio::test]
async fn a_batch_with_a_low_number_that_is_committed_late_is_indexed() {
    let (database, mut tasks) = (fresh(), Tasks::default());
    let client = connect(&database, &mut tasks).await;
    let (slow, fast) = (Arc::new(open(&database).await), open(&database).await);
    let mut sent = Sent::new();
    // From now on it has numbers in hand.
    fill(&*slow, 1, &mut sent).await;
    // Its next transaction waits for this one, which has used its key.
    let mut other = connect(&database, &mut tasks).await;
    let holder = other.transaction().await.unwrap();
    let key = "INSERT INTO idempotency (tenant, key, fingerprint, broadcast) VALUES ('tenant', 'key', '', 1)";
    holder.batch_execute(key).await.unwrap();
    let filling = Arc::clone(&slow);
    let (told, late) = oneshot::channel();
    tasks.spawn("late", async move {
        let labels = labels_of("7");
        let shape = Shape { key: Some(("key", 1)), labels, ..Shape::default() };
        told.send(filling.ingest(vec![shape.draft("7")], at(0)).await.unwrap()).unwrap();
    });
    until_blocked(&client).await;
    fill(&fast, 1_100, &mut sent).await;
    assert!(fast.advance().await.unwrap(), "numbers are announced");
    assert!(!fast.advance().await.unwrap(), "one that had begun is waited for");
    let indexed = "SELECT indexed FROM search_progress";
    assert_eq!(number(&client, indexed).await, 0);
    check(&fast, &sent).await;
    holder.rollback().await.unwrap();
    let crate::Admission::Accepted(id) = late.await.unwrap()[0] else { panic!("not accepted") };
    sent.entry(7).or_default().push(id);
    while fast.advance().await.unwrap() {}
    assert!(number(&client, indexed).await.cast_unsigned() > id.batch().0 + 1_000);
    check(&fast, &sent).await;
    // It still has numbers in hand, and gives none of them any more.
    fill(&*slow, 1, &mut sent).await;
    let last = sent.values().flatten().map(|id| id.batch()).max().unwrap();
    let announced = number(&client, "SELECT announced FROM search_progress").await;
    assert!(last.0 > announced.cast_unsigned());
    check(&fast, &sent).await;
}

#[tokio::test]
async fn what_retention_removed_goes_from_the_index() {
    let (database, mut tasks) = (fresh(), Tasks::default());
    let client = connect(&database, &mut tasks).await;
    let store = open(&database).await;
    let mut sent = Sent::new();
    fill(&store, 2_200, &mut sent).await;
    while store.advance().await.unwrap() {}
    let runs = "SELECT count(*) FROM search_run";
    assert_eq!(number(&client, runs).await, 2);
    let last = number(&client, "SELECT min(last_batch) FROM search_run").await;
    client.execute("DELETE FROM batch WHERE id <= $1", &[&last]).await.unwrap();
    for ids in sent.values_mut() {
        ids.retain(|id| id.batch().0 > last.cast_unsigned());
    }
    check(&store, &sent).await;
    store.prune(&Retention::for_ever(), at(0)).await.unwrap();
    check(&store, &sent).await;
    while store.advance().await.unwrap() {}
    assert_eq!(number(&client, runs).await, 1, "that of the rest");
    let strays = "SELECT count(*) FROM search_block WHERE run NOT IN (SELECT id FROM search_run)";
    assert_eq!(number(&client, strays).await, 0);
    check(&store, &sent).await;
}

#[tokio::test]
async fn what_is_indexed_is_found_by_the_time_of_its_acceptance() {
    let database = fresh();
    let store = open(&database).await;
    let (mut others, mut sent) = (Sent::new(), Sent::new());
    for hour in 0..4 {
        let of_hour = if (1..3).contains(&hour) { &mut sent } else { &mut others };
        fill_at(&store, 1_100, at(hour * 3_600_000), of_hour).await;
    }
    while store.advance().await.unwrap() {}
    for order in [ListOrder::OldestFirst, ListOrder::NewestFirst] {
        let (since, until) = (Some(at(3_600_000)), Some(at(3 * 3_600_000)));
        let mut found = list_all(&store, Filter { since, until, ..to(7, order) }, 100).await;
        if order == ListOrder::NewestFirst {
            found.reverse();
        }
        assert_eq!(found, sent[&7], "{order:?}");
    }
}

#[tokio::test]
async fn a_page_finds_the_few_that_wait_were_cancelled_or_have_a_reason() {
    let database = fresh();
    let store = open(&database).await;
    check_few_of_many(&store, 6_000).await;
    store.close().await;
}

#[tokio::test]
async fn what_waits_of_a_tenant_is_found_beside_much_of_another() {
    let database = fresh();
    let store = open(&database).await;
    check_few_beside_many(&store).await;
    store.close().await;
}
