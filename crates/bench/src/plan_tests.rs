//! Plans by costs that are easily added.

use super::*;
use crate::report::tests::sample;
use crate::report::{Point, Unit};

/// Reports of `consumers`, `e2e` and `channels`.
fn measured() -> Vec<RowReport> {
    // As many as two processors can do.
    let point = |setting: &str, cpu: f64, mib: u64| Point {
        cpu_us_per_item: Some(cpu),
        memory_bytes_max: Some(mib << 20),
        ..Point::of_runs(setting, Unit::PerMinute, &[120e6 / cpu])
    };
    let row = |name: &str, points: Vec<Point>| RowReport {
        row: name.to_owned(),
        points,
        ..sample(Unit::PerMinute)
    };
    let servers = [("PostgreSQL", 1.5), ("broker", 0.5), ("provider", 1.0)];
    let brokered = Point {
        servers_cpu_us_per_item: servers.map(|(name, us)| (name.to_owned(), us)).to_vec(),
        figure: Unit::PerMinute.figure(120e6 / 5.0),
        ..point("PostgreSQL + RabbitMQ", 2.0, 200)
    };
    let pending = Point { disk_bytes_per_item: Some(40.0), ..point("pending", 0.5, 100) };
    vec![
        row("consumers", vec![point("embedded store", 1.0, 100), brokered]),
        row("e2e", vec![point("0 ms", 1.0, 100), point("300 ms", 1.6, 325)]),
        row("channels", vec![point("APNs", 3.0, 100), point("SMTP", 21.0, 100)]),
        row("e2e-pending", vec![pending]),
    ]
}

fn target(rate: f64) -> PlanTarget {
    PlanTarget {
        rate,
        latency: Duration::ZERO,
        deployment: "PostgreSQL + RabbitMQ".into(),
        channel: "APNs".into(),
        has_own_content: false,
        has_provider: false,
        cores: 2.0,
        load: 0.5,
        streams: 1_000.0,
        backlog: 1_000_000.0,
    }
}

#[track_caller]
fn assert_near(found: f64, expect: f64) {
    assert!((found - expect).abs() < 1e-6 * expect.abs().max(1.0), "{found} is not {expect}");
}

#[test]
fn processors_are_the_sum_of_what_each_part_costs() {
    let plan = CapacityPlan::new(&target(1_000_000.0), &measured()).unwrap();
    let names: Vec<&str> = plan.cores_used.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["the engines", "PostgreSQL", "broker"], "the provider is not ours");
    assert_near(plan.cores_used.iter().map(|(_, cores)| cores).sum(), 4.0);
    assert_eq!(plan.machines, 4, "of two processors, half of them used");
    assert_near(plan.per_minute_of_a_machine, 30_000_000.0);
    assert!(plan.bottleneck.contains("the engines"), "{}", plan.bottleneck);
    let tested = PlanTarget { has_provider: true, ..target(1_000_000.0) };
    assert_eq!(CapacityPlan::new(&tested, &measured()).unwrap().machines, 5);
}

#[test]
fn processors_that_a_machine_did_not_come_to_use_are_not_planned_with() {
    let mut reports = measured();
    for point in reports.iter_mut().flat_map(|report| &mut report.points) {
        point.figure = Unit::PerMinute.figure(point.figure.value() / 2.0);
    }
    let plan = CapacityPlan::new(&target(1_000_000.0), &reports).unwrap();
    assert_near(plan.per_minute_of_a_machine, 15_000_000.0);
    assert_eq!(plan.machines, 8);
}

#[test]
fn a_latency_takes_connections_memory_and_a_little_more_of_a_processor() {
    let far = PlanTarget {
        latency: Duration::from_millis(150),
        deployment: "embedded store".into(),
        ..target(100_000.0)
    };
    let plan = CapacityPlan::new(&far, &measured()).unwrap();
    assert_near(plan.in_flight, 15_000.0);
    assert_eq!(plan.connections, 15);
    // 225 MiB more were for 375,000 in flight.
    assert_near(plan.memory_bytes, f64::from((100 + 9) << 20));
    assert_near(plan.cores_used[0].1, 0.13);
    assert_eq!(plan.partitions, None);
    assert_near(plan.disk_bytes, 40e6);
}

#[test]
fn a_channel_and_contents_of_their_own_cost_more() {
    let us = |target: &PlanTarget| {
        10.0 * CapacityPlan::new(target, &measured()).unwrap().cores_used[0].1
    };
    let broadcast = target(100_000.0);
    assert_near(us(&broadcast), 2.0);
    assert_near(us(&PlanTarget { has_own_content: true, ..broadcast.clone() }), 4.0);
    assert_near(us(&PlanTarget { channel: "SMTP".into(), ..broadcast }), 22.0);
}

#[test]
fn what_cannot_be_shared_is_the_bottleneck() {
    let alone = PlanTarget { deployment: "embedded store".into(), ..target(5_000_000.0) };
    let plan = CapacityPlan::new(&alone, &measured()).unwrap();
    assert!(plan.bottleneck.contains("embedded"), "{}", plan.bottleneck);
    let many = CapacityPlan::new(&target(100_000_000.0), &measured()).unwrap();
    assert!(many.bottleneck.contains("64"), "{}", many.bottleneck);
}

#[test]
fn what_was_not_measured_is_named_with_the_command_for_it() {
    let other = PlanTarget { deployment: "PostgreSQL + NATS".into(), ..target(1.0) };
    let error = CapacityPlan::new(&other, &measured()).unwrap_err().to_string();
    assert!(
        error.contains("PostgreSQL + NATS") && error.contains("belfry bench consumers"),
        "{error}"
    );
}

/// As [`measured`], with a measurement of `consumers` on one processor, where the broker costs 10 us.
fn with_one_processor() -> Vec<RowReport> {
    let mut reports = measured();
    let mut one = reports[0].clone();
    one.row = "consumers-one".to_owned();
    one.machine.cores = 1;
    one.points[1].servers_cpu_us_per_item[1].1 = 10.0;
    one.points[1].figure = Unit::PerMinute.figure(60e6 / 14.5);
    reports.push(one);
    reports
}

#[test]
fn costs_are_those_on_the_nearest_number_of_processors() {
    let (mut reports, rate) = (with_one_processor(), 100_000.0);
    let broker_on = |cores: f64, reports: &[RowReport]| {
        let plan = CapacityPlan::new(&PlanTarget { cores, ..target(rate) }, reports).unwrap();
        let broker = plan.cores_used.iter().find(|(name, _)| name == "broker").unwrap().1;
        (plan.measured_cores, format!("{broker:.2}"))
    };
    assert_eq!(broker_on(1.0, &reports), (1, "1.00".into()));
    assert_eq!(broker_on(2.0, &reports), (2, "0.05".into()));
    assert_eq!(broker_on(16.0, &reports), (2, "0.05".into()));
    // The row itself may have been run on one processor, too; the newest counts.
    let again = RowReport { row: "consumers".into(), ..reports[4].clone() };
    reports.push(RowReport { taken_at: "2099-01-01T00:00:00Z".into(), ..again });
    reports[5].points[1].servers_cpu_us_per_item[1].1 = 20.0;
    assert_eq!(broker_on(1.0, &reports), (1, "2.00".into()));
    assert_eq!(broker_on(2.0, &reports), (2, "0.05".into()));
}

#[test]
fn a_latency_lies_between_the_two_that_were_measured() {
    let mut reports = measured();
    let near = Point {
        setting: "100 ms".into(),
        cpu_us_per_item: Some(0.8),
        ..reports[1].points[0].clone()
    };
    reports[1].points.push(near);
    let engines_at = |milliseconds: u64| {
        let latency = Duration::from_millis(milliseconds);
        let plan = CapacityPlan::new(&PlanTarget { latency, ..target(1e6) }, &reports).unwrap();
        plan.cores_used.iter().find(|(name, _)| name == "the engines").unwrap().1
    };
    assert_near(engines_at(0), 2.0);
    assert_near(engines_at(50), 1.9);
    assert_near(engines_at(100), 1.8);
    assert_near(engines_at(200), 2.2);
    assert_near(engines_at(900), 2.6);
}

#[test]
fn the_provider_and_the_caller_of_a_channel_are_those_of_a_test_machine_alone() {
    let mut reports = measured();
    let with =
        |us: [f64; 2]| ["provider", "caller"].map(str::to_owned).into_iter().zip(us).collect();
    reports[0].points[1].servers_cpu_us_per_item.push(("caller".into(), 0.5));
    reports[1].points[0].servers_cpu_us_per_item = with([1.0, 0.5]);
    reports[2].points[1].servers_cpu_us_per_item = with([5.0, 2.5]);
    let smtp = PlanTarget { channel: "SMTP".into(), ..target(1e6) };
    let used = |target: &PlanTarget| {
        CapacityPlan::new(target, &reports).unwrap().cores_used.iter().map(|(_, cores)| cores).sum()
    };
    // 22 of the engines, 2 of PostgreSQL and the broker.
    assert_near(used(&smtp), 24.0);
    assert_near(used(&PlanTarget { has_provider: true, ..smtp }), 24.0 + 5.0 + 2.5);
}

#[test]
fn a_check_plans_what_was_measured_from_the_costs_of_others() {
    let checks = check(&with_one_processor()).unwrap();
    let of = |name: &str, cores: usize| {
        let found = checks.iter().find(|it| it.configuration == name && it.cores == cores);
        let found = found.unwrap_or_else(|| panic!("{name}"));
        (found.costs_of_cores, format!("{:.2}", found.planned_to_measured), found.is_near())
    };
    assert_eq!(checks.len(), 2 + 2 + 2 + 2);
    assert_eq!(of("e2e, 0 ms", 2), (2, "1.00".into(), true));
    assert_eq!(of("e2e, 300 ms", 2), (2, "1.00".into(), true));
    assert_eq!(of("channels, SMTP", 2), (2, "1.00".into(), true));
    assert_eq!(of("consumers, PostgreSQL + RabbitMQ", 1), (2, "2.90".into(), false));
    assert_eq!(of("consumers, PostgreSQL + RabbitMQ", 2), (1, "0.34".into(), false));
    // Without a second number of processors there is nothing to hold that row against.
    assert_eq!(check(&measured()).unwrap().len(), 2 + 2);
}

#[test]
fn a_broadcast_is_held_against_its_rate_from_the_request_on() {
    let mut reports = measured();
    reports[1].points[0].per_minute_from_request = Some(60e6);
    let checks = check(&reports).unwrap();
    assert_eq!(checks[0].configuration, "e2e, 0 ms");
    assert_near(checks[0].measured, 60e6);
    assert_near(checks[0].planned_to_measured, 2.0);
}
