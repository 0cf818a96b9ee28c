//! Properties of a store on a disk alone: one owner, recovery, and an honest end when the disk fails.
//!
//! A killed process leaves its files as a copy of them shows them that is made while the store is open.

#![expect(clippy::unwrap_used, reason = "the helpers of a test fail by panicking")]

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use notification::{Disposition, Guarantee, State, limits};
use store::conformance::{
    BroadcastShape, Shape, at, claim_all, claim_by_tenant, claim_request, name, settle_all,
    the_books_balance,
};
use store::sqlite::Options;
use store::{
    Begin, CancelScope, Claims, Filter, Ingest, KeyChange, KeyChanged, KeyStore, Mark, MarkAnswer,
    Operations, ReadStore, RecipientGroup, Recovery, Sqlite, Store, StoreError, StoredKey,
    assign_totals,
};
use tempfile::TempDir;

fn open(directory: &Path) -> (Sqlite, Recovery) {
    Sqlite::open(directory, Options::new(1), at(0)).unwrap()
}

fn fresh() -> (TempDir, Sqlite) {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path()).0;
    (directory, store)
}

/// The files as they are, without a word to their owner.
fn image(directory: &TempDir) -> TempDir {
    let image = tempfile::tempdir().unwrap();
    for file in ["belfry.db", "belfry.db-wal", "belfry.lock"] {
        std::fs::copy(directory.path().join(file), image.path().join(file)).unwrap();
    }
    image
}

/// Replaces the directory by the one that the next process finds when this one is killed now.
fn crash(directory: &mut TempDir, store: &mut Sqlite) -> Recovery {
    let image = image(directory);
    let (next, recovery) = open(image.path());
    *store = next;
    *directory = image;
    recovery
}

/// Recipients and contents are not for other users of the machine, who may look into the directory.
#[test]
fn files_are_for_their_owner_alone_though_their_directory_is_for_all() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
    let _store = open(directory.path());
    let entries: Vec<_> =
        std::fs::read_dir(directory.path()).unwrap().map(Result::unwrap).collect();
    assert!(entries.iter().any(|entry| entry.file_name() == "belfry.db-wal"), "{entries:?}");
    for entry in entries {
        assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{entry:?}");
    }
}

#[tokio::test]
async fn a_second_owner_is_refused_until_the_first_is_gone() {
    let (directory, store) = fresh();
    let refused = Sqlite::open(directory.path(), Options::new(1), at(0)).unwrap_err();
    let StoreError::InUse(message) = refused else { panic!("{refused:?}") };
    assert!(message.contains(&format!("pid {}", std::process::id())), "{message}");
    store.close().await;
    let again = open(directory.path()).0;
    assert_eq!(store.reader().totals().await.unwrap(), again.reader().totals().await.unwrap());
    drop(again);
    open(directory.path());
}

#[tokio::test]
async fn a_closed_store_refuses_and_everything_asked_before_is_kept() {
    let (directory, store) = fresh();
    let last = Shape::default().drafts(10);
    let (last, ()) = tokio::join!(store.ingest(last, at(0)), store.close());
    assert_eq!(last.unwrap().len(), 10);
    store.close().await;
    let refused = store.ingest(Shape::default().drafts(1), at(0)).await;
    assert_eq!(refused, Err(StoreError::Broken("it was closed".to_owned())));
    assert_eq!(*store.failed().borrow(), None, "closing is no failure");
    assert!(!directory.path().join("belfry.db-wal").metadata().is_ok_and(|wal| wal.len() > 0));
    let (store, recovery) = open(directory.path());
    assert_eq!(recovery, Recovery::default());
    assert_eq!(store.reader().totals().await.unwrap().pending, 10);
}

#[tokio::test]
async fn what_was_answered_survives_a_crash_at_any_moment() {
    let (mut directory, mut store) = fresh();
    let shape = Shape { guarantee: Guarantee::AtMostOnce, ..Shape::default() };
    let ids = shape.ingest(&store, 4).await;
    assert_eq!(crash(&mut directory, &mut store), Recovery::default());
    let chunk = claim_all(&store, 0).await.remove(0);
    let returned = Recovery { returned: 4, ..Recovery::default() };
    assert_eq!(crash(&mut directory, &mut store), returned);
    let chunk_again = claim_all(&store, 0).await.remove(0);
    assert!(chunk_again.epoch > chunk.epoch, "the fence holds across a crash");
    let mark = Mark { chunk: chunk_again.id, epoch: chunk_again.epoch, through: 2 };
    assert_eq!(store.begin(vec![mark]).await.unwrap(), [MarkAnswer::Granted]);
    let in_doubt = Recovery { returned: 1, in_doubt: 3, ..Recovery::default() };
    assert_eq!(crash(&mut directory, &mut store), in_doubt);
    let history = store.reader().find(ids[1]).await.unwrap().unwrap();
    assert_eq!((history.state, &*history.attempts[0].detail), (State::InDoubt, "process ended"));
    let rest = claim_all(&store, 0).await.remove(0);
    assert_eq!(store.begin(vec![mark]).await.unwrap(), [MarkAnswer::Stale]);
    settle_all(&store, &rest, Disposition::HandedBack { at: at(0) }).await;
    assert_eq!(crash(&mut directory, &mut store), Recovery::default());
    assert_eq!(claim_all(&store, 0).await[0].notification_id(3), ids[3]);
    the_books_balance(&store).await;
}

#[tokio::test]
async fn an_open_broadcast_does_not_survive_and_a_sealed_one_does() {
    let (mut directory, mut store) = fresh();
    let sealed = BroadcastShape::default().open(&store, 3).await;
    store.seal_broadcast(sealed, at(0)).await.unwrap();
    let open = BroadcastShape::default().open(&store, 2 * limits::BATCH_ITEMS).await;
    let recovery = crash(&mut directory, &mut store);
    assert_eq!(recovery, Recovery { abandoned_broadcasts: 1, ..Recovery::default() });
    assert_eq!(store.seal_broadcast(open, at(0)).await, Err(StoreError::NoOpenBroadcast(open)));
    assert_eq!(claim_all(&store, 0).await[0].deliveries.len(), 3);
    the_books_balance(&store).await;
}

#[tokio::test]
async fn a_newer_schema_is_refused_with_a_way_out() {
    let (directory, store) = fresh();
    store.close().await;
    let connection = rusqlite::Connection::open(directory.path().join("belfry.db")).unwrap();
    let newer = "INSERT INTO refinery_schema_history VALUES (99, 'later', '', '0')";
    connection.execute(newer, []).unwrap();
    drop(connection);
    let refusals = [
        Sqlite::open(directory.path(), Options::new(1), at(0)).map(drop),
        Sqlite::open_read_only(directory.path()).map(drop),
    ];
    for refused in refusals {
        let Err(StoreError::Schema(message)) = refused else { panic!("{refused:?}") };
        assert!(message.contains("schema 99") && message.contains("newer belfry"), "{message}");
    }
}

/// The schema before lanes were of tenants: one lane for both.
const LANES_OF_BEFORE: &str = "CREATE TABLE lane (id INTEGER PRIMARY KEY, channel TEXT NOT NULL, destination TEXT NOT NULL, \
       priority INTEGER NOT NULL, UNIQUE (channel, destination, priority)) STRICT; \
     INSERT INTO lane SELECT min(id), channel, destination, priority FROM tenant_lane GROUP BY 2, 3, 4; \
     UPDATE batch SET lane = 1; UPDATE chunk SET lane = 1; DROP TABLE tenant_lane; \
     DROP TABLE pause; DROP TABLE api_key; DROP TABLE act; DROP TABLE resuming; DROP TABLE source_shard; DROP TABLE search_run; DROP TABLE search_block; DROP TABLE undelivered; \
     ALTER TABLE batch DROP COLUMN removed; ALTER TABLE batch DROP COLUMN of_feed; ALTER TABLE batch DROP COLUMN erased; \
     ALTER TABLE batch DROP COLUMN labels; ALTER TABLE batch DROP COLUMN trace; ALTER TABLE broadcast DROP COLUMN labels; DROP INDEX broadcast_of_tenant; \
     DROP INDEX suppression_event_of; \
     ALTER TABLE broadcast DROP COLUMN recipients; ALTER TABLE broadcast DROP COLUMN without_content; \
     CREATE TABLE before (state INTEGER PRIMARY KEY, count INTEGER NOT NULL) STRICT; \
     INSERT INTO before (state, count) SELECT state, sum(count) FROM totals GROUP BY state; \
     DROP TABLE totals; ALTER TABLE before RENAME TO totals; \
     DELETE FROM meta WHERE key IN ('mixed_batches_through', 'totals_generation'); \
     DROP TABLE tombstone; DROP TABLE broadcast_tombstone; DROP TABLE retention_walk; DROP TABLE retention_later; \
     DELETE FROM refinery_schema_history WHERE version >= 5";

#[tokio::test]
async fn what_waits_from_before_lanes_were_of_tenants_is_sent_for_its_tenant() {
    let (directory, store) = fresh();
    for tenant in ["news", "shop"] {
        Shape { tenant, ..Shape::default() }.ingest(&store, 2).await;
    }
    store.close().await;
    let connection = rusqlite::Connection::open(directory.path().join("belfry.db")).unwrap();
    connection.execute_batch(LANES_OF_BEFORE).unwrap();
    drop(connection);
    let store = open(directory.path()).0;
    Shape { tenant: "shop", ..Shape::default() }.ingest(&store, 1).await;
    let (tenant, scope) = (name("default"), notification::Scope::Channel(name("channel")));
    let whose_lane_it_is = CancelScope { tenant, scope, from: None, is_dry: false, now: at(0) };
    let page = store.cancel_scope(whose_lane_it_is).await.unwrap().unwrap();
    assert_eq!((page.cancelled, page.next), (0, None), "nobody cancels for another tenant");
    let expect = [("news", 2), ("shop", 1), ("shop", 2)];
    assert_eq!(
        claim_by_tenant(&store, 0).await,
        expect.map(|(name, count)| (name.to_owned(), count))
    );
    assert!(assign_totals(store.reader(), &store, &name("shop")).await.unwrap());
    the_books_balance(&store).await;
}

#[tokio::test]
async fn a_reader_needs_no_owner_and_changes_nothing() {
    let (directory, store) = fresh();
    let ids = Shape::default().ingest(&store, 3).await;
    let killed = image(&directory);
    for path in [directory.path(), killed.path()] {
        let reader = Sqlite::open_read_only(path).unwrap();
        assert_eq!(reader.find(ids[2]).await.unwrap().unwrap().id, ids[2]);
        let audit = reader.audit().await.unwrap();
        assert_eq!((audit.account.pending, audit.problem_count), (3, 0));
    }
    Shape::default().ingest(&store, 1).await;
    let nothing = tempfile::tempdir().unwrap();
    let missing = Sqlite::open_read_only(nothing.path()).unwrap_err();
    assert!(matches!(missing, StoreError::Schema(_)), "{missing:?}");
}

#[tokio::test]
async fn a_database_that_may_not_grow_refuses_and_nothing_answered_is_lost() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options { size_max: Some(1024 * 1024), ..Options::new(1) };
    let (store, _) = Sqlite::open(directory.path(), options, at(0)).unwrap();
    let mut accepted = Vec::new();
    let error = loop {
        let drafts = Shape::default().drafts(limits::BATCH_ITEMS);
        match store.ingest(drafts, at(0)).await {
            Ok(admissions) => accepted.extend(admissions),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, StoreError::NoSpace(_)), "{error:?}");
    assert!(error.to_string().contains("full"), "{error}");
    assert_eq!(*store.failed().borrow(), None, "the process goes on");
    assert!(!accepted.is_empty());
    assert_eq!(store.reader().totals().await.unwrap().accepted, accepted.len() as u64);
    the_books_balance(&store).await;
    drop(store);
    let store = open(directory.path()).0;
    assert_eq!(store.reader().totals().await.unwrap().accepted, accepted.len() as u64);
    the_books_balance(&store).await;
    Shape::default().ingest(&store, 1).await;
}

#[tokio::test]
async fn a_damaged_row_is_told_and_ends_the_store() {
    let (directory, store) = fresh();
    Shape::default().ingest(&store, 3).await;
    store.close().await;
    let connection = rusqlite::Connection::open(directory.path().join("belfry.db")).unwrap();
    connection.execute("UPDATE batch SET items = x'07'", []).unwrap();
    drop(connection);
    let store = open(directory.path()).0;
    let error = store.claim(claim_request(0)).await.unwrap_err();
    assert!(error.to_string().contains("cannot be read back"), "{error}");
}

#[tokio::test]
async fn an_audit_finds_what_does_not_add_up() {
    for (damage, words) in [
        ("DELETE FROM chunk", "3 members are lost"),
        ("UPDATE totals SET count = count + 1 WHERE state = 0", "the totals say"),
        (
            "INSERT INTO chunk SELECT 9, batch, lane, 0, 1, 0, 0, NULL, NULL, 3, NULL FROM chunk",
            "something else too",
        ),
        ("DELETE FROM batch", "which is missing"),
        ("DELETE FROM tenant_lane", "its lane is missing"),
    ] {
        let (directory, store) = fresh();
        Shape::default().ingest(&store, 3).await;
        store.close().await;
        let connection = rusqlite::Connection::open(directory.path().join("belfry.db")).unwrap();
        connection.execute(damage, []).unwrap();
        drop(connection);
        let audit = Sqlite::open_read_only(directory.path()).unwrap().audit().await.unwrap();
        assert!(audit.problem_count > 0, "{damage}");
        assert!(audit.problems.iter().any(|it| it.contains(words)), "{:?}", audit.problems);
    }
}

#[tokio::test]
async fn a_list_passes_what_does_not_match_in_bounded_steps() {
    let (_directory, store) = fresh();
    let id = BroadcastShape::default().open(&store, 1).await;
    let group = |number: usize| RecipientGroup {
        recipients: vec!["somebody".into()],
        ..RecipientGroup::new(number.to_string().into())
    };
    store.add_recipients(id, (0..5_000).map(group).collect(), at(0)).await.unwrap();
    store.seal_broadcast(id, at(0)).await.unwrap();
    let wanted = Shape { tenant: "other", ..Shape::default() }.ingest(&store, 2).await;
    let filter = Filter { tenant: Some(name("other")), ..Filter::default() };
    let first = store.reader().list(filter.clone(), None, 10).await.unwrap();
    assert_eq!(first.items, []);
    let second = store.reader().list(filter, first.next, 10).await.unwrap();
    assert_eq!(second.items.iter().map(|history| history.id).collect::<Vec<_>>(), wanted);
    assert_eq!(second.next, None);
}

/// A store may be shared by all stages.
const _: fn(Sqlite) -> std::sync::Arc<dyn Store> = |store| std::sync::Arc::new(store);

fn stored_key(text: &str) -> StoredKey {
    let (tenant, grants) = (name("tenant"), "{}".to_owned());
    let key = name(text);
    StoredKey { name: key, tenant, sha256: [7; 32], former: None, grants, made_at: at(0) }
}

#[tokio::test]
async fn keys_outlive_a_restart_and_so_many_are_kept_at_most() {
    let (directory, store) = fresh();
    store.close().await;
    let connection = rusqlite::Connection::open(directory.path().join("belfry.db")).unwrap();
    let fill = format!(
        "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {}) \
         INSERT INTO api_key (name, tenant, sha256, grants, made_at) \
         SELECT 'key-' || n, 'tenant', zeroblob(32), '{{}}', 0 FROM numbers",
        limits::STORED_KEYS
    );
    connection.execute_batch(&fill).unwrap();
    // One that was damaged is good for nothing, and takes none of the others with it.
    connection.execute_batch("UPDATE api_key SET sha256 = x'00' WHERE name = 'key-9'").unwrap();
    drop(connection);
    let store = open(directory.path()).0;
    assert_eq!(store.watch_keys().borrow().len(), limits::STORED_KEYS - 1);
    let add = async |text: &str| store.change_key(KeyChange::Add(stored_key(text))).await.unwrap();
    assert_eq!(add("key-7").await, KeyChanged::Exists);
    assert_eq!(add("more").await, KeyChanged::TooMany);
    let revoke = async |text: &str| store.change_key(KeyChange::Revoke(name(text))).await.unwrap();
    let gone = KeyChanged::Revoked { key: None, is_everywhere: true };
    assert_eq!(revoke("key-9").await, gone, "it cannot be told, and has gone");
    let added = KeyChanged::Done { key: stored_key("more"), is_everywhere: true };
    assert_eq!(add("more").await, added);
    assert_eq!(store.watch_keys().borrow().len(), limits::STORED_KEYS);
}
