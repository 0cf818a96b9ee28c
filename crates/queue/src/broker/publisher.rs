//! The publishing end: answers per ticket, in bounded time, whatever the broker does.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use notification::{Priority, Ticket, Timestamp, limits};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use super::BrokerState;
use super::error::BrokerError;
use super::link::{Link, TimedTicket};
use crate::broker::limits::{PUBLISH_TICKETS, PUBLISH_TIMEOUT};
use crate::{Publish, QueueError};

#[async_trait]
impl<L: Link> Publish<Ticket> for BrokerState<L> {
    async fn publish(&self, tickets: Vec<Ticket>) -> Vec<Result<(), QueueError>> {
        if tickets.is_empty() {
            return Vec::new();
        }
        // One for all windows: the caller waits for the last answer.
        let deadline = self.clock.monotonic() + PUBLISH_TIMEOUT;
        let link = match self.link(deadline).await {
            Ok(link) => link,
            Err(error) => return vec![Err(error); tickets.len()],
        };
        let mut answers = Vec::with_capacity(tickets.len());
        // In windows: a bounded number of tickets may be unconfirmed at a time.
        for window in tickets.chunks(PUBLISH_TICKETS) {
            answers.extend(self.publish_window(&*link, window, deadline).await);
        }
        answers
    }

    fn capacity(&self) -> watch::Receiver<Option<Priority>> {
        self.capacity.subscribe()
    }
}

impl<L: Link> BrokerState<L> {
    /// The link, as soon as there is one and the broker takes something.
    async fn link(&self, deadline: Instant) -> Result<Arc<L>, QueueError> {
        let mut link = self.link.subscribe();
        loop {
            if self.status.is_closed() {
                return Err(QueueError::Closed);
            }
            // At once: a broker that takes nothing for an hour must not cost each publication its whole time.
            if let Some(BrokerError(reason)) = self.capacity.blocked() {
                return Err(QueueError::Unconfirmed(reason));
            }
            if let Some(link) = &*link.borrow_and_update() {
                return Ok(Arc::clone(link));
            }
            if timeout_at(deadline, link.changed()).await.is_err() {
                let error = self.status.trouble();
                let reason =
                    error.map_or_else(|| "it is not linked yet".to_owned(), |error| error.0);
                return Err(QueueError::Unconfirmed(reason));
            }
        }
    }

    async fn publish_window(
        &self,
        link: &L,
        window: &[Ticket],
        deadline: Instant,
    ) -> Vec<Result<(), QueueError>> {
        let now = self.now();
        let timed: Vec<TimedTicket> =
            window.iter().filter_map(|ticket| TimedTicket::at(now, *ticket)).collect();
        let mut taken = [false; Priority::ALL.len()];
        let mut confirmed = link.publish(&timed, deadline).await.into_iter();
        let mut answer = |ticket: &Ticket| {
            // By the same `now` as above, since the answers are matched to the tickets by their order.
            if TimedTicket::at(now, *ticket).is_none() {
                return Err(QueueError::Unconfirmed("its lease is over".to_owned()));
            }
            // A link answers for each; one that it forgot is not confirmed.
            let silent = || Err(BrokerError("it did not answer".to_owned()));
            let confirmed = confirmed.next().unwrap_or_else(silent);
            if let Some(taken) = taken.get_mut(usize::from(ticket.priority.code())) {
                *taken |= confirmed.is_ok();
            }
            confirmed.map_err(|error| {
                self.capacity.suspect(ticket.priority, &error);
                QueueError::Unconfirmed(error.0)
            })
        };
        let answers = window.iter().map(&mut answer).collect();
        // A queue that took one ticket of the window has no defect, whatever it refused beside it.
        for (priority, _taken) in
            Priority::ALL.iter().zip(taken).filter(|(_priority, taken)| *taken)
        {
            self.capacity.confirm(*priority);
        }
        answers
    }
}

impl TimedTicket {
    /// `ticket`, unless it is void at `now`. However far the clocks of producers and publishers are apart, it lives no longer
    /// than any ticket.
    fn at(now: Timestamp, ticket: Ticket) -> Option<Self> {
        let lives = ticket.lease_until.since(now).min(limits::TICKET_LEASE);
        (lives > Duration::ZERO).then_some(Self { ticket, lives })
    }
}
