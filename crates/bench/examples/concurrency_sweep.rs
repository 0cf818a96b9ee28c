//! The learned limit beside fixed ones: one broadcast to a provider of a given latency, each setting in turn,
//! `concurrency_sweep BINARY LATENCY_MS SECONDS REPETITIONS SETTING...`, such as `100 20 3 auto 1000 4000 16000`.
//!
//! A setting is `auto` or a number, per destination, priority and thread. Of each run, from the provider's journal: deliveries per second
//! as a whole, and from the tenth second after the first one on; the engine's processor time for each, and its memory. There
//! are as many notifications as it should deliver in so many seconds, and ten more.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use bench::rate::{median, per_second};
use bench::{Finished, Setup, Trial, Workload, WorkloadGuarantee};

/// About what two cores deliver at most, notifications a second.
const RATE_MAX: u64 = 500_000;
/// The seconds in which a limit is to be found.
const FINDING: usize = 10;
/// Sender threads of the engine.
const SENDERS: u64 = 2;
const PATIENCE: Duration = Duration::from_mins(5);

/// One run.
#[derive(Debug, Clone, Copy)]
struct Measured {
    /// Deliveries per second as a whole.
    whole: u64,
    /// The median second from [`FINDING`] on.
    found: u64,
    cpu_ns: u64,
    memory_mib: u64,
}

fn main() -> Result<()> {
    let usage = "usage: concurrency_sweep BINARY LATENCY_MS SECONDS REPETITIONS SETTING...";
    let mut arguments = std::env::args().skip(1);
    let binary = PathBuf::from(arguments.next().context(usage)?);
    let mut number = || arguments.next().context(usage)?.parse().context(usage);
    let (latency, seconds, repetitions): (u64, u64, u64) = (number()?, number()?, number()?);
    let mut settings: Vec<(String, Vec<Measured>)> =
        arguments.map(|setting| (setting, Vec::new())).collect();
    if settings.is_empty() {
        bail!(usage);
    }
    let mut out = std::io::stdout().lock();
    for _ in 0..repetitions {
        for (setting, runs) in &mut settings {
            let run = run(&binary, latency, seconds, setting)?;
            writeln!(out, "{latency} ms, {setting}: {run:?}")?;
            runs.push(run);
        }
    }
    for (setting, runs) in &settings {
        let middle = |of: fn(&Measured) -> u64| median(&runs.iter().map(of).collect::<Vec<u64>>());
        writeln!(
            out,
            "{latency} ms, {setting}, medians: {} per second, {} from the tenth on, {}.{} us each, {} MiB",
            middle(|run| run.whole),
            middle(|run| run.found),
            middle(|run| run.cpu_ns) / 1000,
            middle(|run| run.cpu_ns) / 100 % 10,
            middle(|run| run.memory_mib),
        )?;
    }
    Ok(())
}

fn run(binary: &Path, latency_ms: u64, seconds: u64, setting: &str) -> Result<Measured> {
    let directory = tempfile::tempdir()?;
    let trial = Trial::start(Setup {
        binary: binary.to_owned(),
        directory: directory.path().to_owned(),
        engine_settings: vec![
            ("BELFRY__CHANNELS__IOS__CONCURRENCY".into(), setting.into()),
            ("BELFRY__DELIVERY__SENDERS".into(), SENDERS.to_string()),
        ],
        simulator_flags: vec!["--latency".into(), format!("{latency_ms}ms")],
    })?;
    let of_setting =
        setting.parse().map_or(u64::MAX, |limit: u64| 1000 * limit * SENDERS / latency_ms.max(1));
    let tokens = RATE_MAX.min(of_setting) * (seconds + FINDING as u64);
    trial.broadcast(0..tokens, r#"{"aps":{"alert":"news"}}"#, WorkloadGuarantee::AtLeastOnce)?;
    trial.drain(PATIENCE, || Ok(()))?;
    let Finished { books, engine, .. } =
        trial.finish(&Workload { tokens, webhooks: Vec::new() })?;
    let tally = books.tally();
    ensure!(tally.accepted == tokens && tally.duplicates == 0, "{tally:?}");
    let rates = per_second(&tally.accepted_at_us);
    let found = rates.get(FINDING..rates.len().saturating_sub(1)).unwrap_or_default();
    ensure!(!found.is_empty(), "it was over within {FINDING} s: {rates:?}");
    Ok(Measured {
        whole: tokens / (rates.len() as u64).max(1),
        found: median(found),
        cpu_ns: u64::try_from(engine.cpu.as_nanos())? / tokens,
        memory_mib: engine.memory_bytes_max >> 20,
    })
}
