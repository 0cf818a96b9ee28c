//! RabbitMQ: a queue.

use bench::workload::token;
use flow::Clock;
use lapin::types::FieldTable;
use serde_json::json;
use stream::connect::AmqpAddress;
use stream::rabbitmq::{RabbitMqSource, RabbitMqSourceOptions, RabbitMqTarget};

use super::{BAD, bad_bodies, check_letters, letters, messages, put_all, records, runtime};
use crate::support::{Cluster, Process, eventually};

/// Messages that are notifications.
const GOOD: u64 = 12_000;

#[test]
fn several_engines_share_a_queue_of_rabbitmq_and_map_its_messages() {
    let (url, queue) = (testbed::rabbitmq::shared_url().unwrap(), testbed::unique_prefix());
    let runtime = runtime();
    let address = AmqpAddress::parse(&url).unwrap();
    let dead = format!("{queue}.dead");
    runtime.block_on(async {
        let properties = lapin::ConnectionProperties::default();
        let connection = lapin::Connection::connect_uri(address.uri(), properties).await.unwrap();
        let channel = connection.create_channel().await.unwrap();
        for name in [&queue, &dead] {
            let options =
                lapin::options::QueueDeclareOptions { durable: true, ..Default::default() };
            let declared =
                channel.queue_declare(name.as_str().into(), options, FieldTable::default());
            declared.await.unwrap();
        }
    });
    let source = format!(
        "[{{ name = \"orders\", url = \"{url}?queue={queue}\", dead_letters = \"{dead}\", map = {{ channel = \"ios\", \
         to = \"{{{{ body.device }}}}\", content = {{ aps = {{ badge = \"{{{{ body.order.total }}}}\" }} }} }} }}]"
    );
    let database = testbed::postgres::shared().unwrap().create().unwrap();
    let cluster = Cluster::new(database.url(), GOOD, &[]).with("BELFRY__SOURCES", source);
    let engines = ["one", "two"].map(|name| cluster.start("serve", name));
    // Behind the start: the first one would read all of them before the second one is there.
    let event = |number: u64| json!({"device": token(number), "order": {"total": number}});
    let target = RabbitMqTarget::new(address.clone(), None, ("", &queue), Clock::system()).unwrap();
    runtime.block_on(put_all(&target, &records(GOOD, event, &bad_bodies(2 << 20))));
    cluster.drained(&engines[0], GOOD);
    let options = RabbitMqSourceOptions { queue: dead, prefetch: 100, ca_file: None };
    let random = fastrand::Rng::with_seed(1);
    let source = RabbitMqSource::new(address, options, random, Clock::system());
    check_letters(&runtime.block_on(letters(&source, BAD)), BAD);
    let sum = |fate| engines.iter().map(|engine| messages(engine, fate)).sum::<u64>();
    assert!(engines.iter().all(|engine| messages(engine, "accepted") > 0), "both of them read");
    eventually("all is acknowledged", || sum("acknowledged") == GOOD + BAD);
    assert_eq!([sum("accepted"), sum("repeated"), sum("dead_lettered")], [GOOD, 0, BAD]);
    engines.into_iter().for_each(Process::stop);
}
