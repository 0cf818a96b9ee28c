//! An outage of the provider at full load, `outage BINARY LATENCY_MS SECONDS silent|503`.
//!
//! A broadcast is under way for twenty seconds when the provider stops to answer, or answers everything with 503, for SECONDS;
//! there is work for thirty seconds after that. Prints, by the provider's journal: how often it was asked, all in all and within the
//! outage; the rate before it and in each of the first seconds after it; and the engine's memory before, in and after it.

use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use bench::rate::{median, per_window};
use bench::{AuditOutput, Setup, Tally, Trial, Workload, WorkloadGuarantee};
use provider_sim::journal::Reader;

/// Seconds of work before the outage, and after it.
const BEFORE: u64 = 20;
const AFTER: u64 = 30;
/// Attempts under way at a time in the engine.
const IN_FLIGHT: u64 = 2_000;
/// About what two cores deliver at most, notifications a second.
const RATE_MAX: u64 = 60_000;
/// The seconds after the outage that are printed.
const SHOWN: u64 = 15;
const SECOND: Duration = Duration::from_secs(1);
/// For a drain beyond the outage: retries of what was under way when it began may wait for long.
const PATIENCE: Duration = Duration::from_mins(25);

/// The outage, and the load around it.
#[derive(Debug)]
struct Scenario {
    binary: PathBuf,
    latency_ms: u64,
    lasts: Duration,
    is_silent: bool,
}

/// The measurements of a run.
#[derive(Debug)]
struct Observed {
    /// When the provider was asked, in microseconds since the Unix epoch, ascending.
    asked_us: Vec<u64>,
    /// The engine's memory in bytes, at instants as above.
    memory: Vec<(u64, u64)>,
    audit: AuditOutput,
    tally: Tally,
}

fn main() -> Result<()> {
    let usage = "usage: outage BINARY LATENCY_MS SECONDS silent|503";
    let mut arguments = std::env::args().skip(1);
    let binary = PathBuf::from(arguments.next().context(usage)?);
    let mut number = || arguments.next().context(usage)?.parse().context(usage);
    let (latency_ms, seconds) = (number()?, number()?);
    let is_silent = match arguments.next().as_deref() {
        Some("silent") => true,
        Some("503") => false,
        _ => bail!(usage),
    };
    let lasts = Duration::from_secs(seconds);
    let scenario = Scenario { binary, latency_ms, lasts, is_silent };
    scenario.report(&scenario.run()?)
}

// === impl Scenario ===

impl Scenario {
    /// Notifications a second.
    fn rate(&self) -> u64 {
        RATE_MAX.min(1000 * IN_FLIGHT / self.latency_ms.max(1))
    }

    /// Requests before the outage.
    fn begins_after(&self) -> u64 {
        self.rate() * BEFORE
    }

    fn tokens(&self) -> u64 {
        self.rate() * (BEFORE + AFTER)
    }

    fn simulator_flags(&self) -> Vec<String> {
        let flags = [
            ("--latency", format!("{}ms", self.latency_ms)),
            ("--outage-after", self.begins_after().to_string()),
            ("--outage-for", format!("{}s", self.lasts.as_secs())),
        ];
        let flags = flags.into_iter().flat_map(|(name, value)| [name.to_owned(), value]);
        flags.chain(self.is_silent.then(|| "--outage-silent".to_owned())).collect()
    }

    fn run(&self) -> Result<Observed> {
        let directory = tempfile::tempdir()?;
        let trial = Trial::start(Setup {
            binary: self.binary.clone(),
            directory: directory.path().to_owned(),
            engine_settings: vec![(
                "BELFRY__CHANNELS__IOS__CONCURRENCY".into(),
                IN_FLIGHT.to_string(),
            )],
            simulator_flags: self.simulator_flags(),
        })?;
        let tokens = self.tokens();
        trial.broadcast(
            0..tokens,
            r#"{"aps":{"alert":"news"}}"#,
            WorkloadGuarantee::AtLeastOnce,
        )?;
        let clock = flow::Clock::system();
        let mut memory = Vec::new();
        trial.drain(self.lasts + PATIENCE, || {
            let now = u64::try_from(clock.wall().as_micros())?;
            memory.push((now, trial.engine().usage()?.memory_bytes));
            Ok(())
        })?;
        let mut journal = Reader::open(&trial.simulator().ready.journal)?;
        let mut asked_us = Vec::new();
        while let Some(record) = journal.next_record()? {
            asked_us.push(record.received_us);
        }
        asked_us.sort_unstable();
        let finished = trial.finish(&Workload { tokens, webhooks: Vec::new() })?;
        let (audit, tally) = (finished.audit, finished.books.tally());
        ensure!(tally.accepted == tokens && audit.pending == 0, "{tally:?} {audit:?}");
        Ok(Observed { asked_us, memory, audit, tally })
    }

    fn report(&self, observed: &Observed) -> Result<()> {
        let Observed { asked_us, memory, audit, tally } = observed;
        let begins_after = usize::try_from(self.begins_after())?;
        let began = *asked_us.get(begins_after).context("the outage never began")?;
        let ended = began + u64::try_from(self.lasts.as_micros())?;
        let within = asked_us.iter().filter(|at| (began..ended).contains(at)).count();
        let per_thousand = 1000 * asked_us.len() as u64 / self.tokens();
        let mut out = std::io::stdout().lock();
        writeln!(
            out,
            "{} notifications, {} requests ({}.{:03} each), {within} within the outage; repeated {}, dead {}, in doubt {}",
            self.tokens(),
            asked_us.len(),
            per_thousand / 1000,
            per_thousand % 1000,
            tally.duplicates,
            audit.dead,
            audit.in_doubt,
        )?;
        let accepted = &tally.accepted_at_us;
        let (first, last) =
            accepted.first().zip(accepted.last()).context("nothing was accepted")?;
        let before = median(&per_window(accepted, SECOND, *first, began));
        let after = per_window(accepted, SECOND, ended, ended + 1_000_000 * SHOWN);
        let late = last.saturating_sub(ended) / 1_000_000;
        writeln!(out, "{before} a second before it; in the seconds after it: {after:?}")?;
        writeln!(out, "the last one was accepted {late} s after it")?;
        let most = |from: u64, until: u64| {
            let inside = memory.iter().filter(|(at, _)| (from..until).contains(at));
            inside.map(|(_, bytes)| bytes >> 20).max().unwrap_or(0)
        };
        let [before, within, after] =
            [(0, began), (began, ended), (ended, u64::MAX)].map(|(from, until)| most(from, until));
        writeln!(
            out,
            "memory: at most {before} MiB before it, {within} within it, {after} after it"
        )?;
        Ok(())
    }
}
