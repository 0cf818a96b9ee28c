//! Checkpoints beside the writer.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::task::{Wake, Waker};

use rusqlite::Connection;
use tempfile::TempDir;

use super::Sqlite;
use super::checkpointer::{Checkpointer, copying};
use super::files::{DATABASE, WAL, WalBounds};
use super::open::Options;
use super::reader::{Beside, SqliteReader};
use super::wal::WriteAheadLog;
use crate::conformance::at;
use crate::rows::evidence::EvidenceBook;
use crate::{ReadStore as _, StoreError};

const BOUNDS: WalBounds = WalBounds { checkpoint: 40, max: 320 };

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
        let checkpointer = match copy {
            Some(copy) => Checkpointer::start(copy, nudge.clone()),
            None => Checkpointer::start(copying(path, reader.pool()).unwrap(), nudge.clone()),
        };
        let readers = (reader.pool(), checkpointer.unwrap());
        let log = WriteAheadLog::new(path.join(WAL), BOUNDS, readers, nudge);
        Self { directory, connection, log, told }
    }

    /// Writes some ten pages; the pages of the log then, and those that are copied.
    fn write(&self) -> (i64, i64) {
        self.connection.execute("INSERT INTO filler VALUES (zeroblob(81920))", []).unwrap();
        WriteAheadLog::pages_now(&self.connection).unwrap()
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
}

#[tokio::test]
async fn the_writer_goes_on_beside_a_checkpoint_until_the_log_is_too_long() {
    let (go_on, goes_on) = mpsc::sync_channel::<()>(1);
    let ended = Arc::new(AtomicBool::new(false));
    let ends = Arc::clone(&ended);
    let copy = move || {
        goes_on.recv().unwrap();
        ends.store(true, Ordering::SeqCst);
        Ok(())
    };
    let mut written = Written::with(Some(Box::new(copy))).await;
    written.fill();
    let mut pages = (0, 0);
    while pages.0 < BOUNDS.max - BOUNDS.checkpoint {
        pages = written.write();
        written.keep_short().unwrap();
    }
    assert_eq!((pages.1, ended.load(Ordering::SeqCst)), (0, false), "the writer copies nothing");
    while written.write().0 < BOUNDS.max {}
    go_on.send(()).unwrap();
    written.keep_short().unwrap();
    assert!(ended.load(Ordering::SeqCst), "it was waited for");
    assert_eq!(WriteAheadLog::pages_now(&written.connection).unwrap(), (0, 0));
}

#[tokio::test]
async fn a_log_that_is_written_to_beside_a_checkpoint_begins_anew_after_it() {
    let mut written = Written::with(None).await;
    written.fill();
    // Whether the thread saw it or not.
    written.write();
    written.told.recv().unwrap();
    let behind = written.write();
    assert!(behind.1 >= BOUNDS.checkpoint && behind.1 < behind.0, "{behind:?}");
    written.keep_short().unwrap();
    let (pages, copied) = WriteAheadLog::pages_now(&written.connection).unwrap();
    assert_eq!(pages, copied);
    let (anew, _) = written.write();
    assert!(anew < pages, "{anew} and {pages} pages");
}

#[tokio::test]
async fn a_checkpoint_that_fails_fails_the_store() {
    let broken = || StoreError::Broken("the disk is gone".to_owned());
    let mut written = Written::with(Some(Box::new(move || Err(broken())))).await;
    written.fill();
    written.told.recv().unwrap();
    assert_eq!(written.keep_short(), Err(broken()));
    let mut panics =
        Written::with(Some(Box::new(|| std::panic::resume_unwind(Box::new(()))))).await;
    panics.fill();
    assert!(matches!(panics.log.end(), Err(StoreError::Broken(_))));
}

/// Locks of this process on the database in `directory`.
fn locks(directory: &Path) -> usize {
    let inode = directory.join(DATABASE).metadata().unwrap().ino();
    let locks = std::fs::read_to_string("/proc/locks").unwrap();
    let of_database = format!(":{inode} ");
    let own = format!(" {} ", std::process::id());
    locks.lines().filter(|line| line.contains(&of_database) && line.contains(&own)).count()
}

#[tokio::test]
async fn the_readers_keep_their_locks_when_the_writer_has_ended() {
    let written = Written::with(None).await;
    let path = written.directory.path();
    assert!(locks(path) > 0);
    drop((written.log, written.connection));
    assert_eq!(locks(path), 0, "no reader is left");
    let (store, _) = Sqlite::open(path, Options::new(1), at(0)).unwrap();
    let reader = store.reader().clone();
    store.close().await;
    drop(store);
    assert!(locks(path) > 0, "one that is lost has another process take itself for the last one");
    reader.totals().await.unwrap();
}
