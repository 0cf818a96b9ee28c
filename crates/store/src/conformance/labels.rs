//! Labels: notifications and broadcasts are found by them, and they go with the recipient.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use notification::{
    Alternative, ByteString, Bytes, CommonLabels, Disposition, Draft, Fallback, Idempotency,
    Labels, NotificationId, State,
};

use super::events::events_from;
use super::ledger::list_all;
use super::support::{
    BroadcastShape, DELIVERED, Shape, accepted, at, claim_all, claim_one, find, idempotency,
    indexes, name, part, settle_all, settle_one, suppression,
};
use crate::{
    BroadcastDraft, BroadcastFilter, BroadcastOpened, DeliveryFilter, Erased, EventPosition,
    Filter, KeyUse, ListOrder, RecipientGroup, Retention, Store, TenantRetention,
};

fn labels(external_id: &str, tags: &[&str]) -> Labels {
    let common = CommonLabels {
        tags: tags.iter().map(|tag| ByteString::from(*tag)).collect(),
        metadata: Bytes::from_static(br#"{"order":7}"#),
    };
    Labels { external_id: external_id.into(), common: (!tags.is_empty()).then(|| Arc::new(common)) }
}

async fn ingest(store: &dyn Store, recipient: &str, labels: Labels) -> NotificationId {
    let draft = Draft { labels, ..Shape::default().draft(recipient) };
    accepted(store.ingest(vec![draft], at(0)).await.unwrap()[0])
}

/// Those of the tenant that match, the same in both orders.
async fn listed(store: &dyn Store, filter: Filter) -> Vec<NotificationId> {
    let filter = Filter { tenant: filter.tenant.or_else(|| Some(name("tenant"))), ..filter };
    let oldest = list_all(store, &filter, 2).await;
    let newest = Filter { order: ListOrder::NewestFirst, ..filter };
    let mut newest = list_all(store, &newest, 2).await;
    newest.reverse();
    assert_eq!(oldest, newest);
    oldest
}

async fn with_external_id(store: &dyn Store, external_id: &str) -> Vec<NotificationId> {
    let external_id = Some(external_id.into());
    listed(store, Filter { external_id, ..Filter::default() }).await
}

async fn with_tag(store: &dyn Store, tag: &str) -> Vec<NotificationId> {
    listed(store, Filter { tag: Some(tag.into()), ..Filter::default() }).await
}

pub(super) async fn notifications_are_found_by_their_labels(store: &dyn Store) {
    let drafts = [
        Draft { labels: labels("ann", &["news", "sport"]), ..Shape::default().draft("a") },
        Shape::default().draft("b"),
        Draft { labels: labels("bob", &[]), ..Shape::default().draft("c") },
        Draft { labels: labels("ann", &["sport"]), ..Shape::default().draft("d") },
    ];
    let admissions = store.ingest(drafts.to_vec(), at(0)).await.unwrap();
    let ids: Vec<NotificationId> = admissions.into_iter().map(accepted).collect();
    let other = Shape { tenant: "other", labels: labels("ann", &["news"]), ..Shape::default() };
    let other = other.ingest(store, 1).await;
    for (id, draft) in ids.iter().zip(&drafts) {
        assert_eq!(find(store, *id).await.labels, draft.labels);
    }
    assert_eq!(with_external_id(store, "ann").await, [ids[0], ids[3]]);
    assert_eq!(with_external_id(store, "an").await, []);
    assert_eq!(with_tag(store, "sport").await, [ids[0], ids[3]]);
    assert_eq!(with_tag(store, "news").await, ids[..1]);
    let news = Filter { tag: Some("news".into()), ..Filter::default() };
    assert_eq!(list_all(store, &news, 9).await, [ids[0], other[0]], "of any tenant");
    let both = Filter {
        external_id: Some("ann".into()),
        tag: Some("sport".into()),
        recipient: Some("d".into()),
        ..Filter::default()
    };
    assert_eq!(listed(store, both).await, ids[3..]);
    let other = Filter { external_id: Some("ann".into()), ..Filter::default() };
    let other = Filter { recipient: Some("c".into()), ..other };
    assert_eq!(listed(store, other).await, []);
}

pub(super) async fn notifications_are_found_by_the_reason_of_their_end(store: &dyn Store) {
    let ids = Shape::default().ingest(store, 3).await;
    let chunk = claim_one(store, 0).await;
    let mut refused = part(&chunk, &[1], Disposition::Ended(State::Refused));
    refused.groups[0].detail = "410 Unregistered".into();
    settle_one(store, refused).await;
    let filter = Filter { reason: Some("Unregistered".to_owned()), ..Filter::default() };
    assert_eq!(listed(store, filter).await, ids[1..2]);
}

pub(super) async fn those_of_a_broadcast_have_its_tags_and_ids_of_their_own(store: &dyn Store) {
    let draft = BroadcastDraft {
        labels: labels("campaign", &["news"]),
        ..BroadcastShape::default().draft()
    };
    let opened = store.open_broadcast(draft.clone(), at(0)).await.unwrap();
    let BroadcastOpened::Opened(id) = opened else { panic!("{opened:?}") };
    let mut group = RecipientGroup::new("here".into());
    for (recipient, external_id) in [("a", ""), ("b", "bob"), ("c", "")] {
        group.push(recipient.into(), None, external_id.into(), None);
    }
    store.add_recipients(id, vec![group], at(0)).await.unwrap();
    assert_eq!(with_tag(store, "news").await, [], "an open broadcast is not accepted");
    store.seal_broadcast(id, at(0)).await.unwrap();
    let all = with_tag(store, "news").await;
    assert_eq!(all.len(), 3);
    assert_eq!(with_external_id(store, "bob").await, all[1..2]);
    assert_eq!(find(store, all[1]).await.labels, labels("bob", &["news"]));
    assert_eq!(find(store, all[2]).await.labels, labels("", &["news"]));
    assert_eq!(with_external_id(store, "campaign").await, [], "that is the broadcast's own");
    let status = store.reader().broadcast(id).await.unwrap().unwrap();
    assert_eq!(status.labels, draft.labels);
    let all = BroadcastFilter::of(name("tenant"));
    let (own, other) = (Some("campaign".into()), Some("bob".into()));
    for (filter, expect) in [
        (BroadcastFilter { tag: Some("news".into()), ..all.clone() }, vec![id]),
        (BroadcastFilter { tag: Some("new".into()), ..all.clone() }, vec![]),
        (BroadcastFilter { external_id: own, ..all.clone() }, vec![id]),
        (BroadcastFilter { external_id: other, ..all }, vec![]),
    ] {
        let page = store.reader().broadcasts(filter.clone(), None, 9).await.unwrap();
        assert!(page.items.iter().all(|item| item.labels == draft.labels));
        let found: Vec<_> = page.items.into_iter().map(|item| item.id).collect();
        assert_eq!(found, expect, "{filter:?}");
    }
}

/// A draft for `recipient` that falls back to `other`.
fn with_fallback(recipient: &str, other: &str, labels: Labels) -> Draft {
    let alternative = Alternative {
        channel: name("other"),
        destination: "there".into(),
        recipient: other.into(),
        payload: Bytes::from_static(b"[1]"),
        options: Bytes::new(),
    };
    let mut draft = Draft { labels, ..Shape::default().draft(recipient) };
    draft.content.fallback = Some(Arc::new(Fallback { of: None, next: vec![alternative] }));
    draft
}

pub(super) async fn a_fallback_has_the_labels_of_what_it_stands_in_for(store: &dyn Store) {
    store.suppress(vec![suppression("gone", "told so")], at(0)).await.unwrap();
    let drafts = [
        with_fallback("one", "a", labels("ann", &["news"])),
        with_fallback("gone", "b", labels("bob", &[])),
        with_fallback("two", "c", Labels::default()),
    ];
    store.ingest(drafts.to_vec(), at(0)).await.unwrap();
    // That of the suppressed one is accepted by the claim, those of the others with their refusals.
    let chunks = claim_all(store, 0).await;
    let chunk = chunks.iter().find(|it| it.envelope.lane.channel == name("channel")).unwrap();
    let mut refused = part(chunk, &indexes(chunk), Disposition::Ended(State::Refused));
    refused.fallbacks =
        chunk.deliveries.iter().filter_map(|it| chunk.draft_in_place_of(it, at(7))).collect();
    settle_one(store, refused).await;
    for (recipient, expect) in
        [("a", labels("ann", &["news"])), ("b", labels("bob", &[])), ("c", Labels::default())]
    {
        let filter = Filter { recipient: Some(recipient.into()), ..Filter::default() };
        let ids = listed(store, filter).await;
        assert_eq!(ids.len(), 1, "{recipient}");
        assert_eq!(find(store, ids[0]).await.labels, expect, "{recipient}");
    }
    assert_eq!(with_tag(store, "news").await.len(), 2, "both of Ann's");
}

pub(super) async fn labels_go_with_the_recipient(store: &dyn Store) {
    let ids = [
        ingest(store, "a", labels("ann", &["news"])).await,
        ingest(store, "b", labels("bob", &["news"])).await,
    ];
    let together = Shape { labels: labels("cid", &["sport"]), ..Shape::default() };
    let together = together.ingest(store, 2).await;
    for chunk in claim_all(store, 0).await {
        settle_all(store, &chunk, DELIVERED).await;
    }
    let erased = vec![ids[0], together[0]];
    let answers = store.erase(erased, name("tenant")).await.unwrap();
    assert_eq!(answers, [Erased::Erased; 2]);
    assert_eq!(find(store, ids[0]).await.labels, Labels::default());
    assert_eq!(find(store, together[0]).await.labels, Labels::default());
    assert_eq!(with_external_id(store, "ann").await, []);
    assert_eq!(with_external_id(store, "cid").await, together[1..]);
    assert_eq!(with_tag(store, "news").await, ids[1..]);

    let day = Duration::from_hours(24);
    let lifetimes =
        crate::Lifetimes { content: Some(day), recipient: Some(day * 10), outcome: Some(day * 20) };
    let default = TenantRetention { lifetimes, by_state: std::collections::BTreeMap::new() };
    let retention = Retention {
        default,
        tenants: std::collections::BTreeMap::new(),
        idempotency_keys: None,
        suppression_events: None,
        outbox_rejects: None,
        acts: None,
    };
    for (days, expect) in [(5, labels("bob", &["news"])), (15, Labels::default())] {
        while store.prune(&retention, at(0).plus(day * days)).await.unwrap().goes_on {}
        assert_eq!(find(store, ids[1]).await.labels, expect, "after {days} days");
    }
    assert_eq!(with_tag(store, "news").await, []);
}

pub(super) async fn events_have_labels_and_are_filtered_by_tag(store: &dyn Store) {
    ingest(store, "a", labels("ann", &["news", "sport"])).await;
    ingest(store, "b", labels("bob", &["weather"])).await;
    ingest(store, "c", Labels::default()).await;
    for chunk in claim_all(store, 0).await {
        settle_all(store, &chunk, DELIVERED).await;
    }
    let told = async |tags: &[&str]| {
        let tags: BTreeSet<ByteString> = tags.iter().map(|tag| ByteString::from(*tag)).collect();
        let filter = DeliveryFilter { tags, ..DeliveryFilter::ends_of(name("tenant")) };
        let events = events_from(store, &filter, EventPosition::default(), 9).await;
        events.into_iter().map(|event| event.labels).collect::<Vec<_>>()
    };
    let (ann, bob) = (labels("ann", &["news", "sport"]), labels("bob", &["weather"]));
    assert_eq!(told(&[]).await, [ann.clone(), bob.clone(), Labels::default()]);
    assert_eq!(told(&["sport", "weather"]).await, [ann, bob.clone()]);
    assert_eq!(told(&["weather"]).await, [bob]);
    assert_eq!(told(&["another"]).await, []);
}

pub(super) async fn a_key_leads_to_what_it_was_used_for(store: &dyn Store) {
    let ids = Shape { key: Some(("key", 1)), ..Shape::default() }.ingest(store, 1).await;
    let broadcast = BroadcastShape { key: Some(("all", 1)) }.open(store, 2).await;
    let used = async |tenant: &'static str, Idempotency { key, .. }: Idempotency| {
        store.reader().key_use(name(tenant), key).await.unwrap()
    };
    assert_eq!(used("tenant", idempotency(("key", 1))).await, Some(KeyUse::Notification(ids[0])));
    assert_eq!(used("other", idempotency(("key", 1))).await, None);
    assert_eq!(used("tenant", idempotency(("all", 1))).await, None, "it is open still");
    store.seal_broadcast(broadcast, at(0)).await.unwrap();
    assert_eq!(used("tenant", idempotency(("all", 1))).await, Some(KeyUse::Broadcast(broadcast)));
    assert_eq!(used("tenant", idempotency(("no\0key", 1))).await, None);
}
