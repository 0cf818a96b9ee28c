//! The tickets that a consumer holds: those that arrived and wait to be received, and those that were received and are
//! not acknowledged yet.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use notification::{Priority, Ticket};
use tokio::sync::Notify;

use super::error::BrokerError;
use crate::wake::seen;
use crate::{Acknowledge, Message, QueueError, Receipt};

/// Holds tickets by priority. Their number is bounded by the backend's requests to its broker.
#[derive(Debug)]
pub struct HeldTickets<M> {
    state: Mutex<HeldState<M>>,
    /// Wakes all receivers, since they may wait for different priorities.
    arrived: Notify,
    /// Wakes the tasks that request more tickets, keep them, or close.
    changed: Notify,
}

#[derive(Debug)]
struct HeldState<M> {
    /// Keys of the tickets that are not received yet, by priority.
    waiting: [VecDeque<u64>; Priority::ALL.len()],
    held: BTreeMap<u64, HeldTicket<M>>,
    next_key: u64,
    closed: bool,
}

#[derive(Debug)]
struct HeldTicket<M> {
    ticket: Ticket,
    message: Arc<M>,
    received: bool,
    /// True if an earlier look saw the ticket.
    seen: bool,
}

/// The broker's handle on one message. No method waits for the broker: a message whose answer does not arrive is given
/// out again, and the store refuses it.
pub trait BrokerMessage: Send + Sync + fmt::Debug + 'static {
    /// Forget it.
    fn acknowledge(&self) -> Result<(), BrokerError>;

    /// Give it to another consumer.
    fn give_back(&self);

    /// Tells the broker that the ticket is still held.
    fn keep(&self);
}

/// The other end of a [`Receipt`].
#[derive(Debug)]
struct TicketReceipt<M: BrokerMessage> {
    held: Arc<HeldTickets<M>>,
    key: u64,
}

// === impl HeldTickets ===

impl<M: BrokerMessage> HeldTickets<M> {
    /// A collection without tickets.
    pub(crate) fn new() -> Self {
        let state = HeldState {
            waiting: Default::default(),
            held: BTreeMap::new(),
            next_key: 0,
            closed: false,
        };
        Self { state: Mutex::new(state), arrived: Notify::new(), changed: Notify::new() }
    }

    /// Puts a ticket that arrived behind those of its priority.
    pub fn put(&self, ticket: Ticket, message: M) {
        let mut state = self.state();
        let key = state.next_key;
        state.next_key += 1;
        if let Some(waiting) = state.waiting.get_mut(usize::from(ticket.priority.code())) {
            waiting.push_back(key);
        }
        let held = HeldTicket { ticket, message: Arc::new(message), received: false, seen: false };
        state.held.insert(key, held);
        let is_first = state.held.len() == 1;
        drop(state);
        self.arrived.notify_waiters();
        // Only `in_use` waits for something to be held. The other waits are for less.
        if is_first {
            self.changed.notify_waiters();
        }
    }

    /// Receives tickets ([`crate::Consume::receive`]). The store decides whether a ticket is void, when its chunk is requested:
    /// by a wrong clock of this machine, all of them would seem to be.
    pub(crate) async fn receive(
        self: &Arc<Self>,
        lowest: Priority,
        items: usize,
    ) -> Vec<Message<Ticket>> {
        seen(&self.arrived, || self.take(lowest, items.max(1))).await
    }

    /// Waits until fewer than `most` tickets of `priority` are held, by a quarter at least: asking costs the same for
    /// one as for many. Gives how many fewer.
    pub async fn wants(&self, priority: Priority, most: usize) -> usize {
        self.when(|state| {
            let held = state.held.values().filter(|held| held.ticket.priority == priority).count();
            most.checked_sub(held).filter(|wanted| *wanted > 0 && *wanted >= most / 4)
        })
        .await
    }

    /// Waits until something is held.
    pub(crate) async fn in_use(&self) {
        self.when(|state| (!state.held.is_empty()).then_some(())).await;
    }

    /// Waits until nothing is held.
    pub(crate) async fn settled(&self) {
        self.when(|state| state.held.is_empty().then_some(())).await;
    }

    /// Tells the broker of everything that was already here at the last call that it is still held.
    pub(crate) fn keep(&self) {
        let mut state = self.state();
        // Collected first: no call of a backend runs under the lock.
        let mut kept = Vec::new();
        for held in state.held.values_mut() {
            // Most tickets are answered for between two looks, and cost no message.
            if std::mem::replace(&mut held.seen, true) {
                kept.push(Arc::clone(&held.message));
            }
        }
        drop(state);
        for message in kept {
            message.keep();
        }
    }

    /// Forgets the tickets that are not received yet: they came by a link that is gone, and its broker gives them out again.
    pub(crate) fn forget(&self) {
        // Not those that were received: they are being exchanged in the store, which asks no broker.
        let _gone = self.state().remove_waiting();
        self.changed.notify_waiters();
    }

    /// Takes back the tickets that are not received yet and whose message is `leaving`: their broker gives them to another
    /// consumer.
    pub fn withdraw(&self, leaving: impl Fn(&M) -> bool) -> Vec<Arc<M>> {
        let withdrawn = self.state().withdraw(leaving);
        self.changed.notify_waiters();
        withdrawn
    }

    /// Ends every receive.
    pub(crate) fn close(&self) {
        self.state().closed = true;
        self.arrived.notify_waiters();
    }

    /// Gives back the tickets that are not received yet.
    pub(crate) fn give_back(&self) {
        let waiting = self.state().remove_waiting();
        for message in waiting {
            message.give_back();
        }
        self.changed.notify_waiters();
    }

    /// The tickets to receive now; `None` while there are none and more may come.
    fn take(self: &Arc<Self>, lowest: Priority, items: usize) -> Option<Vec<Message<Ticket>>> {
        let mut state = self.state();
        // Tickets that still wait are given back to the broker, for another consumer.
        if state.closed {
            return Some(Vec::new());
        }
        let mut messages = Vec::new();
        while messages.len() < items
            && let Some(key) = state.pop(lowest)
        {
            let Some(held) = state.held.get_mut(&key) else { continue };
            held.received = true;
            let receipt = TicketReceipt { held: Arc::clone(self), key };
            messages.push(Message { item: held.ticket, receipt: Receipt::new(receipt) });
        }
        (!messages.is_empty()).then_some(messages)
    }

    fn remove(&self, key: u64) -> Option<HeldTicket<M>> {
        let removed = self.state().held.remove(&key);
        self.changed.notify_waiters();
        removed
    }

    async fn when<R>(&self, look: impl Fn(&HeldState<M>) -> Option<R>) -> R {
        seen(&self.changed, || look(&self.state())).await
    }

    fn state(&self) -> MutexGuard<'_, HeldState<M>> {
        // Every critical section leaves the state whole, even if it panicked.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl HeldState ===

impl<M> HeldState<M> {
    fn pop(&mut self, lowest: Priority) -> Option<u64> {
        let admitted = usize::from(lowest.code()) + 1;
        self.waiting.iter_mut().take(admitted).find_map(VecDeque::pop_front)
    }

    fn withdraw(&mut self, leaving: impl Fn(&M) -> bool) -> Vec<Arc<M>> {
        let leaves = |held: &HeldTicket<M>| !held.received && leaving(&held.message);
        let withdrawn: Vec<(u64, HeldTicket<M>)> =
            self.held.extract_if(.., |_key, held| leaves(held)).collect();
        let held = &self.held;
        self.waiting.iter_mut().for_each(|keys| keys.retain(|key| held.contains_key(key)));
        withdrawn.into_iter().map(|(_key, held)| held.message).collect()
    }

    /// Removes the tickets that are not received yet.
    fn remove_waiting(&mut self) -> Vec<Arc<M>> {
        self.waiting.iter_mut().for_each(VecDeque::clear);
        let removed = self.held.extract_if(.., |_key, held| !held.received);
        removed.map(|(_key, held)| held.message).collect()
    }
}

// === impl TicketReceipt ===

#[async_trait]
impl<M: BrokerMessage> Acknowledge for TicketReceipt<M> {
    async fn acknowledge(&mut self) -> Result<(), QueueError> {
        // Out of the lock, under which no call of a backend runs.
        let message = self.held.state().held.get(&self.key).map(|held| Arc::clone(&held.message));
        if let Some(message) = message {
            // Held on when this fails: then it can be tried again, and is given back otherwise.
            message.acknowledge().map_err(|error| QueueError::Unconfirmed(error.0))?;
            self.held.remove(self.key);
        }
        Ok(())
    }
}

impl<M: BrokerMessage> Drop for TicketReceipt<M> {
    fn drop(&mut self) {
        // A ticket that was acknowledged is not there any more.
        if let Some(held) = self.held.remove(self.key) {
            held.message.give_back();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use notification::Timestamp;

    use super::*;
    use crate::conformance::SampleItem;

    /// The calls, in order.
    type Calls = Arc<Mutex<Vec<(&'static str, u64)>>>;

    /// Number of a message that its broker keeps.
    const UNCONFIRMED: u64 = 9;

    #[derive(Debug)]
    struct RecordedMessage(u64, Calls);

    impl RecordedMessage {
        fn record(&self, what: &'static str) {
            self.1.lock().unwrap().push((what, self.0));
        }
    }

    impl BrokerMessage for RecordedMessage {
        fn acknowledge(&self) -> Result<(), BrokerError> {
            if self.0 == UNCONFIRMED {
                return Err(BrokerError("the link is gone".to_owned()));
            }
            self.record("acknowledged");
            Ok(())
        }

        fn give_back(&self) {
            self.record("given back");
        }

        fn keep(&self) {
            self.record("kept");
        }
    }

    fn put(held: &HeldTickets<RecordedMessage>, calls: &Calls, number: u64) {
        let ticket = Ticket::sample(number, Priority::Normal);
        held.put(ticket, RecordedMessage(number, Arc::clone(calls)));
    }

    #[tokio::test]
    async fn no_ticket_is_answered_before_it_was_received() {
        let (held, calls) = (Arc::new(HeldTickets::new()), Calls::default());
        for (number, lease_until) in [(1, 0), (2, i64::MAX)] {
            let lease_until = Timestamp::from_millis(lease_until);
            let ticket = Ticket { lease_until, ..Ticket::sample(number, Priority::Normal) };
            held.put(ticket, RecordedMessage(number, Arc::clone(&calls)));
        }
        held.keep();
        let messages = held.receive(Priority::Bulk, 2).await;
        let numbers: Vec<u64> = messages.iter().map(|message| message.item.number()).collect();
        assert_eq!(numbers, [1, 2], "whether its lease is over is not for this process to say");
        assert_eq!(*calls.lock().unwrap(), []);
        drop(messages);
        assert_eq!(*calls.lock().unwrap(), [("given back", 1), ("given back", 2)]);
        assert!(held.settled().now_or_never().is_some());
    }

    #[tokio::test]
    async fn what_is_held_for_long_is_kept() {
        let (held, calls) = (Arc::new(HeldTickets::new()), Calls::default());
        put(&held, &calls, 1);
        held.keep();
        put(&held, &calls, 2);
        let _messages = held.receive(Priority::Bulk, 1).await;
        held.keep();
        assert_eq!(*calls.lock().unwrap(), [("kept", 1)]);
        held.keep();
        assert_eq!(*calls.lock().unwrap(), [("kept", 1), ("kept", 1), ("kept", 2)]);
    }

    #[tokio::test]
    async fn a_closed_stock_gives_back_what_waits_and_waits_for_what_was_received() {
        let (held, calls) = (Arc::new(HeldTickets::new()), Calls::default());
        put(&held, &calls, 1);
        put(&held, &calls, 2);
        let mut messages = held.receive(Priority::Bulk, 1).await;
        held.close();
        held.give_back();
        assert_eq!(*calls.lock().unwrap(), [("given back", 2)]);
        assert!(held.receive(Priority::Bulk, 1).await.is_empty());
        assert!(held.settled().now_or_never().is_none());
        messages.remove(0).receipt.acknowledge().await.unwrap();
        assert!(held.settled().now_or_never().is_some());
    }

    #[tokio::test]
    async fn an_acknowledgement_that_failed_is_tried_again_and_given_back_in_the_end() {
        let (held, calls) = (Arc::new(HeldTickets::new()), Calls::default());
        put(&held, &calls, UNCONFIRMED);
        let message = held.receive(Priority::Bulk, 1).await.remove(0);
        let (receipt, first) = message.receipt.acknowledge().await.unwrap_err();
        let (receipt, second) = receipt.acknowledge().await.unwrap_err();
        assert_eq!(first, second);
        drop(receipt);
        assert_eq!(*calls.lock().unwrap(), [("given back", UNCONFIRMED)]);
        assert!(held.settled().now_or_never().is_some());
    }

    #[tokio::test]
    async fn more_is_wanted_as_soon_as_something_is_answered_for() {
        let (held, calls) = (Arc::new(HeldTickets::new()), Calls::default());
        put(&held, &calls, 1);
        put(&held, &calls, 2);
        assert_eq!(held.wants(Priority::Normal, 3).now_or_never(), Some(1));
        assert_eq!(held.wants(Priority::Urgent, 2).now_or_never(), Some(2));
        let wants = held.wants(Priority::Normal, 2);
        tokio::pin!(wants);
        assert_eq!(wants.as_mut().now_or_never(), None);
        drop(held.receive(Priority::Bulk, 1).await);
        assert_eq!(wants.await, 1);
        held.forget();
        assert_eq!(held.wants(Priority::Normal, 2).now_or_never(), Some(2));
        assert_eq!(calls.lock().unwrap().len(), 1, "what is forgotten is not answered");
    }
}
