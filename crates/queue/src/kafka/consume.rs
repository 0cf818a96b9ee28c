//! Consuming: tickets are fetched as soon as there is a place for them; a message that is no ticket is put aside.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use notification::{Priority, Ticket};
use stream::kafka::{Departure, KafkaSettings, KafkaSource};
use stream::{Source as _, StreamMessage, StreamReceipt};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::of_stream;
use super::publish::TicketProducer;
use crate::broker::error::BrokerError;
use crate::broker::held_tickets::{BrokerMessage, HeldTickets};
use crate::broker::limits::{LINK_TIMEOUT, PREFETCH_TICKETS, PUBLISH_TIMEOUT, TICKET_DELIVERIES};
use crate::ticket;
use crate::wake::seen;

/// The member of one group.
#[derive(Debug)]
pub(super) struct KafkaConsumer {
    priority: Priority,
    source: KafkaSource,
    departure: Arc<TicketDeparture>,
    answers: Arc<TicketAnswers>,
}

/// A message of the broker.
#[derive(Debug)]
pub(super) struct KafkaMessage {
    priority: Priority,
    receipt: StreamReceipt,
    ticket: Ticket,
    /// Deliveries of the ticket, the present one included.
    deliveries: u8,
    answers: Arc<TicketAnswers>,
}

/// The answers that were not carried out yet. They are as many as tickets are held.
#[derive(Debug, Default)]
struct TicketAnswers {
    state: Mutex<AnswersState>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct AnswersState {
    acknowledged: Vec<StreamReceipt>,
    /// Given back for the first time: these go on at once.
    given_back: Vec<GivenBack>,
    /// Given back again: these rest.
    resting: Vec<GivenBack>,
    ended: bool,
}

#[derive(Debug, Clone, Copy)]
struct GivenBack {
    receipt: StreamReceipt,
    ticket: Ticket,
    deliveries: u8,
}

/// Says what is done among the tickets of partitions that go to another process.
#[derive(Debug)]
struct TicketDeparture {
    priority: Priority,
    held: OnceLock<Arc<HeldTickets<KafkaMessage>>>,
}

/// Time for which one call for tickets waits.
const FETCH: Duration = Duration::from_secs(30);
/// Time for which a ticket that is given back repeatedly stays away.
const REST: Duration = Duration::from_secs(1);
/// Time after which a commit that failed is tried again.
const COMMIT_AGAIN: Duration = Duration::from_millis(200);
/// Commits in a row that may fail, as they do while the group changes.
const FAILED_COMMITS_MAX: u32 = 50;

// === impl KafkaConsumer ===

impl KafkaConsumer {
    pub(super) fn new(
        priority: Priority,
        settings: KafkaSettings,
        random: fastrand::Rng,
    ) -> Result<Self, BrokerError> {
        let departure = Arc::new(TicketDeparture { priority, held: OnceLock::new() });
        let asked: Arc<dyn Departure> = Arc::clone(&departure) as _;
        let source = KafkaSource::open_with(settings, random, Some(asked)).map_err(of_stream)?;
        Ok(Self { priority, source, departure, answers: Arc::default() })
    }

    /// Holds what arrives, until that fails; says why.
    pub(super) async fn run(&self, held: &Arc<HeldTickets<KafkaMessage>>) -> BrokerError {
        let _same = self.departure.held.set(Arc::clone(held));
        tokio::select! {
            error = self.fetch(held) => error,
            error = self.acknowledge() => error,
        }
    }

    async fn fetch(&self, held: &Arc<HeldTickets<KafkaMessage>>) -> BrokerError {
        loop {
            let wanted = held.wants(self.priority, PREFETCH_TICKETS).await;
            match self.source.fetch(wanted, FETCH).await {
                Ok(messages) => messages.into_iter().for_each(|message| self.put(message, held)),
                Err(error) => return of_stream(error),
            }
        }
    }

    fn put(&self, message: StreamMessage, held: &HeldTickets<KafkaMessage>) {
        match ticket::decode(message.body.as_deref().unwrap_or_default()) {
            Ok(ticket) if ticket.priority == self.priority => {
                let before = message.key.as_deref().and_then(<[u8]>::first).copied();
                let delivered = KafkaMessage {
                    priority: self.priority,
                    receipt: message.receipt,
                    ticket,
                    deliveries: before.unwrap_or_default().saturating_add(1),
                    answers: Arc::clone(&self.answers),
                };
                held.put(ticket, delivered);
            }
            other => {
                let (id, error) = (message.id, other.err());
                tracing::warn!(id, ?error, "a message is no ticket of its topic: it is put aside");
                self.answers.answer(|state| state.acknowledged.push(message.receipt));
            }
        }
    }

    /// Commits what is acknowledged, again and again.
    async fn acknowledge(&self) -> BrokerError {
        let mut failed = 0;
        loop {
            let receipts = seen(&self.answers.changed, || {
                let receipts = std::mem::take(&mut self.answers.state().acknowledged);
                (failed > 0 || !receipts.is_empty()).then_some(receipts)
            });
            let receipts = receipts.await;
            match self.source.settle(&receipts).await {
                Ok(()) => failed = 0,
                Err(error) => {
                    failed += 1;
                    if failed > FAILED_COMMITS_MAX {
                        return of_stream(error);
                    }
                    sleep(COMMIT_AGAIN).await;
                }
            }
        }
    }

    /// Publishes again what is given back, until that fails; says why.
    pub(super) async fn give_back(&self, producer: &TicketProducer) -> BrokerError {
        let at_once = async {
            loop {
                let tickets = self.answers.take(|state| &mut state.given_back).await;
                if let Err(error) = self.publish(producer, &tickets).await {
                    return error;
                }
            }
        };
        let rested = async {
            loop {
                let tickets = self.answers.take(|state| &mut state.resting).await;
                sleep(REST).await;
                if let Err(error) = self.publish(producer, &tickets).await {
                    return error;
                }
            }
        };
        tokio::select! {
            error = at_once => error,
            error = rested => error,
        }
    }

    /// Publishes again what was given back last.
    pub(super) async fn give_back_rest(&self, producer: &TicketProducer) {
        let tickets = {
            let mut state = self.answers.state();
            let AnswersState { given_back, resting, .. } = &mut *state;
            given_back.append(resting);
            std::mem::take(given_back)
        };
        // One that is not published is issued anew when its lease ends.
        let _failed = timeout(PUBLISH_TIMEOUT / 2, self.publish(producer, &tickets)).await;
    }

    async fn publish(
        &self,
        producer: &TicketProducer,
        tickets: &[GivenBack],
    ) -> Result<(), BrokerError> {
        for GivenBack { receipt, ticket, deliveries } in tickets {
            if *deliveries < TICKET_DELIVERIES {
                producer.publish_again(ticket, *deliveries).await?;
            }
            // Not before: else it would be lost with this process.
            self.answers.answer(|state| state.acknowledged.push(*receipt));
        }
        Ok(())
    }

    /// Leaves the group. What is not received goes to the others; what is received is in hand here and done there.
    pub(super) async fn stop(&self) {
        let receipts = std::mem::take(&mut self.answers.state().acknowledged);
        let _committed = timeout(LINK_TIMEOUT, self.source.settle(&receipts)).await;
        self.source.close().await;
    }

    /// No answer is of effect any more.
    pub(super) fn end(&self) {
        self.answers.state().ended = true;
    }
}

// === impl KafkaMessage ===

impl BrokerMessage for KafkaMessage {
    fn acknowledge(&self) -> Result<(), BrokerError> {
        if self.answers.state().ended {
            return Err(BrokerError("the connection that it came by is gone".to_owned()));
        }
        self.answers.answer(|state| state.acknowledged.push(self.receipt));
        Ok(())
    }

    fn give_back(&self) {
        let Self { receipt, ticket, deliveries, .. } = *self;
        let given_back = GivenBack { receipt, ticket, deliveries };
        self.answers.answer(|state| {
            let rests = deliveries > 1;
            if rests { &mut state.resting } else { &mut state.given_back }.push(given_back);
        });
    }

    fn keep(&self) {
        // Its partition is with this process for as long as the process is in the group.
    }
}

// === impl TicketAnswers ===

impl TicketAnswers {
    fn answer(&self, change: impl FnOnce(&mut AnswersState)) {
        change(&mut self.state());
        self.changed.notify_waiters();
    }

    /// All of a list, as soon as there are some.
    async fn take(
        &self,
        list: impl Fn(&mut AnswersState) -> &mut Vec<GivenBack>,
    ) -> Vec<GivenBack> {
        seen(&self.changed, || {
            let taken = std::mem::take(list(&mut self.state()));
            (!taken.is_empty()).then_some(taken)
        })
        .await
    }

    fn state(&self) -> MutexGuard<'_, AnswersState> {
        // Every critical section leaves the state whole, even if it panicked.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl TicketDeparture ===

impl Departure for TicketDeparture {
    fn leaving(&self, receipts: &[StreamReceipt]) -> Vec<StreamReceipt> {
        let Some(held) = self.held.get() else { return Vec::new() };
        let leaves = |message: &KafkaMessage| {
            message.priority == self.priority && receipts.contains(&message.receipt)
        };
        let waiting: Vec<StreamReceipt> =
            held.withdraw(leaves).iter().map(|message| message.receipt).collect();
        // The rest was received: it is being exchanged in the store, which asks no broker.
        receipts.iter().copied().filter(|receipt| !waiting.contains(receipt)).collect()
    }
}
