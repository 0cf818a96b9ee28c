//! Accepted whole, or not at all.

use std::time::Duration;

use flow::forecast::Series;
use notification::{
    BroadcastId, Bytes, Chunk, Content, Disposition, Guarantee, Idempotency, Labels, PassedBound,
    Priority, State, limits,
};

use super::support::{
    BroadcastShape, DELIVERED, Shape, at, claim_all, find, groups, name, part, settle_all,
    settle_one,
};
use crate::{
    BroadcastDraft, BroadcastFilter, BroadcastOpened, BroadcastPart, Filter, ListOrder,
    ListedBroadcast, RecipientGroup, Settled, Store, StoreError,
};

pub(super) async fn an_open_broadcast_is_not_there_yet(store: &dyn Store) {
    let id = BroadcastShape::default().open(store, 10).await;
    assert!(claim_all(store, 0).await.is_empty());
    assert_eq!(store.reader().totals().await.unwrap().accepted, 0);
    assert_eq!(store.reader().broadcast(id).await.unwrap(), None);
    assert_eq!(store.reader().list(Filter::default(), None, 9).await.unwrap().items, []);
    let unknown = BroadcastId(id.0 + 1);
    let refused = store.add_recipients(unknown, groups(1), at(0)).await;
    assert_eq!(refused, Err(StoreError::NoOpenBroadcast(unknown)));
}

pub(super) async fn a_sealed_broadcast_is_claimed_with_one_content(store: &dyn Store) {
    let id = BroadcastShape::default().open(store, limits::BATCH_ITEMS + 5).await;
    store.add_recipients(id, groups(3), at(0)).await.unwrap();
    let expect = limits::BATCH_ITEMS + 8;
    assert_eq!(store.seal_broadcast(id, at(4)).await.unwrap(), expect as u64);
    assert_eq!(store.seal_broadcast(id, at(5)).await, Err(StoreError::NoOpenBroadcast(id)));
    let status = store.reader().broadcast(id).await.unwrap().unwrap();
    assert_eq!((status.tenant, status.channel), (name("tenant"), name("channel")));
    assert_eq!((status.accepted_at, status.account.pending), (at(4), expect as u64));
    let content = BroadcastShape::default().draft().content;
    let chunks = claim_all(store, 4).await;
    assert_eq!(chunks.iter().map(|chunk| chunk.deliveries.len()).sum::<usize>(), expect);
    for chunk in &chunks {
        assert_eq!(chunk.envelope.broadcast, Some(id));
        for delivery in &chunk.deliveries {
            assert_eq!(chunk.content_of(delivery), Some(&content));
        }
    }
    let history = find(store, chunks[0].notification_id(3)).await;
    assert_eq!((history.recipient.as_deref(), history.content), (Some("3"), Some(content)));
}

pub(super) async fn what_is_left_of_a_broadcast_is_told_by_lane(store: &dyn Store) {
    let id = BroadcastShape::default().open(store, 0).await;
    let to = |destination: &str, count| RecipientGroup {
        destination: destination.into(),
        ..groups(count).remove(0)
    };
    store.add_recipients(id, vec![to("here", 4), to("there", 2)], at(0)).await.unwrap();
    store.seal_broadcast(id, at(4)).await.unwrap();
    for chunk in claim_all(store, 4).await {
        if &*chunk.envelope.lane.destination == "there" {
            settle_all(store, &chunk, DELIVERED).await;
            continue;
        }
        for (index, disposition) in [
            (0, DELIVERED),
            (1, Disposition::Retry { at: at(900) }),
            (2, Disposition::Ended(State::Expired)),
        ] {
            let settled = settle_one(store, part(&chunk, &[index], disposition)).await;
            assert!(matches!(settled, Settled::Applied { .. }));
        }
    }
    let status = store.reader().broadcast(id).await.unwrap().unwrap();
    assert_eq!((status.due_at, status.account.pending), (at(0), 2));
    let (mut retries, mut series) = (Series::default(), Series::default());
    retries.add(Duration::from_millis(900), 0, 1);
    series.add(Duration::from_millis(7), 1, 1);
    let here = BroadcastPart { pending: 2, retries, retry_attempt: 2, series };
    assert_eq!(status.parts, [here], "in the other lane nothing is left");
}

/// A broadcast to recipients `0`, `1`, ..., each with the content `content(number)`.
async fn personal(
    store: &dyn Store,
    count: usize,
    content: impl Fn(usize) -> Content,
) -> Vec<Chunk> {
    let id = BroadcastShape::default().open(store, 0).await;
    let mut groups = groups(count);
    groups[0].contents = (0..count).map(content).collect();
    store.add_recipients(id, groups, at(0)).await.unwrap();
    assert_eq!(store.seal_broadcast(id, at(0)).await.unwrap(), count as u64);
    claim_all(store, 0).await
}

async fn check_personal(store: &dyn Store, chunks: &[Chunk], content: impl Fn(usize) -> Content) {
    for chunk in chunks {
        for delivery in &chunk.deliveries {
            let expect = content(delivery.recipient.parse().unwrap());
            assert_eq!(chunk.content_of(delivery), Some(&expect));
            assert_eq!(
                find(store, chunk.notification_id(delivery.index)).await.content.unwrap(),
                expect
            );
        }
    }
}

pub(super) async fn recipients_with_contents_of_their_own_are_sent_those(store: &dyn Store) {
    let own = |number: usize| Content {
        payload: number.to_string().into(),
        options: Bytes::from_static(b"{}"),
        fallback: None,
    };
    check_personal(store, &personal(store, 12, own).await, own).await;
    // Equal ones, which need not be the broadcast's.
    let equal = |_| Content { payload: Bytes::from_static(b"1"), ..Content::default() };
    let chunks = personal(store, 3, equal).await;
    check_personal(store, &chunks, equal).await;
    let broadcast = chunks[0].envelope.broadcast;
    let listed =
        store.reader().list(Filter { broadcast, ..Filter::default() }, None, 9).await.unwrap();
    assert!(listed.items.iter().all(|history| history.content == Some(equal(0))));
}

pub(super) async fn large_contents_of_recipients_are_cut_into_batches(store: &dyn Store) {
    let large = |number: usize| Content {
        payload: vec![u8::try_from(number).unwrap(); limits::PAYLOAD_BYTES].into(),
        ..Content::default()
    };
    let chunks = personal(store, 9, large).await;
    check_personal(store, &chunks, large).await;
    assert_eq!(chunks.iter().map(|chunk| chunk.deliveries.len()).sum::<usize>(), 9);
}

pub(super) async fn a_large_content_is_in_memory_once_and_counted_for_every_lane(
    store: &dyn Store,
) {
    const LANES: usize = 40;
    let payload: Bytes = vec![b'1'; limits::PAYLOAD_BYTES].into();
    let content = Content { payload, ..Content::default() };
    let draft = BroadcastDraft { content: content.clone(), ..BroadcastShape::default().draft() };
    let opened = store.open_broadcast(draft, at(0)).await.unwrap();
    let BroadcastOpened::Opened(id) = opened else { panic!("{opened:?}") };
    let group = |lane: usize| RecipientGroup {
        recipients: vec!["somebody".into()],
        ..RecipientGroup::new(format!("lane {lane}").into())
    };
    store.add_recipients(id, (0..LANES).map(group).collect(), at(0)).await.unwrap();
    store.seal_broadcast(id, at(0)).await.unwrap();
    let mut claimed = 0;
    while claimed < LANES {
        let chunks = claim_all(store, 0).await;
        let bytes: usize = chunks.iter().map(Chunk::bytes).sum();
        assert!(bytes > 0 && bytes <= limits::CLAIM_BYTES, "{bytes}");
        let sent = |chunk: &Chunk| chunk.content_of(&chunk.deliveries[0]).cloned().unwrap();
        assert!(chunks.iter().all(|chunk| sent(chunk) == content));
        let place = |chunk: &Chunk| sent(chunk).payload.as_ptr();
        assert!(chunks.iter().all(|chunk| place(chunk) == place(&chunks[0])), "in memory once");
        claimed += chunks.len();
    }
}

pub(super) async fn an_abandoned_broadcast_never_was(store: &dyn Store) {
    let id = BroadcastShape::default().open(store, 10).await;
    store.abandon_broadcast(id).await.unwrap();
    assert_eq!(store.abandon_broadcast(id).await, Err(StoreError::NoOpenBroadcast(id)));
    assert_eq!(store.seal_broadcast(id, at(0)).await, Err(StoreError::NoOpenBroadcast(id)));
    let next = BroadcastShape::default().open(store, 1).await;
    assert_ne!(next, id, "numbers are not used again");
    store.seal_broadcast(next, at(0)).await.unwrap();
    assert_eq!(store.reader().totals().await.unwrap().accepted, 1);
}

/// Opens a broadcast of `draft` to so many recipients.
async fn open(store: &dyn Store, draft: BroadcastDraft, recipients: usize) -> BroadcastId {
    let opened = store.open_broadcast(draft, at(0)).await.unwrap();
    let BroadcastOpened::Opened(id) = opened else { panic!("{opened:?}") };
    store.add_recipients(id, groups(recipients), at(0)).await.unwrap();
    id
}

/// Sealed broadcasts of a tenant, each a second after the one before: the odd ones by another channel, the last one with a due
/// time and an expiry. Among them are an open one, one that is abandoned, and one of another tenant.
async fn sealed_and_others(store: &dyn Store) -> Vec<ListedBroadcast> {
    let mut sealed = Vec::new();
    for number in 0..7 {
        let channel = name(if number % 2 == 1 { "other" } else { "channel" });
        let (due_at, expires_at) =
            if number == 6 { (at(7), Some(at(50_000))) } else { (at(0), None) };
        let shape = BroadcastShape::default().draft();
        let draft = BroadcastDraft { channel: channel.clone(), due_at, expires_at, ..shape };
        let recipients = usize::try_from(number).unwrap() + 1;
        let id = open(store, draft, recipients).await;
        let accepted_at = at(number * 1_000);
        store.seal_broadcast(id, accepted_at).await.unwrap();
        let (priority, guarantee) = (Priority::Bulk, Guarantee::AtLeastOnce);
        let accepted = recipients as u64;
        sealed.push(ListedBroadcast {
            id,
            channel,
            priority,
            guarantee,
            accepted_at,
            due_at,
            expires_at,
            accepted,
            labels: Labels::default(),
        });
        match number {
            1 => _ = BroadcastShape::default().open(store, 2).await,
            3 => {
                let id = BroadcastShape::default().open(store, 2).await;
                store.abandon_broadcast(id).await.unwrap();
            }
            4 => {
                let shape = BroadcastShape::default().draft();
                let id = open(store, BroadcastDraft { tenant: name("other"), ..shape }, 9).await;
                store.seal_broadcast(id, at(4_000)).await.unwrap();
            }
            _ => {}
        }
    }
    sealed
}

/// All broadcasts that `filter` matches, in pages of so many.
async fn list_all(
    store: &dyn Store,
    filter: &BroadcastFilter,
    items: usize,
) -> Vec<ListedBroadcast> {
    let (mut listed, mut after) = (Vec::new(), None);
    loop {
        let page = store.reader().broadcasts(filter.clone(), after, items).await.unwrap();
        assert!(page.items.len() <= items);
        listed.extend(page.items);
        after = page.next;
        if after.is_none() {
            return listed;
        }
    }
}

pub(super) async fn sealed_broadcasts_of_a_tenant_are_listed(store: &dyn Store) {
    let sealed = sealed_and_others(store).await;
    let filter = BroadcastFilter::of(name("tenant"));
    for items in [1, 2, 3, 7, 100] {
        assert_eq!(list_all(store, &filter, items).await, sealed, "{items} on a page");
        let newest = BroadcastFilter { order: ListOrder::NewestFirst, ..filter.clone() };
        let mut newest = list_all(store, &newest, items).await;
        newest.reverse();
        assert_eq!(newest, sealed, "{items} on a page");
    }
    let whole = store.reader().broadcasts(filter.clone(), None, 7).await.unwrap();
    assert_eq!((whole.items.len(), whole.next), (7, None), "the end is known at once");
    let beyond = Some(BroadcastId(u64::MAX));
    let behind = store.reader().broadcasts(filter, beyond, 7).await.unwrap();
    assert_eq!((behind.items, behind.next), (vec![], None));
    let other = list_all(store, &BroadcastFilter::of(name("other")), 2).await;
    assert_eq!(other.iter().map(|it| it.accepted).collect::<Vec<_>>(), [9]);
    assert_eq!(list_all(store, &BroadcastFilter::of(name("unknown")), 2).await, []);
}

pub(super) async fn a_list_of_broadcasts_is_filtered(store: &dyn Store) {
    let sealed = sealed_and_others(store).await;
    let all = BroadcastFilter::of(name("tenant"));
    let of = |wanted: &[usize]| -> Vec<ListedBroadcast> {
        wanted.iter().map(|number| sealed[*number].clone()).collect()
    };
    let channel = |channel| BroadcastFilter { channel: Some(name(channel)), ..all.clone() };
    let within = |since: Option<i64>, until: Option<i64>| BroadcastFilter {
        since: since.map(at),
        until: until.map(at),
        ..all.clone()
    };
    let (since, until) = (Some(at(1_000)), Some(at(5_000)));
    for (filter, wanted) in [
        (channel("channel"), of(&[0, 2, 4, 6])),
        (channel("other"), of(&[1, 3, 5])),
        (channel("unused"), vec![]),
        (within(Some(1_000), Some(3_000)), of(&[1, 2])),
        (within(Some(4_001), None), of(&[5, 6])),
        (within(None, Some(1_000)), of(&[0])),
        (within(Some(5_000), Some(1_000)), vec![]),
        (BroadcastFilter { since, until, ..channel("other") }, of(&[1, 3])),
    ] {
        for items in [1, 2, 100] {
            assert_eq!(list_all(store, &filter, items).await, wanted, "{filter:?}");
            let newest = BroadcastFilter { order: ListOrder::NewestFirst, ..filter.clone() };
            let mut newest = list_all(store, &newest, items).await;
            newest.reverse();
            assert_eq!(newest, wanted, "{filter:?}");
        }
    }
}

pub(super) async fn a_key_belongs_to_a_broadcast_from_sealing_on(store: &dyn Store) {
    let shape = BroadcastShape { key: Some(("key", 1)) };
    let first = shape.open(store, 1).await;
    let second = shape.open(store, 1).await;
    store.seal_broadcast(first, at(0)).await.unwrap();
    let too_late = store.seal_broadcast(second, at(0)).await;
    assert_eq!(too_late, Err(StoreError::KeyReused { index: 0 }));
    store.abandon_broadcast(second).await.unwrap();
    let replayed = store.open_broadcast(shape.draft(), at(0)).await.unwrap();
    assert_eq!(replayed, BroadcastOpened::Replayed(first));
    let late = |key| {
        let draft = BroadcastShape { key: Some((key, 1)) }.draft();
        let bound = PassedBound::SendAt(at(1));
        let idempotency = draft.idempotency.clone();
        let idempotency = idempotency.map(|it| Idempotency { passed: Some(bound), ..it });
        (BroadcastDraft { idempotency, ..draft }, bound)
    };
    let replayed = store.open_broadcast(late("key").0, at(9)).await.unwrap();
    assert_eq!(replayed, BroadcastOpened::Replayed(first), "too late for anything but this");
    let (unused, bound) = late("unused");
    let refused = store.open_broadcast(unused, at(9)).await;
    assert_eq!(refused, Err(StoreError::BoundPassed { index: 0, bound, now: at(9) }));
    let other = BroadcastShape { key: Some(("key", 2)) }.draft();
    let refused = store.open_broadcast(other, at(0)).await;
    assert_eq!(refused, Err(StoreError::KeyReused { index: 0 }));
    let single = Shape { key: Some(("key", 1)), ..Shape::default() }.draft("a");
    let refused = store.ingest(vec![single], at(0)).await;
    assert_eq!(refused, Err(StoreError::KeyReused { index: 0 }));
}
