//! The promises behind any broker.

use std::collections::BTreeSet;
use std::ops::Range;

use notification::Priority;
use queue::{Broker, BrokerOptions, QueueError};
use tokio::sync::watch;

use crate::{
    Server, becomes, complains, eventually, has_room, options, publish, soon, take, take_one,
    ticket,
};

/// The broker is not there at first, then killed under load, then wiped under load; it recovers by itself.
pub(crate) async fn a_broker_that_goes_and_comes<S: Server + Send>() {
    let server = apart((), |()| S::start()).await;
    let server = apart(server, |server| also(server, S::kill)).await;
    let broker = S::open(&options(&server.url())).unwrap();
    let publisher = broker.publisher();
    let answers =
        soon("the wait has an end", publisher.publish(vec![ticket(0, Priority::Normal)])).await;
    assert!(matches!(&*answers, [Err(QueueError::Unconfirmed(_))]), "{answers:?}");
    has_room(&broker, None).await;
    complains(&broker, &["cannot reach"]).await;
    let server = apart(server, |server| also(server, S::start_again)).await;
    has_room(&broker, Some(Priority::Bulk)).await;

    // Of the load a quarter is through when the outage begins.
    let outage = S::LOAD / 4;
    let (progress, mut passed) = watch::channel(0);
    let (seen, server) =
        tokio::join!(pump(&broker, 0..S::LOAD, Loses::Nothing, &progress), async {
            soon("load", passed.wait_for(|passed| *passed >= outage)).await.unwrap();
            let server = apart(server, |server| also(server, S::kill)).await;
            becomes(&broker, false).await;
            apart(server, |server| also(server, S::start_again)).await
        });
    assert_eq!(seen, S::LOAD);

    let (progress, mut passed) = watch::channel(0);
    let (seen, _server) = tokio::join!(pump(&broker, 0..S::LOAD, Loses::All, &progress), async {
        soon("load", passed.wait_for(|passed| *passed >= outage)).await.unwrap();
        apart(server, |server| also(server, S::wipe)).await
    });
    assert_eq!(seen, S::LOAD);
    becomes(&broker, true).await;
    soon("drain", broker.drain()).await;
}

/// Messages of other programs, and of later versions, are put aside; tickets among them arrive.
pub(crate) async fn messages_that_are_no_tickets<S: Server>(url: &str) {
    let options = options(url);
    let broker = S::open(&options).unwrap();
    becomes(&broker, true).await;
    let bodies: [&[u8]; 4] = [b"", b"{}", &[0; 32], &[255; 4_096]];
    for body in bodies {
        S::intrude(url, &options.prefix, Priority::Normal, body).await;
    }
    assert_eq!(publish(&broker, vec![ticket(1, Priority::Normal)]).await, [true]);
    assert_eq!(take_one(&broker).await, 1);
    eventually("they are gone", async || {
        S::waiting(url, &options.prefix, Priority::Normal).await == 0
    })
    .await;
    assert!(*broker.available().borrow(), "nothing was disturbed");
    soon("drain", broker.drain()).await;
}

/// A full queue refuses and reports it, and has capacity again once its tickets are consumed; more urgent ones are not concerned.
pub(crate) async fn a_queue_that_is_full<S: Server>(url: &str) {
    let options = BrokerOptions { tickets_max: 40, consume: false, ..options(url) };
    let broker = S::open(&options).unwrap();
    becomes(&broker, true).await;
    let mut capacity = broker.publisher().capacity();
    let mut published = 0_usize;
    // Brokers may take a few more than their bound.
    soon("full", async {
        while *capacity.borrow_and_update() == Some(Priority::Bulk) {
            let tickets = (0..20).map(|number| ticket(number, Priority::Bulk)).collect();
            let answers = publish(&broker, tickets).await;
            published += answers.into_iter().filter(|confirmed| *confirmed).count();
        }
    })
    .await;
    has_room(&broker, Some(Priority::Normal)).await;
    assert!((40..400).contains(&published), "{published}");
    assert_eq!(publish(&broker, vec![ticket(1, Priority::Urgent)]).await, [true]);
    assert_eq!(*capacity.borrow(), Some(Priority::Normal), "still full");

    let consumer = S::open(&BrokerOptions { consume: true, ..options.clone() }).unwrap();
    for _ in 0..=published {
        take_one(&consumer).await;
    }
    has_room(&broker, Some(Priority::Bulk)).await;
    soon("drain", consumer.drain()).await;
    soon("drain", broker.drain()).await;
}

/// A link that swallows every byte is found, and replaced as soon as bytes pass again.
pub(crate) async fn a_link_that_is_half_open<S: Server>(url: &str) {
    let proxy = apart(url.to_owned(), |url| S::proxy(&url)).await;
    let broker = S::open(&options(proxy.url())).unwrap();
    becomes(&broker, true).await;
    let proxy = apart(proxy, |proxy| also(proxy, |proxy| proxy.half_open())).await;
    assert_eq!(publish(&broker, vec![ticket(1, Priority::Normal)]).await, [false]);
    // Missed heartbeats end it (`LINK_HEARTBEAT`); until then it looks alive.
    becomes(&broker, false).await;
    let proxy = apart(proxy, |proxy| also(proxy, |proxy| proxy.pass())).await;
    becomes(&broker, true).await;
    has_room(&broker, Some(Priority::Bulk)).await;
    assert_eq!(publish(&broker, vec![ticket(2, Priority::Normal)]).await, [true]);
    soon("receive", async { while take_one(&broker).await != 2 {} }).await;
    soon("drain", broker.drain()).await;
    apart(proxy, drop).await;
}

/// A broker that accepts connections and says nothing costs one attempt after the other, and no more.
pub(crate) async fn a_broker_that_stands_still<S: Server>(url: &str) {
    let proxy = apart(url.to_owned(), |url| S::proxy(&url)).await;
    let proxy = apart(proxy, |proxy| also(proxy, |proxy| proxy.freeze())).await;
    let broker = S::open(&options(proxy.url())).unwrap();
    eventually("trouble", async || broker.trouble().is_some()).await;
    assert!(!*broker.available().borrow());
    let proxy = apart(proxy, |proxy| also(proxy, |proxy| proxy.pass())).await;
    becomes(&broker, true).await;
    soon("drain", broker.drain()).await;
    apart(proxy, drop).await;
}

/// Tickets that a leaving consumer has not taken are there for another at once.
pub(crate) async fn a_consumer_that_leaves<S: Server>(url: &str) {
    let options = options(url);
    let leaves = S::open(&options).unwrap();
    becomes(&leaves, true).await;
    let tickets = (0..100).map(|number| ticket(number, Priority::Normal)).collect();
    assert!(!publish(&leaves, tickets).await.contains(&false));
    let held = soon("receive", leaves.consumer().receive(Priority::Bulk, 10)).await;
    let received = held.len();
    let stays = S::open(&options).unwrap();
    becomes(&stays, true).await;
    leaves.close();
    assert!(leaves.consumer().receive(Priority::Bulk, 10).await.is_empty());
    let mut seen = BTreeSet::new();
    while seen.len() < 100 - received {
        seen.insert(take_one(&stays).await);
    }
    for message in held {
        assert!(!seen.contains(&message.item.chunk.0), "it is still held");
        message.receipt.acknowledge().await.unwrap();
    }
    soon("drain", leaves.drain()).await;
    // Acknowledgements of the one that stays are handed over, and may be under way.
    eventually("nothing is left", async || {
        S::waiting(url, &options.prefix, Priority::Normal).await == 0
    })
    .await;
    soon("drain", stays.drain()).await;
}

/// Gives one ticket back each time that it comes, `times` times.
pub(crate) async fn a_ticket_that_is_always_given_back(broker: &Broker, times: usize) {
    becomes(broker, true).await;
    assert_eq!(publish(broker, vec![ticket(1, Priority::Normal)]).await, [true]);
    for _ in 0..times {
        let messages = soon("receive", broker.consumer().receive(Priority::Bulk, 1)).await;
        assert_eq!(messages.first().map(|message| message.item.chunk.0), Some(1));
    }
}

/// A ticket that the broker loses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Loses {
    /// Keeps all confirmed tickets: each is published once.
    Nothing,
    /// Loses all tickets: those that have not arrived are published anew, as dispatch does when leases end.
    All,
}

/// Publishes until every number of `numbers` arrived, and gives how many did.
async fn pump(
    broker: &Broker,
    numbers: Range<u64>,
    loses: Loses,
    progress: &watch::Sender<u64>,
) -> u64 {
    let seen = std::cell::RefCell::new(BTreeSet::new());
    let all = numbers.clone().count();
    let publish = async {
        let mut missing: Vec<u64> = numbers.collect();
        let mut capacity = broker.publisher().capacity();
        while !missing.is_empty() {
            capacity.wait_for(Option::is_some).await.unwrap();
            let window: Vec<u64> = missing.drain(..missing.len().min(100)).collect();
            let tickets = window.iter().map(|number| ticket(*number, Priority::Normal)).collect();
            let confirmed = publish(broker, tickets).await;
            for (number, confirmed) in window.into_iter().zip(confirmed) {
                let is_through = match loses {
                    Loses::Nothing => confirmed,
                    Loses::All => seen.borrow().contains(&number),
                };
                if !is_through {
                    missing.push(number);
                }
            }
            missing.retain(|number| !seen.borrow().contains(number));
        }
    };
    let receive = async {
        while seen.borrow().len() < all {
            for message in broker.consumer().receive(Priority::Bulk, 64).await {
                let number = take(message).await;
                seen.borrow_mut().insert(number);
            }
            progress.send_replace(seen.borrow().len() as u64);
        }
    };
    let both = async { tokio::join!(publish, receive) };
    soon("everything arrives", both).await;
    let seen = seen.borrow().len();
    seen as u64
}

/// Runs `work`, which blocks, on a thread of its own.
async fn apart<T: Send + 'static, R: Send + 'static>(
    value: T,
    work: impl FnOnce(T) -> R + Send + 'static,
) -> R {
    tokio::task::spawn_blocking(|| work(value)).await.unwrap()
}

fn also<S>(mut server: S, work: impl FnOnce(&mut S)) -> S {
    work(&mut server);
    server
}
