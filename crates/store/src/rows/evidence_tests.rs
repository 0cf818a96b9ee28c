//! The health of lanes as their destinations answer, fail and recover.

use super::*;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_millis(seconds * 1_000)
}

fn answered(seconds: i64, answered: usize) -> AttemptEvidence {
    AttemptEvidence {
        at: at(seconds),
        answered,
        has_failed: false,
        handed_back_until: None,
        places: 32,
        latency: None,
        rate_per_minute: None,
    }
}

fn failed(seconds: i64) -> AttemptEvidence {
    AttemptEvidence {
        at: at(seconds),
        answered: 0,
        has_failed: true,
        handed_back_until: None,
        places: 32,
        latency: None,
        rate_per_minute: None,
    }
}

/// Time until which the lane is closed, as of `now`.
fn closed_until(evidence: &Evidence, now: i64) -> Timestamp {
    let LaneHealth::Failing { closed_until, .. } = evidence.health(at(now)) else {
        panic!("it fails");
    };
    closed_until
}

/// Every probe from `from` on fails, up to `to`: when these are made.
fn probes(evidence: &mut Evidence, from: i64, to: i64) -> Vec<i64> {
    let mut probes = Vec::new();
    let mut now = from;
    while now <= to {
        evidence.note(failed(now));
        probes.push(now);
        now = closed_until(evidence, now).seconds();
    }
    probes
}

#[test]
fn a_destination_that_never_answered_is_probed_ever_more_rarely_up_to_once_a_minute() {
    let mut evidence = Evidence::default();
    assert_eq!(evidence.health(at(0)), LaneHealth::Unproven);
    let probes = probes(&mut evidence, 100, 400);
    assert_eq!(probes, [100, 101, 103, 107, 115, 131, 163, 223, 283, 343]);
}

#[test]
fn a_destination_that_answered_lately_is_probed_every_few_seconds() {
    let mut evidence = Evidence::default();
    evidence.note(answered(100, 1));
    let outage = probes(&mut evidence, 110, 700);
    assert!(outage.windows(2).all(|pair| pair[1] - pair[0] <= 2), "{outage:?}");
    let later = probes(&mut evidence, 2_000, 2_400);
    assert_eq!(later.windows(2).map(|pair| pair[1] - pair[0]).max(), Some(60), "{later:?}");
    evidence.note(answered(2_500, 1));
    assert!(matches!(evidence.health(at(2_500)), LaneHealth::Proven { .. }), "at once");
}

#[test]
fn the_probe_of_a_destination_that_answered_lately_does_not_wait_for_the_last_one() {
    let mut evidence = Evidence::default();
    evidence.note(failed(100));
    evidence.note_probe(at(101));
    let one = LaneHealth::Failing { closed_until: at(101), at_a_time: 1, has_answered: false };
    assert_eq!(evidence.health(at(101)), one, "it never answered");
    evidence.note(answered(102, 1));
    evidence.note_probe(at(103));
    assert!(matches!(evidence.health(at(103)), LaneHealth::Proven { .. }));
    evidence.note(failed(104));
    evidence.note_probe(at(105));
    let several = |seconds| LaneHealth::Failing {
        closed_until: at(seconds),
        at_a_time: 16,
        has_answered: true,
    };
    assert_eq!(evidence.health(at(105)), several(107));
    evidence.note(failed(106));
    assert_eq!(evidence.health(at(106)), several(107), "how it ends changes nothing");
}

#[test]
fn some_failures_of_a_destination_that_answers_mean_nothing() {
    let mut evidence = Evidence::default();
    evidence.note(answered(100, 1));
    evidence.note(failed(100));
    assert!(matches!(evidence.health(at(100)), LaneHealth::Proven { .. }));
    evidence.note(AttemptEvidence { has_failed: true, ..answered(101, 1) });
    assert!(matches!(evidence.health(at(160)), LaneHealth::Proven { .. }));
    assert_eq!(evidence.health(at(161)), LaneHealth::Unproven, "a minute later");
}

#[test]
fn what_was_under_way_when_a_lane_was_closed_does_not_close_it_for_longer() {
    let mut evidence = Evidence::default();
    evidence.note(failed(100));
    let closed = evidence.health(at(100));
    (0..1_000).for_each(|_| evidence.note(failed(100)));
    assert_eq!(evidence.health(at(100)), closed);
}

#[test]
fn the_window_is_twice_the_places_and_what_is_settled_in_a_tenth_of_a_second() {
    let mut evidence = Evidence::default();
    let window = |evidence: &Evidence, now| match evidence.health(at(now)) {
        LaneHealth::Proven { window } => window,
        LaneHealth::Unproven | LaneHealth::Failing { .. } => panic!("it answers"),
    };
    evidence.note(answered(100, 1));
    assert_eq!(window(&evidence, 100), 64);
    evidence.note(answered(100, 39_999));
    evidence.note(answered(100, 40_000));
    assert_eq!(window(&evidence, 100), 64 + 8_000);
    evidence.note(answered(101, 1));
    assert_eq!(window(&evidence, 101), 64 + 8_000, "of the last whole second");
    evidence.note(answered(103, 10));
    assert_eq!(window(&evidence, 103), 64 + 1);
    evidence.note(AttemptEvidence { places: 1, ..answered(110, 1) });
    assert_eq!(window(&evidence, 110), PROBE_ITEMS, "no less than a probe");
}

#[test]
fn a_clock_that_is_set_back_closes_nothing_for_long() {
    let mut evidence = Evidence::default();
    evidence.note(failed(100_000));
    assert_eq!(closed_until(&evidence, 10), at(10));
    evidence.note(answered(100_000, 1));
    assert!(matches!(evidence.health(at(10)), LaneHealth::Proven { .. }));
    evidence.note(failed(12));
    assert_eq!(closed_until(&evidence, 12), at(13));
    evidence.note(answered(14, 1));
    evidence.note(answered(100_000, 1_000_000));
    evidence.note(answered(20, 1));
    assert_eq!(evidence.health(at(20)), LaneHealth::Proven { window: 64 });
}

#[test]
fn a_lane_of_which_everything_is_handed_back_is_closed_as_if_it_had_failed() {
    let handed_back = |seconds| {
        let attempts = failed(seconds);
        AttemptEvidence { has_failed: false, handed_back_until: Some(at(seconds + 1)), ..attempts }
    };
    let mut evidence = Evidence::default();
    evidence.note(answered(100, 1));
    // At once, though it was answered just now: deliveries that are handed back were not tried.
    for (now, until) in [(100, 101), (101, 103), (102, 103), (103, 105), (105, 107), (107, 109)] {
        evidence.note(handed_back(now));
        assert_eq!(closed_until(&evidence, now), at(until), "{now}");
    }
    evidence.note(failed(109));
    assert_eq!(closed_until(&evidence, 109), at(111), "a failure goes on from there");
    evidence.note(answered(116, 1));
    assert!(matches!(evidence.health(at(116)), LaneHealth::Proven { .. }));
}

#[test]
fn a_lane_that_waits_for_a_quota_is_not_closed_beyond_its_turn() {
    let mut evidence = Evidence::default();
    for (now, turn, closed) in [
        (100, 130, 101),
        (101, 130, 103),
        (103, 130, 107),
        (107, 130, 115),
        (115, 120, 120),
        (120, 500, 130),
    ] {
        let attempts = failed(now);
        let until = Some(at(turn));
        evidence.note(AttemptEvidence { has_failed: false, handed_back_until: until, ..attempts });
        assert_eq!(closed_until(&evidence, now), at(closed), "{now}");
    }
}

#[test]
fn the_evidence_of_a_million_lanes_is_not_kept() {
    let book = EvidenceBook::default();
    for lane in 0..1_000_000 {
        book.note(lane, answered(lane / 100, 1));
        book.trim(at(lane / 100), |lane| lane < 10);
        assert!(book.lock().lanes.len() <= EVIDENCE_KEPT + 1);
    }
    let is_proven = |lane| matches!(book.of(lane).health(at(9_999)), LaneHealth::Proven { .. });
    assert!(is_proven(999_999) && is_proven(995_000), "what was proven last is known");
    assert!((0..10).all(|lane| book.lock().lanes.contains_key(&lane)), "so is what has work");
}
