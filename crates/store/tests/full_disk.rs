//! A real file system that other programs fill up: accepted notifications are delivered and settled, a kill and a restart
//! included.
#![expect(clippy::unwrap_used, reason = "the helpers of a test fail by panicking")]

use notification::{Disposition, State, limits};
use store::conformance::{Shape, at, claim_request, settle_all, the_books_balance};
use store::sqlite::Options;
use store::{ClaimRequest, Claims, Ingest, ReadStore, Recovery, Sqlite, StoreError};
use testbed::disk::{DiskNamespace, PartEnd, SmallDisk};

/// Size of the file system: the reserve, the low-space mark, and the room of 100,000 notifications.
const DISK_MIB: u64 = 384;
const NOTIFICATIONS: u64 = 100_000;
/// Notifications with a batch of their own, which take most room to settle.
const ALONE: usize = 2_000;

#[test]
fn a_disk_that_others_fill_stops_no_delivery_and_no_restart() {
    let parts = [
        ("fill_it_and_be_killed", PartEnd::Aborted),
        ("restart_on_the_full_disk", PartEnd::Passed),
    ];
    let told = SmallDisk::new(DISK_MIB).run(&parts).unwrap();
    print!("{told}");
}

#[tokio::test]
#[ignore = "runs on the disk that the other test makes"]
async fn fill_it_and_be_killed() {
    let place = DiskNamespace::of_this_part().unwrap();
    let store = open(&place).0;
    let together = usize::try_from(NOTIFICATIONS).unwrap() - ALONE;
    for _ in 0..together / limits::BATCH_ITEMS {
        Shape::default().ingest(&store, limits::BATCH_ITEMS).await;
    }
    for _ in 0..ALONE {
        Shape::default().ingest(&store, 1).await;
    }
    place.fill().unwrap();
    let refused = store.ingest(Shape::default().drafts(1), at(0)).await;
    assert!(matches!(refused, Err(StoreError::NoSpace(_))), "{refused:?}");
    settle(&store, NOTIFICATIONS / 2).await;
    assert_eq!(store.reader().totals().await.unwrap().delivered, NOTIFICATIONS / 2);
    // Some are under way when the process is killed.
    let claim = ClaimRequest { items: 8_000, ..claim_request(0) };
    assert!(!store.claim(claim).await.unwrap().chunks.is_empty());
    place.fill().unwrap();
    std::process::abort();
}

#[tokio::test]
#[ignore = "runs on the disk that the other test makes"]
async fn restart_on_the_full_disk() {
    let place = DiskNamespace::of_this_part().unwrap();
    place.fill().unwrap();
    let (store, recovery) = open(&place);
    assert!(recovery.returned > 0, "{recovery:?}");
    let refused = store.ingest(Shape::default().drafts(1), at(0)).await;
    assert!(matches!(refused, Err(StoreError::NoSpace(_))), "{refused:?}");
    settle(&store, NOTIFICATIONS / 2).await;
    let totals = store.reader().totals().await.unwrap();
    assert_eq!((totals.accepted, totals.delivered), (NOTIFICATIONS, NOTIFICATIONS));
    the_books_balance(&store).await;
    let reserve = place.disk().join("belfry.reserve").metadata().unwrap().len();
    println!("the reserve has {} MiB left", reserve / (1024 * 1024));

    place.make_room().unwrap();
    Shape::default().ingest(&store, limits::BATCH_ITEMS).await;
    assert!(*store.accepts().borrow());
    settle(&store, limits::BATCH_ITEMS as u64).await;
    the_books_balance(&store).await;
    assert_eq!(*store.failed().borrow(), None);
}

fn open(place: &DiskNamespace) -> (Sqlite, Recovery) {
    Sqlite::open(&place.disk(), Options::new(1), at(0)).unwrap()
}

/// Delivers `count`.
async fn settle(store: &Sqlite, count: u64) {
    let mut settled = 0;
    while settled < count {
        let items = usize::try_from(count - settled).unwrap().min(limits::BATCH_ITEMS);
        let claim = store.claim(ClaimRequest { items, ..claim_request(0) }).await.unwrap();
        assert!(!claim.chunks.is_empty(), "{settled} of {count}: {claim:?}");
        for chunk in &claim.chunks {
            settle_all(store, chunk, Disposition::Ended(State::Delivered)).await;
            settled += chunk.deliveries.len() as u64;
        }
    }
}
