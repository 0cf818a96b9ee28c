//! Pauses: one is answered when no claim is under way that began without it, so a cancellation counts the deliveries that it
//! cannot cancel.
#![cfg(feature = "postgres")]
#![expect(clippy::unwrap_used, reason = "the helpers of a test fail by panicking")]

mod support;

use notification::{Chunk, Disposition, Name, Pause, Scope};
use store::conformance::{Shape, at, claim_request, name, settle_all, the_books_balance};
use store::{
    Begin, CancelPage, CancelScope, Claim, Claims, Ingest, Operations, Paused, Postgres, ReadStore,
};
use support::{fresh, open, open_consumer};
use testbed::Database;
use tokio_postgres::{Client, NoTls};

/// Commits of claims wait for a lock that the test has, as long as a statement may take.
const HOLD_CLAIMS: &str = "CREATE FUNCTION belfry.hold() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
     PERFORM set_config('lock_timeout', '0', true), pg_advisory_xact_lock(77); RETURN NULL; END $$; \
     CREATE CONSTRAINT TRIGGER hold AFTER UPDATE ON belfry.chunk DEFERRABLE INITIALLY DEFERRED FOR EACH ROW \
       WHEN (OLD.lease_until IS NULL AND NEW.lease_until IS NOT NULL) EXECUTE FUNCTION belfry.hold()";
/// End of the lease of the worker that owns partitions, in microseconds, and the version of the pauses that it follows.
const PRODUCER: &str = "SELECT (extract(epoch FROM alive_until) * 1000000)::int8, pauses FROM belfry.worker WHERE produces";

#[tokio::test]
async fn a_pause_waits_for_a_claim_that_began_before_it_and_a_cancellation_counts_that() {
    let database = fresh();
    let producer = open(database.url()).await;
    let operator = open_consumer(database.url()).await;
    // In the last channel of the walk, so that a call of its own looks at it.
    ingest(&producer, "z", 2).await;
    let rival = connect(&database).await;
    rival.batch_execute(HOLD_CLAIMS).await.unwrap();
    rival.batch_execute("SELECT pg_advisory_lock(77)").await.unwrap();
    let cancelling = async {
        await_a_waiting_lock(&database).await;
        // New notifications are not claimed, since the writer that claims is held up.
        ingest(&producer, "a", 3).await;
        let mut pausing = std::pin::pin!(operator.pause(pause()));
        tokio::select! {
            biased;
            answered = &mut pausing => panic!("a claim is under way that began without it: {answered:?}"),
            () = view_and_beat(&database, &producer) => {}
        }
        let observer = connect(&database).await;
        let (_, said) = producer_row(&observer).await;
        let first = observer.query_one("SELECT value FROM belfry.meta WHERE key = 'pauses'", &[]);
        assert!(said < first.await.unwrap().get(0), "it does not say that it goes by the pause");
        rival.batch_execute("SELECT pg_advisory_unlock(77)").await.unwrap();
        let paused = pausing.await.unwrap();
        assert!(matches!(paused, Paused::InForce { is_everywhere: true, .. }), "{paused:?}");
        cancel_all(&operator).await
    };
    let (claimed, cancelled) = tokio::join!(producer.claim(claim_request(0)), cancelling);
    let claimed: Claim<Chunk> = claimed.unwrap();
    let deliveries = |chunk: &Chunk| chunk.deliveries.len();
    assert_eq!(claimed.chunks.iter().map(deliveries).sum::<usize>(), 2);
    assert_eq!(cancelled, (3, 2), "what is under way is counted, and the rest cancelled");
    let again: Claim<Chunk> = producer.claim(claim_request(0)).await.unwrap();
    assert_eq!(again.chunks.len(), 0, "nothing is begun after that");
    // Handed back behind the walk: a second cancellation finds it.
    for chunk in &claimed.chunks {
        settle_all(&producer, chunk, Disposition::HandedBack { at: at(0) }).await;
    }
    assert_eq!(cancel_all(&operator).await, (2, 0));
    assert_eq!(operator.reader().totals().await.unwrap().cancelled, 5);
    the_books_balance(&operator).await;
}

/// A process that was stopped within a claim holds its worker's row, by which it is not reaped before the claim has ended.
#[tokio::test]
async fn a_pause_waits_until_a_worker_whose_lease_is_over_is_removed_with_its_claim() {
    let database = fresh();
    let operator = open(database.url()).await;
    ingest(&operator, "z", 2).await;
    let stopped = connect(&database).await;
    let join = "INSERT INTO belfry.worker (name, version, produces, consumes, alive_until) \
         VALUES ('stopped', '', false, true, clock_timestamp() - interval '1 second')";
    stopped.batch_execute(join).await.unwrap();
    let claim = "BEGIN; SELECT FROM belfry.worker WHERE name = 'stopped' FOR KEY SHARE; \
         UPDATE belfry.chunk SET lease_until = 9000000000000, epoch = epoch + 1, \
           worker = (SELECT id FROM belfry.worker WHERE name = 'stopped')";
    stopped.batch_execute(claim).await.unwrap();
    let mut pausing = std::pin::pin!(operator.pause(pause()));
    tokio::select! {
        biased;
        answered = &mut pausing => panic!("its claim may be committed yet: {answered:?}"),
        () = view_and_beat(&database, &operator) => {}
    }
    stopped.batch_execute("COMMIT").await.unwrap();
    let paused = pausing.await.unwrap();
    assert!(matches!(paused, Paused::InForce { is_everywhere: true, .. }), "{paused:?}");
    assert_eq!(cancel_all(&operator).await, (2, 0), "its claim has ended, and what it held waits");
    the_books_balance(&operator).await;
}

#[tokio::test]
async fn pauses_that_follow_each_other_are_all_answered() {
    let database = fresh();
    let stores = [open(database.url()).await, open_consumer(database.url()).await];
    for round in 0..10_i64 {
        let [one, other] = [0, 1].map(|number: i64| {
            let channel = name(&format!("channel-{round}-{number}"));
            Pause { scope: Scope::Channel(channel), ..pause() }
        });
        let (one, other) = tokio::join!(stores[0].pause(one), stores[1].pause(other));
        for paused in [one.unwrap(), other.unwrap()] {
            assert!(matches!(paused, Paused::InForce { is_everywhere: true, .. }), "{paused:?}");
        }
    }
}

fn pause() -> Pause {
    Pause { tenant: tenant(), scope: Scope::Tenant, since: at(1) }
}

fn tenant() -> Name {
    name("tenant")
}

async fn ingest(store: &Postgres, channel: &str, count: usize) {
    let mut drafts = Shape::default().drafts(count);
    for draft in &mut drafts {
        draft.envelope.lane.channel = name(channel);
    }
    assert_eq!(store.ingest(drafts, at(0)).await.unwrap().len(), count);
}

/// Waits until `store` follows a pause and has beaten twice since: a beat would have reported that.
async fn view_and_beat(database: &Database, store: &Postgres) {
    let mut view = store.watch_pauses();
    view.wait_for(|pauses| !pauses.is_empty()).await.unwrap();
    let client = connect(database).await;
    for _ in 0..2 {
        let (before, _) = producer_row(&client).await;
        client.batch_execute("NOTIFY belfry_cluster").await.unwrap();
        while producer_row(&client).await.0 == before {}
    }
}

async fn producer_row(client: &Client) -> (i64, i64) {
    let row = client.query_one(PRODUCER, &[]).await.unwrap();
    (row.get(0), row.get(1))
}

/// Cancels all of the tenant's; how many were cancelled, and how many are under way.
async fn cancel_all(store: &Postgres) -> (u64, u64) {
    let (mut cancelled, mut under_way) = (0, 0);
    let mut request = CancelScope {
        tenant: tenant(),
        scope: Scope::Tenant,
        from: None,
        is_dry: false,
        now: at(2),
    };
    loop {
        let page: CancelPage = store.cancel_scope(request.clone()).await.unwrap().unwrap();
        (cancelled, under_way) = (cancelled + page.cancelled, under_way + page.under_way);
        if page.next.is_none() {
            return (cancelled, under_way);
        }
        request.from = page.next;
    }
}

async fn connect(database: &Database) -> Client {
    let (client, connection) = tokio_postgres::connect(database.url(), NoTls).await.unwrap();
    #[expect(clippy::disallowed_methods, reason = "it ends with the client")]
    let _driver = tokio::spawn(connection);
    client
}

/// Waits until a session waits for a lock that another transaction holds.
async fn await_a_waiting_lock(database: &Database) {
    let client = connect(database).await;
    let waiting = "SELECT count(*) > 0 FROM pg_stat_activity \
                   WHERE datname = current_database() AND wait_event_type = 'Lock'";
    while !client.query_one(waiting, &[]).await.unwrap().get::<_, bool>(0) {}
}
