//! Everything arrives, whatever lies between the one who takes it in and the one who delivers it.

use bench::Guarantee::{AtLeastOnce, AtMostOnce};

use crate::support::{Cluster, Process, checked, eventually};

/// Sends 3,000 by each guarantee, and counts.
fn check_both_guarantees(cluster: &Cluster, by: &Process) {
    cluster.broadcast(by, 0..3_000, AtLeastOnce);
    cluster.broadcast(by, 3_000..6_000, AtMostOnce);
    cluster.drained(by, 6_000);
    let (audit, tally) = (cluster.audit(by), cluster.books().tally());
    assert!(audit.balanced, "{audit:?}");
    assert_eq!((audit.delivered, audit.in_doubt), (6_000, 0), "{audit:?}");
    assert_eq!((tally.accepted, tally.duplicates, tally.missing), (6_000, 0, 0));
}

#[test]
fn whole_engines_share_a_database() {
    let database = testbed::postgres::shared().unwrap().create().unwrap();
    let cluster = Cluster::new(database.url(), 6_000, &[]);
    let (one, two) = (cluster.start("serve", "one"), cluster.start("serve", "two"));
    check_both_guarantees(&cluster, &one);
    let log = checked(&cluster.command(&two, "log").arg("--json").output().unwrap());
    assert_eq!(log.lines().filter(|line| line.contains(r#""state":"delivered""#)).count(), 6_000);
    one.stop();
    two.stop();
}

#[test]
fn producers_reach_consumers_through_a_broker() {
    for queue in [testbed::rabbitmq::shared_url().unwrap(), testbed::nats::shared_url().unwrap()] {
        let database = testbed::postgres::shared().unwrap().create().unwrap();
        let cluster = Cluster::new(database.url(), 6_000, &[]).with_queue(&queue);
        let producer = cluster.start("produce", "producer");
        let consumers = [cluster.start("consume", "first"), cluster.start("consume", "second")];
        check_both_guarantees(&cluster, &producer);
        assert_eq!(consumers[0].get("/v1/notifications"), Some(404), "it only delivers");
        assert_eq!(consumers[0].get("/v1/status"), Some(200));
        assert_eq!(consumers[1].get("/metrics"), Some(200));
        for process in consumers.into_iter().chain([producer]) {
            process.stop();
        }
    }
}

#[test]
fn a_whole_engine_with_a_broker_delivers_what_a_producer_took_in() {
    let database = testbed::postgres::shared().unwrap().create().unwrap();
    let queue = testbed::nats::shared_url().unwrap();
    let cluster = Cluster::new(database.url(), 6_000, &[]).with_queue(&queue);
    let (producer, engine) =
        (cluster.start("produce", "producer"), cluster.start("serve", "engine"));
    check_both_guarantees(&cluster, &producer);
    producer.stop();
    engine.stop();
}

#[test]
fn what_an_application_inserts_is_delivered_and_what_cannot_be_is_put_aside() {
    let database = testbed::postgres::shared().unwrap().create().unwrap();
    let cluster = Cluster::new(database.url(), 3, &[]);
    let engine = cluster.start("serve", "engine");
    let row = |channel: &str, number| {
        let to = bench::workload::token(number);
        format!(
            "INSERT INTO belfry.outbox (tenant, channel, recipient, content) \
             VALUES ('default', '{channel}', '{to}', '{{\"aps\":{{}}}}')"
        )
    };
    database.query(&format!("BEGIN; {}; ROLLBACK", row("ios", 0))).unwrap();
    database.query(&format!("BEGIN; {}; {}; COMMIT", row("ios", 1), row("sms", 2))).unwrap();
    cluster.drained(&engine, 1);
    eventually("the row of an unknown channel is told", || {
        cluster.status(&engine)["cluster"]["outbox_rejected"] == 1
    });
    let reason = database.query("SELECT reason FROM belfry.outbox_rejected").unwrap();
    assert!(reason.contains("there is no channel \"sms\""), "{reason}");
    let books = cluster.books();
    assert_eq!(books.tally_of(1..2).accepted, 1);
    assert_eq!(books.tally().accepted, 1, "what was rolled back was never sent");
    engine.stop();
}
