//! The reads of a claim in a lane of which other workers own most.

use notification::Ticket;

use super::growth_tests::{Seat, request};
use crate::postgres::claim::IssueTickets;
use crate::postgres::writer_state::Membership;

/// Chunks of the partition 40, and then one of the partition 1, all in one lane and due at the same time.
const OTHERS: i64 = 100_000;
/// Rows that a claim may read: each chunk that it passes, the batches of those that it takes, and its lanes.
const READ: i64 = 30_000;
/// Due time of all chunks, milliseconds.
const DUE: i64 = 1_000;

/// Claims until no chunk is due; the tickets, the number of claims, and the most rows that one read.
async fn claim_all(seat: &mut Seat, now: i64) -> (Vec<Ticket>, usize, i64) {
    let (mut tickets, mut claims, mut most) = (Vec::new(), 0, 0);
    loop {
        let (claim, read) = seat.run(&IssueTickets(request(now))).await;
        tickets.extend(claim.chunks);
        claims += 1;
        most = most.max(read);
        if claim.next_at.is_none_or(|at| at.millis() > now) {
            return (tickets, claims, most);
        }
        assert!(claims < 1_000, "the claims come to no end");
    }
}

#[tokio::test]
async fn a_claim_passes_so_many_chunks_of_others_at_most_and_each_once() {
    let database = testbed::postgres::shared().unwrap().create().unwrap();
    let mut seat = Seat::take(&database).await;
    let fill = format!(
        "INSERT INTO belfry.tenant_lane (channel, destination, priority, tenant) VALUES ('channel', 'one', 1, 'tenant'); \
         INSERT INTO belfry.chunk (batch, lane, partition, due_at, attempt, count) \
         SELECT n, lane.id, CASE WHEN n > {OTHERS} THEN 1 ELSE 40 END, {DUE}, 1, 1 \
         FROM belfry.tenant_lane AS lane, generate_series(1, {OTHERS} + 1) AS n"
    );
    database.query(&fill).unwrap();
    let all = seat.membership.borrow().clone();
    let partitions = (0..32).collect();
    seat.membership.send_replace(Membership { partitions, ..all.clone() });

    let (tickets, claims, read) = claim_all(&mut seat, DUE).await;
    assert_eq!(tickets.len(), 1, "ours lies behind all others");
    assert!(read < READ, "a claim read {read} rows");
    assert!((4..=20).contains(&claims), "{claims} claims");

    // A new chunk of ours is notified, and those of the other worker are not passed again.
    let insert = "INSERT INTO belfry.chunk (batch, lane, partition, due_at, attempt, count) \
         SELECT 1, id, 2, 1001, 1, 1 FROM belfry.tenant_lane";
    database.query(insert).unwrap();
    let lane = database.query("SELECT id FROM belfry.tenant_lane").unwrap().trim().parse().unwrap();
    let told = crate::postgres::notices::Notice::Due(lane, crate::conformance::at(DUE + 1));
    seat.state.apply_notice(&told);
    let (claim, read) = seat.run(&IssueTickets(request(DUE + 1))).await;
    assert_eq!(claim.chunks.len(), 1);
    assert!(read < 100, "the next claim read {read} rows");

    // A chunk that is released below the watermark is found.
    let later = DUE + 120_000;
    let (tickets, _, read) = claim_all(&mut seat, later).await;
    assert_eq!(tickets.len(), 2, "both leases have ended");
    assert!(read < READ, "a claim read {read} rows");

    // The other worker's partition becomes ours.
    seat.membership.send_replace(all);
    let (tickets, ..) = claim_all(&mut seat, later + 1).await;
    assert_eq!(i64::try_from(tickets.len()), Ok(OTHERS));
}
