//! Connects, declares, serves, and connects again, for ever.

use std::sync::Arc;
use std::time::Duration;

use flow::Backoff;
use notification::{Priority, limits};
use tokio::time::{sleep, timeout};

use super::Shared;
use super::error::BrokerError;
use super::link::{Declared, Link, Protocol};

/// The one task of a queue.
#[derive(Debug)]
pub(crate) struct Session<P: Protocol> {
    pub(crate) protocol: P,
    pub(crate) shared: Arc<Shared<P::Link>>,
    pub(crate) consume: bool,
    /// Draws the jitter.
    pub(crate) random: fastrand::Rng,
    /// Links in a row that did not last.
    pub(crate) short_links: u16,
}

/// The first pause after a failure, at most; the next ones double.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// The longest pause, at most.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// How long the first link has to last before it is called good: a broker says within it what it denies. After each
/// one that did not last, the next has to last twice as long.
const FIRST_PROOF: Duration = Duration::from_millis(250);
/// The longest that a link has to last before it is called good. What lasted longer was a good one.
const LONGEST_PROOF: Duration = Duration::from_secs(30);
/// How often the broker is told that tickets are still held; a third of [`limits::TICKET_ANSWER_WAIT`].
const KEEP_EVERY: Duration = Duration::from_secs(3);

const _: () = assert!(KEEP_EVERY.as_millis() * 3 <= limits::TICKET_ANSWER_WAIT.as_millis());

// === impl Session ===

impl<P: Protocol> Session<P> {
    /// Runs until the queue is closed and everything received is answered for.
    pub(crate) async fn run(mut self) {
        let mut failures = 0_u16;
        for attempt in 0_usize.. {
            let begun = self.shared.clock.monotonic();
            let linked = tokio::select! {
                biased;
                () = self.shared.status.closed() => return,
                linked = self.link(attempt) => linked,
            };
            let ended = match linked {
                Ok(link) => self.serve(Arc::new(link)).await,
                Err(fault) => Err(fault),
            };
            let Err(fault) = ended else { return };
            // A link that lasted was a good one: its end begins a new row of failures.
            let lasted = self.shared.clock.monotonic().saturating_duration_since(begun);
            failures = if lasted > LONGEST_PAUSE { 1 } else { failures.saturating_add(1) };
            self.shared.status.went_down(&fault);
            let pause = backoff().delay(failures, None, &mut self.random);
            tokio::select! {
                () = self.shared.status.closed() => return,
                () = sleep(pause) => {}
            }
        }
    }

    async fn link(&self, attempt: usize) -> Result<P::Link, BrokerError> {
        let connect = self.protocol.connect(attempt);
        timeout(limits::LINK_TIMEOUT, connect).await.unwrap_or_else(|_late| Err(silent(P::NAME)))
    }

    /// Serves until the queue is closed and everything received is answered for.
    ///
    /// # Errors
    /// When the link ended before.
    async fn serve(&mut self, link: Arc<P::Link>) -> Result<(), BrokerError> {
        let shared = Arc::clone(&self.shared);
        shared.stock.forget();
        shared.room.set_linked(!shared.status.is_closed());
        shared.link.send_replace(Some(Arc::clone(&link)));
        let begun = shared.clock.monotonic();
        let ended = tokio::select! {
            biased;
            () = shared.status.closed() => Ok(()),
            fault = self.work(&link) => Err(fault),
        };
        if ended.is_ok() {
            let settle = async {
                // In this order, so that nothing that is given back is given out here again.
                let _late = timeout(limits::PUBLISH_TIMEOUT, link.stop(&shared.stock)).await;
                shared.stock.give_back();
                shared.stock.settled().await;
            };
            tokio::select! {
                () = settle => {}
                () = shared.keep() => {}
                _fault = link.lost(&shared.room) => {}
            }
            // A broker that does not answer to a farewell takes it for a lost connection.
            let _late = timeout(limits::PUBLISH_TIMEOUT, link.close()).await;
        }
        let lasted = shared.clock.monotonic().saturating_duration_since(begun);
        self.short_links =
            if lasted > LONGEST_PROOF { 0 } else { self.short_links.saturating_add(1) };
        shared.room.set_linked(false);
        shared.link.send_replace(None);
        ended
    }

    /// Everything there is to do with a link, until it fails.
    async fn work(&mut self, link: &P::Link) -> BrokerError {
        let (consume, shared) = (self.consume, Arc::clone(&self.shared));
        let stock = &shared.stock;
        let proof = proof(self.short_links);
        tokio::select! {
            fault = link.lost(&shared.room) => fault,
            fault = link.consume(Priority::Urgent, stock), if consume => fault,
            fault = link.consume(Priority::Normal, stock), if consume => fault,
            fault = link.consume(Priority::Bulk, stock), if consume => fault,
            fault = self.repair(link) => fault,
            () = shared.keep() => BrokerError("keeping ended".to_owned()),
            fault = shared.prove(proof) => fault,
        }
    }

    /// Looks after queues that did not take a ticket: declares them, should they be gone, and watches those that are full
    /// until a good part of them is free. The pauses grow until a
    /// ticket is taken.
    async fn repair(&mut self, link: &P::Link) -> BrokerError {
        let shared = Arc::clone(&self.shared);
        loop {
            let mut looks = 0_u16;
            shared.room.suspected().await;
            while shared.room.has_suspects() {
                shared.room.suspected().await;
                looks = looks.saturating_add(1);
                let failures = looks.saturating_add(shared.room.vain_looks());
                sleep(backoff().delay(failures, None, &mut self.random)).await;
                match timeout(limits::LINK_TIMEOUT, link.declare()).await {
                    Ok(Ok(Declared { waiting, tickets_max })) => {
                        // Of the smallest queues, one place free is a good part.
                        let few = (tickets_max / 4 * 3).max(tickets_max.min(4)).max(1);
                        if let Err(fault) = shared.room.clear(waiting, few) {
                            return fault;
                        }
                    }
                    Ok(Err(fault)) => return fault,
                    Err(_late) => return silent(P::NAME),
                }
            }
        }
    }
}

// === impl Shared ===

impl<L: Link> Shared<L> {
    /// Calls the link good once it has lasted for `proof`; never ends. One that connects and fails at once, for ever, so
    /// stays in trouble, and is not on and off.
    async fn prove(&self, proof: Duration) -> BrokerError {
        sleep(proof).await;
        self.status.went_up();
        std::future::pending().await
    }

    /// Keeps what is held, for ever. Sleeps while nothing is.
    async fn keep(&self) {
        loop {
            self.stock.in_use().await;
            sleep(KEEP_EVERY).await;
            self.stock.keep();
        }
    }
}

fn backoff() -> Backoff {
    Backoff::new(FIRST_PAUSE, LONGEST_PAUSE).unwrap_or(Backoff::DEFAULT)
}

fn proof(short_links: u16) -> Duration {
    // 2^7 times the first is more than the longest.
    FIRST_PROOF.saturating_mul(1 << short_links.min(7)).min(LONGEST_PROOF)
}

fn silent(broker: &str) -> BrokerError {
    let seconds = limits::LINK_TIMEOUT.as_secs();
    BrokerError(format!(
        "{broker} accepted a connection and did not answer within {seconds} s: is it overloaded, \
         or is its cluster without a majority?"
    ))
}
