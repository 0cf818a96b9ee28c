//! The share of forecast intervals that hold the true end, for work that goes on in different ways.
#![expect(clippy::unwrap_used, reason = "all of it is test code: a failure here fails the test")]

mod world;

use world::{Lane, Told, run};

/// Least share of the intervals that must hold the true end.
const HELD_MIN: f64 = 0.8;

/// Runs `lanes` with several sequences of random numbers. Over all runs, the interval must hold the true end at [`HELD_MIN`] of
/// its points, be given at `told_min` of all points at least, and be no wider, on the median, than `width_max` times the time
/// left.
fn check(scenario: &str, lanes: &[Lane], told_min: f64, width_max: f64) {
    let runs: Vec<Told> = (1..=8).map(|seed| run(seed, lanes)).collect();
    let Told { points: told, held, width } = Told::mean(&runs);
    assert!(held >= HELD_MIN, "{scenario}: {held:.2} of {told:.2} held, width {width:.2}");
    assert!(told >= told_min, "{scenario}: told at {told:.2} of the points only");
    assert!(width <= width_max, "{scenario}: the interval is {width:.2} of what is left");
}

#[test]
fn steady() {
    check("steady", &[Lane::new(600_000, |_| 2_000.0)], 0.95, 0.3);
    let quota = Lane::new(400, |_| 7.0 / 60.0);
    check("a quota of seven a minute", &[quota], 0.95, 1.0);
    let noisy = Lane { noise: 0.5, ..Lane::new(600_000, |_| 2_000.0) };
    check("noisy", &[noisy], 0.95, 0.4);
}

#[test]
fn slowing_and_rising() {
    let slowing = Lane::new(500_000, |time| (2_000.0 - 4.0 * time).max(300.0));
    check("slowing", &[slowing], 0.9, 2.0);
    let halved = Lane::new(600_000, |time| if time < 60.0 { 2_000.0 } else { 1_000.0 });
    check("halved", &[halved], 0.95, 0.6);
    let slow_start = Lane::new(600_000, |time| (40.0 * time).clamp(10.0, 2_000.0));
    check("a learned limit that rises", &[slow_start], 0.9, 0.6);
}

#[test]
fn an_outage_and_a_pause() {
    let outage = |time: f64| if (200.0..800.0).contains(&time) { 0.0 } else { 2_000.0 };
    // Intervals given before the outage could not include it.
    let long =
        Lane { fails: |time| (200.0..800.0).contains(&time), ..Lane::new(4_000_000, outage) };
    check("an outage of ten minutes", &[long], 0.7, 1.0);
    let paused = Lane::new(4_000_000, outage);
    check("a pause of ten minutes", &[paused], 0.7, 1.0);
    let short = |time: f64| if (100.0..110.0).contains(&time) { 0.0 } else { 2_000.0 };
    check("a pause of ten seconds", &[Lane::new(600_000, short)], 0.95, 0.3);
}

#[test]
fn mixed_lanes() {
    let lanes = [
        Lane::new(200_000, |_| 2_000.0),
        Lane::new(100_000, |_| 500.0),
        Lane { noise: 0.3, ..Lane::new(30_000, |_| 60.0) },
        Lane { deferred: 0.05, ..Lane::new(40_000, |_| 100.0) },
    ];
    check("mixed lanes", &lanes, 0.95, 0.4);
}

#[test]
fn a_tail_of_retries() {
    for (deferred, width_max) in [(0.01, 0.4), (0.1, 1.0), (0.3, 6.0)] {
        let lane = Lane { deferred, ..Lane::new(400_000, |_| 2_000.0) };
        check(&format!("a tail of {deferred}"), &[lane], 0.9, width_max);
    }
}

#[test]
fn what_does_not_get_on_is_stalled_and_no_end_is_told() {
    let gone = Lane {
        fails: |time| time >= 100.0,
        ..Lane::new(1_000_000, |time| if time < 100.0 { 2_000.0 } else { 0.0 })
    };
    let stalls = world::stalls(13, gone, 1_000);
    let after: Vec<_> = stalls.iter().filter(|(second, _)| *second >= 145).collect();
    assert!(after.len() > 800);
    assert!(
        after.iter().all(|(_, since)| since.is_some_and(|since| (99..=102).contains(&since))),
        "{after:?}"
    );
    assert!(stalls.iter().all(|(second, since)| *second >= 100 || since.is_none()));
}
