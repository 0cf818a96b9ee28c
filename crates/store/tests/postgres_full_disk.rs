//! A real PostgreSQL whose tables lie on a file system that other programs fill up: new notifications are refused with words,
//! those under way wait, and go on once there is room.
//!
//! The server's write-ahead log lies elsewhere: a server that has no room for that ends, with sessions connected or not.
#![cfg(feature = "postgres")]
#![expect(clippy::unwrap_used, reason = "the helpers of a test fail by panicking")]

mod support;

use notification::{Disposition, State, limits};
use store::conformance::{Shape, at, claim_request, settle_all, the_books_balance};
use store::{Claims, Ingest, Postgres, ReadStore, StoreError};
use testbed::PostgresOptions;
use testbed::disk::{DiskNamespace, PartEnd, SmallDisk};

const DISK_MIB: u64 = 64;
const NOTIFICATIONS: usize = 20 * limits::BATCH_ITEMS;
/// Requests that a full disk takes at most: pages that are there already have some room.
const ROUNDS_MAX: usize = 1_000;

#[test]
fn a_full_disk_of_the_server_refuses_what_comes_in_and_loses_nothing() {
    let parts = [("refuse_wait_and_go_on", PartEnd::Passed)];
    SmallDisk::new(DISK_MIB).for_own_user().run(&parts).unwrap();
}

#[tokio::test]
#[ignore = "runs on the disk that the other test makes"]
async fn refuse_wait_and_go_on() {
    let server = testbed::PostgresServer::start_with(PostgresOptions::default()).unwrap();
    let database = server.create_database().unwrap();
    let place = DiskNamespace::of_this_part().unwrap();
    for statement in [
        // The server's user owns what it makes. The program reads its whole input: the server takes a pipe that is closed before
        // for a failure.
        &format!(
            "COPY (SELECT) TO PROGRAM 'mkdir {}/tables && cat > /dev/null'",
            place.disk().display()
        ),
        &format!("CREATE TABLESPACE small LOCATION '{}/tables'", place.disk().display()),
        "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_tablespace = small', current_database()); END $$",
    ] {
        database.query(statement).unwrap();
    }
    let store = support::open(database.url()).await;
    for _ in 0..NOTIFICATIONS / limits::BATCH_ITEMS {
        Shape::default().ingest(&store, limits::BATCH_ITEMS).await;
    }
    place.fill().unwrap();
    let mut accepted = NOTIFICATIONS;
    let refusal = loop {
        match store.ingest(Shape::default().drafts(limits::BATCH_ITEMS), at(0)).await {
            Ok(admissions) => accepted += admissions.len(),
            Err(refusal) => break refusal,
        }
        assert!(accepted < NOTIFICATIONS + ROUNDS_MAX * limits::BATCH_ITEMS);
    };
    assert!(matches!(refusal, StoreError::NoSpace(_)), "{refusal:?}");
    let words = refusal.to_string();
    assert!(words.contains("takes no writes") && words.contains("53100"), "{words}");

    let make_room = async {
        for _ in 0..3 {
            let refused = store.ingest(Shape::default().drafts(limits::BATCH_ITEMS), at(0)).await;
            assert!(matches!(refused, Err(StoreError::NoSpace(_))), "{refused:?}");
        }
        place.make_room().unwrap();
    };
    tokio::join!(settle(&store, accepted), make_room);
    let totals = store.reader().totals().await.unwrap();
    assert_eq!((totals.accepted, totals.delivered), (accepted as u64, accepted as u64));
    Shape::default().ingest(&store, limits::BATCH_ITEMS).await;
    settle(&store, limits::BATCH_ITEMS).await;
    the_books_balance(&store).await;
    assert_eq!(*store.failed().borrow(), None);
    store.close().await;
}

/// Delivers `count`, in claims as small as a chunk: each takes room of its own.
async fn settle(store: &Postgres, count: usize) {
    let mut settled = 0;
    while settled < count {
        let request = store::ClaimRequest { items: limits::BATCH_ITEMS, ..claim_request(0) };
        let claim = store.claim(request).await.unwrap();
        assert!(!claim.chunks.is_empty(), "{settled} of {count}: {claim:?}");
        for chunk in &claim.chunks {
            settle_all(store, chunk, Disposition::Ended(State::Delivered)).await;
            settled += chunk.deliveries.len();
        }
    }
}
