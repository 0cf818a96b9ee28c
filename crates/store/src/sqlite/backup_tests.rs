//! Copies of stores that are written meanwhile, and stores that are opened from copies.

use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use notification::{BroadcastId, Bytes, Chunk, Guarantee, State, limits};
use tokio::runtime::Runtime;

use super::*;
use crate::conformance::{
    BroadcastShape, Shape, at, claim_all, claim_request, groups_in_turn, settle_all,
    the_books_balance,
};
use crate::rows::release::Slicing;
use crate::sqlite::disk::Statvfs;
use crate::sqlite::files::WalBounds;
use crate::sqlite::open::Options;
use crate::{
    Begin as _, BroadcastDraft, BroadcastOpened, Claims as _, EventPosition, Ingest as _, Mark,
    Operations as _, ReadStore as _, Sqlite, Suppression,
};

fn open(directory: &Path) -> Sqlite {
    Sqlite::open(directory, Options::new(1), at(0)).unwrap().0
}

/// Backs the store in `directory` up at 5, and opens the copy at 9.
fn restored(directory: &Path) -> (tempfile::TempDir, Sqlite) {
    let copy = tempfile::tempdir().unwrap();
    back_up(directory, copy.path(), at(5), |_progress| ()).unwrap();
    let store = Sqlite::open(copy.path(), Options::new(2), at(9)).unwrap().0;
    (copy, store)
}

async fn sealed(store: &Sqlite, guarantee: Guarantee, recipients: usize) -> BroadcastId {
    let draft = BroadcastDraft { guarantee, ..BroadcastShape::default().draft() };
    let opened = store.open_broadcast(draft, at(0)).await.unwrap();
    let BroadcastOpened::Opened(id) = opened else { panic!("{opened:?}") };
    store.add_recipients(id, groups_in_turn(recipients), at(0)).await.unwrap();
    store.seal_broadcast(id, at(1)).await.unwrap();
    id
}

/// Has `count` accepted, each with 64 KiB of its own.
async fn ingest_large(store: &Sqlite, count: usize) {
    let draft = |number: usize| {
        let payload = Bytes::from(format!("{number:65535}"));
        Shape { payload, ..Shape::default() }.draft("recipient")
    };
    store.ingest((0..count).map(draft).collect(), at(0)).await.unwrap();
}

#[test]
fn a_copy_is_that_of_one_instant_whatever_is_written_meanwhile() {
    let (runtime, directory) = (Runtime::new().unwrap(), tempfile::tempdir().unwrap());
    let store = open(directory.path());
    let before = 500;
    runtime.block_on(ingest_large(&store, before));
    let (copy, mut steps) = (tempfile::tempdir().unwrap(), 0);
    let progress = back_up(directory.path(), copy.path(), at(5), |progress| {
        assert!(progress.copied <= progress.all, "{progress:?}");
        assert!(!copy.path().join(DATABASE).exists(), "it has its name when it is whole");
        runtime.block_on(ingest_large(&store, 100));
        steps += 1;
    });
    assert!(progress.unwrap().all > before as u64 * 64 * 1024);
    assert!(steps > 3, "the store is larger than a step: {steps}");
    let account = |store: &Sqlite| runtime.block_on(store.reader().audit()).unwrap();
    assert_eq!(account(&store).account.pending, (before + steps * 100) as u64);
    let reader = Sqlite::open_read_only(copy.path()).unwrap();
    let audit = runtime.block_on(reader.audit()).unwrap();
    assert_eq!((audit.account.pending, audit.problem_count), (before as u64, 0));
    let again = back_up(directory.path(), copy.path(), at(6), |_progress| ());
    assert!(matches!(again, Err(StoreError::Refused(_))), "{again:?}");
}

#[test]
fn a_copy_that_takes_too_long_for_the_log_is_given_up_and_leaves_nothing() {
    let (runtime, directory) = (Runtime::new().unwrap(), tempfile::tempdir().unwrap());
    let store = open(directory.path());
    runtime.block_on(ingest_large(&store, 500));
    let copy = tempfile::tempdir().unwrap();
    let log = File::options().write(true).open(directory.path().join(WAL)).unwrap();
    // Longer, without a page that counts.
    let failed = back_up(directory.path(), copy.path(), at(5), |_progress| {
        log.set_len(limits::WAL_BYTES).unwrap();
    });
    assert!(matches!(failed, Err(StoreError::Unavailable(_))), "{failed:?}");
    assert_eq!(std::fs::read_dir(copy.path()).unwrap().count(), 0);
    // One that has been long before does not grow.
    back_up(directory.path(), copy.path(), at(5), |_progress| ()).unwrap();
}

#[test]
fn a_copy_is_for_its_owner_alone_though_its_directory_is_for_all() {
    let (directory, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let _store = open(directory.path());
    std::fs::set_permissions(copy.path(), Permissions::from_mode(0o755)).unwrap();
    std::fs::write(copy.path().join(PARTIAL), "left by one that was killed").unwrap();
    back_up(directory.path(), copy.path(), at(5), |_progress| ()).unwrap();
    let mode = copy.path().join(DATABASE).metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(!copy.path().join(PARTIAL).exists());
}

#[tokio::test]
async fn what_waited_with_at_most_once_is_in_doubt_and_the_rest_is_sent() {
    let directory = tempfile::tempdir().unwrap();
    let slicing = Slicing { batches: 1, goes_on: false };
    let bounds = (std::sync::Arc::new(Statvfs) as _, (WalBounds::DEFAULT, slicing));
    let store = Sqlite::open_within(directory.path(), Options::new(1), bounds, at(0)).unwrap().0;
    let once = Shape { guarantee: Guarantee::AtMostOnce, ..Shape::default() };
    once.ingest(&store, 4).await;
    let begun = claim_all(&store, 0).await.remove(0);
    let mark = Mark { chunk: begun.id, epoch: begun.epoch, through: 1 };
    store.begin(vec![mark]).await.unwrap();
    let ended = Shape { destination: "there", ..once.clone() };
    ended.ingest(&store, 1).await;
    settle_all(&store, &claim_all(&store, 0).await[0], crate::conformance::DELIVERED).await;
    Shape { due_at: 60_000, ..once.clone() }.ingest(&store, 2).await;
    let later = Shape { due_at: 60_010, destination: "later", ..once.clone() };
    let later = later.ingest(&store, 5).await;
    let repeated = Shape::default().ingest(&store, 3).await;
    // Of the six, one slice of one batch has its chunk.
    let once_to_all = sealed(&store, Guarantee::AtMostOnce, 6).await;
    let to_all = sealed(&store, Guarantee::AtLeastOnce, 6).await;
    let (copy, restored) = restored(directory.path());
    let totals = restored.reader().totals().await.unwrap();
    assert_eq!((totals.delivered, totals.in_doubt, totals.pending), (1, 4 + 2 + 6, 5 + 3 + 6));
    the_books_balance(&restored).await;
    let status = restored.reader().broadcast(once_to_all).await.unwrap().unwrap();
    assert_eq!((status.account.in_doubt, status.account.pending), (6, 0));
    let history = restored.reader().find(begun.notification_id(3)).await.unwrap().unwrap();
    let last = history.attempts.last().unwrap();
    assert_eq!(
        (history.state, &*last.detail, last.at),
        (State::InDoubt, "restored from a backup", at(9))
    );
    let chunks = restored.claim(claim_request(100_000)).await.unwrap().chunks;
    let is_once = |chunk: &&Chunk| chunk.envelope.guarantee == Guarantee::AtMostOnce;
    let once_again: Vec<_> = chunks.iter().filter(is_once).collect();
    assert_eq!(once_again.len(), 1, "what was scheduled for later alone: {once_again:?}");
    assert_eq!(once_again[0].notification_id(0), later[0]);
    assert!(chunks.iter().any(|chunk| chunk.notification_id(0) == repeated[0]));
    assert!(chunks.iter().any(|chunk| chunk.envelope.broadcast == Some(to_all)));
    // From now on it is a store like any other.
    once.ingest(&restored, 1).await;
    restored.close().await;
    let again = open(copy.path());
    assert_eq!(again.reader().totals().await.unwrap().in_doubt, 12);
    the_books_balance(&again).await;
}

#[tokio::test]
async fn a_number_that_was_given_since_the_copy_is_not_given_again() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let suppress = async |store: &Sqlite, recipient: &str| {
        let entry = Suppression {
            channel: crate::conformance::name("channel"),
            recipient: recipient.into(),
            reason: "asked".to_owned(),
            status: 0,
            since: at(1),
        };
        store.suppress(vec![entry], at(1)).await.unwrap();
    };
    suppress(&store, "one").await;
    Shape::default().ingest(&store, 1).await;
    settle_all(&store, &claim_all(&store, 0).await[0], crate::conformance::DELIVERED).await;
    let (_copy, restored) = restored(directory.path());
    // What the former store gives until it is lost.
    let (mut events, mut log) = (EventPosition::default(), crate::LogPosition::default());
    for number in 0..10 {
        Shape::default().ingest(&store, 1).await;
        settle_all(&store, &claim_all(&store, 0).await[0], crate::conformance::DELIVERED).await;
        suppress(&store, &format!("left-{number}")).await;
        events = store.reader().suppression_events(events, 10).await.unwrap().next;
        log = store.reader().log(log, 10).await.unwrap().next;
    }
    let id = sealed(&store, Guarantee::AtLeastOnce, 1).await;
    let batch = Shape::default().ingest(&store, 1).await[0].batch();
    // What the restored one gives comes after it.
    assert!(sealed(&restored, Guarantee::AtLeastOnce, 1).await > id);
    assert!(Shape::default().ingest(&restored, 1).await[0].batch() > batch);
    suppress(&restored, "two").await;
    let page = restored.reader().suppression_events(events, 10).await.unwrap();
    let recipients: Vec<&str> = page.events.iter().map(|event| &*event.recipient).collect();
    assert_eq!(recipients, ["one", "two"], "the last of the copy comes once more");
    let ended = claim_all(&restored, 2).await;
    settle_all(&restored, &ended[0], crate::conformance::DELIVERED).await;
    let entries = restored.reader().log(log, 10).await.unwrap().entries;
    assert_eq!(entries.last().map(|entry| entry.id), Some(ended[0].notification_id(0)));
    the_books_balance(&restored).await;
}

#[test]
fn where_there_is_no_store_there_is_nothing_to_copy() {
    let (directory, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let failed = back_up(directory.path(), copy.path(), at(5), |_progress| ());
    assert!(matches!(failed, Err(StoreError::Schema(_))), "{failed:?}");
}
