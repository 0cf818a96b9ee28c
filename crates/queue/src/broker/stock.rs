//! The tickets that a consumer holds: what has arrived and waits to be received, and what was received and is not
//! yet answered for.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use notification::{Priority, Ticket};
use tokio::sync::Notify;

use super::error::BrokerError;
use crate::{Acknowledge, Message, QueueError, Receipt};

/// Holds tickets by priority. As many as the backend asks its broker for, so it is bounded there.
#[derive(Debug)]
pub struct Stock<A> {
    state: Mutex<State<A>>,
    /// For those who receive: all of them, since they may want different priorities.
    arrived: Notify,
    /// For those who ask for more, keep, or close.
    changed: Notify,
}

#[derive(Debug)]
struct State<A> {
    /// Keys of what nobody has received, by priority.
    waiting: [VecDeque<u64>; Priority::ALL.len()],
    held: BTreeMap<u64, Held<A>>,
    next_key: u64,
    closed: bool,
}

#[derive(Debug)]
struct Held<A> {
    ticket: Ticket,
    answer: Arc<A>,
    received: bool,
    /// Whether an earlier look saw it.
    seen: bool,
}

/// Tells the broker what became of one message. None of these waits for the broker: what it does not get to know,
/// it gives out again, and the store refuses.
pub trait Answer: Send + Sync + fmt::Debug + 'static {
    /// Forget it.
    fn acknowledge(&self) -> Result<(), BrokerError>;

    /// Give it to somebody else.
    fn give_back(&self);

    /// It is still held.
    fn keep(&self);
}

/// The other end of a [`Receipt`].
#[derive(Debug)]
struct Handle<A: Answer> {
    stock: Arc<Stock<A>>,
    key: u64,
}

// === impl Stock ===

impl<A: Answer> Stock<A> {
    /// An empty stock.
    pub(crate) fn new() -> Self {
        let state = State {
            waiting: Default::default(),
            held: BTreeMap::new(),
            next_key: 0,
            closed: false,
        };
        Self { state: Mutex::new(state), arrived: Notify::new(), changed: Notify::new() }
    }

    /// Puts a ticket that arrived behind those of its priority.
    pub fn put(&self, ticket: Ticket, answer: A) {
        let mut state = self.state();
        let key = state.next_key;
        state.next_key += 1;
        if let Some(waiting) = state.waiting.get_mut(usize::from(ticket.priority.code())) {
            waiting.push_back(key);
        }
        let held = Held { ticket, answer: Arc::new(answer), received: false, seen: false };
        state.held.insert(key, held);
        let is_first = state.held.len() == 1;
        drop(state);
        self.arrived.notify_waiters();
        if is_first {
            self.changed.notify_waiters();
        }
    }

    /// As [`crate::Consume::receive`]. Whether a ticket is void yet, the store says when it is asked for its chunk: by a
    /// clock that is wrong here, all of them would seem to be.
    pub(crate) async fn receive(
        self: &Arc<Self>,
        lowest: Priority,
        items: usize,
    ) -> Vec<Message<Ticket>> {
        loop {
            let arrived = self.arrived.notified();
            tokio::pin!(arrived);
            // Registers before looking, so that nothing that comes in between is missed.
            arrived.as_mut().enable();
            if let Some(messages) = self.take(lowest, items.max(1)) {
                return messages;
            }
            arrived.await;
        }
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
        let mut kept = Vec::new();
        for held in state.held.values_mut() {
            if std::mem::replace(&mut held.seen, true) {
                kept.push(Arc::clone(&held.answer));
            }
        }
        drop(state);
        for answer in kept {
            answer.keep();
        }
    }

    /// Forgets what nobody has received: it came by a link that is gone, and its broker gives it out again.
    pub(crate) fn forget(&self) {
        let _gone = self.state().remove_waiting();
        self.changed.notify_waiters();
    }

    /// Ends every receive.
    pub(crate) fn close(&self) {
        self.state().closed = true;
        self.arrived.notify_waiters();
    }

    /// Gives back what nobody has received.
    pub(crate) fn give_back(&self) {
        let waiting = self.state().remove_waiting();
        for answer in waiting {
            answer.give_back();
        }
        self.changed.notify_waiters();
    }

    /// What is there now; `None` while there is nothing and more may come.
    fn take(self: &Arc<Self>, lowest: Priority, items: usize) -> Option<Vec<Message<Ticket>>> {
        let mut state = self.state();
        if state.closed {
            return Some(Vec::new());
        }
        let mut messages = Vec::new();
        while messages.len() < items
            && let Some(key) = state.pop(lowest)
        {
            let Some(held) = state.held.get_mut(&key) else { continue };
            held.received = true;
            let handle = Handle { stock: Arc::clone(self), key };
            messages.push(Message { item: held.ticket, receipt: Receipt::new(handle) });
        }
        (!messages.is_empty()).then_some(messages)
    }

    fn remove(&self, key: u64) -> Option<Held<A>> {
        let removed = self.state().held.remove(&key);
        self.changed.notify_waiters();
        removed
    }

    async fn when<R>(&self, look: impl Fn(&State<A>) -> Option<R>) -> R {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if let Some(seen) = look(&self.state()) {
                return seen;
            }
            changed.await;
        }
    }

    fn state(&self) -> MutexGuard<'_, State<A>> {
        // Every critical section leaves the state whole, even if it panicked.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl State ===

impl<A> State<A> {
    fn pop(&mut self, lowest: Priority) -> Option<u64> {
        let admitted = usize::from(lowest.code()) + 1;
        self.waiting.iter_mut().take(admitted).find_map(VecDeque::pop_front)
    }

    /// Takes away what nobody has received.
    fn remove_waiting(&mut self) -> Vec<Arc<A>> {
        self.waiting.iter_mut().for_each(VecDeque::clear);
        let removed = self.held.extract_if(.., |_key, held| !held.received);
        removed.map(|(_key, held)| held.answer).collect()
    }
}

// === impl Handle ===

#[async_trait]
impl<A: Answer> Acknowledge for Handle<A> {
    async fn acknowledge(&mut self) -> Result<(), QueueError> {
        match self.stock.remove(self.key) {
            Some(held) => {
                held.answer.acknowledge().map_err(|fault| QueueError::Unconfirmed(fault.0))
            }
            None => Ok(()),
        }
    }
}

impl<A: Answer> Drop for Handle<A> {
    fn drop(&mut self) {
        if let Some(held) = self.stock.remove(self.key) {
            held.answer.give_back();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use notification::Timestamp;

    use super::*;
    use crate::conformance::Sample;

    /// What the broker was told, in order.
    type Told = Arc<Mutex<Vec<(&'static str, u64)>>>;

    #[derive(Debug)]
    struct Teller(u64, Told);

    impl Teller {
        fn tell(&self, what: &'static str) {
            self.1.lock().unwrap().push((what, self.0));
        }
    }

    impl Answer for Teller {
        fn acknowledge(&self) -> Result<(), BrokerError> {
            self.tell("acknowledged");
            Ok(())
        }

        fn give_back(&self) {
            self.tell("given back");
        }

        fn keep(&self) {
            self.tell("kept");
        }
    }

    fn put(stock: &Stock<Teller>, told: &Told, number: u64) {
        let ticket = Ticket::sample(number, Priority::Normal);
        stock.put(ticket, Teller(number, Arc::clone(told)));
    }

    #[tokio::test]
    async fn no_ticket_is_answered_before_it_was_received() {
        let (stock, told) = (Arc::new(Stock::new()), Told::default());
        for (number, lease_until) in [(1, 0), (2, i64::MAX)] {
            let lease_until = Timestamp::from_millis(lease_until);
            let ticket = Ticket { lease_until, ..Ticket::sample(number, Priority::Normal) };
            stock.put(ticket, Teller(number, Arc::clone(&told)));
        }
        stock.keep();
        let messages = stock.receive(Priority::Bulk, 2).await;
        let numbers: Vec<u64> = messages.iter().map(|message| message.item.number()).collect();
        assert_eq!(numbers, [1, 2], "whether its lease is over is not for this process to say");
        assert_eq!(*told.lock().unwrap(), []);
        drop(messages);
        assert_eq!(*told.lock().unwrap(), [("given back", 1), ("given back", 2)]);
        assert!(stock.settled().now_or_never().is_some());
    }

    #[tokio::test]
    async fn what_is_held_for_long_is_kept() {
        let (stock, told) = (Arc::new(Stock::new()), Told::default());
        put(&stock, &told, 1);
        stock.keep();
        put(&stock, &told, 2);
        let _messages = stock.receive(Priority::Bulk, 1).await;
        stock.keep();
        assert_eq!(*told.lock().unwrap(), [("kept", 1)]);
        stock.keep();
        assert_eq!(*told.lock().unwrap(), [("kept", 1), ("kept", 1), ("kept", 2)]);
    }

    #[tokio::test]
    async fn a_closed_stock_gives_back_what_waits_and_waits_for_what_was_received() {
        let (stock, told) = (Arc::new(Stock::new()), Told::default());
        put(&stock, &told, 1);
        put(&stock, &told, 2);
        let mut messages = stock.receive(Priority::Bulk, 1).await;
        stock.close();
        stock.give_back();
        assert_eq!(*told.lock().unwrap(), [("given back", 2)]);
        assert!(stock.receive(Priority::Bulk, 1).await.is_empty());
        assert!(stock.settled().now_or_never().is_none());
        messages.remove(0).receipt.acknowledge().await.unwrap();
        assert!(stock.settled().now_or_never().is_some());
    }

    #[tokio::test]
    async fn more_is_wanted_as_soon_as_something_is_answered_for() {
        let (stock, told) = (Arc::new(Stock::new()), Told::default());
        put(&stock, &told, 1);
        put(&stock, &told, 2);
        assert_eq!(stock.wants(Priority::Normal, 3).now_or_never(), Some(1));
        assert_eq!(stock.wants(Priority::Urgent, 2).now_or_never(), Some(2));
        let wants = stock.wants(Priority::Normal, 2);
        tokio::pin!(wants);
        assert_eq!(wants.as_mut().now_or_never(), None);
        drop(stock.receive(Priority::Bulk, 1).await);
        assert_eq!(wants.await, 1);
        stock.forget();
        assert_eq!(stock.wants(Priority::Normal, 2).now_or_never(), Some(2));
        assert_eq!(told.lock().unwrap().len(), 1, "what is forgotten is not answered");
    }
}
