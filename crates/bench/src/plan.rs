//! The machines, connections, partitions, memory and disk that a target needs, from costs that `belfry bench` has measured.
//!
//! The model is one of sums. A notification costs processor time in the engine, the store, the broker and, on a test machine, the provider
//! and the caller; a processor has a second of it each second. What a rate and a latency hold in flight is their product (J. D. C. Little,
//! 1961), and that takes connections and memory. No machine comes to use all of its processors: the part that `consumers` came to is taken
//! for all there is. The model knows nothing of queues, so it is for rates below what a machine can do: it plans for [`PlanTarget::load`]
//! of each processor.
//!
//! A notification does not cost the same on any number of processors: a broker in a virtual machine of its own has threads that
//! compete with everything else where there is one processor. So the costs are those of the measurement of `consumers` whose number of
//! processors is the nearest, and [`CapacityPlan::measured_cores`] says which that was. [`check`] compares plans with measured rates.

mod check;
mod costs;

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::report::RowReport;
use costs::{Costs, MachineCosts};

pub use check::{PlanCheck, check};

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
    /// True if the work of the provider and of the caller is done on the same machines, as in a test.
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
    /// Processors of the machine whose costs these are.
    pub measured_cores: usize,
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

impl CapacityPlan {
    /// The plan for `target` by the costs in `reports`.
    ///
    /// # Errors
    /// When a row that it needs was not measured.
    pub fn new(target: &PlanTarget, reports: &[RowReport]) -> Result<Self, Unmeasured> {
        let costs = Costs { reports };
        let machine = costs.machine(target)?;
        let (used, reached) = (machine.used(), machine.reached);
        let MachineCosts { cores_used, measured_cores, .. } = machine;
        let in_flight = target.rate * target.latency.as_secs_f64();
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
            measured_cores,
        })
    }
}

// === impl Unmeasured ===

impl Unmeasured {
    fn new(row: &'static str, setting: &str) -> Self {
        Self { row, setting: setting.to_owned() }
    }
}

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
