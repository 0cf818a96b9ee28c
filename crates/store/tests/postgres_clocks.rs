//! Processes on machines whose clocks are wrong, are set, or were asleep: all go by the database's.

#![expect(clippy::unwrap_used, reason = "the helpers of a test fail by panicking")]

mod support;

use std::time::Duration;

use flow::{Clock, Steering};
use notification::{Chunk, Ticket, Timestamp, limits};
use store::conformance::{Shape, claim_request};
use store::postgres::Options;
use store::{Claim, ClaimRequest, Claims, Postgres, TakeTickets};

use support::fresh;

/// Amounts by which the clocks are set, ms.
const STEPS: [i64; 2] = [-60_000, 60_000];

/// A process of the cluster at `url` on a machine whose clock is off by `off` milliseconds when it starts.
async fn open_off(options: Options, off: i64) -> (Postgres, &'static Steering) {
    let (clock, steering) = Clock::system().steered();
    steering.step(off);
    (Postgres::open(options, clock).await.unwrap(), steering)
}

/// The time that `clock` shows.
fn now(clock: Clock) -> Timestamp {
    Timestamp::from_millis(i64::try_from(clock.wall().as_millis()).unwrap())
}

/// Stores a notification that is due, and one that will be in half a minute.
async fn ingest_now_and_later(store: &Postgres) {
    let now = now(Clock::system());
    for due_at in [now.minus(Duration::from_secs(1)), now.plus(Duration::from_secs(30))] {
        let shape = Shape { due_at: due_at.millis(), ..Shape::default() };
        shape.ingest(store, 1).await;
    }
}

async fn claim<T>(store: &Postgres, now: Timestamp) -> Claim<T>
where
    Postgres: Claims<T>,
{
    let request = ClaimRequest { now, lease: limits::TICKET_LEASE, ..claim_request(0) };
    Claims::<T>::claim(store, request).await.unwrap()
}

#[tokio::test]
async fn a_clock_that_is_wrong_or_set_or_was_asleep_shows_the_databases_time() {
    let database = fresh();
    for off in STEPS {
        let (store, steering) = open_off(Options::new(database.url()), off).await;
        let check = |what: &str| {
            let (shown, truth) = (now(store.clock()), now(Clock::system()));
            let apart = truth.since(shown).max(shown.since(truth));
            assert!(apart < Duration::from_secs(10), "{what}: {shown:?} is not {truth:?}");
        };
        check("wrong from the start");
        steering.step(-off);
        check("set right");
        steering.step(-off);
        check("set wrong the other way");
        store.close().await;
    }
}

#[tokio::test]
async fn nothing_is_claimed_before_it_is_due_by_a_process_whose_clock_is_ahead() {
    let database = fresh();
    let (store, _steering) = open_off(Options::new(database.url()), 0).await;
    ingest_now_and_later(&store).await;
    // As a process would claim whose estimate of the database's time is wrong: its clock was set back since the last beat.
    let ahead = now(Clock::system()).plus(Duration::from_mins(1));
    let chunks = claim::<Chunk>(&store, ahead).await.chunks;
    assert_eq!(chunks.len(), 1, "one of the two is not due yet: {chunks:?}");
    assert!(chunks[0].lease_until < ahead, "its lease is measured by the database's clock too");
    assert_eq!(claim::<Chunk>(&store, ahead).await.chunks, [], "and does not end early");
}

#[tokio::test]
async fn no_ticket_is_void_because_a_consumers_clock_is_wrong() {
    let database = fresh();
    let (producer, _steering) = open_off(Options::new(database.url()), 0).await;
    for off in STEPS {
        let options = Options { produces: false, ..Options::new(database.url()) };
        let (consumer, steering) = open_off(options, off).await;
        Shape::default().ingest(&producer, 3).await;
        let [ticket]: [Ticket; 1] =
            claim(&producer, now(producer.clock())).await.chunks.try_into().unwrap();
        steering.step(-2 * off);
        let asked_at = now(Clock::system()).plus(Duration::from_mins(1));
        let taken = consumer.take(vec![ticket], asked_at, limits::LEASE).await.unwrap();
        let chunk = taken[0].as_ref().unwrap();
        assert_eq!(chunk.deliveries.len(), 3);
        support::deliver(&consumer, chunk).await;
        consumer.close().await;
    }
}
