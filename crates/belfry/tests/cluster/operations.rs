//! Operations on a cluster, and faults of it.

use bench::WorkloadGuarantee::{AtLeastOnce, AtMostOnce};
use serde_json::json;

use crate::support::{Cluster, Process, eventually};

/// Partitions by the name of their owner, as `process` sees it.
fn partitions(cluster: &Cluster, process: &Process) -> Vec<(String, u64)> {
    let status = cluster.status(process);
    let workers = status["cluster"]["workers"].as_array().unwrap();
    let share = |worker: &serde_json::Value| {
        let name = worker["name"].as_str().unwrap().to_owned();
        (name, worker["partitions"].as_u64().unwrap())
    };
    workers.iter().map(share).collect()
}

#[test]
fn a_worker_that_is_drained_hands_its_partitions_over() {
    let database = testbed::postgres::shared().unwrap().create().unwrap();
    let cluster = Cluster::new(database.url(), 1_000, &[]);
    let (one, two) = (cluster.start("serve", "one"), cluster.start("serve", "two"));
    let halves = [(one.name(), 32), (two.name(), 32)];
    eventually("each has half of the partitions", || partitions(&cluster, &two) == halves);
    one.stop();
    let all = [(two.name(), 64)];
    eventually("the other has all of them", || partitions(&cluster, &two) == all);
    assert_eq!(cluster.status(&two)["cluster"]["partitions_free"], json!(0));
    cluster.broadcast(&two, 0..1_000, AtLeastOnce);
    cluster.drained(&two, 1_000);
    two.stop();
    let mut looking = std::process::Command::new(env!("CARGO_BIN_EXE_belfry"));
    let output = looking.args(["status", "--json", "--store", database.url()]).output().unwrap();
    let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(status["totals"]["delivered"], json!(1_000), "{output:?}");
    assert_eq!(
        status["cluster"],
        json!({"workers": [], "partitions_free": 64, "outbox_rejected": 0, "outbox_waiting": 0, "outbox_oldest_seconds": 0.0})
    );
}

#[test]
fn a_rolling_restart_with_a_backlog_loses_and_doubles_nothing() {
    let database = testbed::postgres::shared().unwrap().create().unwrap();
    let cluster = Cluster::new(database.url(), 24_000, &["--latency", "20ms"]);
    let (one, two) = (cluster.start("serve", "one"), cluster.start("serve", "two"));
    cluster.broadcast(&one, 0..16_000, AtLeastOnce);
    cluster.broadcast(&two, 16_000..24_000, AtMostOnce);
    one.stop();
    let one = cluster.start("serve", "one-again");
    two.stop();
    let two = cluster.start("serve", "two-again");
    cluster.drained(&two, 24_000);
    let (audit, tally) = (cluster.audit(&two), cluster.books().tally());
    assert!(audit.balanced, "{audit:?}");
    assert_eq!((audit.delivered, audit.in_doubt), (24_000, 0), "{audit:?}");
    assert_eq!((tally.accepted, tally.duplicates, tally.missing), (24_000, 0, 0));
    one.stop();
    two.stop();
}

#[test]
fn an_engine_keeps_the_search_index_of_a_shared_store() {
    let database = testbed::postgres::shared().unwrap().create().unwrap();
    // More than a run of the index has.
    let cluster = Cluster::new(database.url(), 70_000, &[]);
    let engine = cluster.start("serve", "engine");
    cluster.broadcast(&engine, 0..70_000, AtLeastOnce);
    eventually("a run of it is made", || {
        let runs = database.query("SELECT count(*) FROM belfry.search_run WHERE state = 1");
        runs.unwrap().trim() != "0"
    });
    cluster.drained(&engine, 70_000);
    engine.stop();
}

#[test]
fn consumers_come_and_go_under_a_backlog() {
    let database = testbed::postgres::shared().unwrap().create().unwrap();
    let queue = testbed::rabbitmq::shared_url().unwrap();
    let cluster = Cluster::new(database.url(), 24_000, &["--latency", "20ms"]).with_queue(&queue);
    let producer = cluster.start("produce", "producer");
    let first = cluster.start("consume", "first");
    cluster.broadcast(&producer, 0..12_000, AtLeastOnce);
    cluster.broadcast(&producer, 12_000..24_000, AtMostOnce);
    let second = cluster.start("consume", "second");
    first.stop();
    cluster.drained(&producer, 24_000);
    let (audit, tally) = (cluster.audit(&producer), cluster.books().tally());
    assert!(audit.balanced, "{audit:?}");
    assert_eq!((audit.delivered, audit.in_doubt), (24_000, 0), "{audit:?}");
    assert_eq!((tally.accepted, tally.duplicates, tally.missing), (24_000, 0, 0));
    second.stop();
    producer.stop();
}

#[test]
fn a_killed_worker_is_replaced_and_nothing_is_lost() {
    let database = testbed::postgres::shared().unwrap().create().unwrap();
    let cluster = Cluster::new(database.url(), 24_000, &["--latency", "20ms"]);
    let (one, two) = (cluster.start("serve", "one"), cluster.start("serve", "two"));
    cluster.broadcast(&one, 0..12_000, AtLeastOnce);
    cluster.broadcast(&two, 12_000..24_000, AtMostOnce);
    one.kill();
    cluster.drained(&two, 24_000);
    assert_eq!(partitions(&cluster, &two), [(two.name(), 64)]);
    let (audit, books) = (cluster.audit(&two), cluster.books());
    assert!(audit.balanced, "{audit:?}");
    assert_eq!(audit.delivered + audit.in_doubt, 24_000, "{audit:?}");
    assert_eq!(books.tally_of(0..12_000).missing, 0);
    let most = books.tally_of(12_000..24_000);
    assert!(most.processed_max <= 1 && most.missing <= audit.in_doubt, "{audit:?}");
    two.stop();
}

#[test]
fn an_engine_is_not_ready_while_its_database_is_away_and_goes_on_afterwards() {
    let mut server = testbed::PostgresServer::start().unwrap();
    let cluster = Cluster::new(&server.url(), 1_000, &[]);
    let engine = cluster.start("serve", "engine");
    assert_eq!((engine.get("/healthz"), engine.get("/readyz")), (Some(200), Some(200)));
    server.stop_immediate().unwrap();
    eventually("it is not ready", || engine.get("/readyz") == Some(503));
    assert_eq!((engine.get("/healthz"), engine.get("/metrics")), (Some(200), Some(200)));
    server.start_again().unwrap();
    eventually("it is ready again", || engine.get("/readyz") == Some(200));
    cluster.broadcast(&engine, 0..1_000, AtLeastOnce);
    cluster.drained(&engine, 1_000);
    assert_eq!(cluster.books().tally().duplicates, 0);
    engine.stop();
}

#[test]
fn a_producer_is_not_ready_while_its_broker_is_away_and_takes_in_all_the_same() {
    let database = testbed::postgres::shared().unwrap().create().unwrap();
    let mut broker = testbed::Nats::start().unwrap();
    let cluster = Cluster::new(database.url(), 1_000, &[]).with_queue(&broker.url());
    let producer = cluster.start("produce", "producer");
    let consumer = cluster.start("consume", "consumer");
    broker.kill().unwrap();
    eventually("they are not ready", || {
        [&producer, &consumer].iter().all(|process| process.get("/readyz") == Some(503))
    });
    cluster.broadcast(&producer, 0..1_000, AtLeastOnce);
    broker.wipe().unwrap();
    cluster.drained(&producer, 1_000);
    eventually("they are ready again", || {
        [&producer, &consumer].iter().all(|process| process.get("/readyz") == Some(200))
    });
    consumer.stop();
    producer.stop();
}

#[test]
fn a_producer_that_loses_its_broker_lets_another_have_its_partitions() {
    let database = testbed::postgres::shared().unwrap().create().unwrap();
    let broker = testbed::nats::shared_url().unwrap();
    let link = testbed::Proxy::before(&broker).unwrap();
    let cluster = Cluster::new(database.url(), 1_000, &[]).with_queue(&broker);
    let (one, consumer) = (cluster.start("produce", "one"), cluster.start("consume", "consumer"));
    let cluster = cluster.with("BELFRY__QUEUE__URL", link.url());
    let two = cluster.start("produce", "two");
    let shares = |first, second| [(one.name(), first), (consumer.name(), 0), (two.name(), second)];
    eventually("each has half of the partitions", || partitions(&cluster, &one) == shares(32, 32));
    link.cut();
    eventually("one has all of them", || partitions(&cluster, &one) == shares(64, 0));
    cluster.broadcast(&two, 0..1_000, AtLeastOnce);
    cluster.drained(&one, 1_000);
    link.pass();
    eventually("each has half again", || partitions(&cluster, &one) == shares(32, 32));
    for process in [one, two, consumer] {
        process.stop();
    }
}

#[test]
fn a_process_may_have_as_many_files_open_as_the_hard_limit_says() {
    let cluster = Cluster::on_disk(1, &[]);
    let low = cluster.start_with_open_files("serve", "low", "64");
    let (soft, hard) = low.open_files();
    assert_eq!(soft, hard);
    assert!(low.said().contains(&format!("up to {hard} files may be open")), "{}", low.said());
    low.stop();
    let high = cluster.start_with_open_files("serve", "high", &hard);
    assert_eq!(high.open_files(), (hard.clone(), hard));
    assert!(!high.said().contains("files may be open"), "{}", high.said());
    high.stop();
}
