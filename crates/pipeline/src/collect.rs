//! Collect: takes the chunks for the tickets that a broker gives out, and hands them to deliver. Runs where deliver runs.

use std::sync::Arc;

use flow::Clock;
use notification::{Chunk, Priority, Ticket, join, limits};
use queue::{Consume, Message, Publish};
use store::{StoreError, TakeTickets};
use tokio::sync::watch;

/// Exchanges tickets for chunks.
///
/// A ticket is acknowledged as soon as its chunk is taken, not when it is delivered: from then on the lease in the store accounts
/// for it. A broker therefore never waits for a provider, and its timeouts have no effect here.
#[derive(Debug)]
pub struct Collect {
    /// Consumer's end of the broker's queue of tickets.
    pub tickets: Arc<dyn Consume<Ticket>>,
    /// Store that exchanges a ticket for its chunk.
    pub store: Arc<dyn TakeTickets>,
    /// Queue of chunks within the process.
    pub queue: Arc<dyn Publish<Arc<Chunk>>>,
    /// The time.
    pub clock: Clock,
}

// === impl Collect ===

impl Collect {
    /// Runs until `stopping` turns true or the broker's side is closed. Takes no more tickets than the queue has room for, and
    /// only urgent ones while there is little.
    ///
    /// # Errors
    /// When the store failed. Tickets that were not taken are given out again by the broker, or claimed again when their lease
    /// ends.
    pub async fn run(self, stopping: watch::Receiver<bool>) -> Result<(), StoreError> {
        // Chunks that are not urgent may have to wait for room once they are taken; urgent ones do not wait behind them.
        let urgent = self.exchange(Priority::Urgent, stopping.clone());
        tokio::try_join!(urgent, self.exchange(Priority::Bulk, stopping))?;
        Ok(())
    }

    /// Exchanges the tickets of the priority `down_to` and above, as [`Collect::run`] does.
    async fn exchange(
        &self,
        down_to: Priority,
        mut stopping: watch::Receiver<bool>,
    ) -> Result<(), StoreError> {
        // Of its own for each of the two: what one has seen the other has not.
        let mut capacity = self.queue.capacity();
        loop {
            // Urgent is the least of the priorities: of room and of this loop's share, the narrower one counts.
            let lowest = capacity.borrow_and_update().map(|lowest| lowest.min(down_to));
            let receive = async {
                match lowest {
                    Some(lowest) => self.tickets.receive(lowest, limits::TAKE_TICKETS).await,
                    None => std::future::pending().await,
                }
            };
            let stopped = async {
                // A sender that is gone stops as well.
                let _stopped = stopping.wait_for(|stopping| *stopping).await;
            };
            tokio::select! {
                biased;
                () = stopped => return Ok(()),
                // The receive requests the number of tickets there was room for before: it is dropped, which loses nothing, and
                // made anew.
                changed = capacity.changed() => if changed.is_err() { return Ok(()) },
                messages = receive => {
                    // The queue is closed: a wait for tickets ends with some, or not at all.
                    if messages.is_empty() {
                        return Ok(());
                    }
                    // Here, where no other branch can cut it off: chunks that were taken would wait out their leases.
                    self.take(messages).await?;
                }
            }
        }
    }

    async fn take(&self, messages: Vec<Message<Ticket>>) -> Result<(), StoreError> {
        let tickets = messages.iter().map(|message| message.item).collect();
        // The lease that taking gives counts from here, however long the ticket waited in the broker.
        let now = channel::timestamp(self.clock);
        let taken = self.store.take(tickets, now, limits::LEASE).await?;
        // A ticket without a chunk is void: it was taken before, or its lease has ended.
        let chunks = join(taken.into_iter().flatten().collect());
        let chunks = chunks.into_iter().map(Arc::new).collect();
        for answer in self.queue.publish(chunks).await {
            if let Err(error) = answer {
                tracing::warn!(%error, "chunk not handed on: it is due again when its lease ends");
            }
        }
        // Void tickets are acknowledged as well, or the broker would give them out for ever.
        for message in messages {
            if let Err((_receipt, error)) = message.receipt.acknowledge().await {
                tracing::debug!(%error, "not acknowledged: the ticket is void when it is given out again");
            }
        }
        Ok(())
    }
}
