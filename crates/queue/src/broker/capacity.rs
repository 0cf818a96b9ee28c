//! The priorities of which the broker takes tickets at present. A queue that did not take one is suspected to be full
//! until a probe shows that it is not.

use std::sync::{Mutex, MutexGuard, PoisonError};

use notification::Priority;
use tokio::sync::{Notify, watch};

use super::error::BrokerError;

/// Tickets that wait in the broker, by the code of their priority.
pub type WaitingTickets = [u64; Priority::ALL.len()];

/// The priorities whose tickets the broker would take.
#[derive(Debug)]
pub struct BrokerCapacity {
    state: Mutex<CapacityState>,
    lowest: watch::Sender<Option<Priority>>,
    suspected: Notify,
}

#[derive(Debug, Default)]
struct CapacityState {
    linked: bool,
    /// Reason for which the broker takes no ticket of this process; `None` while it may take some.
    blocked: Option<String>,
    /// Queues that did not take a ticket, and have not been looked at since.
    suspects: [bool; Priority::ALL.len()],
    /// Times in a row that a queue looked as if it would take tickets, and then did not, whatever the link.
    failed_probes: [u16; Priority::ALL.len()],
    /// Reason of the last refusal of a ticket.
    refusal: Option<BrokerError>,
}

/// Looks in vain after which the broker is of no use: it answers, and takes nothing.
const FAILED_PROBES_MAX: u16 = 5;

// === impl BrokerCapacity ===

impl BrokerCapacity {
    /// Capacity without room: there is no link yet.
    pub(crate) fn new() -> Self {
        let lowest = watch::Sender::new(None);
        Self { state: Mutex::default(), lowest, suspected: Notify::new() }
    }

    /// Follows the lowest priority that there is room for.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Option<Priority>> {
        self.lowest.subscribe()
    }

    /// Notes a new link, or the loss of it.
    pub(crate) fn set_linked(&self, linked: bool) {
        self.change(|state| {
            // A block is of one connection: if it holds for the new one, the broker says so again.
            (state.linked, state.blocked) = (linked, None);
            // The failed probes stay: a new link makes a queue that takes nothing no better.
            state.suspects = Default::default();
        });
    }

    /// Notes the broker's report that it takes nothing, with the reason; or, with `None`, that it takes everything again.
    pub fn set_blocked(&self, reason: Option<String>) {
        self.change(|state| state.blocked = reason);
        // The wait for a suspect is also one for the end of a block.
        self.suspected.notify_one();
    }

    /// Reason for which the broker takes no ticket, while it is known.
    pub(crate) fn blocked(&self) -> Option<BrokerError> {
        self.state().blocked.clone().map(BrokerError)
    }

    /// Notes that a ticket of `priority` was taken: the failed probes of its queue count no more.
    pub(crate) fn confirm(&self, priority: Priority) {
        let mut state = self.state();
        if let Some(probes) = state.failed_probes.get_mut(usize::from(priority.code())) {
            *probes = 0;
        }
    }

    /// A ticket of `priority` was not taken, by reason of `error`: there is no capacity for it until its queue was probed.
    pub(crate) fn suspect(&self, priority: Priority, error: &BrokerError) {
        self.change(|state| {
            // Thousands of tickets may be refused with the same words.
            if state.refusal.as_ref() != Some(error) {
                state.refusal = Some(error.clone());
            }
            if let Some(suspect) = state.suspects.get_mut(usize::from(priority.code())) {
                *suspect = true;
            }
        });
        self.suspected.notify_one();
    }

    /// Waits until a queue is under suspicion, and the broker would answer a probe.
    pub(crate) async fn suspected(&self) {
        // Looked at again after each wake-up, which may be left from a change that is over.
        while self.blocked().is_some() || !self.has_suspects() {
            self.suspected.notified().await;
        }
    }

    /// True if a queue is suspected to be full.
    pub(crate) fn has_suspects(&self) -> bool {
        self.state().suspects.contains(&true)
    }

    /// Takes the result of a probe: queues with fewer than `tickets_max` waiting are free of suspicion.
    ///
    /// # Errors
    /// When a suspected queue had room again and again, and took nothing in between: its defect cannot be seen.
    pub(crate) fn clear(
        &self,
        waiting: WaitingTickets,
        tickets_max: u64,
    ) -> Result<(), BrokerError> {
        self.change(|state| {
            let queues = state.suspects.iter_mut().zip(&mut state.failed_probes);
            for ((suspect, failed_probes), waiting) in queues.zip(waiting) {
                if *suspect && waiting < tickets_max {
                    *suspect = false;
                    *failed_probes = failed_probes.saturating_add(1);
                }
            }
        });
        if self.failed_probes() < FAILED_PROBES_MAX {
            return Ok(());
        }
        let BrokerError(reason) =
            self.state().refusal.clone().unwrap_or_else(|| BrokerError(String::new()));
        Err(BrokerError(format!(
            "the broker answers and takes no tickets, though its queues are not full ({reason}): is its disk full, or \
             does a policy or a limit of its own bind it?"
        )))
    }

    /// The most times in a row that a queue was looked at in vain.
    pub(crate) fn failed_probes(&self) -> u16 {
        self.state().failed_probes.into_iter().max().unwrap_or_default()
    }

    fn change(&self, change: impl FnOnce(&mut CapacityState)) {
        let mut state = self.state();
        change(&mut state);
        let capacity = state.capacity();
        // Thousands of refused tickets leave the capacity as it is, and each notification would wake the stage that claims.
        self.lowest.send_if_modified(|lowest| std::mem::replace(lowest, capacity) != capacity);
    }

    fn state(&self) -> MutexGuard<'_, CapacityState> {
        // Every critical section leaves the state whole, even if it panicked.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl CapacityState ===

impl CapacityState {
    /// The lowest priority that is free of suspicion, as are all above it.
    fn capacity(&self) -> Option<Priority> {
        if !self.linked || self.blocked.is_some() {
            return None;
        }
        // A claim takes all priorities down to the lowest one, so what is free behind a suspect cannot be had without it.
        let free = self.suspects.iter().take_while(|suspect| !**suspect).count();
        free.checked_sub(1).and_then(|lowest| Priority::ALL.get(lowest).copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_leaves_room_for_what_is_more_urgent_only() {
        let capacity = BrokerCapacity::new();
        let lowest = capacity.subscribe();
        let check = |expect| assert_eq!(*lowest.borrow(), expect);
        check(None);
        capacity.set_linked(true);
        check(Some(Priority::Bulk));
        let error = BrokerError("no place".to_owned());
        capacity.suspect(Priority::Bulk, &error);
        check(Some(Priority::Normal));
        capacity.suspect(Priority::Urgent, &error);
        check(None);
        capacity.clear([0, 0, 10], 10).unwrap();
        check(Some(Priority::Normal));
        capacity.clear([0, 0, 9], 10).unwrap();
        check(Some(Priority::Bulk));
        assert!(!capacity.has_suspects());
    }

    #[test]
    fn a_queue_that_is_not_full_and_takes_nothing_is_a_fault_until_it_takes_something() {
        let capacity = BrokerCapacity::new();
        let look = |waiting| {
            capacity.suspect(Priority::Normal, &BrokerError("no place".to_owned()));
            capacity.clear([0, waiting, 0], 10)
        };
        for _ in 0..3 * FAILED_PROBES_MAX {
            assert_eq!(look(10), Ok(()), "it is full, which is no error");
        }
        for _ in 1..FAILED_PROBES_MAX {
            assert_eq!(look(0), Ok(()));
        }
        capacity.set_linked(true);
        assert!(look(0).unwrap_err().0.contains("(no place)"), "another link changes nothing");
        capacity.confirm(Priority::Bulk);
        assert!(look(0).is_err());
        capacity.confirm(Priority::Normal);
        assert_eq!(look(0), Ok(()));
        assert_eq!(capacity.failed_probes(), 1);
    }

    #[test]
    fn a_blocked_or_lost_broker_has_no_room_and_a_new_link_is_above_suspicion() {
        let capacity = BrokerCapacity::new();
        let lowest = capacity.subscribe();
        capacity.set_linked(true);
        capacity.set_blocked(Some("low on disk".to_owned()));
        assert_eq!(*lowest.borrow(), None);
        capacity.set_blocked(None);
        capacity.suspect(Priority::Normal, &BrokerError(String::new()));
        capacity.set_linked(false);
        assert_eq!(*lowest.borrow(), None);
        capacity.set_linked(true);
        assert_eq!(*lowest.borrow(), Some(Priority::Bulk));
    }
}
