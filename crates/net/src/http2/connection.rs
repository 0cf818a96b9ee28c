//! One HTTP/2 connection: how it is made, and its sending side.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use flow::Clock;
use http::{HeaderName, StatusCode};
use tokio::time::Instant;
use tokio_rustls::client::TlsStream;

use super::driver::{ConnectionState, Wire};
use super::session::Http2Session;
use crate::endpoint::Origin;
use crate::exchange::Unsent;
use crate::guard::Forbidden;
use crate::read_ahead::ReadAheadSocket;
use crate::tcp::{self, Reach};
use crate::ticking::TickingSocket;
use crate::{tls, words};

/// How long TCP, TLS and the first answer of HTTP/2 may take together.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the first answer of a connection is waited for until another connection may be opened beside it.
pub(super) const PROOF_WAIT: Duration = Duration::from_secs(2);
/// Requests given up in a row, without an answer to any other, after which a connection counts as unresponsive. One may be the
/// server's trouble with that request; a peer that does not answer two answers pings only.
const GIVEN_UP_MAX: u32 = 2;

/// How connections are made.
#[derive(Debug, Clone)]
pub struct Dial {
    /// The name of the service, for the log.
    pub provider: &'static str,
    /// The server. It is always spoken to over TLS.
    pub origin: Origin,
    /// The TLS configuration, which has to offer `h2` by ALPN.
    pub tls: Arc<rustls::ClientConfig>,
    /// Which addresses may be connected to.
    pub reach: Arc<dyn Reach>,
    /// How many streams a new connection takes before its first answer.
    pub priming: Priming,
    /// The header fields of answers that are kept, in lower case. All others are checked only.
    pub read_fields: &'static [HeaderName],
}

/// How many streams a new connection takes before its first answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Priming {
    /// One, until an answer has shown that the peer accepts our credential, whatever it granted: so APNs wants it.
    OneStream,
    /// As many as the peer has granted.
    Unprimed,
}

/// The receiving side, to be run as a task; it ends when the sending side is dropped or the peer ends it.
pub(super) type TlsWire = Wire<TlsStream<ReadAheadSocket<TickingSocket>>>;

/// The sending side of a connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) link: Rc<ConnectionState>,
    priming: Priming,
    clock: Clock,
    /// Its place among the connections in use, for their pool.
    pub(super) place: Cell<usize>,
    /// True once an answer has shown that the peer accepts our credential here.
    proven: Cell<bool>,
    /// When the stream was taken that may show it.
    tried_at: Cell<Option<Instant>>,
    /// Requests given up since the last answer.
    given_up: Cell<u32>,
}

/// Why there is no connection; in words.
#[derive(Debug, Clone)]
pub(super) enum Http2ConnectFailure {
    /// It would lead where it must not.
    Forbidden(Forbidden),
    /// The peer does not speak HTTP/2.
    NotSpoken(String),
    Unreachable(String),
}

type Connected = Result<(Connection, TlsWire), Http2ConnectFailure>;

// === impl Dial ===

impl Dial {
    /// Makes a connection.
    pub(super) async fn connect(&self, clock: Clock) -> Connected {
        let connecting = tokio::time::timeout(CONNECT_TIMEOUT, self.connect_unhurried(clock)).await;
        let late = || format!("{} did not complete a connection within 10 s", self.origin);
        connecting.unwrap_or_else(|_| Err(Http2ConnectFailure::Unreachable(words::plain(&late()))))
    }

    async fn connect_unhurried(&self, clock: Clock) -> Connected {
        let Origin { host, port, .. } = &self.origin;
        let connecting = tcp::connect(host, *port, &*self.reach, tcp::UNACKNOWLEDGED_MAX).await;
        let stream = connecting.map_err(|error| match error {
            tcp::ConnectError::Forbidden(forbidden) => Http2ConnectFailure::Forbidden(forbidden),
            tcp::ConnectError::Failed(message) => self.failed(&message),
        })?;
        let stream = ReadAheadSocket::new(TickingSocket::new(stream, clock));
        let shaken = tls::shake_hands(&self.tls, host, stream).await;
        let stream = shaken.map_err(|error| self.failed(&tls::explain(&error)))?;
        // Without the peer's word by ALPN HTTP/2 must not be spoken (RFC 9113, section 3.2).
        if stream.get_ref().1.alpn_protocol() != Some(b"h2") {
            return Err(Http2ConnectFailure::NotSpoken(self.not_spoken()));
        }
        let mut wire = Wire::new(self.provider, self.read_fields, stream, clock);
        // With TLS 1.3 a peer that refuses our certificate, and a proxy without a server, say so only now. A request would be
        // in doubt then. And the peer's first frame, SETTINGS, is in front of its answer: what it grants is known then.
        let greeted = wire.greet().await;
        greeted.map_err(|why| self.failed(&format!("it was closed at once: {why}")))?;
        // Otherwise one would be made after the other, without a pause between.
        if !wire.link.session.borrow().takes_requests() {
            return Err(self.failed("it goes away at once"));
        }
        Ok((Connection::new(&wire, self.priming), wire))
    }

    fn failed(&self, message: &str) -> Http2ConnectFailure {
        let words = format!("cannot connect to {}: {message}", self.origin);
        Http2ConnectFailure::Unreachable(words::plain(&words))
    }

    pub(super) fn not_spoken(&self) -> String {
        words::plain(&format!("{} does not speak HTTP/2", self.origin))
    }
}

// === impl Http2ConnectFailure ===

impl Http2ConnectFailure {
    /// True if another try would be told the same.
    pub(super) const fn is_final(&self) -> bool {
        !matches!(self, Self::Unreachable(_))
    }
}

impl<Refusal> From<Http2ConnectFailure> for Unsent<Refusal> {
    fn from(failure: Http2ConnectFailure) -> Self {
        match failure {
            Http2ConnectFailure::Forbidden(forbidden) => Self::Forbidden(forbidden),
            Http2ConnectFailure::NotSpoken(words) => Self::NotSpoken(words),
            Http2ConnectFailure::Unreachable(words) => Self::Unreachable(words),
        }
    }
}

// === impl Connection ===

impl Connection {
    pub(super) fn new<Socket>(wire: &Wire<Socket>, priming: Priming) -> Self {
        Self {
            link: Rc::clone(&wire.link),
            priming,
            clock: wire.clock,
            place: Cell::new(0),
            proven: Cell::new(false),
            tried_at: Cell::new(None),
            given_up: Cell::new(0),
        }
    }

    /// Streams that may be opened now.
    pub(super) fn free_streams(&self) -> usize {
        let granted = self.link.session.borrow().streams_max();
        let usable = if self.is_settled() { granted } else { granted.min(1) };
        // The peer may have withdrawn streams that are in use: then more are taken than it grants.
        usable.saturating_sub(self.link.in_flight.get())
    }

    /// Streams that the peer grants in all.
    pub(super) fn streams_granted(&self) -> usize {
        self.link.session.borrow().streams_max()
    }

    /// True if another request may ever be sent.
    pub(super) fn takes_requests(&self) -> bool {
        self.link.session.borrow().takes_requests()
    }

    /// True if its first answer has been awaited for less than [`PROOF_WAIT`]: it will take more requests then. Not longer, since a request may hang for as long as an attempt may.
    pub(super) fn is_being_proven(&self) -> bool {
        // The clock is read last: a pool asks dozens of connections at a time.
        let tried_at = self.tried_at.get().filter(|_| !self.is_settled());
        tried_at.is_some_and(|at| self.clock.monotonic() - at < PROOF_WAIT)
    }

    /// True if it takes as much as it ever will: the peer has granted its streams before the first request.
    pub(super) fn is_settled(&self) -> bool {
        self.proven.get() || self.priming == Priming::Unprimed
    }

    /// True if the peer answers no requests, even if it answers pings.
    pub(super) fn is_unresponsive(&self) -> bool {
        self.given_up.get() >= GIVEN_UP_MAX
    }

    /// Takes one of the free streams.
    pub(super) fn take_stream(&self) {
        self.link.in_flight.set(self.link.in_flight.get() + 1);
        if !self.is_settled() {
            self.tried_at.set(Some(self.clock.monotonic()));
        }
    }

    /// Gives it back; the request that is under way on it, if one is, is given up.
    pub(super) fn give_back(&self, under_way: Option<u32>) {
        if let Some(stream) = under_way {
            self.link.act(|session| session.cancel(stream));
            self.given_up.set(self.given_up.get() + 1);
        }
        self.link.in_flight.set(self.link.in_flight.get().saturating_sub(1));
    }

    /// Learns from the outcome of a request: its status, if it was answered. Also a reset is one: a peer that resets a stream is responsive.
    pub(super) fn note(&self, status: Option<u16>) {
        self.given_up.set(0);
        // 403 is how APNs refuses a token or a certificate.
        if status.is_some_and(|status| status != StatusCode::FORBIDDEN) {
            self.proven.set(true);
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.link.act(Http2Session::finish);
    }
}
