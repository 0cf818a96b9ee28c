//! The search index on a database, beside a walk over everything.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use notification::{BatchId, Disposition, State};
use rusqlite::Connection;

use super::files::DATABASE;
use super::transaction::Transaction;
use super::writer::Durability;
use super::{Options, Sqlite};
use crate::conformance::{BroadcastShape, DELIVERED, Shape, at, claim_all, name, part, settle_all};
use crate::rows::search::searches::{
    RECIPIENTS, check, check_few_beside_many, check_few_of_many, fill, fill_at, fill_rare,
    filters_of_rare, list_all, to,
};
use crate::{
    CancelTarget, Filter, Ingest as _, Lifetimes, ListOrder, Operations as _, Prune as _,
    ReadStore as _, Retention, SearchIndex as _, Settlements as _, TenantRetention,
};

fn open(directory: &Path) -> Sqlite {
    Sqlite::open(directory, Options::new(1), at(0)).unwrap().0
}

fn count(directory: &Path, sql: &str) -> i64 {
    let connection = Connection::open(directory.join(DATABASE)).unwrap();
    connection.query_row(sql, [], |row| row.get(0)).unwrap()
}

#[tokio::test]
async fn a_search_finds_all_after_every_step_and_after_every_restart() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = open(directory.path());
    let mut sent = BTreeMap::new();
    for round in 0..10 {
        fill_rare(&store, &mut sent).await;
        fill(&store, 1_100, &mut sent).await;
        check(&store, &sent).await;
        let mut steps = 0;
        while store.advance().await.unwrap() {
            check(&store, &sent).await;
            steps += 1;
            if steps % 3 == 1 {
                // Without closing it: as much as the end of a process leaves.
                drop(store);
                store = open(directory.path());
            }
        }
        assert!(steps > 0 || round == 0, "{round}");
    }
    let runs =
        count(directory.path(), "SELECT count(*) FROM search_run WHERE state = 1 AND level = 1");
    assert_eq!(runs, 1, "eight runs were merged");
    for order in [ListOrder::OldestFirst, ListOrder::NewestFirst] {
        let [(of_tenant, _), ..] = filters_of_rare(order);
        let page = store.reader().list(of_tenant, None, 8).await.unwrap();
        assert_eq!(page.items.len(), 8, "one page finds them among {} batches", 10 * 1_100);
    }
    assert_eq!(count(directory.path(), "SELECT count(*) FROM search_run WHERE state <> 1"), 0);
    let strays = "SELECT count(*) FROM search_block WHERE run NOT IN (SELECT id FROM search_run)";
    assert_eq!(count(directory.path(), strays), 0);
}

#[tokio::test]
async fn what_ended_badly_is_listed_once_and_forgotten_with_its_batch() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    Shape::default().ingest(&store, 3).await;
    let chunk = claim_all(&store, 0).await.remove(0);
    for (index, state) in [(0, State::Dead), (1, State::Dead), (2, State::Delivered)] {
        let settled = store.settle(vec![part(&chunk, &[index], Disposition::Ended(state))]).await;
        assert_eq!(settled.unwrap().len(), 1);
    }
    let rows = "SELECT count(*) FROM undelivered";
    assert_eq!(count(directory.path(), rows), 1);
    // The last line of the log is kept until another one follows.
    Shape::default().ingest(&store, 1).await;
    settle_all(&store, &claim_all(&store, 0).await[0], DELIVERED).await;
    let hour = Some(Duration::from_hours(1));
    let lifetimes = Lifetimes { content: hour, recipient: hour, outcome: hour };
    let default = TenantRetention { lifetimes, by_state: BTreeMap::new() };
    let retention = Retention { default, ..Retention::for_ever() };
    let mut removed = 0;
    for _ in 0..10 {
        removed += store.prune(&retention, at(36_000_000)).await.unwrap().removed.outcomes;
    }
    assert_eq!(count(directory.path(), rows), 0);
    assert!(removed >= 3, "{removed}");
}

#[tokio::test]
async fn what_is_gone_from_the_batches_is_passed_over_and_what_is_forgotten_is_removed() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let mut sent = BTreeMap::new();
    fill(&store, 3_000, &mut sent).await;
    while store.advance().await.unwrap() {}
    let last: i64 = count(directory.path(), "SELECT value FROM meta WHERE key = 'search_cursor'");
    let gone = BatchId(last.cast_unsigned() - 500);
    let removal = "DELETE FROM batch WHERE id < ?1";
    // Rows of batches go first, and what the index has of them later.
    let connection = Connection::open(directory.path().join(DATABASE)).unwrap();
    connection.execute(removal, [gone.0.cast_signed()]).unwrap();
    for ids in sent.values_mut() {
        ids.retain(|id| id.batch() >= gone);
    }
    check(&store, &sent).await;
    let drop = async || {
        let work = |transaction: &mut Transaction<'_>| transaction.drop_empty_runs();
        store.write(Durability::WithTheNext, work).await.unwrap()
    };
    assert!(drop().await);
    assert!(!drop().await, "once");
    check(&store, &sent).await;
    let before = count(directory.path(), "SELECT count(*) FROM search_block");
    while store.advance().await.unwrap() {}
    assert!(count(directory.path(), "SELECT count(*) FROM search_block") < before);
    assert_eq!(count(directory.path(), "SELECT count(*) FROM search_run"), 1, "that of the rest");
    assert_eq!(
        count(directory.path(), "SELECT value FROM meta WHERE key = 'search_cursor'"),
        last,
        "nothing is indexed again"
    );
    check(&store, &sent).await;
}

#[tokio::test]
async fn an_index_of_wrong_postings_shows_nothing_wrong() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let mut sent = BTreeMap::new();
    fill(&store, 1_100, &mut sent).await;
    while store.advance().await.unwrap() {}
    // Postings of another recipient than the member has, as a collision makes them.
    let connection = Connection::open(directory.path().join(DATABASE)).unwrap();
    let swap = "UPDATE batch SET items = (SELECT items FROM batch AS other WHERE other.id = 21) WHERE id = 20";
    connection.execute(swap, []).unwrap();
    for recipient in 0..RECIPIENTS {
        let filter = to(recipient, ListOrder::OldestFirst);
        let page = store.reader().list(filter.clone(), None, 10_000).await.unwrap();
        let is_wrong = |text: &str| text != recipient.to_string();
        assert!(
            !page.items.iter().any(|history| history.recipient.as_deref().is_some_and(is_wrong))
        );
    }
}

#[tokio::test]
async fn recipients_of_an_open_broadcast_are_indexed_and_not_shown_until_it_is_sealed() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let broadcast = BroadcastShape::default().open(&store, 70_000).await;
    while store.advance().await.unwrap() {}
    assert!(count(directory.path(), "SELECT count(*) FROM search_run") > 0);
    let recipient = Some("5".into());
    let tenant = Some(name("tenant"));
    let filter = Filter { tenant, recipient, ..Filter::default() };
    assert_eq!(list_all(&store, filter.clone(), 10).await, []);
    store.seal_broadcast(broadcast, at(0)).await.unwrap();
    assert_eq!(list_all(&store, filter, 10).await.len(), 1);
}

#[tokio::test]
async fn a_page_reads_a_bounded_part_of_what_is_not_indexed() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let mut sent = BTreeMap::new();
    fill(&store, 2_000, &mut sent).await;
    let nobody = to(RECIPIENTS, ListOrder::NewestFirst);
    let page = store.reader().list(nobody, None, 10).await.unwrap();
    assert_eq!(page.items, []);
    let next = page.next.expect("more to be looked at");
    assert_eq!(next.batch(), BatchId(2_000 - 1_024 + 1));
}

#[tokio::test]
async fn what_is_indexed_is_found_by_the_time_of_its_acceptance() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let (mut others, mut sent) = (BTreeMap::new(), BTreeMap::new());
    for hour in 0..4 {
        let of_hour = if (1..3).contains(&hour) { &mut sent } else { &mut others };
        fill_at(&store, 1_100, at(hour * 3_600_000), of_hour).await;
    }
    while store.advance().await.unwrap() {}
    for order in [ListOrder::OldestFirst, ListOrder::NewestFirst] {
        let (since, until) = (Some(at(3_600_000)), Some(at(3 * 3_600_000)));
        let mut found = list_all(&store, Filter { since, until, ..to(7, order) }, 10).await;
        if order == ListOrder::NewestFirst {
            found.reverse();
        }
        assert_eq!(found, sent[&7], "{order:?}");
    }
}

#[tokio::test]
async fn a_page_finds_the_few_that_wait_were_cancelled_or_have_a_reason() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    check_few_of_many(&store, 11_000).await;
}

#[tokio::test]
async fn what_waits_of_a_tenant_is_found_beside_much_of_another() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    check_few_beside_many(&store).await;
}

#[tokio::test]
async fn what_was_cancelled_before_such_were_listed_is_found_by_a_walk() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let cancel = async |due_at: i64| {
        // A due time of its own gives each a batch.
        let ids = Shape { due_at, ..Shape::default() }.ingest(&store, 2).await;
        let target = CancelTarget::Notification(ids[1]);
        store.cancel(target, name("tenant"), at(0)).await.unwrap();
        ids[1]
    };
    let mut cancelled = vec![cancel(1).await, cancel(2).await];
    let connection = Connection::open(directory.path().join(DATABASE)).unwrap();
    // As the schema before left it.
    let before = "DELETE FROM undelivered; \
                  UPDATE meta SET value = (SELECT max(id) FROM batch) WHERE key = 'cancelled_unlisted'";
    connection.execute_batch(before).unwrap();
    cancelled.push(cancel(3).await);
    for order in [ListOrder::OldestFirst, ListOrder::NewestFirst] {
        for states in [vec![State::Cancelled], vec![State::Cancelled, State::Dead]] {
            let states = states.into_iter().collect();
            let filter = Filter { states, order, ..Filter::default() };
            assert_eq!(list_all(&store, filter, 1).await, cancelled);
        }
        cancelled.reverse();
    }
}
