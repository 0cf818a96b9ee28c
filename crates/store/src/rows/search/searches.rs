//! Searches of the tests on both databases, beside a walk over everything.

use std::collections::BTreeMap;
use std::sync::Arc;

use notification::{
    Bytes, Chunk, CommonLabels, Disposition, Labels, NotificationId, State, Timestamp,
};

use crate::conformance::{DELIVERED, Shape, at, claim_all, list_in_pages, name, part};
use crate::{Admission, CancelTarget, Filter, ListOrder, Store};

/// Recipients, each of which gets many notifications.
pub(crate) const RECIPIENTS: usize = 50;

/// The place in [`Sent`] of those of the tenant that sends little.
pub(crate) const RARE: usize = usize::MAX;

/// The notifications that each recipient got.
pub(crate) type Sent = BTreeMap<usize, Vec<NotificationId>>;

/// Labels of what a recipient gets, by which it is found as well.
pub(crate) fn labels_of(recipient: &str) -> Labels {
    let common =
        CommonLabels { tags: vec!["all".into(), recipient.into()], metadata: Bytes::new() };
    Labels { external_id: format!("user {recipient}").into(), common: Some(Arc::new(common)) }
}

/// The three filters of the notifications of one recipient.
pub(crate) fn filters_of(recipient: usize, order: ListOrder) -> [Filter; 3] {
    let (tenant, recipient) = (Some(name("tenant")), recipient.to_string());
    let of_tenant = Filter { tenant, order, ..Filter::default() };
    let tag = Some(recipient.clone().into());
    let external_id = Some(format!("user {recipient}").into());
    [
        Filter { recipient: Some(recipient.into()), ..of_tenant.clone() },
        Filter { external_id, ..of_tenant.clone() },
        Filter { tag, ..of_tenant },
    ]
}

/// A filter of the notifications of one recipient.
pub(crate) fn to(recipient: usize, order: ListOrder) -> Filter {
    let recipient = Some(recipient.to_string().into());
    Filter { tenant: Some(name("tenant")), recipient, order, ..Filter::default() }
}

pub(crate) async fn list_all(
    store: &dyn Store,
    filter: Filter,
    items: usize,
) -> Vec<NotificationId> {
    list_in_pages(store, &filter, items).await.into_iter().map(|history| history.id).collect()
}

/// Stores `batches` batches of three, and notes who got what.
pub(crate) async fn fill(store: &dyn Store, batches: usize, sent: &mut Sent) {
    fill_at(store, batches, at(0), sent).await;
}

/// [`fill`] at another time.
pub(crate) async fn fill_at(store: &dyn Store, batches: usize, now: Timestamp, sent: &mut Sent) {
    let to = |number: usize| (number / 3 * 7 + number % 3) % RECIPIENTS;
    let draft = |number: usize| {
        // Drafts of one transaction share a batch unless their due times differ.
        let due_at = i64::try_from(number / 3).unwrap();
        let recipient = to(number).to_string();
        Shape { due_at, labels: labels_of(&recipient), ..Shape::default() }.draft(&recipient)
    };
    let admissions = store.ingest((0..batches * 3).map(draft).collect(), now).await.unwrap();
    for (number, admission) in admissions.into_iter().enumerate() {
        let Admission::Accepted(id) = admission else { panic!("{admission:?}") };
        sent.entry(to(number)).or_default().push(id);
    }
}

/// Stores one of a tenant that sends little.
pub(crate) async fn fill_rare(store: &dyn Store, sent: &mut Sent) {
    let ids = Shape { tenant: "rare", ..Shape::default() }.ingest(store, 1).await;
    sent.entry(RARE).or_default().extend(ids);
}

/// Filters of all that a tenant has, and of nothing.
pub(crate) fn filters_of_rare(order: ListOrder) -> [(Filter, bool); 3] {
    let of_tenant = Filter { tenant: Some(name("rare")), order, ..Filter::default() };
    let on = |channel| Filter { channel: Some(name(channel)), ..of_tenant.clone() };
    [(of_tenant.clone(), true), (on("channel"), true), (on("unused"), false)]
}

/// Lists what recipient 7 got, by each way to find it and in both orders, and what a tenant has that sends little.
pub(crate) async fn check(store: &dyn Store, sent: &Sent) {
    let mut expect = sent.get(&7).cloned().unwrap_or_default();
    expect.sort_by_key(|id| (id.batch(), id.index()));
    for filter in filters_of(7, ListOrder::OldestFirst) {
        assert_eq!(list_all(store, filter, 100).await, expect);
    }
    expect.reverse();
    for filter in filters_of(7, ListOrder::NewestFirst) {
        assert_eq!(list_all(store, filter, 100).await, expect);
    }
    let mut rare = sent.get(&RARE).cloned().unwrap_or_default();
    rare.sort_by_key(|id| (id.batch(), id.index()));
    for order in [ListOrder::OldestFirst, ListOrder::NewestFirst] {
        for (filter, has_any) in filters_of_rare(order) {
            let expect = if has_any { rare.clone() } else { Vec::new() };
            assert_eq!(list_all(store, filter, 100).await, expect);
        }
        rare.reverse();
    }
}

/// Has few wait, be cancelled or have a reason among `batches` that were delivered: a page finds all of them.
pub(crate) async fn check_few_of_many(store: &dyn Store, batches: usize) {
    let due_at = |number: usize| i64::try_from(number).unwrap();
    let draft = |number| Shape { due_at: due_at(number), ..Shape::default() }.draft("someone");
    let accepted = store.ingest((0..batches).map(draft).collect(), at(0)).await.unwrap();
    for place in [100, batches / 2] {
        let Admission::Accepted(id) = accepted[place] else { panic!("{:?}", accepted[place]) };
        let cancelled = store.cancel(CancelTarget::Notification(id), name("tenant"), at(0)).await;
        assert_eq!(cancelled.unwrap().unwrap().cancelled, 1);
    }
    let retry = Disposition::Retry { at: at(due_at(batches * 2)) };
    let (mut sent, mut retried) = (0, 0);
    while sent + 2 < batches {
        let chunks = claim_all(store, due_at(batches)).await;
        let settlement = |chunk: &Chunk| {
            sent += 1;
            let is_retried = sent % (batches / 4) == 7;
            retried += usize::from(is_retried);
            let mut settlement = part(chunk, &[0], if is_retried { retry } else { DELIVERED });
            settlement.groups[0].detail = if is_retried { "busy" } else { "" }.into();
            settlement
        };
        store.settle(chunks.iter().map(settlement).collect()).await.unwrap();
    }
    while store.advance().await.unwrap() {}
    let of =
        |states: &[State]| Filter { states: states.iter().copied().collect(), ..Filter::default() };
    let busy = Filter { reason: Some("busy".to_owned()), ..Filter::default() };
    for (filter, expect) in [
        (of(&[State::Pending]), retried),
        (of(&[State::Cancelled]), 2),
        (of(&[State::Pending, State::Cancelled, State::Dead]), retried + 2),
        (of(&[State::Begun]), 0),
        (busy, retried),
    ] {
        for tenant in [None, Some(name("tenant"))] {
            for order in [ListOrder::OldestFirst, ListOrder::NewestFirst] {
                let filter = Filter { tenant: tenant.clone(), order, ..filter.clone() };
                let page = store.reader().list(filter.clone(), None, 100).await.unwrap();
                assert_eq!((page.items.len(), page.next), (expect, None), "{filter:?}");
            }
        }
    }
}

/// Has one that waits before and one behind many of another tenant: pages find both without a look at all of those.
pub(crate) async fn check_few_beside_many(store: &dyn Store) {
    fill_rare(store, &mut Sent::new()).await;
    fill(store, 20_000, &mut Sent::new()).await;
    fill_rare(store, &mut Sent::new()).await;
    while store.advance().await.unwrap() {}
    for order in [ListOrder::OldestFirst, ListOrder::NewestFirst] {
        let [(of_rare, _), ..] = filters_of_rare(order);
        let filter = Filter { states: [State::Pending].into(), ..of_rare };
        let (mut pages, mut found, mut after) = (0, 0, None);
        loop {
            let page = store.reader().list(filter.clone(), after, 100).await.unwrap();
            (pages, found, after) = (pages + 1, found + page.items.len(), page.next);
            if after.is_none() {
                break;
            }
        }
        assert_eq!(found, 2, "{order:?}");
        assert!(pages <= 3, "{pages} pages, {order:?}");
    }
}
