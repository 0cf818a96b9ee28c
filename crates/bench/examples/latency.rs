//! One urgent notification at a time, from the POST to the provider: `latency BINARY COUNT [BROADCAST=0]`.
//!
//! The engine is idle, or sends a broadcast to so many recipients meanwhile. Fails when that was over before.

use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bench::rate::{median, per_second};
use bench::{LoadCaller, Setup, Trial, Workload, WorkloadGuarantee};

/// Between two notifications, so that the engine is idle again.
const PAUSE: Duration = Duration::from_millis(20);

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: latency BINARY COUNT [BROADCAST]";
    let binary = PathBuf::from(arguments.next().context(usage)?);
    let count: u64 = arguments.next().context(usage)?.parse().context(usage)?;
    let broadcast: u64 = arguments.next().map_or(Ok(0), |text| text.parse()).context(usage)?;
    let directory = tempfile::tempdir()?;
    let trial = Trial::start(Setup {
        binary,
        directory: directory.path().to_owned(),
        engine_settings: Vec::new(),
        simulator_flags: Vec::new(),
    })?;
    let clock = flow::Clock::system();
    let tokens = count + broadcast;
    if broadcast > 0 {
        trial.broadcast(
            count..tokens,
            r#"{"aps":{"alert":"news"}}"#,
            WorkloadGuarantee::AtLeastOnce,
        )?;
    }
    let mut caller = LoadCaller::connect(trial.engine().listen())?;
    let mut posted_us = Vec::new();
    for number in 0..count {
        std::thread::sleep(PAUSE);
        posted_us.push(clock.wall().as_micros());
        caller.notify(number, "urgent")?;
    }
    ensure!(broadcast == 0 || trial.pending()? > broadcast / 50, "the broadcast was over");
    trial.drain(Duration::from_mins(5), || Ok(()))?;
    let finished = trial.finish(&Workload { tokens, webhooks: Vec::new() })?;
    let rate = per_second(&finished.books.tally_of(count..tokens).accepted_at_us);
    let tally = finished.books.tally_of(0..count);
    ensure!(tally.accepted == count && tally.duplicates == 0, "{tally:?}");
    // One at a time, so the order of posting is the order of acceptance.
    let waits = tally.accepted_at_us.iter().zip(&posted_us);
    let mut waits: Vec<u128> =
        waits.map(|(got, sent)| u128::from(*got).saturating_sub(*sent)).collect();
    waits.sort_unstable();
    let at = |share: usize| waits.get((waits.len() - 1) * share / 100).copied().unwrap_or(0);
    let line = format!(
        "POST to provider-accepted, {count} urgent, beside {} a second: p50 {} us, p90 {} us, p99 {} us, at most {} us",
        median(&rate),
        at(50),
        at(90),
        at(99),
        at(100)
    );
    writeln!(std::io::stdout(), "{line}")?;
    Ok(())
}
