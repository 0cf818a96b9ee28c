//! Cancelling: what is not claimed can be cancelled.

use notification::{Disposition, State, limits};

use super::support::{
    BroadcastShape, Shape, at, claim_all, claim_one, find, indexes, name, part, settle_one,
};
use crate::{CancelTarget, Cancelled, ClaimRequest, Store};

pub(super) async fn what_is_pending_is_cancelled_once(store: &dyn Store) {
    let ids = Shape { due_at: 5, ..Shape::default() }.ingest(store, 3).await;
    let target = CancelTarget::Notification(ids[1]);
    let cancelled = Cancelled { cancelled: 1, ..Cancelled::default() };
    assert_eq!(store.cancel(target, name("tenant"), at(2)).await.unwrap(), Some(cancelled));
    let ended = Cancelled { ended: 1, ..Cancelled::default() };
    assert_eq!(store.cancel(target, name("tenant"), at(3)).await.unwrap(), Some(ended));
    let history = find(store, ids[1]).await;
    assert_eq!((history.state, history.attempts[0].at), (State::Cancelled, at(2)));
    assert_eq!(history.attempts[0].attempt, 0);
    assert_eq!(indexes(&claim_one(store, 5).await), [0, 2]);
    let alone = Shape { destination: "elsewhere", due_at: 9, ..Shape::default() };
    let id = alone.ingest(store, 1).await[0];
    store.cancel(CancelTarget::Notification(id), name("tenant"), at(6)).await.unwrap();
    assert!(claim_all(store, 9).await.is_empty(), "nothing of that lane is left");
}

pub(super) async fn what_is_claimed_is_under_way(store: &dyn Store) {
    let ids = Shape::default().ingest(store, 1).await;
    let chunk = claim_one(store, 0).await;
    let target = CancelTarget::Notification(ids[0]);
    let under_way = Cancelled { under_way: 1, ..Cancelled::default() };
    assert_eq!(store.cancel(target, name("tenant"), at(1)).await.unwrap(), Some(under_way));
    settle_one(store, part(&chunk, &[0], Disposition::Ended(State::Delivered))).await;
    assert_eq!(find(store, ids[0]).await.state, State::Delivered);
}

pub(super) async fn a_broadcast_is_cancelled_as_far_as_it_goes(store: &dyn Store) {
    let id = BroadcastShape::default().open(store, 2 * limits::BATCH_ITEMS).await;
    let target = CancelTarget::Broadcast(id);
    assert_eq!(store.cancel(target, name("tenant"), at(0)).await.unwrap(), None, "not sealed");
    store.seal_broadcast(id, at(0)).await.unwrap();
    let request = ClaimRequest { items: 1, ..super::claim_request(0) };
    let chunk = store.claim(request).await.unwrap().chunks.remove(0);
    settle_one(store, part(&chunk, &[0, 1], Disposition::Ended(State::Delivered))).await;
    let items = limits::BATCH_ITEMS as u64;
    let expect = Cancelled { cancelled: items, under_way: items - 2, ended: 2 };
    assert_eq!(store.cancel(target, name("tenant"), at(1)).await.unwrap(), Some(expect));
    let account = store.broadcast(id).await.unwrap().unwrap().account;
    assert_eq!((account.cancelled, account.pending, account.delivered), (items, items - 2, 2));
    assert!(account.is_balanced());
}

pub(super) async fn nobody_cancels_for_another_tenant(store: &dyn Store) {
    let ids = Shape::default().ingest(store, 1).await;
    let broadcast = BroadcastShape::default().open(store, 1).await;
    store.seal_broadcast(broadcast, at(0)).await.unwrap();
    for target in [CancelTarget::Notification(ids[0]), CancelTarget::Broadcast(broadcast)] {
        assert_eq!(store.cancel(target, name("other"), at(0)).await.unwrap(), None);
    }
    assert_eq!(store.totals().await.unwrap().pending, 2);
}
