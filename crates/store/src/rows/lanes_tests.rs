//! The work that waits, as far as it is kept in memory.

use std::sync::Arc;
use std::time::Duration;

use notification::{Lane, Priority, Timestamp};

use super::codes::LaneId;
use super::due::{DueCursor, LANES_PER_PAGE};
use super::lanes::Lanes;
use crate::ClaimRequest;
use crate::conformance::name;

/// Milliseconds, the length of a span.
const SPAN: i64 = 1 << 14;
const PAGE: LaneId = 1_000;

fn lane(number: LaneId) -> Lane {
    let channel = name("channel");
    Lane { channel, destination: number.to_string().into(), priority: Priority::Normal }
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
    }
}

/// Lanes that have read all of an empty index.
fn lanes() -> Lanes {
    let mut lanes = Lanes::default();
    assert_eq!(lanes.unread(&request(0)), Some(DueCursor::START));
    lanes.read_all();
    lanes
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
    assert_eq!(lanes.next(&request(0)), Some(1_000_000));
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
    assert_eq!(lanes.next(&request(5)), Some(1));
    // What is told of behind the page is found with the next one.
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
