//! A large backlog of a channel that is not configured any more.

#![expect(clippy::unwrap_used, reason = "the helpers of a test fail by panicking")]

mod support;

use std::collections::BTreeSet;
use std::sync::Arc;

use notification::Timestamp;
use rusqlite::{Connection, OpenFlags};
use store::conformance::{Shape, at, claim_request, name};
use store::sqlite::{Options, Sqlite};
use store::{ClaimRequest, Store};
use tokio_postgres::NoTls;

/// Chunks that wait, each with a row of its own.
const ROWS: usize = 100_000;
/// Drafts a call.
const CALL: usize = 10_000;
/// Due time of all of them, ms.
const LATE: i64 = 200_000;
/// Claims while they are parked, as changes of other lanes would bring about.
const CLAIMS: usize = 10;

/// Takes all of them in, each due at another instant, so that each is a chunk.
async fn fill(store: &dyn Store) {
    for call in 0..ROWS / CALL {
        let draft = |number: usize| {
            let due_at = i64::try_from(call * CALL + number).unwrap();
            Shape { due_at, ..Shape::default() }.draft("somebody")
        };
        store.ingest((0..CALL).map(draft).collect(), at(0)).await.unwrap();
    }
}

async fn offer(store: &dyn Store, channel: &str) {
    store.offer(Arc::new(BTreeSet::from([name(channel)]))).await.unwrap();
}

async fn claim_some(store: &dyn Store) -> (usize, Option<Timestamp>) {
    let request = ClaimRequest { items: 5, ..claim_request(LATE) };
    let claim = store.claim(request).await.unwrap();
    (claim.chunks.len(), claim.next_at)
}

/// Parks everything, claims again and again, and has it back; `version` changes with every write to the store.
async fn is_parked_without_a_write<V: PartialEq + std::fmt::Debug>(
    store: &dyn Store,
    version: impl AsyncFn() -> V,
) {
    offer(store, "another").await;
    let before = version().await;
    for _ in 0..CLAIMS {
        assert_eq!(claim_some(store).await, (0, None), "and no timer will bring the next claim");
    }
    assert_eq!(version().await, before, "nothing was written");
    assert_eq!(store.reader().totals().await.unwrap().pending, ROWS as u64);
    let parked = store.reader().parked(BTreeSet::from([name("another")])).await.unwrap();
    let parked = parked.iter();
    let counted = parked.map(|it| (it.lanes, it.notifications, it.next_due_at, it.is_at_least));
    let counted: Vec<_> = counted.collect();
    assert_eq!(counted, [(1, 10_000, at(0), true)], "counting ends at a bound");
    offer(store, "channel").await;
    assert_eq!(claim_some(store).await.0, 5, "it is back at once");
    assert_ne!(version().await, before, "a claim is a write");
}

#[tokio::test]
async fn a_hundred_thousand_parked_chunks_cost_sqlite_no_write() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = Sqlite::open(directory.path(), Options::new(1), at(0)).unwrap();
    fill(&store).await;
    let file = directory.path().join("belfry.db");
    let other = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    let version =
        async || -> i64 { other.query_row("PRAGMA data_version", [], |row| row.get(0)).unwrap() };
    is_parked_without_a_write(&store, version).await;
}

#[tokio::test]
async fn a_hundred_thousand_parked_chunks_cost_postgresql_no_write() {
    let database = support::fresh();
    let store = support::open(database.url()).await;
    fill(&store).await;
    let (client, connection) = tokio_postgres::connect(database.url(), NoTls).await.unwrap();
    let mut tasks = flow::Tasks::default();
    tasks.spawn("test", async move { connection.await.unwrap() });
    // Every version of a row has the number of the transaction that wrote it.
    let version = async || -> (i64, i64) {
        let select = "SELECT count(*), max(xmin::text::int8) FROM belfry.chunk";
        let row = client.query_one(select, &[]).await.unwrap();
        (row.get(0), row.get(1))
    };
    is_parked_without_a_write(&store, version).await;
}
