//! Connects, declares, serves, and connects again, for ever.

use std::sync::Arc;
use std::time::Duration;

use flow::Backoff;
use notification::Priority;
use tokio::time::{sleep, timeout};

use super::BrokerState;
use super::error::BrokerError;
use super::link::{Declared, Link, Protocol};
use crate::broker::limits::{LINK_TIMEOUT, PUBLISH_TIMEOUT, TICKET_ANSWER_WAIT};

/// The one task of a queue.
#[derive(Debug)]
pub(crate) struct LinkSupervisor<P: Protocol> {
    pub(crate) protocol: P,
    pub(crate) shared: Arc<BrokerState<P::Link>>,
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
/// Time that the first link has to last before it counts as good: a broker denies a right within it. After each link that did not
/// last, the next has to last twice as long.
const FIRST_PROOF: Duration = Duration::from_millis(250);
/// The longest time that a link has to last before it counts as good. A link that lasted longer was a good one.
const LONGEST_PROOF: Duration = Duration::from_secs(30);
/// Time between two notices to the broker that tickets are still held; a third of [`TICKET_ANSWER_WAIT`].
const KEEP_EVERY: Duration = Duration::from_secs(3);

const _: () = assert!(KEEP_EVERY.as_millis() * 3 <= TICKET_ANSWER_WAIT.as_millis());

// === impl LinkSupervisor ===

impl<P: Protocol> LinkSupervisor<P> {
    /// Runs until the queue is closed and everything received is answered for.
    pub(crate) async fn run(mut self) {
        let mut failures = 0_u16;
        for attempt in 0_usize.. {
            let begun = self.shared.clock.monotonic();
            let linked = tokio::select! {
                // A queue that was closed is not to be linked once more, even if the link is ready.
                biased;
                () = self.shared.status.closed() => return,
                linked = self.link(attempt) => linked,
            };
            let ended = match linked {
                Ok(link) => self.serve(Arc::new(link)).await,
                Err(error) => Err(error),
            };
            let Err(error) = ended else { return };
            // A link that lasted was a good one: its end begins a new row of failures.
            let lasted = self.shared.clock.monotonic().saturating_duration_since(begun);
            failures = if lasted > LONGEST_PAUSE { 1 } else { failures.saturating_add(1) };
            self.shared.status.went_down(&error);
            let pause = backoff().delay(failures, None, &mut self.random);
            tokio::select! {
                () = self.shared.status.closed() => return,
                () = sleep(pause) => {}
            }
        }
    }

    async fn link(&self, attempt: usize) -> Result<P::Link, BrokerError> {
        let connect = self.protocol.connect(attempt);
        timeout(LINK_TIMEOUT, connect).await.unwrap_or_else(|_late| Err(silent(P::NAME)))
    }

    /// Serves until the queue is closed and everything received is answered for.
    ///
    /// # Errors
    /// When the link ended before.
    async fn serve(&mut self, link: Arc<P::Link>) -> Result<(), BrokerError> {
        let shared = Arc::clone(&self.shared);
        shared.held.forget();
        // A queue that was closed while it connected must not seem to have room.
        shared.capacity.set_linked(!shared.status.is_closed());
        shared.link.send_replace(Some(Arc::clone(&link)));
        let begun = shared.clock.monotonic();
        let ended = tokio::select! {
            biased;
            () = shared.status.closed() => Ok(()),
            error = self.work(&link) => Err(error),
        };
        if ended.is_ok() {
            let settle = async {
                // In this order, so that nothing that is given back is given out here again.
                let _late = timeout(PUBLISH_TIMEOUT, link.stop(&shared.held)).await;
                shared.held.give_back();
                shared.held.settled().await;
            };
            tokio::select! {
                () = settle => {}
                // The answers may take longer than the broker waits, and it would give the tickets out again meanwhile.
                () = shared.keep() => {}
                // Nothing is left to be answered then: the broker gives all of it out again.
                _fault = link.lost(&shared.capacity) => {}
            }
            // A broker that does not answer to a farewell takes it for a lost connection.
            let _late = timeout(PUBLISH_TIMEOUT, link.close()).await;
        }
        let lasted = shared.clock.monotonic().saturating_duration_since(begun);
        self.short_links =
            if lasted > LONGEST_PROOF { 0 } else { self.short_links.saturating_add(1) };
        shared.capacity.set_linked(false);
        shared.link.send_replace(None);
        ended
    }

    /// Performs all tasks of a link until it fails; returns the failure.
    async fn work(&mut self, link: &P::Link) -> BrokerError {
        let (consume, shared) = (self.consume, Arc::clone(&self.shared));
        let held = &shared.held;
        let proof = proof(self.short_links);
        tokio::select! {
            error = link.lost(&shared.capacity) => error,
            error = link.consume(Priority::Urgent, held), if consume => error,
            error = link.consume(Priority::Normal, held), if consume => error,
            error = link.consume(Priority::Bulk, held), if consume => error,
            error = self.repair(link) => error,
            () = shared.keep() => BrokerError("keeping ended".to_owned()),
            error = shared.prove(proof) => error,
        }
    }

    /// Looks after queues that did not take a ticket: declares them, should they be gone, and watches those that are full
    /// until a good part of them is free. The pauses grow until a
    /// ticket is taken.
    async fn repair(&mut self, link: &P::Link) -> BrokerError {
        let shared = Arc::clone(&self.shared);
        loop {
            let mut probes = 0_u16;
            shared.capacity.suspected().await;
            while shared.capacity.has_suspects() {
                shared.capacity.suspected().await;
                probes = probes.saturating_add(1);
                // Looks in vain count as well: a queue that has room and takes nothing would be claimed for, again and again,
                // without a growing pause.
                let failures = probes.saturating_add(shared.capacity.failed_probes());
                sleep(backoff().delay(failures, None, &mut self.random)).await;
                match timeout(LINK_TIMEOUT, link.declare()).await {
                    Ok(Ok(Declared { waiting, tickets_max })) => {
                        // Of the smallest queues, one place free is a good part.
                        let few = (tickets_max / 4 * 3).max(tickets_max.min(4)).max(1);
                        if let Err(error) = shared.capacity.clear(waiting, few) {
                            return error;
                        }
                    }
                    Ok(Err(error)) => return error,
                    Err(_late) => return silent(P::NAME),
                }
            }
        }
    }
}

// === impl BrokerState ===

impl<L: Link> BrokerState<L> {
    /// Calls the link good once it has lasted for `proof`; never ends. A link that connects and fails at once, for ever, thus
    /// stays in trouble, and is not on and off.
    async fn prove(&self, proof: Duration) -> BrokerError {
        sleep(proof).await;
        self.status.went_up();
        std::future::pending().await
    }

    /// Keeps the held tickets, for ever. Sleeps while there are none.
    async fn keep(&self) {
        loop {
            self.held.in_use().await;
            sleep(KEEP_EVERY).await;
            self.held.keep();
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
    let seconds = LINK_TIMEOUT.as_secs();
    BrokerError(format!(
        "{broker} accepted a connection and did not answer within {seconds} s: is it overloaded, \
         or is its cluster without a majority?"
    ))
}
