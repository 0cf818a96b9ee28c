//! Queues behind brokers that are killed, wiped, full, cut off, fed with garbage, or wrongly configured.

#![expect(clippy::unwrap_used, reason = "all of it is test code: a failure here fails the test")]
#![expect(clippy::panic, reason = "likewise")]

mod cases;
mod kafka;
mod nats;
mod rabbitmq;
mod sqs;

use std::time::Duration;

use flow::Clock;
use notification::{ChunkId, Epoch, Priority, Ticket, Timestamp, limits};
use queue::{Broker, BrokerOptions, Message, QueueError};
use testbed::Proxy;

/// A broker of one kind, private to a test.
pub(crate) trait Server: Sized + 'static {
    /// Tickets that go through while the broker is killed and started again.
    const LOAD: u64 = 12_000;

    /// Opens a queue in a server of this kind.
    fn open(options: &BrokerOptions) -> Result<Broker, QueueError>;
    fn start() -> Self;
    fn url(&self) -> String;
    fn kill(&mut self);
    fn start_again(&mut self);
    fn wipe(&mut self);
    /// A link to the server at `url`.
    fn proxy(url: &str) -> Proxy {
        Proxy::before(url).unwrap()
    }
    /// Publishes `body` where tickets of `priority` are published, as another program.
    async fn intrude(url: &str, prefix: &str, priority: Priority, body: &[u8]);
    /// Messages that wait where tickets of `priority` wait, seen by another program.
    async fn waiting(url: &str, prefix: &str, priority: Priority) -> u64;
}

/// Any wait for a broker ends before, one for RabbitMQ's restart on a loaded machine included: that alone was seen to take a minute.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);

/// Waits for `future`; a test that waits for ever is a test that failed.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(PATIENCE, future).await;
    done.unwrap_or_else(|_late| panic!("{what}: not within {PATIENCE:?}"))
}

/// Asks another program's view of the broker until `holds`.
pub(crate) async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let mut looks = tokio::time::interval(Duration::from_millis(50));
    soon(what, async {
        while !holds().await {
            looks.tick().await;
        }
    })
    .await;
}

pub(crate) async fn becomes(broker: &Broker, available: bool) {
    let mut watch = broker.available();
    let changed = soon("available", watch.wait_for(|now| *now == available)).await.is_ok();
    assert!(changed);
}

pub(crate) async fn has_room(broker: &Broker, expect: Option<Priority>) {
    let mut capacity = broker.publisher().capacity();
    let changed = soon(&format!("capacity {expect:?}"), capacity.wait_for(|now| *now == expect))
        .await
        .is_ok();
    assert!(changed);
}

/// Waits until the link fails for a reason that has all of `words` in it, and no secret. Only for what keeps failing: a
/// trouble that passes is seen by [`has_failed`].
pub(crate) async fn complains(broker: &Broker, words: &[&str]) {
    eventually(&format!("{words:?}"), async || {
        let trouble = broker.trouble().unwrap_or_default();
        assert!(!trouble.contains("secret"), "{trouble}");
        words.iter().all(|word| trouble.contains(word))
    })
    .await;
    assert!(!*broker.available().borrow());
    assert_eq!(*broker.publisher().capacity().borrow(), None);
}

/// Waits until the link has failed for a reason that has all of `words` in it. It may be back by then.
pub(crate) async fn has_failed(broker: &Broker, words: &[&str]) {
    let mut failures = broker.failures();
    let told = failures.wait_for(|failures| {
        let reason = failures.last.as_ref().map_or("", |error| &error.0);
        words.iter().all(|word| reason.contains(word))
    });
    soon(&format!("{words:?}"), told).await.unwrap();
}

pub(crate) fn options(url: &str) -> BrokerOptions {
    BrokerOptions::new(url, testbed::unique_prefix())
}

pub(crate) fn random() -> fastrand::Rng {
    fastrand::Rng::with_seed(7)
}

/// A ticket that is good for as long as any.
pub(crate) fn ticket(number: u64, priority: Priority) -> Ticket {
    let millis = i64::try_from(Clock::system().wall().as_millis()).unwrap();
    let lease_until = Timestamp::from_millis(millis).plus(limits::TICKET_LEASE);
    Ticket { chunk: ChunkId(number), epoch: Epoch(1), priority, lease_until, count: 1 }
}

pub(crate) async fn publish(broker: &Broker, tickets: Vec<Ticket>) -> Vec<bool> {
    let answers = soon("publish", broker.publisher().publish(tickets)).await;
    answers.iter().map(Result::is_ok).collect()
}

/// Receives and acknowledges one ticket, and gives its number.
pub(crate) async fn take_one(broker: &Broker) -> u64 {
    let mut messages = soon("receive", broker.consumer().receive(Priority::Bulk, 1)).await;
    take(messages.remove(0)).await
}

pub(crate) async fn take(message: Message<Ticket>) -> u64 {
    // An acknowledgement that the broker does not receive has it repeat the ticket.
    let _told = message.receipt.acknowledge().await;
    message.item.chunk.0
}
