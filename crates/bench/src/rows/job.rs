//! The job that most rows do: one broadcast through one engine with the embedded store, to a local APNs provider.

use std::time::Duration;

use anyhow::Result;

use super::{Bench, PATIENCE};
use crate::rate::between;
use crate::report::{Point, Unit, median};
use crate::tally::Tally;
use crate::trial::{Setup, Trial};
use crate::usage::{Usage, caller_cpu};
use crate::workload::{Workload, WorkloadGuarantee};

/// A broadcast, and the settings that it is sent with.
#[derive(Debug, Clone, Default)]
pub struct BroadcastJob {
    /// Device tokens.
    pub tokens: u64,
    /// Device tokens of a broadcast before, which is not counted: connections are open then, and the limit is learned.
    pub warm_up: u64,
    /// `concurrency` of the channel; none for `auto`.
    pub concurrency: Option<u64>,
    /// Latency of the provider.
    pub latency: Duration,
}

/// The figures of one broadcast, counted in the provider's journal.
#[derive(Debug, Clone, PartialEq)]
pub struct BroadcastResult {
    /// From the request to the last acceptance, seconds.
    pub seconds: f64,
    /// From the request until nine of ten were accepted, seconds.
    pub seconds_to_90: f64,
    /// From the first to the last acceptance, a minute.
    pub per_minute: f64,
    /// From the request to the last acceptance, a minute: what it takes to take it in counts.
    pub per_minute_from_request: f64,
    /// Of the engine.
    pub cpu_us: f64,
    /// Processor time of the provider, microseconds for each.
    pub provider_us: f64,
    /// Of the harness and the commands by which it calls.
    pub caller_us: f64,
    /// Of the engine, the peak.
    pub memory_bytes_max: u64,
    /// Recipients that the provider never accepted.
    pub lost: u64,
    /// Acceptances beyond the first.
    pub duplicated: u64,
}

/// Processor time and memory that an engine and those beside it have used so far.
#[derive(Debug, Clone, Copy)]
pub struct JobUsage {
    engine: Usage,
    provider: Duration,
    caller: Duration,
}

const CONTENT: &str = r#"{"aps":{"alert":"breaking news"}}"#;

// === impl BroadcastJob ===

impl BroadcastJob {
    /// Does it once.
    ///
    /// # Errors
    /// When a process does not run, or the job does not end.
    pub fn run(&self, bench: &Bench) -> Result<BroadcastResult> {
        let directory = bench.directory()?;
        let latency = format!("{}ms", self.latency.as_millis());
        let mut setup = Setup::new(bench.binary(), directory.path(), &["--latency", &latency]);
        if let Some(places) = self.concurrency {
            let name = "BELFRY__CHANNELS__IOS__CONCURRENCY".to_owned();
            setup.engine_settings.push((name, places.to_string()));
        }
        self.run_on(&Trial::start(setup)?, 0)
    }

    /// Does it on an engine that runs, to the recipients from the number `first` on; its settings and the provider are what they are.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_on(&self, trial: &Trial, first: u64) -> Result<BroadcastResult> {
        let start = first + self.warm_up;
        let end = start + self.tokens;
        if self.warm_up > 0 {
            trial.broadcast(first..start, CONTENT, WorkloadGuarantee::AtLeastOnce)?;
            trial.drain(PATIENCE, || Ok(()))?;
        }
        let before = JobUsage::of(trial)?;
        let asked_us = u64::try_from(flow::Clock::system().wall().as_micros())?;
        trial.broadcast(start..end, CONTENT, WorkloadGuarantee::AtLeastOnce)?;
        trial.drain(PATIENCE, || Ok(()))?;
        let after = JobUsage::of(trial)?;
        let books = trial.books(&Workload { tokens: end, webhooks: Vec::new() })?;
        let whole = books.tally_of(first..end);
        Ok(BroadcastResult {
            lost: whole.missing + whole.refused,
            duplicated: whole.duplicates,
            ..BroadcastResult::of(&books.tally_of(start..end), asked_us, self.tokens, before, after)
        })
    }

    /// Does it as often as the row wants.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn point(&self, bench: &Bench, unit: Unit) -> Result<Point> {
        let setting =
            self.concurrency.map_or_else(|| "auto".to_owned(), |places| places.to_string());
        let mut runs = Vec::new();
        for run in 1..=bench.repetitions {
            let latency = self.latency.as_millis();
            bench.say(format!(
                "{setting}: {} to a provider that takes {latency} ms, run {run}",
                self.tokens
            ));
            runs.push(self.run(bench)?);
        }
        Ok(BroadcastResult::to_point(&runs, setting, self.concurrency, unit))
    }
}

// === impl BroadcastResult ===

impl BroadcastResult {
    /// Of `count` notifications that were asked for at `asked_us`, microseconds since the Unix epoch, by an engine that had used
    /// `before` then, and has used `after`.
    pub fn of(tally: &Tally, asked_us: u64, count: u64, before: JobUsage, after: JobUsage) -> Self {
        let by = |share| tally.accepted_by_us(share).unwrap_or(asked_us).saturating_sub(asked_us);
        let each = |before: Duration, after: Duration| {
            after.saturating_sub(before).as_secs_f64() * 1e6 / as_float(count.max(1))
        };
        Self {
            seconds: seconds(by(1.0)),
            seconds_to_90: seconds(by(0.9)),
            per_minute: 60.0 * between(&tally.accepted_at_us, 0.0, 1.0),
            per_minute_from_request: 60.0 * as_float(count) / seconds(by(1.0).max(1)),
            cpu_us: each(before.engine.cpu, after.engine.cpu),
            provider_us: each(before.provider, after.provider),
            caller_us: each(before.caller, after.caller),
            memory_bytes_max: after.engine.memory_bytes_max,
            lost: tally.missing + tally.refused,
            duplicated: tally.duplicates,
        }
    }

    /// The point of several runs.
    pub fn to_point(runs: &[Self], setting: String, parallel: Option<u64>, unit: Unit) -> Point {
        let of = |value: fn(&Self) -> f64| runs.iter().map(value).collect::<Vec<f64>>();
        let figures = match unit {
            Unit::PerMinute => of(|run| run.per_minute),
            Unit::Seconds | Unit::MsPerOp => of(|run| run.seconds),
        };
        let servers = [
            ("provider", median(&of(|run| run.provider_us))),
            ("caller", median(&of(|run| run.caller_us))),
        ];
        let from_request =
            (unit == Unit::PerMinute).then(|| median(&of(|run| run.per_minute_from_request)));
        Point {
            parallel: parallel.map(as_float),
            per_minute_from_request: from_request,
            cpu_us_per_item: Some(median(&of(|run| run.cpu_us))),
            servers_cpu_us_per_item: servers.map(|(name, us)| (name.to_owned(), us)).into(),
            memory_bytes_max: runs.iter().map(|run| run.memory_bytes_max).max(),
            lost: runs.iter().map(|run| run.lost).sum(),
            duplicated: runs.iter().map(|run| run.duplicated).sum(),
            ..Point::of_runs(setting, unit, &figures)
        }
    }
}

// === impl JobUsage ===

impl JobUsage {
    /// Of `trial`, and of this process.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub fn of(trial: &Trial) -> Result<Self> {
        Ok(Self {
            engine: trial.engine().usage()?,
            provider: trial.simulator().usage()?.cpu,
            caller: caller_cpu()?,
        })
    }
}

fn seconds(micros: u64) -> f64 {
    Duration::from_micros(micros).as_secs_f64()
}

#[expect(clippy::cast_precision_loss, reason = "counts of millions fit a double")]
pub(super) fn as_float(count: u64) -> f64 {
    count as f64
}
