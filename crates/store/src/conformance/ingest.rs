//! Ingest: notifications are kept as they were given.

use notification::{Bytes, State, limits};

use super::support::{Shape, accepted, at, claim_all, find};
use crate::Store;

pub(super) async fn nothing_in_means_nothing_done(store: &dyn Store) {
    assert_eq!(store.ingest(Vec::new(), at(0)).await.unwrap(), []);
    assert_eq!(store.settle(Vec::new()).await.unwrap(), []);
    assert_eq!(store.begin(Vec::new()).await.unwrap(), []);
    assert_eq!(store.reader().totals().await.unwrap().accepted, 0);
    assert!(claim_all(store, 0).await.is_empty());
}

pub(super) async fn what_is_accepted_is_found_as_it_was_given(store: &dyn Store) {
    let plain = Shape { due_at: 5, expires_at: Some(900), ..Shape::default() };
    let other = Shape {
        destination: "elsewhere",
        payload: Bytes::from_static(b"[]"),
        tenant: "somebody",
        ..Shape::default()
    };
    let drafts = vec![plain.draft("a"), other.draft("b"), plain.draft("c"), other.draft("ü")];
    let admissions = store.ingest(drafts.clone(), at(3)).await.unwrap();
    assert_eq!(admissions.len(), 4);
    for (admission, draft) in admissions.into_iter().zip(drafts) {
        let id = accepted(admission);
        let history = find(store, id).await;
        assert_eq!(history.id, id);
        assert_eq!(history.envelope, draft.envelope);
        assert_eq!((history.accepted_at, id.accepted_at()), (at(3), at(3)));
        assert_eq!(history.recipient, Some(draft.recipient));
        assert_eq!(history.content, Some(draft.content));
        assert_eq!(history.state, State::Pending);
        assert_eq!(history.next_attempt_at, Some(draft.envelope.due_at));
        assert_eq!(history.attempts, []);
    }
}

pub(super) async fn a_large_request_is_cut_into_batches(store: &dyn Store) {
    let ids = Shape::default().ingest(store, 2 * limits::BATCH_ITEMS + 1).await;
    let mut distinct = ids.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), ids.len(), "every notification has its own identifier");
    let chunks = claim_all(store, 0).await;
    let counts: Vec<usize> = chunks.iter().map(|chunk| chunk.deliveries.len()).collect();
    assert_eq!(counts, [limits::BATCH_ITEMS, limits::BATCH_ITEMS, 1]);
    let claimed = chunks.iter().flat_map(|chunk| {
        let delivery = |delivery: &notification::Delivery| {
            (chunk.notification_id(delivery.index), delivery.recipient.to_string())
        };
        chunk.deliveries.iter().map(delivery).collect::<Vec<_>>()
    });
    let given = ids.iter().copied().zip((0..).map(|number: usize| number.to_string()));
    assert!(claimed.eq(given), "identifier and recipient stay together");
}

pub(super) async fn large_contents_are_cut_into_batches(store: &dyn Store) {
    let payload = |number: u8| Bytes::from(vec![number; limits::PAYLOAD_BYTES]);
    let shape = |number: u8| Shape { payload: payload(number), ..Shape::default() };
    let drafts = (0..9).map(|number| shape(number).draft("one")).collect();
    let admissions = store.ingest(drafts, at(0)).await.unwrap();
    for (number, admission) in (0..).zip(admissions) {
        assert_eq!(
            find(store, accepted(admission)).await.content.unwrap().payload,
            payload(number)
        );
    }
    let claimed = claim_all(store, 0).await;
    let contents = claimed.iter().flat_map(|chunk| {
        chunk.deliveries.iter().map(|delivery| chunk.content_of(delivery).unwrap().payload.clone())
    });
    assert!(contents.eq((0..9).map(payload)));
}
