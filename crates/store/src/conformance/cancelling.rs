//! Cancelling: unclaimed notifications can be cancelled.

use std::collections::BTreeMap;

use notification::{BroadcastId, Disposition, Pause, Priority, Scope, State, limits};

use super::support::{
    BroadcastShape, DELIVERED, Shape, at, cancel_scope, cancelled, claim_all, claim_one,
    count_scope, find, indexes, name, part, settle_all, settle_one,
};
use crate::{CancelScope, CancelTarget, Cancelled, ClaimRequest, Filter, Store};

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
    settle_one(store, part(&chunk, &[0], DELIVERED)).await;
    assert_eq!(find(store, ids[0]).await.state, State::Delivered);
}

pub(super) async fn a_broadcast_is_cancelled_as_far_as_it_goes(store: &dyn Store) {
    let id = BroadcastShape::default().open(store, 2 * limits::BATCH_ITEMS).await;
    let target = CancelTarget::Broadcast(id);
    assert_eq!(store.cancel(target, name("tenant"), at(0)).await.unwrap(), None, "not sealed");
    store.seal_broadcast(id, at(0)).await.unwrap();
    let request = ClaimRequest { items: 1, ..super::claim_request(0) };
    let chunk = store.claim(request).await.unwrap().chunks.remove(0);
    settle_one(store, part(&chunk, &[0, 1], DELIVERED)).await;
    let items = limits::BATCH_ITEMS as u64;
    let expect = Cancelled { cancelled: items, under_way: items - 2, ended: 2 };
    assert_eq!(store.cancel(target, name("tenant"), at(1)).await.unwrap(), Some(expect));
    let account = store.reader().broadcast(id).await.unwrap().unwrap().account;
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
    assert_eq!(store.reader().totals().await.unwrap().pending, 2);
}

pub(super) async fn a_scope_is_cancelled_and_nothing_else(store: &dyn Store) {
    let urgent = Priority::Urgent;
    let shapes = [
        Shape::default(),
        Shape { destination: "there", due_at: 900, ..Shape::default() },
        Shape { priority: urgent, ..Shape::default() },
        Shape { tenant: "other", ..Shape::default() },
    ];
    let scopes = [
        ("tenant", "lane/channel/normal/here", [0, 3, 3, 3]),
        ("tenant", "lane/channel/urgent/here", [3, 3, 0, 3]),
        ("tenant", "lane/channel/bulk/here", [3, 3, 3, 3]),
        ("tenant", "lane/channel/normal/nowhere", [3, 3, 3, 3]),
        ("tenant", "channel/channel", [0, 0, 0, 3]),
        ("tenant", "channel/channe", [3, 3, 3, 3]),
        ("tenant", "tenant", [0, 0, 0, 3]),
        ("other", "tenant", [3, 3, 3, 0]),
        ("stranger", "tenant", [3, 3, 3, 3]),
    ];
    for (tenant, scope, expect) in scopes {
        for shape in &shapes {
            shape.ingest(store, 3).await;
        }
        let wanted = 12 - expect.iter().sum::<u64>();
        assert_eq!(count_scope(store, tenant, scope).await, cancelled(wanted, 0), "{scope}");
        assert_eq!(store.reader().totals().await.unwrap().pending, 12, "it was only counted");
        assert_eq!(cancel_scope(store, tenant, scope).await, cancelled(wanted, 0), "{scope}");
        assert_eq!(cancel_scope(store, tenant, scope).await, cancelled(0, 0), "{scope}, again");
        let mut left = BTreeMap::new();
        for chunk in claim_all(store, 900).await {
            let lane = chunk.envelope.lane.clone();
            *left.entry(lane).or_insert(0) += chunk.deliveries.len() as u64;
            settle_all(store, &chunk, DELIVERED).await;
        }
        let left = shapes.each_ref().map(|shape| left.get(&shape.draft("0").envelope.lane));
        assert_eq!(left.map(|count| count.copied().unwrap_or(0)), expect, "{scope}");
    }
}

pub(super) async fn what_is_paused_is_cancelled_to_the_last(store: &dyn Store) {
    let ids = Shape::default().ingest(store, 4).await;
    let chunk = claim_one(store, 0).await;
    Shape { destination: "there", ..Shape::default() }.ingest(store, 2).await;
    let scope = Scope::Channel(name("channel"));
    let pause = Pause { tenant: name("tenant"), scope: scope.clone(), since: at(1) };
    store.pause(pause).await.unwrap();
    assert_eq!(cancel_scope(store, "tenant", "channel/channel").await, cancelled(2, 4));
    settle_one(store, part(&chunk, &[0], DELIVERED)).await;
    settle_one(store, part(&chunk, &[1], Disposition::Retry { at: at(2) })).await;
    assert_eq!(cancel_scope(store, "tenant", "channel/channel").await, cancelled(1, 2));
    settle_one(store, part(&chunk, &[2, 3], Disposition::HandedBack { at: at(2) })).await;
    assert_eq!(cancel_scope(store, "tenant", "channel/channel").await, cancelled(2, 0));
    assert!(store.resume(name("tenant"), scope).await.unwrap());
    assert!(claim_all(store, 1_000).await.is_empty(), "nothing was left");
    let history = find(store, ids[1]).await;
    let lines: Vec<_> = history.attempts.iter().map(|it| (it.attempt, it.state)).collect();
    assert_eq!(lines, [(1, State::Pending), (0, State::Cancelled)]);
    let account = store.reader().totals().await.unwrap();
    assert_eq!((account.delivered, account.cancelled, account.pending), (1, 5, 0));
}

pub(super) async fn a_broadcast_is_a_scope_like_the_others(store: &dyn Store) {
    let id = BroadcastShape::default().open(store, 2 * limits::BATCH_ITEMS).await;
    let (items, scope) = (limits::BATCH_ITEMS as u64, format!("broadcast/{id}"));
    let of = |tenant: &str, id: BroadcastId| CancelScope {
        tenant: name(tenant),
        scope: Scope::Broadcast(id),
        from: None,
        is_dry: false,
        now: at(2),
    };
    assert_eq!(store.cancel_scope(of("tenant", id)).await.unwrap(), None, "not sealed");
    store.seal_broadcast(id, at(0)).await.unwrap();
    Shape::default().ingest(store, 1).await;
    let other = BroadcastId(id.0 + 1_000);
    for unknown in [of("other", id), of("tenant", other)] {
        assert_eq!(store.cancel_scope(unknown).await.unwrap(), None);
    }
    let request = ClaimRequest { items: 1, lowest: Priority::Bulk, ..super::claim_request(0) };
    let mut chunks = store.claim(request).await.unwrap().chunks;
    chunks.extend(store.claim(request).await.unwrap().chunks);
    let of_it = |chunk: &&notification::Chunk| chunk.envelope.broadcast == Some(id);
    let under_way: usize = chunks.iter().filter(of_it).map(|it| it.deliveries.len()).sum();
    assert_eq!(under_way as u64, items, "one of its two chunks, behind what is more urgent");
    assert_eq!(count_scope(store, "tenant", &scope).await, cancelled(items, items));
    assert_eq!(cancel_scope(store, "tenant", &scope).await, cancelled(items, items));
    let account = store.reader().broadcast(id).await.unwrap().unwrap().account;
    assert_eq!((account.cancelled, account.pending), (items, items));
}

/// A broadcast has lanes in common with single notifications.
pub(super) async fn a_lane_is_cancelled_with_its_part_of_a_broadcast(store: &dyn Store) {
    let id = BroadcastShape::default().open(store, 0).await;
    store.add_recipients(id, super::groups_in_turn(4), at(0)).await.unwrap();
    store.seal_broadcast(id, at(0)).await.unwrap();
    let shape = Shape { priority: Priority::Bulk, destination: "there", ..Shape::default() };
    shape.ingest(store, 1).await;
    let lane = "lane/channel/bulk/there";
    assert_eq!(count_scope(store, "tenant", lane).await, cancelled(3, 0));
    assert_eq!(cancel_scope(store, "tenant", lane).await, cancelled(3, 0));
    let filter = Filter { states: [State::Cancelled].into(), ..Filter::default() };
    let items = store.reader().list(filter, None, 9).await.unwrap().items;
    let destinations = items.iter().map(|it| &*it.envelope.lane.destination);
    assert_eq!(destinations.collect::<Vec<_>>(), ["there"; 3]);
    assert_eq!(claim_all(store, 0).await.iter().flat_map(indexes).count(), 2);
}
