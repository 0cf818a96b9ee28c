//! Behind Kafka.

use std::collections::BTreeSet;
use std::time::Duration;

use flow::Clock;
use krafka::admin::{ConsumerGroupLagOptions, DeleteTopicsOptions};
use krafka::auth::AuthConfig;
use notification::Priority;
use queue::broker::limits::TICKET_DELIVERIES;
use queue::{Broker, BrokerOptions, QueueError, kafka};
use testbed::{Kafka, Proxy};

use crate::{
    Server, becomes, cases, complains, has_failed, options, publish, random, soon, take_one, ticket,
};

impl Server for Kafka {
    fn open(options: &BrokerOptions) -> Result<Broker, QueueError> {
        kafka::open(options, Clock::system(), random())
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

    fn proxy(_url: &str) -> Proxy {
        testbed::kafka::shared().unwrap().proxy().unwrap()
    }

    async fn intrude(url: &str, prefix: &str, priority: Priority, body: &[u8]) {
        let producer = other_program(url).await.producer().build().await.unwrap();
        let record = krafka::Record::new(format!("{prefix}.{priority}"), body.to_vec());
        let _position = producer.send(record).await.unwrap();
        producer.close().await.unwrap();
    }

    async fn waiting(url: &str, prefix: &str, priority: Priority) -> u64 {
        let admin = other_program(url).await.admin();
        let name = format!("{prefix}.{priority}");
        let lags = admin.consumer_group_lag(name, ConsumerGroupLagOptions::default()).await;
        let lag =
            |lag: krafka::Result<krafka::admin::ConsumerGroupLag>| lag.unwrap().lag.unwrap_or(0);
        lags.unwrap().into_values().map(|of| u64::try_from(lag(of)).unwrap()).sum()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_goes_and_comes() {
    cases::a_broker_that_goes_and_comes::<Kafka>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_that_are_no_tickets_are_passed_over() {
    cases::messages_that_are_no_tickets::<Kafka>(&shared()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_that_is_full() {
    cases::a_queue_that_is_full::<Kafka>(&shared()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_that_is_half_open() {
    cases::a_link_that_is_half_open::<Kafka>(&shared()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_stands_still() {
    cases::a_broker_that_stands_still::<Kafka>(&shared()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_that_leaves() {
    cases::a_consumer_that_leaves::<Kafka>(&shared()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ticket_that_is_given_back_rests_before_it_comes_again() {
    let clock = Clock::system();
    let begun = clock.monotonic();
    let broker = kafka::open(&options(&shared()), clock, random()).unwrap();
    cases::a_ticket_that_is_always_given_back(&broker, 3).await;
    assert!((clock.monotonic() - begun).as_millis() >= 900, "the third time comes later");
    const { assert!(TICKET_DELIVERIES > 3) };
    soon("drain", broker.drain()).await;
}

/// Tickets move with their partitions while they wait, and stay with their holder while they are in hand.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_that_grows_and_shrinks_loses_and_doubles_nothing() {
    let options = options(&shared());
    let first = kafka::open(&options, Clock::system(), random()).unwrap();
    becomes(&first, true).await;
    let tickets = (0..300).map(|number| ticket(number, Priority::Normal)).collect();
    assert!(!publish(&first, tickets).await.contains(&false));
    let in_hand = soon("receive", first.consumer().receive(Priority::Bulk, 20)).await;
    let second = kafka::open(&options, Clock::system(), random()).unwrap();
    becomes(&second, true).await;
    // It gets its share of the partitions, with what waits there, while the first holds its own.
    let mut seen = BTreeSet::from([take_one(&second).await]);
    let mut count = 1;
    for message in in_hand {
        seen.insert(crate::take(message).await);
        count += 1;
    }
    let both = async {
        while seen.len() < 300 {
            let (one, other) = (first.consumer(), second.consumer());
            let messages = tokio::select! {
                messages = one.receive(Priority::Bulk, 20) => messages,
                messages = other.receive(Priority::Bulk, 20) => messages,
            };
            for message in messages {
                seen.insert(crate::take(message).await);
                count += 1;
            }
        }
    };
    soon("all arrive", both).await;
    assert_eq!(count, 300, "each came once");
    soon("drain", first.drain()).await;
    assert_eq!(publish(&second, vec![ticket(1_000, Priority::Normal)]).await, [true]);
    assert_eq!(take_one(&second).await, 1_000);
    soon("drain", second.drain()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn topics_that_are_deleted_come_back() {
    let options = options(&shared());
    let broker = kafka::open(&options, Clock::system(), random()).unwrap();
    becomes(&broker, true).await;
    let names: Vec<String> =
        Priority::ALL.iter().map(|priority| format!("{}.{priority}", options.prefix)).collect();
    let admin = other_program(&options.url).await.admin();
    for deleted in admin.delete_topics(&names, DeleteTopicsOptions::default()).await.unwrap() {
        deleted.1.unwrap();
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
async fn what_cannot_work_is_said_with_what_to_do() {
    let url = shared();
    let wrong = url.replace("a-password", "secret");
    let check = async |url: &str, words: &[&str]| {
        let broker = kafka::open(&options(url), Clock::system(), random()).unwrap();
        complains(&broker, words).await;
    };
    check(&wrong, &["refuses this user", "correct the address"]).await;
    check("kafka://belfry:secret@127.0.0.1:9", &["cannot reach", "127.0.0.1:9"]).await;
    let broker = kafka::open(
        &options("kafka://belfry:secret@no-such-host.invalid"),
        Clock::system(),
        random(),
    );
    has_failed(&broker.unwrap(), &["no-such-host"]).await;
    let error = kafka::open(&options(&format!("{url}/topic")), Clock::system(), random());
    assert!(error.unwrap_err().to_string().contains("prefix"));
}

fn shared() -> String {
    testbed::kafka::shared_url().unwrap()
}

async fn other_program(url: &str) -> krafka::Kafka {
    let (user, broker) = url.trim_start_matches("kafka://").split_once('@').unwrap();
    let (user, password) = user.split_once(':').unwrap();
    let client = krafka::Kafka::builder(broker).security(AuthConfig::sasl_plain(user, password));
    let client = client.request_timeout(Duration::from_secs(30)).connect();
    client.await.unwrap()
}
