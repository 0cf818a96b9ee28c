//! Publishing, within what may wait.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use krafka::producer::Producer;
use krafka::{Kafka, Record};
use notification::{Priority, Ticket};
use tokio::time::{Instant, timeout_at};

use super::topology::{KafkaTopology, PartitionCounts};
use crate::broker::capacity::WaitingTickets;
use crate::broker::error::BrokerError;
use crate::broker::limits::{LINK_TIMEOUT, PUBLISH_TICKETS, PUBLISH_TIMEOUT};
use crate::broker::link::TimedTicket;
use crate::ticket;

/// Publishes tickets, to the partitions in turn.
pub(super) struct TicketProducer {
    pub(super) producer: Arc<Producer>,
    topology: KafkaTopology,
    next: AtomicUsize,
    state: Mutex<ProducerState>,
}

#[derive(Debug, Default)]
struct ProducerState {
    partitions: PartitionCounts,
    /// Tickets that may be published by priority, until it is counted again what waits.
    room: WaitingTickets,
}

/// How long a ticket may wait for others.
const LINGER: Duration = Duration::from_millis(1);
/// Tickets that follow each other into one partition: a batch costs the broker about as much as its tickets.
const RUN: usize = 16;

// === impl TicketProducer ===

impl TicketProducer {
    pub(super) async fn new(kafka: &Kafka, topology: &KafkaTopology) -> Result<Self, BrokerError> {
        let producer = kafka
            .producer()
            .linger(LINGER)
            .delivery_timeout(LINK_TIMEOUT + 2 * LINGER)
            .max_block(PUBLISH_TIMEOUT)
            .metrics_push(false)
            .build();
        let producer = producer.await.map_err(|error| topology.explain(&error))?;
        Ok(Self {
            producer: Arc::new(producer),
            topology: topology.clone(),
            next: AtomicUsize::new(0),
            state: Mutex::default(),
        })
    }

    /// The partitions of each topic.
    pub(super) fn set_partitions(&self, partitions: PartitionCounts) {
        self.state().partitions = partitions;
    }

    /// Notes what waits now. No more is published than a good part of the bound before it is counted again, as others publish too.
    pub(super) fn set_room(&self, waiting: WaitingTickets, tickets_max: u64) {
        let at_once = (tickets_max / 4).max(PUBLISH_TICKETS as u64);
        let room = waiting.map(|waiting| tickets_max.saturating_sub(waiting).min(at_once));
        self.state().room = room;
    }

    /// Publishes in order, and answers per ticket by `deadline`; and whether all answers came in time.
    pub(super) async fn publish(
        &self,
        kafka: &Kafka,
        tickets: &[TimedTicket],
        deadline: Instant,
    ) -> (Vec<Result<(), BrokerError>>, bool) {
        let counted = timeout_at(deadline, self.count(kafka, tickets)).await;
        if let Ok(Err(error)) = counted {
            return (vec![Err(error); tickets.len()], true);
        }
        self.begin_run();
        let mut queued = Vec::with_capacity(tickets.len());
        for TimedTicket { ticket, .. } in tickets {
            queued.push(if self.take_room(ticket.priority) {
                let enqueued = timeout_at(deadline, self.enqueue(ticket, None)).await;
                enqueued.unwrap_or_else(|_late| Err(late()))
            } else {
                Err(BrokerError("its topic is full: there are too few consumers".to_owned()))
            });
        }
        let (mut answers, mut all_in_time) = (Vec::with_capacity(tickets.len()), counted.is_ok());
        for queued in queued {
            let answered = async {
                let position = queued?.await;
                position.map(|_position| ()).map_err(|error| self.topology.explain(&error))
            };
            let answer = timeout_at(deadline, answered).await;
            all_in_time &= answer.is_ok();
            // A late one may be stored all the same: it is issued anew, and the store refuses the second by its epoch.
            answers.push(answer.unwrap_or_else(|_late| Err(late())));
        }
        (answers, all_in_time)
    }

    /// Has the next ticket go to another partition. A ticket that is issued anew, since it was not received, must not wait behind the
    /// first in a partition that is not read.
    fn begin_run(&self) {
        let next = |next: usize| Some((next / RUN).wrapping_add(1).wrapping_mul(RUN));
        let _before = self.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    }

    /// Publishes a ticket that was given back, and came `deliveries` times.
    pub(super) async fn publish_again(
        &self,
        ticket: &Ticket,
        deliveries: u8,
    ) -> Result<(), BrokerError> {
        let published = self.enqueue(ticket, Some(deliveries)).await?.await;
        published.map(|_position| ()).map_err(|error| self.topology.explain(&error))
    }

    async fn enqueue(
        &self,
        ticket: &Ticket,
        deliveries: Option<u8>,
    ) -> Result<krafka::producer::DeliveryHandle, BrokerError> {
        let (topic, body) = (self.topology.name(ticket.priority), ticket::encode(ticket));
        let mut record = Record::new(topic, body.to_vec());
        let partitions = self.state().partitions;
        let partitions = partitions.get(usize::from(ticket.priority.code())).copied().unwrap_or(1);
        let run = self.next.fetch_add(1, Ordering::Relaxed) / RUN;
        let partition = run % usize::try_from(partitions).unwrap_or(1).max(1);
        record = record.partition(i32::try_from(partition).unwrap_or_default());
        if let Some(deliveries) = deliveries {
            record = record.key(vec![deliveries]);
        }
        let queued = self.producer.enqueue(record).await;
        queued.map_err(|error| self.topology.explain(&error))
    }

    /// Counts what waits, unless there is certainly room for `tickets`.
    async fn count(&self, kafka: &Kafka, tickets: &[TimedTicket]) -> Result<(), BrokerError> {
        let mut wanted = WaitingTickets::default();
        for TimedTicket { ticket, .. } in tickets {
            if let Some(wanted) = wanted.get_mut(usize::from(ticket.priority.code())) {
                *wanted += 1;
            }
        }
        let (partitions, has_room) = {
            let state = self.state();
            (state.partitions, state.room.iter().zip(wanted).all(|(room, wanted)| *room >= wanted))
        };
        if !has_room {
            let waiting = self.topology.waiting(kafka, partitions).await?;
            self.set_room(waiting, self.topology.tickets_max);
        }
        Ok(())
    }

    fn take_room(&self, priority: Priority) -> bool {
        let mut state = self.state();
        let Some(room) = state.room.get_mut(usize::from(priority.code())) else { return false };
        let has_room = *room > 0;
        *room = room.saturating_sub(1);
        has_room
    }

    fn state(&self) -> MutexGuard<'_, ProducerState> {
        // Every critical section leaves the state whole, even if it panicked.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for TicketProducer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("TicketProducer").field("state", &self.state).finish_non_exhaustive()
    }
}

fn late() -> BrokerError {
    BrokerError(format!("not within {} s", PUBLISH_TIMEOUT.as_secs()))
}
