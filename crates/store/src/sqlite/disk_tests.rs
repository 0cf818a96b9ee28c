//! Refusals, and work that goes on, while a disk fills up. The disk has as much room as the test says.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};

use notification::limits::{
    CHUNK_WEIGHT, DISK_LOOK, DISK_LOW, DISK_RESERVE, DISK_RESERVE_LAST, DISK_RESUME,
    DISK_TRANSACTION,
};
use notification::{Chunk, Disposition, Draft, Guarantee, State};
use tempfile::TempDir;
use tokio::sync::oneshot;

use super::disk::FreeSpace;
use super::files::WalBounds;
use super::open::Options;
use super::writer::Durability::WithTheNext;
use super::{Sqlite, SqliteReader};
use crate::conformance::{
    BroadcastShape, Shape, at, claim_request, part, settle_all, the_books_balance,
};
use crate::rows::evidence::EvidenceBook;
use crate::rows::release::Slicing;
use crate::{
    Admission, Begin, ClaimRequest, Claims, Ingest, Mark, MarkAnswer, Operations, ReadStore,
    Recovery, Settled, Settlements, StoreError,
};

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

/// Makes `calls`, which all hand in when they are polled first, one group of the writer.
async fn in_one_group<T>(store: &Sqlite, calls: impl Future<Output = T>) -> T {
    let (go_on, waits) = mpsc::sync_channel::<()>(1);
    let (tell, is_held) = oneshot::channel();
    let hold = store.write(WithTheNext, move |_| {
        tell.send(()).unwrap();
        waits.recv().unwrap();
        Ok(())
    });
    let group = async {
        is_held.await.unwrap();
        tokio::join!(biased; calls, async { go_on.send(()).unwrap() })
    };
    let (done, (answers, ())) = tokio::join!(biased; hold, group);
    done.unwrap();
    answers
}

/// Settles the first chunk, marks the second one, and hands `drafts` in, all within one group. Returns the answer to the drafts.
async fn accept_beside(
    store: &Sqlite,
    drafts: Vec<Draft>,
    [first, second]: &[Chunk; 2],
) -> Result<Vec<Admission>, StoreError> {
    let mut outcomes = part(first, &[0, 1], Disposition::Ended(State::Delivered));
    outcomes.groups.extend(part(first, &[2], Disposition::Retry { at: at(20) }).groups);
    let instead = Shape { destination: "instead", due_at: 30, ..Shape::default() };
    outcomes.fallbacks = instead.drafts(1);
    let calls = async {
        tokio::join!(
            biased;
            store.settle(vec![outcomes]),
            store.begin(vec![mark(second)]),
            store.ingest(drafts, at(0)),
        )
    };
    let (settled, marked, accepted) = in_one_group(store, calls).await;
    assert_eq!(settled, Ok(vec![Settled::Applied { remaining: 0 }]));
    assert_eq!(marked, Ok(vec![MarkAnswer::Granted]));
    accepted
}

/// A mark through the second delivery.
fn mark(chunk: &Chunk) -> Mark {
    Mark { chunk: chunk.id, epoch: chunk.epoch, through: 1 }
}

/// Two claimed chunks of a lane, of a store that has room for `size_max` bytes.
async fn two_claimed(size_max: Option<u64>) -> (TempDir, Sqlite, [Chunk; 2]) {
    let directory = tempfile::tempdir().unwrap();
    let options = Options { size_max, ..Options::new(1) };
    let (store, _) = Sqlite::open(directory.path(), options, at(0)).unwrap();
    let shape = Shape { guarantee: Guarantee::AtMostOnce, ..Shape::default() };
    for _chunk in 0..2 {
        shape.ingest(&store, 3).await;
    }
    let chunks = store.claim(claim_request(0)).await.unwrap().chunks;
    (directory, store, chunks.try_into().unwrap())
}

/// Destinations of what a claim at `millis` finds, while lanes may hold `lane_window`.
async fn claimed(store: &Sqlite, millis: i64, lane_window: usize) -> Vec<Box<str>> {
    let request = ClaimRequest { lane_window, ..claim_request(millis) };
    let chunks = store.claim(request).await.unwrap().chunks;
    chunks.iter().map(|chunk| (*chunk.envelope.lane.destination).into()).collect()
}

#[tokio::test]
async fn what_comes_in_shares_the_transaction_of_marks_and_outcomes() {
    let (_directory, store, chunks) = two_claimed(None).await;
    let commits = || {
        let counts = store.commits();
        [&counts.synced_us, &counts.unsynced_us].map(|times| times.total().count())
    };
    let [synced, unsynced] = commits();
    let accepted = accept_beside(&store, Shape::default().drafts(3), &chunks).await;
    assert_eq!(accepted.unwrap().len(), 3);
    assert_eq!(commits(), [synced + 1, unsynced]);
    the_books_balance(&store).await;
}

#[tokio::test]
async fn marks_and_outcomes_stay_where_what_came_in_with_them_is_undone() {
    let (directory, store, chunks) = two_claimed(Some(1024 * 1024)).await;
    let elsewhere = Shape { destination: "elsewhere", ..Shape::default() };
    let too_many = (0..1_000).map(|number| elsewhere.draft(&format!("{number:02000}")));
    let refused = accept_beside(&store, too_many.collect(), &chunks).await;
    assert!(matches!(refused, Err(StoreError::NoSpace(_))), "{refused:?}");
    let again = store.begin(vec![mark(&chunks[1])]).await;
    assert_eq!(again, Ok(vec![MarkAnswer::Stale]), "the mark is stored");
    the_books_balance(&store).await;
    // The second chunk is all that the lane holds: what the first one held is free, and is free once.
    let held = 3 + CHUNK_WEIGHT;
    assert_eq!(claimed(&store, 20, held + 1).await, ["here".into()], "the retry");
    Shape::default().ingest(&store, 1).await;
    assert_eq!(claimed(&store, 20, held + 1 + CHUNK_WEIGHT).await, [], "it is full");
    assert_eq!(claimed(&store, 30, usize::MAX).await, ["instead".into()], "the fallback");
    assert_eq!(*store.failed().borrow(), None);
    drop(store);
    let (store, recovery) = Sqlite::open(directory.path(), Options::new(1), at(0)).unwrap();
    assert_eq!((recovery.in_doubt, recovery.returned), (2, 3), "{recovery:?}");
    assert_eq!(store.reader().totals().await.unwrap().delivered, 2);
}

#[tokio::test]
async fn a_claim_has_the_room_that_outcomes_of_its_transaction_free() {
    let (_directory, store, [first, second]) = two_claimed(None).await;
    Shape::default().ingest(&store, 1).await;
    let held = 3 + CHUNK_WEIGHT;
    assert_eq!(claimed(&store, 0, held + 1).await, []);
    let delivered = Disposition::Ended(State::Delivered);
    let calls = async {
        tokio::join!(biased; settle_all(&store, &first, delivered), claimed(&store, 0, held + 1))
    };
    assert_eq!(in_one_group(&store, calls).await.1, ["here".into()]);
    settle_all(&store, &second, delivered).await;
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
