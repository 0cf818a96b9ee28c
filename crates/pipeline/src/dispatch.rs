//! Dispatch: leases due work and publishes it. The only stage that publishes.

use std::sync::Arc;
use std::time::Duration;

use flow::Clock;
use notification::{Chunk, Priority, Ticket, Timestamp, join, limits};
use queue::{Item, Publish};
use store::{ClaimRequest, Claims, StoreError};
use tokio::sync::watch;

/// Claims due chunks from the store, once the queue has room, and publishes them: as themselves within the process, or as
/// tickets through a broker.
#[derive(Debug)]
pub struct Dispatch<T, I: Item> {
    /// Store that claims due work.
    pub claims: Arc<dyn Claims<T>>,
    /// Queue on which claimed work is published.
    pub queue: Arc<dyn Publish<I>>,
    /// Lease of a claim.
    pub lease: Duration,
    /// The time.
    pub clock: Clock,
}

/// An item of the queue for claimed work.
pub trait FromClaimed<T>: Item + Sized {
    /// The items by which all of `claimed` is published.
    fn from_claimed(claimed: Vec<T>) -> Vec<Self>;
}

/// Time between two looks at the clock while work is scheduled: a timer stands still while the machine is suspended, and does not
/// follow a clock that was set.
const LOOK_AT_LEAST_EVERY: Duration = Duration::from_mins(1);

// === impl Dispatch ===

impl<T, I: FromClaimed<T>> Dispatch<T, I> {
    /// Runs until `stopping` turns true. Sleeps until something changes or falls due; never polls.
    ///
    /// # Errors
    /// When the store failed. Nothing is lost: claimed work is due again when its lease ends.
    pub async fn run(self, mut stopping: watch::Receiver<bool>) -> Result<(), StoreError> {
        let (mut changes, mut capacity) = (self.claims.changes(), self.queue.capacity());
        while !*stopping.borrow() {
            // Work that is claimed for a queue which does not take it, such as a broker that is away, waits out its lease in
            // vain.
            let there_is_room = tokio::select! {
                biased;
                // Asked for first: nothing more is claimed once it is to stop.
                _ = stopping.wait_for(|stopping| *stopping) => return Ok(()),
                there_is_room = capacity.wait_for(Option::is_some) => there_is_room,
            };
            // An error says that the queue is gone.
            let Ok(Some(lowest)) = there_is_room.map(|lowest| *lowest) else { return Ok(()) };
            // A change from here on wakes the wait below, also if it happens during the claim.
            changes.mark_unchanged();
            let next_at = self.claim_and_publish(lowest).await?;
            tokio::select! {
                // Why it is gone the store tells by itself.
                store_is_gone = changes.changed() => if store_is_gone.is_err() { return Ok(()) },
                _queue_is_gone = capacity.changed() => {}
                () = self.sleep_until(next_at) => {}
                _ = stopping.wait_for(|stopping| *stopping) => {}
            }
        }
        Ok(())
    }

    async fn claim_and_publish(&self, lowest: Priority) -> Result<Option<Timestamp>, StoreError> {
        let request = ClaimRequest {
            now: channel::timestamp(self.clock),
            lease: self.lease,
            items: limits::CLAIM_ITEMS,
            lowest,
            lane_window: limits::LANE_WINDOW,
            total_window: limits::CLAIMED_ITEMS,
            probe_window: Some(limits::PROBE_WINDOW),
        };
        let claim = self.claims.claim(request).await?;
        let answers = self.queue.publish(I::from_claimed(claim.chunks)).await;
        // A chunk that was not published keeps its lease, so it is neither lost nor sent twice: it only waits.
        let mut refused = answers.into_iter().filter_map(Result::err);
        if let Some(error) = refused.next() {
            let chunks = 1 + refused.count();
            tracing::warn!(chunks, %error, "not published: they are due again when their leases end");
        }
        Ok(claim.next_at)
    }

    /// Ends at `instant`; never, when there is none.
    async fn sleep_until(&self, instant: Option<Timestamp>) {
        match instant {
            Some(instant) => {
                // A timer counts whole milliseconds and must not fire early.
                let wait = instant.since(channel::timestamp(self.clock)).min(LOOK_AT_LEAST_EVERY);
                let margin = if wait.is_zero() { Duration::ZERO } else { Duration::from_millis(1) };
                tokio::time::sleep(wait + margin).await;
            }
            None => std::future::pending().await,
        }
    }
}

// === impl FromClaimed ===

impl FromClaimed<Chunk> for Arc<Chunk> {
    fn from_claimed(claimed: Vec<Chunk>) -> Vec<Self> {
        join(claimed).into_iter().map(Self::new).collect()
    }
}

impl FromClaimed<Self> for Ticket {
    fn from_claimed(claimed: Vec<Self>) -> Vec<Self> {
        claimed
    }
}
