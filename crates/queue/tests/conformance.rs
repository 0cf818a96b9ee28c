//! Every queue passes the conformance suite: the in-process one, and those behind real brokers.

use std::sync::Arc;

use flow::Clock;
use notification::Chunk;
use queue::conformance::{TestedQueue, exercise};
use queue::{Broker, BrokerOptions, MemoryQueue, kafka, nats, rabbitmq, sqs};

#[tokio::test]
async fn the_in_process_queue_is_a_queue() {
    exercise(|| async {
        let queue: MemoryQueue<Arc<Chunk>> = MemoryQueue::new(usize::MAX);
        let closing = queue.clone();
        TestedQueue {
            publish: Arc::new(queue.clone()),
            consume: Arc::new(queue),
            close: async move || closing.close(),
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rabbitmq_is_a_queue() {
    let url = testbed::rabbitmq::shared_url().unwrap();
    exercise(|| async {
        subject(rabbitmq::open(&options(&url), Clock::system(), random()).unwrap()).await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nats_is_a_queue() {
    let url = testbed::nats::shared_url().unwrap();
    exercise(|| async {
        subject(nats::open(&options(&url), Clock::system(), random()).unwrap()).await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqs_is_a_queue() {
    let endpoint = testbed::aws::shared_sqs_url().unwrap();
    let url = format!("sqs://key:secret@eu-central-1?endpoint={endpoint}");
    exercise(|| async {
        subject(sqs::open(&options(&url), Clock::system(), random()).unwrap()).await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kafka_is_a_queue() {
    let url = testbed::kafka::shared_url().unwrap();
    exercise(|| async {
        subject(kafka::open(&options(&url), Clock::system(), random()).unwrap()).await
    })
    .await;
}

async fn subject(broker: Broker) -> TestedQueue<notification::Ticket, impl AsyncFnOnce()> {
    let mut available = broker.available();
    assert!(available.wait_for(|available| *available).await.is_ok());
    let (publish, consume) = (broker.publisher(), broker.consumer());
    TestedQueue { publish, consume, close: async move || broker.close() }
}

fn options(url: &str) -> BrokerOptions {
    BrokerOptions::new(url, testbed::unique_prefix())
}

fn random() -> fastrand::Rng {
    fastrand::Rng::with_seed(1)
}
