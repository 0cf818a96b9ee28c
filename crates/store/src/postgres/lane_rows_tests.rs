//! Lanes in which nothing is, while other processes write to them.

use std::sync::Arc;

use flow::Tasks;
use testbed::Database;
use tokio::sync::oneshot;
use tokio_postgres::Client;

use super::Postgres;
use super::setup_tests::{connect, fresh, open, until_blocked};
use crate::conformance::{Shape, at, the_books_balance};
use crate::rows::emptied_lanes::{
    LaneStore, day, deliver, lanes_go_when_nothing_is_in_them, prune, send,
};
use crate::rows::retention::LANE_KEPT_FOR;
use crate::{Ingest as _, ReadStore as _, Store};

struct PostgresLanes {
    database: Database,
    client: Client,
    store: Postgres,
}

/// Gives the batches of stores that are opened from now on numbers that are further on than a lane is kept for.
async fn skip_numbers(client: &Client) {
    let skip = "SELECT setval('batch_number', last_value + $1) FROM batch_number";
    client.execute(skip, &[&(2 * LANE_KEPT_FOR.cast_signed())]).await.unwrap();
}

async fn destinations(client: &Client) -> Vec<String> {
    let select = "SELECT destination FROM tenant_lane ORDER BY destination";
    client.query(select, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
}

impl LaneStore for PostgresLanes {
    fn store(&self) -> &dyn Store {
        &self.store
    }

    async fn destinations(&self) -> Vec<String> {
        destinations(&self.client).await
    }

    async fn skip_numbers(&mut self) {
        self.store.close().await;
        skip_numbers(&self.client).await;
        self.store = open(&self.database).await;
    }
}

#[tokio::test]
async fn lanes_go_on_postgres() {
    let (database, mut tasks) = (fresh(), Tasks::default());
    let client = connect(&database, &mut tasks).await;
    let store = open(&database).await;
    lanes_go_when_nothing_is_in_them(&mut PostgresLanes { database, client, store }).await;
}

/// A database with a lane in which nothing is, and which the next walk removes.
async fn with_an_empty_lane(tasks: &mut Tasks) -> (Database, Client) {
    let database = fresh();
    let client = connect(&database, tasks).await;
    let mut store = open(&database).await;
    send(&store, "empty", day(0)).await;
    for now in [day(200), day(300)] {
        store.close().await;
        skip_numbers(&client).await;
        store = open(&database).await;
        send(&store, "young", now).await;
    }
    assert_eq!(prune(&store, day(100)).await.outcomes, 1);
    store.close().await;
    (database, client)
}

/// Sends a notification to the lane `empty` with a transaction that waits somewhere on its way.
fn send_late(store: &Arc<Postgres>, tasks: &mut Tasks) -> oneshot::Receiver<()> {
    let (told, late) = oneshot::channel();
    let store = Arc::clone(store);
    tasks.spawn("late", async move {
        let shape = Shape { destination: "empty", key: Some(("key", 1)), ..Shape::default() };
        store.ingest(vec![shape.draft("recipient")], at(0)).await.unwrap();
        told.send(()).unwrap();
    });
    late
}

#[tokio::test]
async fn a_lane_that_is_removed_after_a_writer_has_read_it_is_made_anew() {
    let mut tasks = Tasks::default();
    let (database, client) = with_an_empty_lane(&mut tasks).await;
    let writer = Arc::new(open(&database).await);
    let mut other = connect(&database, &mut tasks).await;
    let removal = other.transaction().await.unwrap();
    let remove = "DELETE FROM tenant_lane WHERE destination = 'empty' RETURNING id";
    let removed: i32 = removal.query_one(remove, &[]).await.unwrap().get(0);
    let late = send_late(&writer, &mut tasks);
    until_blocked(&client).await;
    removal.commit().await.unwrap();
    late.await.unwrap();
    let select = "SELECT lane.id FROM batch JOIN tenant_lane AS lane ON lane.id = batch.lane WHERE destination = 'empty'";
    assert_ne!(client.query_one(select, &[]).await.unwrap().get::<_, i32>(0), removed);
    assert_eq!(deliver(&*writer, day(400)).await, ["empty"]);
    the_books_balance(&*writer).await;
}

#[tokio::test]
async fn a_lane_to_which_a_writer_is_about_to_write_is_kept() {
    let mut tasks = Tasks::default();
    let (database, client) = with_an_empty_lane(&mut tasks).await;
    let (writer, pruner) = (Arc::new(open(&database).await), open(&database).await);
    // The last that a transaction writes are its keys.
    let mut other = connect(&database, &mut tasks).await;
    let holder = other.transaction().await.unwrap();
    let key = "INSERT INTO idempotency (tenant, key, fingerprint, broadcast) VALUES ('tenant', 'key', '', 1)";
    holder.batch_execute(key).await.unwrap();
    let late = send_late(&writer, &mut tasks);
    until_blocked(&client).await;
    assert_eq!(prune(&pruner, day(350)).await.lanes, 0);
    holder.rollback().await.unwrap();
    late.await.unwrap();
    assert_eq!(prune(&pruner, day(352)).await.lanes, 0);
    assert_eq!(destinations(&client).await, ["empty", "young"]);
    // It is in a partition of one of them.
    let delivered = [deliver(&*writer, day(400)).await, deliver(&pruner, day(400)).await];
    assert_eq!(delivered.concat(), ["empty"]);
    the_books_balance(&pruner).await;
}

#[tokio::test]
async fn a_lane_that_a_writer_remembers_is_looked_up_before_it_may_be_gone() {
    let mut tasks = Tasks::default();
    let database = fresh();
    let client = connect(&database, &mut tasks).await;
    let writer = open(&database).await;
    send(&writer, "empty", day(0)).await;
    skip_numbers(&client).await;
    // All that the writer has in hand is spent.
    for _ in 0..64 {
        send(&writer, "young", day(200)).await;
    }
    // It may get the partition of either lane, so nothing is claimed from here on.
    let other = open(&database).await;
    assert_eq!(prune(&other, day(300)).await.lanes, 1);
    assert_eq!(destinations(&client).await, ["young"]);
    Shape { destination: "empty", ..Shape::default() }.ingest(&writer, 1).await;
    assert_eq!(destinations(&client).await, ["empty", "young"]);
    the_books_balance(&writer).await;
}

#[tokio::test]
async fn lanes_are_kept_for_numbers_that_were_given_before_lower_ones() {
    let mut tasks = Tasks::default();
    let database = fresh();
    let client = connect(&database, &mut tasks).await;
    let store = open(&database).await;
    send(&store, "first", day(0)).await;
    skip_numbers(&client).await;
    // The rest of the first numbers is given when those that are drawn now are spent.
    let draft = |number: usize| {
        let mut draft = Shape::default().draft("recipient");
        draft.envelope.lane.destination = number.to_string().into();
        draft
    };
    store.ingest((0..100).map(draft).collect(), at(0)).await.unwrap();
    let select = "SELECT count(*), count(*) FILTER (WHERE batch.id > kept_through), max(batch.id) - min(batch.id) \
         FROM batch JOIN tenant_lane AS lane ON lane.id = batch.lane";
    let row = client.query_one(select, &[]).await.unwrap();
    assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1)), (101, 0));
    assert!(row.get::<_, i64>(2) > LANE_KEPT_FOR.cast_signed(), "the numbers are far apart");
}

#[tokio::test]
async fn a_new_lane_is_kept_for_longer_beside_a_process_of_another_version() {
    let mut tasks = Tasks::default();
    let database = fresh();
    let client = connect(&database, &mut tasks).await;
    let (store, _other) = (open(&database).await, open(&database).await);
    store.ingest(vec![Shape::default().draft("recipient")], at(0)).await.unwrap();
    let other = "UPDATE worker SET version = 'other' WHERE id = (SELECT max(id) FROM worker)";
    assert_eq!(client.execute(other, &[]).await.unwrap(), 1);
    let beside = Shape { destination: "beside", ..Shape::default() };
    store.ingest(vec![beside.draft("recipient")], at(0)).await.unwrap();
    let select = "SELECT max(kept_through) - min(kept_through) FROM tenant_lane";
    let longer: i64 = client.query_one(select, &[]).await.unwrap().get(0);
    assert_eq!(longer, (1 << 24) - LANE_KEPT_FOR.cast_signed());
}

#[tokio::test]
async fn an_audit_finds_a_batch_without_its_lane() {
    let mut tasks = Tasks::default();
    let database = fresh();
    let client = connect(&database, &mut tasks).await;
    let store = open(&database).await;
    send(&store, "first", day(0)).await;
    the_books_balance(&store).await;
    client.batch_execute("DELETE FROM tenant_lane").await.unwrap();
    let audit = store.reader().audit().await.unwrap();
    assert_eq!(audit.problem_count, 1);
    assert!(audit.problems[0].contains("its lane is missing"), "{:?}", audit.problems);
}
