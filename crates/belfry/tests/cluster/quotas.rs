//! A number that the processes of a cluster share, counted in the books of the provider.

use bench::WorkloadGuarantee::AtLeastOnce;

use crate::support::{Cluster, Process};

/// Messages a minute.
const NUMBER: usize = 4_800;
/// Recipients of the first broadcast: so many that the destination is sent to by all processes (decision 0037).
const FIRST: u64 = 4_000;
/// Broadcasts behind it, and the recipients of each.
const BROADCASTS: u64 = 24;
const EACH: u64 = 105;
const ALL: u64 = FIRST + BROADCASTS * EACH;
const MINUTE_MICROS: u64 = 60_000_000;

/// The greatest count of any minute.
fn most_in_a_minute(received: &[u64]) -> usize {
    let within = |(place, from): (usize, &u64)| {
        received[place..].partition_point(|at| *at < from + MINUTE_MICROS)
    };
    received.iter().enumerate().map(within).max().unwrap_or(0)
}

#[test]
fn three_engines_share_a_number_and_use_it() {
    let database = testbed::postgres::shared().unwrap().create().unwrap();
    let number = NUMBER.to_string();
    let cluster = Cluster::new(database.url(), ALL, &[])
        .with("BELFRY__CHANNELS__IOS__MESSAGES_PER_MINUTE", number);
    let engines = ["one", "two", "three"].map(|name| cluster.start("serve", name));
    cluster.broadcast(&engines[0], 0..FIRST, AtLeastOnce);
    // One after the other, so that every engine has some of them.
    for first in (0..BROADCASTS).map(|number| FIRST + number * EACH) {
        cluster.broadcast(&engines[0], first..first + EACH, AtLeastOnce);
    }
    cluster.drained(&engines[0], ALL);
    let received = cluster.received();
    let most = most_in_a_minute(&received);
    // Beyond the number, each process may send one.
    assert!(most <= NUMBER + engines.len(), "{most}");
    // From when all of them have their share.
    let from = received[received.len() / 6];
    let used = received.partition_point(|at| *at < from + MINUTE_MICROS) - received.len() / 6;
    assert!(used * 100 >= NUMBER * 85, "{used} of {NUMBER}");
    let senders = engines.iter().filter(|engine| settled(engine) >= EACH).count();
    assert_eq!(senders, engines.len(), "each of them has sent");
    engines.into_iter().for_each(Process::stop);
}

/// Deliveries that `engine` has settled.
fn settled(engine: &Process) -> u64 {
    let metrics = engine.fetch("/metrics").unwrap();
    let delivered = metrics.lines().filter(|line| line.starts_with("belfry_deliveries_total"));
    let count = |line: &str| line.rsplit(' ').next().and_then(|count| count.parse::<u64>().ok());
    delivered.filter_map(count).sum()
}
