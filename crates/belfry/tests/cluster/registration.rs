//! A device that registers anew while its provider still speaks of the past: over both stores, with a provider that says
//! of every device that it has been gone for a day.

use std::time::Duration;

use bench::WorkloadGuarantee::AtLeastOnce;
use bench::workload::token;
use flow::Clock;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{Cluster, Process, checked};

/// How long the provider takes to answer a request that it has written down: long enough to stop it in between.
const LATENCY: &str = "6s";
const HOUR: Duration = Duration::from_hours(1);

/// The tokens that are listed, by their numbers.
fn listed(cluster: &Cluster, engine: &Process) -> Vec<u64> {
    let mut command = cluster.command(engine, "suppressions");
    let printed = checked(&command.args(["export", "--json"]).output().unwrap());
    let lines = printed.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let number = |line: Value| (0..5).find(|number| line["to"] == token(*number).as_str()).unwrap();
    let mut numbers: Vec<u64> = lines.map(number).collect();
    numbers.sort_unstable();
    numbers
}

/// Reports that a token was registered so long ago, or that it is to be tried again; whether it was listed and is not now.
fn lift(
    cluster: &Cluster,
    engine: &Process,
    number: u64,
    registered_ago: Option<Duration>,
) -> bool {
    let mut command = cluster.command(engine, "suppressions");
    command.args(["lift", "--json", "--channel", "ios", "--to", &token(number)]);
    if let Some(ago) = registered_ago {
        let at = pipeline::timestamp(Clock::system()).minus(ago);
        command.arg("--registered-at").arg(at.to_string());
    }
    let lifted: Value = serde_json::from_str(&checked(&command.output().unwrap())).unwrap();
    lifted["lifted"] == json!(1)
}

/// The changes that were handed on: recipient and change.
fn changes(cluster: &Cluster, engine: &Process) -> Vec<String> {
    let mut command = cluster.command(engine, "suppressions");
    let printed = checked(&command.args(["feed", "--json"]).output().unwrap());
    let lines = printed.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.map(|line| line["change"].as_str().unwrap().to_owned()).collect()
}

fn check(cluster: &Cluster) {
    let engine = cluster.start("serve", "engine");
    let settled = || cluster.status(&engine)["totals"]["refused"].clone();
    // A new connection is asked for one thing first.
    cluster.broadcast(&engine, 4..5, AtLeastOnce);
    cluster.drained(&engine, 1);
    cluster.broadcast(&engine, 0..4, AtLeastOnce);
    cluster.requested(5);
    // While the provider's word that they have been gone for a day is on its way: it waits for as long as this takes.
    cluster.signal_provider(Signal::STOP);
    assert!(!lift(cluster, &engine, 1, Some(HOUR)));
    assert!(!lift(cluster, &engine, 2, Some(48 * HOUR)));
    assert!(!lift(cluster, &engine, 3, None));
    assert_eq!(settled(), json!(1), "the provider was stopped too late");
    cluster.signal_provider(Signal::CONT);
    cluster.drained(&engine, 5);
    assert_eq!(
        listed(cluster, &engine),
        [0, 2, 3, 4],
        "one came back after the provider saw it leave"
    );

    assert!(!lift(cluster, &engine, 0, Some(48 * HOUR)), "the provider saw it leave later");
    assert!(lift(cluster, &engine, 0, Some(HOUR)));
    assert!(lift(cluster, &engine, 2, None));
    assert_eq!(listed(cluster, &engine), [3, 4]);
    // The provider says the same once more.
    cluster.broadcast(&engine, 0..4, AtLeastOnce);
    cluster.drained(&engine, 9);
    assert_eq!(listed(cluster, &engine), [3, 4], "what was before they came back is not news");
    let audit = cluster.audit(&engine);
    assert_eq!((audit.refused, audit.suppressed), (8, 1), "{audit:?}");
    cluster.requested(8);
    let expect = ["suppressed", "suppressed", "suppressed", "suppressed", "lifted", "lifted"];
    assert_eq!(changes(cluster, &engine), expect);
    engine.stop();
}

#[test]
fn who_registered_anew_after_the_providers_time_is_not_suppressed() {
    let flags = ["--dead-tokens", "1", "--latency", LATENCY];
    let database = testbed::postgres::shared().unwrap().create().unwrap();
    for cluster in [Cluster::new(database.url(), 5, &flags), Cluster::on_disk(5, &flags)] {
        check(&cluster.with("BELFRY__DELIVERY__SENDERS", "1"));
    }
}
