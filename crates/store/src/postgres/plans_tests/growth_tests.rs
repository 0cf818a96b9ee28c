//! The reads of a session whose statements were planned when the tables were empty.

use std::sync::Arc;
use std::time::Duration;

use flow::Clock;
use notification::{Draft, Lane, Priority};
use testbed::Database;
use tokio::sync::watch;

use super::statements;
use crate::ClaimRequest;
use crate::conformance::{Shape, at};
use crate::postgres::claim::IssueTickets;
use crate::postgres::connection::{Connector, PostgresSession};
use crate::postgres::growth::{ASK_EVERY, MANY};
use crate::postgres::ingest::IngestDrafts;
use crate::postgres::notify::NotifyPolicy;
use crate::postgres::request::WriterRequest;
use crate::postgres::time::DatabaseTime;
use crate::postgres::transaction::Transaction;
use crate::postgres::writer::PLANS;
use crate::postgres::writer_state::{Membership, WriterState};
use crate::postgres::{Options, Postgres};

/// A writer that is led by hand, in the place of the store's own.
pub(in crate::postgres) struct Seat {
    pub(in crate::postgres) session: PostgresSession,
    pub(in crate::postgres) state: WriterState,
    pub(in crate::postgres) membership: watch::Sender<Membership>,
    /// Store whose worker it claims for.
    _store: Postgres,
}

/// Rows of tables that the transaction under way has read.
const READ: &str = "SELECT sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0))::int8 \
     FROM pg_stat_xact_user_tables WHERE schemaname = 'belfry'";
/// Notifications that one transaction brings in, each to a lane of its own, and transactions.
const ITEMS: usize = 5_000;
const TRANSACTIONS: usize = 20;
/// Transactions that bring in too little each to query the sizes once more.
const SMALL_TRANSACTIONS: usize = 100;
/// Rows that one of these may read: twice those that came in since the sizes were last queried.
const READ_BY_SMALL: i64 = 2 * ASK_EVERY as i64 * MANY.cast_signed();
/// Rows that a transaction may read for each that it brings in: its lane, before and after it is there.
const READ_PER_ITEM: i64 = 4;

/// A writer's memory, and the sender of its membership.
pub(in crate::postgres) fn state() -> (WriterState, watch::Sender<Membership>) {
    let (sender, membership) = watch::channel(Membership::default());
    let notify = Arc::new(NotifyPolicy::new(Clock::system()));
    (WriterState::new(1, membership, DatabaseTime::new(Clock::system()), notify, true), sender)
}

/// A claim at `now`, milliseconds, of all that there is.
pub(in crate::postgres) fn request(now: i64) -> ClaimRequest {
    ClaimRequest {
        now: at(now),
        lease: Duration::from_mins(1),
        items: ITEMS,
        lowest: Priority::Bulk,
        lane_window: usize::MAX / 1_000,
        total_window: usize::MAX / 1_000,
        probe_window: None,
    }
}

// === impl Seat ===

impl Seat {
    /// A seat in a store that is empty, and has been vacuumed.
    pub(in crate::postgres) async fn take(database: &Database) -> Self {
        let store = Postgres::open(Options::new(database.url()), Clock::system()).await.unwrap();
        let mut membership = store.membership.clone();
        let own = membership.wait_for(|own| own.partitions.len() == 64).await.unwrap().clone();
        let (state, membership) = state();
        membership.send_replace(own);
        database.query("VACUUM").unwrap();
        let connector = Connector::new(database.url(), "test", None).unwrap();
        let session = connector.connect(None).await.unwrap();
        session.client.batch_execute(PLANS).await.unwrap();
        Self { session, state, membership, _store: store }
    }

    /// Plans every statement that intake has, with the tables as they are.
    async fn plan(&self) {
        let is_of_intake =
            |file: &str| ["columns.rs", "ingest.rs", "transaction.rs"].contains(&file);
        for statement in statements().into_iter().filter(|it| is_of_intake(&it.file)) {
            self.session.prepared(statement.sql.leak()).await.unwrap();
        }
        let names = "SELECT format('EXPLAIN EXECUTE %I', name) || coalesce('(' || \
             nullif(array_to_string(array_fill('NULL'::text, ARRAY[cardinality(parameter_types)]), ','), '') || ')', '') \
             FROM pg_prepared_statements WHERE statement !~ 'pg_prepared_statements'";
        for row in self.session.client.query(names, &[]).await.unwrap() {
            self.session.client.batch_execute(row.get(0)).await.unwrap();
        }
    }

    /// Runs a transaction; gives its answer, and how many rows it read.
    pub(in crate::postgres) async fn run<R: WriterRequest>(
        &mut self,
        request: &R,
    ) -> (R::Answer, i64) {
        let mut transaction = Transaction::begin(&self.session, &mut self.state).await.unwrap();
        let before: i64 = self.session.client.query_one(READ, &[]).await.unwrap().get(0);
        transaction.look_up(request.keys()).await.unwrap();
        let answer = request.run(&mut transaction).await.unwrap();
        transaction.store_packed().await.unwrap();
        let after: i64 = self.session.client.query_one(READ, &[]).await.unwrap().get(0);
        transaction.commit().await.unwrap();
        for notice in self.state.committed().notices() {
            self.state.apply_notice(&notice);
        }
        (answer, after - before)
    }
}

/// A notification to a lane of its own.
fn to_own_lane(number: usize) -> Draft {
    let mut draft = Shape::default().draft("recipient");
    draft.envelope.lane.destination = number.to_string().into();
    draft
}

/// A plan that reads all of a small table reads its rows once, and joins them in memory: no counter of rows shows that.
#[tokio::test]
async fn a_transaction_that_brings_in_many_lanes_looks_them_up_by_their_index() {
    let database = testbed::postgres::shared().unwrap().create().unwrap();
    let mut seat = Seat::take(&database).await;
    seat.plan().await;
    let lane = |number: usize| {
        let destination = number.to_string().into();
        Lane { destination, ..Shape::default().draft("recipient").envelope.lane }
    };
    let lanes: Vec<Lane> = (0..ITEMS).map(lane).collect();
    let mut transaction = Transaction::begin(&seat.session, &mut seat.state).await.unwrap();
    assert_eq!(transaction.lane_numbers(lanes.iter().collect()).await.unwrap().len(), ITEMS);
    let name = "SELECT format('EXPLAIN EXECUTE %I (NULL, NULL, NULL, NULL)', name) \
         FROM pg_prepared_statements WHERE statement LIKE 'SELECT lane.id, kept_through FROM unnest%'";
    let client = &seat.session.client;
    let explain: String = client.query_one(name, &[]).await.unwrap().get(0);
    let plan = client.query(&explain, &[]).await.unwrap();
    let plan: Vec<String> = plan.iter().map(|row| row.get(0)).collect();
    assert!(plan.iter().any(|line| line.contains("Index Cond")), "{plan:#?}");
}

#[tokio::test]
async fn what_a_transaction_reads_does_not_grow_with_the_tables() {
    let database = testbed::postgres::shared().unwrap().create().unwrap();
    let mut seat = Seat::take(&database).await;
    seat.plan().await;
    // The rows that the first one's statements find were not there when it began.
    for transaction in 0..TRANSACTIONS {
        let drafts = (transaction * ITEMS..(transaction + 1) * ITEMS).map(to_own_lane).collect();
        let (_, read) = seat.run(&IngestDrafts { drafts, now: at(0) }).await;
        let bound = READ_PER_ITEM * i64::try_from(ITEMS).unwrap();
        assert!(read <= bound, "transaction {transaction} read {read} rows");
    }
    let (claim, read) = seat.run(&IssueTickets(ClaimRequest { items: 100, ..request(1) })).await;
    assert_eq!(claim.chunks.len(), 100);
    assert!(read < 10_000, "a claim read {read} rows");
}

#[tokio::test]
async fn what_small_transactions_read_does_not_grow_with_the_tables() {
    let database = testbed::postgres::shared().unwrap().create().unwrap();
    let mut seat = Seat::take(&database).await;
    seat.plan().await;
    let items = usize::try_from(MANY).unwrap() - 1;
    for transaction in 0..SMALL_TRANSACTIONS {
        let drafts = (transaction * items..(transaction + 1) * items).map(to_own_lane).collect();
        let (_, read) = seat.run(&IngestDrafts { drafts, now: at(0) }).await;
        assert!(read <= READ_BY_SMALL, "transaction {transaction} read {read} rows");
    }
}
