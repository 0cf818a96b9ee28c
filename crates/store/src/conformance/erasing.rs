//! Erasure: nothing about a recipient is left, and everything is counted as before.

use std::sync::Arc;

use notification::{Alternative, Bytes, Disposition, Fallback, NotificationId, State};

use super::support::{
    BroadcastShape, DELIVERED, Shape, at, claim_all, claim_one, find, indexes, name, part,
    settle_all, settle_one, suppression, whole_log,
};
use crate::{
    CancelTarget, DeliveryFilter, Erased, EventPosition, Filter, Lift, ListOrder, Requeued, Store,
    Suppression,
};

const DEAD: Disposition = Disposition::Ended(State::Dead);
const REFUSED: Disposition = Disposition::Ended(State::Refused);

async fn erase(store: &dyn Store, ids: &[NotificationId]) -> Vec<Erased> {
    store.erase(ids.to_vec(), name("tenant")).await.unwrap()
}

/// Identifiers of what is to `recipient`, or may fall back to it, in both orders the same.
async fn to(store: &dyn Store, recipient: &str) -> Vec<NotificationId> {
    let (tenant, recipient) = (Some(name("tenant")), Some(recipient.into()));
    let filter = Filter { tenant, recipient, or_fallback: true, ..Filter::default() };
    let list = async |filter: Filter| store.reader().list(filter, None, 9).await.unwrap().items;
    let oldest: Vec<NotificationId> =
        list(filter.clone()).await.into_iter().map(|it| it.id).collect();
    let newest = list(Filter { order: ListOrder::NewestFirst, ..filter }).await;
    assert_eq!(newest.into_iter().rev().map(|it| it.id).collect::<Vec<_>>(), oldest);
    oldest
}

pub(super) async fn what_is_erased_is_counted_and_not_found_by_its_recipient(store: &dyn Store) {
    let ids = Shape::default().ingest(store, 4).await;
    assert_eq!(to(store, "1").await, ids[1..2]);
    assert_eq!(erase(store, &ids[..1]).await, [Erased::Pending]);
    let chunk = claim_one(store, 0).await;
    assert_eq!(erase(store, &ids[..1]).await, [Erased::Pending]);
    let mut refused = part(&chunk, &[1, 2], REFUSED);
    refused.groups[0].detail = "neither 1 nor 2 is known".into();
    settle_one(store, refused).await;
    let mut dead = part(&chunk, &[3], DEAD);
    dead.groups[0].detail = "given up".into();
    settle_one(store, dead).await;
    let account = store.reader().totals().await.unwrap();
    let strange = store.erase(ids[1..].to_vec(), name("stranger")).await.unwrap();
    assert_eq!(strange, [Erased::Unknown; 3]);
    let asked = [ids[3], ids[0], ids[1], ids[1]];
    let expect = [Erased::Erased, Erased::Pending, Erased::Erased, Erased::Unknown];
    assert_eq!(erase(store, &asked).await, expect);
    assert_eq!(erase(store, &ids[3..]).await, [Erased::Unknown], "once");
    assert_eq!(store.reader().totals().await.unwrap(), account);
    let history = find(store, ids[1]).await;
    assert_eq!((history.recipient, history.content, history.state), (None, None, State::Refused));
    let words = |history: &crate::History| history.attempts[0].detail.clone();
    assert_eq!(words(&find(store, ids[2]).await), "neither (erased) nor 2 is known");
    assert_eq!(words(&find(store, ids[3]).await), "");
    assert!(find(store, ids[2]).await.content.is_some());
    assert_eq!(find(store, ids[2]).await.recipient.as_deref(), Some("2"));
    assert!(to(store, "1").await.is_empty());
    let states = [State::Dead].into();
    let requeued = store.requeue(vec![ids[3]], states, name("tenant"), at(9)).await.unwrap();
    assert_eq!(requeued, [Requeued::ContentRemoved]);
    // What was under way goes on.
    settle_one(store, part(&chunk, &[0], DELIVERED)).await;
    assert_eq!(erase(store, &ids).await[..3], [Erased::Erased, Erased::Unknown, Erased::Erased]);
    assert_eq!(whole_log(store, 100).await.len(), 4);
    for id in ids {
        assert_eq!(find(store, id).await.recipient, None);
    }
}

pub(super) async fn a_shared_content_goes_with_the_last_that_has_it(store: &dyn Store) {
    let broadcast = BroadcastShape::default().open(store, 1_001).await;
    store.seal_broadcast(broadcast, at(0)).await.unwrap();
    let mut ids = Vec::new();
    for chunk in claim_all(store, 0).await {
        ids.extend(chunk.deliveries.iter().map(|delivery| chunk.notification_id(delivery.index)));
        settle_all(store, &chunk, DELIVERED).await;
    }
    let (last, others) = ids.split_last().unwrap();
    assert_eq!(erase(store, others).await, vec![Erased::Erased; 1_000]);
    assert!(find(store, *last).await.content.is_some());
    assert_eq!(find(store, ids[0]).await.content, None);
    assert_eq!(erase(store, &[*last]).await, [Erased::Erased]);
    assert_eq!(find(store, *last).await.content, None);
    let status = store.reader().broadcast(broadcast).await.unwrap().unwrap();
    assert_eq!((status.account.accepted, status.account.delivered), (1_001, 1_001));
}

pub(super) async fn what_may_fall_back_to_a_recipient_is_found_by_it(store: &dyn Store) {
    let next = Alternative {
        channel: name("other"),
        destination: "there".into(),
        recipient: "ann@host".into(),
        payload: Bytes::from_static(b"[1]"),
        options: Bytes::from_static(b"{}"),
    };
    let with_fallback = |recipient: &str| {
        let mut draft = Shape::default().draft(recipient);
        draft.content.fallback = Some(Arc::new(Fallback { of: None, next: vec![next.clone()] }));
        draft
    };
    let drafts = vec![with_fallback("0"), Shape::default().draft("1"), with_fallback("ann@host")];
    let admissions = store.ingest(drafts, at(0)).await.unwrap();
    let ids: Vec<NotificationId> = admissions.into_iter().map(super::support::accepted).collect();
    let mut both = vec![ids[0], ids[2]];
    both.sort_unstable();
    assert_eq!(to(store, "ann@host").await, both);
    let (tenant, recipient) = (Some(name("tenant")), Some("ann@host".into()));
    let own = Filter { tenant, recipient, ..Filter::default() };
    let own = store.reader().list(own, None, 9).await.unwrap().items;
    assert_eq!(own.iter().map(|it| it.id).collect::<Vec<_>>(), [ids[2]]);
    let cancel = async |id| {
        let target = CancelTarget::Notification(id);
        store.cancel(target, name("tenant"), at(1)).await.unwrap().unwrap().cancelled
    };
    assert_eq!((cancel(ids[0]).await, cancel(ids[2]).await), (1, 1));
    assert_eq!(erase(store, &both).await, [Erased::Erased; 2]);
    assert!(to(store, "ann@host").await.is_empty());
    assert_eq!(find(store, ids[0]).await.content, None);
    for chunk in claim_all(store, 2).await {
        assert_eq!(&*chunk.deliveries[0].recipient, "1");
        let content = chunk.content_of(&chunk.deliveries[0]).unwrap();
        assert!(!content.payload.is_empty(), "it has its own still");
        settle_all(store, &chunk, DELIVERED).await;
    }
}

pub(super) async fn events_of_what_was_erased_name_no_recipient(store: &dyn Store) {
    let ids = Shape::default().ingest(store, 2).await;
    let chunk = claim_one(store, 0).await;
    settle_all(store, &chunk, DELIVERED).await;
    assert_eq!(erase(store, &ids[..1]).await, [Erased::Erased]);
    let filter = DeliveryFilter {
        states: [State::Delivered].into(),
        ..DeliveryFilter::ends_of(name("tenant"))
    };
    let page =
        store.reader().delivery_events(filter, EventPosition::default(), 9).await.unwrap().events;
    let mut told: Vec<_> =
        page.iter().map(|event| (event.id, event.recipient.as_deref())).collect();
    told.sort_unstable();
    assert_eq!(told, [(ids[0], None), (ids[1], Some("1"))]);
    assert_eq!(indexes(&chunk), [0, 1]);
}

pub(super) async fn nothing_of_the_list_is_left_of_a_recipient(store: &dyn Store) {
    let elsewhere = Suppression { channel: name("other"), ..suppression("1", "bounced") };
    let all = vec![suppression("2", ""), suppression("1", "1 is gone"), elsewhere];
    store.suppress(all, at(1)).await.unwrap();
    let came_back =
        Lift { channel: name("third"), recipient: "1".into(), registered_at: Some(at(5)) };
    store.lift(vec![came_back], at(5)).await.unwrap();
    let events = async |from| store.reader().suppression_events(from, 9).await.unwrap();
    let before = events(EventPosition::default()).await;
    assert_eq!(before.events.len(), 3);
    assert_eq!(store.forget("1".into()).await.unwrap(), 2);
    assert_eq!(store.forget("1".into()).await.unwrap(), 0, "once");
    let left = store.reader().suppressions(name("channel"), None, 9).await.unwrap();
    assert_eq!(left, [suppression("2", "")]);
    assert!(store.reader().suppressions(name("other"), None, 9).await.unwrap().is_empty());
    let after = events(EventPosition::default()).await;
    assert_eq!(after.events.iter().map(|it| &*it.recipient).collect::<Vec<_>>(), ["2"]);
    // Readers that had come to the end are told of what follows, and of that alone.
    store.suppress(vec![suppression("1", "again")], at(9)).await.unwrap();
    let next = events(before.next).await.events;
    assert_eq!(next.iter().map(|it| &*it.recipient).collect::<Vec<_>>(), ["1"]);
    let third = Suppression { channel: name("third"), ..suppression("1", "older") };
    store.suppress(vec![third], at(9)).await.unwrap();
    let listed = store.reader().suppressions(name("third"), None, 9).await.unwrap();
    assert_eq!(listed.len(), 1, "no mark is left");
}
