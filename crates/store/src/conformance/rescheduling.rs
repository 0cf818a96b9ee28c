//! Rescheduling: what waits has another time, and nothing else has.

use std::time::Duration;

use notification::{
    BroadcastId, ByteString, Disposition, NotificationId, Pause, Priority, Scope, State, Ticket,
    limits,
};

use super::slices::{four_batches, ids, list, make_the_rest};
use super::support::{
    BroadcastShape, DELIVERED, Shape, at, claim_all, claim_one, claim_request, find, groups,
    indexes, name, part, settle_all, settle_one, the_books_balance,
};
use crate::{
    BroadcastDraft, BroadcastOpened, CancelTarget, ClaimRequest, Claims, Reschedule,
    RescheduleCounts, Rescheduled, Store, TakeTickets,
};

const ONE: Rescheduled = Rescheduled::Counted(RescheduleCounts::ONE);
const UNDER_WAY: Rescheduled = Rescheduled::Counted(RescheduleCounts::ONE_UNDER_WAY);
const ENDED: Rescheduled = Rescheduled::Counted(RescheduleCounts::ONE_ENDED);

const fn counted(rescheduled: u64, under_way: u64, ended: u64) -> Rescheduled {
    Rescheduled::Counted(RescheduleCounts { rescheduled, under_way, ended })
}

/// Reschedules for the tenant, at 2.
async fn reschedule(store: &dyn Store, target: CancelTarget, millis: i64) -> Rescheduled {
    let request = Reschedule { target, tenant: name("tenant"), send_at: at(millis), now: at(2) };
    store.reschedule(request).await.expect("reschedule")
}

async fn move_one(store: &dyn Store, id: NotificationId, millis: i64) -> Rescheduled {
    reschedule(store, CancelTarget::Notification(id), millis).await
}

async fn move_all(store: &dyn Store, id: BroadcastId, millis: i64) -> Rescheduled {
    reschedule(store, CancelTarget::Broadcast(id), millis).await
}

/// Claims what is due, and delivers it; the members, in order.
async fn deliver(store: &dyn Store, millis: i64) -> Vec<u16> {
    let mut delivered = Vec::new();
    for chunk in claim_all(store, millis).await {
        delivered.extend(indexes(&chunk));
        settle_all(store, &chunk, DELIVERED).await;
    }
    delivered.sort_unstable();
    delivered
}

pub(super) async fn one_of_many_has_another_time_and_the_others_have_theirs(store: &dyn Store) {
    let ids = Shape { due_at: 20, ..Shape::default() }.ingest(store, 5).await;
    for _ in 0..2 {
        assert_eq!(move_one(store, ids[1], 90).await, ONE, "once, or twice");
        assert_eq!(move_one(store, ids[3], 90).await, ONE);
        assert_eq!(move_one(store, ids[4], 10).await, ONE);
    }
    for (id, due_at) in ids.iter().zip([20, 90, 20, 90, 10]) {
        let history = find(store, *id).await;
        assert_eq!((history.state, history.next_attempt_at), (State::Pending, Some(at(due_at))));
        assert!(history.attempts.is_empty(), "it is no attempt");
    }
    assert!(deliver(store, 9).await.is_empty());
    let earlier = claim_one(store, 10).await;
    assert_eq!((indexes(&earlier), earlier.due_since(4)), (vec![4], at(10)));
    settle_all(store, &earlier, DELIVERED).await;
    assert_eq!(deliver(store, 89).await, [0, 2]);
    let later = claim_one(store, 90).await;
    assert_eq!((indexes(&later), later.attempt), (vec![1, 3], 1), "they are one chunk again");
    settle_all(store, &later, DELIVERED).await;
    let account = store.reader().totals().await.unwrap();
    assert_eq!((account.accepted, account.delivered, account.pending), (5, 5, 0));
}

pub(super) async fn one_alone_goes_to_any_time(store: &dyn Store) {
    let id = Shape { due_at: 500, ..Shape::default() }.ingest(store, 1).await[0];
    let other = Shape { due_at: 600, destination: "there", ..Shape::default() };
    let other = other.ingest(store, 1).await[0];
    assert_eq!(move_one(store, id, 900).await, ONE);
    assert_eq!(claim_all(store, 599).await, []);
    assert_eq!(move_one(store, id, 700).await, ONE);
    // What has passed means at once, and gives no turn before others that are due.
    assert_eq!(move_one(store, other, -5).await, ONE);
    assert_eq!(find(store, other).await.next_attempt_at, Some(at(2)));
    let chunk = claim_one(store, 2).await;
    assert_eq!(chunk.notification_id(0), other);
    assert_eq!(chunk.due_since(0), at(2), "since then it could be sent");
    let claim = store.claim(claim_request(3)).await.unwrap();
    assert_eq!(claim.chunks, []);
    let chunk = claim_one(store, 700).await;
    assert_eq!((chunk.notification_id(0), chunk.due_since(0)), (id, at(700)));
}

pub(super) async fn what_is_claimed_or_ended_keeps_its_time(store: &dyn Store) {
    let ids = Shape::default().ingest(store, 3).await;
    let chunk = claim_one(store, 0).await;
    for id in &ids {
        assert_eq!(move_one(store, *id, 50).await, UNDER_WAY);
    }
    settle_one(store, part(&chunk, &[0], DELIVERED)).await;
    settle_one(store, part(&chunk, &[1], Disposition::HandedBack { at: at(8) })).await;
    settle_one(store, part(&chunk, &[2], Disposition::Retry { at: at(9) })).await;
    assert_eq!(move_one(store, ids[0], 50).await, ENDED);
    assert_eq!(find(store, ids[1]).await.next_attempt_at, Some(at(8)), "it came too late");
    // One waits for its first attempt again, and one for its second.
    assert_eq!(move_one(store, ids[1], 50).await, ONE);
    assert_eq!(move_one(store, ids[2], 50).await, ONE);
    assert_eq!(claim_all(store, 49).await, []);
    let mut attempts: Vec<(u16, Vec<u16>)> =
        claim_all(store, 50).await.iter().map(|chunk| (chunk.attempt, indexes(chunk))).collect();
    attempts.sort_unstable();
    assert_eq!(attempts, [(1, vec![1]), (2, vec![2])]);
    let id = Shape { destination: "there", ..Shape::default() }.ingest(store, 1).await[0];
    store.cancel(CancelTarget::Notification(id), name("tenant"), at(1)).await.unwrap();
    assert_eq!(move_one(store, id, 50).await, ENDED);
}

pub(super) async fn what_would_expire_first_is_refused(store: &dyn Store) {
    let expires_at = Some(100);
    let ids = Shape { expires_at, due_at: 5, ..Shape::default() }.ingest(store, 2).await;
    let draft = BroadcastDraft { expires_at: Some(at(100)), ..BroadcastShape::default().draft() };
    let opened = store.open_broadcast(draft, at(0)).await.unwrap();
    let BroadcastOpened::Opened(broadcast) = opened else { panic!("{opened:?}") };
    store.add_recipients(broadcast, groups(3), at(0)).await.unwrap();
    store.seal_broadcast(broadcast, at(0)).await.unwrap();
    let refused = Rescheduled::Expired { expires_at: at(100) };
    for millis in [100, 101] {
        assert_eq!(move_one(store, ids[0], millis).await, refused);
        assert_eq!(move_all(store, broadcast, millis).await, refused);
    }
    let (target, tenant) = (CancelTarget::Notification(ids[0]), name("tenant"));
    let late = Reschedule { target, tenant, send_at: at(0), now: at(100) };
    assert_eq!(store.reschedule(late).await.unwrap(), refused, "at once is too late as well");
    assert_eq!(find(store, ids[0]).await.next_attempt_at, Some(at(5)), "nothing has changed");
    assert_eq!(move_one(store, ids[0], 99).await, ONE);
    assert_eq!(move_all(store, broadcast, 99).await, counted(3, 0, 0));
    assert_eq!(deliver(store, 98).await, [1]);
    assert_eq!(deliver(store, 99).await, [0, 0, 1, 2]);
}

pub(super) async fn a_broadcast_is_rescheduled_as_far_as_it_waits(store: &dyn Store) {
    let items = limits::BATCH_ITEMS as u64;
    let id = BroadcastShape::default().open(store, 2 * limits::BATCH_ITEMS).await;
    assert_eq!(move_all(store, id, 50).await, Rescheduled::Unknown, "not sealed");
    store.seal_broadcast(id, at(0)).await.unwrap();
    let request = ClaimRequest { items: 1, ..claim_request(0) };
    let chunk = store.claim(request).await.unwrap().chunks.remove(0);
    settle_one(store, part(&chunk, &[0, 1], DELIVERED)).await;
    settle_one(store, part(&chunk, &[2], Disposition::Retry { at: at(9) })).await;
    for _ in 0..2 {
        assert_eq!(move_all(store, id, 50).await, counted(items + 1, items - 3, 2));
    }
    let status = store.reader().broadcast(id).await.unwrap().unwrap();
    assert_eq!((status.due_at, status.account.pending), (at(50), 2 * items - 2));
    assert_eq!(claim_all(store, 49).await, []);
    let chunks = claim_all(store, 50).await;
    let mut sizes: Vec<usize> = chunks.iter().map(|chunk| chunk.deliveries.len()).collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [1, limits::BATCH_ITEMS]);
    assert_eq!(chunks[0].due_since(0), at(50));
    // Nothing of it waits any more: it keeps the time that it has.
    assert_eq!(move_all(store, id, 70).await, counted(0, 2 * items - 2, 2));
    assert_eq!(store.reader().broadcast(id).await.unwrap().unwrap().due_at, at(50));
}

pub(super) async fn nobody_reschedules_for_another_tenant(store: &dyn Store) {
    let id = Shape { tenant: "other", ..Shape::default() }.ingest(store, 1).await[0];
    let draft = BroadcastDraft { tenant: name("other"), ..BroadcastShape::default().draft() };
    let opened = store.open_broadcast(draft, at(0)).await.unwrap();
    let BroadcastOpened::Opened(broadcast) = opened else { panic!("{opened:?}") };
    store.add_recipients(broadcast, groups(1), at(0)).await.unwrap();
    store.seal_broadcast(broadcast, at(0)).await.unwrap();
    let unknown = NotificationId::new(at(9), 1, id.batch(), id.index());
    for id in [id, unknown] {
        assert_eq!(move_one(store, id, 50).await, Rescheduled::Unknown);
    }
    for id in [broadcast, BroadcastId(broadcast.0 + 1_000)] {
        assert_eq!(move_all(store, id, 50).await, Rescheduled::Unknown);
    }
    assert_eq!(claim_all(store, 0).await.len(), 2);
}

/// Between two slices.
pub(super) async fn what_is_not_released_yet_is_due_at_the_new_time(
    store: &dyn Store,
    next: &impl AsyncFn() -> bool,
) {
    let id = four_batches(store).await;
    assert!(next().await);
    let all = ids(store, id).await;
    let request = ClaimRequest { items: 1, ..claim_request(1) };
    let chunk = store.claim(request).await.unwrap().chunks.remove(0);
    settle_one(store, part(&chunk, &[0], DELIVERED)).await;
    // Two batches have their chunks, and one of these is under way; two wait, but for a member that is cancelled.
    store.cancel(CancelTarget::Notification(all[7]), name("tenant"), at(1)).await.unwrap();
    assert_eq!(move_one(store, all[6], 50).await, Rescheduled::NotYet);
    assert_eq!(move_one(store, all[7], 50).await, ENDED);
    assert_eq!(move_one(store, all[5], 70).await, ONE, "this one has its chunk");
    for _ in 0..2 {
        assert_eq!(move_all(store, id, 50).await, counted(8, 2, 2));
        the_books_balance(store).await;
    }
    for history in list(store, id).await.into_iter().filter(|it| it.state == State::Pending) {
        assert_eq!(history.next_attempt_at, Some(at(50)));
        assert_eq!(find(store, history.id).await, history);
    }
    make_the_rest(store, next).await;
    assert!(deliver(store, 49).await.is_empty());
    assert_eq!(deliver(store, 50).await.len(), 8);
    settle_one(store, part(&chunk, &[1, 2], DELIVERED)).await;
    let account = store.reader().broadcast(id).await.unwrap().unwrap().account;
    assert_eq!((account.delivered, account.cancelled, account.pending), (11, 1, 0));
}

/// Between two slices.
pub(super) async fn a_paused_broadcast_is_resumed_to_its_new_time(
    store: &dyn Store,
    next: &impl AsyncFn() -> bool,
) {
    let id = four_batches(store).await;
    assert!(next().await);
    let (tenant, scope) = (name("tenant"), Scope::Broadcast(id));
    let pause = Pause { tenant: tenant.clone(), scope: scope.clone(), since: at(2) };
    store.pause(pause).await.unwrap();
    assert_eq!(claim_all(store, 5).await, [], "it is put away");
    assert_eq!(move_all(store, id, 50).await, counted(12, 0, 0));
    assert_eq!(claim_all(store, 60).await, [], "and once more");
    assert!(store.resume(tenant, scope).await.unwrap());
    make_the_rest(store, next).await;
    assert!(deliver(store, 49).await.is_empty());
    assert_eq!(deliver(store, 50).await.len(), 12);
}

/// Behind a broker.
pub(super) async fn a_ticket_sends_nothing_before_its_new_time<S>(one: &S, other: &S)
where
    S: Store + Claims<Ticket> + TakeTickets,
{
    let lease = Duration::from_mins(2);
    let ids = Shape::default().ingest(one, 2).await;
    let issue = async |request: ClaimRequest| -> Vec<Ticket> {
        let lease = Duration::from_secs(30);
        one.claim(ClaimRequest { lease, ..request }).await.unwrap().chunks
    };
    let lost = issue(claim_request(0)).await;
    assert_eq!(lost.len(), 1);
    assert_eq!(move_one(other, ids[0], 90_000).await, UNDER_WAY, "it may be taken any moment");
    // Its lease ends, and what it was for waits again.
    let urgent = ClaimRequest { lowest: Priority::Urgent, ..claim_request(30_000) };
    assert_eq!(issue(urgent).await, []);
    assert_eq!(move_one(other, ids[0], 90_000).await, ONE);
    let first = issue(claim_request(30_001)).await;
    let taken = other.take([&lost[..], &first].concat(), at(30_001), lease).await.unwrap();
    let [None, Some(chunk)] = &taken[..] else { panic!("{taken:?}") };
    assert_eq!(indexes(chunk), [1]);
    settle_all(other, chunk, DELIVERED).await;
    assert_eq!(issue(claim_request(89_999)).await, []);
    let second = issue(claim_request(90_000)).await;
    let taken = other.take([&lost[..], &second].concat(), at(90_000), lease).await.unwrap();
    let [None, Some(chunk)] = &taken[..] else { panic!("{taken:?}") };
    assert_eq!((indexes(chunk), chunk.notification_id(0)), (vec![0], ids[0]));
    let recipient: &ByteString = &chunk.deliveries[0].recipient;
    assert_eq!(&**recipient, "0");
}
