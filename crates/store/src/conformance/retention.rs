//! Retention: parts that have outlived their lifetimes are gone, and counted.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use notification::{
    BroadcastId, Chunk, Disposition, Guarantee, NotificationId, Settlement, State, Timestamp,
};

use super::resolving::{IN_DOUBT, end_all};
use super::support::{
    BroadcastShape, DELIVERED, Shape, at, claim_all, find, groups_in_turn, indexes, part,
    prune_all, settle_one, suppression, whole_log,
};
use crate::{
    Admission, BroadcastDraft, BroadcastOpened, EventPosition, Filter, Lifetimes, Removed,
    Requeued, Resolution, Resolved, Retention, Settled, Store, TenantRetention,
};

const DAY: Duration = Duration::from_hours(24);

fn lifetimes(content: u32, recipient: u32, outcome: u32) -> Lifetimes {
    let days = |days| Some(DAY * days);
    Lifetimes { content: days(content), recipient: days(recipient), outcome: days(outcome) }
}

/// Contents for 7 days, recipients for 30, outcomes for 90; of tenant `brief` 1, 2 and 3; keys for 10.
fn retention() -> Retention {
    let of = |lifetimes| TenantRetention { lifetimes, by_state: BTreeMap::new() };
    let dead = BTreeMap::from([(State::Dead, lifetimes(30, 30, 90))]);
    Retention {
        default: TenantRetention { by_state: dead, ..of(lifetimes(7, 30, 90)) },
        tenants: BTreeMap::from([(super::name("brief"), of(lifetimes(1, 2, 3)))]),
        idempotency_keys: Some(DAY * 10),
        suppression_events: Some(DAY * 90),
        outbox_rejects: Some(DAY * 30),
        acts: None,
    }
}

/// Some time into a day: walks are behind by a part of it.
fn day(day: u32) -> Timestamp {
    at(0).plus(DAY * day + Duration::from_hours(2))
}

async fn prune(store: &dyn Store, now: Timestamp) -> Removed {
    prune_all(store, &retention(), now).await
}

/// Settles all deliveries of `chunk` alike, at `millis`.
async fn settle_all(store: &dyn Store, chunk: &Chunk, disposition: Disposition, millis: i64) {
    let settlement = part(chunk, &indexes(chunk), disposition);
    let settled = settle_one(store, Settlement { at: at(millis), ..settlement }).await;
    assert_eq!(settled, Settled::Applied { remaining: 0 });
}

/// Delivers all that is due at the start, and one more notification afterwards, which is not old.
async fn deliver_all(store: &dyn Store, young: Timestamp) {
    for chunk in claim_all(store, 0).await {
        settle_all(store, &chunk, DELIVERED, 1).await;
    }
    let draft = Shape::default().draft("young");
    store.ingest(vec![draft], young).await.unwrap();
    for chunk in claim_all(store, young.millis()).await {
        settle_all(store, &chunk, DELIVERED, young.millis()).await;
    }
}

pub(super) async fn parts_go_one_after_the_other(store: &dyn Store) {
    let ids = Shape::default().ingest(store, 3).await;
    deliver_all(store, day(300)).await;
    assert_eq!(prune(store, day(6)).await, Removed::default());
    let totals = store.reader().totals().await.unwrap();
    assert_eq!(prune(store, day(7)).await, Removed { contents: 3, ..Removed::default() });
    let history = find(store, ids[1]).await;
    assert_eq!((history.content, history.state), (None, State::Delivered));
    assert_eq!(history.recipient.as_deref(), Some("1"));
    assert_eq!(prune(store, day(7)).await, Removed::default(), "once");
    assert_eq!(prune(store, day(30)).await, Removed { recipients: 3, ..Removed::default() });
    let history = find(store, ids[2]).await;
    assert_eq!((history.content, history.recipient), (None, None));
    assert_eq!((history.state, history.attempts.len()), (State::Delivered, 1));
    assert_eq!(whole_log(store, 100).await.len(), 4);
    assert_eq!(prune(store, day(90)).await, Removed { outcomes: 3, ..Removed::default() });
    assert_eq!(store.reader().find(ids[0]).await.unwrap(), None);
    assert_eq!(whole_log(store, 100).await.len(), 1);
    let listed = store.reader().list(Filter::default(), None, 9).await.unwrap();
    assert_eq!(listed.items.len(), 1);
    assert_eq!(store.reader().totals().await.unwrap(), totals, "the account is as it was");
}

pub(super) async fn what_is_long_over_goes_at_once(store: &dyn Store) {
    Shape::default().ingest(store, 5).await;
    deliver_all(store, day(300)).await;
    let all = Removed { contents: 5, recipients: 5, outcomes: 5, ..Removed::default() };
    assert_eq!(prune(store, day(200)).await, all);
}

pub(super) async fn what_is_pending_stays_until_it_has_ended(store: &dyn Store) {
    let later = day(100).millis();
    let scheduled = Shape { due_at: later, ..Shape::default() }.ingest(store, 2).await;
    deliver_all(store, day(1)).await;
    prune(store, day(99)).await;
    assert_eq!(find(store, scheduled[0]).await.state, State::Pending);
    assert!(find(store, scheduled[0]).await.content.is_some());
    for chunk in claim_all(store, later).await {
        settle_all(store, &chunk, DELIVERED, later).await;
    }
    assert_eq!(prune(store, day(106)).await.contents, 0, "from its end on, it is not over");
    assert_eq!(prune(store, day(108)).await.contents, 2);
    assert_eq!(find(store, scheduled[1]).await.content, None);
}

pub(super) async fn lifetimes_are_of_tenant_and_state(store: &dyn Store) {
    let brief = Shape { tenant: "brief", ..Shape::default() }.ingest(store, 1).await;
    let dead = Shape { destination: "dead", ..Shape::default() }.ingest(store, 1).await;
    let usual = Shape::default().ingest(store, 1).await;
    for chunk in claim_all(store, 0).await {
        let is_dead = &*chunk.envelope.lane.destination == "dead";
        let end = if is_dead { Disposition::Ended(State::Dead) } else { DELIVERED };
        settle_all(store, &chunk, end, 1).await;
    }
    let has_content = async |ids: &[NotificationId]| {
        let found = store.reader().find(ids[0]).await.unwrap();
        found.map(|history| history.content.is_some())
    };
    prune(store, day(1)).await;
    assert_eq!(has_content(&brief).await, Some(false));
    assert_eq!(has_content(&usual).await, Some(true));
    prune(store, day(8)).await;
    assert_eq!(has_content(&brief).await, None, "its outcome is gone as well");
    assert_eq!(has_content(&usual).await, Some(false));
    assert_eq!(has_content(&dead).await, Some(true), "a dead one may be sent again");
    let states = BTreeSet::from([State::Dead]);
    let tenant = super::name("tenant");
    prune(store, day(31)).await;
    let answers = store.requeue(dead.clone(), states, tenant, day(31)).await.unwrap();
    assert_eq!(answers, [Requeued::ContentRemoved]);
    assert_eq!(find(store, dead[0]).await.state, State::Dead);
}

pub(super) async fn a_broadcast_counts_what_is_gone_until_all_of_it_is(store: &dyn Store) {
    let id: BroadcastId = BroadcastShape::default().open(store, 2_500).await;
    store.seal_broadcast(id, at(0)).await.unwrap();
    let chunks = claim_all(store, 0).await;
    let (last, first) = chunks.split_last().unwrap();
    for chunk in first {
        settle_all(store, chunk, DELIVERED, 1).await;
    }
    // The last ones end fifty days later.
    let count = last.deliveries.len() as u64;
    settle_all(store, last, DELIVERED, day(50).millis()).await;
    deliver_all(store, day(300)).await;
    let gone = prune(store, day(95)).await;
    assert_eq!(gone.outcomes, 2_500 - count);
    let status = store.reader().broadcast(id).await.unwrap().unwrap();
    assert_eq!((status.account.accepted, status.account.delivered), (2_500, 2_500));
    let left = last.notification_id(last.deliveries[0].index);
    assert_eq!(find(store, left).await.content, None, "that of the broadcast");
    assert_eq!(prune(store, day(150)).await.outcomes, count);
    assert_eq!(store.reader().broadcast(id).await.unwrap(), None);
}

pub(super) async fn what_was_resolved_by_hand_is_counted_once_when_it_is_gone(store: &dyn Store) {
    let draft =
        BroadcastDraft { guarantee: Guarantee::AtMostOnce, ..BroadcastShape::default().draft() };
    let opened = store.open_broadcast(draft, at(0)).await.unwrap();
    let BroadcastOpened::Opened(id) = opened else { panic!("{opened:?}") };
    store.add_recipients(id, groups_in_turn(2), at(0)).await.unwrap();
    store.seal_broadcast(id, at(0)).await.unwrap();
    let chunks = end_all(store, IN_DOUBT).await;
    let ids: Vec<NotificationId> = chunks.iter().map(|it| it.notification_id(0)).collect();
    prune(store, day(40)).await;
    let resolve = async |id, day: Timestamp| {
        let resolution = Resolution::new(State::Delivered, "").unwrap();
        store.resolve(vec![id], resolution, super::name("tenant"), day).await.unwrap()
    };
    assert_eq!(find(store, ids[0]).await.recipient, None);
    assert_eq!(resolve(ids[0], day(40)).await, [Resolved::Resolved], "nothing is left to send");
    assert_eq!(resolve(ids[1], day(50)).await, [Resolved::Resolved]);
    assert_eq!(prune(store, day(120)).await.outcomes, 0, "from its end on, it is not over");
    assert_eq!(prune(store, day(135)).await.outcomes, 1);
    assert_eq!(resolve(ids[0], day(135)).await, [Resolved::Unknown]);
    let account = store.reader().broadcast(id).await.unwrap().unwrap().account;
    assert_eq!((account.accepted, account.delivered, account.in_doubt), (2, 2, 0));
}

pub(super) async fn a_key_is_kept_for_its_lifetime_and_as_long_as_the_content(store: &dyn Store) {
    let shape = Shape { key: Some(("key", 1)), ..Shape::default() };
    let first = shape.ingest(store, 1).await;
    let later = day(40).millis();
    let scheduled = Shape { key: Some(("later", 1)), due_at: later, ..Shape::default() };
    scheduled.ingest(store, 1).await;
    deliver_all(store, day(300)).await;
    let accept =
        async |shape: &Shape, now| store.ingest(shape.drafts(1), now).await.unwrap().remove(0);
    assert_eq!(prune(store, day(9)).await.idempotency_keys, 0);
    assert_eq!(accept(&shape, day(9)).await, Admission::Replayed(first[0]));
    assert_eq!(prune(store, day(11)).await.idempotency_keys, 1);
    let again = accept(&shape, day(12)).await;
    assert!(matches!(again, Admission::Accepted(id) if id != first[0]), "{again:?}");
    let replayed = accept(&scheduled, day(39)).await;
    assert!(matches!(replayed, Admission::Replayed(_)), "it waits: {replayed:?}");
}

pub(super) async fn many_batches_take_many_steps(store: &dyn Store) {
    let due: Vec<_> =
        (0..300).map(|due_at| Shape { due_at, ..Shape::default() }.draft("recipient")).collect();
    store.ingest(due, at(0)).await.unwrap();
    for chunk in claim_all(store, 2_000).await {
        settle_all(store, &chunk, DELIVERED, 2_000).await;
    }
    deliver_all(store, day(300)).await;
    let all = prune(store, day(91)).await;
    assert_eq!((all.contents, all.recipients, all.outcomes), (300, 300, 300));
}

pub(super) async fn old_changes_of_the_list_go_but_the_last(store: &dyn Store) {
    let suppress = async |who: &str, now| {
        store.suppress(vec![suppression(who, "")], now).await.unwrap();
    };
    suppress("1", day(0)).await;
    suppress("2", day(1)).await;
    assert_eq!(prune(store, day(200)).await.suppression_events, 1);
    let page = store.reader().suppression_events(EventPosition::default(), 9).await.unwrap();
    assert_eq!(page.events.len(), 1);
    suppress("3", day(201)).await;
    let next = store.reader().suppression_events(page.next, 9).await.unwrap();
    assert_eq!(next.events.len(), 1, "a reader that was at the end misses nothing");
}
