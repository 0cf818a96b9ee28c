//! Checkpoints beside the writer.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::task::{Wake, Waker};
use std::time::Duration;

use rusqlite::Connection;
use tempfile::TempDir;

use super::Sqlite;
use super::checkpointer::{Checkpointer, LogCopier, log_pages};
use super::files::{DATABASE, WAL, WalBounds};
use super::open::Options;
use super::reader::{Beside, SqliteReader};
use super::wal::{REST_MAX, WriteAheadLog};
use crate::StoreError;
use crate::conformance::at;
use crate::rows::evidence::EvidenceBook;

const BOUNDS: WalBounds = WalBounds { checkpoint: 40, max: 320 };
/// Pages that one write of these tests adds to the log at most.
const WRITE_PAGES: i64 = 16;
/// Longest wait for a thread: a test that fails ends.
const PATIENCE: Duration = Duration::from_mins(1);

/// Tells a test that it was woken.
struct Told(SyncSender<()>);

impl Wake for Told {
    fn wake(self: Arc<Self>) {
        self.0.send(()).unwrap();
    }
}

/// The writer's connection to a store, its log, and what tells that a checkpoint has ended.
struct Written {
    directory: TempDir,
    connection: Connection,
    log: WriteAheadLog,
    told: Receiver<()>,
}

impl Written {
    /// With `copy` in place of what the thread does, if there is one.
    async fn with(copy: Option<Box<dyn FnMut() -> Result<(), StoreError> + Send>>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        Sqlite::open(directory.path(), Options::new(1), at(0)).unwrap().0.close().await;
        let path = directory.path();
        let connection = Connection::open(path.join(DATABASE)).unwrap();
        connection
            .execute_batch("PRAGMA wal_autocheckpoint = 0; CREATE TABLE filler (bytes)")
            .unwrap();
        let reader = SqliteReader::open(path, Beside::Writer, EvidenceBook::default()).unwrap();
        let (tells, told) = mpsc::sync_channel(16);
        let nudge = Waker::from(Arc::new(Told(tells)));
        let checkpointer = if let Some(copy) = copy {
            Checkpointer::start(copy, nudge.clone())
        } else {
            let copier = LogCopier::open(path, reader.pool()).unwrap();
            Checkpointer::start(move || copier.copy(), nudge.clone())
        };
        let (wal, checkpointer) = (path.join(WAL), checkpointer.unwrap());
        let log = WriteAheadLog::new(wal, BOUNDS, reader.pool(), checkpointer, nudge);
        Self { directory, connection, log, told }
    }

    /// Writes some ten pages; the pages of the log then, and those that are copied.
    fn write(&self) -> (i64, i64) {
        self.connection.execute("INSERT INTO filler VALUES (zeroblob(81920))", []).unwrap();
        self.pages()
    }

    /// Pages of the log, and those that are copied.
    fn pages(&self) -> (i64, i64) {
        log_pages(&self.connection).unwrap()
    }

    fn keep_short(&mut self) -> Result<(), StoreError> {
        self.log.keep_short(&self.connection)
    }

    /// Writes until a checkpoint begins.
    fn fill(&mut self) {
        while self.write().0 < BOUNDS.checkpoint {
            self.keep_short().unwrap();
        }
        self.keep_short().unwrap();
    }

    /// Waits until a checkpoint has ended.
    fn wait(&self) {
        self.told.recv_timeout(PATIENCE).unwrap();
    }
}

#[tokio::test]
async fn the_writer_goes_on_beside_a_checkpoint_until_much_is_left() {
    let (go_on, goes_on) = mpsc::sync_channel::<()>(1);
    let ended = Arc::new(AtomicBool::new(false));
    let ends = Arc::clone(&ended);
    let copy = move || {
        let _released = goes_on.recv_timeout(PATIENCE);
        ends.store(true, Ordering::SeqCst);
        Ok(())
    };
    let mut written = Written::with(Some(Box::new(copy))).await;
    written.fill();
    let mut pages = (0, 0);
    while pages.0 < 2 * BOUNDS.checkpoint - WRITE_PAGES {
        written.keep_short().unwrap();
        pages = written.write();
    }
    assert_eq!((pages.1, ended.load(Ordering::SeqCst)), (0, false), "the writer copies nothing");
    while written.write().0 < 2 * BOUNDS.checkpoint {}
    go_on.send(()).unwrap();
    written.keep_short().unwrap();
    assert!(ended.load(Ordering::SeqCst), "it was waited for");
    assert_eq!(written.pages().1, written.pages().0);
}

#[tokio::test]
async fn a_log_that_is_written_to_beside_a_checkpoint_begins_anew_after_it() {
    let mut written = Written::with(None).await;
    written.write();
    // A reader before the last writes: the thread copies no more than it may see.
    let reader = Connection::open(written.directory.path().join(DATABASE)).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM filler").unwrap();
    written.fill();
    written.wait();
    let (pages, copied) = written.pages();
    assert!(copied > 0 && copied < pages, "{copied} of {pages}");
    drop(reader);
    written.keep_short().unwrap();
    let (pages, copied) = written.pages();
    assert_eq!(copied, pages);
    let (anew, _) = written.write();
    assert!(anew < pages, "{anew} and {pages} pages");
}

#[tokio::test]
async fn much_that_is_left_is_not_copied_by_the_writer() {
    let mut written = Written::with(Some(Box::new(|| Ok(())))).await;
    written.fill();
    written.wait();
    while written.write().0 <= REST_MAX {}
    written.keep_short().unwrap();
    assert_eq!(written.pages().1, 0, "another checkpoint is made when as much is written again");
}

#[tokio::test]
async fn a_checkpoint_that_fails_fails_the_store() {
    let broken = || StoreError::Broken("the disk is gone".to_owned());
    let mut written = Written::with(Some(Box::new(move || Err(broken())))).await;
    written.fill();
    written.wait();
    assert_eq!(written.keep_short(), Err(broken()));
    let panics = Box::new(|| std::panic::resume_unwind(Box::new(())));
    let mut written = Written::with(Some(panics)).await;
    written.fill();
    assert!(matches!(written.log.end(), Err(StoreError::Broken(_))));
}

/// Locks of this process on the database in `directory`, as `/proc/locks` lists them.
fn locks(directory: &Path) -> usize {
    let database = directory.join(DATABASE).metadata().unwrap();
    let (major, minor) = (rustix::fs::major(database.dev()), rustix::fs::minor(database.dev()));
    let of_database =
        format!(" {} {major:02x}:{minor:02x}:{} ", std::process::id(), database.ino());
    let locks = std::fs::read_to_string("/proc/locks").unwrap();
    locks.lines().filter(|line| line.contains(&of_database)).count()
}

#[tokio::test]
async fn readers_keep_their_locks_when_the_writer_has_ended() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let (store, _) = Sqlite::open(path, Options::new(1), at(0)).unwrap();
    let reader = store.reader().clone();
    store.close().await;
    drop(store);
    assert!(
        locks(path) > 0,
        "another process that closes the database would take itself for the last"
    );
    drop(reader);
    assert_eq!(locks(path), 0);
}
