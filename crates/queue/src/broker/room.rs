//! What the broker takes at present, and which queues are under suspicion.

use std::sync::{Mutex, MutexGuard, PoisonError};

use notification::Priority;
use tokio::sync::{Notify, watch};

use super::link::{Fault, Waiting};

/// Whether tickets would be taken, by priority.
#[derive(Debug)]
pub struct Room {
    state: Mutex<State>,
    told: watch::Sender<Option<Priority>>,
    suspected: Notify,
}

#[derive(Debug, Default)]
struct State {
    linked: bool,
    /// Why the broker takes nothing from us at all.
    blocked: Option<String>,
    /// Queues that did not take a ticket, and have not been looked at since.
    suspects: [bool; Priority::ALL.len()],
}

// === impl Room ===

impl Room {
    /// No room: there is no link yet.
    pub(crate) fn new() -> Self {
        let told = watch::Sender::new(None);
        Self { state: Mutex::default(), told, suspected: Notify::new() }
    }

    /// Follows the lowest priority that there is room for.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Option<Priority>> {
        self.told.subscribe()
    }

    /// There is a new link, or none any more.
    pub(crate) fn set_linked(&self, linked: bool) {
        self.change(|state| *state = State { linked, ..State::default() });
    }

    /// The broker says that it takes nothing, and why; or that it takes everything again.
    pub fn set_blocked(&self, reason: Option<String>) {
        self.change(|state| state.blocked = reason);
        self.suspected.notify_one();
    }

    /// Why nothing is taken, while that is known.
    pub(crate) fn blocked(&self) -> Option<Fault> {
        self.state().blocked.clone().map(Fault)
    }

    /// A ticket of `priority` was not taken: there is no room for it until somebody has looked.
    pub(crate) fn suspect(&self, priority: Priority) {
        self.change(|state| {
            if let Some(suspect) = state.suspects.get_mut(usize::from(priority.code())) {
                *suspect = true;
            }
        });
        self.suspected.notify_one();
    }

    /// Waits until a queue is under suspicion, and the broker would listen to whoever asks about it.
    pub(crate) async fn suspected(&self) {
        while self.blocked().is_some() || !self.has_suspects() {
            self.suspected.notified().await;
        }
    }

    /// Whether a queue is under suspicion.
    pub(crate) fn has_suspects(&self) -> bool {
        self.state().suspects.contains(&true)
    }

    /// Somebody has looked: queues with fewer than `tickets_max` waiting are free of suspicion.
    pub(crate) fn clear(&self, waiting: Waiting, tickets_max: u64) {
        self.change(|state| {
            for (suspect, waiting) in state.suspects.iter_mut().zip(waiting) {
                *suspect &= waiting >= tickets_max;
            }
        });
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state();
        change(&mut state);
        let room = state.room();
        self.told.send_if_modified(|told| std::mem::replace(told, room) != room);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every critical section leaves the state whole, even if it panicked.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl State ===

impl State {
    /// The lowest priority that is free of suspicion, as are all above it.
    fn room(&self) -> Option<Priority> {
        if !self.linked || self.blocked.is_some() {
            return None;
        }
        let free = self.suspects.iter().take_while(|suspect| !**suspect).count();
        free.checked_sub(1).and_then(|lowest| Priority::ALL.get(lowest).copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_leaves_room_for_what_is_more_urgent_only() {
        let room = Room::new();
        let told = room.subscribe();
        let check = |expect| assert_eq!(*told.borrow(), expect);
        check(None);
        room.set_linked(true);
        check(Some(Priority::Bulk));
        room.suspect(Priority::Bulk);
        check(Some(Priority::Normal));
        room.suspect(Priority::Urgent);
        check(None);
        room.clear([0, 0, 10], 10);
        check(Some(Priority::Normal));
        room.clear([0, 0, 9], 10);
        check(Some(Priority::Bulk));
        assert!(!room.has_suspects());
    }

    #[test]
    fn a_blocked_or_lost_broker_has_no_room_and_a_new_link_is_above_suspicion() {
        let room = Room::new();
        let told = room.subscribe();
        room.set_linked(true);
        room.set_blocked(Some("low on disk".to_owned()));
        assert_eq!(*told.borrow(), None);
        room.set_blocked(None);
        room.suspect(Priority::Normal);
        room.set_linked(false);
        assert_eq!(*told.borrow(), None);
        room.set_linked(true);
        assert_eq!(*told.borrow(), Some(Priority::Bulk));
    }
}
