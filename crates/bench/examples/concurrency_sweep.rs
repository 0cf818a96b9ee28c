//! The learned limit beside fixed ones: one broadcast to a provider of a given latency, each setting in turn,
//! `concurrency_sweep BINARY PROVIDER SECONDS REPETITIONS SETTING...`, such as `100 20 3 auto 1000 4000 16000`.
//!
//! A provider is a latency in milliseconds, of APNs, or of a mail server with `mail:1500`. A capacity behind it is the number of requests
//! that it serves at the same time, and where that moves: `100:2000,500@20s,3000@30s`, as `provider-sim --capacity` has it.
//!
//! A setting is `auto` or a number, per destination. Of each run, from the provider's journal: deliveries in each second,
//! per second as a whole, and in SECONDS from the tenth second after the first one on; the engine's processor time for each, and its memory. There
//! are as many notifications as it should deliver in so many seconds, and ten more.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use bench::rate::{median, per_second};
use bench::{Finished, Setup, Trial, Workload, WorkloadGuarantee, token};

/// About what two cores deliver at most, notifications a second.
const RATE_MAX: u64 = 500_000;
/// About what one relay takes at most, mails a second.
const MAILS_MAX: u64 = 10_000;
/// The seconds in which a limit is to be found.
const FINDING: usize = 10;
const PATIENCE: Duration = Duration::from_mins(5);

/// The provider of all runs.
#[derive(Debug)]
struct SweptProvider {
    is_mail: bool,
    latency_ms: u64,
    /// `--capacity` of the simulator, each as it is given.
    capacity: Vec<String>,
}

/// One run.
#[derive(Debug, Clone, Copy)]
struct Measured {
    /// Deliveries per second as a whole.
    whole: u64,
    /// The mean of the seconds from [`FINDING`] on.
    found: u64,
    cpu_ns: u64,
    memory_mib: u64,
}

fn main() -> Result<()> {
    let usage = "usage: concurrency_sweep BINARY [mail:]LATENCY_MS[:CAPACITY,...] SECONDS REPETITIONS SETTING...";
    let mut arguments = std::env::args().skip(1);
    let binary = PathBuf::from(arguments.next().context(usage)?);
    let provider = arguments.next().context(usage)?;
    let swept = SweptProvider::parse(&provider).context(usage)?;
    let mut number = || arguments.next().context(usage)?.parse().context(usage);
    let (seconds, repetitions): (u64, u64) = (number()?, number()?);
    let mut settings: Vec<(String, Vec<Measured>)> =
        arguments.map(|setting| (setting, Vec::new())).collect();
    if settings.is_empty() {
        bail!(usage);
    }
    let mut out = std::io::stdout().lock();
    for _ in 0..repetitions {
        for (setting, runs) in &mut settings {
            let run = swept.run(&binary, seconds, setting)?;
            writeln!(out, "{provider}, {setting}: {run:?}")?;
            runs.push(run);
        }
    }
    for (setting, runs) in &settings {
        let middle = |of: fn(&Measured) -> u64| median(&runs.iter().map(of).collect::<Vec<u64>>());
        writeln!(
            out,
            "{provider}, {setting}, medians: {} per second, {} from the tenth on, {}.{} us each, {} MiB",
            middle(|run| run.whole),
            middle(|run| run.found),
            middle(|run| run.cpu_ns) / 1000,
            middle(|run| run.cpu_ns) / 100 % 10,
            middle(|run| run.memory_mib),
        )?;
    }
    Ok(())
}

// === impl SweptProvider ===

impl SweptProvider {
    fn parse(text: &str) -> Result<Self> {
        let (is_mail, rest) = match text.strip_prefix("mail:") {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (latency, capacity) = rest.split_once(':').unwrap_or((rest, ""));
        let capacity = capacity.split(',').filter(|step| !step.is_empty()).map(str::to_owned);
        Ok(Self { is_mail, latency_ms: latency.parse()?, capacity: capacity.collect() })
    }

    fn simulator_flags(&self) -> Vec<String> {
        let mut flags = vec!["--latency".to_owned(), format!("{}ms", self.latency_ms)];
        if self.is_mail {
            flags.extend(["--smtp", "127.0.0.1:0"].map(str::to_owned));
        }
        flags.extend(self.capacity.iter().flat_map(|step| ["--capacity".to_owned(), step.clone()]));
        flags
    }

    /// Notifications a second that could be delivered at most with `setting`.
    fn rate_max(&self, setting: &str) -> u64 {
        let by_places = |places: u64| 1000 * places / self.latency_ms.max(1);
        let of_setting = setting.parse().map_or(u64::MAX, |limit: u64| by_places(limit));
        let counts = self.capacity.iter().filter_map(|step| step.split('@').next()?.parse().ok());
        let of_capacity = counts.max().map_or(u64::MAX, by_places);
        let of_machine = if self.is_mail { MAILS_MAX } else { RATE_MAX };
        of_machine.min(of_setting).min(of_capacity)
    }

    fn run(&self, binary: &Path, seconds: u64, setting: &str) -> Result<Measured> {
        let directory = tempfile::tempdir()?;
        let mut engine_settings = Vec::new();
        let names: &[_] = if self.is_mail {
            &["MAIL__CONCURRENCY", "MAIL__CONNECTIONS_MAX"]
        } else {
            &["IOS__CONCURRENCY"]
        };
        for name in names {
            // A mail takes a connection of its own: those of a fixed number are as many, and what is learned has all that there may be.
            let is_bound = name.ends_with("MAX") && setting == "auto";
            let value = if is_bound { "1000" } else { setting };
            engine_settings.push((format!("BELFRY__CHANNELS__{name}"), value.to_owned()));
        }
        let trial = Trial::start(Setup {
            binary: binary.to_owned(),
            directory: directory.path().to_owned(),
            engine_settings,
            simulator_flags: self.simulator_flags(),
        })?;
        let tokens = self.rate_max(setting) * (seconds + FINDING as u64);
        if self.is_mail {
            trial.submit((0..tokens).map(mail))?;
        } else {
            trial.broadcast(
                0..tokens,
                r#"{"aps":{"alert":"news"}}"#,
                WorkloadGuarantee::AtLeastOnce,
            )?;
        }
        trial.drain(PATIENCE, || Ok(()))?;
        let Finished { books, engine, .. } =
            trial.finish(&Workload { tokens, webhooks: Vec::new() })?;
        let tally = books.tally();
        ensure!(tally.accepted == tokens && tally.duplicates == 0, "{tally:?}");
        let rates = per_second(&tally.accepted_at_us);
        let end = usize::try_from(seconds)?.saturating_add(FINDING).min(rates.len() - 1);
        let found = rates.get(FINDING..end).unwrap_or_default();
        writeln!(std::io::stdout(), "{setting}, in each second: {rates:?}")?;
        ensure!(!found.is_empty(), "it was over within {FINDING} s: {rates:?}");
        Ok(Measured {
            whole: tokens / (rates.len() as u64).max(1),
            found: found.iter().sum::<u64>() / found.len() as u64,
            cpu_ns: u64::try_from(engine.cpu.as_nanos())? / tokens,
            memory_mib: engine.memory_bytes_max >> 20,
        })
    }
}

/// A mail as a line of an import.
fn mail(number: u64) -> String {
    let local = token(number);
    format!(
        r#"{{"channel":"mail","to":"{local}@example.net","content":{{"subject":"news","text":"news"}}}}"#
    )
}
