//! Reads: lists, totals, lanes and the log.

use std::collections::BTreeSet;

use notification::{BatchId, Disposition, NotificationId, State};

use super::support::{
    BroadcastShape, DELIVERED, Shape, at, claim_all, claim_one, claim_request, find, is_part_of,
    list_in_pages, name, part, settle_all, settle_one, whole_log,
};
use crate::{
    Admission, CancelTarget, ClaimRequest, Filter, LaneEvidence, LaneList, LaneStatus, ListOrder,
    LogPosition, Store,
};

pub(super) async fn strangers_are_not_found(store: &dyn Store) {
    let id = Shape::default().ingest(store, 1).await[0];
    let (time, store_id, batch) = (id.accepted_at(), id.store_id(), id.batch());
    for stranger in [
        NotificationId::new(at(1), store_id, batch, 0),
        NotificationId::new(time, store_id ^ 1, batch, 0),
        NotificationId::new(time, store_id, BatchId(batch.0 + 1_000), 0),
        NotificationId::new(time, store_id, batch, 1),
    ] {
        assert_eq!(store.reader().find(stranger).await.unwrap(), None);
    }
    assert_eq!(find(store, id).await.id, id);
}

pub(super) async fn a_list_is_paged_and_filtered(store: &dyn Store) {
    let mine = Shape::default().ingest(store, 5).await;
    let other = Shape { tenant: "other", ..Shape::default() }.ingest(store, 2).await;
    let broadcast = BroadcastShape::default().open(store, 3).await;
    store.seal_broadcast(broadcast, at(0)).await.unwrap();
    let first = store.claim(ClaimRequest { items: 1, ..claim_request(0) }).await.unwrap();
    settle_all(store, &first.chunks[0], DELIVERED).await;
    let all = async |filter: Filter| {
        let (mut ids, mut after) = (Vec::new(), None);
        loop {
            let page = store.reader().list(filter.clone(), after, 2).await.unwrap();
            assert!(page.items.len() <= 2);
            ids.extend(page.items.iter().map(|history| history.id));
            after = page.next;
            if after.is_none() {
                return ids;
            }
        }
    };
    let everything = all(Filter::default()).await;
    assert_eq!(everything.len(), 10);
    assert_eq!(everything[..7], [mine.clone(), other.clone()].concat());
    let tenant = Some(name("other"));
    assert_eq!(all(Filter { tenant, ..Filter::default() }).await, other);
    let channel = Some(name("unused"));
    assert_eq!(all(Filter { channel, ..Filter::default() }).await, []);
    let filter = Filter { broadcast: Some(broadcast), ..Filter::default() };
    assert_eq!(all(filter).await, everything[7..]);
    let delivered = first.chunks[0].deliveries.len();
    let states = [State::Delivered].into();
    assert_eq!(all(Filter { states, ..Filter::default() }).await.len(), delivered);
    let states = [State::Delivered, State::Pending, State::Claimed].into();
    assert_eq!(all(Filter { states, ..Filter::default() }).await.len(), everything.len());
}

/// All that `filter` matches, page by page.
pub(super) async fn list_all(
    store: &dyn Store,
    filter: &Filter,
    items: usize,
) -> Vec<NotificationId> {
    list_in_pages(store, filter, items).await.into_iter().map(|history| history.id).collect()
}

pub(super) async fn a_list_in_the_other_order_is_the_same_one_backwards(store: &dyn Store) {
    Shape::default().ingest(store, 5).await;
    Shape { tenant: "other", ..Shape::default() }.ingest(store, 2).await;
    let broadcast = BroadcastShape::default().open(store, 3).await;
    store.seal_broadcast(broadcast, at(0)).await.unwrap();
    let tenant = Some(name("tenant"));
    let broadcast = Some(broadcast);
    for filter in [
        Filter::default(),
        Filter { tenant, ..Filter::default() },
        Filter { broadcast, ..Filter::default() },
        Filter { channel: Some(name("unused")), ..Filter::default() },
    ] {
        for items in [1, 2, 3, 100] {
            let mut newest = Filter { order: ListOrder::NewestFirst, ..filter.clone() };
            let mut ids = list_all(store, &newest, items).await;
            ids.reverse();
            newest.order = ListOrder::OldestFirst;
            assert_eq!(list_all(store, &newest, items).await, ids);
        }
    }
}

pub(super) async fn what_ended_badly_is_found_among_what_did_not(store: &dyn Store) {
    // Each has a due time of its own, and so a batch; more than one page looks at.
    let mut ids = Vec::new();
    for number in 0..300 {
        let tenant = if number % 2 == 0 { "tenant" } else { "other" };
        ids.push(Shape { tenant, due_at: number, ..Shape::default() }.ingest(store, 1).await[0]);
    }
    let state_of = |id: NotificationId| {
        let number = ids.iter().position(|other| *other == id).unwrap();
        if number % 3 == 0 { State::Dead } else { State::Delivered }
    };
    for chunk in claim_all(store, 300).await {
        let ended = Disposition::Ended(state_of(chunk.notification_id(0)));
        settle_all(store, &chunk, ended).await;
    }
    let refused = Shape { destination: "elsewhere", ..Shape::default() }.ingest(store, 3).await;
    let chunk = claim_one(store, 300).await;
    settle_one(store, part(&chunk, &[1], Disposition::Ended(State::Refused))).await;
    settle_one(store, part(&chunk, &[0, 2], DELIVERED)).await;
    let dead = ids.iter().copied().filter(|id| state_of(*id) == State::Dead);
    let bad: Vec<NotificationId> = dead.chain([refused[1]]).collect();
    let filter = Filter { states: [State::Dead, State::Refused].into(), ..Filter::default() };
    for items in [1, 7, 1_000] {
        assert_eq!(list_all(store, &filter, items).await, bad);
        let mut newest = Filter { order: ListOrder::NewestFirst, ..filter.clone() };
        let listed: Vec<_> = list_all(store, &newest, items).await.into_iter().rev().collect();
        assert_eq!(listed, bad);
        newest.tenant = Some(name("other"));
        let theirs: Vec<_> =
            (3..300).step_by(6).rev().filter_map(|at| ids.get(at).copied()).collect();
        assert_eq!(list_all(store, &newest, items).await, theirs);
        let channel = Some(name("unused"));
        let none = Filter { channel, ..filter.clone() };
        assert_eq!(list_all(store, &none, items).await, []);
    }
}

pub(super) async fn what_waits_or_was_cancelled_is_found_among_what_did_not(store: &dyn Store) {
    let mut ids = Vec::new();
    for number in 0..300 {
        // Two of three are of one tenant. The last ones are not due.
        let tenant = if number % 3 == 0 { "other" } else { "tenant" };
        let due_at = if number < 290 { number } else { 9_000 + number };
        ids.push(Shape { due_at, tenant, ..Shape::default() }.ingest(store, 1).await[0]);
    }
    for (id, tenant) in
        ids.iter().zip(["other", "tenant", "tenant"].into_iter().cycle()).step_by(10)
    {
        let cancelled = store.cancel(CancelTarget::Notification(*id), name(tenant), at(0)).await;
        assert_eq!(cancelled.unwrap().unwrap().cancelled, 1);
    }
    for chunk in claim_all(store, 300).await {
        let id = chunk.notification_id(0);
        let number = ids.iter().position(|other| *other == id).unwrap();
        let (disposition, detail) = match number % 10 {
            1 => (Disposition::Retry { at: at(9_000) }, "busy"),
            2 => continue,
            3 => (Disposition::Ended(State::Dead), "no route"),
            4 if number > 200 => (DELIVERED, "id 7"),
            _ => (DELIVERED, ""),
        };
        let mut settlement = part(&chunk, &[0], disposition);
        settlement.groups[0].detail = detail.into();
        settle_one(store, settlement).await;
    }
    let all = list_in_pages(store, &Filter::default(), 1_000).await;
    let waiting = [State::Pending, State::Claimed, State::Begun];
    let sets = [&waiting[..1], &waiting[1..2], &waiting, &[State::Cancelled, State::Dead], &[]];
    for states in sets.map(|states| states.iter().copied().collect::<BTreeSet<_>>()) {
        for reason in [None, Some("busy"), Some("o"), Some("id 7"), Some("nothing")] {
            let channel = reason.filter(|reason| *reason == "o").map(|_| name("channel"));
            let reason = reason.map(str::to_owned);
            for (order, tenant) in [
                (ListOrder::OldestFirst, None),
                (ListOrder::NewestFirst, None),
                (ListOrder::OldestFirst, Some(name("other"))),
                (ListOrder::NewestFirst, Some(name("tenant"))),
            ] {
                let (states, reason, channel) = (states.clone(), reason.clone(), channel.clone());
                let filter = Filter { tenant, channel, states, reason, order, ..Filter::default() };
                is_part_of(store, &filter, &all, 7).await;
            }
        }
    }
    let states = [State::Pending, State::Cancelled].into();
    is_part_of(store, &Filter { states, ..Filter::default() }, &all, 1).await;
}

pub(super) async fn a_list_has_what_was_accepted_within_a_time(store: &dyn Store) {
    const HOUR: i64 = 3_600_000;
    let mut accepted = Vec::new();
    for hour in 0..4 {
        let drafts = (0..3).map(|number| Shape::default().draft(&number.to_string())).collect();
        for admission in store.ingest(drafts, at(hour * HOUR)).await.unwrap() {
            let Admission::Accepted(id) = admission else { panic!("{admission:?}") };
            accepted.push(id);
        }
    }
    let of = |since: Option<i64>, until: Option<i64>, recipient: Option<&str>| Filter {
        tenant: Some(name("tenant")),
        since: since.map(at),
        until: until.map(at),
        recipient: recipient.map(Into::into),
        ..Filter::default()
    };
    let listed = async |filter: Filter| {
        let oldest = list_all(store, &filter, 2).await;
        let mut newest =
            list_all(store, &Filter { order: ListOrder::NewestFirst, ..filter }, 2).await;
        newest.reverse();
        assert_eq!(oldest, newest);
        oldest
    };
    assert_eq!(listed(of(Some(HOUR), Some(3 * HOUR), None)).await, accepted[3..9]);
    assert_eq!(listed(of(Some(HOUR + 1), None, None)).await, accepted[6..]);
    assert_eq!(listed(of(None, Some(HOUR), None)).await, accepted[..3]);
    assert_eq!(listed(of(Some(9 * HOUR), None, None)).await, []);
    assert_eq!(listed(of(Some(3 * HOUR), Some(HOUR), None)).await, []);
    let of_one = [accepted[4], accepted[7]];
    assert_eq!(listed(of(Some(HOUR), Some(3 * HOUR), Some("1"))).await, of_one);
}

pub(super) async fn the_room_of_a_store_grows_with_what_it_holds(store: &dyn Store) {
    let before = store.reader().space().await.unwrap();
    Shape::default().ingest(store, 5_000).await;
    let after = store.reader().space().await.unwrap();
    // The double takes none.
    assert!(before.zip(after).is_none_or(|(before, after)| after.used > before.used));
    assert!(after.and_then(|space| space.left).is_none_or(|left| left > 0));
}

pub(super) async fn a_recipient_is_found_by_its_tenant_and_at_once(store: &dyn Store) {
    let recipient = Some("3".into());
    let of = |tenant| Filter {
        tenant: Some(name(tenant)),
        recipient: recipient.clone(),
        ..Filter::default()
    };
    let first = Shape::default().ingest(store, 5).await[3];
    let other = Shape { tenant: "other", ..Shape::default() }.ingest(store, 4).await[3];
    let open = BroadcastShape::default().open(store, 4).await;
    // The double has no index, and each store may have some of these in one: the answers are the same after every step.
    while store.advance().await.unwrap() {}
    assert_eq!(
        list_all(store, &of("tenant"), 9).await,
        [first],
        "an open broadcast is not accepted"
    );
    store.seal_broadcast(open, at(0)).await.unwrap();
    let last = Shape::default().ingest(store, 4).await[3];
    while store.advance().await.unwrap() {}
    assert_eq!(list_all(store, &of("other"), 9).await, [other]);
    let everything = list_all(store, &of("tenant"), 1).await;
    assert_eq!((everything.len(), everything[0], everything[2]), (3, first, last));
    let newest = Filter { order: ListOrder::NewestFirst, ..of("tenant") };
    assert_eq!(list_all(store, &newest, 1).await, [last, everything[1], first]);
    let broadcast = Filter { broadcast: Some(open), ..of("tenant") };
    assert_eq!(list_all(store, &broadcast, 1).await, everything[1..2]);
    let states = [State::Delivered].into();
    let delivered = Filter { states, ..of("tenant") };
    assert_eq!(list_all(store, &delivered, 1).await, []);
    let chunks = claim_all(store, 0).await;
    let chunk = chunks.iter().find(|chunk| chunk.envelope.lane.tenant == name("tenant"));
    settle_all(store, chunk.unwrap(), DELIVERED).await;
    assert_eq!(list_all(store, &delivered, 1).await.len(), 1);
    let anywhere = Filter { tenant: None, ..of("tenant") };
    assert_eq!(list_all(store, &anywhere, 2).await.len(), 4, "of any tenant");
    let nobody = Filter { recipient: Some("33".into()), ..of("tenant") };
    assert_eq!(list_all(store, &nobody, 9).await, []);
}

pub(super) async fn the_log_is_read_once_from_start_to_end(store: &dyn Store) {
    let start = LogPosition::default();
    let empty = store.reader().log(start, 10).await.unwrap();
    assert_eq!((empty.entries.len(), empty.next), (0, start));
    let ids = Shape::default().ingest(store, 4).await;
    let chunk = claim_one(store, 0).await;
    let ended = DELIVERED;
    settle_one(store, part(&chunk, &[1, 3], Disposition::Retry { at: at(9) })).await;
    settle_one(store, part(&chunk, &[0, 2], ended)).await;
    settle_all(store, &claim_one(store, 9).await, ended).await;
    let entries = whole_log(store, 1).await;
    let seen: Vec<_> = entries.into_iter().map(|entry| (entry.id, entry.attempted)).collect();
    let order: Vec<_> = seen.iter().map(|(id, line)| (*id, line.attempt, line.state)).collect();
    let (retried, delivered) = (State::Pending, State::Delivered);
    let expect = [
        (ids[1], 1, retried),
        (ids[3], 1, retried),
        (ids[0], 1, delivered),
        (ids[2], 1, delivered),
        (ids[1], 2, delivered),
        (ids[3], 2, delivered),
    ];
    assert_eq!(order, expect);
    for id in ids {
        let of_this = seen.iter().filter(|(other, _)| *other == id).map(|(_, line)| line.clone());
        assert_eq!(find(store, id).await.attempts, of_this.collect::<Vec<_>>());
    }
}

pub(super) async fn lanes_show_their_work(store: &dyn Store) {
    let here = Shape { due_at: 3, ..Shape::default() };
    let there = Shape { destination: "there", due_at: 8, ..Shape::default() };
    here.ingest(store, 4).await;
    there.ingest(store, 1).await;
    let chunk = claim_one(store, 5).await;
    settle_one(store, part(&chunk, &[0], DELIVERED)).await;
    settle_one(store, part(&chunk, &[1], Disposition::Retry { at: at(70) })).await;
    let answered = LaneEvidence { answered_at: Some(at(7)), ..LaneEvidence::default() };
    let status = |shape: &Shape, claimed, next_due_at, evidence| LaneStatus {
        lane: shape.draft("a").envelope.lane,
        claimed,
        next_due_at: Some(at(next_due_at)),
        evidence,
    };
    let expect = [status(&here, 2, 70, answered), status(&there, 0, 8, LaneEvidence::default())];
    assert_eq!(
        store.reader().lanes().await.unwrap(),
        LaneList { lanes: expect.into(), until: None }
    );
    for chunk in claim_all(store, 1_000_000).await {
        settle_all(store, &chunk, DELIVERED).await;
    }
    assert_eq!(store.reader().lanes().await.unwrap(), LaneList::default());
}
