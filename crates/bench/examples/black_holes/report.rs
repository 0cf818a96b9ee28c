//! Report of a phase.

use std::io::Write as _;
use std::time::Duration;

use anyhow::Result;
use bench::Usage;
use tokio::time::Instant;

use crate::load::Posted;

/// The measurements of a phase.
#[derive(Debug)]
pub(crate) struct Phase {
    pub(crate) name: &'static str,
    pub(crate) posted: Posted,
    /// From a POST to the arrival; `None` where there was none.
    pub(crate) latencies: Vec<Option<Duration>>,
    /// Arrivals of what had arrived before.
    pub(crate) repeated: u64,
    pub(crate) growth: Growth,
    /// They are not where nothing listens.
    pub(crate) attempts_are_counted: bool,
}

/// The state of what is counted, at one time.
#[derive(Debug)]
pub(crate) struct Counts {
    pub(crate) at: Instant,
    /// At each dead endpoint.
    pub(crate) attempts: Vec<u64>,
    /// Of the engine.
    pub(crate) usage: Usage,
    pub(crate) files: usize,
}

/// The difference between two counts.
#[derive(Debug)]
pub(crate) struct Growth {
    time: Duration,
    attempts: Vec<u64>,
    cpu: Duration,
    /// Of the engine at the end, as its open files.
    usage: Usage,
    files: usize,
}

/// Sorted times; what never came is longer than everything.
struct Times(Vec<Option<Duration>>);

// === impl Phase ===

impl Phase {
    /// Prints it, beside the phase without dead endpoints.
    pub(crate) fn show(&self, quiet: Option<&Self>) -> Result<()> {
        let Posted { sent, refused, late } = &self.posted;
        let arrivals = Times::new(self.latencies.iter().copied());
        let answers = Times::new(sent.iter().map(|sent| Some(sent.answered)));
        let (count, repeated) = (sent.len(), self.repeated);
        let arrived = self.latencies.iter().flatten().count();
        let missing = count - arrived;
        say(&format!(
            "{}: posted {count} (refused {refused}, up to {late:.1?} late), arrived {arrived}, not arrived {missing}, \
             again {repeated}",
            self.name
        ))?;
        say(&format!("  POST to its answer   {}", answers.describe()))?;
        let ratio = quiet.map(|quiet| {
            let quiet = Times::new(quiet.latencies.iter().copied());
            match (arrivals.at(99), quiet.at(99)) {
                (Some(now), Some(quiet)) => {
                    format!(
                        "; p99 {:.2} times that of quiet",
                        now.as_secs_f64() / quiet.as_secs_f64()
                    )
                }
                _ => String::new(),
            }
        });
        say(&format!(
            "  POST to its arrival  {}{}",
            arrivals.describe(),
            ratio.unwrap_or_default()
        ))?;
        self.show_attempts()?;
        let Growth { cpu, usage, files, .. } = &self.growth;
        say(&format!(
            "  engine: {cpu:.1?} of CPU, {} MiB (at most {}), {files} files open",
            usage.memory_bytes >> 20,
            usage.memory_bytes_max >> 20,
        ))
    }

    fn show_attempts(&self) -> Result<()> {
        if !self.attempts_are_counted {
            return say("  attempts at dead endpoints: not counted, nothing listens there");
        }
        let Growth { time, attempts, .. } = &self.growth;
        let (all, most) =
            (attempts.iter().sum(), attempts.iter().max().copied().unwrap_or_default());
        let attempted = attempts.iter().filter(|count| **count > 0).count();
        let a_minute = |count: u64| {
            // Far fewer than 2^32 attempts fit in a phase.
            f64::from(u32::try_from(count).unwrap_or(u32::MAX)) * 60.0 / time.as_secs_f64()
        };
        say(&format!(
            "  attempts at dead endpoints in {time:.1?}: {all} at {attempted} of {} ({:.0} a minute), at one at most {} \
             ({:.1} a minute)",
            attempts.len(),
            a_minute(all),
            most,
            a_minute(most),
        ))
    }
}

// === impl Counts ===

impl Counts {
    /// The difference to an earlier one.
    pub(crate) fn since(self, earlier: &Self) -> Growth {
        let attempts = self.attempts.iter().zip(&earlier.attempts);
        Growth {
            time: self.at.duration_since(earlier.at),
            attempts: attempts.map(|(now, then)| now - then).collect(),
            cpu: self.usage.cpu.saturating_sub(earlier.usage.cpu),
            usage: self.usage,
            files: self.files,
        }
    }
}

// === impl Times ===

impl Times {
    fn new(times: impl Iterator<Item = Option<Duration>>) -> Self {
        let mut times: Vec<_> = times.collect();
        times.sort_unstable_by_key(|time| time.unwrap_or(Duration::MAX));
        Self(times)
    }

    /// `None` when it never came, or there are none.
    fn at(&self, percent: usize) -> Option<Duration> {
        self.0.get(self.0.len().saturating_sub(1) * percent / 100).copied().flatten()
    }

    fn describe(&self) -> String {
        let show = |percent| match self.at(percent) {
            Some(time) => format!("{:.2} ms", time.as_secs_f64() * 1e3),
            None => "never".to_owned(),
        };
        format!("p50 {}, p99 {}, max {}", show(50), show(99), show(100))
    }
}

/// Prints a line.
pub(crate) fn say(line: &str) -> Result<()> {
    Ok(writeln!(std::io::stdout(), "{line}")?)
}
