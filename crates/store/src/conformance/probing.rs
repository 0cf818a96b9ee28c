//! The deliveries that lanes are given while their destinations answer and fail.

use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use notification::{Chunk, Disposition, Priority, Settlement, Timestamp, limits};

use super::support::{DELIVERED, Shape, claim_one, indexes, part, settle_one, suppression};
use super::{at, claim_request};
use crate::{ClaimRequest, LaneEvidence, Store};

const LATENCY: Option<Duration> = Some(Duration::from_millis(80));
const RATE: Option<NonZeroU32> = NonZeroU32::new(600);

/// A claim of everything that the evidence allows.
fn request(millis: i64) -> ClaimRequest {
    let (total_window, probe_window) = (limits::CLAIMED_ITEMS, Some(limits::PROBE_WINDOW));
    ClaimRequest { total_window, probe_window, ..claim_request(millis) }
}

/// Number of deliveries in each chunk.
fn sizes(chunks: &[Chunk]) -> Vec<usize> {
    chunks.iter().map(|chunk| chunk.deliveries.len()).collect()
}

/// All of `chunk`, by a channel with four places.
fn all(chunk: &Chunk, millis: i64, disposition: Disposition) -> Settlement {
    Settlement {
        at: at(millis),
        places: 4,
        latency: LATENCY,
        rate_per_minute: RATE,
        ..part(chunk, &indexes(chunk), disposition)
    }
}

async fn settle(store: &dyn Store, chunk: &Chunk, millis: i64, disposition: Disposition) {
    settle_one(store, all(chunk, millis, disposition)).await;
}

/// Claims at `millis` and has everything fail that was claimed; returns how much that was, and when to claim again.
async fn fail(store: &dyn Store, millis: i64) -> (usize, Option<Timestamp>) {
    let claim = store.claim(request(millis)).await.unwrap();
    for chunk in &claim.chunks {
        settle(store, chunk, millis, Disposition::Retry { at: at(millis) }).await;
    }
    let again = store.claim(request(millis)).await.unwrap();
    assert!(again.chunks.is_empty(), "it is closed");
    (sizes(&claim.chunks).iter().sum(), again.next_at)
}

/// Evidence of the only lane.
async fn evidence(store: &dyn Store) -> LaneEvidence {
    let lanes = store.reader().lanes().await.unwrap().lanes;
    assert_eq!(lanes.len(), 1);
    lanes[0].evidence
}

pub(super) async fn how_fast_a_lane_went_while_it_was_busy_is_known(store: &dyn Store) {
    Shape::default().ingest(store, 60).await;
    let chunk = claim_one(store, 0).await;
    assert_eq!(store.reader().paces().await.unwrap(), []);
    for (second, first) in (1..=11).zip((0..).step_by(5)) {
        let indexes: Vec<u16> = (first..first + 5).collect();
        let settlement =
            Settlement { at: at(1_000 * second), places: 4, ..part(&chunk, &indexes, DELIVERED) };
        settle_one(store, settlement).await;
        // A notice about a lane has taken effect by the next claim at the latest.
        store.claim(request(1_000 * second)).await.unwrap();
    }
    let [pace] = store.reader().paces().await.unwrap().try_into().unwrap();
    assert_eq!(pace.lane, chunk.envelope.lane);
    // The first second may not have been whole, and the last is not over.
    assert_eq!((pace.answered, pace.at), (vec![5; 9], at(11_000)));
}

pub(super) async fn an_unproven_lane_is_given_a_few_and_more_when_these_are_answered(
    store: &dyn Store,
) {
    Shape::default().ingest(store, 100).await;
    let first = store.claim(request(5)).await.unwrap();
    assert_eq!(sizes(&first.chunks), [16]);
    assert_eq!(indexes(&first.chunks[0]), (0..16).collect::<Vec<u16>>());
    let probed = store.claim(request(5)).await.unwrap();
    assert!(probed.chunks.is_empty(), "the next ones wait for these");
    let lease_end = at(5).plus(request(5).lease);
    assert_eq!(probed.next_at, Some(lease_end), "only an answer brings work");
    let some = Settlement { places: 4, ..part(&first.chunks[0], &[3], DELIVERED) };
    settle_one(store, some).await;
    let more = store.claim(request(8)).await.unwrap();
    assert_eq!(sizes(&more.chunks), [4], "twice the places would be 8, and 16 are always allowed");
    let rest: Vec<u16> = indexes(&first.chunks[0]).into_iter().filter(|it| *it != 3).collect();
    settle_one(store, Settlement { places: 200, ..part(&first.chunks[0], &rest, DELIVERED) }).await;
    let most = store.claim(request(9)).await.unwrap();
    assert_eq!(sizes(&most.chunks), [80], "there is no more");
    for chunk in more.chunks.iter().chain(&most.chunks) {
        settle(store, chunk, 9, DELIVERED).await;
    }
    assert_eq!(store.reader().totals().await.unwrap().delivered, 100);
}

pub(super) async fn a_lane_that_fails_is_given_one_at_a_time_and_ever_later(store: &dyn Store) {
    Shape::default().ingest(store, 100).await;
    assert_eq!(fail(store, 0).await, (16, Some(at(1_000))));
    assert_eq!(fail(store, 999).await, (0, Some(at(1_000))));
    assert_eq!(fail(store, 1_000).await, (1, Some(at(3_000))));
    assert_eq!(fail(store, 3_000).await, (1, Some(at(7_000))));
    let closed = LaneEvidence { closed_until: Some(at(7_000)), ..LaneEvidence::default() };
    assert_eq!(evidence(store).await, closed);
    // A lane that answers again is given as much as it takes.
    let probe = store.claim(request(7_000)).await.unwrap();
    assert_eq!(sizes(&probe.chunks), [1]);
    settle(store, &probe.chunks[0], 7_000, DELIVERED).await;
    let answered_at = Some(at(7_000));
    let limit = NonZeroUsize::new(4);
    let open = LaneEvidence {
        answered_at,
        closed_until: None,
        limit,
        latency: LATENCY,
        rate_per_minute: RATE,
    };
    assert_eq!(evidence(store).await, open);
    let more = store.claim(request(7_000)).await.unwrap();
    let more: usize = sizes(&more.chunks).iter().sum();
    assert!((16..20).contains(&more), "no less than a quarter of the window at a time: {more}");
}

/// An attempt that is not answered takes half a minute; the end of an outage is found sooner.
pub(super) async fn a_lane_that_answered_lately_is_probed_beside_the_probes_under_way(
    store: &dyn Store,
) {
    Shape::default().ingest(store, 100).await;
    let first = store.claim(request(0)).await.unwrap();
    settle_one(store, part(&first.chunks[0], &[0], DELIVERED)).await;
    let failed =
        part(&first.chunks[0], &(1..16).collect::<Vec<_>>(), Disposition::Retry { at: at(1) });
    settle_one(store, Settlement { at: at(2_000), ..failed }).await;
    let mut probes = Vec::new();
    for seconds in (3..=33).step_by(2) {
        let early = store.claim(request(seconds * 1_000 - 1)).await.unwrap();
        assert_eq!((early.chunks.len(), early.next_at), (0, Some(at(seconds * 1_000))));
        let mut claim = store.claim(request(seconds * 1_000)).await.unwrap();
        assert_eq!(sizes(&claim.chunks), [1], "{seconds} s, none of those before has ended");
        probes.append(&mut claim.chunks);
    }
    let beyond = store.claim(request(35_000)).await.unwrap();
    assert_eq!(beyond.chunks.len(), 0, "sixteen are enough");
    settle(store, &probes[5], 35_000, DELIVERED).await;
    let more = store.claim(request(35_000)).await.unwrap();
    assert!(!more.chunks.is_empty(), "any answer opens it");
}

/// A lane that has answered lately, and then failed: it is closed until 3 s.
async fn close_lately_answered(store: &dyn Store) {
    Shape::default().ingest(store, 16).await;
    let first = store.claim(request(0)).await.unwrap();
    settle_one(store, part(&first.chunks[0], &[0], DELIVERED)).await;
    let rest = &indexes(&first.chunks[0])[1..];
    let failed = part(&first.chunks[0], rest, Disposition::Retry { at: at(60_000) });
    settle_one(store, Settlement { at: at(2_000), ..failed }).await;
    assert_eq!(evidence(store).await.closed_until, Some(at(3_000)));
}

pub(super) async fn what_expired_is_no_probe(store: &dyn Store) {
    close_lately_answered(store).await;
    Shape { expires_at: Some(2_500), ..Shape::default() }.ingest(store, 1).await;
    assert!(store.claim(request(3_500)).await.unwrap().chunks.is_empty());
    assert_eq!(store.reader().totals().await.unwrap().expired, 1);
    assert_eq!(evidence(store).await.closed_until, Some(at(3_000)), "nothing was tried");
}

pub(super) async fn a_suppressed_recipient_is_no_probe(store: &dyn Store) {
    close_lately_answered(store).await;
    let suppressed = suppression("gone", "asked us");
    store.suppress(vec![suppressed], at(2_000)).await.unwrap();
    let to = |recipient| Shape::default().draft(recipient);
    store.ingest(vec![to("gone")], at(3_100)).await.unwrap();
    assert!(store.claim(request(3_500)).await.unwrap().chunks.is_empty());
    assert_eq!(store.reader().totals().await.unwrap().suppressed, 1);
    assert_eq!(evidence(store).await.closed_until, Some(at(3_000)), "nothing was tried");
    // What is behind it is the probe.
    store.ingest(vec![to("gone")], at(3_500)).await.unwrap();
    store.ingest(vec![to("here")], at(3_500)).await.unwrap();
    let claim = store.claim(request(3_600)).await.unwrap();
    assert_eq!(sizes(&claim.chunks), [1]);
    assert_eq!(&*claim.chunks[0].deliveries[0].recipient, "here");
    assert_eq!(evidence(store).await.closed_until, Some(at(5_600)));
}

pub(super) async fn what_was_not_sent_tells_nothing(store: &dyn Store) {
    Shape::default().ingest(store, 1).await;
    for millis in 0..3 {
        let claim = store.claim(request(millis)).await.unwrap();
        assert_eq!(sizes(&claim.chunks), [1]);
        settle(store, &claim.chunks[0], millis, Disposition::HandedBack { at: at(millis) }).await;
    }
}

pub(super) async fn what_expired_ends_at_once_however_little_may_be_sent(store: &dyn Store) {
    Shape { expires_at: Some(10), ..Shape::default() }.ingest(store, 100).await;
    assert_eq!(store.claim(request(10)).await.unwrap().chunks, []);
    assert_eq!(store.reader().totals().await.unwrap().expired, 100);
}

pub(super) async fn lanes_that_do_not_answer_leave_room_for_those_that_do(store: &dyn Store) {
    let one = 1 + limits::CHUNK_WEIGHT;
    let narrow = |millis| {
        let (total_window, probe_window) = (48 * one, Some(24 * one));
        ClaimRequest { total_window, probe_window, ..claim_request(millis) }
    };
    let lane = |destination, due_at| Shape { destination, due_at, ..Shape::default() };
    lane("proven", 0).ingest(store, 1).await;
    let claim = store.claim(narrow(0)).await.unwrap();
    settle(store, &claim.chunks[0], 20_000, DELIVERED).await;
    for destination in "a b c d e f g h i j k l m n o p q r s t u v w x".split(' ') {
        lane(destination, 0).ingest(store, 50).await;
    }
    let probes = store.claim(narrow(20_000)).await.unwrap().chunks;
    assert!((14..=18).contains(&probes.len()), "{:?}", sizes(&probes));
    assert!(store.claim(narrow(20_000)).await.unwrap().chunks.is_empty());
    // A chunk that falls due now is not behind one that has waited for long, nor a proven lane behind any.
    lane("fresh", 19_000).ingest(store, 1).await;
    lane("proven", 20_000).ingest(store, 1).await;
    Shape { priority: Priority::Urgent, ..lane("urgent", 0) }.ingest(store, 1).await;
    let others = store.claim(narrow(20_000)).await.unwrap().chunks;
    let mut to: Vec<&str> = others.iter().map(|chunk| &*chunk.envelope.lane.destination).collect();
    to.sort_unstable();
    assert_eq!(to, ["fresh", "proven", "urgent"]);
    // Once they are known to fail, fewer are tried at a time.
    for chunk in &probes {
        settle(store, chunk, 20_000, Disposition::Retry { at: at(20_000) }).await;
    }
    let later = Duration::from_mins(2);
    let minutes_later = ClaimRequest { now: at(20_000).plus(later), ..narrow(0) };
    let claim = store.claim(minutes_later).await.unwrap();
    let known: Vec<&str> = probes.iter().map(|chunk| &*chunk.envelope.lane.destination).collect();
    let again =
        claim.chunks.iter().filter(|chunk| known.contains(&&*chunk.envelope.lane.destination));
    assert!(again.count() <= 6, "{:?}", sizes(&claim.chunks));
}
