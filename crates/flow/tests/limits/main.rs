//! The learned limit before simulated destinations, in simulated time. `cargo run --release -p flow --example limits` plays the
//! same scenarios with other limits beside it, and writes `docs/reference/limits.md`.
#![expect(clippy::indexing_slicing, reason = "a simulation fails by panicking")]
#![expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "counts and seconds of a simulation"
)]

mod scenarios;
mod world;

use std::time::Duration;

use flow::{Learned, Limit, Sample, Signal, Timing};
use scenarios::scenarios;
use world::{Outcome, SEED, Scenario, play};

/// The most that it may find.
const MAX: usize = 20_000;
/// Sequences of random numbers beside the page's.
const OTHER_SEEDS: u64 = 3;

fn learned() -> Box<dyn Limit> {
    Box::new(Learned::between(1, MAX))
}

fn keeps_promises(outcome: &Outcome) -> bool {
    let Outcome { utilisation, slowdown, over_limit, fairness, recovery } = *outcome;
    utilisation >= 0.95
        && slowdown <= 1.5
        && over_limit <= 0.02
        && fairness >= 0.98
        && recovery.is_none_or(|seconds| seconds <= 5.0)
}

/// An answer that waited for no connection, to one of `in_flight` attempts.
fn answered(on_wire: Duration, in_flight: usize, at: Duration) -> Sample {
    let timing = Some(Timing { waited: Duration::ZERO, on_wire });
    Sample { timing, signal: Signal::Answered, in_flight, at }
}

/// A destination that does not answer at first, and then does ten things at a time.
#[test]
fn a_destination_that_is_out_at_first_is_learned_all_the_same() {
    let mut learned = Learned::between(1, MAX);
    for number in 0..20_000u32 {
        let in_flight = learned.current();
        let takes = Duration::from_millis(100).mul_f64((in_flight as f64 / 10.0).max(1.0));
        let is_out = number < 10;
        learned.learn(Sample {
            timing: (!is_out).then_some(Timing { waited: Duration::ZERO, on_wire: takes }),
            signal: if is_out { Signal::Dropped } else { Signal::Answered },
            in_flight,
            at: Duration::from_millis(10) * number,
        });
    }
    assert!((8..=16).contains(&learned.current()), "{}", learned.current());
}

#[test]
fn the_learned_limit_keeps_its_promises() {
    let page = std::fs::read_to_string("../../docs/reference/limits.md").unwrap();
    let mut broken = Vec::new();
    for scenario in scenarios() {
        let outcome = play(&scenario, SEED, &learned);
        if !keeps_promises(&outcome) || !page.contains(&outcome.to_string()) {
            broken.push(format!("{}: {outcome}", scenario.name));
        }
    }
    assert!(broken.is_empty(), "not kept, or not what the page says: {broken:#?}");
}

/// Those that take a fraction of a second to play, less the two that miss a promise most often (decision 0025).
#[test]
fn promises_are_kept_with_other_noise() {
    let misses = ["16 at a time, 1.5 s (mail)", "two senders"];
    let mut broken = Vec::new();
    for scenario in scenarios() {
        let is_small = [0.0, scenario.lasts].iter().all(|at| (scenario.knee)(*at) < 1_000);
        if !is_small || misses.contains(&scenario.name) {
            continue;
        }
        for seed in 1..=OTHER_SEEDS {
            let outcome = play(&scenario, seed, &learned);
            if !keeps_promises(&outcome) {
                broken.push(format!("{}, {seed}: {outcome}", scenario.name));
            }
        }
    }
    assert!(broken.is_empty(), "not kept: {broken:#?}");
}

/// A destination that does ten things at a time, and whose first answers came twenty times as fast as any after them.
#[test]
fn first_answers_that_were_fast_by_chance_do_not_hold_the_limit_down() {
    let mut learned = Learned::between(1, MAX);
    for number in 0..20_000u32 {
        let in_flight = learned.current();
        let takes = Duration::from_millis(if number < 8 { 5 } else { 100 });
        let on_wire = takes.mul_f64((in_flight as f64 / 10.0).max(1.0));
        learned.learn(answered(on_wire, in_flight, Duration::from_millis(10) * number));
    }
    assert!((8..=16).contains(&learned.current()), "{}", learned.current());
}

/// Attempts that were sent together end together, and nothing is sent between their answers. Each of these counts for slow start, which doubles
/// the limit in each round trip of 300 ms.
#[test]
fn slow_start_goes_by_what_was_sent_together() {
    let mut learned = Learned::between(100, MAX);
    let takes = Duration::from_millis(300);
    for round_trip in 1..=6 {
        for in_flight in (1..=learned.current()).rev() {
            learned.learn(answered(takes, in_flight, takes * round_trip));
        }
    }
    assert!((5_000..=6_400).contains(&learned.current()), "{}", learned.current());
}

/// Whatever the noise is: one answer in a hundred is a dozen, and an attempt too many is felt by several.
#[test]
fn a_destination_that_does_one_thing_at_a_time_is_rarely_sent_two() {
    let one = Scenario { knee: |_| 1, ..scenarios::named("one at a time") };
    for seed in 1..=30 {
        let outcome = play(&one, seed, &learned);
        assert!(outcome.utilisation >= 0.95 && outcome.slowdown <= 1.5, "{seed}: {outcome}");
    }
}

/// A destination that grants 100 streams: an attempt beyond them waits for one, and is answered as fast as the others then.
#[test]
fn what_waits_for_streams_does_not_raise_the_limit() {
    let mut learned = Learned::between(1, MAX);
    let takes = Duration::from_millis(100);
    for number in 0..200_000u32 {
        let in_flight = learned.current();
        let waited = takes.mul_f64((in_flight as f64 / 100.0 - 1.0).max(0.0));
        learned.learn(Sample {
            timing: Some(Timing { waited, on_wire: takes }),
            signal: Signal::Answered,
            in_flight,
            at: Duration::from_millis(1) * number,
        });
    }
    assert!((100..=200).contains(&learned.current()), "{}", learned.current());
}

/// A destination to which each attempt makes a connection, which takes twice as long as the request, and that does 20 things at a time.
#[test]
fn a_connection_for_each_attempt_does_not_hold_the_limit_down() {
    let mut learned = Learned::between(1, MAX);
    let takes = Duration::from_millis(10);
    for number in 0..20_000u32 {
        let in_flight = learned.current();
        let on_wire = takes.mul_f64((in_flight as f64 / 20.0).max(1.0));
        learned.learn(Sample {
            timing: Some(Timing { waited: 2 * takes, on_wire }),
            signal: Signal::Answered,
            in_flight,
            at: Duration::from_millis(1) * number,
        });
    }
    assert!((18..=40).contains(&learned.current()), "{}", learned.current());
}

/// A destination that does ten things at a time, and either queues the excess or pushes it back, behind a limit of at least 100.
#[test]
fn latency_alone_does_not_lower_a_limit_below_its_least_and_push_back_does() {
    for pushes_back in [false, true] {
        let mut learned = Learned::between(100, MAX);
        for number in 0..100_000u32 {
            let in_flight = learned.current();
            let is_over = in_flight > 10 && number as usize % in_flight >= 10;
            let on_wire = Duration::from_millis(100).mul_f64((in_flight as f64 / 10.0).max(1.0));
            let is_refused = pushes_back && is_over;
            learned.learn(Sample {
                timing: (!is_refused).then_some(Timing { waited: Duration::ZERO, on_wire }),
                signal: if is_refused { Signal::PushedBack } else { Signal::Answered },
                in_flight,
                at: Duration::from_millis(1) * number,
            });
        }
        let expected = if pushes_back { 8..=24 } else { 90..=110 };
        assert!(expected.contains(&learned.current()), "{}", learned.current());
    }
}

/// A mail server that takes a thousand mails at a time, of a second and a half each, for two senders that may each have as many.
#[test]
fn a_thousand_slow_mails_at_a_time_are_found_within_twelve_seconds() {
    let mail = Scenario {
        takes: 1.5,
        knee: |_| 1_000,
        lanes: 2,
        lasts: 40.0,
        counts_from: 12.0,
        ..scenarios::named("1,000 at a time, 1.5 s (mail), two senders")
    };
    let outcome = play(&mail, SEED, &|| Box::new(Learned::between(1, 1_000).starting_at(5)));
    assert!(outcome.utilisation >= 0.95, "{outcome}");
    // Doubling may end at twice of what it looks for.
    assert!(outcome.slowdown <= 2.0, "{outcome}");
}

/// Of three seconds after the rise, two thirds of all places are used: it takes no more than a second of the new rate.
#[test]
fn a_knee_that_rises_sixfold_costs_a_second_at_most() {
    let rises = Scenario {
        knee: |at| if at < 40.0 { 500 } else { 3_000 },
        lasts: 43.0,
        counts_from: 40.0,
        ..scenarios::named("500, then 3,000 at a time")
    };
    for seed in 1..=OTHER_SEEDS {
        let outcome = play(&rises, seed, &learned);
        assert!(outcome.utilisation >= 2.0 / 3.0, "{seed}: {outcome}");
    }
}
