//! Faults between a process and its database lose nothing and double nothing.
#![cfg(feature = "postgres")]
#![expect(clippy::unwrap_used, reason = "the helpers of a test fail by panicking")]

mod support;

use std::collections::HashSet;
use std::sync::Arc;

use notification::{Chunk, Disposition, State};
use store::conformance::{
    Shape, at, claim_all, claim_request, name, settle_all, the_books_balance,
};
use store::{
    Admission, CancelTarget, Cancelled, Claim, Claims, Ingest, Operations, Postgres, ReadStore,
    Settled, Settlements, StoreError,
};
use support::{accepted, deliver, delivered, fresh, open};
use testbed::{Direction, Proxy};
use tokio_postgres::{Client, NoTls};

/// Bytes between two places where a conversation is cut.
const STRIDE: usize = 97;

#[tokio::test]
async fn an_ingest_that_is_cut_anywhere_is_neither_lost_nor_doubled() {
    let database = fresh();
    let proxy = proxy(&database).await;
    let store = open(proxy.url()).await;
    let mut ingested = 0;
    for direction in [Direction::ToServer, Direction::ToClient] {
        // The first one learns the lane and prepares the statements.
        for _ in 0..2 {
            Shape::default().ingest(&store, 3).await;
            ingested += 3;
        }
        let before = proxy.passed(direction);
        Shape::default().ingest(&store, 3).await;
        ingested += 3;
        let bytes = usize::try_from(proxy.passed(direction) - before).unwrap();
        assert!(bytes > STRIDE, "a round has some length: {bytes}");
        for place in (0..=bytes).step_by(STRIDE) {
            proxy.cut_after_bytes(direction, place);
            Shape::default().ingest(&store, 3).await;
            ingested += 3;
            assert_eq!(accepted(&reader(&database).await).await, ingested, "{direction:?} {place}");
        }
    }
    balanced(&database).await;
}

#[tokio::test]
async fn a_settlement_that_is_cut_anywhere_is_written_once() {
    let database = fresh();
    let proxy = proxy(&database).await;
    let store = open(proxy.url()).await;
    let mut delivered_so_far = 0;
    for direction in [Direction::ToServer, Direction::ToClient] {
        for place in (0..2_000).step_by(10 * STRIDE) {
            Shape::default().ingest(&store, 2).await;
            let chunk = claim_until_some(&store).await;
            proxy.cut_after_bytes(direction, place);
            assert_eq!(deliver(&store, &chunk).await, Settled::Applied { remaining: 0 });
            delivered_so_far += 2;
            let totals = reader(&database).await.totals().await.unwrap();
            assert_eq!(totals.delivered, delivered_so_far, "{direction:?} {place}");
        }
    }
    balanced(&database).await;
}

#[tokio::test]
async fn calls_wait_for_a_server_that_crashed_and_go_on_when_it_is_back() {
    let mut server = testbed::PostgresServer::start().unwrap();
    let database = server.create_database().unwrap();
    let store = Arc::new(open(database.url()).await);
    let ids = Shape::default().ingest(&*store, 5).await;
    let chunk = claim_until_some(&store).await;
    let mut available = store.available();
    server.stop_immediate().unwrap();
    let waiting = {
        let store = Arc::clone(&store);
        let settlement = delivered(&chunk);
        async move {
            tokio::join!(
                store.settle(vec![settlement]),
                store.ingest(Shape::default().drafts(4), at(1)),
                async { available.wait_for(|available| !available).await.map(|_| ()) },
            )
        }
    };
    let restart = async {
        let mut told = store.available();
        told.wait_for(|available| !available).await.unwrap();
        tokio::task::spawn_blocking(move || {
            server.start_again().unwrap();
            server
        })
        .await
        .unwrap()
    };
    let ((settled, taken, told), server) = tokio::join!(waiting, restart);
    assert_eq!(settled.unwrap(), [Settled::Applied { remaining: 0 }]);
    assert_eq!(taken.unwrap().len(), 4);
    told.unwrap();
    assert_eq!(store.reader().find(ids[4]).await.unwrap().unwrap().state, State::Delivered);
    assert_eq!(claim_until_some(&store).await.deliveries.len(), 4);
    assert_eq!(*store.failed().borrow(), None);
    the_books_balance(&*store).await;
    drop((database, server));
}

#[tokio::test]
async fn who_cannot_wait_is_told_that_nothing_was_done() {
    let database = fresh();
    let proxy = proxy(&database).await;
    let store = open(proxy.url()).await;
    let ids = Shape::default().ingest(&store, 1).await;
    proxy.cut();
    let target = CancelTarget::Notification(ids[0]);
    let (claimed, refused) = tokio::join!(
        // This claim waits without a limit, and does not keep the calls behind it from being answered.
        store.claim(claim_request(0)),
        async {
            let refused = tokio::join!(
                store.ingest(Shape::default().drafts(1), at(0)),
                store.cancel(target, name("tenant"), at(0)),
            );
            proxy.pass();
            refused
        }
    );
    let claimed: Claim<Chunk> = claimed.unwrap();
    assert_eq!(claimed.chunks.len(), 1);
    assert!(matches!(refused.0, Err(StoreError::Unavailable(_))), "{:?}", refused.0);
    assert!(matches!(refused.1, Err(StoreError::Unavailable(_))), "{:?}", refused.1);
    assert_eq!(accepted(store.reader()).await, 1);
}

#[tokio::test]
async fn processes_that_use_one_key_at_a_time_accept_one_notification() {
    let database = fresh();
    let (one, other) = (open(database.url()).await, open(database.url()).await);
    let keys: [&'static str; 4] = ["a", "b", "c", "d"];
    for tenant in TENANTS {
        let draft = |key: &'static str, position: u8| {
            let shape = Shape { key: Some((key, position)), tenant, ..Shape::default() };
            shape.draft("a")
        };
        let forth = keys.map(|key| draft(key, 1)).to_vec();
        let mut back = forth.clone();
        back.reverse();
        let (first, second) = tokio::join!(one.ingest(forth, at(0)), other.ingest(back, at(0)));
        let mut second = second.unwrap();
        second.reverse();
        for (first, second) in first.unwrap().into_iter().zip(second) {
            let ids = match (first, second) {
                (Admission::Accepted(one), Admission::Replayed(other))
                | (Admission::Replayed(one), Admission::Accepted(other)) => (one, other),
                neither => panic!("{neither:?}"),
            };
            assert_eq!(ids.0, ids.1);
        }
        let changed = vec![draft("a", 2)];
        let refused = other.ingest(changed, at(0)).await;
        assert_eq!(refused, Err(StoreError::KeyReused { index: 0 }));
    }
    assert_eq!(accepted(one.reader()).await, 32);
    the_books_balance(&other).await;
}

const TENANTS: [&str; 8] = ["t0", "t1", "t2", "t3", "t4", "t5", "t6", "t7"];

#[tokio::test]
async fn what_is_retried_while_it_is_withdrawn_is_withdrawn() {
    let database = fresh();
    let store = Arc::new(open(database.url()).await);
    let ids = Shape::default().ingest(&*store, 2).await;
    let chunk = claim_until_some(&store).await;
    // Another process settles: it holds the chunk, and puts another one in its place.
    let rival = connect(database.url()).await;
    let replace = format!(
        "BEGIN; DELETE FROM belfry.chunk WHERE id = {0}; \
         INSERT INTO belfry.chunk (batch, lane, partition, due_at, attempt, count) \
         SELECT id, lane, 0, 0, 2, count FROM belfry.batch WHERE id = {1}",
        chunk.id.0, chunk.batch.0
    );
    rival.batch_execute(&replace).await.unwrap();
    let cancel = {
        let store = Arc::clone(&store);
        let target = CancelTarget::Notification(ids[1]);
        async move { store.cancel(target, name("tenant"), at(3)).await.unwrap() }
    };
    let commit = async {
        await_a_waiting_lock(database.url()).await;
        rival.batch_execute("COMMIT").await.unwrap();
    };
    let (cancelled, ()) = tokio::join!(cancel, commit);
    assert_eq!(cancelled, Some(Cancelled { cancelled: 1, ..Cancelled::default() }));
    assert_eq!(store.reader().find(ids[1]).await.unwrap().unwrap().state, State::Cancelled);
}

#[tokio::test]
async fn every_chunk_of_busy_lanes_is_claimed_at_once() {
    let database = fresh();
    let store = open(database.url()).await;
    let lanes = ["a", "b", "c"];
    for due_at in 0..40 {
        for destination in lanes {
            Shape { destination, due_at, ..Shape::default() }.ingest(&store, 1).await;
        }
    }
    let chunks = claim_all(&store, 99).await;
    assert_eq!(chunks.len(), 40 * lanes.len(), "nothing waits for a later look");
    for chunk in &chunks {
        settle_all(&store, chunk, Disposition::Ended(State::Delivered)).await;
    }
    the_books_balance(&store).await;
}

#[tokio::test]
async fn many_destinations_come_in_at_once() {
    let database = fresh();
    let store = open(database.url()).await;
    let drafts = |first: usize| {
        let draft = |number: usize| {
            let mut draft = Shape::default().draft("a");
            draft.envelope.lane.destination = format!("https://{number}.example").into();
            draft
        };
        (first..first + 5_000).map(draft).collect::<Vec<_>>()
    };
    let (one, other) =
        tokio::join!(store.ingest(drafts(0), at(0)), store.ingest(drafts(4_000), at(0)));
    assert_eq!(one.unwrap().len() + other.unwrap().len(), 10_000);
    let mut claimed = Vec::new();
    loop {
        let claim: Claim<Chunk> = store.claim(claim_request(0)).await.unwrap();
        claimed.extend(claim.chunks);
        if claim.next_at.is_none_or(|next_at| next_at > at(0)) {
            break;
        }
    }
    let lanes: HashSet<_> = claimed.iter().map(|chunk| &chunk.envelope.lane).collect();
    assert_eq!(lanes.len(), 9_000);
    assert_eq!(claimed.iter().map(|chunk| chunk.deliveries.len()).sum::<usize>(), 10_000);
}

/// A link to the database that can be broken. It has a runtime of its own, which must not be made within another one.
async fn proxy(database: &testbed::Database) -> Proxy {
    let url = database.url().to_owned();
    tokio::task::spawn_blocking(move || Proxy::before(&url).unwrap()).await.unwrap()
}

/// Claims until there is a chunk: the notice of one that became ready a moment ago may have to arrive first.
async fn claim_until_some(store: &Postgres) -> Chunk {
    let mut changes = Claims::<Chunk>::changes(store);
    loop {
        changes.mark_unchanged();
        if let Some(chunk) = claim_all(store, 10).await.pop() {
            return chunk;
        }
        changes.changed().await.unwrap();
    }
}

/// Reader of another process, to look from outside.
async fn reader(database: &testbed::Database) -> store::postgres::PostgresReader {
    store::postgres::PostgresReader::open(database.url(), None).await.unwrap()
}

/// Looks from outside whether everything is somewhere, once.
async fn balanced(database: &testbed::Database) {
    let audit = reader(database).await.audit().await.unwrap();
    assert_eq!((audit.problem_count, audit.problems), (0, Vec::new()));
}

async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    #[expect(clippy::disallowed_methods, reason = "it ends with the client")]
    let _driver = tokio::spawn(connection);
    client
}

/// Waits until a session waits for a lock that another transaction holds.
async fn await_a_waiting_lock(url: &str) {
    let client = connect(url).await;
    let waiting = "SELECT count(*) > 0 FROM pg_stat_activity \
                   WHERE datname = current_database() AND wait_event_type = 'Lock'";
    while !client.query_one(waiting, &[]).await.unwrap().get::<_, bool>(0) {}
}
