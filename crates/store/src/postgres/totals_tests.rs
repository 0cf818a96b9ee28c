//! Totals by tenant, beside processes of an earlier version and after them.

use std::collections::BTreeMap;

use flow::{Clock, Tasks};
use notification::{Account, Disposition, State};
use testbed::Database;
use tokio_postgres::Client;

use super::plans_tests::Seat;
use super::setup_tests::{connect, fresh, open};
use super::transaction::Transaction;
use super::{Options, Postgres};
use crate::conformance::{
    BroadcastShape, DELIVERED, Shape, at, claim_all, groups, name, part, settle_all,
    the_books_balance,
};
use crate::rows::release::Slicing;
use crate::{
    BroadcastDraft, BroadcastOpened, CancelTarget, Ingest as _, Operations as _, ReadStore as _,
    Settlements as _, TotalsAssignment, assign_totals,
};

/// As a process of schema 30 folds: of whichever tenant the rows are, it leaves sums without one.
pub(super) const FOLD_BEFORE: &str = "WITH gone AS (DELETE FROM totals_delta WHERE ctid = ANY(ARRAY( \
     SELECT ctid FROM totals_delta WHERE ctid >= '(0,0)' FOR UPDATE SKIP LOCKED)) RETURNING state, change) \
     INSERT INTO totals_delta (state, change) SELECT state, sum(change) FROM gone GROUP BY state";
/// As it reads the totals.
const TOTALS_BEFORE: &str = "SELECT state, sum(change)::int8 FROM totals_delta GROUP BY state";
/// The rows as if it had written those of a tenant.
const WRITTEN_BEFORE: &str = "UPDATE totals_delta SET tenant = NULL WHERE tenant = $1";
/// The schema before there was a tenant.
const AS_BEFORE: &str = "ALTER TABLE totals_delta DROP COLUMN tenant; \
     DELETE FROM meta WHERE key IN ('totals_assigned', 'mixed_lanes_through'); \
     DELETE FROM refinery_schema_history WHERE version >= 31";
const ROWS: &str = "SELECT tenant, state, change FROM totals_delta ORDER BY tenant, state, change";
const NAMELESS: &str = "SELECT count(*) FROM totals_delta WHERE tenant IS NULL";

/// Rows of the totals: tenant, state, change.
type Rows = Vec<(Option<String>, i16, i64)>;

async fn rows(client: &Client) -> Rows {
    let rows = client.query(ROWS, &[]).await.unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect()
}

async fn count(client: &Client, sql: &str) -> i64 {
    client.query_one(sql, &[]).await.unwrap().get(0)
}

/// The totals as a process of an earlier version reads them, without those of nothing.
async fn totals_before(client: &Client) -> BTreeMap<i16, i64> {
    let rows = client.query(TOTALS_BEFORE, &[]).await.unwrap();
    let counts = rows.iter().map(|row| (row.get(0), row.get(1)));
    counts.filter(|(_, count)| *count != 0).collect()
}

async fn accounts(store: &Postgres) -> [Option<Account>; 2] {
    let of = |tenant| store.reader().tenant_totals(name(tenant));
    [of("a").await.unwrap(), of("b").await.unwrap()]
}

/// The assignment that an audit makes now, which finds nothing wrong.
async fn assignment(store: &Postgres) -> TotalsAssignment {
    let audit = store.reader().audit().await.unwrap();
    assert_eq!(audit.problems, Vec::<String>::new());
    assert_eq!(audit.account, store.reader().totals().await.unwrap());
    audit.unassigned.unwrap()
}

async fn assign(store: &Postgres) -> bool {
    assign_totals(store.reader(), store, &name("a")).await.unwrap()
}

async fn send(store: &Postgres, tenant: &'static str, count: usize) {
    Shape { tenant, destination: tenant, ..Shape::default() }.ingest(store, count).await;
}

/// Two of tenant `a` are delivered, one is dead, one waits; three of `b` wait.
async fn two_tenants(database: &Database) -> Postgres {
    let store = open(database).await;
    send(&store, "a", 4).await;
    let chunk = claim_all(&store, 0).await.remove(0);
    let dead = Disposition::Ended(State::Dead);
    for settlement in [part(&chunk, &[0, 1], DELIVERED), part(&chunk, &[2], dead)] {
        store.settle(vec![settlement]).await.unwrap();
    }
    send(&store, "b", 3).await;
    let [Some(a), Some(b)] = accounts(&store).await else { unreachable!("all have their tenant") };
    assert_eq!((a.accepted, a.delivered, a.dead, a.pending), (4, 2, 1, 1));
    assert_eq!((b.accepted, b.pending), (3, 3));
    store
}

#[tokio::test]
async fn what_an_earlier_version_folds_is_assigned_again() {
    let (database, mut tasks) = (fresh(), Tasks::default());
    let store = two_tenants(&database).await;
    let client = connect(&database, &mut tasks).await;
    let (before, all) = (accounts(&store).await, totals_before(&client).await);
    client.execute(FOLD_BEFORE, &[]).await.unwrap();
    assert_eq!(accounts(&store).await, [None, None]);
    assert_eq!(totals_before(&client).await, all);
    assert!(assign(&store).await);
    assert_eq!(accounts(&store).await, before);
    assert_eq!(totals_before(&client).await, all);
    assert_eq!(count(&client, NAMELESS).await, 0);
    the_books_balance(&store).await;
}

/// Until it is assigned, the tenant has less than nothing that waits.
#[tokio::test]
async fn what_an_earlier_version_accepts_and_this_one_settles_comes_to_its_tenant() {
    let (database, mut tasks) = (fresh(), Tasks::default());
    let store = open(&database).await;
    let client = connect(&database, &mut tasks).await;
    send(&store, "a", 3).await;
    assert_eq!(client.execute(WRITTEN_BEFORE, &[&"a"]).await.unwrap(), 1);
    let chunk = claim_all(&store, 0).await.remove(0);
    settle_all(&store, &chunk, DELIVERED).await;
    send(&store, "b", 1).await;
    let pending = i16::from(State::Pending.code());
    assert!(rows(&client).await.contains(&(Some("a".to_owned()), pending, -3)));
    assert_eq!(accounts(&store).await, [None, None]);
    let totals = store.reader().totals().await.unwrap();
    assert_eq!((totals.accepted, totals.delivered, totals.pending), (4, 3, 1));
    assert!(assign(&store).await);
    the_books_balance(&store).await;
    let [Some(a), Some(b)] = accounts(&store).await else { unreachable!("it is assigned") };
    assert_eq!((a.delivered, a.pending, b.pending), (3, 0, 1));
}

#[tokio::test]
async fn what_is_counted_between_an_audit_and_its_assignment_is_right_with_it_or_the_next() {
    for folds in [false, true] {
        let (database, mut tasks) = (fresh(), Tasks::default());
        let store = two_tenants(&database).await;
        let client = connect(&database, &mut tasks).await;
        client.execute(FOLD_BEFORE, &[]).await.unwrap();
        let audited = assignment(&store).await;
        send(&store, "a", 2).await;
        send(&store, "b", 5).await;
        assert_eq!(client.execute(WRITTEN_BEFORE, &[&"b"]).await.unwrap(), 1);
        if folds {
            client.execute(FOLD_BEFORE, &[]).await.unwrap();
        }
        let all = totals_before(&client).await;
        assert!(store.assign_totals(audited).await.unwrap());
        assert_eq!(totals_before(&client).await, all);
        assert_eq!(accounts(&store).await, [None, None], "there is something of the other version");
        assert!(assign(&store).await);
        assert_eq!(totals_before(&client).await, all);
        the_books_balance(&store).await;
        let [Some(a), Some(b)] = accounts(&store).await else { unreachable!("it is assigned") };
        assert_eq!((a.pending, b.pending), (3, 8));
    }
}

#[tokio::test]
async fn changes_of_this_version_meanwhile_do_not_void_an_assignment() {
    let (database, mut tasks) = (fresh(), Tasks::default());
    let store = two_tenants(&database).await;
    let client = connect(&database, &mut tasks).await;
    client.execute(FOLD_BEFORE, &[]).await.unwrap();
    let audited = assignment(&store).await;
    send(&store, "a", 2).await;
    let chunk = claim_all(&store, 1).await.remove(0);
    settle_all(&store, &chunk, DELIVERED).await;
    assert!(store.assign_totals(audited).await.unwrap());
    assert!(accounts(&store).await.iter().all(Option::is_some));
    the_books_balance(&store).await;
}

#[tokio::test]
async fn the_second_of_two_assignments_of_one_instant_changes_nothing() {
    let (database, mut tasks) = (fresh(), Tasks::default());
    let store = two_tenants(&database).await;
    let client = connect(&database, &mut tasks).await;
    client.execute(FOLD_BEFORE, &[]).await.unwrap();
    let (first, second) = (assignment(&store).await, assignment(&store).await);
    assert!(store.assign_totals(first).await.unwrap());
    let after = rows(&client).await;
    assert!(!store.assign_totals(second).await.unwrap());
    assert_eq!(rows(&client).await, after);
    the_books_balance(&store).await;
}

#[tokio::test]
async fn an_assignment_waits_for_no_other_that_is_under_way() {
    let (database, mut tasks) = (fresh(), Tasks::default());
    let store = two_tenants(&database).await;
    let mut client = connect(&database, &mut tasks).await;
    client.execute(FOLD_BEFORE, &[]).await.unwrap();
    let audited = assignment(&store).await;
    let other = client.transaction().await.unwrap();
    let raise = "UPDATE meta SET value = value + 1 WHERE key = 'totals_assigned'";
    assert_eq!(other.execute(raise, &[]).await.unwrap(), 1);
    assert!(!store.assign_totals(audited.clone()).await.unwrap());
    other.rollback().await.unwrap();
    assert!(store.assign_totals(audited).await.unwrap());
    the_books_balance(&store).await;
}

#[tokio::test]
async fn rows_that_an_earlier_version_folds_at_the_moment_are_assigned_with_the_next() {
    for is_committed in [true, false] {
        let (database, mut tasks) = (fresh(), Tasks::default());
        let store = two_tenants(&database).await;
        let client = connect(&database, &mut tasks).await;
        let mut folder = connect(&database, &mut tasks).await;
        let (before, all) = (accounts(&store).await, totals_before(&client).await);
        client.execute(FOLD_BEFORE, &[]).await.unwrap();
        let folding = folder.transaction().await.unwrap();
        assert!(folding.execute(FOLD_BEFORE, &[]).await.unwrap() > 0);
        let audited = assignment(&store).await;
        assert!(store.assign_totals(audited).await.unwrap(), "it waits for nothing");
        assert_eq!(totals_before(&client).await, all);
        assert_eq!(accounts(&store).await, [None, None]);
        if is_committed {
            folding.commit().await.unwrap();
        } else {
            folding.rollback().await.unwrap();
        }
        assert_eq!(totals_before(&client).await, all);
        assert!(assign(&store).await);
        assert_eq!(accounts(&store).await, before);
        the_books_balance(&store).await;
    }
}

#[tokio::test]
async fn a_difference_is_a_problem_of_its_tenant_once_all_is_assigned() {
    let (database, mut tasks) = (fresh(), Tasks::default());
    let store = two_tenants(&database).await;
    let client = connect(&database, &mut tasks).await;
    let shift = "INSERT INTO totals_delta (tenant, state, change) VALUES ('a', 0, 1), ('b', 0, -1)";
    client.batch_execute(shift).await.unwrap();
    let audit = store.reader().audit().await.unwrap();
    assert_eq!((audit.problem_count, audit.unassigned), (2, None));
    for (problem, tenant) in audit.problems.iter().zip(["a", "b"]) {
        assert!(problem.starts_with(&format!("tenant {tenant}: counted")), "{problem}");
    }
    // A row without a tenant, even if it counts nothing, says that an earlier version was there: then they may be folded with it.
    let nameless = "INSERT INTO totals_delta (state, change) VALUES (0, 0)";
    client.batch_execute(nameless).await.unwrap();
    assert_eq!(store.reader().audit().await.unwrap().problem_count, 0);
    assert!(assign(&store).await);
    the_books_balance(&store).await;
}

/// Commits a transaction that accepts one of `tenant`.
async fn accept(seat: &mut Seat, tenant: &str) {
    let mut transaction = Transaction::begin(&seat.session, &mut seat.state).await.unwrap();
    transaction.count_accepted(&name(tenant), 1);
    transaction.commit().await.unwrap();
    seat.state.committed();
}

#[tokio::test]
async fn a_writer_folds_the_rows_of_tenants_and_no_others() {
    let (database, mut tasks) = (fresh(), Tasks::default());
    let client = connect(&database, &mut tasks).await;
    let mut seat = Seat::take(&database).await;
    // What has ended, of a tenant, and of none, which stay two rows.
    let before = "INSERT INTO totals_delta (tenant, state, change) \
         VALUES (NULL, 0, 1), (NULL, 0, -1), ('gone', 0, 1), ('gone', 0, -1), ('gone', 3, 1)";
    client.batch_execute(before).await.unwrap();
    for number in 0..255 {
        accept(&mut seat, if number % 2 == 0 { "a" } else { "b" }).await;
    }
    assert_eq!(rows(&client).await.len(), 260);
    accept(&mut seat, "b").await;
    let row = |tenant: &str, state, change| (Some(tenant.to_owned()), state, change);
    let tenants = [row("a", 0, 128), row("b", 0, 128), row("gone", 3, 1)];
    let nameless = [(None, 0, -1), (None, 0, 1)];
    assert_eq!(rows(&client).await, [tenants.as_slice(), &nameless].concat());
}

#[tokio::test]
async fn rows_of_many_tenants_are_folded_when_as_many_have_come_in() {
    const TENANTS: i64 = 300;
    let (database, mut tasks) = (fresh(), Tasks::default());
    let client = connect(&database, &mut tasks).await;
    let mut seat = Seat::take(&database).await;
    let before = "INSERT INTO totals_delta (tenant, state, change) SELECT 'tenant-' || n, 0, 1 FROM generate_series(1, $1::int8) AS n";
    client.execute(before, &[&TENANTS]).await.unwrap();
    // The first folding of a writer shows it how many there are.
    for _ in 0..256 {
        accept(&mut seat, "tenant-1").await;
    }
    let of_all = count(&client, "SELECT count(*) FROM totals_delta").await;
    assert_eq!(of_all, TENANTS);
    for _ in 0..TENANTS - 1 {
        accept(&mut seat, "tenant-1").await;
    }
    let of_all = count(&client, "SELECT count(*) FROM totals_delta").await;
    assert_eq!(of_all, 2 * TENANTS - 1);
    accept(&mut seat, "tenant-1").await;
    assert_eq!(count(&client, "SELECT count(*) FROM totals_delta").await, TENANTS);
}

/// A broadcast of `tenant`, of three batches, that waits to be released.
async fn broadcast(store: &Postgres, tenant: &str) -> notification::BroadcastId {
    let draft = BroadcastDraft { tenant: name(tenant), ..BroadcastShape::default().draft() };
    let opened = store.open_broadcast(draft, at(0)).await.unwrap();
    let BroadcastOpened::Opened(id) = opened else { unreachable!("it has no key") };
    for _ in 0..3 {
        store.add_recipients(id, groups(2), at(0)).await.unwrap();
    }
    id
}

/// A store of schema 30 with broadcasts of two tenants, one open, one that waits, one withdrawn, and what retention has left.
async fn of_schema_30(database: &Database, client: &Client) -> Account {
    let slicing = Slicing { batches: 1, goes_on: false };
    two_tenants(database).await.close().await;
    let options = Options::new(database.url());
    let store = Postgres::open_slicing(options, Clock::system(), slicing).await.unwrap();
    for tenant in ["a", "b"] {
        broadcast(&store, tenant).await;
        let waiting = broadcast(&store, tenant).await;
        assert_eq!(store.seal_broadcast(waiting, at(1)).await.unwrap(), 6);
    }
    let withdrawn = broadcast(&store, "b").await;
    store.seal_broadcast(withdrawn, at(1)).await.unwrap();
    let target = CancelTarget::Broadcast(withdrawn);
    let cancelled = store.cancel(target, name("b"), at(2)).await.unwrap().unwrap();
    assert_eq!(cancelled.cancelled, 6);
    let left = "INSERT INTO tombstone (tenant, channel, state, count) VALUES ('a', 'channel', 3, 7), ('b', 'channel', 4, 9); \
         INSERT INTO totals_delta (tenant, state, change) VALUES ('a', 3, 7), ('b', 4, 9)";
    client.batch_execute(left).await.unwrap();
    the_books_balance(&store).await;
    let totals = store.reader().totals().await.unwrap();
    store.close().await;
    client.batch_execute(AS_BEFORE).await.unwrap();
    totals
}

#[tokio::test]
async fn a_store_of_the_schema_before_gets_its_totals_by_tenant_from_an_audit() {
    let (database, mut tasks) = (fresh(), Tasks::default());
    let client = connect(&database, &mut tasks).await;
    let totals = of_schema_30(&database, &client).await;
    let slicing = Slicing { batches: 1, goes_on: false };
    let options = Options::new(database.url());
    let store = Postgres::open_slicing(options, Clock::system(), slicing).await.unwrap();
    assert_eq!(accounts(&store).await, [None, None]);
    assert_eq!(store.reader().totals().await.unwrap(), totals);
    let audited = assignment(&store).await;
    // Writers go on, this one and one of the schema before, which has found all columns that it names.
    send(&store, "a", 2).await;
    let accept = "INSERT INTO totals_delta (state, change) SELECT * FROM unnest(ARRAY[3, 0]::int2[], ARRAY[1, -1]::int8[])";
    client.batch_execute(accept).await.unwrap();
    let undo = "INSERT INTO totals_delta (state, change) SELECT * FROM unnest(ARRAY[3, 0]::int2[], ARRAY[-1, 1]::int8[])";
    client.batch_execute(undo).await.unwrap();
    client.execute(FOLD_BEFORE, &[]).await.unwrap();
    assert!(store.assign_totals(audited.clone()).await.unwrap());
    assert!(!store.assign_totals(audited).await.unwrap());
    assert!(assign(&store).await);
    the_books_balance(&store).await;
    let [Some(a), Some(b)] = accounts(&store).await else { unreachable!("it is assigned") };
    assert_eq!((a.accepted, a.delivered, a.dead, a.pending), (4 + 6 + 7 + 2, 2 + 7, 1, 1 + 6 + 2));
    assert_eq!((b.accepted, b.refused, b.cancelled, b.pending), (3 + 6 + 6 + 9, 9, 6, 3 + 6));
}
