//! The choice and order of claimed chunks.

use std::collections::BTreeSet;
use std::sync::Arc;

use notification::{Chunk, Disposition, Epoch, Priority, State, limits};

use super::support::{
    DELIVERED, LEASE, Shape, at, claim_all, claim_one, claim_request, find, part, settle_all,
    settle_one,
};
use crate::{ClaimRequest, ParkedChannel, Store};

pub(super) async fn nothing_is_claimed_before_it_is_due(store: &dyn Store) {
    Shape { due_at: 50, ..Shape::default() }.ingest(store, 1).await;
    let early = store.claim(claim_request(49)).await.unwrap();
    assert_eq!((early.chunks.len(), early.next_at), (0, Some(at(50))));
    let in_time = store.claim(claim_request(50)).await.unwrap();
    let chunk = &in_time.chunks[0];
    assert_eq!((chunk.attempt, chunk.epoch), (1, Epoch(1)));
    assert_eq!(chunk.lease_until, at(50).plus(LEASE));
    assert_eq!(in_time.next_at, Some(chunk.lease_until), "only the lease's end can bring work");
    settle_all(store, chunk, DELIVERED).await;
    assert_eq!(store.claim(claim_request(51)).await.unwrap().next_at, None);
}

pub(super) async fn urgent_lanes_go_first_and_equal_ones_in_turn(store: &dyn Store) {
    let shape = |priority, destination| Shape { destination, priority, ..Shape::default() };
    for (due_at, priority, destination) in [
        (1, Priority::Bulk, "a"),
        (2, Priority::Normal, "a"),
        (3, Priority::Normal, "a"),
        (4, Priority::Normal, "b"),
        (5, Priority::Urgent, "b"),
    ] {
        Shape { due_at, ..shape(priority, destination) }.ingest(store, 1).await;
    }
    let order: Vec<i64> =
        claim_all(store, 9).await.iter().map(|chunk| chunk.envelope.due_at.millis()).collect();
    assert_eq!(order[0], 5, "{order:?}");
    let normal: Vec<i64> =
        order.iter().copied().filter(|due_at| (2..=4).contains(due_at)).collect();
    assert!(normal == [2, 4, 3] || normal == [4, 2, 3], "{order:?}");
    let bulk = order.iter().position(|due_at| *due_at == 1);
    assert!(bulk >= Some(2), "behind the first of the normal ones: {order:?}");
}

pub(super) async fn tenants_have_turns_however_many_lanes_they_have(store: &dyn Store) {
    let large = Shape { tenant: "large", ..Shape::default() };
    for destination in ["a", "b", "c", "d", "e", "f", "g", "h"] {
        Shape { destination, ..large.clone() }.ingest(store, 10).await;
    }
    for due_at in 1..=3 {
        Shape { tenant: "small", destination: "a", due_at, ..Shape::default() }
            .ingest(store, 1)
            .await;
    }
    let claimed = claim_all(store, 9).await;
    let tenants: Vec<&str> =
        claimed.iter().map(|chunk| chunk.envelope.lane.tenant.as_str()).collect();
    assert_eq!(tenants.len(), 8 + 3);
    let last = tenants.iter().rposition(|tenant| *tenant == "small");
    assert!(last <= Some(3), "no more than one chunk of ten goes before: {tenants:?}");
}

pub(super) async fn lanes_below_the_lowest_priority_wait(store: &dyn Store) {
    for &priority in Priority::ALL {
        Shape { priority, ..Shape::default() }.ingest(store, 1).await;
    }
    for lowest in Priority::ALL.iter().copied() {
        let claim = store.claim(ClaimRequest { lowest, ..claim_request(9) }).await.unwrap();
        let priorities: Vec<_> =
            claim.chunks.iter().map(|chunk| chunk.envelope.lane.priority).collect();
        assert_eq!(priorities, [lowest], "the ones above are claimed already");
        assert!(claim.next_at.is_none_or(|at_next| at_next > at(9)), "what waits is no work now");
    }
}

pub(super) async fn when_all_lanes_together_are_full_only_urgent_ones_get_more(store: &dyn Store) {
    let total_window = 8 * (1 + limits::CHUNK_WEIGHT);
    let request = ClaimRequest { total_window, ..claim_request(9) };
    for destination in ["a", "b", "c", "d", "e", "f", "g", "h"] {
        Shape { destination, ..Shape::default() }.ingest(store, 1).await;
    }
    assert_eq!(store.claim(request).await.unwrap().chunks.len(), 7, "an eighth is left");
    let urgent = Shape { destination: "z", priority: Priority::Urgent, ..Shape::default() };
    urgent.ingest(store, 1).await;
    let claim = store.claim(request).await.unwrap();
    let priorities: Vec<_> =
        claim.chunks.iter().map(|chunk| chunk.envelope.lane.priority).collect();
    assert_eq!(priorities, [Priority::Urgent]);
    assert!(store.claim(request).await.unwrap().chunks.is_empty());
}

pub(super) async fn lanes_that_answer_nobody_leave_room_for_the_next(store: &dyn Store) {
    let total_window = 64 * (1 + limits::CHUNK_WEIGHT);
    let request = ClaimRequest { total_window, ..claim_request(99) };
    let mut claimed = Vec::new();
    for destination in ["a", "b", "c", "d"] {
        for due_at in 0..64 {
            Shape { destination, due_at, ..Shape::default() }.ingest(store, 1).await;
        }
        claimed.push(store.claim(request).await.unwrap().chunks.len());
    }
    assert!(claimed.iter().all(|&chunks| chunks > 0), "{claimed:?}");
    assert!(claimed.is_sorted_by(|one, other| one >= other), "{claimed:?}");
}

pub(super) async fn lanes_of_channels_that_are_not_offered_are_parked(store: &dyn Store) {
    let offer = async |channel: &str| {
        store.offer(Arc::new(BTreeSet::from([super::name(channel)]))).await.unwrap();
    };
    let (due, later) = (Shape::default(), Shape { due_at: 20, ..Shape::default() });
    due.ingest(store, 2).await;
    offer("another").await;
    later.ingest(store, 1).await;
    let claim = store.claim(claim_request(5)).await.unwrap();
    assert_eq!((claim.chunks, claim.next_at), (Vec::new(), None), "nothing will be due by itself");
    assert_eq!(store.reader().totals().await.unwrap().pending, 3);
    let changes = store.changes();
    offer("channel").await;
    assert!(changes.has_changed().unwrap(), "it can be claimed at once");
    let claim = store.claim(claim_request(5)).await.unwrap();
    assert_eq!((claim.chunks.len(), claim.next_at), (1, Some(at(20))));
    // Deliveries under way when their channel goes are settled as ever, and those due again wait.
    offer("another").await;
    settle_all(store, &claim.chunks[0], Disposition::HandedBack { at: at(6) }).await;
    assert_eq!(store.claim(claim_request(30)).await.unwrap().chunks, []);
    offer("channel").await;
    assert_eq!(claim_all(store, 30).await.len(), 2);
}

pub(super) async fn parked_channels_say_how_much_waits(store: &dyn Store) {
    let parked = async |offered: &str| {
        let channels = store.reader().parked(BTreeSet::from([super::name(offered)])).await.unwrap();
        let whole = |it: &ParkedChannel| !it.is_at_least;
        assert!(channels.iter().all(whole), "{channels:?}");
        let tell = |it: ParkedChannel| (it.lanes, it.notifications, it.next_due_at);
        channels.into_iter().map(tell).collect::<Vec<_>>()
    };
    assert_eq!(parked("another").await, []);
    let (here, later) = (Shape::default(), Shape { due_at: 20, ..Shape::default() });
    let there = Shape { destination: "there", due_at: 9, ..Shape::default() };
    for (shape, items) in [(here, 2), (later, 1), (there, 4)] {
        shape.ingest(store, items).await;
    }
    assert_eq!(parked("channel").await, []);
    assert_eq!(parked("another").await, [(2, 7, at(0))]);
    // A claimed chunk waits no longer, and its deliveries that are due again do.
    let chunk = claim_one(store, 5).await;
    assert_eq!(parked("another").await, [(2, 5, at(9))]);
    settle_all(store, &chunk, Disposition::HandedBack { at: at(6) }).await;
    assert_eq!(parked("another").await, [(2, 7, at(6))]);
    for chunk in claim_all(store, 30).await {
        settle_all(store, &chunk, DELIVERED).await;
    }
    assert_eq!(parked("another").await, []);
}

pub(super) async fn a_full_lane_gets_nothing_more(store: &dyn Store) {
    let lane_window = 3 + limits::CHUNK_WEIGHT;
    let narrow = ClaimRequest { lane_window, ..claim_request(5) };
    let lane = |due_at| Shape { due_at, ..Shape::default() };
    for due_at in 0..4 {
        lane(due_at).ingest(store, 2).await;
    }
    Shape { destination: "elsewhere", due_at: 4, ..Shape::default() }.ingest(store, 1).await;
    let claim = store.claim(narrow).await.unwrap();
    let claimed = |destination: &str| {
        let chunks = claim.chunks.iter();
        let of_lane = chunks.filter(|chunk| &*chunk.envelope.lane.destination == destination);
        of_lane.map(|chunk| chunk.deliveries.len()).sum::<usize>()
    };
    assert_eq!((claimed("here"), claimed("elsewhere")), (4, 1), "one chunk beyond the window");
    assert_eq!(claim.next_at, Some(at(5).plus(LEASE)), "a full lane brings no work by itself");
    assert!(store.claim(narrow).await.unwrap().chunks.is_empty());
    let is_here = |chunk: &&Chunk| &*chunk.envelope.lane.destination == "here";
    let first = claim.chunks.iter().find(is_here).unwrap();
    settle_one(store, part(first, &[0], DELIVERED)).await;
    assert!(store.claim(narrow).await.unwrap().chunks.is_empty(), "three are still claimed");
    settle_one(store, part(first, &[1], DELIVERED)).await;
    assert_eq!(store.claim(narrow).await.unwrap().chunks.len(), 1);
}

pub(super) async fn a_claim_stops_at_the_items_wanted_and_says_that_there_is_more(
    store: &dyn Store,
) {
    for due_at in 0..3 {
        Shape { due_at, ..Shape::default() }.ingest(store, 4).await;
    }
    let wanted = |items| ClaimRequest { items, ..claim_request(5) };
    let claim = store.claim(wanted(7)).await.unwrap();
    assert_eq!(claim.chunks.len(), 1);
    assert!(claim.next_at.unwrap() <= at(5));
    let claim = store.claim(wanted(1)).await.unwrap();
    assert_eq!(claim.chunks.len(), 1, "the first chunk is given however large it is");
    assert_eq!(store.claim(wanted(4)).await.unwrap().chunks.len(), 1);
}

pub(super) async fn a_claim_stops_at_its_bytes_and_says_that_there_is_more(store: &dyn Store) {
    let large = |number: u8| Shape { payload: vec![number; 250_000].into(), ..Shape::default() };
    for batch in 0..12 {
        let drafts = (0..4).map(|member| large(4 * batch + member).draft("somebody")).collect();
        store.ingest(drafts, at(0)).await.unwrap();
    }
    let mut chunks = 0;
    while chunks < 12 {
        let claim = store.claim(claim_request(5)).await.unwrap();
        let bytes: usize = claim.chunks.iter().map(Chunk::bytes).sum();
        assert!(bytes > 0 && bytes <= limits::CLAIM_BYTES, "{bytes}");
        chunks += claim.chunks.len();
        assert_eq!(claim.next_at.is_some_and(|next| next <= at(5)), chunks < 12, "{claim:?}");
    }
}

pub(super) async fn a_lane_of_large_contents_holds_few_of_them_and_leaves_room_for_others(
    store: &dyn Store,
) {
    const BATCHES: u8 = 8;
    for number in 0..BATCHES {
        let payload = |member: u8| vec![b'a' + member; 250_000 + usize::from(number)].into();
        let large = |member| Shape { payload: payload(member), ..Shape::default() }.draft("a");
        store.ingest((0..4).map(large).collect(), at(0)).await.unwrap();
    }
    let request = ClaimRequest {
        lane_window: 8 * limits::BATCH_ITEMS,
        total_window: limits::CLAIMED_ITEMS,
        ..claim_request(0)
    };
    let (mut settled, mut most) = (0, 0);
    while settled < usize::from(BATCHES) {
        let chunks = store.claim(request).await.unwrap().chunks;
        most = most.max(chunks.len());
        assert!(!chunks.is_empty(), "{settled} are settled");
        assert!(store.claim(request).await.unwrap().chunks.is_empty(), "the lane is full");
        let small = Shape { destination: "elsewhere", ..Shape::default() };
        small.ingest(store, 1).await;
        let other = store.claim(request).await.unwrap().chunks.remove(0);
        for chunk in chunks.iter().chain([&other]) {
            settle_all(store, chunk, DELIVERED).await;
        }
        settled += chunks.len();
    }
    assert_eq!(most, 3, "each weighs as much as its bytes");
}

pub(super) async fn what_expired_is_settled_and_not_returned(store: &dyn Store) {
    let ids = Shape { expires_at: Some(10), ..Shape::default() }.ingest(store, 2).await;
    let alive = Shape { expires_at: Some(11), ..Shape::default() }.ingest(store, 1).await;
    let chunk = claim_one(store, 10).await;
    assert_eq!(chunk.notification_id(0), alive[0]);
    for id in ids {
        let history = find(store, id).await;
        assert_eq!((history.state, history.next_attempt_at), (State::Expired, None));
        let [line] = &history.attempts[..] else { panic!("{history:?}") };
        assert_eq!((line.state, line.attempt, line.at), (State::Expired, 0, at(10)));
    }
    assert_eq!(store.reader().totals().await.unwrap().expired, 2);
}

pub(super) async fn changes_tell_of_new_work(store: &dyn Store) {
    let mut changes = store.changes();
    changes.mark_unchanged();
    Shape::default().ingest(store, 1).await;
    changes.changed().await.unwrap();
    let chunk = claim_one(store, 0).await;
    changes.mark_unchanged();
    claim_all(store, 0).await;
    assert!(!changes.has_changed().unwrap(), "a claim wakes nobody");
    settle_all(store, &chunk, Disposition::HandedBack { at: at(0) }).await;
    changes.changed().await.unwrap();
}
