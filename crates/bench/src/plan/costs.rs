//! The costs of a notification, found in reports.

use std::time::Duration;

use super::{PlanTarget, Unmeasured};
use crate::report::{Point, RowReport};

/// The reports that costs are taken from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Costs<'a> {
    pub(super) reports: &'a [RowReport],
}

/// A target's use of processors.
#[derive(Debug, Clone)]
pub(super) struct MachineCosts {
    /// Processors that each part uses at the rate, the greatest first.
    pub(super) cores_used: Vec<(String, f64)>,
    /// Processors that a machine comes to use.
    pub(super) reached: f64,
    /// Processors of the machine that the costs are of.
    pub(super) measured_cores: usize,
}

/// The row, and the same with everything on one processor.
pub(super) const CONSUMERS: [&str; 2] = ["consumers", "consumers-one"];
pub(super) const ENGINES: &str = "the engines";
/// Servers of a measurement that are not of a deployment: they stand for others.
const OTHERS: [&str; 2] = ["provider", "caller"];
/// Setting of the row `e2e`: the job of `consumers`, by the provider of `channels`.
const AT_ONCE: &str = "0 ms";
/// Setting of it by which memory for what is in flight is known, and the seconds that it names.
const FAR: (&str, f64) = ("300 ms", 0.3);

// === impl Costs ===

impl<'a> Costs<'a> {
    pub(super) fn newest(self, row: &str) -> Option<&'a RowReport> {
        let reports = self.reports.iter().filter(|report| report.row == row);
        reports.max_by(|one, other| one.taken_at.cmp(&other.taken_at))
    }

    /// Processors, and the part of them, that the target uses.
    ///
    /// # Errors
    /// When a row that it needs was not measured.
    pub(super) fn machine(self, target: &PlanTarget) -> Result<MachineCosts, Unmeasured> {
        let (report, deployment) = self.deployment(target)?;
        let of_deployment = |name: &str| part_us(deployment, name);
        let engines = of_deployment(ENGINES)
            .ok_or_else(|| Unmeasured::new(CONSUMERS[0], &target.deployment))?;
        let servers = deployment.servers_cpu_us_per_item.iter().cloned();
        let parts: Vec<(String, f64)> =
            std::iter::once((ENGINES.to_owned(), engines)).chain(servers).collect();
        let all: f64 = parts.iter().map(|(_, us)| us).sum();
        let used = all / 1e6 * deployment.figure.value() / 60.0;
        let measured = u32::try_from(report.machine.cores).map_or(1.0, f64::from);
        let mut cores_used = Vec::new();
        for (name, us) in parts {
            let is_other = OTHERS.contains(&name.as_str());
            if is_other && !target.has_provider {
                continue;
            }
            let more = if is_other || name == ENGINES { self.more_us(target, &name)? } else { 0.0 };
            cores_used.push((name, (us + more).max(0.0) * target.rate / 1e6));
        }
        cores_used.sort_unstable_by(|one, other| other.1.total_cmp(&one.1));
        Ok(MachineCosts {
            cores_used,
            reached: target.cores * (used / measured).clamp(0.1, 1.0),
            measured_cores: report.machine.cores,
        })
    }

    /// Of the engines: what each has by itself, and what is under way.
    pub(super) fn memory(
        self,
        target: &PlanTarget,
        machines: f64,
        in_flight: f64,
    ) -> Result<f64, Unmeasured> {
        let of = |setting: &str| {
            let point = self.point("e2e", setting)?;
            Ok::<_, Unmeasured>((memory_bytes(point), point.figure.value() / 60.0))
        };
        let ((at_once, _), (far, rate)) = (of(AT_ONCE)?, of(FAR.0)?);
        let each = ((far - at_once) / (rate * FAR.1)).max(0.0);
        let own = memory_bytes(self.deployment(target)?.1);
        Ok(machines * own.max(at_once) + each * in_flight)
    }

    /// Bytes of one that waits.
    pub(super) fn disk(self) -> Result<f64, Unmeasured> {
        let row = "e2e-pending";
        let bytes = self.newest(row).and_then(|report| report.points.first()?.disk_bytes_per_item);
        bytes.ok_or_else(|| Unmeasured::new(row, "a backlog"))
    }

    /// The measurement of the target's deployment with the nearest number of processors, the newest of these.
    fn deployment(self, target: &PlanTarget) -> Result<(&'a RowReport, &'a Point), Unmeasured> {
        let distance = |report: &RowReport| {
            let cores = u32::try_from(report.machine.cores.max(1)).map_or(1.0, f64::from);
            (cores / target.cores).ln().abs()
        };
        let found = self.reports.iter().filter(|report| CONSUMERS.contains(&report.row.as_str()));
        let found = found.filter_map(|report| {
            let mut points = report.points.iter();
            Some((report, points.find(|point| point.setting == target.deployment)?))
        });
        let nearest = found.min_by(|(one, _), (other, _)| {
            let by_distance = distance(one).total_cmp(&distance(other));
            by_distance.then_with(|| other.taken_at.cmp(&one.taken_at))
        });
        nearest.ok_or_else(|| Unmeasured::new(CONSUMERS[0], &target.deployment))
    }

    /// Microseconds that the channel, contents and latency of `target` cost the part `name` beyond the broadcast of `consumers`.
    fn more_us(self, target: &PlanTarget, name: &str) -> Result<f64, Unmeasured> {
        let of = |row, setting: &str| {
            let point = self.point(row, setting)?;
            match part_us(point, name) {
                None if name == ENGINES => Err(Unmeasured::new(row, setting)),
                us => Ok(us),
            }
        };
        let at_once = of("e2e", AT_ONCE)?;
        // A part that was not measured there costs what it does in `consumers`.
        let beyond = |us: Option<f64>| us.zip(at_once).map_or(0.0, |(us, at_once)| us - at_once);
        let has_other_job = target.channel != "APNs" || target.has_own_content;
        let channel = if has_other_job { beyond(of("channels", &target.channel)?) } else { 0.0 };
        Ok(channel + beyond(self.by_latency(target.latency, name)))
    }

    /// Microseconds of the part `name` at `latency`, between the two nearest of the row `e2e`.
    fn by_latency(self, latency: Duration, name: &str) -> Option<f64> {
        let at = latency.as_secs_f64() * 1e3;
        let points = self.newest("e2e").into_iter().flat_map(|report| &report.points);
        let mut points: Vec<(f64, f64)> =
            points.filter_map(|point| Some((latency_ms(point)?, part_us(point, name)?))).collect();
        points.sort_unstable_by(|one, other| one.0.total_cmp(&other.0));
        let below = points.iter().rfind(|(ms, _)| *ms <= at);
        let above = points.iter().find(|(ms, _)| *ms > at);
        match (below, above) {
            (Some((ms, us)), Some((next, dear))) => {
                Some(us + (dear - us) * (at - ms) / (next - ms))
            }
            (one, other) => one.or(other).map(|(_, us)| *us),
        }
    }

    /// The newest measurement of `setting` in `row`.
    fn point(self, row: &'static str, setting: &str) -> Result<&'a Point, Unmeasured> {
        let points = self.newest(row).into_iter().flat_map(|report| &report.points);
        let found = points.into_iter().find(|point| point.setting == setting);
        found.ok_or_else(|| Unmeasured::new(row, setting))
    }
}

// === impl MachineCosts ===

impl MachineCosts {
    /// Processors that all parts use.
    pub(super) fn used(&self) -> f64 {
        self.cores_used.iter().map(|(_, cores)| cores).sum()
    }
}

/// The latency that a point of the row `e2e` is named after.
pub(super) fn latency_ms(point: &Point) -> Option<f64> {
    point.setting.strip_suffix(" ms")?.parse().ok()
}

fn part_us(point: &Point, name: &str) -> Option<f64> {
    if name == ENGINES {
        return point.cpu_us_per_item;
    }
    let mut servers = point.servers_cpu_us_per_item.iter();
    servers.find(|(server, _)| server == name).map(|(_, us)| *us)
}

fn memory_bytes(point: &Point) -> f64 {
    let kib = point.memory_bytes_max.and_then(|bytes| u32::try_from(bytes >> 10).ok());
    1024.0 * kib.map_or(0.0, f64::from)
}
