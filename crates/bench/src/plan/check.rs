//! Plans beside measured rates of configurations that their costs are not taken from.

use std::time::Duration;

use serde::Serialize;

use super::costs::{CONSUMERS, Costs, latency_ms};
use super::{EMBEDDED, PlanTarget, Unmeasured};
use crate::report::RowReport;

/// A configuration, planned and measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PlanCheck {
    /// The configuration.
    pub configuration: String,
    /// Processors that it was measured on.
    pub cores: usize,
    /// Processors of the measurement of `consumers` whose costs were taken.
    pub costs_of_cores: usize,
    /// Deliveries of one machine, a minute.
    pub planned: f64,
    /// Measured, a minute.
    pub measured: f64,
    /// The one to the other: above 1 the plan promises too much.
    pub planned_to_measured: f64,
}

/// Part of the measured rate by which a plan may be off.
const NEAR: f64 = 0.2;

/// Plans what was measured by `e2e`, by `channels`, and by `consumers` on each number of processors from its costs on another.
///
/// # Errors
/// When a row that it needs was not measured.
pub fn check(reports: &[RowReport]) -> Result<Vec<PlanCheck>, Unmeasured> {
    let costs = Costs { reports };
    let e2e = costs.newest("e2e").ok_or_else(|| Unmeasured::new("e2e", "a broadcast"))?;
    let channels = costs.newest("channels");
    let mut checks = Vec::new();
    for point in &e2e.points {
        let Some(ms) = latency_ms(point) else { continue };
        let latency = Duration::from_secs_f64(ms / 1e3);
        let target = PlanTarget { latency, ..target(e2e, EMBEDDED) };
        let name = format!("e2e, {}", point.setting);
        // A broadcast is taken in whole before its first is sent, and the plan counts that, too.
        let measured = point.per_minute_from_request.unwrap_or_else(|| point.figure.value());
        checks.push(compare(costs, &target, name, (e2e, measured))?);
    }
    for (report, point) in
        channels.iter().flat_map(|report| report.points.iter().map(move |it| (*report, it)))
    {
        let channel = point.setting.clone();
        let target = PlanTarget { channel, has_own_content: true, ..target(report, EMBEDDED) };
        let name = format!("channels, {}", point.setting);
        checks.push(compare(costs, &target, name, (report, point.figure.value()))?);
    }
    add_consumers(reports, &mut checks)?;
    Ok(checks)
}

/// Each number of processors by the costs on another, where there is one.
fn add_consumers(reports: &[RowReport], checks: &mut Vec<PlanCheck>) -> Result<(), Unmeasured> {
    let is_consumers = |report: &&RowReport| CONSUMERS.contains(&report.row.as_str());
    for report in reports.iter().filter(is_consumers) {
        let cores = report.machine.cores;
        let mut alike = reports.iter().filter(is_consumers).filter(|it| it.machine.cores == cores);
        if alike.any(|it| it.taken_at > report.taken_at) {
            continue;
        }
        let others = reports.iter().filter(|it| !is_consumers(it) || it.machine.cores != cores);
        let others: Vec<RowReport> = others.cloned().collect();
        if !others.iter().any(|it| is_consumers(&it)) {
            continue;
        }
        for point in &report.points {
            let name = format!("consumers, {}", point.setting);
            let target = target(report, &point.setting);
            let found = (report, point.figure.value());
            match compare(Costs { reports: &others }, &target, name, found) {
                Ok(check) => checks.push(check),
                // A server that was installed for one of them alone.
                Err(unmeasured) if unmeasured.row == CONSUMERS[0] => {}
                Err(unmeasured) => return Err(unmeasured),
            }
        }
    }
    Ok(())
}

fn compare(
    costs: Costs<'_>,
    target: &PlanTarget,
    configuration: String,
    (report, measured): (&RowReport, f64),
) -> Result<PlanCheck, Unmeasured> {
    let machine = costs.machine(target)?;
    let planned = 60.0 * target.rate * machine.reached / machine.used();
    Ok(PlanCheck {
        configuration,
        cores: report.machine.cores,
        costs_of_cores: machine.measured_cores,
        planned,
        measured,
        planned_to_measured: planned / measured,
    })
}

// === impl PlanCheck ===

impl PlanCheck {
    /// True if the plan is off by at most 20 %.
    pub fn is_near(&self) -> bool {
        (self.planned_to_measured - 1.0).abs() <= NEAR
    }
}

/// All of the machine of `report`, on which everything was.
fn target(report: &RowReport, deployment: &str) -> PlanTarget {
    PlanTarget {
        rate: 1.0,
        latency: Duration::ZERO,
        deployment: deployment.to_owned(),
        channel: "APNs".to_owned(),
        has_own_content: false,
        has_provider: true,
        cores: u32::try_from(report.machine.cores).map_or(1.0, f64::from),
        load: 1.0,
        streams: 1.0,
        backlog: 0.0,
    }
}
