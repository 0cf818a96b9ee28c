//! The machines, connections, partitions, memory and disk that a target needs, from costs that `belfry bench` has measured.
//!
//! The model is one of sums. A notification costs processor time in the engine, the store, the broker and, on a test machine, the provider;
//! a processor has a second of it each second. What a rate and a latency hold in flight is their product (J. D. C. Little, 1961), and
//! that takes connections and memory. No machine comes to use all of its processors: the part that `consumers` came to is taken for
//! all there is. The model knows nothing of queues, so it is for rates below what a machine can do: it plans
//! for [`PlanTarget::load`] of each processor.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::report::{Point, RowReport};

/// A rate to be delivered, and the circumstances.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanTarget {
    /// Notifications a second.
    pub rate: f64,
    /// From a request to the provider's answer.
    pub latency: Duration,
    /// A setting of the row `consumers`: `PostgreSQL + RabbitMQ`.
    pub deployment: String,
    /// A setting of the row `channels`: `APNs`.
    pub channel: String,
    /// True if each notification has a content of its own; false for a broadcast.
    pub has_own_content: bool,
    /// True if the provider's own work is done on the same machines, as in a test.
    pub has_provider: bool,
    /// Processors of a machine.
    pub cores: f64,
    /// The part of its processors that is to be used, above 0 and at most 1.
    pub load: f64,
    /// Requests that a connection has under way: the streams that a provider grants, or 1 without HTTP/2.
    pub streams: f64,
    /// Notifications that wait at most, for the disk.
    pub backlog: f64,
}

/// The needs of a target.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CapacityPlan {
    /// Machines, each with the processors of the target.
    pub machines: u64,
    /// Processors that each part uses at the rate, by name, the greatest first.
    pub cores_used: Vec<(String, f64)>,
    /// Deliveries of one machine with all of its processors, a minute.
    pub per_minute_of_a_machine: f64,
    /// Requests under way.
    pub in_flight: f64,
    /// Connections to the provider, over all machines.
    pub connections: u64,
    /// Partitions of the store, which no two workers share: no more machines than this can deliver. None with the embedded store.
    pub partitions: Option<u64>,
    /// Of the engines, bytes, over all machines.
    pub memory_bytes: f64,
    /// Of the backlog, bytes.
    pub disk_bytes: f64,
    /// The part that is used up first when the rate rises.
    pub bottleneck: String,
}

/// A report that the plan needs is missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unmeasured {
    row: &'static str,
    setting: String,
}

/// Partitions of PostgreSQL, as the store has them.
const PARTITIONS: u64 = 64;
/// The embedded store, which one machine has for itself.
const EMBEDDED: &str = "embedded store";
/// Settings of the row `e2e` between which the cost of a latency lies.
const AT_ONCE: &str = "0 ms";
const FAR: (&str, f64) = ("300 ms", 0.3);

impl CapacityPlan {
    /// The plan for `target` by the costs in `reports`.
    ///
    /// # Errors
    /// When a row that it needs was not measured.
    pub fn new(target: &PlanTarget, reports: &[RowReport]) -> Result<Self, Unmeasured> {
        let costs = Costs { reports };
        let cores_used = costs.cores_used(target)?;
        let used: f64 = cores_used.iter().map(|(_, cores)| cores).sum();
        let in_flight = target.rate * target.latency.as_secs_f64();
        // Processors that a machine comes to use.
        let reached = target.cores * costs.reached(target)?;
        let machines = (used / (reached * target.load)).ceil().max(1.0);
        let connections = (in_flight / target.streams).ceil().max(machines);
        let partitions = (target.deployment != EMBEDDED).then_some(PARTITIONS);
        let most = partitions.unwrap_or(1);
        let first = cores_used.first().map_or("nothing", |(name, _)| name.as_str());
        let bottleneck = if whole(machines) > most {
            let place =
                if most == 1 { "the embedded store is of one machine" } else { "partitions" };
            format!("{place}: {machines:.0} machines are needed, {most} can share the work")
        } else {
            format!("processors, of which {first} uses the most")
        };
        Ok(Self {
            machines: whole(machines),
            per_minute_of_a_machine: 60.0 * target.rate * reached / used,
            cores_used,
            in_flight,
            connections: whole(connections),
            partitions,
            memory_bytes: costs.memory(target, machines, in_flight)?,
            disk_bytes: target.backlog * costs.disk()?,
            bottleneck,
        })
    }
}

/// Costs of one notification.
#[derive(Debug, Clone, Copy)]
struct Costs<'a> {
    reports: &'a [RowReport],
}

impl<'a> Costs<'a> {
    fn newest(self, row: &str) -> Option<&'a RowReport> {
        let reports = self.reports.iter().filter(|report| report.row == row);
        reports.max_by(|one, other| one.taken_at.cmp(&other.taken_at))
    }

    /// The newest measurement of `setting` in `row`.
    fn point(self, row: &'static str, setting: &str) -> Result<&'a Point, Unmeasured> {
        let points = self.newest(row).into_iter().flat_map(|report| &report.points);
        let found = points.into_iter().find(|point| point.setting == setting);
        found.ok_or_else(|| Unmeasured { row, setting: setting.to_owned() })
    }

    fn cpu_us(self, row: &'static str, setting: &str) -> Result<f64, Unmeasured> {
        let cpu = self.point(row, setting)?.cpu_us_per_item;
        cpu.ok_or_else(|| Unmeasured { row, setting: setting.to_owned() })
    }

    /// Processors that each part uses at the rate, the greatest first.
    fn cores_used(self, target: &PlanTarget) -> Result<Vec<(String, f64)>, Unmeasured> {
        let deployment = self.point("consumers", &target.deployment)?;
        let mut engine_us = self.cpu_us("consumers", &target.deployment)?;
        if target.channel != "APNs" || target.has_own_content {
            // Beside what the broadcast of the row costs.
            engine_us += self.cpu_us("channels", &target.channel)? - self.cpu_us("e2e", AT_ONCE)?;
        }
        let (far, far_seconds) = FAR;
        let part = (target.latency.as_secs_f64() / far_seconds).min(1.0);
        let dearer = self.cpu_us("e2e", far)? - self.cpu_us("e2e", AT_ONCE)?;
        engine_us += (part * dearer).max(0.0);
        let servers = deployment.servers_cpu_us_per_item.iter().cloned();
        let mut cores: Vec<(String, f64)> = std::iter::once(("the engines".to_owned(), engine_us))
            .chain(servers.filter(|(name, _)| name != "provider" || target.has_provider))
            .map(|(name, us)| (name, us * target.rate / 1e6))
            .collect();
        cores.sort_unstable_by(|one, other| other.1.total_cmp(&one.1));
        Ok(cores)
    }

    /// The part of its processors that the machine came to use in the row `consumers`, above 0 and at most 1.
    fn reached(self, target: &PlanTarget) -> Result<f64, Unmeasured> {
        let point = self.point("consumers", &target.deployment)?;
        let engines = self.cpu_us("consumers", &target.deployment)?;
        let servers: f64 = point.servers_cpu_us_per_item.iter().map(|(_, us)| us).sum();
        let used = (engines + servers) / 1e6 * point.figure.value() / 60.0;
        let cores = self.newest("consumers").map_or(1, |report| report.machine.cores);
        let cores = u32::try_from(cores).map_or(1.0, f64::from);
        Ok((used / cores).clamp(0.1, 1.0))
    }

    /// Of the engines: what each has by itself, and what is under way.
    fn memory(self, target: &PlanTarget, machines: f64, in_flight: f64) -> Result<f64, Unmeasured> {
        let of = |setting: &str| {
            let point = self.point("e2e", setting)?;
            let bytes = point.memory_bytes_max.and_then(|bytes| u32::try_from(bytes >> 10).ok());
            Ok::<_, Unmeasured>((
                1024.0 * bytes.map_or(0.0, f64::from),
                point.figure.value() / 60.0,
            ))
        };
        let ((at_once, _), (far, rate)) = (of(AT_ONCE)?, of(FAR.0)?);
        let each = ((far - at_once) / (rate * FAR.1)).max(0.0);
        let own = self.point("consumers", &target.deployment)?.memory_bytes_max;
        let own = own.and_then(|bytes| u32::try_from(bytes >> 10).ok()).map_or(0.0, f64::from);
        Ok(machines * 1024.0 * own.max(at_once / 1024.0) + each * in_flight)
    }

    fn disk(self) -> Result<f64, Unmeasured> {
        let row = "e2e-pending";
        let bytes = self.newest(row).and_then(|report| report.points.first()?.disk_bytes_per_item);
        bytes.ok_or_else(|| Unmeasured { row, setting: "a backlog".to_owned() })
    }
}

// === impl Unmeasured ===

impl fmt::Display for Unmeasured {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { row, setting } = self;
        let name = row.split('-').next().unwrap_or(row);
        write!(formatter, "`{setting}` was not measured here: run `belfry bench {name}` first")
    }
}

impl std::error::Error for Unmeasured {}

/// A count that was computed, at least 0.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a number of machines or connections is small and positive"
)]
fn whole(count: f64) -> u64 {
    count.max(0.0) as u64
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
