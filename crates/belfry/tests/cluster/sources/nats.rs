//! NATS: a durable consumer.

use std::time::Duration;

use flow::Clock;
use stream::Source as _;
use stream::connect::NatsAddress;
use stream::nats::{NatsSource, NatsSourceOptions, NatsTarget};

use super::{
    BAD, bad_bodies, check_letters, kill_twice, letters, notification, put_all, records, runtime,
};
use crate::support::Cluster;

/// Messages that are notifications.
const GOOD: u64 = 12_000;

#[test]
fn an_engine_that_is_killed_reads_every_message_of_nats_once() {
    let (url, prefix) = (testbed::nats::shared_url().unwrap(), testbed::unique_prefix());
    let runtime = runtime();
    let address = NatsAddress::parse(&url).unwrap();
    let (orders, dead) = (format!("{prefix}.orders"), format!("{prefix}.dead"));
    runtime.block_on(async {
        let client =
            address.options("test", 16, None).await.unwrap().connect(address.server()).await;
        let config = async_nats::jetstream::stream::Config {
            name: prefix.clone(),
            subjects: vec![format!("{prefix}.>")],
            ..Default::default()
        };
        async_nats::jetstream::new(client.unwrap()).create_stream(config).await.unwrap();
        let target = NatsTarget::new(address.clone(), None, &orders, Clock::system()).unwrap();
        put_all(&target, &records(GOOD, notification, &bad_bodies(900_000))).await;
    });
    let source =
        format!("[{{ name = \"orders\", url = \"{url}/{orders}\", dead_letters = \"{dead}\" }}]");
    let cluster = Cluster::on_disk(GOOD, &[]).with("BELFRY__SOURCES", source);
    kill_twice(&cluster, GOOD, 4711);
    let engine = cluster.start("serve", "engine");
    cluster.drained(&engine, GOOD);
    let dead = NatsSourceOptions { subject: dead, consumer: "test".to_owned(), ca_file: None };
    let dead = NatsSource::new(address.clone(), dead, Clock::system());
    let letters = runtime.block_on(letters(&dead, BAD));
    check_letters(&letters, BAD);
    assert_eq!(letters.len() as u64, BAD, "NATS takes a letter once");
    engine.stop();
    // Under the name by which the engine read: nothing was left to it.
    let left =
        NatsSourceOptions { subject: orders, consumer: "belfry-orders".to_owned(), ca_file: None };
    let left = runtime.block_on(async {
        let source = NatsSource::new(address, left, Clock::system());
        source.fetch(100, Duration::from_secs(1)).await.unwrap()
    });
    assert_eq!(left, []);
}
