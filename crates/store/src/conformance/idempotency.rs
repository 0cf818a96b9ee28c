//! Idempotency: a key stands for one notification.

use notification::{Idempotency, PassedBound};

use super::support::{Shape, accepted, at};
use crate::{Admission, ErrorKind, Store, StoreError};

fn keyed() -> Shape {
    Shape { key: Some(("key", 1)), ..Shape::default() }
}

pub(super) async fn the_same_key_twice_is_one_notification(store: &dyn Store) {
    let first = store.ingest(vec![keyed().draft("a")], at(0)).await.unwrap();
    let again =
        store.ingest(vec![Shape::default().draft("b"), keyed().draft("a")], at(9)).await.unwrap();
    assert_eq!(again[1], Admission::Replayed(accepted(first[0])));
    assert_eq!(store.reader().totals().await.unwrap().accepted, 2);
}

pub(super) async fn the_same_key_twice_in_one_request_is_one_notification(store: &dyn Store) {
    let both = store.ingest(vec![keyed().draft("a"), keyed().draft("a")], at(0)).await.unwrap();
    assert_eq!(both[1], Admission::Replayed(accepted(both[0])));
    assert_eq!(store.reader().totals().await.unwrap().accepted, 1);
}

pub(super) async fn a_key_with_other_content_refuses_the_whole_request(store: &dyn Store) {
    store.ingest(vec![keyed().draft("a")], at(0)).await.unwrap();
    let other = Shape { key: Some(("key", 2)), ..keyed() };
    let fresh = |content| Shape { key: Some(("fresh", content)), ..keyed() };
    let refused = store.ingest(vec![fresh(1).draft("a"), other.draft("a")], at(0)).await;
    assert_eq!(refused, Err(StoreError::KeyReused { index: 1 }));
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Request);
    let refused = store.ingest(vec![fresh(1).draft("a"), fresh(2).draft("a")], at(0)).await;
    assert_eq!(refused, Err(StoreError::KeyReused { index: 1 }));
    assert_eq!(store.reader().totals().await.unwrap().accepted, 1, "a refusal stores nothing");
    accepted(store.ingest(vec![fresh(3).draft("a")], at(0)).await.unwrap()[0]);
}

pub(super) async fn what_comes_too_late_is_answered_only_if_its_key_was_used(store: &dyn Store) {
    let late = |key, content, to| {
        let mut draft = Shape { key: Some((key, content)), ..Shape::default() }.draft(to);
        let idempotency = draft.idempotency.take();
        let passed = Some(PassedBound::ExpiresAt);
        draft.idempotency = idempotency.map(|idempotency| Idempotency { passed, ..idempotency });
        draft
    };
    let passed =
        |index| StoreError::BoundPassed { index, bound: PassedBound::ExpiresAt, now: at(9) };
    let refused = store.ingest(vec![late("key", 1, "a")], at(9)).await;
    assert_eq!(refused, Err(passed(0)));
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Request);
    let first = accepted(store.ingest(vec![keyed().draft("a")], at(0)).await.unwrap()[0]);
    let again = store.ingest(vec![late("key", 1, "a")], at(9)).await.unwrap();
    assert_eq!(again, [Admission::Replayed(first)]);
    let other = store.ingest(vec![late("key", 2, "a")], at(9)).await;
    assert_eq!(other, Err(StoreError::KeyReused { index: 0 }));

    let fresh = Shape { key: Some(("fresh", 1)), ..Shape::default() };
    let list = vec![fresh.draft("a"), late("key", 1, "a"), late("unused", 1, "a")];
    assert_eq!(store.ingest(list, at(9)).await, Err(passed(2)));
    assert_eq!(store.reader().totals().await.unwrap().accepted, 1, "a refusal stores nothing");
    // The bound passed between the first and the second of a list.
    let list = vec![fresh.draft("a"), late("fresh", 1, "a")];
    let both = store.ingest(list, at(9)).await.unwrap();
    assert_eq!(both, [both[0], Admission::Replayed(accepted(both[0]))]);
}

pub(super) async fn a_key_belongs_to_its_tenant(store: &dyn Store) {
    let other = Shape { tenant: "other", key: Some(("key", 2)), ..keyed() };
    store.ingest(vec![keyed().draft("a")], at(0)).await.unwrap();
    accepted(store.ingest(vec![other.draft("a")], at(0)).await.unwrap()[0]);
}
