//! Refusals, and work that goes on, while a disk fills up. The disk has as much room as the test says.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use notification::limits::{
    DISK_LOOK, DISK_LOW, DISK_RESERVE, DISK_RESERVE_LAST, DISK_RESUME, DISK_TRANSACTION,
};
use notification::{Disposition, State};
use tempfile::TempDir;

use super::disk::FreeSpace;
use super::files::WalBounds;
use super::open::Options;
use super::{Sqlite, SqliteReader};
use crate::conformance::{BroadcastShape, Shape, at, claim_request, settle_all, the_books_balance};
use crate::rows::evidence::EvidenceBook;
use crate::rows::release::Slicing;
use crate::{Claims, Ingest, Operations, ReadStore, Recovery, StoreError};

/// More than the log of these stores, which the database has yet to grow by.
const LOG: u64 = 4 * 1024 * 1024;

/// A disk of which other programs use all but a number of bytes, and none of the reserve.
#[derive(Debug)]
struct Steered(AtomicU64);

impl Steered {
    /// Leaves `bytes` to the store, beside a reserve that is full.
    fn set(&self, bytes: u64) {
        self.0.store(bytes + DISK_RESERVE, Ordering::Relaxed);
    }
}

impl FreeSpace for Steered {
    fn free_bytes(&self, directory: &Path) -> io::Result<u64> {
        Ok(self.0.load(Ordering::Relaxed) - reserve(directory))
    }
}

fn reserve(directory: &Path) -> u64 {
    directory.join("belfry.reserve").metadata().unwrap().len()
}

fn open(directory: &Path, disk: &Arc<Steered>) -> (Sqlite, Recovery) {
    let disk = Arc::clone(disk) as Arc<dyn FreeSpace>;
    Sqlite::open_within(
        directory,
        Options::new(1),
        (disk, (WalBounds::DEFAULT, Slicing::DEFAULT)),
        at(0),
    )
    .unwrap()
}

fn fresh() -> (TempDir, Arc<Steered>, Sqlite) {
    let directory = tempfile::tempdir().unwrap();
    let disk = Arc::new(Steered(AtomicU64::new(1 << 40)));
    let store = open(directory.path(), &disk).0;
    (directory, disk, store)
}

async fn refusal(store: &Sqlite) -> Option<StoreError> {
    store.ingest(Shape::default().drafts(1), at(0)).await.err()
}

#[tokio::test]
async fn a_disk_that_is_nearly_full_stops_what_comes_in_and_nothing_else() {
    let (_directory, disk, store) = fresh();
    Shape::default().ingest(&store, 3).await;
    let broadcast = BroadcastShape::default().open(&store, 3).await;
    let accepts = store.accepts();
    disk.set(DISK_LOW - 1);
    let refused = refusal(&store).await.unwrap();
    assert!(
        matches!(&refused, StoreError::NoSpace(words) if words.contains("192 MiB")),
        "{refused}"
    );
    assert!(!*accepts.borrow());
    let group = || crate::conformance::groups(1);
    let added = store.add_recipients(broadcast, group(), at(0)).await;
    assert_eq!(added, Err(refused.clone()));
    assert_eq!(store.seal_broadcast(broadcast, at(0)).await, Err(refused.clone()));
    let opened = store.open_broadcast(BroadcastShape::default().draft(), at(0)).await;
    assert_eq!(opened.map(drop), Err(refused));

    let claim = store.claim(claim_request(0)).await.unwrap();
    assert_eq!(claim.next_at, Some(at(0).plus(DISK_LOOK)), "somebody has to look again");
    settle_all(&store, &claim.chunks[0], Disposition::Ended(State::Delivered)).await;
    store.abandon_broadcast(broadcast).await.unwrap();

    disk.set(DISK_RESUME - 1);
    assert!(refusal(&store).await.is_some(), "once it is low, it takes more to go on");
    disk.set(DISK_RESUME + LOG);
    assert_eq!(refusal(&store).await, None);
    disk.set(DISK_LOW + LOG);
    assert_eq!(refusal(&store).await, None);
    assert!(*accepts.borrow());
    assert_eq!(*store.failed().borrow(), None);
    the_books_balance(&store).await;
}

#[tokio::test]
async fn the_reserve_is_given_back_by_steps_and_filled_again() {
    let (directory, disk, store) = fresh();
    assert_eq!(reserve(directory.path()), DISK_RESERVE);
    let ids = Shape::default().ingest(&store, 3).await;
    let chunk = store.claim(claim_request(0)).await.unwrap().chunks.remove(0);
    let mut before = DISK_RESERVE;
    // Other programs take the bytes that were given back, each time.
    for free in [DISK_TRANSACTION - 1, 0, 0, 0] {
        disk.0.store(reserve(directory.path()) + free, Ordering::Relaxed);
        store.lift(Vec::new(), at(0)).await.unwrap();
        let left = reserve(directory.path());
        assert!(left < before && before - left <= DISK_TRANSACTION, "{left}");
        before = left;
    }
    assert!(before <= DISK_RESERVE_LAST);
    disk.0.store(before, Ordering::Relaxed);
    store.lift(Vec::new(), at(0)).await.unwrap();
    let nothing = store.claim(claim_request(0)).await.unwrap();
    assert_eq!((nothing.chunks.len(), nothing.next_at), (0, Some(at(0).plus(DISK_LOOK))));
    settle_all(&store, &chunk, Disposition::HandedBack { at: at(0) }).await;
    let nothing = store.claim(claim_request(0)).await.unwrap();
    assert_eq!(nothing.chunks.len(), 0, "there is no room to settle it");

    disk.set(DISK_RESUME + LOG);
    let again = store.claim(claim_request(0)).await.unwrap().chunks.remove(0);
    assert_eq!(again.notification_id(0), ids[0]);
    assert_eq!(reserve(directory.path()), DISK_RESERVE);
    assert_eq!(refusal(&store).await, None);
}

#[tokio::test]
async fn a_store_recovers_on_a_disk_whose_reserve_is_all_there_is() {
    let (directory, disk, store) = fresh();
    Shape::default().ingest(&store, 3).await;
    store.claim(claim_request(0)).await.unwrap();
    let killed = tempfile::tempdir().unwrap();
    for file in ["belfry.db", "belfry.db-wal", "belfry.reserve"] {
        std::fs::copy(directory.path().join(file), killed.path().join(file)).unwrap();
    }
    disk.set(0);
    let (next, recovery) = open(killed.path(), &disk);
    assert_eq!(recovery.returned, 3);
    assert!(!*next.accepts().borrow());
    assert_eq!(reserve(killed.path()), DISK_RESERVE - DISK_TRANSACTION);
    let chunk = next.claim(claim_request(0)).await.unwrap().chunks.remove(0);
    settle_all(&next, &chunk, Disposition::Ended(State::Delivered)).await;
    the_books_balance(&next).await;
    let reader = SqliteReader::open(
        killed.path(),
        super::reader::Beside::AnotherProcess,
        EvidenceBook::default(),
    )
    .unwrap();
    assert_eq!(reader.audit().await.unwrap().account.delivered, 3);
}

#[tokio::test]
async fn what_a_full_database_refuses_leaves_no_trace() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options { size_max: Some(1024 * 1024), ..Options::new(1) };
    let (store, _) = Sqlite::open(directory.path(), options, at(0)).unwrap();
    let there = Shape { destination: "there", ..Shape::default() };
    let many = (0..1_000).map(|number| there.draft(&format!("{number:02000}"))).collect();
    let (accepted, refused) =
        tokio::join!(store.ingest(Shape::default().drafts(5), at(0)), store.ingest(many, at(0)),);
    // They share a transaction, which is refused as a whole.
    let mut count = accepted.map_or(0, |ids| ids.len());
    assert!(matches!(refused, Err(StoreError::NoSpace(_))), "{refused:?}");
    for shape in [Shape { destination: "elsewhere", ..Shape::default() }, there] {
        count += shape.ingest(&store, 1).await.len();
    }
    let chunks = store.claim(claim_request(0)).await.unwrap().chunks;
    let claimed: usize = chunks.iter().map(|chunk| chunk.deliveries.len()).sum();
    assert_eq!(claimed, count);
    let lanes = store.reader().lanes().await.unwrap().lanes;
    for chunk in &chunks {
        let lane = lanes.iter().find(|it| it.lane == chunk.envelope.lane);
        assert!(lane.is_some_and(|lane| lane.claimed > 0), "{:?}", chunk.envelope.lane);
        settle_all(&store, chunk, Disposition::Ended(State::Delivered)).await;
    }
    assert_eq!(store.claim(claim_request(0)).await.unwrap().next_at, None);
    assert_eq!(*store.failed().borrow(), None);
    the_books_balance(&store).await;
}
