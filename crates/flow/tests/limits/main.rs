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

use flow::{Learned, Limit};
use scenarios::scenarios;
use world::{Outcome, play};

/// The most that it may find.
const MAX: usize = 20_000;

#[test]
fn the_learned_limit_keeps_its_promises() {
    let page = std::fs::read_to_string("../../docs/reference/limits.md").unwrap();
    let learned = || -> Box<dyn Limit> { Box::new(Learned::new(MAX)) };
    let mut broken = Vec::new();
    for scenario in scenarios() {
        let outcome = play(&scenario, &learned);
        let Outcome { utilisation, slowdown, over_limit, fairness, recovery } = outcome;
        let keeps = utilisation >= 0.95
            && slowdown <= 1.5
            && over_limit <= 0.02
            && fairness >= 0.98
            && recovery.is_none_or(|seconds| seconds <= 5.0);
        if !keeps || !page.contains(&outcome.to_string()) {
            broken.push(format!("{}: {outcome}", scenario.name));
        }
    }
    assert!(broken.is_empty(), "not kept, or not what the page says: {broken:#?}");
}
