//! Broadcasts between two of their slices. A slice is one batch.

use notification::{
    BroadcastId, Chunk, Disposition, NotificationId, Pause, Scope, State, Timestamp, limits,
};

use super::support::{
    BroadcastShape, DELIVERED, Shape, at, cancel_scope, cancelled, claim_all, claim_request,
    count_scope, find, groups, groups_in_turn, is_part_of, list_in_pages, name, part, settle_all,
    settle_one, the_books_balance, whole_log,
};
use crate::{
    BroadcastDraft, BroadcastOpened, CancelScope, CancelTarget, Cancelled, ClaimRequest, Erased,
    Filter, History, ListOrder, Paused, Requeued, Store,
};

/// A sealed broadcast of four batches, of three members each; one of them has its chunk.
pub(super) async fn four_batches(store: &dyn Store) -> BroadcastId {
    let id = BroadcastShape::default().open(store, 3).await;
    for _ in 0..3 {
        store.add_recipients(id, groups(3), at(0)).await.unwrap();
    }
    assert_eq!(store.seal_broadcast(id, at(1)).await.unwrap(), 12);
    id
}

pub(super) async fn list(store: &dyn Store, id: BroadcastId) -> Vec<History> {
    let filter = Filter { broadcast: Some(id), ..Filter::default() };
    store.reader().list(filter, None, 100).await.unwrap().items
}

pub(super) async fn ids(store: &dyn Store, id: BroadcastId) -> Vec<NotificationId> {
    list(store, id).await.into_iter().map(|history| history.id).collect()
}

async fn cancel(store: &dyn Store, target: CancelTarget) -> Cancelled {
    store.cancel(target, name("tenant"), at(2)).await.unwrap().expect("it is there")
}

async fn requeue(store: &dyn Store, ids: &[NotificationId]) -> Vec<Requeued> {
    let states = [State::Dead, State::Cancelled].into();
    store.requeue(ids.to_vec(), states, name("tenant"), at(3)).await.unwrap()
}

/// Makes all slices that are left.
pub(super) async fn make_the_rest(store: &dyn Store, next: &impl AsyncFn() -> bool) {
    while next().await {
        the_books_balance(store).await;
    }
}

/// Claims the first chunk alone.
async fn claim_one(store: &dyn Store) -> Chunk {
    let request = ClaimRequest { items: 1, ..claim_request(1) };
    store.claim(request).await.unwrap().chunks.remove(0)
}

/// Claims all and delivers it; how many that were.
async fn deliver_all(store: &dyn Store) -> usize {
    let chunks = claim_all(store, 5).await;
    for chunk in &chunks {
        settle_all(store, chunk, DELIVERED).await;
    }
    chunks.iter().map(|chunk| chunk.deliveries.len()).sum()
}

pub(super) async fn what_waits_is_pending_everywhere(
    store: &dyn Store,
    next: &impl AsyncFn() -> bool,
) {
    let id = four_batches(store).await;
    let all = ids(store, id).await;
    assert_eq!(all.len(), 12);
    for made in 1..=4 {
        the_books_balance(store).await;
        assert_eq!(store.reader().totals().await.unwrap().pending, 12);
        let status = store.reader().broadcast(id).await.unwrap().unwrap();
        assert_eq!((status.account.accepted, status.account.pending), (12, 12));
        for history in list(store, id).await {
            assert_eq!((history.state, history.next_attempt_at), (State::Pending, Some(at(0))));
            assert_eq!(find(store, history.id).await, history);
        }
        let requeued = requeue(store, &all).await;
        assert_eq!(requeued, [Requeued::OtherState; 12]);
        assert_eq!(next().await, made < 4, "four slices, one of them with the sealing");
    }
    assert_eq!(deliver_all(store).await, 12);
    let account = store.reader().broadcast(id).await.unwrap().unwrap().account;
    assert_eq!((account.delivered, account.pending), (12, 0));
}

pub(super) async fn what_waits_or_is_withdrawn_is_listed_page_by_page(
    store: &dyn Store,
    next: &impl AsyncFn() -> bool,
) {
    BroadcastShape::default().open(store, 3).await;
    let other = four_batches(store).await;
    let id = four_batches(store).await;
    cancel(store, CancelTarget::Notification(ids(store, id).await[7])).await;
    for withdrawn in [None, Some(id)] {
        if let Some(id) = withdrawn {
            cancel(store, CancelTarget::Broadcast(id)).await;
        }
        for _ in 0..2 {
            let all = list_in_pages(store, &Filter::default(), 1_000).await;
            assert_eq!(all.len(), 24, "an open broadcast is not listed");
            for state in [State::Pending, State::Cancelled] {
                for broadcast in [None, Some(id), Some(other)] {
                    for order in [ListOrder::OldestFirst, ListOrder::NewestFirst] {
                        let states = [state].into();
                        let filter = Filter { states, broadcast, order, ..Filter::default() };
                        is_part_of(store, &filter, &all, 2).await;
                    }
                }
            }
            assert!(next().await);
        }
    }
}

pub(super) async fn a_waiting_one_is_cancelled_and_never_sent(
    store: &dyn Store,
    next: &impl AsyncFn() -> bool,
) {
    let id = BroadcastShape::default().open(store, 1).await;
    store.add_recipients(id, groups(1), at(0)).await.unwrap();
    store.add_recipients(id, groups(1), at(0)).await.unwrap();
    store.seal_broadcast(id, at(1)).await.unwrap();
    let all = ids(store, id).await;
    let target = CancelTarget::Notification(all[1]);
    let one = Cancelled { cancelled: 1, ..Cancelled::default() };
    assert_eq!(cancel(store, target).await, one);
    the_books_balance(store).await;
    assert_eq!(cancel(store, target).await, Cancelled { ended: 1, ..Cancelled::default() });
    let history = find(store, all[1]).await;
    assert_eq!((history.state, history.attempts.len()), (State::Cancelled, 1));
    while next().await {}
    assert_eq!(cancel(store, target).await, Cancelled { ended: 1, ..Cancelled::default() });
    assert_eq!(deliver_all(store).await, 2);
    let account = store.reader().broadcast(id).await.unwrap().unwrap().account;
    assert_eq!((account.delivered, account.cancelled, account.pending), (2, 1, 0));
}

pub(super) async fn one_of_a_waiting_batch_is_cancelled_and_the_others_are_sent(
    store: &dyn Store,
    next: &impl AsyncFn() -> bool,
) {
    let id = four_batches(store).await;
    let all = ids(store, id).await;
    let one = Cancelled { cancelled: 1, ..Cancelled::default() };
    for place in [4, 10, 11] {
        assert_eq!(cancel(store, CancelTarget::Notification(all[place])).await, one);
        the_books_balance(store).await;
    }
    let account = store.reader().broadcast(id).await.unwrap().unwrap().account;
    assert_eq!((account.cancelled, account.pending), (3, 9));
    assert_eq!(find(store, all[5]).await.state, State::Pending, "beside one that is cancelled");
    make_the_rest(store, next).await;
    assert_eq!(deliver_all(store).await, 9);
    let account = store.reader().broadcast(id).await.unwrap().unwrap().account;
    assert_eq!((account.delivered, account.cancelled, account.pending), (9, 3, 0));
}

pub(super) async fn what_waits_is_withdrawn_with_its_broadcast_at_once(
    store: &dyn Store,
    next: &impl AsyncFn() -> bool,
) {
    let id = four_batches(store).await;
    let all = ids(store, id).await;
    cancel(store, CancelTarget::Notification(all[7])).await;
    let target = CancelTarget::Broadcast(id);
    let expect = Cancelled { cancelled: 11, under_way: 0, ended: 1 };
    assert_eq!(cancel(store, target).await, expect);
    for _ in 0..4 {
        the_books_balance(store).await;
        let account = store.reader().broadcast(id).await.unwrap().unwrap().account;
        assert_eq!((account.cancelled, account.pending), (12, 0));
        for history in list(store, id).await {
            assert_eq!((history.state, history.attempts.len()), (State::Cancelled, 1));
            assert_eq!((history.attempts[0].at, history.attempts[0].attempt), (at(2), 0));
        }
        let again = Cancelled { ended: 12, ..Cancelled::default() };
        assert_eq!(cancel(store, target).await, again);
        let one = cancel(store, CancelTarget::Notification(all[11])).await;
        assert_eq!(one, Cancelled { ended: 1, ..Cancelled::default() });
        next().await;
    }
    assert!(!next().await, "all is written down");
    assert!(claim_all(store, 5).await.is_empty());
    assert_eq!(whole_log(store, 100).await.len(), 12, "each has its line");
}

pub(super) async fn a_cancellation_goes_by_slices_and_counts_everybody_once(
    store: &dyn Store,
    next: &impl AsyncFn() -> bool,
) {
    let id = four_batches(store).await;
    assert!(next().await);
    let chunk = claim_one(store).await;
    settle_one(store, part(&chunk, &[0], DELIVERED)).await;
    // Two batches have their chunks, and one of these is under way; two wait.
    let expect = Cancelled { cancelled: 9, under_way: 2, ended: 1 };
    assert_eq!(cancel(store, CancelTarget::Broadcast(id)).await, expect);
    the_books_balance(store).await;
    make_the_rest(store, next).await;
    let again = Cancelled { cancelled: 0, under_way: 2, ended: 10 };
    assert_eq!(cancel(store, CancelTarget::Broadcast(id)).await, again);
    settle_one(store, part(&chunk, &[1, 2], DELIVERED)).await;
    let account = store.reader().broadcast(id).await.unwrap().unwrap().account;
    assert_eq!((account.cancelled, account.delivered, account.pending), (9, 3, 0));
}

pub(super) async fn a_small_broadcast_goes_before_the_rest_of_a_large_one(
    store: &dyn Store,
    next: &impl AsyncFn() -> bool,
) {
    let large = four_batches(store).await;
    let small = BroadcastShape::default().open(store, 1).await;
    store.add_recipients(small, groups(1), at(0)).await.unwrap();
    store.seal_broadcast(small, at(1)).await.unwrap();
    assert!(next().await);
    let mut sent = [0, 0];
    for chunk in claim_all(store, 5).await {
        let of_large = chunk.envelope.broadcast == Some(large);
        sent[usize::from(of_large)] += chunk.deliveries.len();
        settle_all(store, &chunk, DELIVERED).await;
    }
    assert_eq!(sent, [2, 3]);
}

async fn pause(store: &dyn Store, id: BroadcastId) -> Paused {
    let scope = Scope::Broadcast(id);
    store.pause(Pause { tenant: name("tenant"), scope, since: at(2) }).await.unwrap()
}

async fn resume(store: &dyn Store, id: BroadcastId) -> bool {
    store.resume(name("tenant"), Scope::Broadcast(id)).await.unwrap()
}

pub(super) async fn a_paused_broadcast_is_neither_released_nor_claimed(
    store: &dyn Store,
    next: &impl AsyncFn() -> bool,
) {
    let id = four_batches(store).await;
    assert!(next().await);
    let in_force = Paused::InForce { since: at(2), is_everywhere: true };
    assert_eq!(pause(store, id).await, in_force);
    assert!(!next().await, "two batches have no chunk, and get none");
    // In the same lane, and behind it.
    let other = BroadcastShape::default().open(store, 3).await;
    store.seal_broadcast(other, at(1)).await.unwrap();
    let chunks = claim_all(store, 5).await;
    assert_eq!(chunks.len(), 1);
    assert_eq!(chunks[0].envelope.broadcast, Some(other), "it is not held up");
    settle_all(store, &chunks[0], DELIVERED).await;
    let again = store.claim(claim_request(1_000_000)).await.unwrap();
    assert_eq!(again.chunks, [], "it is not looked at again and again");
    assert!(again.next_at.is_none_or(|at| at > Timestamp::from_millis(1 << 40)), "{again:?}");
    let status = store.reader().broadcast(id).await.unwrap().unwrap();
    assert_eq!((status.account.accepted, status.account.pending), (12, 12));
    let unknown = BroadcastId(id.0 + 1_000);
    assert_eq!(pause(store, unknown).await, Paused::Unknown);
    let scope = Scope::Broadcast(id);
    let by_another = Pause { tenant: name("other"), scope, since: at(2) };
    assert_eq!(store.pause(by_another).await.unwrap(), Paused::Unknown);
    assert!(!resume(store, unknown).await);
}

pub(super) async fn a_paused_broadcast_is_put_away_by_the_chunk_however_little_is_sent(
    store: &dyn Store,
    next: &impl AsyncFn() -> bool,
) {
    let id = BroadcastShape::default().open(store, 100).await;
    store.seal_broadcast(id, at(1)).await.unwrap();
    while next().await {}
    pause(store, id).await;
    // Of an unproven lane 16 are sent at a time: chunks of 16 would be six more rows for good.
    let (total_window, probe_window) = (limits::CLAIMED_ITEMS, Some(limits::PROBE_WINDOW));
    let request = ClaimRequest { total_window, probe_window, ..claim_request(5) };
    let claim = store.claim(request).await.unwrap();
    assert_eq!(claim.chunks, []);
    assert!(claim.next_at.is_none_or(|at| at > Timestamp::from_millis(1 << 40)), "{claim:?}");
    assert!(resume(store, id).await);
    while next().await {}
    let chunks = claim_all(store, 5).await;
    assert_eq!(chunks.iter().map(|chunk| chunk.deliveries.len()).collect::<Vec<_>>(), [100]);
}

pub(super) async fn what_is_resumed_comes_back_slice_by_slice(
    store: &dyn Store,
    next: &impl AsyncFn() -> bool,
) {
    let id = four_batches(store).await;
    assert!(next().await);
    // One chunk is under way; of it one is tried again, and one was not begun.
    let chunk = claim_one(store).await;
    pause(store, id).await;
    settle_one(store, part(&chunk, &[0], DELIVERED)).await;
    settle_one(store, part(&chunk, &[1], Disposition::Retry { at: at(3) })).await;
    settle_one(store, part(&chunk, &[2], Disposition::HandedBack { at: at(3) })).await;
    assert_eq!(deliver_all(store).await, 0);
    for history in list(store, id).await {
        assert!(history.next_attempt_at.is_none_or(|at| at < Timestamp::from_millis(1 << 40)));
    }
    assert!(resume(store, id).await);
    assert!(!resume(store, id).await);
    make_the_rest(store, next).await;
    assert_eq!(deliver_all(store).await, 11);
    assert_eq!(store.reader().totals().await.unwrap().delivered, 12);
    // The broadcast is paused anew while chunks that were put away come back.
    let id = four_batches(store).await;
    while next().await {}
    pause(store, id).await;
    assert_eq!(deliver_all(store).await, 0);
    assert!(resume(store, id).await);
    let is_more = next().await;
    pause(store, id).await;
    assert_eq!(deliver_all(store).await, 0);
    assert!(resume(store, id).await);
    while next().await {}
    assert_eq!(deliver_all(store).await, 12, "{is_more}");
}

pub(super) async fn a_paused_broadcast_expires_and_is_cancelled(
    store: &dyn Store,
    next: &impl AsyncFn() -> bool,
) {
    let draft = BroadcastDraft { expires_at: Some(at(900)), ..BroadcastShape::default().draft() };
    let opened = store.open_broadcast(draft, at(0)).await.unwrap();
    let BroadcastOpened::Opened(soon) = opened else { panic!("{opened:?}") };
    store.add_recipients(soon, groups(3), at(0)).await.unwrap();
    store.seal_broadcast(soon, at(1)).await.unwrap();
    let id = four_batches(store).await;
    pause(store, soon).await;
    pause(store, id).await;
    assert_eq!(deliver_all(store).await, 0);
    assert_eq!(claim_all(store, 900).await, []);
    let account = store.reader().broadcast(soon).await.unwrap().unwrap().account;
    assert_eq!((account.expired, account.pending), (3, 0), "when it is due to");
    assert_eq!(cancel(store, CancelTarget::Broadcast(id)).await.cancelled, 12);
    while next().await {}
    assert!(resume(store, id).await);
    while next().await {}
    assert_eq!(deliver_all(store).await, 0);
    assert_eq!(store.reader().totals().await.unwrap().cancelled, 12);
}

pub(super) async fn what_waits_is_withdrawn_with_its_channel_and_comes_back(
    store: &dyn Store,
    next: &impl AsyncFn() -> bool,
) {
    let id = four_batches(store).await;
    let all = ids(store, id).await;
    assert!(next().await);
    let chunk = claim_one(store).await;
    // Two batches have their chunks, and one of these is under way; two wait.
    for (tenant, scope, expect) in [
        ("other", "tenant", cancelled(0, 0)),
        ("tenant", "channel/another", cancelled(0, 0)),
        ("tenant", "lane/channel/normal/here", cancelled(0, 0)),
        ("tenant", "channel/channel", cancelled(9, 3)),
    ] {
        assert_eq!(count_scope(store, tenant, scope).await, expect, "{scope}");
        assert_eq!(cancel_scope(store, tenant, scope).await, expect, "{scope}");
        the_books_balance(store).await;
    }
    assert_eq!(cancel_scope(store, "tenant", "tenant").await, cancelled(0, 3));
    settle_all(store, &chunk, DELIVERED).await;
    // It is not written down yet which members were withdrawn: none is both sent again and withdrawn.
    let (early, late) = (vec![Requeued::Requeued; 3], vec![Requeued::NotYet; 6]);
    let expect = [vec![Requeued::OtherState; 3], early, late].concat();
    assert_eq!(requeue(store, &all).await, expect);
    the_books_balance(store).await;
    make_the_rest(store, next).await;
    let expect = [vec![Requeued::OtherState; 6], vec![Requeued::Requeued; 6]].concat();
    assert_eq!(requeue(store, &all).await, expect);
    assert_eq!(deliver_all(store).await, 9, "each of them, once");
    let account = store.reader().broadcast(id).await.unwrap().unwrap().account;
    assert_eq!((account.delivered, account.cancelled, account.pending), (12, 0, 0));
}

pub(super) async fn a_lane_is_cancelled_with_what_waits_for_it(
    store: &dyn Store,
    next: &impl AsyncFn() -> bool,
) {
    let id = BroadcastShape::default().open(store, 0).await;
    // Six batches of one each, to two destinations in turn.
    for _ in 0..3 {
        store.add_recipients(id, groups_in_turn(2), at(0)).await.unwrap();
    }
    assert_eq!(store.seal_broadcast(id, at(1)).await.unwrap(), 6);
    let there =
        list(store, id).await.into_iter().filter(|it| &*it.envelope.lane.destination == "there");
    let there: Vec<NotificationId> = there.map(|history| history.id).collect();
    let one = cancel(store, CancelTarget::Notification(there[2])).await;
    assert_eq!(one.cancelled, 1);
    let lane = "lane/channel/bulk/there";
    assert_eq!(count_scope(store, "tenant", lane).await, cancelled(2, 0));
    assert_eq!(cancel_scope(store, "tenant", lane).await, cancelled(2, 0));
    the_books_balance(store).await;
    assert_eq!(cancel_scope(store, "tenant", lane).await, cancelled(0, 0));
    assert_eq!(requeue(store, &there).await, [Requeued::NotYet; 3], "they wait with the others");
    let account = store.reader().broadcast(id).await.unwrap().unwrap().account;
    assert_eq!((account.cancelled, account.pending), (3, 3));
    make_the_rest(store, next).await;
    assert_eq!(deliver_all(store).await, 3, "the other lane");
    assert_eq!(requeue(store, &there).await, [Requeued::Requeued; 3]);
    assert_eq!(deliver_all(store).await, 3);
    let account = store.reader().broadcast(id).await.unwrap().unwrap().account;
    assert_eq!((account.delivered, account.cancelled, account.pending), (6, 0, 0));
}

pub(super) async fn what_is_put_away_is_cancelled_by_its_lane(
    store: &dyn Store,
    next: &impl AsyncFn() -> bool,
) {
    let id = four_batches(store).await;
    assert!(next().await);
    pause(store, id).await;
    assert_eq!(deliver_all(store).await, 0);
    assert_eq!(cancel_scope(store, "tenant", "lane/channel/bulk/here").await, cancelled(12, 0));
    the_books_balance(store).await;
    assert!(resume(store, id).await);
    make_the_rest(store, next).await;
    assert_eq!(deliver_all(store).await, 0);
    assert_eq!(requeue(store, &ids(store, id).await).await, [Requeued::Requeued; 12]);
    assert_eq!(deliver_all(store).await, 12);
}

/// More chunks and more lanes than a slice has, and a place handed back that no answer gave.
pub(super) async fn a_cancellation_looks_at_a_slice_in_each_call(
    store: &dyn Store,
    _next: &impl AsyncFn() -> bool,
) {
    let destinations = ["a", "b", "c", "d"];
    for due_at in [5, 3, 4] {
        for destination in destinations {
            Shape { destination, due_at, ..Shape::default() }.ingest(store, 2).await;
        }
    }
    Shape { tenant: "other", ..Shape::default() }.ingest(store, 1).await;
    let mut request = CancelScope {
        tenant: name("tenant"),
        scope: Scope::Tenant,
        from: None,
        is_dry: false,
        now: at(2),
    };
    let mut calls = Vec::new();
    loop {
        let page = store.cancel_scope(request.clone()).await.unwrap().unwrap();
        calls.push(page.cancelled);
        // Chunks that come into a lane that it has passed are left.
        if calls.len() > 6 {
            Shape { destination: "a", due_at: 1, ..Shape::default() }.ingest(store, 1).await;
        }
        let Some(next) = page.next else { break };
        request.from = Some(next.to_string().parse().unwrap());
    }
    assert_eq!(calls.iter().sum::<u64>(), 24);
    assert_eq!(calls.iter().max(), Some(&2), "a chunk in each");
    let scope = "lane/channel/normal/d".parse().unwrap();
    let from = Some("lane.1.0.0.channel".parse().unwrap());
    let elsewhere = CancelScope { scope, from, ..request };
    let page = store.cancel_scope(elsewhere).await.unwrap().unwrap();
    assert_eq!(
        (page.cancelled, page.next),
        (0, None),
        "a place in another lane is none in this one"
    );
    assert_eq!(deliver_all(store).await, calls.len() - 6 + 1);
}

pub(super) async fn what_was_withdrawn_is_erased_before_its_slice_comes(
    store: &dyn Store,
    next: &impl AsyncFn() -> bool,
) {
    let id = four_batches(store).await;
    let all = ids(store, id).await;
    let erase =
        async |ids: &[NotificationId]| store.erase(ids.to_vec(), name("tenant")).await.unwrap();
    assert_eq!(erase(&all).await, [Erased::Pending; 12]);
    assert_eq!(cancel(store, CancelTarget::Notification(all[7])).await.cancelled, 1);
    assert_eq!(erase(&all[6..9]).await, [Erased::Pending, Erased::Erased, Erased::Pending]);
    assert_eq!(cancel(store, CancelTarget::Broadcast(id)).await.cancelled, 11);
    assert_eq!(erase(&all[9..]).await, [Erased::Erased; 3]);
    make_the_rest(store, next).await;
    for id in [all[7], all[9], all[11]] {
        let history = find(store, id).await;
        assert_eq!((history.recipient, history.state), (None, State::Cancelled));
    }
    assert_eq!(requeue(store, &all[6..9]).await[1], Requeued::ContentRemoved);
    assert_eq!(deliver_all(store).await, 2);
}
