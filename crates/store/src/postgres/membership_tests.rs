//! Several processes, as they come, go, and fail.

use std::collections::BTreeSet;

use flow::Clock;
use futures_util::future::join_all;
use notification::{Chunk, limits};
use testbed::Database;
use tokio_postgres::NoTls;

use super::connection::Connector;
use super::pause_view::KnownPauses;
use super::setup_tests::until_blocked;
use super::writer_state::Membership;
use super::{Options, Postgres};
use crate::conformance::{Shape, claim_request};
use crate::{Claim, Claims as _, ReadStore as _};

async fn join(database: &Database, produces: bool) -> Postgres {
    let options = Options { produces, ..Options::new(database.url()) };
    Postgres::open(options, Clock::system()).await.unwrap()
}

/// Waits until all producers know of each other, and their shares differ by one at most.
async fn settle(stores: &[Postgres]) {
    let count = stores.len();
    let low = usize::from(limits::PARTITIONS) / count;
    let high = usize::from(limits::PARTITIONS).div_ceil(count);
    let is_fair = |membership: &Membership| {
        membership.producers == count && (low..=high).contains(&membership.partitions.len())
    };
    join_all(stores.iter().map(async |store| {
        let mut membership = store.membership.clone();
        membership.wait_for(is_fair).await.map(drop).unwrap();
    }))
    .await;
    let owned = || -> Vec<i16> {
        stores.iter().flat_map(|store| store.membership.borrow().partitions.clone()).collect()
    };
    // One that was given up is its next owner's from the beat of that one on.
    while owned().len() < usize::from(limits::PARTITIONS) {
        tokio::task::yield_now().await;
    }
    let owned = owned();
    let distinct: BTreeSet<i16> = owned.iter().copied().collect();
    assert_eq!((owned.len(), distinct.len()), (64, 64), "each partition has one owner");
}

/// Makes a worker overdue, as if it had been silent for long, and wakes the other workers.
async fn silence(database: &Database, worker: i64) {
    let (client, connection) = tokio_postgres::connect(database.url(), NoTls).await.unwrap();
    let mut tasks = flow::Tasks::default();
    tasks.spawn("test", async move { connection.await.unwrap() });
    let silence = "UPDATE belfry.worker SET alive_until = clock_timestamp() - interval '1 second' WHERE id = $1";
    assert_eq!(client.execute(silence, &[&worker]).await.unwrap(), 1);
    client.batch_execute("NOTIFY belfry_cluster").await.unwrap();
    drop(client);
    tasks.drain().await;
}

#[tokio::test]
async fn partitions_are_shared_evenly_as_processes_come_and_go() {
    let database = testbed::postgres::shared().unwrap().create().unwrap();
    let consumer = join(&database, false).await;
    let mut stores = vec![join(&database, true).await];
    settle(&stores).await;
    for count in [2, 3, 9] {
        while stores.len() < count {
            stores.push(join(&database, true).await);
        }
        settle(&stores).await;
    }
    assert_eq!(consumer.partitions(), 0);
    let left: Vec<Postgres> = stores.drain(2..6).collect();
    join_all(left.iter().map(Postgres::close)).await;
    settle(&stores).await;
    let cluster = consumer.reader().cluster().await.unwrap().unwrap();
    assert_eq!((cluster.workers.len(), cluster.partitions_free), (6, 0));
    assert_eq!(cluster.workers.iter().map(|worker| worker.partitions).sum::<u16>(), 64);
}

#[tokio::test]
async fn who_is_silent_for_too_long_is_reaped_and_joins_anew_when_it_comes_back() {
    let database = testbed::postgres::shared().unwrap().create().unwrap();
    let mut stores = vec![join(&database, true).await, join(&database, true).await];
    settle(&stores).await;
    // Gone without a word.
    let gone = stores.pop().unwrap();
    let worker = gone.membership.borrow().worker;
    drop(gone);
    silence(&database, worker).await;
    settle(&stores).await;
    // Reaped by another process while it is alive: it finds out at its next beat.
    let first = stores[0].membership.borrow().worker;
    let remove = format!("DELETE FROM belfry.worker WHERE id = {first}; NOTIFY belfry_cluster");
    database.query(&remove).unwrap();
    let mut membership = stores[0].membership.clone();
    membership.wait_for(|membership| membership.worker != first).await.unwrap();
    settle(&stores).await;
    let workers = stores[0].reader().cluster().await.unwrap().unwrap().workers;
    assert_eq!(workers.len(), 1, "{workers:?}");
    assert!(workers[0].id > worker && workers[0].alive_for > limits::WORKER_BEAT);
}

/// A lease of that claim would have been chosen by pauses that were in force before the process came back.
#[tokio::test]
async fn a_claim_from_before_its_process_was_removed_leases_nothing_when_that_is_back() {
    let database = testbed::postgres::shared().unwrap().create().unwrap();
    let store = join(&database, true).await;
    settle(std::slice::from_ref(&store)).await;
    Shape::default().ingest(&store, 3).await;
    let mut tasks = flow::Tasks::default();
    let mut connect = async || {
        let (client, connection) = tokio_postgres::connect(database.url(), NoTls).await.unwrap();
        tasks.spawn("client", async move { connection.await.unwrap() });
        client
    };
    let (rival, observer) = (connect().await, connect().await);
    // A claim reads batches after it has read its worker and its pauses. Their index is locked and not their table, whose size some
    // transactions query when they begin.
    rival.batch_execute("BEGIN; REINDEX INDEX belfry.batch_pkey").await.unwrap();
    let coming_back = async {
        until_blocked(&observer).await;
        let first = store.membership.borrow().worker;
        let remove = format!("DELETE FROM belfry.worker WHERE id = {first}; NOTIFY belfry_cluster");
        database.query(&remove).unwrap();
        let is_back = |membership: &Membership| {
            membership.worker != first
                && membership.partitions.len() == usize::from(limits::PARTITIONS)
        };
        store.membership.clone().wait_for(is_back).await.map(drop).unwrap();
        rival.batch_execute("COMMIT").await.unwrap();
    };
    let now = i64::try_from(Clock::system().wall().as_millis()).unwrap();
    let claim = async || -> Claim<Chunk> { store.claim(claim_request(now)).await.unwrap() };
    let (claimed, ()) = tokio::join!(claim(), coming_back);
    assert_eq!(claimed.chunks.len(), 0, "{:?}", claimed.chunks);
    assert_eq!(claim().await.chunks.len(), 1, "the next one claims for the worker that it is now");
    drop((rival, observer));
    tasks.drain().await;
}

/// The API keys go by the same version, and were read for the one that was looked at.
#[tokio::test]
async fn a_worker_says_the_version_that_it_looked_at_and_none_that_came_meanwhile() {
    let database = testbed::postgres::shared().unwrap().create().unwrap();
    join(&database, true).await.close().await;
    let session =
        Connector::new(database.url(), "test", None).unwrap().connect(None).await.unwrap();
    let change = "INSERT INTO worker (id, name, version, produces, consumes, alive_until) OVERRIDING SYSTEM VALUE \
         VALUES (77, 'slow', '1', true, true, clock_timestamp() + interval '1 hour'); \
         UPDATE meta SET value = 7 WHERE key = 'pauses'";
    session.client.batch_execute(change).await.unwrap();
    // A look saw 6, and a key was revoked between the look and this.
    KnownPauses::default().follow(&session, (77, 6), None).await.unwrap();
    let said = session.client.query_one("SELECT pauses FROM worker WHERE id = 77", &[]).await;
    assert_eq!(said.unwrap().get::<_, i64>(0), 6);
}
