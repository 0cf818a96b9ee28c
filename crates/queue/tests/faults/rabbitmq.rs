//! Behind RabbitMQ.

use flow::Clock;
use lapin::options::{
    BasicPublishOptions, QueueDeclareOptions, QueueDeleteOptions, QueuePurgeOptions,
};
use lapin::types::FieldTable;
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties};
use notification::{Priority, limits};
use queue::broker::limits::TICKET_DELIVERIES;
use queue::{Broker, BrokerOptions, QueueError, rabbitmq};
use testbed::RabbitMq;

use crate::{
    Server, becomes, cases, complains, eventually, has_failed, has_room, options, publish, random,
    soon, take_one, ticket,
};

impl Server for RabbitMq {
    fn open(options: &BrokerOptions) -> Result<Broker, QueueError> {
        rabbitmq::open(options, Clock::system(), random())
    }

    fn start() -> Self {
        Self::start().unwrap()
    }

    fn url(&self) -> String {
        Self::url(self)
    }

    fn kill(&mut self) {
        Self::kill(self).unwrap();
    }

    fn start_again(&mut self) {
        Self::start_again(self).unwrap();
    }

    fn wipe(&mut self) {
        Self::wipe(self).unwrap();
    }

    async fn intrude(url: &str, prefix: &str, priority: Priority, body: &[u8]) {
        let (_connection, channel) = other_program(url).await;
        let (options, properties) = (BasicPublishOptions::default(), BasicProperties::default());
        let key = priority.as_str().into();
        channel.basic_publish(prefix.into(), key, options, body, properties).await.unwrap();
    }

    async fn waiting(url: &str, prefix: &str, priority: Priority) -> u64 {
        waiting(url, &format!("{prefix}.{priority}")).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_goes_and_comes() {
    cases::a_broker_that_goes_and_comes::<RabbitMq>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_that_are_no_tickets_are_dead_letters() {
    let url = shared();
    cases::messages_that_are_no_tickets::<RabbitMq>(&url).await;

    let options = options(&url);
    let broker = rabbitmq::open(&options, Clock::system(), random()).unwrap();
    becomes(&broker, true).await;
    RabbitMq::intrude(&url, &options.prefix, Priority::Bulk, b"not a ticket").await;
    let dead = format!("{}.dead", options.prefix);
    eventually("it is kept", async || waiting(&url, &dead).await == 1).await;
    soon("drain", broker.drain()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tickets_that_nobody_takes_expire_and_leave_nothing() {
    let options = BrokerOptions { consume: false, ..options(&shared()) };
    let broker = rabbitmq::open(&options, Clock::system(), random()).unwrap();
    becomes(&broker, true).await;
    let short_lived = (0..50).map(|number| {
        let mut ticket = ticket(number, Priority::Normal);
        ticket.lease_until = ticket.lease_until.minus(limits::TICKET_LEASE.mul_f64(0.9));
        ticket
    });
    assert!(!publish(&broker, short_lived.collect()).await.contains(&false));
    let (url, prefix) = (&options.url, &options.prefix);
    eventually("they expire", async || RabbitMq::waiting(url, prefix, Priority::Normal).await == 0)
        .await;
    // A message that is rejected later is there: so would an expired one be.
    RabbitMq::intrude(url, prefix, Priority::Normal, b"not a ticket").await;
    let consumer = rabbitmq::open(
        &BrokerOptions { consume: true, ..options.clone() },
        Clock::system(),
        random(),
    )
    .unwrap();
    let dead = format!("{prefix}.dead");
    eventually("one is rejected", async || waiting(url, &dead).await > 0).await;
    assert_eq!(waiting(url, &dead).await, 1, "dead letters are what was rejected");
    let mut void = ticket(1, Priority::Normal);
    void.lease_until = void.lease_until.minus(2 * limits::TICKET_LEASE);
    assert_eq!(publish(&broker, vec![void, ticket(2, Priority::Normal)]).await, [false, true]);
    assert_eq!(
        *broker.publisher().capacity().borrow(),
        Some(Priority::Bulk),
        "it was void, not refused"
    );
    assert_eq!(take_one(&consumer).await, 2);
    soon("drain", consumer.drain()).await;
    soon("drain", broker.drain()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_that_is_full() {
    cases::a_queue_that_is_full::<RabbitMq>(&shared()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_that_is_half_open() {
    cases::a_link_that_is_half_open::<RabbitMq>(&shared()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_stands_still() {
    cases::a_broker_that_stands_still::<RabbitMq>(&shared()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_that_leaves() {
    cases::a_consumer_that_leaves::<RabbitMq>(&shared()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ticket_that_is_always_given_back_does_not_come_for_ever() {
    let options = options(&shared());
    let broker = rabbitmq::open(&options, Clock::system(), random()).unwrap();
    // Once, and as often again as the limit says.
    let times = usize::from(TICKET_DELIVERIES) + 1;
    cases::a_ticket_that_is_always_given_back(&broker, times).await;
    eventually("it is left to its lease", async || {
        RabbitMq::waiting(&options.url, &options.prefix, Priority::Normal).await == 0
    })
    .await;
    assert_eq!(publish(&broker, vec![ticket(2, Priority::Normal)]).await, [true]);
    assert_eq!(take_one(&broker).await, 2, "it does not come again");
    soon("drain", broker.drain()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queues_that_are_deleted_come_back() {
    let options = options(&shared());
    let broker = rabbitmq::open(&options, Clock::system(), random()).unwrap();
    becomes(&broker, true).await;
    let (_connection, channel) = other_program(&options.url).await;
    for priority in Priority::ALL {
        let name = format!("{}.{priority}", options.prefix);
        let gone = channel.queue_delete(name.as_str().into(), QueueDeleteOptions::default());
        soon("delete", gone).await.unwrap();
    }
    let mut capacity = broker.publisher().capacity();
    soon("it goes on", async {
        while publish(&broker, vec![ticket(1, Priority::Bulk)]).await != [true] {
            capacity.wait_for(Option::is_some).await.unwrap();
        }
    })
    .await;
    assert_eq!(take_one(&broker).await, 1);
    soon("drain", broker.drain()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_that_the_broker_times_out_begins_again() {
    let server = tokio::task::spawn_blocking(|| RabbitMq::start_with("consumer_timeout = 1000"));
    let server = server.await.unwrap().unwrap();
    let broker = rabbitmq::open(&options(&server.url()), Clock::system(), random()).unwrap();
    becomes(&broker, true).await;
    assert_eq!(publish(&broker, vec![ticket(1, Priority::Normal)]).await, [true]);
    let mut held = soon("receive", broker.consumer().receive(Priority::Bulk, 1)).await;
    has_failed(&broker, &["took its tickets back"]).await;
    let late = held.remove(0).receipt.acknowledge().await;
    assert!(late.is_err(), "the broker took it back");
    drop(late);
    assert_eq!(take_one(&broker).await, 1);
    soon("drain", broker.drain()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_is_low_on_memory_is_asked_for_nothing() {
    let settings = "vm_memory_high_watermark.absolute = 1";
    let server = tokio::task::spawn_blocking(|| RabbitMq::start_with(settings));
    let server = server.await.unwrap().unwrap();
    let broker = rabbitmq::open(&options(&server.url()), Clock::system(), random()).unwrap();
    becomes(&broker, true).await;
    assert_eq!(publish(&broker, vec![ticket(1, Priority::Normal)]).await, [false]);
    has_room(&broker, None).await;
    let answers =
        soon("answer", broker.publisher().publish(vec![ticket(2, Priority::Normal)])).await;
    let Some(Err(QueueError::Unconfirmed(reason))) = answers.first() else { panic!("{answers:?}") };
    // Found before it is tried: a publisher that waits for an answer in vain gets "it did not confirm".
    assert!(reason.contains("takes no messages"), "{reason}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_work_is_said_with_what_to_do() {
    let url = shared();
    let wrong = url.replace("a-password", "secret");
    let check = async |url: &str, words: &[&str]| {
        let broker = rabbitmq::open(&options(url), Clock::system(), random()).unwrap();
        complains(&broker, words).await;
    };
    check(&wrong, &["refuses user \"belfry\"", "correct the URL"]).await;
    check(&format!("{url}/nowhere"), &["no virtual host \"nowhere\"", "add_vhost"]).await;
    check("amqp://belfry:secret@127.0.0.1:9", &["cannot reach", "127.0.0.1:9"]).await;
    check("amqp://belfry:secret@no-such-host.invalid", &["cannot reach", "no-such-host"]).await;

    let options = options(&url);
    let (_connection, channel) = other_program(&url).await;
    let (name, none) = (format!("{}.bulk", options.prefix), FieldTable::default());
    let durable = QueueDeclareOptions { durable: true, ..Default::default() };
    channel.queue_declare(name.as_str().into(), durable, none).await.unwrap();
    let broker = rabbitmq::open(&options, Clock::system(), random()).unwrap();
    complains(&broker, &["other arguments", "delete it", "another prefix"]).await;
    channel.queue_purge(name.as_str().into(), QueuePurgeOptions::default()).await.unwrap();
    channel.queue_delete(name.as_str().into(), QueueDeleteOptions::default()).await.unwrap();
    has_room(&broker, Some(Priority::Bulk)).await;
    soon("drain", broker.drain()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_right_that_is_missing_is_said_with_what_to_do() {
    // `secret`, with a salt of zeros, as RabbitMQ keeps it.
    let definitions = r#"{"vhosts": [{"name": "/"}], "permissions": [{"user": "poor", "vhost": "/",
        "configure": "", "write": "", "read": ""}], "users": [{"name": "poor", "tags": "",
        "hashing_algorithm": "rabbit_password_hashing_sha256", "password_hash": "AAAAAAmpGNWh4Zb1y9OixpZ8JE04dFn6QBxU9IcgRn7sp6Ks"}]}"#;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("definitions.json");
    std::fs::write(&path, definitions).unwrap();
    let settings = format!("load_definitions = {}", path.display());
    let server = tokio::task::spawn_blocking(move || RabbitMq::start_with(&settings));
    let server = server.await.unwrap().unwrap();
    let url = server.url().replace("belfry:a-password", "poor:secret");
    let broker = rabbitmq::open(&options(&url), Clock::system(), random()).unwrap();
    complains(&broker, &["denies a right", "\"poor\"", "set_permissions"]).await;
}

fn shared() -> String {
    testbed::rabbitmq::shared_url().unwrap()
}

async fn other_program(url: &str) -> (Connection, Channel) {
    let connection = Connection::connect(url, ConnectionProperties::default()).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    (connection, channel)
}

async fn waiting(url: &str, name: &str) -> u64 {
    let (connection, channel) = other_program(url).await;
    let passive = QueueDeclareOptions { passive: true, durable: true, ..Default::default() };
    let queue = channel.queue_declare(name.into(), passive, FieldTable::default()).await.unwrap();
    connection.close(200, "seen".into()).await.unwrap();
    queue.message_count().into()
}
