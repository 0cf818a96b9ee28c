//! NATS: a durable consumer.

use flow::Clock;
use stream::connect::NatsAddress;
use stream::nats::{NatsSource, NatsSourceOptions, NatsTarget};

use super::{
    BAD, bad_bodies, check_letters, kill_twice, letters, notification, put_all, records, runtime,
};
use crate::support::{Cluster, eventually};

/// Messages that are notifications.
const GOOD: u64 = 12_000;

#[test]
fn an_engine_that_is_killed_reads_every_message_of_nats_once() {
    let (url, prefix) = (testbed::nats::shared_url().unwrap(), testbed::unique_prefix());
    let runtime = runtime();
    let address = NatsAddress::parse(&url).unwrap();
    let (orders, dead) = (format!("{prefix}.orders"), format!("{prefix}.dead"));
    let stream = runtime.block_on(async {
        let client =
            address.options("test", 16, None).await.unwrap().connect(address.server()).await;
        let config = async_nats::jetstream::stream::Config {
            name: prefix.clone(),
            subjects: vec![format!("{prefix}.>")],
            ..Default::default()
        };
        let stream = async_nats::jetstream::new(client.unwrap()).create_stream(config).await;
        let target = NatsTarget::new(address.clone(), None, &orders, Clock::system()).unwrap();
        put_all(&target, &records(GOOD, notification, &bad_bodies(900_000))).await;
        stream.unwrap()
    });
    let source =
        format!("[{{ name = \"orders\", url = \"{url}/{orders}\", dead_letters = \"{dead}\" }}]");
    let cluster = Cluster::on_disk(GOOD, &[]).with("BELFRY__SOURCES", source);
    kill_twice(&cluster, GOOD, 4711);
    let engine = cluster.start("serve", "engine");
    cluster.drained(&engine, GOOD);
    let dead = NatsSourceOptions { subject: dead, consumer: "test".to_owned(), ca_file: None };
    let dead = NatsSource::new(address, dead, Clock::system());
    let letters = runtime.block_on(letters(&dead, BAD));
    check_letters(&letters, BAD);
    assert_eq!(letters.len() as u64, BAD, "NATS takes a letter once");
    // NATS keeps what a killed engine had stored and not acknowledged for 30 s, and gives it once more.
    eventually("all is acknowledged", || {
        let consumer = runtime.block_on(stream.consumer_info("belfry-orders"));
        consumer.is_ok_and(|consumer| consumer.num_pending == 0 && consumer.num_ack_pending == 0)
    });
    engine.stop();
}
