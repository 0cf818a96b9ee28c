//! Broadcasts that are larger than one slice.

use std::any::Any;
use std::path::Path;
use std::sync::Arc;

use notification::{Disposition, Pause, Scope, State, limits, sample};

use super::disk::Statvfs;
use super::files::WalBounds;
use super::open::Options;
use super::release::SliceResult;
use super::writer::Durability::Synced;
use crate::conformance::{
    BroadcastShape, at, claim_all, exercise_slices, settle_all, the_books_balance,
};
use crate::rows::release::Slicing;
use crate::{CancelTarget, Ingest as _, Operations as _, ReadStore as _, RecipientGroup, Sqlite};

/// A store whose slices are one batch each, and are made one by one.
fn open(directory: &Path) -> Sqlite {
    let slicing = Slicing { batches: 1, goes_on: false };
    let bounds = (Arc::new(Statvfs) as _, (WalBounds::DEFAULT, slicing));
    Sqlite::open_within(directory, Options::new(1), bounds, at(0)).unwrap().0
}

async fn make_slice(store: &Sqlite) -> bool {
    store
        .write(Synced, |transaction| Ok(transaction.make_slice()? != SliceResult::Nothing))
        .await
        .unwrap()
}

/// Groups of one recipient each.
fn rare(destinations: std::ops::Range<usize>) -> Vec<RecipientGroup> {
    let group = |number: usize| {
        let recipients = vec!["one".into()];
        RecipientGroup { recipients, ..RecipientGroup::new(format!("there-{number}").into()) }
    };
    destinations.map(group).collect()
}

#[tokio::test]
async fn between_two_slices_every_answer_is_true() {
    let make = async || {
        let directory = tempfile::tempdir().unwrap();
        let store = Arc::new(open(directory.path()));
        (store, Box::new(directory) as Box<dyn Any + Send>)
    };
    exercise_slices(make, make_slice).await;
}

#[tokio::test]
async fn the_next_process_goes_on_with_what_the_last_one_left() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let id = BroadcastShape::default().open(&store, 1).await;
    store.add_recipients(id, rare(0..9), at(0)).await.unwrap();
    assert_eq!(store.seal_broadcast(id, at(1)).await.unwrap(), 10);
    assert!(make_slice(&store).await);
    assert_eq!(claim_all(&store, 1).await.len(), 2, "two slices are made");
    drop(store);
    let (store, recovery) = Sqlite::open(directory.path(), Options::new(1), at(2)).unwrap();
    assert_eq!((recovery.returned, recovery.abandoned_broadcasts), (2, 0));
    let mut changes = crate::Claims::changes(&store);
    let mut sent = 0;
    while sent < 10 {
        changes.borrow_and_update();
        let chunks = claim_all(&store, 2).await;
        for chunk in &chunks {
            settle_all(&store, chunk, Disposition::Ended(State::Delivered)).await;
            sent += chunk.deliveries.len();
        }
        if chunks.is_empty() {
            changes.changed().await.unwrap();
        }
    }
    the_books_balance(&store).await;
}

/// The writer looks for slices only while one may be due: of a paused broadcast none is, until it is cancelled.
#[tokio::test]
async fn what_is_cancelled_of_a_paused_broadcast_is_written_down() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let id = BroadcastShape::default().open(&store, 1).await;
    store.add_recipients(id, rare(0..3), at(0)).await.unwrap();
    assert_eq!(store.seal_broadcast(id, at(1)).await.unwrap(), 4);
    assert!(make_slice(&store).await);
    let tenant = sample::name("tenant");
    let pause = Pause { tenant: tenant.clone(), scope: Scope::Broadcast(id), since: at(3) };
    store.pause(pause).await.unwrap();
    assert!(!make_slice(&store).await);
    let may_wait = async || store.write(Synced, |made| Ok(made.state.waits)).await.unwrap();
    assert!(!may_wait().await);
    let cancelled = store.cancel(CancelTarget::Broadcast(id), tenant, at(4)).await.unwrap();
    assert_eq!(cancelled.unwrap().cancelled, 4);
    assert!(may_wait().await);
    while make_slice(&store).await {}
    the_books_balance(&store).await;
}

#[tokio::test]
async fn more_batches_than_a_slice_has_all_get_their_chunks() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = Sqlite::open(directory.path(), Options::new(1), at(0)).unwrap();
    let batches = 2 * limits::SLICE_BATCHES + 10;
    let id = BroadcastShape::default().open(&store, 1).await;
    store.add_recipients(id, rare(1..batches), at(0)).await.unwrap();
    assert_eq!(store.seal_broadcast(id, at(1)).await.unwrap(), batches as u64);
    let mut changes = crate::Claims::changes(&store);
    let mut sent = 0;
    while sent < batches {
        changes.borrow_and_update();
        let chunks = claim_all(&store, 2).await;
        sent += chunks.len();
        if chunks.is_empty() {
            changes.changed().await.unwrap();
        }
    }
    assert_eq!(sent, batches);
    the_books_balance(&store).await;
    assert_eq!(
        store.reader().broadcast(id).await.unwrap().unwrap().account.pending,
        batches as u64
    );
}
