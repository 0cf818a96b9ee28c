//! The connections of a pool: which of them has a stream to give, and how they come and go.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use flow::{Backoff, Clock};
use notification::Priority;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::connection::{Connection, Dial, Http2ConnectFailure, TlsWire};
use super::waiting::StreamWaiters;
use crate::exchange::Unsent;

/// The connections of a pool.
#[derive(Debug)]
pub(super) struct PoolState {
    pub(super) dial: Dial,
    pub(super) clock: Clock,
    pub(super) connections_max: usize,
    pub(super) random: RefCell<fastrand::Rng>,
    pub(super) connections: RefCell<Vec<Rc<Connection>>>,
    /// None of the connections before this place has a stream to give: of dozens with thousands of streams most are full, and each
    /// request would ask them all.
    pub(super) first_free: Cell<usize>,
    pub(super) waiting: StreamWaiters,
    /// The tasks that connect, while they do.
    pub(super) connecting: RefCell<Vec<AbortHandle>>,
    pub(super) failures: Cell<u16>,
    /// Not to be dialled before, after failures.
    pub(super) dial_at: Cell<Option<Instant>>,
    /// Why the last connect has failed, if it has.
    pub(super) failure: RefCell<Option<Http2ConnectFailure>>,
}

// === impl PoolState ===

impl PoolState {
    /// Without connections.
    pub(super) fn new(dial: Dial, connections_max: usize, clock: Clock, seed: u64) -> Self {
        Self {
            dial,
            clock,
            connections_max,
            random: RefCell::new(fastrand::Rng::with_seed(seed)),
            connections: RefCell::default(),
            first_free: Cell::new(0),
            waiting: StreamWaiters::default(),
            connecting: RefCell::default(),
            failures: Cell::new(0),
            dial_at: Cell::new(None),
            failure: RefCell::default(),
        }
    }

    /// Connects, again and again while a request waits.
    pub(super) async fn connect(&self) -> Option<(Connection, TlsWire)> {
        // Those that waited may have found a stream meanwhile, or given up.
        while self.waiting.is_any() {
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
            let (provider, is_configured) = (self.dial.provider, self.dial.reach.is_configured());
            match &failure {
                Http2ConnectFailure::Forbidden(_) => {}
                Http2ConnectFailure::NotSpoken(error) if is_configured => {
                    tracing::warn!(provider, error, "no connection: it has to offer h2 by ALPN");
                }
                Http2ConnectFailure::Unreachable(error) if is_configured => {
                    tracing::warn!(provider, error, "no connection");
                }
                Http2ConnectFailure::NotSpoken(error) | Http2ConnectFailure::Unreachable(error) => {
                    tracing::debug!(provider, error, "no connection");
                }
            }
            let is_final = failure.is_final();
            self.failure.replace(Some(failure));
            if is_final {
                // All of them, since to each the answer is the same.
                self.waiting.wake_all();
                return None;
            }
            let failures = self.failures.get().saturating_add(1);
            self.failures.set(failures);
            let delay = Backoff::CONNECT.delay(failures, None, &mut self.random.borrow_mut());
            self.dial_at.set(Some(self.clock.monotonic() + delay));
        }
        None
    }

    /// Takes a connection out of use, if it is not already; requests under way on it go on. Waiting ones look for another.
    /// Says whether it was in use.
    pub(super) fn leave(&self, connection: &Weak<Connection>) -> bool {
        let mut connections = self.connections.borrow_mut();
        let is_it = |other: &Rc<Connection>| std::ptr::eq(Rc::as_ptr(other), connection.as_ptr());
        let was_in_use = connections.iter().any(is_it);
        if was_in_use {
            connections.retain(|other| !is_it(other));
            // A stream that comes back lowers `first_free` to its connection's place.
            for (place, connection) in connections.iter().enumerate() {
                connection.place.set(place);
            }
            self.first_free.set(0);
            self.waiting.wake_all();
        }
        was_in_use
    }

    /// The place of the first connection with a stream to give: when there is less to do, the last ones fall idle and close.
    pub(super) fn find_free(&self) -> Option<usize> {
        let connections = self.connections.borrow();
        let first = self.first_free.get();
        let behind = connections.get(first..).unwrap_or_default();
        let found = behind.iter().position(|connection| connection.free_streams() > 0);
        let place = found.map(|places| first + places);
        // None is asked again before a stream has come back or a connection has moved on.
        self.first_free.set(place.unwrap_or(connections.len()));
        place
    }

    /// [`Self::find_free`] for a request of `priority` that does not wait: where there are more streams than requests that wait and
    /// go before it. So a request that waited once does not make all later ones wait as well.
    pub(super) fn find_free_for(&self, priority: Priority) -> Option<usize> {
        self.find_free_beyond(self.waiting.before(priority))
    }

    /// [`Self::find_free`] for one that waits, where there are more streams than requests that wait and are more urgent.
    pub(super) fn find_free_for_waiting(&self, priority: Priority) -> Option<usize> {
        let of_this = self.waiting.queue(priority).length.get();
        self.find_free_beyond(self.waiting.before(priority) - of_this)
    }

    /// True if a connection is to be opened: more requests wait than streams are free, and will be when the connections that are being
    /// made and proven are there. Each of these is expected to have as many streams as the last one that is proven. They are at most
    /// as many as are proven already, and one at least: a burst to an origin that answers slowly opens one, and the connections to
    /// an origin that answers double.
    pub(super) fn may_grow(&self) -> bool {
        let connections = self.connections.borrow();
        let is_full = connections.len() + self.connecting.borrow().len() >= self.connections_max;
        let Some(beyond) = self.waiting.before(Priority::Bulk).checked_sub(1) else { return false };
        // First, since every request that waits asks this, mostly of a pool that has all its connections or a stream for it.
        if is_full || self.find_free_beyond(beyond).is_some() {
            return false;
        }
        let unproven = self.unproven(&connections);
        let settled = connections.iter().filter(|one| one.is_settled());
        let each = settled.clone().next_back().map_or(1, |one| one.streams_granted().max(1));
        let expected = unproven.saturating_mul(each);
        let is_short = beyond >= expected && self.find_free_beyond(beyond - expected).is_none();
        is_short && unproven < settled.count().max(1)
    }

    /// Connections that will soon have streams, or more than the one that they have.
    fn unproven(&self, connections: &[Rc<Connection>]) -> usize {
        let being_proven = connections.iter().filter(|one| one.is_being_proven()).count();
        self.connecting.borrow().len() + being_proven
    }

    /// [`Self::find_free`], where more than `streams` are free.
    fn find_free_beyond(&self, mut streams: usize) -> Option<usize> {
        let place = self.find_free()?;
        if streams == 0 {
            return Some(place);
        }
        for connection in self.connections.borrow().get(place..).unwrap_or_default() {
            match streams.checked_sub(connection.free_streams()) {
                Some(rest) => streams = rest,
                None => return Some(place),
            }
        }
        None
    }

    /// Wakes the request whose turn it is, if there is a stream for it.
    pub(super) fn wake(&self) {
        if self.waiting.is_any() && self.find_free().is_some() {
            self.waiting.wake_next();
        }
    }

    /// Why a request that has waited for long has no stream.
    pub(super) fn no_stream<Refusal>(&self) -> Unsent<Refusal> {
        if !self.connections.borrow().is_empty() {
            return Unsent::Full;
        }
        let failure = self.failure.borrow().clone();
        failure
            .map_or_else(|| Unsent::Unreachable("no connection in time".to_owned()), Unsent::from)
    }
}
