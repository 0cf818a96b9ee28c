//! A real PostgreSQL whose tables lie on a file system that others fill up: what comes in is refused with words, what is under
//! way waits, and goes on once there is room.
//!
//! The file system is a small one in memory, in a mount namespace that the test makes for itself; where the kernel does not let
//! this user do so, the test fails. The server's write-ahead log lies elsewhere: a server that has no room for that
//! ends, whoever is connected.
#![cfg(feature = "postgres")]
#![expect(clippy::unwrap_used, reason = "the helpers of a test fail by panicking")]

mod support;

use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::process::{Command, Output};

use notification::{Disposition, State, limits};
use store::conformance::{Shape, at, claim_request, settle_all, the_books_balance};
use store::{Claims, Ingest, Ledger, Postgres, StoreError};
use testbed::PostgresOptions;

const DISK_MIB: u64 = 64;
const NOTIFICATIONS: usize = 20 * limits::BATCH_ITEMS;
/// Requests that a full disk takes at most: pages that are there already have some room.
const ROUNDS_MAX: usize = 1_000;
/// Where the part within the namespace finds its directory.
const PLACE: &str = "BELFRY_TEST_SMALL_DISK";

#[test]
fn a_full_disk_of_the_server_refuses_what_comes_in_and_loses_nothing() {
    let place = tempfile::tempdir().unwrap();
    let own = std::env::current_exe().unwrap();
    // The server refuses to run as root, so who is not root outside must not be root inside.
    let script = format!(
        "mount -t tmpfs -o size={DISK_MIB}m,mode=1777 tmpfs \"${PLACE}\" || exit 99\n\
         as=''; [ \"$1\" = 0 ] || as=\"unshare --user --map-user=$1 --map-group=$2\"\n\
         exec $as \"$0\" --ignored --exact refuse_wait_and_go_on --nocapture"
    );
    let process = std::fs::metadata("/proc/self").unwrap();
    let (user, group) = (process.uid(), process.gid());
    let mut unshare = Command::new("unshare");
    if user != 0 {
        unshare.arg("--map-root-user");
    }
    unshare.args(["--mount", "sh", "-c", &script]).arg(own);
    unshare.args([user.to_string(), group.to_string()]).env(PLACE, place.path());
    let Output { status, stdout, stderr } = unshare.output().unwrap();
    assert_ne!(
        status.code(),
        Some(99),
        "this user may not mount a file system in a namespace of its own: run the test as root, or allow \
         unprivileged user namespaces (sysctl kernel.apparmor_restrict_unprivileged_userns=0)"
    );
    let told = [stdout, stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(status.success() && told.contains("1 passed"), "{status}: {told}");
}

#[tokio::test]
#[ignore = "runs in a namespace that the other test makes"]
async fn refuse_wait_and_go_on() {
    let server = testbed::Postgres::start_with(PostgresOptions::default()).unwrap();
    let database = server.create_database().unwrap();
    let place = place();
    for statement in [
        // The server's user owns what it makes.
        &format!("COPY (SELECT) TO PROGRAM 'mkdir {}/tables'", place.display()),
        &format!("CREATE TABLESPACE small LOCATION '{}/tables'", place.display()),
        "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_tablespace = small', current_database()); END $$",
    ] {
        database.query(statement).unwrap();
    }
    let store = support::open(database.url()).await;
    for _ in 0..NOTIFICATIONS / limits::BATCH_ITEMS {
        Shape::default().ingest(&store, limits::BATCH_ITEMS).await;
    }
    fill();
    let mut accepted = NOTIFICATIONS;
    let refusal = loop {
        match store.ingest(Shape::default().drafts(limits::BATCH_ITEMS), at(0)).await {
            Ok(admissions) => accepted += admissions.len(),
            Err(refusal) => break refusal,
        }
        assert!(accepted < NOTIFICATIONS + ROUNDS_MAX * limits::BATCH_ITEMS);
    };
    assert!(matches!(refusal, StoreError::NoSpace(_)), "{refusal:?}");
    assert!(refusal.to_string().contains("disk of the database is full"), "{refusal}");

    let make_room = async {
        for _ in 0..3 {
            let refused = store.ingest(Shape::default().drafts(limits::BATCH_ITEMS), at(0)).await;
            assert!(matches!(refused, Err(StoreError::NoSpace(_))), "{refused:?}");
        }
        std::fs::remove_file(filler()).unwrap();
    };
    tokio::join!(settle(&store, accepted), make_room);
    let totals = store.totals().await.unwrap();
    assert_eq!((totals.accepted, totals.delivered), (accepted as u64, accepted as u64));
    Shape::default().ingest(&store, limits::BATCH_ITEMS).await;
    settle(&store, limits::BATCH_ITEMS).await;
    the_books_balance(&store).await;
    assert_eq!(*store.failed().borrow(), None);
    store.close().await;
}

fn place() -> PathBuf {
    std::env::var_os(PLACE).unwrap().into()
}

fn filler() -> PathBuf {
    place().join("filler")
}

/// Another process takes all that is left.
fn fill() {
    let mut filler = File::options().create(true).append(true).open(filler()).unwrap();
    let block = vec![b'f'; 4096];
    let error = loop {
        if let Err(error) = filler.write_all(&block) {
            break error;
        }
    };
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
}

/// Delivers `count`, in claims as small as a chunk: each takes room of its own.
async fn settle(store: &Postgres, count: usize) {
    let mut settled = 0;
    while settled < count {
        let request = store::ClaimRequest { items: limits::BATCH_ITEMS, ..claim_request(0) };
        let claim = store.claim(request).await.unwrap();
        assert!(!claim.chunks.is_empty(), "{settled} of {count}: {claim:?}");
        for chunk in &claim.chunks {
            settle_all(store, chunk, Disposition::Ended(State::Delivered)).await;
            settled += chunk.deliveries.len();
        }
    }
}
