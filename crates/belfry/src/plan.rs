//! `belfry plan`: what a rate needs, by the costs that `belfry bench` has measured on this machine.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use bench::plan::{self, CapacityPlan, PlanCheck, PlanTarget, Unmeasured};
use bench::report::number;
use clap::{Args, ValueEnum};

use crate::bench::reports_of;
use crate::config::units::span;
use crate::exit::{CliError, FailureKind};
use crate::output;

/// The target.
#[derive(Debug, Clone, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(crate) struct PlanArgs {
    /// Notifications to deliver, in a second, a minute or an hour: `100k/s`, `5M/min`, `2M/h`
    #[arg(long, value_name = "RATE", value_parser = rate, required_unless_present = "check")]
    rate: Option<f64>,

    /// Print plans beside what was measured, for each configuration that their costs are not taken from
    #[arg(long, conflicts_with_all = ["rate", "latency", "deployment", "channel", "cores"])]
    check: bool,

    /// How long the provider takes for an answer
    #[arg(long, value_name = "DURATION", default_value = "80ms", value_parser = span)]
    latency: Duration,

    /// The store, and the broker if there is one
    #[arg(long, value_name = "DEPLOYMENT", default_value = "embedded")]
    deployment: PlannedDeployment,

    /// The channel
    #[arg(long, value_name = "CHANNEL", default_value = "apns")]
    channel: PlannedChannel,

    /// Each notification has a content of its own; without it they are broadcasts
    #[arg(long)]
    own_content: bool,

    /// Processors of a machine
    #[arg(long, value_name = "COUNT", default_value = "2", value_parser = positive)]
    cores: f64,

    /// Part of the processors that may be used
    #[arg(long, value_name = "FRACTION", default_value = "0.7", value_parser = positive)]
    load: f64,

    /// Notifications that wait at most
    #[arg(long, value_name = "COUNT", default_value = "10000000")]
    backlog: u32,

    /// The work of the provider and of the caller is done on the same machines, as it is by `belfry bench`
    #[arg(long)]
    with_provider: bool,

    /// Where `belfry bench` has put its reports
    #[arg(long, value_name = "DIRECTORY", default_value = "bench-results")]
    from: PathBuf,

    /// Print the plan as JSON
    #[arg(long)]
    json: bool,
}

/// A store, and a broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PlannedDeployment {
    /// One machine with its own store
    Embedded,
    /// PostgreSQL alone
    Postgres,
    /// PostgreSQL and RabbitMQ
    Rabbitmq,
    /// PostgreSQL and NATS JetStream
    Nats,
    /// PostgreSQL and Kafka
    Kafka,
}

/// A channel that `belfry bench channels` measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PlannedChannel {
    Apns,
    Fcm,
    Webpush,
    Smtp,
    Webhook,
}

/// Streams that a push service grants on a connection: what Apple's does.
const STREAMS: f64 = 1_000.0;

/// Prints the plan.
///
/// # Errors
/// When nothing was measured, or not what the plan needs.
pub(crate) fn run(args: &PlanArgs) -> Result<()> {
    let reports = reports_of(&args.from)?;
    let unmeasured = |error: Unmeasured| CliError::new(FailureKind::BadInput, error.to_string());
    let Some(rate) = args.rate else {
        let checks = plan::check(&reports).map_err(unmeasured)?;
        return output::json_or(args.json, &checks, || checks_to_text(&checks));
    };
    let target = PlanTarget {
        rate,
        latency: args.latency,
        deployment: args.deployment.setting().to_owned(),
        channel: args.channel.setting().to_owned(),
        has_own_content: args.own_content,
        has_provider: args.with_provider,
        cores: args.cores,
        load: args.load.min(1.0),
        streams: if args.channel.is_http2() { STREAMS } else { 1.0 },
        backlog: f64::from(args.backlog),
    };
    let plan = CapacityPlan::new(&target, &reports).map_err(unmeasured)?;
    output::json_or(args.json, &plan, || to_text(&target, &plan))
}

fn to_text(target: &PlanTarget, plan: &CapacityPlan) -> String {
    let machines = format!(
        "{} of {} processors, {:.0} % of them used",
        plan.machines,
        target.cores,
        100.0 * target.load
    );
    let parts = plan.cores_used.iter().map(|(name, cores)| format!("{name} {cores:.2}"));
    let mib = |bytes: f64| format!("{} MiB", number(bytes / f64::from(1 << 20)));
    let partitions = plan.partitions.map_or_else(
        || "none: the embedded store is of one machine".to_owned(),
        |count| format!("{count}, shared by the machines"),
    );
    let rows = [
        ("machines", machines),
        ("processors", parts.collect::<Vec<_>>().join(", ")),
        ("one machine, all of it", format!("{} a minute", number(plan.per_minute_of_a_machine))),
        ("in flight", number(plan.in_flight)),
        ("connections", plan.connections.to_string()),
        ("partitions", partitions),
        ("memory of the engines", mib(plan.memory_bytes)),
        ("disk for the backlog", mib(plan.disk_bytes)),
        ("used up first", plan.bottleneck.clone()),
        ("costs", costs_text(target, plan)),
    ];
    rows.map(|(name, value)| format!("  {name:<24}{value}")).join("\n")
}

/// The measurement that the costs are of.
fn costs_text(target: &PlanTarget, plan: &CapacityPlan) -> String {
    let measured = plan.measured_cores;
    let of = format!("`{}` as measured on {}", target.deployment, processors(measured));
    if f64::from(u32::try_from(measured).unwrap_or(u32::MAX)).total_cmp(&target.cores).is_eq() {
        return of;
    }
    format!(
        "{of}, not on {}: a broker that shares fewer processors costs more (`belfry plan --check`)",
        target.cores
    )
}

fn checks_to_text(checks: &[PlanCheck]) -> String {
    let head = ("configuration", "planned", "measured", "planned / measured");
    let (configuration, planned, measured, ratio) = head;
    let mut lines = vec![format!("  {configuration:<44}{planned:>12}{measured:>12}  {ratio}")];
    for check in checks {
        let mut name = format!("{}, {}", check.configuration, processors(check.cores));
        if check.costs_of_cores != check.cores {
            name = format!("{name} by {}", check.costs_of_cores);
        }
        let (planned, measured) = (number(check.planned), number(check.measured));
        let ratio = check.planned_to_measured;
        lines.push(format!("  {name:<44}{planned:>12}{measured:>12}  {ratio:.2}"));
    }
    let within = checks.iter().filter(|check| check.is_near()).count();
    lines.push(format!(
        "{within} of {} are within 20 %; `2 processors by 1` is planned from the costs on one processor",
        checks.len()
    ));
    lines.join("\n")
}

fn processors(count: usize) -> String {
    if count == 1 { "1 processor".to_owned() } else { format!("{count} processors") }
}

// === impl PlannedDeployment ===

impl PlannedDeployment {
    /// As the row `consumers` has it.
    const fn setting(self) -> &'static str {
        match self {
            Self::Embedded => "embedded store",
            Self::Postgres => "PostgreSQL",
            Self::Rabbitmq => "PostgreSQL + RabbitMQ",
            Self::Nats => "PostgreSQL + NATS",
            Self::Kafka => "PostgreSQL + Kafka",
        }
    }
}

// === impl PlannedChannel ===

impl PlannedChannel {
    /// As the row `channels` has it.
    const fn setting(self) -> &'static str {
        match self {
            Self::Apns => "APNs",
            Self::Fcm => "FCM",
            Self::Webpush => "Web Push",
            Self::Smtp => "SMTP",
            Self::Webhook => "webhook",
        }
    }

    const fn is_http2(self) -> bool {
        matches!(self, Self::Apns | Self::Fcm | Self::Webpush)
    }
}

/// Notifications a second.
fn rate(text: &str) -> Result<f64, String> {
    let wrong = || format!("`{text}` is no rate: write `100k/s`, `5M/min` or `2M/h`");
    let (count, span) = text.split_once('/').ok_or_else(wrong)?;
    let (digits, times) = match count.strip_suffix(['k', 'K']) {
        Some(digits) => (digits, 1e3),
        None => count.strip_suffix('M').map_or((count, 1.0), |digits| (digits, 1e6)),
    };
    let seconds = match span {
        "s" => 1.0,
        "min" => 60.0,
        "h" => 3_600.0,
        _ => return Err(wrong()),
    };
    let count = positive(digits).map_err(|_| wrong())?;
    Ok(count * times / seconds)
}

fn positive(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| format!("`{text}` is no number"))?;
    let is_good = number.is_finite() && number > 0.0;
    is_good.then_some(number).ok_or_else(|| "it must be above 0".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_read_with_its_span() {
        let per_second = |text| rate(text).map(|rate| format!("{rate:.2}"));
        assert_eq!(per_second("100k/s").unwrap(), "100000.00");
        assert_eq!(per_second("6M/min").unwrap(), "100000.00");
        assert_eq!(per_second("7200/h").unwrap(), "2.00");
        for wrong in ["5M", "5M/day", "-1/s", "0/s", "many/s", "NaN/s"] {
            assert!(rate(wrong).unwrap_err().contains("5M/min"), "{wrong}");
        }
    }
}
