//! The scenarios.

use crate::world::Scenario;

/// A destination that does 200 things at a time in a tenth of a second each.
const STEADY: Scenario = Scenario {
    name: "200 at a time, 100 ms",
    lanes: 1,
    apart: 0.0,
    lasts: 120.0,
    counts_from: 10.0,
    takes: 0.1,
    slower: |_| 1.0,
    crowded: 0.0,
    noise: 0.1,
    tail: 0.0,
    knee: |_| 200,
    pushes_back: false,
    storm: |_| 0.0,
    outage: None,
    offered: None,
};

/// All scenarios: each has one thing happen to a destination.
pub(crate) fn scenarios() -> Vec<Scenario> {
    [of_sizes(), of_change_and_noise(), of_push_back_and_outage(), of_senders()].concat()
}

/// The steady destination under another name, to be changed.
pub(crate) const fn named(name: &'static str) -> Scenario {
    Scenario { name, ..STEADY }
}

fn of_sizes() -> Vec<Scenario> {
    vec![
        STEADY,
        Scenario { takes: 0.01, knee: |_| 20, ..named("20 at a time, 10 ms") },
        Scenario { takes: 0.3, knee: |_| 3_000, lasts: 60.0, ..named("3,000 at a time, 300 ms") },
        Scenario {
            takes: 1.5,
            knee: |_| 16,
            lasts: 300.0,
            counts_from: 30.0,
            ..named("16 at a time, 1.5 s (mail)")
        },
        Scenario { knee: |_| 1, ..named("one at a time") },
        Scenario {
            crowded: 0.3,
            knee: |_| 4_000,
            lasts: 60.0,
            ..named("100 ms, 130 ms beside 4,000 others")
        },
        Scenario {
            takes: 0.01,
            crowded: 2.0,
            knee: |_| 1_000,
            lasts: 60.0,
            ..named("10 ms, 30 ms beside 1,000 others")
        },
        Scenario {
            takes: 0.001,
            crowded: 29.0,
            knee: |_| 1_000,
            lasts: 60.0,
            ..named("1 ms, 30 ms beside 1,000 others")
        },
        Scenario { knee: |_| 3, ..named("three at a time") },
    ]
}

fn of_change_and_noise() -> Vec<Scenario> {
    vec![
        Scenario { knee: |at| if at < 40.0 { 50 } else { 500 }, ..named("50, then 500 at a time") },
        Scenario { knee: |at| if at < 40.0 { 500 } else { 50 }, ..named("500, then 50 at a time") },
        Scenario {
            knee: |at| match at {
                ..45.0 => 2_000,
                ..85.0 => 500,
                _ => 3_000,
            },
            ..named("2,000, 500, then 3,000 at a time")
        },
        Scenario { noise: 0.5, ..named("50 % noise") },
        Scenario { noise: 0.5, knee: |_| 20, ..named("50 % noise, 20 at a time") },
        Scenario { noise: 0.5, knee: |_| 2_000, ..named("50 % noise, 2,000 at a time") },
        Scenario {
            tail: 0.1,
            lasts: 200.0,
            counts_from: 20.0,
            ..named("a tenth takes 20 times as long")
        },
        Scenario {
            slower: |at| if at < 40.0 { 1.0 } else { 3.0 },
            ..named("everything takes three times as long")
        },
        Scenario {
            slower: |at| if at < 40.0 { 3.0 } else { 1.0 },
            ..named("everything takes a third as long")
        },
    ]
}

fn of_push_back_and_outage() -> Vec<Scenario> {
    vec![
        Scenario { pushes_back: true, ..named("429 above 200 at a time") },
        Scenario { pushes_back: true, knee: |_| 20, ..named("429 above 20 at a time") },
        Scenario { pushes_back: true, knee: |_| 2_000, ..named("429 above 2,000 at a time") },
        Scenario {
            outage: Some((40.0, 640.0, 0.001)),
            lasts: 700.0,
            ..named("ten minutes out, refused")
        },
        Scenario {
            outage: Some((40.0, 640.0, 15.0)),
            lasts: 700.0,
            ..named("ten minutes out, silent")
        },
        Scenario {
            storm: |at| if (40.0..50.0).contains(&at) { 0.15 } else { 0.0 },
            ..named("GOAWAY to 15 % for ten seconds")
        },
        Scenario { offered: Some(500.0), ..named("a quarter of it is wanted") },
    ]
}

fn of_senders() -> Vec<Scenario> {
    vec![
        Scenario { lanes: 2, ..named("two senders") },
        Scenario {
            lanes: 2,
            apart: 20.0,
            lasts: 300.0,
            counts_from: 100.0,
            ..named("two senders, 20 s apart")
        },
        Scenario {
            lanes: 10,
            apart: 2.0,
            lasts: 300.0,
            counts_from: 100.0,
            ..named("ten senders, 2 s apart")
        },
        Scenario {
            lanes: 10,
            apart: 0.5,
            noise: 0.5,
            knee: |_| 1_000,
            lasts: 300.0,
            counts_from: 100.0,
            ..named("ten senders, 50 % noise")
        },
    ]
}
