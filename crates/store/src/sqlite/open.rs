//! Opening: one owner a directory, one schema, and no trace of the last process's leases.

use std::collections::HashMap;
use std::fs::{DirBuilder, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use flow::merge::Merging;
use notification::Timestamp;
use refinery::Migration;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, OptionalExtension};
use serde::Deserialize;
use tokio::sync::watch;

use super::audit_lock::AuditLock;
use super::disk::{Disk, DiskSpace, FreeSpace};
use super::files::{BUSY_TIMEOUT, DATABASE, PAGE_BYTES, sync_directory};
use super::keys::keys;
use super::owner::Owner;
use super::pause::pauses;
use super::restored;
use super::suppress::listed_recipients;
use super::totals::mixed_batches_through;
use super::transaction::{Transaction, WriterState};

use crate::rows::lanes::Lanes;
use crate::rows::release::Slicing;
use crate::{Recovery, StoreError};

mod migrations {
    refinery::embed_migrations!("migrations/sqlite");
}

/// Options under which a store is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Condition under which a commit counts as durable.
    pub synchronous: Synchronous,
    /// The database may not grow beyond this, bytes; a commit that would is refused as if the disk were full.
    pub size_max: Option<u64>,
    /// A random number: a new store draws its id from it.
    pub seed: u64,
    /// Number of loops for intake and work. Anything but [`Merging::Shared`] is for measurements.
    pub merging: Merging,
}

/// Condition under which a commit counts as durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Synchronous {
    /// The commit is on the disk: it survives a power cut.
    #[default]
    Full,
    /// The kernel has the commit: it survives the end of the process, and a power cut may cost the last commits.
    Normal,
}

/// The first release without the WAL-reset bug (<https://sqlite.org/wal.html#walresetbug>).
const SQLITE_VERSION_MIN: i32 = 3_051_003;
/// Cache of the writer, KiB: the pages that it uses between two checkpoints.
const WRITER_CACHE_KIB: i64 = 32 * 1024;
const READER_CACHE_KIB: i64 = 4 * 1024;
const _: () = assert!(
    (WRITER_CACHE_KIB + 4 * READER_CACHE_KIB) * 1024
        <= notification::limits::STORE_CACHE_BYTES.cast_signed() as i64,
    "the writer and as many readers as there are"
);
/// More than there are statements.
const STATEMENTS: usize = 128;

/// Parts of a writer when it starts.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) connection: Connection,
    pub(super) state: WriterState,
    pub(super) disk: Disk,
    pub(super) lock: Owner,
    pub(super) recovery: Recovery,
}

// === impl Options ===

impl Options {
    /// Durable, without a bound of its own; `seed` is a random number.
    pub const fn new(seed: u64) -> Self {
        let (synchronous, merging) = (Synchronous::Full, Merging::Shared);
        Self { synchronous, size_max: None, seed, merging }
    }
}

// === impl Synchronous ===

impl Synchronous {
    /// SQLite's word for it.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Full => "FULL",
            Self::Normal => "NORMAL",
        }
    }
}

/// Opens the store in `directory` as its only owner.
pub(super) fn open(
    directory: &Path,
    options: Options,
    free_space: Arc<dyn FreeSpace>,
    now: Timestamp,
) -> Result<Opened, StoreError> {
    // Before a file is touched, which an older library could damage.
    assert_library()?;
    // Recipients and contents are not for other users of the machine.
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700).create(directory).map_err(|error| io(directory, &error))?;
    let (mut lock, ending) = Owner::take(directory)?;
    // Everything after this may need room, be it for a process number.
    let volume = Disk::open(directory, free_space)?;
    let database = directory.join(DATABASE);
    create_private(&database)?;
    let mut connection = Connection::open(database)?;
    configure(&connection, options)?;
    migrate(&mut connection, directory)?;
    let store_id = store_id(&connection, options.seed)?;
    keep_term_key(&connection, options.seed)?;
    // Not the largest number that is there: those of batches that were removed must not be given again.
    let next_batch: Option<i64> = connection
        .query_row("SELECT seq FROM sqlite_sequence WHERE name = 'batch'", [], |row| row.get(0))
        .optional()?;
    let mut state = WriterState {
        store_id,
        lanes: Lanes::default(),
        suppressed: listed_recipients(&connection)?,
        next_batch: next_batch.unwrap_or(0).cast_unsigned() + 1,
        last_content: None,
        room: DiskSpace::Plenty,
        slicing: Slicing::DEFAULT,
        // A broadcast of the process before this one.
        waits: true,
        new_lanes: Vec::new(),
        kept_lanes: HashMap::new(),
        mixed_batches_through: mixed_batches_through(&connection)?,
        audits: AuditLock::open(directory)?,
        pauses: watch::Sender::new(Arc::new(pauses(&connection)?)),
        keys: watch::Sender::new(Arc::new(keys(&connection)?)),
        is_synced: true,
        may_sync: options.synchronous == Synchronous::Full,
        commits: Arc::default(),
    };
    let backup_at = restored::backup_at(&connection)?;
    let mut transaction = Transaction::begin(&connection, &mut state)?;
    if let Some(backup_at) = backup_at {
        transaction.restore(backup_at, now)?;
    }
    let recovery = transaction.recover(ending, now)?;
    transaction.commit()?;
    // The names of the database and of its log. SQLite syncs a directory as it syncs a file, by `fdatasync`.
    sync_directory(directory).map_err(|error| io(directory, &error))?;
    // Only now: a start that fails before leaves all that was in flight to the next one, and how it came to be left.
    lock.sign();
    Ok(Opened { connection, state, lock, disk: volume, recovery })
}

/// Opens the database in `directory` for reading, owned by another process or not.
pub(super) fn open_reading(directory: &Path) -> Result<Connection, StoreError> {
    assert_library()?;
    let path = directory.join(DATABASE);
    // SQLite alone would only say that it cannot open a file.
    if !path.is_file() {
        let message =
            format!("there is no store in {}: start `belfry serve` first", directory.display());
        return Err(StoreError::Schema(message));
    }
    // The pool gives a connection to one question at a time, so it needs no lock of its own.
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.pragma_update(None, "cache_size", -READER_CACHE_KIB)?;
    keep_statements(&connection)?;
    check_schema(&connection, directory)?;
    Ok(connection)
}

/// The id of this store, which is part of every identifier.
pub(super) fn read_store_id(connection: &Connection) -> Result<Option<u16>, StoreError> {
    // The key has the name that the id had in the first stores, as on PostgreSQL, where it cannot be renamed safely.
    let mut select = connection.prepare_cached("SELECT value FROM meta WHERE key = 'realm'")?;
    Ok(select.query_row([], |row| row.get(0)).optional()?)
}

fn store_id(connection: &Connection, seed: u64) -> Result<u16, StoreError> {
    if let Some(store_id) = read_store_id(connection)? {
        return Ok(store_id);
    }
    // An identifier has 12 bits for it.
    let store_id = fastrand::Rng::with_seed(seed).u16(0..1 << 12);
    connection.execute("INSERT INTO meta (key, value) VALUES ('realm', ?1)", [store_id])?;
    Ok(store_id)
}

/// Draws the key of the terms of the search index, if there is none yet.
fn keep_term_key(connection: &Connection, seed: u64) -> Result<(), StoreError> {
    // Not the sequence from which the id of the store is drawn, which is known to all who know an identifier.
    let mut random = fastrand::Rng::with_seed(seed).fork();
    let mut insert =
        connection.prepare("INSERT OR IGNORE INTO meta (key, value) VALUES (?1, ?2)")?;
    // With one of them alone there is no index.
    for key in ["search_key_0", "search_key_1"] {
        insert.execute((key, random.i64(..)))?;
    }
    Ok(())
}

fn configure(connection: &Connection, options: Options) -> Result<(), StoreError> {
    connection.busy_timeout(BUSY_TIMEOUT)?;
    keep_statements(connection)?;
    let set = |name: &str, value: i64| connection.pragma_update(None, name, value);
    // Before the journal mode: a database in WAL mode keeps the page size that it has.
    set("page_size", PAGE_BYTES)?;
    // Likewise: a new database can give pages back that retention has emptied.
    connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", options.synchronous.as_str())?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    // `WriteAheadLog` makes the checkpoints, and sees their errors.
    set("wal_autocheckpoint", 0)?;
    set("cache_size", -WRITER_CACHE_KIB)?;
    if let Some(bytes) = options.size_max {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        set("max_page_count", bytes / PAGE_BYTES)?;
    }
    Ok(())
}

/// Has the connection compile each statement once.
fn keep_statements(connection: &Connection) -> Result<(), StoreError> {
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    // Else SQLite compiles some statements anew for each value that is bound, since another plan might suit that one better.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(())
}

fn migrate(connection: &mut Connection, directory: &Path) -> Result<(), StoreError> {
    if stored_version(connection)?.is_some_and(|version| version > known_version()) {
        // The runner would only say that a migration is missing.
        return check_schema(connection, directory);
    }
    let failed = |error| StoreError::Schema(format!("{}: {error}", directory.display()));
    migrations::migrations::runner().run(connection).map_err(failed)?;
    Ok(())
}

/// Refuses a schema that this program does not know.
fn check_schema(connection: &Connection, directory: &Path) -> Result<(), StoreError> {
    let (stored, known) = (stored_version(connection)?.unwrap_or(0), known_version());
    let directory = directory.display();
    if stored > known {
        return Err(StoreError::Schema(format!(
            "the store in {directory} has schema {stored}, and this belfry knows {known} at most: run the \
             newer belfry that wrote it, or name another data directory",
        )));
    }
    if stored < known {
        return Err(StoreError::Schema(format!(
            "the store in {directory} has schema {stored}, and this belfry reads {known}: start `belfry serve` \
             once, which brings it up to date",
        )));
    }
    Ok(())
}

fn stored_version(connection: &Connection) -> Result<Option<i32>, StoreError> {
    if !connection.table_exists(None, "refinery_schema_history")? {
        return Ok(None);
    }
    let select = "SELECT max(version) FROM refinery_schema_history";
    Ok(connection.query_row(select, [], |row| row.get(0))?)
}

fn known_version() -> i32 {
    let runner = migrations::migrations::runner();
    runner.get_migrations().iter().map(Migration::version).max().unwrap_or(0)
}

fn assert_library() -> Result<(), StoreError> {
    if rusqlite::version_number() >= SQLITE_VERSION_MIN {
        return Ok(());
    }
    Err(StoreError::Schema(format!(
        "SQLite {} can damage a database in WAL mode: build belfry with the bundled SQLite",
        rusqlite::version()
    )))
}

/// Creates the file of a new database for its owner alone, in whatever directory it lies. SQLite gives its log the same rights.
fn create_private(database: &Path) -> Result<(), StoreError> {
    let created = OpenOptions::new().write(true).create_new(true).mode(0o600).open(database);
    match created {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(io(database, &error)),
        _there => Ok(()),
    }
}

fn io(path: &Path, error: &std::io::Error) -> StoreError {
    StoreError::Broken(format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;
    use crate::Ending;
    use crate::sqlite::disk::Statvfs;
    use crate::sqlite::owner::fault_mark;

    #[test]
    fn sqlite_is_built_with_fdatasync() {
        // SQLite does not list it among its compile options: these are the flags that it was built with.
        assert!(env!("LIBSQLITE3_FLAGS").contains("-DHAVE_FDATASYNC=1"));
    }

    #[test]
    fn a_start_that_fails_leaves_the_ending_of_the_last_process_to_the_next_start() {
        let directory = tempfile::tempdir().unwrap();
        let now = Timestamp::from_millis(0);
        let start = || open(directory.path(), Options::new(1), Arc::new(Statvfs), now);
        let opened = start().unwrap();
        fault_mark(directory.path()).unwrap().write_all(b"X").unwrap();
        drop(opened);
        let database = Connection::open(directory.path().join(DATABASE)).unwrap();
        let newer = "INSERT INTO refinery_schema_history VALUES (99, 'later', '', '0')";
        database.execute(newer, []).unwrap();
        assert!(matches!(start(), Err(StoreError::Schema(_))));
        assert_eq!(Owner::take(directory.path()).unwrap().1, Ending::Faulted);
        database.execute("DELETE FROM refinery_schema_history WHERE version = 99", []).unwrap();
        drop(start().unwrap());
        assert_eq!(Owner::take(directory.path()).unwrap().1, Ending::Left, "recovered, and ended");
    }
}
