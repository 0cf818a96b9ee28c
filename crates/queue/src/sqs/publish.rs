//! Publishing, ten tickets in a request and several requests at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use futures_util::StreamExt as _;
use futures_util::stream::iter;
use notification::Priority;
use stream::aws::sqs_queue::{ENTRIES_MAX, SqsEntry};
use tokio::time::{Instant, timeout_at};

use super::topology::{SqsTopology, of_failure};
use crate::broker::error::BrokerError;
use crate::broker::limits::PUBLISH_TIMEOUT;
use crate::broker::link::TimedTicket;
use crate::ticket;

/// The publishing side of a link.
#[derive(Debug)]
pub(super) struct SqsPublisher {
    topology: Arc<SqsTopology>,
    tickets_max: u64,
    /// Tickets that may be published before the next look, by the code of their priority.
    allowances: [AtomicU64; Priority::ALL.len()],
}

/// Requests under way at a time.
const REQUESTS: usize = 16;

// === impl SqsPublisher ===

impl SqsPublisher {
    pub(super) fn new(topology: Arc<SqsTopology>, tickets_max: u64) -> Self {
        Self { topology, tickets_max, allowances: Default::default() }
    }

    /// Tickets of one priority that may wait.
    pub(super) fn tickets_max(&self) -> u64 {
        self.tickets_max
    }

    /// Publishes, and answers per ticket by `deadline`.
    pub(super) async fn publish(
        &self,
        tickets: &[TimedTicket],
        deadline: Instant,
    ) -> Vec<Result<(), BrokerError>> {
        let mut answers: Vec<Result<(), BrokerError>> =
            tickets.iter().map(|_| Err(late())).collect();
        for priority in Priority::ALL {
            let is_of = |timed: &TimedTicket| timed.ticket.priority == *priority;
            let places = tickets.iter().enumerate().filter(|(_, timed)| is_of(timed));
            let (places, mine): (Vec<usize>, Vec<&TimedTicket>) = places.unzip();
            if mine.is_empty() {
                continue;
            }
            let taken = self.publish_to(*priority, &mine, deadline).await;
            for (place, answer) in places.into_iter().zip(taken) {
                if let Some(slot) = answers.get_mut(place) {
                    *slot = answer;
                }
            }
        }
        answers
    }

    async fn publish_to(
        &self,
        priority: Priority,
        tickets: &[&TimedTicket],
        deadline: Instant,
    ) -> Vec<Result<(), BrokerError>> {
        let room = match timeout_at(deadline, self.room(priority, tickets.len())).await {
            Ok(room) => room,
            Err(_late) => Err(late()),
        };
        if let Err(error) = room {
            return vec![Err(error); tickets.len()];
        }
        let mut requests = Vec::new();
        for batch in tickets.chunks(ENTRIES_MAX) {
            let entries = batch.iter().map(|timed| SqsEntry {
                body: BASE64_STANDARD.encode(ticket::encode(&timed.ticket)),
                order: None,
            });
            requests.push(self.send(priority, entries.collect(), deadline));
        }
        iter(requests).buffered(REQUESTS).concat().await
    }

    async fn send(
        &self,
        priority: Priority,
        entries: Vec<SqsEntry>,
        deadline: Instant,
    ) -> Vec<Result<(), BrokerError>> {
        let count = entries.len();
        match timeout_at(deadline, self.topology.queue(priority).send(entries)).await {
            Ok(answers) => answers.into_iter().map(|answer| answer.map_err(of_failure)).collect(),
            // They may be there all the same: they are issued anew, and the store refuses the second by its epoch.
            Err(_late) => vec![Err(late()); count],
        }
    }

    /// Takes `tickets` from the allowance of `priority`, which a look at the queue renews.
    ///
    /// # Errors
    /// When the queue is full.
    async fn room(&self, priority: Priority, tickets: usize) -> Result<(), BrokerError> {
        let Some(allowance) = self.allowances.get(usize::from(priority.code())) else {
            return Ok(());
        };
        let wanted = u64::try_from(tickets).unwrap_or(u64::MAX);
        let spend = |left: u64| left.checked_sub(wanted);
        if allowance.fetch_update(Ordering::Relaxed, Ordering::Relaxed, spend).is_ok() {
            return Ok(());
        }
        let waiting = self.topology.waiting_of(priority).await?;
        let left = self.tickets_max.saturating_sub(waiting);
        if left == 0 {
            let place = self.topology.queue(priority).place();
            return Err(BrokerError(format!(
                "{place} is full ({waiting} wait): are there too few consumers?"
            )));
        }
        // Other publishers fill it as well, so not all of it.
        let part = (self.tickets_max / 8).max(wanted).min(left);
        allowance.store(part.saturating_sub(wanted), Ordering::Relaxed);
        Ok(())
    }
}

fn late() -> BrokerError {
    BrokerError(format!("not within {} s", PUBLISH_TIMEOUT.as_secs()))
}
