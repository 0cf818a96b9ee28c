//! The cost of tickets through a broker: tickets per second, and microseconds of this process's CPU per ticket.
//!
//! `cargo run --release -p queue --example queue_speed [tickets] [window]`
//!
//! Starts a RabbitMQ and a NATS of its own, or uses those of `BELFRY_TEST_RABBITMQ_URL` and `BELFRY_TEST_NATS_URL`. First everything
//! is published, a window per call as dispatch does; then everything is received and acknowledged, 64 at a time as
//! collect does; then both at once.

#![expect(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a measurement reads the clock, prints, and fails by panicking"
)]

use std::time::Instant;

use flow::Clock;
use notification::{Priority, Ticket, limits};
use queue::conformance::SampleItem;
use queue::{Broker, BrokerOptions, nats, rabbitmq};

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse().expect("a number"));
    let tickets: usize = arguments.next().unwrap_or(20_000);
    let window: usize = arguments.next().unwrap_or(limits::CLAIM_ITEMS / limits::CHUNK_WEIGHT);
    let random = || fastrand::Rng::with_seed(1);
    let (rabbitmq_url, nats_url) = tokio::task::spawn_blocking(|| {
        let rabbitmq = testbed::rabbitmq::shared_url().expect("a running RabbitMQ");
        (rabbitmq, testbed::nats::shared_url().expect("a running NATS"))
    })
    .await
    .expect("no panic");
    let options = |url: &str| BrokerOptions::new(url, testbed::unique_prefix());
    let rabbitmq = rabbitmq::open(&options(&rabbitmq_url), Clock::system(), random());
    measure("RabbitMQ", rabbitmq.expect("an address"), tickets, window).await;
    let nats = nats::open(&options(&nats_url), Clock::system(), random());
    measure("NATS", nats.expect("an address"), tickets, window).await;
}

async fn measure(name: &str, broker: Broker, tickets: usize, window: usize) {
    let mut available = broker.available();
    available.wait_for(|available| *available).await.expect("the queue is open");
    let started = Step::start();
    publish(&broker, tickets, window).await;
    started.stop(name, "publish", tickets);
    let started = Step::start();
    receive(&broker, tickets).await;
    started.stop(name, "receive", tickets);
    let started = Step::start();
    tokio::join!(publish(&broker, tickets, window), receive(&broker, tickets));
    started.stop(name, "both", tickets);
    broker.drain().await;
}

async fn publish(broker: &Broker, tickets: usize, window: usize) {
    let publisher = broker.publisher();
    let mut number = 0;
    while number < tickets {
        let end = tickets.min(number + window);
        let batch = (number..end).map(|number| Ticket::sample(number as u64, Priority::Normal));
        for answer in publisher.publish(batch.collect()).await {
            answer.expect("a confirmed ticket");
        }
        number = end;
    }
}

async fn receive(broker: &Broker, tickets: usize) {
    let consumer = broker.consumer();
    let mut received = 0;
    while received < tickets {
        for message in consumer.receive(Priority::Bulk, limits::TAKE_TICKETS).await {
            message.receipt.acknowledge().await.expect("a connection");
            received += 1;
        }
    }
}

/// A step under measurement.
struct Step {
    wall: Instant,
    cpu_us: u64,
}

impl Step {
    fn start() -> Self {
        Self { wall: Instant::now(), cpu_us: cpu_us() }
    }

    #[expect(clippy::cast_precision_loss, reason = "shown with one decimal")]
    fn stop(self, broker: &str, step: &str, tickets: usize) {
        let cpu = (cpu_us() - self.cpu_us) as f64 / tickets as f64;
        let rate = tickets as f64 / self.wall.elapsed().as_secs_f64();
        println!("{broker:<9} {step:<8} {rate:>9.0} /s {cpu:>6.1} us CPU per ticket");
    }
}

/// CPU time of this process, microseconds. Servers that it started are processes of their own.
fn cpu_us() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("procfs");
    let fields = stat.rsplit(')').next().expect("a program's name").split_whitespace();
    let ticks: u64 = fields.skip(11).take(2).map(|field| field.parse().unwrap_or(0)).sum::<u64>();
    ticks * 10_000
}
