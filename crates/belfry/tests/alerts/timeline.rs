//! Metrics of processes on a time axis, and promtool's judgement of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::process::Command;
use std::time::Duration;

use flow::Clock;
use serde_json::{Value, json};

/// The rules as they are shipped.
pub(crate) const RULES: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/prometheus/belfry.rules.yml");

/// The series that Prometheus would have of some processes: a sample of each a minute.
///
/// A scrape stands for all those of some minutes in which nothing changes. Instants, which metrics tell as Unix times, keep their
/// distance from the time of their scrape: the axis begins in 1970.
pub(crate) struct Timeline {
    rules: String,
    clock: Clock,
    /// By name and labels.
    series: BTreeMap<String, Vec<Sample>>,
    /// Its length.
    minutes: usize,
    checks: Vec<Check>,
}

/// One target of a scrape: its name, and its metrics if it answers.
pub(crate) type Scraped = (&'static str, Option<String>);

#[derive(Debug, Clone, PartialEq)]
enum Sample {
    Value(f64),
    /// It was there a minute before.
    Stale,
    Missing,
}

/// The alerts that are firing at a time.
struct Check {
    phase: &'static str,
    minute: usize,
    alerts: BTreeSet<&'static str>,
}

// === impl Timeline ===

impl Timeline {
    pub(crate) fn new() -> Self {
        let rules = std::fs::read_to_string(RULES).unwrap();
        let (series, checks) = (BTreeMap::new(), Vec::new());
        Self { rules, clock: Clock::system(), series, minutes: 0, checks }
    }

    /// Has things stay for `minutes` as `scraped` tells them.
    pub(crate) fn hold(&mut self, minutes: usize, scraped: &[Scraped]) {
        let mut now = BTreeMap::new();
        for (instance, metrics) in scraped {
            let target = format!("job=\"belfry\",instance=\"{instance}\"");
            now.insert(format!("up{{{target}}}"), f64::from(u8::from(metrics.is_some())));
            for line in metrics.iter().flat_map(|metrics| metrics.lines()) {
                now.extend(self.sample(line, &target));
            }
        }
        for (name, samples) in &mut self.series {
            let (first, rest) = match (now.remove(name), samples.last()) {
                (Some(value), _) => (Sample::Value(value), Sample::Value(value)),
                (None, Some(Sample::Value(_))) => (Sample::Stale, Sample::Missing),
                (None, _) => (Sample::Missing, Sample::Missing),
            };
            samples.push(first);
            samples.resize(self.minutes + minutes, rest);
        }
        for (name, value) in now {
            let mut samples = vec![Sample::Missing; self.minutes];
            samples.resize(self.minutes + minutes, Sample::Value(value));
            self.series.insert(name, samples);
        }
        self.minutes += minutes;
    }

    /// [Holds](Self::hold) what `scraped` tells, and says which alerts are firing at the end of it.
    pub(crate) fn phase(
        &mut self,
        phase: &'static str,
        minutes: usize,
        scraped: &[Scraped],
        alerts: &[&'static str],
    ) {
        self.hold(minutes, scraped);
        let alerts = alerts.iter().copied().collect();
        self.checks.push(Check { phase, minute: self.minutes - 1, alerts });
    }

    /// The series and the value of a line of metrics of `target`, if a rule looks at it.
    fn sample(&self, line: &str, target: &str) -> Option<(String, f64)> {
        let (series, value) = line.rsplit_once(' ').filter(|_| !line.starts_with('#'))?;
        let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
        if !self.rules.contains(name) {
            return None;
        }
        let separator = if labels == "}" { "" } else { "," };
        let series = format!("{name}{{{target}{separator}{labels}");
        let value: f64 = value.parse().unwrap();
        let is_instant = name.ends_with("_timestamp_seconds") || name.contains("_not_after_");
        let axis = Duration::from_secs(60 * self.minutes as u64).as_secs_f64();
        let since = if is_instant { self.clock.wall().as_secs_f64() - axis } else { 0.0 };
        Some((series, value - since))
    }

    /// Has promtool judge all of it. The phases together fire `alerts`, each of them.
    pub(crate) fn judge(self, alerts: &[&str]) {
        let fired: BTreeSet<&str> =
            self.checks.iter().flat_map(|check| &check.alerts).copied().collect();
        assert_eq!(fired, alerts.iter().copied().collect());
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("alerts.test.yml");
        // JSON is YAML.
        std::fs::write(&file, self.as_test().to_string()).unwrap();
        let promtool = testbed::promtool::program().unwrap();
        let output = Command::new(promtool).args(["test", "rules"]).arg(&file).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(output.status.success(), "{said}\n{}", self.ends());
    }

    /// The end of each phase.
    fn ends(&self) -> String {
        let mut ends = String::new();
        for Check { phase, minute, .. } in &self.checks {
            writeln!(ends, "{minute}m: {phase}").unwrap();
        }
        ends
    }

    fn as_test(&self) -> Value {
        let series: Vec<Value> = self
            .series
            .iter()
            .map(|(name, samples)| json!({ "series": name, "values": notation(samples) }))
            .collect();
        let checks: Vec<Value> = self.checks.iter().map(Check::as_test).collect();
        let test = json!({
            "interval": "1m", "input_series": series, "promql_expr_test": checks,
        });
        json!({ "rule_files": [RULES], "evaluation_interval": "1m", "tests": [test] })
    }
}

// === impl Check ===

impl Check {
    fn as_test(&self) -> Value {
        let alerts: Vec<Value> = self
            .alerts
            .iter()
            .map(|alert| json!({ "labels": format!("{{alertname=\"{alert}\"}}"), "value": 1 }))
            .collect();
        json!({
            "expr": "group by (alertname) (ALERTS{alertstate=\"firing\"})",
            "eval_time": format!("{}m", self.minute),
            "exp_samples": alerts,
        })
    }
}

/// Samples as promtool reads them.
fn notation(samples: &[Sample]) -> String {
    let mut text = String::new();
    for run in samples.chunk_by(|one, next| one == next) {
        let length = run.len();
        match run.first().unwrap() {
            Sample::Value(value) if length > 1 => write!(text, "{value}x{} ", length - 1).unwrap(),
            Sample::Value(value) => write!(text, "{value} ").unwrap(),
            Sample::Stale => text.push_str("stale "),
            Sample::Missing => write!(text, "_x{length} ").unwrap(),
        }
    }
    text
}
