//! A real file system that others fill up: what was accepted is delivered and settled, a kill and a restart included.
//!
//! The file system is a small one in memory, in a mount namespace that the test makes for itself. It takes a kernel that lets
//! this user do so (root may, others where unprivileged user namespaces are allowed); where it does not, the test fails.

#![expect(clippy::unwrap_used, reason = "the helpers of a test fail by panicking")]

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use notification::{Disposition, State, limits};
use store::conformance::{Shape, at, claim_request, settle_all, the_books_balance};
use store::sqlite::Options;
use store::{ClaimRequest, Claims, Ingest, Ledger, Recovery, Sqlite, StoreError};

/// Of the file system: the reserve, the low-space mark, and what 100,000 notifications take.
const DISK_MIB: u64 = 384;
const NOTIFICATIONS: u64 = 100_000;
/// Of these so many have a batch of their own, which is what takes most room to settle.
const ALONE: usize = 2_000;
/// Where the part within the namespace finds its directory.
const PLACE: &str = "BELFRY_TEST_SMALL_DISK";

#[test]
fn a_disk_that_others_fill_stops_no_delivery_and_no_restart() {
    let place = tempfile::tempdir().unwrap();
    let own = std::env::current_exe().unwrap();
    let script = format!(
        "mount -t tmpfs -o size={DISK_MIB}m tmpfs \"${PLACE}\" || exit 99\n\
         \"$0\" --ignored --exact fill_it_and_be_killed --nocapture\n\
         [ $? -eq 134 ] || exit 98\n\
         exec \"$0\" --ignored --exact restart_on_the_full_disk --nocapture"
    );
    let mut unshare = Command::new("unshare");
    unshare.args(["--map-root-user", "--mount", "sh", "-c", &script]);
    let Output { status, stdout, stderr } =
        unshare.arg(own).env(PLACE, place.path()).output().unwrap();
    assert_ne!(
        status.code(),
        Some(99),
        "this user may not mount a file system in a namespace of its own: run the test as root, or allow \
         unprivileged user namespaces (sysctl kernel.apparmor_restrict_unprivileged_userns=0)"
    );
    let told = [stdout, stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(status.success() && told.contains("1 passed"), "{status}: {told}");
    print!("{told}");
}

#[tokio::test]
#[ignore = "runs in a namespace that the other test makes"]
async fn fill_it_and_be_killed() {
    let store = open().0;
    let together = usize::try_from(NOTIFICATIONS).unwrap() - ALONE;
    for _ in 0..together / limits::BATCH_ITEMS {
        Shape::default().ingest(&store, limits::BATCH_ITEMS).await;
    }
    for _ in 0..ALONE {
        Shape::default().ingest(&store, 1).await;
    }
    fill();
    let refused = store.ingest(Shape::default().drafts(1), at(0)).await;
    assert!(matches!(refused, Err(StoreError::NoSpace(_))), "{refused:?}");
    settle(&store, NOTIFICATIONS / 2).await;
    assert_eq!(store.totals().await.unwrap().delivered, NOTIFICATIONS / 2);
    // Some are under way when the process is killed.
    let claim = ClaimRequest { items: 8_000, ..claim_request(0) };
    assert!(!store.claim(claim).await.unwrap().chunks.is_empty());
    fill();
    std::process::abort();
}

#[tokio::test]
#[ignore = "runs in a namespace that the other test makes"]
async fn restart_on_the_full_disk() {
    fill();
    let (store, recovery) = open();
    assert!(recovery.returned > 0, "{recovery:?}");
    let refused = store.ingest(Shape::default().drafts(1), at(0)).await;
    assert!(matches!(refused, Err(StoreError::NoSpace(_))), "{refused:?}");
    settle(&store, NOTIFICATIONS / 2).await;
    let totals = store.totals().await.unwrap();
    assert_eq!((totals.accepted, totals.delivered), (NOTIFICATIONS, NOTIFICATIONS));
    the_books_balance(&store).await;
    let reserve = place().join("belfry.reserve").metadata().unwrap().len();
    println!("the reserve has {} MiB left", reserve / (1024 * 1024));

    std::fs::remove_file(filler()).unwrap();
    Shape::default().ingest(&store, limits::BATCH_ITEMS).await;
    assert!(*store.accepts().borrow());
    settle(&store, limits::BATCH_ITEMS as u64).await;
    the_books_balance(&store).await;
    assert_eq!(*store.failed().borrow(), None);
}

fn place() -> PathBuf {
    std::env::var_os(PLACE).unwrap().into()
}

fn filler() -> PathBuf {
    place().join("filler")
}

fn open() -> (Sqlite, Recovery) {
    Sqlite::open(Path::new(&place()), Options::new(1), at(0)).unwrap()
}

/// Another process takes all that is left.
fn fill() {
    let mut filler = File::options().create(true).append(true).open(filler()).unwrap();
    let block = vec![b'f'; 64 * 1024];
    let error = loop {
        if let Err(error) = filler.write_all(&block) {
            break error;
        }
    };
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
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
