//! Broadcasts that are larger than one slice.

use std::any::Any;
use std::sync::Arc;

use flow::Clock;
use notification::{Disposition, State, limits};
use testbed::Database;

use super::release::Releaser;
use super::setup_tests::{fresh, open};
use super::{Options, Postgres};
use crate::conformance::{
    BroadcastShape, at, claim_all, exercise_slices, settle_all, the_books_balance,
};
use crate::rows::release::Slicing;
use crate::{CancelTarget, Claims, Ingest as _, Operations as _, ReadStore as _, RecipientGroup};

/// A process whose slices are one batch each, and are made one by one.
async fn open_stepwise(database: &Database) -> Postgres {
    let slicing = Slicing { batches: 1, goes_on: false };
    Postgres::open_slicing(Options::new(database.url()), Clock::system(), slicing).await.unwrap()
}

async fn make_slice(store: &Postgres) -> bool {
    Releaser::new(&store.intake, &store.work, &Arc::default()).make_slice().await.unwrap()
}

/// Groups of one recipient each.
fn rare(destinations: std::ops::Range<usize>) -> Vec<RecipientGroup> {
    let group = |number: usize| {
        let recipients = vec!["one".into()];
        RecipientGroup { recipients, ..RecipientGroup::new(format!("there-{number}").into()) }
    };
    destinations.map(group).collect()
}

/// Claims and delivers until `count` are sent.
async fn deliver(store: &Postgres, count: usize) {
    let mut changes = Claims::<notification::Chunk>::changes(store);
    let mut sent = 0;
    while sent < count {
        changes.borrow_and_update();
        let chunks = claim_all(store, 5).await;
        for chunk in &chunks {
            settle_all(store, chunk, Disposition::Ended(State::Delivered)).await;
            sent += chunk.deliveries.len();
        }
        if chunks.is_empty() {
            changes.changed().await.unwrap();
        }
    }
    assert_eq!(sent, count);
}

#[tokio::test]
async fn between_two_slices_every_answer_is_true() {
    let make = async || {
        let database = fresh();
        let store = Arc::new(open_stepwise(&database).await);
        (store, Box::new(database) as Box<dyn Any + Send>)
    };
    exercise_slices(make, make_slice).await;
}

#[tokio::test]
async fn another_process_goes_on_with_what_one_left() {
    let database = fresh();
    let store = open_stepwise(&database).await;
    let id = BroadcastShape::default().open(&store, 1).await;
    store.add_recipients(id, rare(0..9), at(0)).await.unwrap();
    assert_eq!(store.seal_broadcast(id, at(1)).await.unwrap(), 10);
    assert!(make_slice(&store).await);
    store.close().await;
    drop(store);
    let other = open(&database).await;
    deliver(&other, 10).await;
    the_books_balance(&other).await;
    assert_eq!(other.reader().broadcast(id).await.unwrap().unwrap().account.delivered, 10);
}

/// The server refuses a statement that stores more chunks, or more rows of the log, than a slice has batches.
const REFUSE_MORE: &str = "CREATE FUNCTION belfry.refuse_more() RETURNS trigger LANGUAGE plpgsql AS $$ \
     BEGIN IF (SELECT count(*) FROM new) > 2048 THEN RAISE EXCEPTION 'more than a slice'; END IF; RETURN NULL; END $$; \
     CREATE TRIGGER refuse_more AFTER INSERT ON belfry.chunk REFERENCING NEW TABLE AS new \
       FOR EACH STATEMENT EXECUTE FUNCTION belfry.refuse_more(); \
     CREATE TRIGGER refuse_more AFTER INSERT ON belfry.log REFERENCING NEW TABLE AS new \
       FOR EACH STATEMENT EXECUTE FUNCTION belfry.refuse_more()";

#[tokio::test]
async fn ten_slices_of_batches_are_sealed_and_withdrawn_a_slice_at_a_time() {
    const BATCHES: usize = 20_000;
    const GROUPS: usize = 5_000;
    const SENT: usize = 10;
    let database = fresh();
    let store = open(&database).await;
    assert_eq!(limits::SLICE_BATCHES, 2_048, "the server is told so");
    database.query(REFUSE_MORE).unwrap();
    let id = BroadcastShape::default().open(&store, 0).await;
    for first in (0..BATCHES).step_by(GROUPS) {
        store.add_recipients(id, rare(first..first + GROUPS), at(0)).await.unwrap();
    }
    assert_eq!(store.seal_broadcast(id, at(1)).await.unwrap(), BATCHES as u64);
    the_books_balance(&store).await;
    // All have their chunks, or will have: a few are sent meanwhile.
    let request = crate::ClaimRequest { items: SENT, ..crate::conformance::claim_request(5) };
    let chunks = Claims::<notification::Chunk>::claim(&store, request).await.unwrap().chunks;
    assert_eq!(chunks.len(), SENT);
    for chunk in &chunks {
        settle_all(&store, chunk, Disposition::Ended(State::Delivered)).await;
    }
    let cancelled = store
        .cancel(CancelTarget::Broadcast(id), crate::conformance::name("tenant"), at(2))
        .await
        .unwrap()
        .unwrap();
    assert_eq!((cancelled.cancelled, cancelled.ended), ((BATCHES - SENT) as u64, SENT as u64));
    the_books_balance(&store).await;
    let account = store.reader().broadcast(id).await.unwrap().unwrap().account;
    assert_eq!((account.delivered, account.pending), (SENT as u64, 0));
    assert!(claim_all(&store, 5).await.is_empty());
}
