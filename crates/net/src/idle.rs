//! Connections without work: kept for a while after use, and ended by one timer for all. Without any there is no timer.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::time::Duration;

use flow::Clock;
use futures_util::future::join_all;
use tokio::time::Instant;

use crate::tasks::LocalTasks;

/// A connection that can be kept.
pub trait Reusable: 'static {
    /// True if it can be used again, as far as is known.
    fn is_usable(&mut self) -> bool;

    /// Ends it in its protocol's own way.
    fn end(self) -> impl Future<Output = ()>;
}

/// The idle connections of one thread, by what they lead to.
#[derive(Debug)]
pub struct Idle<Key, Connection> {
    shelf: Rc<IdleConnections<Key, Connection>>,
    connections_max: usize,
    tasks: LocalTasks,
}

#[derive(Debug)]
struct IdleConnections<Key, Connection> {
    clock: Clock,
    kept_for: Duration,
    /// The one that is idle longest first.
    connections: RefCell<VecDeque<(Key, Connection, Instant)>>,
    is_swept: Cell<bool>,
}

// === impl Idle ===

impl<Key: Eq + 'static, Connection: Reusable> Idle<Key, Connection> {
    /// Keeps connections for `kept_for` and up to twice as long. Beyond `connections_max` the one that is idle longest is
    /// dropped.
    pub fn new(clock: Clock, kept_for: Duration, connections_max: usize) -> Self {
        let (connections, is_swept) = (RefCell::default(), Cell::new(false));
        let shelf = Rc::new(IdleConnections { clock, kept_for, connections, is_swept });
        Self { shelf, connections_max, tasks: LocalTasks::default() }
    }

    /// The usable connection to `key` that was used last. Those that are of no more use are dropped.
    pub fn take(&self, key: &Key) -> Option<Connection> {
        let mut connections = self.shelf.connections.borrow_mut();
        loop {
            // The one used last is the likeliest to be open still, and the others grow old enough to be ended.
            let index = connections.iter().rposition(|(other, ..)| other == key)?;
            let (_, mut connection, _) = connections.remove(index)?;
            if connection.is_usable() {
                return Some(connection);
            }
        }
    }

    /// Keeps `connection`, which leads to `key`.
    pub fn put(&self, key: Key, connection: Connection) {
        let mut connections = self.shelf.connections.borrow_mut();
        if connections.len() >= self.connections_max {
            connections.pop_front();
        }
        connections.push_back((key, connection, self.shelf.clock.monotonic()));
        if !self.shelf.is_swept.replace(true) {
            self.tasks.spawn(sweep(Rc::downgrade(&self.shelf)));
        }
    }

    /// Ends a connection that is not kept, in the background.
    pub fn end(&self, connection: Connection) {
        self.tasks.spawn(connection.end());
    }

    /// Ends all.
    pub async fn close(&self) {
        let all = self.shelf.connections.take();
        self.tasks.abort().await;
        self.shelf.is_swept.set(false);
        join_all(all.into_iter().map(|(_, connection, _)| connection.end())).await;
    }
}

/// Ends connections that have been idle for long, until none is left.
async fn sweep<Key: 'static, Connection: Reusable>(shelf: Weak<IdleConnections<Key, Connection>>) {
    let mut is_any_left = true;
    while is_any_left {
        let Some(kept_for) = shelf.upgrade().map(|shelf| shelf.kept_for) else { return };
        tokio::time::sleep(kept_for).await;
        let Some(shelf) = shelf.upgrade() else { return };
        let expired = shelf.take_expired();
        is_any_left = !shelf.connections.borrow().is_empty();
        // Before the wait below: what is put meanwhile has to begin a sweep of its own.
        shelf.is_swept.set(is_any_left);
        // Not held while they end: the owner may go.
        drop(shelf);
        join_all(expired.into_iter().map(Reusable::end)).await;
    }
}

// === impl IdleConnections ===

impl<Key, Connection> IdleConnections<Key, Connection> {
    fn take_expired(&self) -> Vec<Connection> {
        let (now, kept_for) = (self.clock.monotonic(), self.kept_for);
        let mut connections = self.connections.borrow_mut();
        let count =
            // They stand in the order in which they fell idle.
            connections.partition_point(|(.., since)| now.duration_since(*since) >= kept_for);
        connections.drain(..count).map(|(_, connection, _)| connection).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts what was ended.
    struct Kept(u8, Rc<Cell<u32>>);

    impl Reusable for Kept {
        fn is_usable(&mut self) -> bool {
            self.0 != 0
        }

        async fn end(self) {
            self.1.set(self.1.get() + 1);
        }
    }

    const KEPT_FOR: Duration = Duration::from_mins(1);

    async fn beside(test: impl AsyncFnOnce(Idle<&'static str, Kept>, Rc<Cell<u32>>)) {
        let idle = Idle::new(Clock::starting_at(Duration::ZERO), KEPT_FOR, 3);
        tokio::task::LocalSet::new().run_until(test(idle, Rc::default())).await;
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_used_is_taken_first_and_what_is_of_no_use_is_passed_over() {
        beside(async |idle, ended| {
            for number in [1, 2, 0] {
                idle.put("a", Kept(number, Rc::clone(&ended)));
            }
            assert!(idle.take(&"b").is_none());
            assert_eq!(idle.take(&"a").map(|kept| kept.0), Some(2));
            assert_eq!(idle.take(&"a").map(|kept| kept.0), Some(1));
            assert!(idle.take(&"a").is_none());
        })
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn beyond_the_bound_the_one_that_is_idle_longest_goes() {
        beside(async |idle, ended| {
            for (number, key) in [(1, "a"), (2, "b"), (3, "a"), (4, "b")] {
                idle.put(key, Kept(number, Rc::clone(&ended)));
                tokio::time::advance(Duration::from_secs(1)).await;
            }
            let left =
                |key| std::iter::from_fn(|| idle.take(key)).map(|kept| kept.0).collect::<Vec<_>>();
            assert_eq!((left(&"a"), left(&"b")), (vec![3], vec![4, 2]));
        })
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_idle_for_long_is_ended_and_what_is_left_at_the_end() {
        beside(async |idle, ended| {
            idle.put("a", Kept(1, Rc::clone(&ended)));
            tokio::time::sleep(KEPT_FOR / 2).await;
            idle.put("a", Kept(2, Rc::clone(&ended)));
            tokio::time::sleep(KEPT_FOR).await;
            assert_eq!(ended.get(), 1);
            tokio::time::sleep(KEPT_FOR).await;
            assert_eq!(ended.get(), 2);
            assert!(idle.take(&"a").is_none());
            idle.put("a", Kept(3, Rc::clone(&ended)));
            tokio::time::sleep(2 * KEPT_FOR).await;
            assert_eq!(ended.get(), 3, "the timer runs again");
            idle.put("b", Kept(4, Rc::clone(&ended)));
            idle.close().await;
            assert_eq!(ended.get(), 4);
        })
        .await;
    }
}
