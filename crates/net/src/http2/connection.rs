//! One HTTP/2 connection, as its pool, the requests on it and the [`Wire`](super::driver::Wire) that moves it share it.

use std::cell::{Cell, RefCell};
use std::task::Waker;
use std::time::Duration;

use flow::Clock;
use http::{HeaderName, StatusCode};
use tokio::time::Instant;

use super::session::Http2Session;

/// How long the first answer of a connection is waited for until another connection may be opened beside it.
pub(super) const PROOF_WAIT: Duration = Duration::from_secs(2);
/// Requests given up in a row, without an answer to any other, after which a connection counts as unresponsive. One may be the
/// server's trouble with that request; a peer that does not answer two answers pings only.
const GIVEN_UP_MAX: u32 = 2;

/// A connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) session: RefCell<Http2Session>,
    pub(super) clock: Clock,
    /// When bytes came in last.
    pub(super) read_at: Cell<Instant>,
    /// Wakes the wire.
    pub(super) waker: RefCell<Option<Waker>>,
    /// Its place among the connections in use, for their pool; `None` once it is not in use, or before.
    pub(super) place: Cell<Option<usize>>,
    /// Streams that were given out, begun or not.
    pub(super) in_flight: Cell<usize>,
    /// True once an answer has shown that the peer accepts our credential here, or if none is waited for: it takes as much as it ever
    /// will.
    pub(super) is_settled: Cell<bool>,
    /// When the stream was taken that may show it.
    tried_at: Cell<Option<Instant>>,
    /// Requests given up since the last answer.
    given_up: Cell<u32>,
}

/// How many streams a new connection takes before its first answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Priming {
    /// One, until an answer has shown that the peer accepts our credential, whatever it granted: so APNs wants it.
    OneStream,
    /// As many as the peer has granted.
    Unprimed,
}

// === impl Connection ===

impl Connection {
    /// A connection on which nothing was said yet, of whose answers the header fields `read_fields` are kept.
    pub(super) fn new(priming: Priming, read_fields: &'static [HeaderName], clock: Clock) -> Self {
        let now = clock.monotonic();
        Self {
            session: RefCell::new(Http2Session::new(read_fields, now)),
            clock,
            read_at: Cell::new(now),
            waker: RefCell::default(),
            place: Cell::default(),
            in_flight: Cell::default(),
            is_settled: Cell::new(priming == Priming::Unprimed),
            tried_at: Cell::default(),
            given_up: Cell::default(),
        }
    }

    /// Has `act` change what is said, and the wire write it in the same turn of the thread.
    pub(super) fn act<Done>(&self, act: impl FnOnce(&mut Http2Session) -> Done) -> Done {
        let done = act(&mut self.session.borrow_mut());
        // Until its next turn once is enough.
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
        done
    }

    /// Streams that may be opened now.
    pub(super) fn free_streams(&self) -> usize {
        let granted = self.session.borrow().streams_max();
        let usable = if self.is_settled.get() { granted } else { granted.min(1) };
        // The peer may have withdrawn streams that are in use: then more are taken than it grants.
        usable.saturating_sub(self.in_flight.get())
    }

    /// True if its first answer has been awaited for less than [`PROOF_WAIT`]: it will take more requests then. Not longer, since a request may hang for as long as an attempt may.
    pub(super) fn is_being_proven(&self) -> bool {
        self.tried_at.get().is_some_and(|at| self.clock.monotonic() - at < PROOF_WAIT)
    }

    /// True if the peer answers no requests, even if it answers pings.
    pub(super) fn is_unresponsive(&self) -> bool {
        self.given_up.get() >= GIVEN_UP_MAX
    }

    /// Takes one of the free streams.
    pub(super) fn take_stream(&self) {
        self.in_flight.set(self.in_flight.get() + 1);
        if !self.is_settled.get() {
            self.tried_at.set(Some(self.clock.monotonic()));
        }
    }

    /// Gives it back; the request that is under way on it, if one is, is given up.
    pub(super) fn give_back(&self, under_way: Option<u32>) {
        if let Some(stream) = under_way {
            self.act(|session| session.cancel(stream));
            self.given_up.set(self.given_up.get() + 1);
        }
        self.in_flight.set(self.in_flight.get().saturating_sub(1));
    }

    /// Learns from the outcome of a request: its status, if it was answered. Also a reset is one: a peer that resets a stream is responsive.
    pub(super) fn note(&self, status: Option<u16>) {
        self.given_up.set(0);
        // 403 is how APNs refuses a token or a certificate.
        if status.is_some_and(|status| status != StatusCode::FORBIDDEN) {
            self.is_settled.set(true);
            self.tried_at.set(None);
        }
    }

    /// Closes it gracefully if it is not in use any more, and no stream of it is.
    pub(super) fn close_if_unused(&self) {
        if self.place.get().is_none() && self.in_flight.get() == 0 {
            self.act(Http2Session::finish);
        }
    }
}
