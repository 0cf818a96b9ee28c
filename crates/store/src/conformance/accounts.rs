//! The accounts of two tenants: whatever is done to notifications of one of them is in its account, and not in that of the other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use notification::{
    Alternative, Bytes, Chunk, Disposition, Fallback, Guarantee, NotificationId, Settlement, State,
};

use super::fallbacks::refusal;
use super::resolving::{IN_DOUBT, end_all};
use super::support::{
    BroadcastShape, DELIVERED, LEASE, Shape, at, cancel_scope, claim_all, groups, kept_for_a_day,
    name, part, prune_all, settle_all, settle_one, suppression, tenant_totals, the_books_balance,
};
use crate::{
    BroadcastDraft, BroadcastOpened, CancelTarget, Erased, Mark, MarkAnswer, Requeued, Resolution,
    Resolved, Settled, Store,
};

/// Two tenants; the destination is the same, so that their lanes differ by the tenant alone.
const TENANTS: [&str; 2] = ["news", "shop"];

/// Where the notifications of a tenant stand, as words: those of which there are some.
async fn account(store: &dyn Store, tenant: &str) -> String {
    let account = tenant_totals(store, tenant).await;
    assert!(account.is_balanced(), "{account:?}");
    let standing = account.standing().into_iter().filter(|(_, count)| *count > 0);
    standing.map(|(state, count)| format!("{state} {count}")).collect::<Vec<_>>().join(", ")
}

/// The accounts of both tenants are these, counted anew too.
async fn accounts_are(store: &dyn Store, news: &str, shop: &str) {
    assert_eq!((&*account(store, "news").await, &*account(store, "shop").await), (news, shop));
    the_books_balance(store).await;
}

fn shape(tenant: &'static str) -> Shape {
    Shape { tenant, ..Shape::default() }
}

/// Claims everything at `millis`; the chunks of each tenant.
async fn claim(store: &dyn Store, millis: i64) -> BTreeMap<String, Vec<Chunk>> {
    let mut claimed = BTreeMap::<String, Vec<Chunk>>::new();
    for chunk in claim_all(store, millis).await {
        claimed.entry(chunk.envelope.lane.tenant.to_string()).or_default().push(chunk);
    }
    claimed
}

/// The one chunk of each tenant.
async fn claim_two(store: &dyn Store, millis: i64) -> [Chunk; 2] {
    let mut claimed = claim(store, millis).await;
    TENANTS.map(|tenant| {
        let mut chunks = claimed.remove(tenant).expect("it has something due");
        assert_eq!(chunks.len(), 1, "{chunks:?}");
        chunks.remove(0)
    })
}

async fn requeue(
    store: &dyn Store,
    tenant: &str,
    state: State,
    ids: &[NotificationId],
) -> Vec<Requeued> {
    let states = BTreeSet::from([state]);
    store.requeue(ids.to_vec(), states, name(tenant), at(9)).await.unwrap()
}

/// A sealed broadcast of `tenant` with so many groups of three recipients each.
async fn broadcast(store: &dyn Store, tenant: &str, batches: usize) -> notification::BroadcastId {
    let draft = BroadcastDraft {
        tenant: name(tenant),
        expires_at: Some(at(500)),
        ..BroadcastShape::default().draft()
    };
    let opened = store.open_broadcast(draft, at(0)).await.unwrap();
    let BroadcastOpened::Opened(id) = opened else { panic!("{opened:?}") };
    for _ in 0..batches {
        store.add_recipients(id, groups(3), at(0)).await.unwrap();
    }
    let before = account(store, tenant).await;
    store.seal_broadcast(id, at(1)).await.unwrap();
    assert_ne!(account(store, tenant).await, before, "counted when it is sealed");
    id
}

pub(super) async fn outcomes_are_in_the_account_of_their_tenant(store: &dyn Store) {
    shape("news").ingest(store, 3).await;
    shape("shop").ingest(store, 5).await;
    accounts_are(store, "pending 3", "pending 5").await;
    let [news, shop] = claim_two(store, 0).await;
    let ended = |chunk, index, state| part(chunk, &[index], Disposition::Ended(state));
    // In one call: both are settled in one transaction.
    let settlements = vec![
        ended(&news, 0, State::Delivered),
        ended(&shop, 0, State::Refused),
        ended(&shop, 1, State::Dead),
        part(&news, &[1], Disposition::Retry { at: at(50) }),
        part(&shop, &[2], Disposition::TooLate),
        part(&shop, &[3], Disposition::HandedBack { at: at(50) }),
    ];
    let answers = store.settle(settlements).await.unwrap();
    assert!(answers.iter().all(|it| matches!(it, Settled::Applied { .. })), "{answers:?}");
    accounts_are(store, "delivered 1, pending 2", "refused 1, expired 1, dead 1, pending 2").await;
    for chunk in claim_all(store, 50).await {
        settle_all(store, &chunk, DELIVERED).await;
    }
    accounts_are(
        store,
        "delivered 2, pending 1",
        "delivered 1, refused 1, expired 1, dead 1, pending 1",
    )
    .await;
}

pub(super) async fn what_ends_without_an_attempt_is_counted_for_its_tenant(store: &dyn Store) {
    store.suppress(vec![suppression("1", "")], at(0)).await.unwrap();
    let once = |tenant| Shape { guarantee: Guarantee::AtMostOnce, ..shape(tenant) };
    once("news").ingest(store, 4).await;
    once("shop").ingest(store, 3).await;
    let brief = Shape { destination: "brief", expires_at: Some(20), due_at: 10, ..shape("shop") };
    brief.ingest(store, 2).await;
    let [news, shop] = claim_two(store, 0).await;
    accounts_are(store, "suppressed 1, pending 3", "suppressed 1, pending 4").await;
    // Of one tenant two have begun when the lease ends, of the other one.
    for (chunk, through) in [(&news, 2), (&shop, 0)] {
        let mark = Mark { chunk: chunk.id, epoch: chunk.epoch, through };
        assert_eq!(store.begin(vec![mark]).await.unwrap(), [MarkAnswer::Granted]);
    }
    let lease_ended = i64::try_from(LEASE.as_millis()).unwrap();
    claim_two(store, lease_ended).await;
    let expect =
        ("suppressed 1, in_doubt 2, pending 1", "expired 2, suppressed 1, in_doubt 1, pending 1");
    accounts_are(store, expect.0, expect.1).await;
}

pub(super) async fn operators_change_the_account_of_the_tenant_that_they_name(store: &dyn Store) {
    let once = |tenant| Shape { guarantee: Guarantee::AtMostOnce, ..shape(tenant) };
    let news = once("news").ingest(store, 3).await;
    let shop = once("shop").ingest(store, 2).await;
    end_all(store, IN_DOUBT).await;
    let resolve = async |tenant: &str, state, id: NotificationId| {
        let resolution = Resolution::new(state, "").expect("a resolution");
        store.resolve(vec![id], resolution, name(tenant), at(9)).await.unwrap()
    };
    assert_eq!(resolve("news", State::Delivered, news[0]).await, [Resolved::Resolved]);
    assert_eq!(resolve("shop", State::Dead, shop[0]).await, [Resolved::Resolved]);
    assert_eq!(resolve("shop", State::Dead, news[1]).await, [Resolved::Unknown]);
    accounts_are(store, "delivered 1, in_doubt 2", "in_doubt 1, dead 1").await;
    assert_eq!(requeue(store, "news", State::InDoubt, &news[1..2]).await, [Requeued::Requeued]);
    assert_eq!(requeue(store, "shop", State::Dead, &shop[..1]).await, [Requeued::Requeued]);
    accounts_are(store, "delivered 1, in_doubt 1, pending 1", "in_doubt 1, pending 1").await;
    let target = CancelTarget::Notification(shop[0]);
    assert_eq!(store.cancel(target, name("news"), at(9)).await.unwrap(), None);
    assert!(store.cancel(target, name("shop"), at(9)).await.unwrap().is_some());
    accounts_are(store, "delivered 1, in_doubt 1, pending 1", "cancelled 1, in_doubt 1").await;
    assert_eq!(requeue(store, "shop", State::Cancelled, &shop[..1]).await, [Requeued::Requeued]);
    assert_eq!(cancel_scope(store, "news", "channel/channel").await.cancelled, 1);
    accounts_are(store, "delivered 1, cancelled 1, in_doubt 1", "in_doubt 1, pending 1").await;
}

pub(super) async fn broadcasts_are_in_the_account_of_their_tenant(store: &dyn Store) {
    store.suppress(vec![suppression("2", "")], at(0)).await.unwrap();
    let open = BroadcastDraft { tenant: name("news"), ..BroadcastShape::default().draft() };
    let opened = store.open_broadcast(open, at(0)).await.unwrap();
    let BroadcastOpened::Opened(open) = opened else { panic!("{opened:?}") };
    store.add_recipients(open, groups(7), at(0)).await.unwrap();
    broadcast(store, "shop", 1).await;
    let id = broadcast(store, "news", 1).await;
    accounts_are(store, "pending 3", "pending 3").await;
    store.abandon_broadcast(open).await.unwrap();
    let target = CancelTarget::Broadcast(id);
    assert_eq!(store.cancel(target, name("shop"), at(2)).await.unwrap(), None);
    assert!(store.cancel(target, name("news"), at(2)).await.unwrap().is_some());
    accounts_are(store, "cancelled 3", "pending 3").await;
    broadcast(store, "news", 1).await;
    let [_news, shop] = claim_two(store, 5).await;
    settle_all(store, &shop, DELIVERED).await;
    accounts_are(store, "cancelled 3, suppressed 1, pending 2", "delivered 2, suppressed 1").await;
    // The lease has ended, and so has the time of the broadcast.
    assert_eq!(claim_all(store, 100_000).await, []);
    accounts_are(store, "expired 2, cancelled 3, suppressed 1", "delivered 2, suppressed 1").await;
}

pub(super) async fn a_fallback_is_in_the_account_of_its_tenant(store: &dyn Store) {
    for tenant in TENANTS {
        let mut draft = shape(tenant).draft("a");
        let next = Alternative {
            channel: name("other"),
            destination: "there".into(),
            recipient: "b".into(),
            payload: Bytes::from_static(b"[1]"),
            options: Bytes::from_static(b"{}"),
        };
        draft.content.fallback = Some(Arc::new(Fallback { of: None, next: vec![next] }));
        store.ingest(vec![draft], at(0)).await.unwrap();
    }
    let [news, shop] = claim_two(store, 0).await;
    store.settle(vec![refusal(&shop)]).await.unwrap();
    accounts_are(store, "pending 1", "refused 1, pending 1").await;
    // Both fallbacks end when they are claimed, for their recipient is suppressed.
    let elsewhere = crate::Suppression { channel: name("other"), ..suppression("b", "") };
    store.suppress(vec![elsewhere], at(8)).await.unwrap();
    store.settle(vec![refusal(&news)]).await.unwrap();
    assert_eq!(claim_all(store, 9).await, []);
    accounts_are(store, "refused 1, suppressed 1", "refused 1, suppressed 1").await;
}

pub(super) async fn what_is_erased_or_gone_stays_in_the_account_of_its_tenant(store: &dyn Store) {
    let news = shape("news").ingest(store, 3).await;
    shape("shop").ingest(store, 2).await;
    let [of_news, of_shop] = claim_two(store, 0).await;
    settle_all(store, &of_news, Disposition::Ended(State::Dead)).await;
    settle_all(store, &of_shop, DELIVERED).await;
    // One that is young, for the last line of the log is kept.
    shape("shop").ingest(store, 1).await;
    let young = claim_all(store, 0).await.remove(0);
    let later = at(0).plus(Duration::from_hours(24 * 400));
    let delivered = Settlement { at: later, ..part(&young, &[0], DELIVERED) };
    assert_eq!(settle_one(store, delivered).await, Settled::Applied { remaining: 0 });
    let erased = store.erase(news[..1].to_vec(), name("news")).await.unwrap();
    assert_eq!(erased, [Erased::Erased]);
    accounts_are(store, "dead 3", "delivered 3").await;
    let gone = prune_all(store, &kept_for_a_day(), later).await;
    assert_eq!(gone.outcomes, 5);
    assert_eq!(store.reader().find(news[1]).await.unwrap(), None);
    accounts_are(store, "dead 3", "delivered 3").await;
}

/// Between two slices of broadcasts of both tenants, of four batches each.
pub(super) async fn what_waits_is_in_the_account_of_its_tenant(
    store: &dyn Store,
    next: &impl AsyncFn() -> bool,
) {
    let shop = broadcast(store, "shop", 4).await;
    let news = broadcast(store, "news", 4).await;
    accounts_are(store, "pending 12", "pending 12").await;
    let waiting = crate::Filter { broadcast: Some(shop), ..crate::Filter::default() };
    let waiting = store.reader().list(waiting, None, 100).await.unwrap().items;
    let last = CancelTarget::Notification(waiting.last().expect("twelve").id);
    assert!(store.cancel(last, name("shop"), at(2)).await.unwrap().is_some());
    accounts_are(store, "pending 12", "cancelled 1, pending 11").await;
    assert!(next().await);
    assert!(
        store.cancel(CancelTarget::Broadcast(news), name("news"), at(2)).await.unwrap().is_some()
    );
    accounts_are(store, "cancelled 12", "cancelled 1, pending 11").await;
    while next().await {
        accounts_are(store, "cancelled 12", "cancelled 1, pending 11").await;
    }
    broadcast(store, "shop", 4).await;
    broadcast(store, "news", 4).await;
    assert_eq!(cancel_scope(store, "shop", "channel/channel").await.cancelled, 11 + 12);
    accounts_are(store, "cancelled 12, pending 12", "cancelled 24").await;
}
