//! The connections of one thread to one origin: which of them has a stream to give, and how they come and go.
//!
//! A request waits only while fewer streams are free than requests wait that go before it ([`StreamQueue`](super::StreamQueue)). When more wait than
//! streams are free, another connection is opened, one at a time; how many requests a new one takes before its first answer is its
//! [`Priming`](super::Priming).

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use flow::{Backoff, Clock};
use notification::Priority;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::connection::Connection;
use super::dial::{Dial, TlsWire};
use super::write_buffer::SpareBuffers;
use crate::connect::ConnectFailure;
use crate::connection_counts::{ConnectFault, ConnectionCounts};
use crate::exchange::Unsent;
use crate::tasks::LocalTasks;

/// Connections to one endpoint.
#[derive(Debug)]
pub struct Http2Pool {
    pub(super) shared: Rc<PoolState>,
    tasks: LocalTasks,
}

/// The connections of a pool.
#[derive(Debug)]
pub(super) struct PoolState {
    pub(super) dial: Dial,
    pub(super) clock: Clock,
    connections_max: usize,
    random: RefCell<fastrand::Rng>,
    connections: RefCell<Vec<Rc<Connection>>>,
    /// None of the connections before this place has a stream to give: of dozens with thousands of streams most are full, and each
    /// request would ask them all.
    first_free: Cell<usize>,
    pub(super) lines: StreamLines,
    /// Memory for what the connections write.
    spares: Rc<SpareBuffers>,
    /// The tasks that connect, while they do.
    connecting: RefCell<Vec<AbortHandle>>,
    /// How many connects have failed, one after the other, and when the next may begin then.
    failures: Cell<u16>,
    dial_at: Cell<Option<Instant>>,
    /// Why the last connect has failed, if it has.
    pub(super) failure: RefCell<Option<ConnectFailure>>,
    counts: RefCell<Arc<ConnectionCounts>>,
}

/// The requests of a pool that wait for streams, by priority.
#[derive(Debug, Default)]
pub(super) struct StreamLines([Line; 3]);

/// Requests of one priority that wait.
#[derive(Debug, Default)]
pub(super) struct Line {
    pub(super) length: Cell<usize>,
    /// Wakes one caller when it is its turn, the first to come first.
    pub(super) turn: Notify,
}

// === impl Http2Pool ===

impl Http2Pool {
    /// A pool without connections, for at most `connections_max`; `seed` is for its random waits between connects.
    pub fn new(dial: Dial, connections_max: usize, clock: Clock, seed: u64) -> Self {
        let shared = PoolState {
            dial,
            clock,
            connections_max,
            random: RefCell::new(fastrand::Rng::with_seed(seed)),
            connections: RefCell::default(),
            first_free: Cell::default(),
            lines: StreamLines::default(),
            spares: Rc::default(),
            connecting: RefCell::default(),
            failures: Cell::default(),
            dial_at: Cell::default(),
            failure: RefCell::default(),
            counts: RefCell::default(),
        };
        Self { shared: Rc::new(shared), tasks: LocalTasks::default() }
    }

    /// This pool, which counts its connections in `counts`.
    #[must_use]
    pub fn counted(self, counts: Arc<ConnectionCounts>) -> Self {
        self.shared.counts.replace(counts);
        self
    }

    /// The clock by which requests wait.
    pub(crate) fn clock(&self) -> Clock {
        self.shared.clock
    }

    /// Opens a connection if requests wait and the open ones, with those that are being made, have too few streams for them.
    pub(super) fn grow(&self) {
        if self.shared.may_grow() {
            let connecting = self.tasks.spawn(live(Rc::clone(&self.shared)));
            self.shared.connecting.borrow_mut().push(connecting);
        }
    }

    /// Closes all connections gracefully.
    pub async fn close(&self) {
        // Each says GOAWAY when the last request on it has ended.
        for connection in self.shared.connections.take() {
            connection.place.set(None);
            connection.close_if_unused();
        }
        // Nothing would close what it makes.
        self.shared.connecting.take().iter().for_each(AbortHandle::abort);
        self.tasks.join().await;
    }
}

/// The life of a connection.
async fn live(shared: Rc<PoolState>) {
    let connected = shared.connect().await;
    let is_this = |connecting: &AbortHandle| connecting.id() == tokio::task::id();
    shared.connecting.borrow_mut().retain(|connecting| !is_this(connecting));
    let Some(wire) = connected else { return };
    let counts = Arc::clone(&shared.counts.borrow());
    let _open = counts.open();
    let connection = Rc::clone(&wire.connection);
    shared.add(Rc::clone(&connection));
    wire.run(|| {
        // It goes away, or its streams have run out: what is under way goes on.
        if !connection.session.borrow().takes_requests() {
            shared.leave(&connection);
        }
        // What came may have been SETTINGS that grant more streams, and what left may have made room.
        shared.first_free.set(0);
        shared.wake();
    })
    .await;
    // No check of another one would free them.
    if shared.connections.borrow().is_empty() {
        shared.spares.clear();
    }
    if connection.session.borrow().peer.goes_away.is_some() {
        counts.go_away();
    }
}

// === impl PoolState ===

impl PoolState {
    /// Connects, again and again while a request waits.
    async fn connect(&self) -> Option<TlsWire> {
        // Those that waited may have found a stream meanwhile, or given up.
        while self.lines.before(Priority::Bulk) > 0 {
            if let Some(at) = self.dial_at.get() {
                tokio::time::sleep_until(at).await;
            }
            let failure = match self.dial.connect(self.clock).await {
                Ok(connected) => {
                    self.failures.set(0);
                    self.dial_at.set(None);
                    self.failure.replace(None);
                    return Some(connected);
                }
                Err(failure) => failure,
            };
            self.counts.borrow().fail(failure.fault());
            failure.log(self.dial.provider, self.dial.reach.is_configured());
            let is_final = failure.is_final();
            self.failure.replace(Some(failure));
            if is_final {
                // All of them, since to each the answer is the same.
                self.lines.wake_all();
                return None;
            }
            let failures = self.failures.get().saturating_add(1);
            self.failures.set(failures);
            let delay = Backoff::CONNECT.delay(failures, None, &mut self.random.borrow_mut());
            self.dial_at.set(Some(self.clock.monotonic() + delay));
        }
        None
    }

    /// Takes a connection into use.
    fn add(&self, connection: Rc<Connection>) {
        connection.session.borrow_mut().out.share(&self.spares);
        connection.place.set(Some(self.connections.borrow().len()));
        self.connections.borrow_mut().push(connection);
        self.wake();
    }

    /// Takes a connection out of use, if it is not already; requests under way on it go on. Waiting ones look for another.
    /// Says whether it was in use.
    pub(super) fn leave(&self, connection: &Connection) -> bool {
        let Some(place) = connection.place.take() else { return false };
        let mut connections = self.connections.borrow_mut();
        connections.remove(place);
        // A stream that comes back lowers `first_free` to its connection's place.
        for (place, connection) in connections.iter().enumerate() {
            connection.place.set(Some(place));
        }
        self.first_free.set(0);
        connection.close_if_unused();
        self.lines.wake_all();
        true
    }

    /// Notes that a stream of `connection` is free again.
    pub(super) fn came_back(&self, connection: &Connection) {
        // Lowered at most: the places before it were found full.
        let place = connection.place.get().unwrap_or(usize::MAX);
        self.first_free.set(self.first_free.get().min(place));
        connection.close_if_unused();
        self.wake();
    }

    /// The first connection with a stream to give: when there is less to do, the last ones fall idle and close.
    pub(super) fn find_free(&self) -> Option<Rc<Connection>> {
        let connections = self.connections.borrow();
        let is_full = |connection: &&Rc<Connection>| connection.free_streams() == 0;
        let behind = connections.get(self.first_free.get()..).unwrap_or_default();
        // None is asked again before a stream has come back or a connection has moved on.
        let full = behind.iter().take_while(is_full).count();
        self.first_free.set(connections.len().min(self.first_free.get() + full));
        behind.get(full).map(Rc::clone)
    }

    pub(super) fn free_streams(&self) -> usize {
        let connections = self.connections.borrow();
        let free = connections.iter().map(|connection| connection.free_streams());
        free.fold(0, usize::saturating_add)
    }

    /// True if a connection is to be opened: more requests wait than streams are free, and will be when the connections that are being
    /// made and proven are there. Each of these is expected to have as many streams as the last one that is proven. They are at most
    /// as many as are proven already, and one at least: a burst to an origin that answers slowly opens one, and the connections to
    /// an origin that answers double.
    fn may_grow(&self) -> bool {
        let (connections, connecting) = (self.connections.borrow(), self.connecting.borrow().len());
        let waiting = self.lines.before(Priority::Bulk);
        // First, since this is asked often, mostly of a pool that has all its connections.
        if waiting == 0 || connections.len() + connecting >= self.connections_max {
            return false;
        }
        // They will soon have streams, or more than the one that they have.
        let unproven = connecting + connections.iter().filter(|one| one.is_being_proven()).count();
        let settled = connections.iter().filter(|one| one.is_settled.get());
        let each =
            settled.clone().next_back().map_or(1, |one| one.session.borrow().streams_max().max(1));
        let expected = self.free_streams().saturating_add(unproven.saturating_mul(each));
        waiting > expected && unproven < settled.count().max(1)
    }

    /// Wakes the request whose turn it is, if there is a stream for it.
    pub(super) fn wake(&self) {
        if self.lines.before(Priority::Bulk) > 0 && self.find_free().is_some() {
            self.lines.wake_next();
        }
    }

    /// Why a request that has waited for long has no stream.
    pub(super) fn no_stream<Refusal>(&self) -> Unsent<Refusal> {
        if !self.connections.borrow().is_empty() {
            return Unsent::Full;
        }
        let late = || {
            ConnectFailure::Unreachable(ConnectFault::Timeout, "no connection in time".to_owned())
        };
        self.failure.borrow().clone().unwrap_or_else(late).into()
    }
}

// === impl StreamLines ===

impl StreamLines {
    pub(super) const fn of(&self, priority: Priority) -> &Line {
        let [urgent, normal, bulk] = &self.0;
        match priority {
            Priority::Urgent => urgent,
            Priority::Normal => normal,
            Priority::Bulk => bulk,
        }
    }

    /// How many requests of this or a higher priority wait.
    pub(super) fn before(&self, priority: Priority) -> usize {
        let before = Priority::ALL.iter().filter(|other| **other <= priority);
        before.map(|other| self.of(*other).length.get()).sum()
    }

    pub(super) fn wake_next(&self) {
        if let Some(line) = self.0.iter().find(|line| line.length.get() > 0) {
            // Kept if none waits at this very moment: the next one that does is woken by it.
            line.turn.notify_one();
        }
    }

    pub(super) fn wake_all(&self) {
        for line in &self.0 {
            // Kept for none; and none misses it, since a request begins to wait in the same turn in which it has
            // looked.
            line.turn.notify_waiters();
        }
    }
}

#[cfg(test)]
#[path = "pool_tests.rs"]
mod tests;
