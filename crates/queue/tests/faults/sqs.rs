//! Behind SQS, as `ElasticMQ` speaks it.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use flow::Clock;
use notification::Priority;
use queue::broker::limits::TICKET_ANSWER_WAIT;
use queue::{Broker, BrokerOptions, QueueError, sqs};
use stream::aws::sqs_queue::{SqsEntry, SqsQueue};
use stream::aws::{AwsUrl, SdkConfig, sdk_config};
use testbed::{ElasticMq, Moto};

use crate::{
    Server, becomes, cases, complains, eventually, options, publish, random, soon, take_one, ticket,
};

/// The address of a server by its endpoint, which has the form that a proxy takes.
fn url_of(endpoint: &str) -> String {
    format!("sqs://key:secret@eu-central-1?endpoint={endpoint}")
}

impl Server for ElasticMq {
    // Ten of them are sent, received and deleted at a time: as many requests as other brokers have for more.
    const LOAD: u64 = 4_000;

    fn open(options: &BrokerOptions) -> Result<Broker, QueueError> {
        let options = BrokerOptions { url: url_of(&options.url), ..options.clone() };
        sqs::open(&options, Clock::system(), random())
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
        // SQS takes no empty messages, and no bytes that are no text.
        let body = format!(" {}", BASE64_STANDARD.encode(body));
        let sent =
            queue(url, prefix, priority).await.send(vec![SqsEntry { body, order: None }]).await;
        assert_eq!(sent, [Ok(())]);
    }

    async fn waiting(url: &str, prefix: &str, priority: Priority) -> u64 {
        let attributes = queue(url, prefix, priority).await.attributes().await.unwrap();
        let number = |name: &str| attributes.get(name).unwrap().parse::<u64>().unwrap();
        number("ApproximateNumberOfMessages") + number("ApproximateNumberOfMessagesNotVisible")
    }
}

async fn config(endpoint: &str) -> SdkConfig {
    let AwsUrl { mut aws, .. } = AwsUrl::parse(&url_of(endpoint), "sqs").unwrap();
    aws.region = Some("eu-central-1".to_owned());
    sdk_config(&aws).await.unwrap()
}

async fn queue(endpoint: &str, prefix: &str, priority: Priority) -> SqsQueue {
    let config = config(endpoint).await;
    SqsQueue::find(&config, &format!("{prefix}-{priority}"), None).await.unwrap()
}

fn shared() -> String {
    testbed::aws::shared_sqs_url().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_goes_and_comes() {
    cases::a_broker_that_goes_and_comes::<ElasticMq>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_that_are_no_tickets_are_deleted() {
    cases::messages_that_are_no_tickets::<ElasticMq>(&shared()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_that_is_full() {
    cases::a_queue_that_is_full::<ElasticMq>(&shared()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_that_is_half_open() {
    cases::a_link_that_is_half_open::<ElasticMq>(&shared()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_stands_still() {
    cases::a_broker_that_stands_still::<ElasticMq>(&shared()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_that_leaves() {
    cases::a_consumer_that_leaves::<ElasticMq>(&shared()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ticket_that_is_given_back_rests_before_it_comes_again() {
    let clock = Clock::system();
    let begun = clock.monotonic();
    let broker = ElasticMq::open(&options(&shared())).unwrap();
    cases::a_ticket_that_is_always_given_back(&broker, 3).await;
    assert!((clock.monotonic() - begun).as_millis() >= 900, "the third time comes later");
    soon("drain", broker.drain()).await;
}

/// A held ticket is reported to the server again and again, so that no other consumer gets it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ticket_that_is_held_for_long_stays_with_its_holder() {
    let options = options(&shared());
    let holder = ElasticMq::open(&options).unwrap();
    becomes(&holder, true).await;
    assert_eq!(publish(&holder, vec![ticket(1, Priority::Normal)]).await, [true]);
    let held = soon("receive", holder.consumer().receive(Priority::Bulk, 1)).await;
    let other = ElasticMq::open(&options).unwrap();
    becomes(&other, true).await;
    let wait = TICKET_ANSWER_WAIT.mul_f64(1.3);
    let consumer = other.consumer();
    let second = tokio::time::timeout(wait, consumer.receive(Priority::Bulk, 1)).await;
    assert!(second.is_err(), "another got it as well");
    holder.close();
    drop(held);
    assert_eq!(take_one(&other).await, 1);
    soon("drain", holder.drain()).await;
    soon("drain", other.drain()).await;
}

/// A queue that gives messages late cannot carry tickets; the next link finds it corrected.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_work_is_said_with_what_to_do() {
    let endpoint = shared();
    let options = options(&endpoint);
    let name = format!("{}-{}", options.prefix, Priority::Normal);
    let delay = [("DelaySeconds", "5".to_owned())];
    SqsQueue::find_or_create(&config(&endpoint).await, &name, &delay).await.unwrap();
    let broker = ElasticMq::open(&options).unwrap();
    complains(&broker, &["cannot carry tickets", "delays messages by 5 s", "another prefix"]).await;
    soon("drain", broker.drain()).await;

    let nowhere = ElasticMq::open(&crate::options("http://127.0.0.1:9")).unwrap();
    complains(&nowhere, &["cannot reach", "127.0.0.1:9"]).await;
    for url in ["", "sqs:/hush", "sqs://k:hush@r?colour=hush", "sqs://k@hush"] {
        let options = crate::options(url);
        let error = sqs::open(&options, Clock::system(), random()).unwrap_err().to_string();
        assert!(error.contains("sqs://REGION") && !error.contains("hush"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_credentials_are_said_with_what_to_do() {
    let server =
        tokio::task::spawn_blocking(Moto::start_with_authentication).await.unwrap().unwrap();
    let broker = ElasticMq::open(&options(&server.url())).unwrap();
    complains(&broker, &["refuses these credentials", "correct the access key"]).await;
    soon("drain", broker.drain()).await;
}

/// moto has SQS too, and another author.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_server_carries_tickets() {
    let options = options(&testbed::aws::shared_moto_url().unwrap());
    let broker = ElasticMq::open(&options).unwrap();
    becomes(&broker, true).await;
    let tickets = (0..100).map(|number| ticket(number, Priority::Bulk)).collect();
    assert!(!publish(&broker, tickets).await.contains(&false));
    let mut seen = std::collections::BTreeSet::new();
    while seen.len() < 100 {
        seen.insert(take_one(&broker).await);
    }
    eventually("they are gone", async || {
        ElasticMq::waiting(&options.url, &options.prefix, Priority::Bulk).await == 0
    })
    .await;
    soon("drain", broker.drain()).await;
}
