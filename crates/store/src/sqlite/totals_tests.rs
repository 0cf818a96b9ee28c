//! Totals of tenants in a store that an older version has counted without them.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use notification::{
    Account, BroadcastId, Chunk, Disposition, Guarantee, NotificationId, Settlement, State,
};
use rusqlite::Connection;

use super::Sqlite;
use super::disk::Statvfs;
use super::files::{DATABASE, WalBounds};
use super::open::Options;
use super::release::SliceResult;
use super::writer::Durability::Synced;
use crate::conformance::{
    BroadcastShape, DELIVERED, Shape, at, claim_all, groups, indexes, kept_for_a_day, name, part,
    prune_all, settle_all, the_books_balance,
};
use crate::rows::release::Slicing;
use crate::{Begin as _, Operations as _};
use crate::{
    BroadcastDraft, BroadcastOpened, CancelTarget, Ingest as _, Mark, MarkAnswer, ReadStore as _,
    Requeued, Settlements as _, assign_totals,
};

/// Undoes the migrations to totals of tenants and behind it.
const BEFORE: &str = "ALTER TABLE batch DROP COLUMN trace; CREATE TABLE before (state INTEGER PRIMARY KEY, count INTEGER NOT NULL) STRICT; \
     INSERT INTO before (state, count) SELECT state, sum(count) FROM totals GROUP BY state; \
     DROP TABLE totals; ALTER TABLE before RENAME TO totals; \
     DELETE FROM meta WHERE key IN ('mixed_batches_through', 'totals_generation'); \
     DELETE FROM refinery_schema_history WHERE version >= 20";

/// Two tenants that send.
const TENANTS: [&str; 2] = ["news", "shop"];

/// Opens a store whose slices are one batch each, and are made one by one.
fn open(directory: &Path) -> Sqlite {
    let slicing = Slicing { batches: 1, goes_on: false };
    let bounds = (Arc::new(Statvfs) as _, (WalBounds::DEFAULT, slicing));
    Sqlite::open_within(directory, Options::new(1), bounds, at(0)).unwrap().0
}

async fn make_slice(store: &Sqlite) -> bool {
    let make = |transaction: &mut super::transaction::Transaction<'_>| transaction.make_slice();
    store.write(Synced, make).await.unwrap() != SliceResult::Nothing
}

/// Closes the store, has it be of the version before, and opens it.
async fn upgrade(store: Sqlite, directory: &Path, damage: &str) -> Sqlite {
    store.close().await;
    drop(store);
    let connection = Connection::open(directory.join(DATABASE)).unwrap();
    connection.execute_batch(BEFORE).unwrap();
    connection.execute_batch(damage).unwrap();
    drop(connection);
    open(directory)
}

async fn ingest(store: &Sqlite, tenant: &'static str, count: usize) -> Vec<NotificationId> {
    Shape { tenant, ..Shape::default() }.ingest(store, count).await
}

/// The accounts of both tenants; none while a count has no tenant.
async fn accounts(store: &Sqlite) -> [Option<Account>; 2] {
    let of = async |tenant| store.reader.tenant_totals(name(tenant)).await.unwrap();
    [of("news").await, of("shop").await]
}

/// A broadcast of four batches that is not sealed.
async fn open_broadcast(store: &Sqlite, tenant: &str) -> BroadcastId {
    let draft = BroadcastDraft { tenant: name(tenant), ..BroadcastShape::default().draft() };
    let opened = store.open_broadcast(draft, at(0)).await.unwrap();
    let BroadcastOpened::Opened(id) = opened else { panic!("{opened:?}") };
    for _ in 0..4 {
        store.add_recipients(id, groups(3), at(0)).await.unwrap();
    }
    id
}

async fn seal_broadcast(store: &Sqlite, tenant: &str) -> BroadcastId {
    let id = open_broadcast(store, tenant).await;
    store.seal_broadcast(id, at(1)).await.unwrap();
    id
}

/// Settles one member of each of `chunks` that has one left, as `states` say in turn.
async fn settle_one_of_each(store: &Sqlite, chunks: &mut [Chunk], states: &[State]) {
    for (chunk, &state) in chunks.iter_mut().zip(states.iter().cycle()) {
        if let Some(delivery) = chunk.deliveries.pop() {
            let ended = part(chunk, &[delivery.index], Disposition::Ended(state));
            store.settle(vec![ended]).await.unwrap();
        }
    }
}

/// Removes all that ended more than a day before the day 400.
async fn prune(store: &Sqlite) -> u64 {
    let now = at(0).plus(Duration::from_hours(24 * 400));
    prune_all(store, &kept_for_a_day(), now).await.outcomes
}

/// Fills a store with notifications of two tenants: ended, gone, pending, tried; and a broadcast of each, which waits with most of
/// its batches; that of one tenant is withdrawn.
async fn fill(store: &Sqlite) {
    for (tenant, count) in TENANTS.into_iter().zip([4, 7]) {
        ingest(store, tenant, count).await;
    }
    for chunk in claim_all(store, 0).await {
        settle_all(store, &chunk, DELIVERED).await;
    }
    ingest(store, "shop", 1).await;
    let young = claim_all(store, 0).await.remove(0);
    let later = at(0).plus(Duration::from_hours(24 * 400));
    let delivered = Settlement { at: later, ..part(&young, &[0], DELIVERED) };
    store.settle(vec![delivered]).await.unwrap();
    assert_eq!(prune(store).await, 11);
    for (tenant, count) in TENANTS.into_iter().zip([5, 6]) {
        ingest(store, tenant, count).await;
    }
    let mut claimed = claim_all(store, 0).await;
    settle_one_of_each(store, &mut claimed, &[State::Dead, State::Refused]).await;
    for chunk in &claimed {
        let again = part(chunk, &indexes(chunk), Disposition::Retry { at: at(50) });
        store.settle(vec![again]).await.unwrap();
    }
    let withdrawn = seal_broadcast(store, "news").await;
    seal_broadcast(store, "shop").await;
    let target = CancelTarget::Broadcast(withdrawn);
    store.cancel(target, name("news"), at(2)).await.unwrap().unwrap();
    the_books_balance(store).await;
}

#[tokio::test]
async fn what_was_counted_without_tenants_is_given_to_them() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    fill(&store).await;
    let before = accounts(&store).await;
    open_broadcast(&store, "news").await;
    let store = upgrade(store, directory.path(), "").await;
    open_broadcast(&store, "shop").await;
    assert_eq!(accounts(&store).await, [None, None]);
    let audit = store.reader.audit().await.unwrap();
    assert_eq!(audit.problems, Vec::<String>::new());
    assert_eq!(store.reader.totals().await.unwrap(), audit.account);
    let counted = TENANTS.map(|tenant| audit.tenants.get(&name(tenant)).copied());
    assert_eq!(counted, before, "counted of each tenant as it was recorded");
    assert!(assign_totals(&store.reader, &store, &name("other")).await.unwrap());
    assert_eq!(accounts(&store).await, before);
    the_books_balance(&store).await;
    while make_slice(&store).await {
        the_books_balance(&store).await;
    }
    for chunk in claim_all(&store, 50).await {
        settle_all(&store, &chunk, DELIVERED).await;
    }
    the_books_balance(&store).await;
    store.close().await;
    drop(store);
    the_books_balance(&open(directory.path())).await;
}

#[tokio::test]
async fn a_store_without_notifications_has_nothing_to_assign() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let store = upgrade(store, directory.path(), "INSERT INTO totals VALUES (0, 0)").await;
    assert_eq!(accounts(&store).await, [Some(Account::default()); 2]);
    ingest(&store, "news", 1).await;
    the_books_balance(&store).await;
}

/// The audit counts as of its beginning, and the assignment comes after it: all that is written in between is counted by those
/// who write it, for its tenant.
#[tokio::test]
async fn writers_go_on_while_an_assignment_is_made_and_only_the_first_one_counts() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    fill(&store).await;
    let store = upgrade(store, directory.path(), "").await;
    for tenant in TENANTS {
        ingest(&store, tenant, 40).await;
    }
    let mut open = vec![open_broadcast(&store, "shop").await, open_broadcast(&store, "news").await];
    let mut claimed = claim_all(&store, 50).await;
    assert!(claimed.len() >= 4, "retries and new ones of both");
    let mut work = async || {
        let [news, shop] = TENANTS;
        ingest(&store, news, 2).await;
        let ids = ingest(&store, shop, 3).await;
        store.cancel(CancelTarget::Notification(ids[0]), name(shop), at(2)).await.unwrap();
        let cancelled = [State::Cancelled].into();
        let again = store.requeue(ids[..1].to_vec(), cancelled, name(shop), at(3)).await.unwrap();
        assert_eq!(again, [Requeued::Requeued]);
        settle_one_of_each(&store, &mut claimed, &[State::Delivered, State::Dead]).await;
        if let Some(id) = open.pop() {
            store.seal_broadcast(id, at(4)).await.unwrap();
        }
        make_slice(&store).await;
    };
    let mut slices = 0;
    let audit = store.reader.audit_in_slices(4, async || {
        slices += 1;
        if slices < 8 {
            work().await;
        }
    });
    let audit = audit.await.unwrap();
    assert_eq!(audit.problems, Vec::<String>::new());
    assert!(slices > 8, "{slices}");
    work().await;
    prune(&store).await;
    let late = store.reader.audit().await.unwrap().unassigned.unwrap();
    work().await;
    let first = audit.unassigned.unwrap();
    assert_eq!(
        first, late,
        "what writers count for its tenant changes nothing of what is without one"
    );
    assert_eq!(accounts(&store).await, [None, None]);
    assert!(store.assign_totals(first.clone()).await.unwrap());
    let assigned = accounts(&store).await;
    assert!(assigned.iter().all(|account| account.unwrap().is_balanced()), "{assigned:?}");
    the_books_balance(&store).await;
    for other in [first, late] {
        assert!(!store.assign_totals(other).await.unwrap(), "of an instant before the first one");
    }
    assert_eq!(accounts(&store).await, assigned);
    work().await;
    the_books_balance(&store).await;
}

/// A lane that is older than lanes of tenants: those of both tenants wait in one of the tenant `default`.
#[tokio::test]
async fn in_a_lane_of_several_tenants_each_notification_is_counted_for_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let once = |tenant| Shape { guarantee: Guarantee::AtMostOnce, tenant, ..Shape::default() };
    for tenant in TENANTS {
        ingest(&store, tenant, 3).await;
        once(tenant).ingest(&store, 2).await;
        Shape { expires_at: Some(5), due_at: 5, ..once(tenant) }.ingest(&store, 1).await;
        Shape { due_at: 90_000, ..once(tenant) }.ingest(&store, 1).await;
    }
    let one_lane = "UPDATE batch SET lane = 1; UPDATE chunk SET lane = 1; DELETE FROM tenant_lane WHERE id <> 1; \
         UPDATE tenant_lane SET tenant = 'default'";
    let store = upgrade(store, directory.path(), one_lane).await;
    assert!(assign_totals(&store.reader, &store, &name("other")).await.unwrap());
    ingest(&store, "default", 1).await;
    let chunks = claim_all(&store, 5).await;
    the_books_balance(&store).await;
    for chunk in &chunks {
        if chunk.envelope.guarantee == Guarantee::AtLeastOnce {
            settle_all(&store, chunk, DELIVERED).await;
        } else {
            let mark = Mark { chunk: chunk.id, epoch: chunk.epoch, through: 0 };
            assert_eq!(store.begin(vec![mark]).await.unwrap(), [MarkAnswer::Granted]);
        }
    }
    the_books_balance(&store).await;
    let lease_ended = 80_000;
    assert_eq!(claim_all(&store, lease_ended).await.len(), 2, "one of each that had not begun");
    the_books_balance(&store).await;
    let [news, shop] = accounts(&store).await.map(Option::unwrap);
    assert_eq!((news.accepted, news.delivered, news.expired, news.in_doubt), (7, 3, 1, 1));
    assert_eq!(news, shop);
}

/// Rows of the totals that no tenant accounts for stay without one: an audit tells of the difference before and after.
#[tokio::test]
async fn what_no_tenant_has_is_not_assigned() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    fill(&store).await;
    let one_too_many = "UPDATE totals SET count = count + 1 WHERE state = 0";
    let store = upgrade(store, directory.path(), one_too_many).await;
    for _ in 0..2 {
        let audit = store.reader.audit().await.unwrap();
        let [problem] = &*audit.problems else { panic!("{:?}", audit.problems) };
        assert!(problem.contains("the totals say pending"), "{problem}");
        assert!(!assign_totals(&store.reader, &store, &name("other")).await.unwrap());
        assert_eq!(accounts(&store).await, [None, None]);
    }
}
