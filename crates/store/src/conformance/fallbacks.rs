//! Fallbacks: they stand in for a notification that was definitely refused.

use std::sync::Arc;

use notification::{
    Alternative, ByteString, Bytes, Chunk, Content, Disposition, Draft, Fallback, NotificationId,
    Settlement, State, limits,
};

use super::support::{
    BroadcastShape, LEASE, Shape, accepted, at, claim_all, claim_one, find, indexes, name, part,
    settle_one, suppression,
};
use crate::{Filter, RecipientGroup, Settled, Store, Suppression};

fn alternative(recipient: &str) -> Alternative {
    Alternative {
        channel: name("other"),
        destination: "there".into(),
        recipient: recipient.into(),
        payload: Bytes::from_static(b"[1]"),
        options: Bytes::from_static(b"{}"),
    }
}

/// A draft for `recipient` with fallbacks to `next`.
fn draft(recipient: &str, next: &[&str]) -> Draft {
    let next = next.iter().map(|recipient| alternative(recipient)).collect();
    let mut draft = Shape { expires_at: Some(900_000), ..Shape::default() }.draft(recipient);
    draft.content.fallback = Some(Arc::new(Fallback { of: None, next }));
    draft
}

/// All of `chunk` refused, with what stands in for it.
pub(super) fn refusal(chunk: &Chunk) -> Settlement {
    let fallbacks =
        chunk.deliveries.iter().filter_map(|it| chunk.draft_in_place_of(it, at(7))).collect();
    let refused = Disposition::Ended(State::Refused);
    Settlement { fallbacks, ..part(chunk, &indexes(chunk), refused) }
}

async fn ingest(store: &dyn Store, draft: Draft) -> NotificationId {
    accepted(store.ingest(vec![draft], at(0)).await.unwrap()[0])
}

pub(super) async fn a_fallback_is_accepted_with_the_refusal_and_takes_the_others_along(
    store: &dyn Store,
) {
    let first = ingest(store, draft("a", &["b", "c"])).await;
    let chunk = claim_one(store, 0).await;
    assert_eq!(find(store, first).await.fallback_id, None);
    settle_one(store, refusal(&chunk)).await;
    let second = claim_one(store, 7).await;
    assert_eq!(
        (&*second.deliveries[0].recipient, &second.envelope.lane.channel),
        ("b", &name("other"))
    );
    assert_eq!(&*second.envelope.lane.destination, "there");
    assert_eq!(second.envelope.expires_at, chunk.envelope.expires_at);
    let content = second.content_of(&second.deliveries[0]).unwrap();
    let fallback = Fallback { of: Some(first), next: vec![alternative("c")] };
    let expect = Content {
        payload: Bytes::from_static(b"[1]"),
        options: Bytes::from_static(b"{}"),
        fallback: Some(Arc::new(fallback)),
    };
    assert_eq!(content, &expect);
    let second_id = second.notification_id(second.deliveries[0].index);
    assert_eq!(find(store, first).await.fallback_id, Some(second_id));
    assert_eq!(find(store, second_id).await.content, Some(expect));
    settle_one(store, refusal(&second)).await;
    let third = claim_one(store, 7).await;
    let third_id = third.notification_id(third.deliveries[0].index);
    settle_one(store, refusal(&third)).await;
    assert!(claim_all(store, 8).await.is_empty(), "nothing is left of the list");
    assert_eq!(find(store, third_id).await.fallback_id, None);
    let listed = store.reader().list(Filter::default(), None, 9).await.unwrap().items;
    let links: Vec<_> = listed.iter().map(|history| (history.id, history.fallback_id)).collect();
    assert_eq!(links, [(first, Some(second_id)), (second_id, Some(third_id)), (third_id, None)]);
    let totals = store.reader().totals().await.unwrap();
    assert_eq!((totals.accepted, totals.refused), (3, 3));
}

pub(super) async fn a_settlement_that_is_stale_accepts_no_fallback(store: &dyn Store) {
    ingest(store, draft("a", &["b"])).await;
    let late = claim_one(store, 0).await;
    let lease_ended = i64::try_from(LEASE.as_millis()).unwrap();
    let current = claim_one(store, lease_ended).await;
    assert_eq!(settle_one(store, refusal(&late)).await, Settled::Stale);
    assert_eq!(store.reader().totals().await.unwrap().accepted, 1);
    // Settled in one call twice, and once more because the answer was lost.
    let answers = store.settle(vec![refusal(&current), refusal(&current)]).await.unwrap();
    assert_eq!(answers, [Settled::Applied { remaining: 0 }, Settled::Stale]);
    assert_eq!(settle_one(store, refusal(&current)).await, Settled::Stale);
    assert_eq!(store.reader().totals().await.unwrap().accepted, 2);
    assert_eq!(claim_one(store, lease_ended).await.deliveries.len(), 1);
}

pub(super) async fn a_fallback_is_accepted_when_its_recipient_is_suppressed(store: &dyn Store) {
    let elsewhere = Suppression { channel: name("other"), ..suppression("b", "") };
    store.suppress(vec![suppression("a", ""), elsewhere], at(0)).await.unwrap();
    let first = ingest(store, draft("a", &["b", "c"])).await;
    ingest(store, Shape { destination: "elsewhere", ..Shape::default() }.draft("a")).await;
    let mut claimed = claim_all(store, 5).await;
    claimed.extend(claim_all(store, 5).await);
    claimed.extend(claim_all(store, 5).await);
    let recipients: Vec<_> =
        claimed.iter().flat_map(|chunk| &chunk.deliveries).map(|it| &*it.recipient).collect();
    assert_eq!(recipients, ["c"]);
    let second = find(store, first).await.fallback_id.unwrap();
    assert_eq!(find(store, second).await.state, State::Suppressed);
    let third = find(store, second).await.fallback_id.unwrap();
    assert_eq!(third, claimed[0].notification_id(claimed[0].deliveries[0].index));
    let totals = store.reader().totals().await.unwrap();
    assert_eq!((totals.accepted, totals.suppressed), (4, 3));
}

pub(super) async fn fallbacks_are_kept_beside_contents_without(store: &dyn Store) {
    let plain = Shape { expires_at: Some(900_000), ..Shape::default() };
    let mut last = draft("d", &[]);
    last.content.payload = Bytes::from(vec![b'x'; 300]);
    let drafts = vec![plain.draft("a"), draft("b", &["x", "y"]), plain.draft("c"), last];
    let admissions = store.ingest(drafts.clone(), at(0)).await.unwrap();
    for (admission, draft) in admissions.into_iter().zip(&drafts) {
        assert_eq!(find(store, accepted(admission)).await.content.unwrap(), draft.content);
    }
    let chunk = claim_one(store, 0).await;
    for (delivery, draft) in chunk.deliveries.iter().zip(&drafts) {
        assert_eq!(chunk.content_of(delivery), Some(&draft.content));
    }
}

/// Recipients of a broadcast, every second one with a fallback; contents are the same for all.
fn with_fallbacks(count: usize, content: &Content, other: &Alternative) -> RecipientGroup {
    let numbers = || (0..count).map(|number| number.to_string());
    let own = numbers().enumerate().map(|(number, recipient)| {
        let alternative = Alternative { recipient: recipient.into(), ..other.clone() };
        let fallback = Fallback { of: None, next: vec![alternative] };
        let fallback = (number % 2 == 1).then(|| Arc::new(fallback));
        Content { fallback, ..content.clone() }
    });
    RecipientGroup {
        contents: own.collect(),
        recipients: numbers().map(ByteString::from).collect(),
        ..RecipientGroup::new("destination".into())
    }
}

pub(super) async fn fallbacks_of_a_broadcast_share_their_contents(store: &dyn Store) {
    let large = |byte| Bytes::from(vec![byte; limits::PAYLOAD_BYTES / 2]);
    let content = Content { payload: large(b'1'), ..Content::default() };
    let other = Alternative { payload: large(b'2'), ..alternative("") };
    let count = limits::BATCH_ITEMS + 1;
    let group = with_fallbacks(count, &content, &other);
    let id = BroadcastShape::default().open(store, 0).await;
    store.add_recipients(id, vec![group.clone()], at(0)).await.unwrap();
    assert_eq!(store.seal_broadcast(id, at(0)).await.unwrap(), count as u64);
    let chunks = claim_all(store, 0).await;
    assert_eq!(chunks.len(), 2, "half a gigabyte, if each had its own");
    for chunk in &chunks {
        for delivery in &chunk.deliveries {
            let number: usize = delivery.recipient.parse().unwrap();
            assert_eq!(chunk.content_of(delivery), Some(&group.contents[number]));
        }
    }
    let first = chunks[0].notification_id(0);
    assert_eq!(find(store, first).await.content.unwrap(), group.contents[0]);
    for chunk in &chunks {
        settle_one(store, refusal(chunk)).await;
    }
    let used = claim_all(store, 7).await;
    assert_eq!(used.len(), 1, "they share it again");
    assert_eq!(used[0].deliveries.len(), count / 2);
    for delivery in &used[0].deliveries {
        assert_eq!(used[0].content_of(delivery).unwrap().payload, other.payload);
    }
    assert_eq!(used[0].envelope.broadcast, None);
    let of_broadcast = store.reader().broadcast(id).await.unwrap().unwrap().account;
    assert_eq!((of_broadcast.accepted, of_broadcast.refused), (count as u64, count as u64));
}
