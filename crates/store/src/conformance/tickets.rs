//! A ticket stands for a chunk, once.

use std::time::Duration;

use notification::{Chunk, Disposition, Epoch, Guarantee, Priority, Settlement, State, Ticket};

use super::support::{
    DELIVERED, Shape, at, claim_all, claim_request, find, indexes, part, settle_all, settle_one,
    suppression,
};
use crate::{Claims, Mark, MarkAnswer, Settled, Store, TakeTickets};

const TICKET_LEASE_MILLIS: i64 = 30_000;
const LEASE: Duration = Duration::from_mins(2);

pub(super) async fn a_ticket_is_good_once<S>(one: &S, other: &S)
where
    S: Store + Claims<Ticket> + TakeTickets,
{
    let shape = Shape { priority: Priority::Urgent, ..Shape::default() };
    let ids = shape.ingest(one, 3).await;
    let ticket = issue_one(one, 0).await;
    assert_eq!((ticket.epoch, ticket.priority, ticket.count), (Epoch(1), Priority::Urgent, 3));
    assert_eq!(ticket.lease_until, at(TICKET_LEASE_MILLIS));
    assert_eq!(find(other, ids[0]).await.state, State::Claimed);
    assert_eq!(issue(one, 1).await, [], "it is issued already");
    let unknown = Ticket { chunk: notification::ChunkId(ticket.chunk.0 + 1_000), ..ticket };
    let taken = other.take(vec![unknown, ticket, ticket], at(5), LEASE).await.unwrap();
    let [None, Some(chunk), None] = &taken[..] else { panic!("{taken:?}") };
    assert_eq!((chunk.id, chunk.epoch, chunk.attempt), (ticket.chunk, Epoch(2), 1));
    assert_eq!(chunk.lease_until, at(5).plus(LEASE));
    assert_eq!(indexes(chunk), [0, 1, 2]);
    assert_eq!(take(one, ticket, 6).await, None, "nobody else gets it");
    let late = Settlement { epoch: ticket.epoch, ..part(chunk, &[0], DELIVERED) };
    assert_eq!(settle_one(other, late).await, Settled::Stale, "the ticket itself settles nothing");
    settle_all(other, chunk, DELIVERED).await;
    assert_eq!(take(one, ticket, 7).await, None);
    assert_eq!(find(one, ids[2]).await.state, State::Delivered);
}

pub(super) async fn a_ticket_may_be_for_a_part_of_a_chunk<S>(one: &S, other: &S)
where
    S: Store + Claims<Ticket> + TakeTickets,
{
    Shape::default().ingest(one, 20).await;
    let probe_window = Some(1_000);
    let request = crate::ClaimRequest { probe_window, total_window: 2_000, ..claim_request(0) };
    let claim: crate::Claim<Ticket> = one.claim(request).await.unwrap();
    let [ticket] = claim.chunks[..] else { panic!("{claim:?}") };
    assert_eq!(ticket.count, 16);
    let chunk = take(other, ticket, 0).await.unwrap();
    assert_eq!(indexes(&chunk), (0..16).collect::<Vec<u16>>());
    settle_all(other, &chunk, DELIVERED).await;
    let rest = take(other, issue_one(one, 0).await, 0).await.unwrap();
    assert_eq!(indexes(&rest), [16, 17, 18, 19]);
    settle_all(one, &rest, DELIVERED).await;
}

pub(super) async fn a_ticket_is_void_when_its_lease_ends_and_another_is_issued<S>(
    one: &S,
    other: &S,
) where
    S: Store + Claims<Ticket> + TakeTickets,
{
    Shape::default().ingest(one, 2).await;
    let lost = issue_one(one, 0).await;
    assert_eq!(take(other, lost, TICKET_LEASE_MILLIS).await, None, "it is void in time");
    let again = issue_one(one, TICKET_LEASE_MILLIS).await;
    assert_eq!((again.chunk, again.epoch), (lost.chunk, Epoch(2)));
    assert_eq!(take(other, lost, TICKET_LEASE_MILLIS).await, None);
    let chunk = take(other, again, TICKET_LEASE_MILLIS).await.unwrap();
    assert_eq!((chunk.attempt, indexes(&chunk)), (1, vec![0, 1]), "no attempt was lost with it");
    settle_all(other, &chunk, Disposition::HandedBack { at: at(40_000) }).await;
    assert_eq!(issue_one(one, 40_000).await.count, 2);
}

pub(super) async fn what_must_not_be_sent_ends_when_its_ticket_is_taken<S>(one: &S, other: &S)
where
    S: Store + Claims<Ticket> + TakeTickets,
{
    let expiring = Shape { expires_at: Some(10), ..Shape::default() };
    let expired = expiring.ingest(one, 2).await;
    let elsewhere = Shape { destination: "elsewhere", ..Shape::default() };
    let suppressed = elsewhere.ingest(one, 2).await;
    let tickets = issue(one, 5).await;
    assert_eq!(tickets.len(), 2);
    other.suppress(vec![suppression("1", "gone")], at(0)).await.unwrap();
    let taken = other.take(tickets, at(10), LEASE).await.unwrap();
    let chunks: Vec<&Chunk> = taken.iter().flatten().collect();
    assert_eq!((taken.len(), chunks.len()), (2, 1));
    assert_eq!(indexes(chunks[0]), [0]);
    assert_eq!(find(one, expired[1]).await.state, State::Expired);
    assert_eq!(find(one, suppressed[1]).await.state, State::Suppressed);
    settle_all(other, chunks[0], DELIVERED).await;
}

pub(super) async fn what_one_process_holds_the_other_cannot_touch<S>(one: &S, other: &S)
where
    S: Store + Claims<Ticket> + TakeTickets,
{
    Shape { guarantee: Guarantee::AtMostOnce, ..Shape::default() }.ingest(one, 4).await;
    let ticket = issue_one(one, 0).await;
    let held = take(other, ticket, 0).await.unwrap();
    assert!(claim_all(one, 1).await.is_empty());
    let mark = |epoch| Mark { chunk: held.id, epoch, through: 1 };
    let answers = one.begin(vec![mark(ticket.epoch)]).await.unwrap();
    assert_eq!(answers, [MarkAnswer::Stale], "the ticket is no claim any more");
    assert_eq!(other.begin(vec![mark(held.epoch)]).await.unwrap(), [MarkAnswer::Granted]);
    let now = held.lease_until.millis();
    let rest = issue_one(one, now).await;
    assert_eq!(rest.count, 2, "what had begun is in doubt");
    assert_eq!(settle_one(other, part(&held, &[2, 3], DELIVERED)).await, Settled::Stale);
    let held = take(one, rest, now).await.unwrap();
    assert_eq!(indexes(&held), [2, 3]);
    let mark = Mark { chunk: held.id, epoch: held.epoch, through: 3 };
    assert_eq!(one.begin(vec![mark]).await.unwrap(), [MarkAnswer::Granted]);
    settle_all(one, &held, DELIVERED).await;
}

async fn issue<S: Claims<Ticket>>(store: &S, millis: i64) -> Vec<Ticket> {
    let lease = Duration::from_millis(TICKET_LEASE_MILLIS.unsigned_abs());
    let request = crate::ClaimRequest { lease, ..claim_request(millis) };
    store.claim(request).await.unwrap().chunks
}

async fn issue_one<S: Claims<Ticket>>(store: &S, millis: i64) -> Ticket {
    let tickets = issue(store, millis).await;
    let [ticket] = tickets[..] else { panic!("{tickets:?}") };
    ticket
}

async fn take<S: TakeTickets>(store: &S, ticket: Ticket, millis: i64) -> Option<Chunk> {
    store.take(vec![ticket], at(millis), LEASE).await.unwrap().remove(0)
}
