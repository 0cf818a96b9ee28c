//! Idempotency: a key stands for one notification.

use super::support::{Shape, accepted, at};
use crate::{Admission, ErrorKind, Store, StoreError};

const KEYED: Shape = Shape {
    destination: "here",
    priority: notification::Priority::Normal,
    guarantee: notification::Guarantee::AtLeastOnce,
    due_at: 0,
    expires_at: None,
    payload: notification::Bytes::from_static(b"{}"),
    key: Some(("key", 1)),
    tenant: "tenant",
};

pub(super) async fn the_same_key_twice_is_one_notification(store: &dyn Store) {
    let first = store.ingest(vec![KEYED.draft("a")], at(0)).await.unwrap();
    let again =
        store.ingest(vec![Shape::default().draft("b"), KEYED.draft("a")], at(9)).await.unwrap();
    assert_eq!(again[1], Admission::Replayed(accepted(first[0])));
    assert_eq!(store.totals().await.unwrap().accepted, 2);
}

pub(super) async fn the_same_key_twice_in_one_request_is_one_notification(store: &dyn Store) {
    let both = store.ingest(vec![KEYED.draft("a"), KEYED.draft("a")], at(0)).await.unwrap();
    assert_eq!(both[1], Admission::Replayed(accepted(both[0])));
    assert_eq!(store.totals().await.unwrap().accepted, 1);
}

pub(super) async fn a_key_with_other_content_refuses_the_whole_request(store: &dyn Store) {
    store.ingest(vec![KEYED.draft("a")], at(0)).await.unwrap();
    let other = Shape { key: Some(("key", 2)), ..KEYED };
    let fresh = |content| Shape { key: Some(("fresh", content)), ..KEYED };
    let refused = store.ingest(vec![fresh(1).draft("a"), other.draft("a")], at(0)).await;
    assert_eq!(refused, Err(StoreError::KeyReused { index: 1 }));
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Request);
    let refused = store.ingest(vec![fresh(1).draft("a"), fresh(2).draft("a")], at(0)).await;
    assert_eq!(refused, Err(StoreError::KeyReused { index: 1 }));
    assert_eq!(store.totals().await.unwrap().accepted, 1, "a refusal stores nothing");
    accepted(store.ingest(vec![fresh(3).draft("a")], at(0)).await.unwrap()[0]);
}

pub(super) async fn a_key_belongs_to_its_tenant(store: &dyn Store) {
    let other = Shape { tenant: "other", key: Some(("key", 2)), ..KEYED };
    store.ingest(vec![KEYED.draft("a")], at(0)).await.unwrap();
    accepted(store.ingest(vec![other.draft("a")], at(0)).await.unwrap()[0]);
}
