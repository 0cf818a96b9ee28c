//! The waiting work, as far as it is kept in memory.

use std::sync::Arc;
use std::time::Duration;

use notification::{Lane, Priority, Timestamp, limits};

use super::codes::LaneId;
use super::due::{DueCursor, LANES_PER_PAGE};
use super::evidence::AttemptEvidence;
use super::lanes::Lanes;
#[cfg(feature = "postgres")]
use super::room::LaneLoad;
use crate::ClaimRequest;
use crate::conformance::name;

/// Milliseconds, the length of a span.
const SPAN: i64 = 1 << 14;
const PAGE: LaneId = 1_000;

fn lane(number: LaneId) -> Lane {
    let (channel, destination) = (name("channel"), number.to_string().into());
    Lane { channel, destination, priority: Priority::Normal, tenant: name("tenant") }
}

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

fn request(now: i64) -> ClaimRequest {
    ClaimRequest {
        now: at(now),
        lease: Duration::from_mins(1),
        items: 1_000,
        lowest: Priority::Bulk,
        lane_window: 10_000,
        total_window: 10_000,
        probe_window: None,
    }
}

/// Lanes that have read all of an empty index.
fn lanes() -> Lanes {
    let mut lanes = Lanes::default();
    assert_eq!(lanes.unread(&request(0)), Some(DueCursor::START));
    lanes.read_all();
    lanes
}

fn next(lanes: &mut Lanes, request: &ClaimRequest) -> Option<LaneId> {
    lanes.next(request).map(|turn| turn.lane)
}

fn add(lanes: &mut Lanes, id: LaneId, due_at: i64) {
    lanes.add(id, lane(id));
    lanes.add_due(id, at(due_at));
}

#[test]
fn lanes_that_wait_fill_a_page_and_no_more_and_none_is_forgotten() {
    let mut lanes = lanes();
    let (few, many) = (PAGE, 100 * PAGE);
    for id in 1..=many {
        add(&mut lanes, id, 10 * SPAN + id * 1_000);
    }
    let known = (1..=many).filter(|id| lanes.lane(*id).is_some()).count();
    assert_eq!(known, LANES_PER_PAGE, "the rest is an entry of the index");
    assert_eq!(lanes.next_at(&request(0)), Some(at(10 * SPAN + 1_000)), "it is still exact");
    // The first span of which something was not kept begins: from there on the index is read.
    let first_left = DueCursor::before(DueCursor::of(at(10 * SPAN + (few + 1) * 1_000), 0).span);
    assert_eq!(lanes.unread(&request(first_left.begins_at().millis() - 1)), None);
    let now = request(first_left.begins_at().millis());
    assert_eq!(lanes.unread(&now), Some(first_left));
    assert_eq!(lanes.next_at(&now), Some(at(10 * SPAN + 1_000)));
}

#[test]
fn what_is_due_is_kept_however_much_waits() {
    let mut lanes = lanes();
    for id in 1..=2 * PAGE {
        add(&mut lanes, id, 10 * SPAN);
    }
    add(&mut lanes, 1_000_000, 0);
    assert_eq!(next(&mut lanes, &request(0)), Some(1_000_000));
}

#[test]
fn a_page_that_was_read_is_known_and_the_next_one_begins_behind_it() {
    let mut lanes = Lanes::default();
    assert_eq!(lanes.unread(&request(0)), Some(DueCursor::START));
    assert_eq!(lanes.next_at(&request(0)), Some(at(0)), "there may be more at once");
    for id in 1..=3 {
        lanes.add_read(id, lane(id), at(id));
    }
    assert_eq!(lanes.unread(&request(0)), Some(DueCursor::of(at(3), 3)));
    lanes.add_read(4, lane(4), at(SPAN));
    assert_eq!(lanes.unread(&request(0)), None, "what is behind it is not due in this span");
    assert_eq!(next(&mut lanes, &request(5)), Some(1));
    // A notice of a lane behind the page is found with the next one.
    add(&mut lanes, 9, 2 * SPAN);
    assert!(lanes.lane(9).is_none());
}

#[test]
fn nothing_is_read_and_no_lane_is_passed_while_the_common_window_is_full() {
    let mut lanes = Lanes::default();
    lanes.add_read(1, lane(1), at(0));
    lanes.add_claimed(1, 10_000);
    assert_eq!((lanes.unread(&request(0)), lanes.next(&request(0))), (None, None));
    assert_eq!(lanes.next_at(&request(0)), None, "only a settlement brings work");
}

#[test]
fn what_is_parked_is_not_kept_and_found_again_when_it_is_offered() {
    let mut lanes = lanes();
    add(&mut lanes, 1, 0);
    lanes.offer(Some(Arc::default()));
    assert!(lanes.lane(1).is_none());
    assert_eq!(lanes.unread(&request(0)), Some(DueCursor::START));
    lanes.add_read(1, lane(1), at(0));
    lanes.read_all();
    assert_eq!((lanes.next(&request(0)), lanes.next_at(&request(0))), (None, None));
    lanes.offer(None);
    assert_eq!(lanes.unread(&request(0)), Some(DueCursor::START));
}

#[test]
fn bulk_moves_beside_a_steady_stream_of_normal() {
    let mut lanes = lanes();
    for id in 1..=20 {
        let priority = if id <= 10 { Priority::Normal } else { Priority::Bulk };
        lanes.add(id, Lane { priority, ..lane(id) });
        lanes.add_due(id, at(0));
    }
    let mut claimed = |rounds, is_bulk: fn(LaneId) -> bool| {
        let mut bulk = 0;
        for _ in 0..rounds {
            let lane = next(&mut lanes, &request(0)).unwrap();
            bulk += usize::from(is_bulk(lane));
            lanes.add_claimed(lane, 100);
            lanes.remove_claimed(lane, 100, true);
            lanes.served(lane, Some(at(0)));
        }
        bulk
    };
    let bulk = claimed(1_000, |lane| lane > 10);
    assert!((240..=260).contains(&bulk), "{bulk} of 1000");
}

#[test]
fn what_normal_lanes_had_alone_is_not_made_up_for() {
    let mut lanes = lanes();
    add(&mut lanes, 1, 0);
    for _ in 0..1_000 {
        lanes.add_claimed(1, 1_000);
        lanes.remove_claimed(1, 1_000, true);
    }
    lanes.add(2, Lane { priority: Priority::Bulk, ..lane(2) });
    lanes.add_due(2, at(0));
    let mut in_a_row = 0;
    while next(&mut lanes, &request(0)) == Some(2) {
        lanes.add_claimed(2, 100);
        lanes.remove_claimed(2, 100, true);
        lanes.served(2, Some(at(0)));
        in_a_row += 1;
    }
    assert!((1..=27).contains(&in_a_row), "{in_a_row} hundreds");
}

fn failure(millis: i64) -> AttemptEvidence {
    let (answered, places) = (0, 1_000);
    AttemptEvidence {
        at: at(millis),
        answered,
        has_failed: true,
        handed_back_until: None,
        places,
        latency: None,
        rate_per_minute: None,
    }
}

/// Has a lane answered at `millis`.
fn answer(lanes: &mut Lanes, id: LaneId, millis: i64) {
    let attempts = AttemptEvidence { answered: 1, has_failed: false, ..failure(millis) };
    lanes.note_attempts(id, attempts);
}

fn fail(lanes: &mut Lanes, id: LaneId, millis: i64) {
    lanes.note_attempts(id, failure(millis));
}

/// The next lane, and how much of it, when all goes by evidence.
fn next_turn(lanes: &mut Lanes, now: i64) -> Option<(LaneId, usize)> {
    let (total_window, probe_window) = (1_000_000, Some(500_000));
    let request = ClaimRequest { total_window, probe_window, ..request(now) };
    lanes.next(&request).map(|turn| (turn.lane, turn.deliveries))
}

#[test]
fn a_lane_that_was_proven_is_probed_after_a_minute_and_one_that_fails_waits() {
    let mut lanes = lanes();
    add(&mut lanes, 1, 0);
    answer(&mut lanes, 1, 0);
    assert_eq!(next_turn(&mut lanes, 0), Some((1, 2_000)));
    assert_eq!(next_turn(&mut lanes, 60_000), Some((1, 16)), "it stands among the proven ones");
    fail(&mut lanes, 1, 60_000);
    assert_eq!(next_turn(&mut lanes, 60_000), None);
    assert_eq!(next_turn(&mut lanes, 61_000), Some((1, 1)));
    lanes.note_probe(1, at(61_000));
    lanes.add_claimed(1, 1);
    lanes.served(1, Some(at(0)));
    assert_eq!(next_turn(&mut lanes, 62_999), None);
    assert_eq!(next_turn(&mut lanes, 63_000), Some((1, 1)), "before the answer to the last one");
    answer(&mut lanes, 1, 90_000);
    assert_eq!(
        next_turn(&mut lanes, 90_000),
        Some((1, 1_999)),
        "before the chunk is settled whole"
    );
    lanes.remove_claimed(1, 1, true);
    assert_eq!(next_turn(&mut lanes, 90_000), Some((1, 2_000)));
}

/// Otherwise a few destinations that fall silent would take the window of those that answer.
#[test]
fn what_a_failing_lane_holds_is_counted_as_failing_once_it_is_probed() {
    let mut lanes = lanes();
    add(&mut lanes, 1, 0);
    answer(&mut lanes, 1, 0);
    assert_eq!(next_turn(&mut lanes, 0), Some((1, 2_000)));
    lanes.add_claimed(1, 3);
    lanes.served(1, Some(at(0)));
    fail(&mut lanes, 1, 30_000);
    for seconds in [31, 33, 35] {
        assert_eq!(next_turn(&mut lanes, seconds * 1_000), Some((1, 1)));
        lanes.note_probe(1, at(seconds * 1_000));
        lanes.add_claimed(1, 1);
        lanes.served(1, Some(at(0)));
    }
    assert_eq!(lanes.failing_weight(), 6 + 4 * limits::CHUNK_WEIGHT);
}

#[test]
fn the_latest_of_the_unknown_comes_first_and_all_of_these_before_those_that_fail() {
    let mut lanes = lanes();
    for id in 1..=100 {
        add(&mut lanes, id, id);
        if id <= 10 {
            fail(&mut lanes, id, 0);
        }
    }
    let mut order = Vec::new();
    while let Some((lane, _)) = next_turn(&mut lanes, 5_000) {
        lanes.add_claimed(lane, 1);
        lanes.served(lane, None);
        order.push(lane);
    }
    let expected: Vec<LaneId> = (11..=100).rev().chain(1..=10).collect();
    assert_eq!(order, expected);
}

#[test]
fn a_destination_that_fails_is_tried_however_many_are_unknown() {
    let mut lanes = lanes();
    add(&mut lanes, 1, 0);
    fail(&mut lanes, 1, 0);
    for id in 2..=5_000 {
        add(&mut lanes, id, 0);
    }
    let mut tried = 0;
    while let Some((lane, items)) = next_turn(&mut lanes, 2_000) {
        lanes.add_claimed(lane, items);
        lanes.served(lane, None);
        tried += usize::from(lane == 1);
    }
    assert_eq!(tried, 1);
    assert_eq!(next_turn(&mut lanes, 2_000), None, "and the window is full");
}

/// Mail servers that hold each attempt for minutes fill all that there is for destinations which never answered.
#[test]
fn a_destination_that_failed_once_is_tried_however_many_silent_ones_are() {
    let mut lanes = lanes();
    let silent = 5_000;
    for id in 1..=silent {
        add(&mut lanes, id, 0);
        fail(&mut lanes, id, 0);
    }
    let mut tried = 0;
    while let Some((lane, items)) = next_turn(&mut lanes, 2_000) {
        lanes.add_claimed(lane, items);
        lanes.served(lane, Some(at(0)));
        tried += 1;
    }
    assert!((500..silent).contains(&tried), "{tried}: no more than their part");
    add(&mut lanes, silent + 1, 0);
    answer(&mut lanes, silent + 1, 0);
    fail(&mut lanes, silent + 1, 2_000);
    assert_eq!(next_turn(&mut lanes, 3_000), Some((silent + 1, 1)));
}

#[test]
fn a_lane_whose_window_is_full_waits_for_a_settlement_of_its_own() {
    let mut lanes = lanes();
    for id in [1, 2] {
        add(&mut lanes, id, 0);
        answer(&mut lanes, id, 0);
        assert_eq!(next_turn(&mut lanes, 0).map(|(lane, _)| lane), Some(id));
        lanes.add_claimed(id, 2_000);
        lanes.served(id, Some(at(0)));
    }
    let by_evidence = ClaimRequest { probe_window: Some(1_000), ..request(0) };
    assert_eq!((next_turn(&mut lanes, 0), lanes.next_at(&by_evidence)), (None, None));
    lanes.remove_claimed(2, 1, false);
    assert_eq!(next_turn(&mut lanes, 0), Some((2, 500)), "a quarter of its window at least");
}

#[cfg(feature = "postgres")]
#[test]
fn probes_that_are_found_again_do_not_fill_the_window_of_those_that_answer() {
    let mut lanes = lanes();
    answer(&mut lanes, 1, 0);
    let mut lanes = Lanes::knowing(lanes.evidence());
    lanes.unread(&request(0));
    lanes.add(2, lane(2));
    lanes.restore_load(2, LaneLoad { deliveries: 1, weight: 490_000 }, at(0));
    lanes.add(1, lane(1));
    lanes.restore_load(1, LaneLoad { deliveries: 1, weight: 65 }, at(0));
    lanes.add_due(1, at(0));
    assert_eq!(next_turn(&mut lanes, 0), Some((1, 1_999)), "half of the window is there for it");
}

/// Lanes 1 and 2 of the tenant `a` and 3 of the tenant `b`, all due; of 2 it is not known whether it is answered.
fn lanes_of_two_tenants() -> (Lanes, ClaimRequest) {
    let mut lanes = lanes();
    for (id, tenant) in [(1, "a"), (2, "a"), (3, "b")] {
        lanes.add(id, Lane { tenant: name(tenant), ..lane(id) });
        lanes.add_due(id, at(0));
        if id != 2 {
            answer(&mut lanes, id, 0);
        }
    }
    let total_window = 100_000;
    let request = ClaimRequest { probe_window: Some(5_000), total_window, ..request(0) };
    assert!(lanes.next(&request).is_some(), "they are sorted");
    (lanes, request)
}

#[test]
fn a_probe_costs_the_other_tenants_nothing() {
    let (mut lanes, request) = lanes_of_two_tenants();
    for (id, items) in [(1, 1_000), (2, 1), (3, 10)] {
        lanes.add_claimed(id, items);
        lanes.served(id, Some(at(0)));
        assert!(lanes.next(&request).is_some(), "it is sorted again");
    }
    assert_eq!(next(&mut lanes, &request), Some(3), "it was given less by far");
}

#[cfg(feature = "postgres")]
#[test]
fn a_lane_that_was_not_looked_through_lets_the_next_tenant_go_on() {
    let (mut lanes, request) = lanes_of_two_tenants();
    lanes.add_claimed(2, 1);
    let turns: Vec<LaneId> = (0..4)
        .map(|_| {
            let id = next(&mut lanes, &request).unwrap();
            lanes.passed(id, Some(at(0)));
            id
        })
        .collect();
    assert_eq!(turns, [1, 3, 1, 3]);
}
