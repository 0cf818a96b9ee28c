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
    // For more than a minute: a look at the provider's books costs less than one at the account.
    cluster.requested_at_least(ALL);
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

#[test]
fn a_number_that_engines_reload_one_after_the_other_is_never_passed_and_then_used() {
    const OLD: usize = 2_400;
    let numbered = |number| format!("kind = \"apns\"\nmessages_per_minute = {number}\n");
    let (old, new) = (numbered(OLD), numbered(NUMBER));
    let database = testbed::postgres::shared().unwrap().create().unwrap();
    let cluster = Cluster::new(database.url(), ALL, &[]);
    let engines = ["one", "two"].map(|name| cluster.start("serve", name));
    for engine in &engines {
        engine.reload("kind = \"apns\"\n", &old);
    }
    cluster.broadcast(&engines[0], 0..FIRST, AtLeastOnce);
    for first in (0..BROADCASTS).map(|number| FIRST + number * EACH) {
        cluster.broadcast(&engines[0], first..first + EACH, AtLeastOnce);
    }
    let last = || cluster.received().last().copied().unwrap();
    cluster.requested_at_least(800);
    engines[0].reload(&old, &new);
    let first_at = last();
    // Ten seconds later.
    cluster.requested_at_least(1_200);
    let second_at = last();
    engines[1].reload(&old, &new);
    // For more than a minute: a look at the provider's books costs less than one at the account.
    cluster.requested_at_least(ALL);
    cluster.drained(&engines[0], ALL);
    let received = cluster.received();
    let most = most_in_a_minute(&received);
    assert!(most <= NUMBER + engines.len(), "{most}");
    let between = |from: u64, until: u64| {
        received.partition_point(|at| *at < until) - received.partition_point(|at| *at < from)
    };
    // The smaller one holds while one of them has it: a burst, what goes evenly, and one of each.
    let (meanwhile, micros) = (between(first_at, second_at), second_at - first_at);
    let allowed = OLD as u64 * micros / MINUTE_MICROS + OLD as u64 / 60 + 2;
    assert!(meanwhile as u64 <= allowed, "{meanwhile}, where {allowed} are allowed");
    // Half a minute, from when they have their shares.
    let from = second_at + MINUTE_MICROS / 6;
    let used = between(from, from + MINUTE_MICROS / 2);
    assert!(used * 100 >= NUMBER / 2 * 85, "{used} of {}", NUMBER / 2);
    engines.into_iter().for_each(Process::stop);
}

/// Deliveries that `engine` has settled.
fn settled(engine: &Process) -> u64 {
    let metrics = engine.fetch("/metrics").unwrap();
    let delivered = metrics.lines().filter(|line| line.starts_with("belfry_deliveries_total"));
    let count = |line: &str| line.rsplit(' ').next().and_then(|count| count.parse::<u64>().ok());
    delivered.filter_map(count).sum()
}
