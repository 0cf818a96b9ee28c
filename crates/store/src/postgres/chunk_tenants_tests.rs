//! The tenants of chunks: without a query in an ordinary settlement, and by the batch in old lanes.

use std::time::Duration;

use flow::Tasks;
use notification::{Disposition, Guarantee, State};
use tokio_postgres::Client;

use super::chunk_tenants::{SELECT_MIXED, SELECT_OF_BATCHES, SELECT_OF_LANES};
use super::claim::ClaimChunks;
use super::ingest::IngestDrafts;
use super::lane_tenants::LaneTenants;
use super::plans_tests::Seat;
use super::settle::SettleChunks;
use super::setup_tests::{connect, fresh, open};
use crate::conformance::{
    DELIVERED, Shape, at, claim_all, claim_request, name, part, settle_all, the_books_balance,
};
use crate::{ClaimRequest, Claims, Mark, ReadStore as _, Settled};

/// Statements that a session has prepared, of those that look tenants up.
async fn looked_up(client: &Client) -> Vec<&'static str> {
    let is_prepared = "SELECT EXISTS (SELECT FROM pg_prepared_statements WHERE statement = $1)";
    let mut prepared = Vec::new();
    for sql in [SELECT_OF_LANES, SELECT_OF_BATCHES, SELECT_MIXED] {
        if client.query_one(is_prepared, &[&sql]).await.unwrap().get(0) {
            prepared.push(sql);
        }
    }
    prepared
}

#[tokio::test]
async fn an_ordinary_settlement_looks_no_tenant_up() {
    let database = fresh();
    let mut seat = Seat::take(&database).await;
    for tenant in ["tenant", "default"] {
        let drafts = Shape { tenant, ..Shape::default() }.drafts(3);
        seat.run(&IngestDrafts { drafts, now: at(0) }).await;
        let (claim, _) = seat.run(&ClaimChunks(claim_request(0))).await;
        let settlement = part(&claim.chunks[0], &[0, 1, 2], DELIVERED);
        let (settled, _) = seat.run(&SettleChunks([settlement].into())).await;
        assert_eq!(settled, [Settled::Applied { remaining: 0 }]);
        // Once for each writer.
        assert_eq!(looked_up(&seat.session.client).await, [SELECT_MIXED]);
    }
}

#[tokio::test]
async fn a_settlement_in_a_lane_that_is_not_known_looks_its_tenant_up_once() {
    let database = fresh();
    let mut seat = Seat::take(&database).await;
    let drafts = Shape::default().drafts(3);
    seat.run(&IngestDrafts { drafts, now: at(0) }).await;
    let (claim, _) = seat.run(&ClaimChunks(claim_request(0))).await;
    let chunk = &claim.chunks[0];
    // As another process, or after a restart.
    seat.state.lane_tenants = LaneTenants::default();
    for index in 0..3 {
        let settlement = part(chunk, &[index], DELIVERED);
        let (settled, _) = seat.run(&SettleChunks([settlement].into())).await;
        assert_eq!(settled, [Settled::Applied { remaining: 2 - usize::from(index) }]);
        assert_eq!(looked_up(&seat.session.client).await, [SELECT_OF_LANES, SELECT_MIXED]);
        assert_eq!(seat.state.lane_tenants.get(1), Some(&name("tenant")));
    }
}

/// Puts all batches and chunks into one lane, which is older than lanes of tenants.
const INTO_AN_OLD_LANE: &str = "UPDATE meta SET value = (SELECT last_value + 63 FROM batch_number) WHERE key = 'mixed_lanes_through'; \
     UPDATE batch SET lane = (SELECT min(id) FROM tenant_lane WHERE tenant = 'default'); \
     UPDATE chunk SET lane = (SELECT min(id) FROM tenant_lane WHERE tenant = 'default'); \
     DELETE FROM tenant_lane WHERE tenant <> 'default'";

#[tokio::test]
async fn what_is_in_an_old_lane_is_counted_for_the_tenant_of_its_batch() {
    let (database, mut tasks) = (fresh(), Tasks::default());
    let client = connect(&database, &mut tasks).await;
    let store = open(&database).await;
    for tenant in ["a", "default", "b"] {
        let shape = Shape { tenant, ..Shape::default() };
        shape.ingest(&store, 2).await;
        Shape { expires_at: Some(20), due_at: 10, ..shape.clone() }.ingest(&store, 1).await;
        Shape { guarantee: Guarantee::AtMostOnce, due_at: 30, ..shape }.ingest(&store, 3).await;
    }
    store.close().await;
    client.batch_execute(INTO_AN_OLD_LANE).await.unwrap();
    let store = open(&database).await;
    let chunks = claim_all(&store, 0).await;
    assert_eq!(chunks.len(), 3);
    for chunk in &chunks {
        settle_all(&store, chunk, DELIVERED).await;
    }
    // The others have expired by now, and of these one of each tenant was under way when the lease ended.
    let lease = Duration::from_millis(5);
    let request = ClaimRequest { lease, ..claim_request(40) };
    let chunks = Claims::<notification::Chunk>::claim(&store, request).await.unwrap().chunks;
    assert_eq!(chunks.len(), 3);
    let mark = |chunk: &notification::Chunk| {
        let (chunk, epoch) = (chunk.id, chunk.epoch);
        Mark { chunk, epoch, through: 0 }
    };
    crate::Begin::begin(&store, chunks.iter().map(mark).collect()).await.unwrap();
    for chunk in claim_all(&store, 50).await {
        assert_eq!(chunk.deliveries.len(), 2);
        settle_all(&store, &chunk, Disposition::Ended(State::Dead)).await;
    }
    the_books_balance(&store).await;
    for tenant in ["a", "default", "b"] {
        let account = store.reader().tenant_totals(name(tenant)).await.unwrap().unwrap();
        let counted = (account.delivered, account.expired, account.in_doubt, account.dead);
        assert_eq!(counted, (2, 1, 1, 2), "{tenant}");
    }
}

#[tokio::test]
async fn a_batch_that_may_be_older_than_its_lane_is_looked_up() {
    let (database, mut tasks) = (fresh(), Tasks::default());
    let client = connect(&database, &mut tasks).await;
    let mut seat = Seat::take(&database).await;
    let raise = "UPDATE meta SET value = 63 WHERE key = 'mixed_lanes_through'";
    client.batch_execute(raise).await.unwrap();
    let drafts = Shape { tenant: "default", ..Shape::default() }.drafts(1);
    seat.run(&IngestDrafts { drafts, now: at(0) }).await;
    let (claim, _) = seat.run(&ClaimChunks(claim_request(0))).await;
    let settlement = part(&claim.chunks[0], &[0], DELIVERED);
    seat.run(&SettleChunks([settlement].into())).await;
    assert_eq!(looked_up(&seat.session.client).await, [SELECT_OF_BATCHES, SELECT_MIXED]);
}
