//! Stores of an earlier version, with data of it: opened, read, sent, and counted.
//!
//! The data in `upgrade/` were written by an engine of the commit 5fcbc434, which had no retention, no index and no events: schema 9
//! of SQLite, 16 of PostgreSQL. It was killed, and its database was dumped as statements. `*.txt` has what it listed: identifier,
//! state, channel and recipient of each notification. By hand, the time for which some are scheduled was set back to one that has
//! passed: PostgreSQL claims nothing before the clock says so.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "the helpers of a test fail by panicking"
)]

#[cfg(feature = "postgres")]
mod support;

use std::collections::BTreeMap;

use notification::{BroadcastId, Chunk, NotificationId, Scope, State, Timestamp};
use store::conformance::{claim_all, name, settle_all, the_books_balance};
use store::{
    BroadcastFilter, Claims, DeliveryFilter, EventPosition, Filter, KeyUse, Requeued, Store,
    assign_totals,
};

/// Recipients and states as the engine of before listed them.
type Listed = BTreeMap<NotificationId, (State, String)>;

/// After everything that waits is due: 2026-11-27T22:11:00Z.
const LATER: i64 = 1_795_817_460_000;

fn listed(text: &str) -> Listed {
    let line = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        (words[0].parse().unwrap(), (words[1].parse().unwrap(), words[3].to_owned()))
    };
    text.lines().map(line).collect()
}

async fn list(store: &dyn Store, filter: Filter) -> Listed {
    let (mut all, mut after) = (Listed::new(), None);
    loop {
        let page = store.reader().list(filter.clone(), after, 100).await.unwrap();
        all.extend(
            page.items.into_iter().map(|it| (it.id, (it.state, it.recipient.unwrap().to_string()))),
        );
        after = page.next;
        if after.is_none() {
            return all;
        }
    }
}

/// Everything is there as it was, and is found by what this version has added. What was counted is without a tenant at first.
async fn all_is_there(store: &dyn Store, before: &Listed) {
    let (reads, tenant) = (store.reader(), name("default"));
    assert_eq!(reads.tenant_totals(tenant.clone()).await.unwrap(), None);
    assert_eq!(reads.tenants(None, 9).await.unwrap(), None);
    let totals = reads.totals().await.unwrap();
    assert_eq!(totals.accepted, before.len() as u64);
    assert!(assign_totals(reads, store, &tenant).await.unwrap());
    assert_eq!(reads.tenant_totals(tenant).await.unwrap(), Some(totals));
    the_books_balance(store).await;
    assert_eq!(&list(store, Filter::default()).await, before);
    let tenant = name("default");
    let to = |recipient: &str| Filter {
        tenant: Some(tenant.clone()),
        recipient: Some(recipient.into()),
        ..Filter::default()
    };
    assert_eq!(list(store, to("c-7")).await.len(), 1);
    let reads = store.reader();
    let found = reads.list(to("with-fallback"), None, 9).await.unwrap().items;
    let content = found[0].content.clone().unwrap();
    assert_eq!(content.fallback.unwrap().next[0].recipient, "fallback");
    assert_eq!((&*content.payload, found[0].labels.is_empty()), (&br#"{"n":1}"#[..], true));
    let used = reads.key_use(tenant.clone(), "order 4".into()).await.unwrap();
    assert!(matches!(used, Some(KeyUse::Notification(id)) if before[&id].1 == "keyed"), "{used:?}");
    let campaign = reads.key_use(tenant.clone(), "campaign".into()).await.unwrap();
    let broadcasts = reads.broadcasts(BroadcastFilter::of(tenant.clone()), None, 9).await.unwrap();
    let broadcasts: Vec<_> =
        broadcasts.items.iter().map(|broadcast| (broadcast.id, broadcast.accepted)).collect();
    assert_eq!(broadcasts, [(BroadcastId(1), 30), (BroadcastId(2), 20)]);
    assert_eq!(campaign, Some(KeyUse::Broadcast(BroadcastId(1))));
    let ends = before.values().filter(|(state, _)| state.is_terminal()).count();
    let filter = DeliveryFilter::ends_of(tenant);
    let page = reads.delivery_events(filter, EventPosition::default(), 1_000).await.unwrap();
    assert_eq!(page.events.len(), ends, "what was settled before is told of as well");
    let suppressed = reads.suppressions(name("dry"), None, 9).await.unwrap();
    assert_eq!(suppressed.iter().map(|it| &*it.recipient).collect::<Vec<_>>(), ["left-alone"]);
}

/// Everything that waits is sent, once it is resumed; what was given up is sent again; and all of it is counted.
async fn all_of_it_ends(store: &dyn Store, before: &Listed) {
    let of_state =
        |state| before.iter().filter(move |(_, (its, _))| *its == state).map(|(id, _)| *id);
    let dead: Vec<NotificationId> = of_state(State::Dead).collect();
    let later = Timestamp::from_millis(LATER);
    let requeued = store.requeue(dead.clone(), [State::Dead].into(), name("default"), later);
    assert_eq!(requeued.await.unwrap(), vec![Requeued::Requeued; dead.len()]);
    // On PostgreSQL the process that was killed has its partitions until another has removed it.
    let mut changes = Claims::<Chunk>::changes(store);
    let mut send = async |expected: usize| {
        let mut sent = 0;
        loop {
            changes.mark_unchanged();
            for chunk in claim_all(store, LATER).await {
                sent += chunk.deliveries.len();
                settle_all(store, &chunk, notification::Disposition::Ended(State::Delivered)).await;
            }
            if sent >= expected {
                return sent;
            }
            changes.changed().await.unwrap();
        }
    };
    let waited = of_state(State::Pending).count();
    let all_but_paused = waited + dead.len() - 20;
    assert_eq!(send(all_but_paused).await, all_but_paused);
    let scope = Scope::Broadcast(BroadcastId(2));
    assert!(store.resume(name("default"), scope).await.unwrap());
    assert_eq!(send(20).await, 20);
    the_books_balance(store).await;
    let account = store.reader().totals().await.unwrap();
    assert_eq!((account.accepted, account.pending), (before.len() as u64, 0));
}

#[tokio::test]
async fn a_store_of_schema_9_is_brought_up_to_date_and_nothing_is_lost() {
    let directory = tempfile::tempdir().unwrap();
    let connection = rusqlite::Connection::open(directory.path().join("belfry.db")).unwrap();
    connection.execute_batch(include_str!("upgrade/sqlite-9.sql")).unwrap();
    drop(connection);
    let before = listed(include_str!("upgrade/sqlite-9.txt"));
    let options = store::sqlite::Options::new(1);
    let (store, _) =
        store::Sqlite::open(directory.path(), options, Timestamp::from_millis(LATER)).unwrap();
    all_is_there(&store, &before).await;
    all_of_it_ends(&store, &before).await;
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn a_database_of_schema_16_is_brought_up_to_date_and_nothing_is_lost() {
    let database = testbed::postgres::shared().unwrap().create().unwrap();
    database.query(include_str!("upgrade/postgres-16.sql")).unwrap();
    let before = listed(include_str!("upgrade/postgres-16.txt"));
    let store = support::open(database.url()).await;
    // The slots of the outbox and what is put aside have the columns that were added since.
    let with_labels = "SELECT string_agg(relname, ' ' ORDER BY relname) FROM ( \
             SELECT attrelid FROM pg_attribute \
             WHERE (attname, atttypid::regtype::text) IN (('external_id', 'text'), ('tags', 'json'), ('metadata', 'json')) \
             GROUP BY attrelid HAVING count(*) = 3) AS with_all JOIN pg_class ON pg_class.oid = attrelid";
    let tables = "outbox outbox_0 outbox_1 outbox_2 outbox_3 outbox_rejected";
    assert_eq!(database.query(with_labels).unwrap(), tables);
    let insert = "INSERT INTO belfry.outbox (channel, recipient, content, external_id, tags, metadata) \
         VALUES ('c', 'r', '1', 'x', '[\"a\"]', '[]')";
    let refused = database.query(insert).unwrap_err().to_string();
    assert!(refused.contains("metadata are an object"), "{refused}");
    all_is_there(&store, &before).await;
    all_of_it_ends(&store, &before).await;
    store.close().await;
}
