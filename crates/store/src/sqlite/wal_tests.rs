//! Readers that stay too long, and writes meanwhile.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};

use futures_util::FutureExt as _;
use notification::{Disposition, State, limits};
use rusqlite::Connection;
use tempfile::TempDir;

use super::Sqlite;
use super::audit::SLICE_ROWS;
use super::checkpointer::{checkpoint, log_pages};
use super::disk::Statvfs;
use super::files::WalBounds;
use super::files::{DATABASE, PAGE_BYTES, WAL};
use super::open::{Options, Synchronous};
use super::writer::Durability::{Synced, WithTheNext};
use crate::conformance::{Shape, at, claim_request, settle_all};
use crate::rows::release::Slicing;
use crate::{Claims, CommitCounts, Ingest, ReadStore, StoreError};

/// A hundredth of the ordinary ones, so that a store of ordinary size passes them often.
const BOUNDS: WalBounds = WalBounds { checkpoint: 40, max: 320 };
/// Pages that one write of these tests adds to the log at most.
const WRITE_PAGES: i64 = 40;

fn fresh() -> (TempDir, Sqlite) {
    let directory = tempfile::tempdir().unwrap();
    let opened = Sqlite::open_within(
        directory.path(),
        Options::new(1),
        (Arc::new(Statvfs), (BOUNDS, Slicing::DEFAULT)),
        at(0),
    );
    (directory, opened.unwrap().0)
}

fn file_pages(directory: &Path) -> i64 {
    directory.join(WAL).metadata().unwrap().len().cast_signed() / PAGE_BYTES
}

async fn write(store: &Sqlite) {
    store.ingest(Shape::default().drafts(limits::BATCH_ITEMS), at(0)).await.unwrap();
}

/// Connection of another process that reads in one long transaction.
fn foreign_reader(directory: &Path) -> Connection {
    let reader = Connection::open(directory.join(DATABASE)).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM batch").unwrap();
    reader
}

#[tokio::test]
async fn a_checkpoint_waits_for_no_reader() {
    static WAITS: AtomicU32 = AtomicU32::new(0);
    let (directory, store) = fresh();
    write(&store).await;
    let reader = foreign_reader(directory.path());
    write(&store).await;
    store.close().await;
    let mut writer = Connection::open(directory.path().join(DATABASE)).unwrap();
    let count = |_tries| {
        WAITS.fetch_add(1, Ordering::Relaxed);
        false
    };
    for pragma in ["PRAGMA wal_checkpoint(TRUNCATE)", "PRAGMA wal_checkpoint(PASSIVE)"] {
        writer.busy_handler(Some(count)).unwrap();
        checkpoint(&writer, pragma).unwrap();
    }
    assert_eq!(WAITS.load(Ordering::Relaxed), 0);
    assert!(checkpoint(&writer, "PRAGMA wal_checkpoint(TRUNCATE)").unwrap(), "it was in the way");
    drop(reader);
    assert!(!checkpoint(&writer, "PRAGMA wal_checkpoint(TRUNCATE)").unwrap());
}

#[tokio::test]
async fn the_log_grows_past_a_foreign_reader_and_begins_anew_when_it_is_gone() {
    let (directory, store) = fresh();
    write(&store).await;
    let reader = foreign_reader(directory.path());
    while file_pages(directory.path()) < 3 * BOUNDS.max {
        write(&store).await;
    }
    assert_eq!(
        store.reader().audit().await.unwrap().problem_count,
        0,
        "own readers are let in again"
    );
    drop(reader);
    while file_pages(directory.path()) >= BOUNDS.max {
        write(&store).await;
    }
    assert_eq!(*store.failed().borrow(), None);
}

#[tokio::test]
async fn a_reader_of_the_same_process_that_stays_too_long_is_interrupted() {
    let (directory, store) = fresh();
    write(&store).await;
    let (reading, reads) = mpsc::sync_channel(1);
    let (go_on, goes_on) = mpsc::sync_channel::<()>(1);
    let reader = store.reader.clone();
    let slow = reader.read(move |snapshot| {
        let mut select = snapshot.connection.prepare(
            "WITH RECURSIVE number (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < 1000) \
             SELECT n, (SELECT count(*) FROM batch) FROM number",
        )?;
        let mut rows = select.query([])?;
        let mut count = 0;
        while rows.next()?.is_some() {
            if count == 0 {
                reading.send(()).unwrap();
                goes_on.recv().unwrap();
            }
            count += 1;
        }
        Ok(count)
    });
    tokio::pin!(slow);
    assert!(slow.as_mut().now_or_never().is_none());
    reads.recv().unwrap();
    let mut most = 0;
    while most < BOUNDS.max + 2 * BOUNDS.checkpoint {
        write(&store).await;
        most = most.max(file_pages(directory.path()));
    }
    go_on.send(()).unwrap();
    let interrupted = slow.await;
    assert!(matches!(interrupted, Err(StoreError::Unavailable(_))), "{interrupted:?}");
    for _ in 0..100 {
        write(&store).await;
        most = most.max(file_pages(directory.path()));
    }
    assert!(most <= BOUNDS.max + 2 * BOUNDS.checkpoint + WRITE_PAGES, "{most} pages");
}

#[tokio::test]
async fn an_audit_of_a_million_leaves_the_log_short_and_is_exact_while_writes_go_on() {
    let (directory, store) = fresh();
    for _ in 0..100 {
        let drafts = Shape::default().drafts(limits::REQUEST_ITEMS);
        store.ingest(drafts, at(0)).await.unwrap();
    }
    let mut chunks = VecDeque::from(store.claim(claim_request(0)).await.unwrap().chunks);
    let first = chunks.pop_front().unwrap();
    settle_all(&store, &first, Disposition::Ended(State::Delivered)).await;
    let before = store.reader().totals().await.unwrap();
    assert!(before.accepted >= 1_000_000);
    let (mut slices, mut most) = (0, 0);
    let audit = store.reader.audit_in_slices(SLICE_ROWS / 64, async || {
        write(&store).await;
        // Batches that the audit has passed, and batches that it has not come to.
        for chunk in [chunks.pop_front(), chunks.pop_back()].into_iter().flatten() {
            settle_all(&store, &chunk, Disposition::Ended(State::Refused)).await;
        }
        slices += 1;
        most = most.max(file_pages(directory.path()));
    });
    let audit = audit.await.unwrap();
    assert_eq!((audit.account, audit.problems), (before, Vec::new()));
    assert!(slices > 10, "{slices}");
    assert!(store.reader().totals().await.unwrap().refused > 10_000);
    assert!(most <= BOUNDS.max + 2 * BOUNDS.checkpoint + WRITE_PAGES, "{most} pages");
    assert_eq!(
        store.reader().audit().await.unwrap().account,
        store.reader().totals().await.unwrap()
    );
}

/// Has a notification accepted in one group with a request that is to be synced and writes nothing, but has `beside` happen.
async fn accept_beside(
    store: &Sqlite,
    mut beside: impl FnMut() + Send + 'static,
) -> Result<(), StoreError> {
    let (holding, holds) = mpsc::sync_channel(1);
    let (go_on, goes_on) = mpsc::sync_channel::<()>(1);
    let held = store.write(WithTheNext, move |_transaction| {
        holding.send(()).unwrap();
        goes_on.recv().unwrap();
        Ok(())
    });
    let accepted = store.ingest(Shape::default().drafts(1), at(0));
    let nothing = store.write(Synced, move |_transaction| {
        beside();
        Ok(())
    });
    tokio::pin!(held, accepted, nothing);
    assert!(held.as_mut().now_or_never().is_none());
    holds.recv().unwrap();
    // Both wait for the writer, so they are of one group.
    assert!(accepted.as_mut().now_or_never().is_none());
    assert!(nothing.as_mut().now_or_never().is_none());
    go_on.send(()).unwrap();
    held.await.unwrap();
    accepted.await.map(drop)
}

#[tokio::test]
async fn what_comes_in_is_synced_though_what_goes_on_beside_it_writes_nothing() {
    let (directory, store) = fresh();
    write(&store).await;
    // From now on a sync of the log by its name fails, unlike one that SQLite makes with a commit.
    std::fs::remove_file(directory.path().join(WAL)).unwrap();
    write(&store).await;
    let accepted = accept_beside(&store, || ()).await;
    assert!(matches!(accepted, Err(StoreError::Broken(_))), "{accepted:?}");
}

#[tokio::test]
async fn a_checkpoint_meanwhile_is_not_taken_for_a_write() {
    let (directory, store) = fresh();
    store.ingest(Shape::default().drafts(1), at(0)).await.unwrap();
    let checkpoints = Connection::open(directory.path().join(DATABASE)).unwrap();
    let before = log_pages(&checkpoints).unwrap();
    // As above: a sync of the log by its name fails.
    std::fs::remove_file(directory.path().join(WAL)).unwrap();
    let accepted = accept_beside(&store, move || {
        checkpoint(&checkpoints, "PRAGMA wal_checkpoint(PASSIVE)").unwrap();
        assert!(log_pages(&checkpoints).unwrap().1 > before.1);
    });
    let accepted = accepted.await;
    assert!(matches!(accepted, Err(StoreError::Broken(_))), "{accepted:?}");
}

/// How many commits were counted: synced ones, and others.
fn counted(store: &Sqlite) -> (u64, u64) {
    let CommitCounts { synced_us, unsynced_us, .. } = &**store.commits();
    (synced_us.total().count(), unsynced_us.total().count())
}

#[tokio::test]
async fn commits_are_counted_as_synced_where_they_are_and_not_if_they_write_nothing() {
    let (_directory, store) = fresh();
    assert_eq!(counted(&store), (0, 0), "there was nothing to recover");
    write(&store).await;
    assert_eq!(counted(&store), (1, 0));
    for durability in [Synced, WithTheNext] {
        store.write(durability, |_transaction| Ok(())).await.unwrap();
    }
    assert_eq!(counted(&store), (1, 0), "these wrote nothing");
    let claimed = store.claim(claim_request(1)).await.unwrap();
    assert_eq!((claimed.chunks.is_empty(), counted(&store)), (false, (1, 1)));
    accept_beside(&store, || ()).await.unwrap();
    assert_eq!(counted(&store), (2, 2), "a commit, and a sync by itself");
}

#[tokio::test]
async fn no_commit_is_counted_as_synced_where_none_is() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options { synchronous: Synchronous::Normal, ..Options::new(1) };
    let (store, _) = Sqlite::open(directory.path(), options, at(0)).unwrap();
    write(&store).await;
    let (synced, unsynced) = counted(&store);
    assert_eq!(synced, 0);
    assert!(unsynced > 0);
}
