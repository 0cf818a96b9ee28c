//! The blame when a worker is declared dead.

use flow::{Clock, Tasks};
use notification::{Chunk, State, Ticket, limits};
use testbed::Database;
use tokio_postgres::NoTls;

use super::{Options, Postgres};
use crate::conformance::{Shape, claim_request, the_books_balance};
use crate::{Claim, ClaimRequest, Claims, Ending, ReadStore as _};

/// Reason for which a worker is declared dead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Its process is gone, and its connections with it.
    Killed,
    /// Its process, stopped or cut off, or its machine: its connections are still open.
    Silent,
    /// The process said so itself.
    Said(Ending),
}

async fn join(database: &Database) -> Postgres {
    Postgres::open(Options::new(database.url()), Clock::system()).await.unwrap()
}

/// Has a worker that holds something end, and waits until `other` has taken over from it.
async fn end(database: &Database, worker: Postgres, way: Way, other: &Postgres) {
    let id = worker.membership.borrow().worker;
    let mut changes = other.changes.clone();
    let (session, connection) = tokio_postgres::connect(database.url(), NoTls).await.unwrap();
    let mut driver = Tasks::default();
    driver.spawn("session", async move { connection.await.unwrap() });
    match way {
        Way::Said(ending) => worker.end(ending).await,
        Way::Killed | Way::Silent => drop(worker),
    }
    // The server may take a moment to see that a connection is closed.
    let gone = format!(
        "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity, belfry.worker \
         WHERE worker.id = {id} AND pid = worker.backend"
    );
    database.query(&gone).unwrap();
    if way == Way::Silent {
        let keep = "UPDATE belfry.worker SET backend = pg_backend_pid() WHERE id = $1";
        assert_eq!(session.execute(keep, &[&id]).await.unwrap(), 1);
    }
    let silence = format!(
        "UPDATE belfry.worker SET alive_until = clock_timestamp() - interval '1 second' \
         WHERE id = {id}; NOTIFY belfry_cluster"
    );
    database.query(&silence).unwrap();
    let is_there = format!("SELECT count(*) FROM belfry.worker WHERE id = {id}");
    while database.query(&is_there).unwrap().trim() != "0" {
        changes.changed().await.unwrap();
    }
    drop(session);
    driver.drain().await;
}

/// Claims all that is due.
async fn claim(store: &Postgres) -> Vec<Chunk> {
    let now = Clock::system().wall().as_millis();
    let request = claim_request(i64::try_from(now).unwrap());
    let claim: Claim<Chunk> =
        store.claim(ClaimRequest { lease: limits::LEASE, ..request }).await.unwrap();
    claim.chunks
}

/// A store with two workers: one that owns every partition and is about to claim, and one that only watches.
async fn worker_and_other(database: &Database) -> (Postgres, Postgres) {
    let other = Options { produces: false, ..Options::new(database.url()) };
    let other = Postgres::open(other, Clock::system()).await.unwrap();
    let worker = join(database).await;
    let mut membership = worker.membership.clone();
    let owns_all = |membership: &super::writer_state::Membership| {
        membership.partitions.len() == usize::from(limits::PARTITIONS)
    };
    membership.wait_for(owns_all).await.unwrap();
    (worker, other)
}

#[tokio::test]
async fn only_a_process_that_is_gone_or_failed_counts_as_a_crash() {
    for (way, expect) in [
        (Way::Killed, "1"),
        (Way::Silent, "0"),
        (Way::Said(Ending::Left), "0"),
        (Way::Said(Ending::Faulted), "1"),
    ] {
        let database = testbed::postgres::shared().unwrap().create().unwrap();
        let (worker, other) = worker_and_other(&database).await;
        Shape::default().ingest(&worker, 5).await;
        assert_eq!(claim(&worker).await.len(), 1);
        end(&database, worker, way, &other).await;
        let counted = database.query("SELECT crashes FROM belfry.chunk").unwrap();
        assert_eq!(counted.trim(), expect, "{way:?}");
        the_books_balance(&other).await;
    }
}

#[tokio::test]
async fn suspects_are_divided_and_the_last_one_alone_is_quarantined() {
    let database = testbed::postgres::shared().unwrap().create().unwrap();
    let (worker, other) = worker_and_other(&database).await;
    Shape::default().ingest(&worker, 32).await;
    database.query("UPDATE belfry.chunk SET crashes = 2").unwrap();
    assert_eq!(claim(&worker).await.len(), 1);
    end(&database, worker, Way::Killed, &other).await;
    let parts = "SELECT count(*), count(DISTINCT due_at), min(count), max(count), min(crashes), max(crashes) \
         FROM belfry.chunk";
    assert_eq!(database.query(parts).unwrap().trim(), "16|16|2|2|3|3");
    the_books_balance(&other).await;
}

#[tokio::test]
async fn one_alone_is_quarantined_and_a_crash_without_suspects_clears_the_others() {
    let database = testbed::postgres::shared().unwrap().create().unwrap();
    let (worker, other) = worker_and_other(&database).await;
    let poison = Shape::default().ingest(&worker, 1).await;
    let later = Shape { destination: "later", due_at: 90_000_000_000_000, ..Shape::default() };
    later.ingest(&worker, 1).await;
    let suspect = "UPDATE belfry.chunk SET crashes = CASE due_at WHEN 0 THEN 26 ELSE 20 END";
    database.query(suspect).unwrap();
    assert_eq!(claim(&worker).await.len(), 1);
    end(&database, worker, Way::Killed, &other).await;
    let history = other.reader().find(poison[0]).await.unwrap().unwrap();
    assert_eq!(history.state, State::Dead);
    assert!(history.attempts[0].detail.starts_with("quarantined: "), "{history:?}");
    let crashes = "SELECT destination, crashes FROM belfry.chunk JOIN belfry.tenant_lane AS lane ON lane.id = chunk.lane \
         ORDER BY destination";
    assert_eq!(database.query(crashes).unwrap().trim(), "later|20", "a suspect was in flight");

    let (worker, _other) = worker_and_other(&database).await;
    Shape::default().ingest(&worker, 1).await;
    assert_eq!(claim(&worker).await.len(), 1);
    end(&database, worker, Way::Killed, &other).await;
    assert_eq!(database.query(crashes).unwrap().trim(), "here|1\nlater|3");
    the_books_balance(&other).await;
}

#[tokio::test]
async fn what_waits_as_a_ticket_was_in_flight_nowhere() {
    let database = testbed::postgres::shared().unwrap().create().unwrap();
    let (worker, other) = worker_and_other(&database).await;
    Shape::default().ingest(&worker, 5).await;
    let request = claim_request(i64::try_from(Clock::system().wall().as_millis()).unwrap());
    let tickets: Claim<Ticket> = worker.claim(request).await.unwrap();
    assert_eq!(tickets.chunks.len(), 1);
    end(&database, worker, Way::Killed, &other).await;
    assert_eq!(database.query("SELECT crashes FROM belfry.chunk").unwrap().trim(), "0");
}
