//! The connections of one thread to one origin, and the requests that wait for their streams.
//!
//! A connection is full when all streams that its peer grants are taken. When all connections are full and a request waits,
//! another is opened, one at a time; how many requests a new one takes before its first answer is its
//! [`Priming`](super::Priming).

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::time::Duration;

use bytes::Bytes;
use flow::{Backoff, Clock, Timing};
use notification::Priority;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::answer::NoReply;
use super::connection::{Connection, Dial, Http2ConnectError, PROOF_WAIT, TlsWire};
use super::head::Head;
use super::waiting::{Queue, StreamWaiters};
use crate::exchange::{Failure, Permit, Reply, Unsent};
use crate::guard::Forbidden;
use crate::redact::CredentialHeaders;
use crate::tasks::LocalTasks;
use crate::words;

/// How long a request waits for a stream. Leaves half of an attempt's time for the answer.
const STREAM_WAIT: Duration = Duration::from_secs(15);
/// How often a request that was certainly not processed is sent again within its attempt.
const TRIES_MAX: u8 = 3;

/// Connections to one endpoint.
#[derive(Debug)]
pub struct Pool {
    shared: Rc<PoolState>,
    tasks: LocalTasks,
}

/// A stream that may be used. Dropping it frees the stream.
#[derive(Debug)]
pub struct Stream {
    connection: Rc<Connection>,
    shared: Rc<PoolState>,
}

#[derive(Debug)]
struct PoolState {
    dial: Dial,
    clock: Clock,
    connections_max: usize,
    random: RefCell<fastrand::Rng>,
    connections: RefCell<Vec<Rc<Connection>>>,
    /// None of the connections before this place has a stream to give: of dozens with thousands of streams most are full, and each
    /// request would ask them all.
    first_free: Cell<usize>,
    waiting: StreamWaiters,
    /// The task that connects, while it does.
    connecting: RefCell<Option<AbortHandle>>,
    failures: Cell<u16>,
    /// Not to be dialled before, after failures.
    dial_at: Cell<Option<Instant>>,
    /// The last connect led where it must not.
    forbidden: Cell<Option<Forbidden>>,
    /// Whether the peer speaks HTTP/2, as far as is known.
    is_spoken: Cell<bool>,
    last_failure: RefCell<Option<String>>,
}

/// A request in a queue. Leaving it, served or not, passes the turn on.
#[derive(Debug)]
struct Queued<'a> {
    queue: &'a Queue,
    shared: &'a PoolState,
}

// === impl Pool ===

impl Pool {
    /// A pool without connections, for at most `connections_max`; `seed` is for its random waits between connects.
    pub fn new(dial: Dial, connections_max: usize, clock: Clock, seed: u64) -> Self {
        let shared = PoolState {
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
            forbidden: Cell::new(None),
            is_spoken: Cell::new(true),
            last_failure: RefCell::default(),
        };
        Self { shared: Rc::new(shared), tasks: LocalTasks::default() }
    }

    /// Sends a request with `head` and `payload` when it is its turn, and waits for the answer; the stream says over which
    /// connection. A request that was certainly not processed is sent again, a few times.
    ///
    /// # Errors
    /// Why there is no answer.
    pub async fn exchange<P: Permit>(
        &self,
        permit: P,
        payload: &Bytes,
        head: &impl Head,
    ) -> Result<(Reply, Stream), Failure<P::Refusal>> {
        let mut waiting_since = None;
        for _ in 0..TRIES_MAX {
            let stream = self.stream(permit.priority(), &mut waiting_since).await?;
            // Before it is begun: what cannot be written must not be marked as sent.
            if !head.is_writable() {
                return Err(Unsent::Unwritable.into());
            }
            permit.begin().await.map_err(Unsent::Withheld)?;
            let sent_at = self.shared.clock.monotonic();
            // The connection's task writes the request in the same turn of the thread.
            let answering = stream.connection.exchange(head, payload.clone());
            match answering.await {
                Ok(mut reply) => {
                    reply.timing = Timing {
                        waited: waiting_since.map_or(Duration::ZERO, |since| sent_at - since),
                        on_wire: stream.connection.read_at().saturating_duration_since(sent_at),
                    };
                    if !reply.body.is_empty()
                        && let Some(request) = head.to_request()
                    {
                        CredentialHeaders::of(request.headers()).remove_from(&mut reply.body);
                    }
                    return Ok((reply, stream));
                }
                Err(NoReply::NotProcessed { leave }) => {
                    if leave {
                        stream.leave_connection();
                    }
                    // The waits count from here on: the attempt must not end in the last one, in doubt, when it is certain
                    // that it was not processed.
                    waiting_since.get_or_insert(sent_at);
                }
                Err(NoReply::Http11Required) => {
                    stream.leave_connection();
                    return Err(Unsent::NotSpoken(self.shared.not_spoken()).into());
                }
                Err(NoReply::Lost(words)) => return Err(Failure::Lost(words)),
            }
        }
        let provider = self.shared.dial.provider;
        let message = format!("{provider} refused the stream and did not process it");
        Err(Unsent::Declined(message).into())
    }

    /// Takes a stream, when it is `priority`'s turn. All waits of one request end [`STREAM_WAIT`] after the first, `since`.
    async fn stream<Refusal>(
        &self,
        priority: Priority,
        since: &mut Option<Instant>,
    ) -> Result<Stream, Unsent<Refusal>> {
        // A free stream belongs to a request that came before this one, or is more urgent.
        if self.shared.waiting.none_before(priority)
            && let Some(stream) = self.take()
        {
            return Ok(stream);
        }
        let until = *since.get_or_insert_with(|| self.shared.clock.monotonic()) + STREAM_WAIT;
        // Boxed: every attempt would carry the room for it.
        let found = Box::pin(tokio::time::timeout_at(until, self.wait(priority))).await;
        found.unwrap_or_else(|_| Err(self.shared.no_stream()))
    }

    async fn wait<Refusal>(&self, priority: Priority) -> Result<Stream, Unsent<Refusal>> {
        let queued = Queued::new(self.shared.waiting.queue(priority), &self.shared);
        loop {
            self.grow();
            // It is looked at again whether there are connections enough: the first answer of one may not come.
            if tokio::time::timeout(PROOF_WAIT, queued.queue.turn.notified()).await.is_err() {
                continue;
            }
            if let Some(stream) = self.take() {
                // First, since a connection is opened for requests that wait, and this one waits no more.
                drop(queued);
                self.grow();
                return Ok(stream);
            }
            if let Some(forbidden) = self.shared.forbidden.get() {
                return Err(Unsent::Forbidden(forbidden));
            }
            if !self.shared.is_spoken.get() {
                return Err(Unsent::NotSpoken(self.shared.not_spoken()));
            }
        }
    }

    fn take(&self) -> Option<Stream> {
        let place = self.shared.find_free()?;
        let connection = Rc::clone(self.shared.connections.borrow().get(place)?);
        connection.take_stream();
        Some(Stream { connection, shared: Rc::clone(&self.shared) })
    }

    /// Opens a connection if a request waits and the open ones have no stream for it.
    fn grow(&self) {
        let shared = &self.shared;
        let may_grow = shared.connecting.borrow().is_none() && shared.waiting.is_any() && {
            let connections = shared.connections.borrow();
            connections.len() < shared.connections_max
                // One that will soon have more streams than its one is waited for.
                && connections.iter().all(|one| one.free_streams() == 0 && !one.is_being_proven())
        };
        if !may_grow {
            return;
        }
        // What an earlier connect found out is not told to requests that wait for this one.
        shared.forbidden.set(None);
        shared.is_spoken.set(true);
        shared.connecting.replace(Some(self.tasks.spawn(live(Rc::clone(shared)))));
    }

    /// Closes all connections gracefully.
    pub async fn close(&self) {
        self.shared.connections.borrow_mut().clear();
        // Nothing would close what it makes.
        if let Some(connecting) = self.shared.connecting.take() {
            connecting.abort();
        }
        self.tasks.join().await;
    }
}

/// The life of a connection.
async fn live(shared: Rc<PoolState>) {
    let connected = shared.connect().await;
    shared.connecting.take();
    let Some((connection, wire)) = connected else { return };
    // Not held here: the connection closes gracefully when the pool and its last stream have dropped it.
    let connection = {
        let connection = Rc::new(connection);
        let weak = Rc::downgrade(&connection);
        let mut connections = shared.connections.borrow_mut();
        connection.place.set(connections.len());
        connections.push(connection);
        weak
    };
    shared.wake();
    wire.run(|| {
        // It goes away, or its streams have run out: what is under way goes on.
        if !connection.upgrade().is_some_and(|connection| connection.takes_requests()) {
            shared.leave(&connection);
        }
        // What came may have been SETTINGS that grant more streams, and what left may have made room.
        shared.first_free.set(0);
        shared.wake();
    })
    .await;
}

// === impl PoolState ===

impl PoolState {
    /// Connects, again and again while a request waits.
    async fn connect(&self) -> Option<(Connection, TlsWire)> {
        while self.waiting.is_any() {
            if let Some(at) = self.dial_at.get() {
                tokio::time::sleep_until(at).await;
            }
            match self.dial.connect(self.clock).await {
                Ok(connected) => {
                    self.failures.set(0);
                    self.dial_at.set(None);
                    self.last_failure.replace(None);
                    return Some(connected);
                }
                Err(Http2ConnectError::Forbidden(forbidden)) => {
                    self.forbidden.set(Some(forbidden));
                    self.waiting.wake_all();
                    return None;
                }
                Err(error @ Http2ConnectError::NotHttp2 { .. }) => {
                    if self.dial.reach.is_configured() {
                        tracing::warn!(provider = self.dial.provider, %error, "no connection: it has to offer h2 by ALPN");
                    }
                    // Another try would be told the same.
                    self.is_spoken.set(false);
                    self.waiting.wake_all();
                    return None;
                }
                Err(error) => {
                    let provider = self.dial.provider;
                    if self.dial.reach.is_configured() {
                        tracing::warn!(provider, %error, "no connection");
                    } else {
                        tracing::debug!(provider, %error, "no connection");
                    }
                    let failures = self.failures.get().saturating_add(1);
                    self.failures.set(failures);
                    let delay =
                        Backoff::CONNECT.delay(failures, None, &mut self.random.borrow_mut());
                    self.dial_at.set(Some(self.clock.monotonic() + delay));
                    self.last_failure.replace(Some(words::plain(&error.to_string())));
                }
            }
        }
        None
    }

    /// Takes a connection out of use, if it is not already; requests under way on it go on. Waiting ones look for another.
    /// Says whether it was in use.
    fn leave(&self, connection: &Weak<Connection>) -> bool {
        let mut connections = self.connections.borrow_mut();
        let is_it = |other: &Rc<Connection>| std::ptr::eq(Rc::as_ptr(other), connection.as_ptr());
        let was_in_use = connections.iter().any(is_it);
        if was_in_use {
            connections.retain(|other| !is_it(other));
            for (place, connection) in connections.iter().enumerate() {
                connection.place.set(place);
            }
            self.first_free.set(0);
            self.waiting.wake_all();
        }
        was_in_use
    }

    /// The place of the first connection with a stream to give: when there is less to do, the last ones fall idle and close.
    fn find_free(&self) -> Option<usize> {
        let connections = self.connections.borrow();
        let first = self.first_free.get();
        let behind = connections.get(first..).unwrap_or_default();
        let found = behind.iter().position(|connection| connection.free_streams() > 0);
        let place = found.map(|places| first + places);
        self.first_free.set(place.unwrap_or(connections.len()));
        place
    }

    /// Wakes the request whose turn it is, if there is a stream for it.
    fn wake(&self) {
        if self.waiting.is_any() && self.find_free().is_some() {
            self.waiting.wake_next();
        }
    }

    fn not_spoken(&self) -> String {
        words::plain(&format!("{} does not speak HTTP/2", self.dial.origin))
    }

    fn no_stream<Refusal>(&self) -> Unsent<Refusal> {
        match &*self.last_failure.borrow() {
            Some(failure) if self.connections.borrow().is_empty() => {
                Unsent::Unreachable(failure.clone())
            }
            _ if self.connections.borrow().is_empty() => {
                Unsent::Unreachable("no connection in time".to_owned())
            }
            _ => Unsent::Full,
        }
    }
}

// === impl Stream ===

impl Stream {
    /// Takes the stream's connection out of use. Says whether it was in use.
    pub fn leave_connection(&self) -> bool {
        self.shared.leave(&Rc::downgrade(&self.connection))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.connection.give_stream_back();
        let first_free = &self.shared.first_free;
        first_free.set(first_free.get().min(self.connection.place.get()));
        if self.connection.is_unresponsive() && self.leave_connection() {
            let provider = self.shared.dial.provider;
            tracing::warn!(provider, "a connection answers no requests: it is replaced");
        }
        self.shared.wake();
    }
}

// === impl Queued ===

impl<'a> Queued<'a> {
    fn new(queue: &'a Queue, shared: &'a PoolState) -> Self {
        queue.length.set(queue.length.get() + 1);
        Self { queue, shared }
    }
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        self.queue.length.set(self.queue.length.get().saturating_sub(1));
        self.shared.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::Endpoint;
    use crate::guard::Guard;
    use crate::http2::Priming;
    use crate::tcp::{Anywhere, Reach};
    use crate::tls;
    use std::sync::Arc;

    fn pool(origin: &str, reach: Arc<dyn Reach>) -> Pool {
        let dial = Dial {
            provider: "test",
            origin: Endpoint::parse(origin).unwrap().origin,
            tls: tls::client(None, &[b"h2"], None).unwrap(),
            reach,
            priming: Priming::OneStream,
            read_fields: &[],
        };
        let clock = Clock::starting_at(Duration::ZERO);
        Pool::new(dial, 1, clock, 1)
    }

    #[tokio::test]
    async fn an_origin_that_must_not_be_reached_is_refused_at_once() {
        let pool = pool("https://127.0.0.1:1", Arc::new(Guard::new(Vec::new())));
        let local = tokio::task::LocalSet::new();
        let asked = async {
            let ask = async |priority| {
                let refused = pool.stream::<()>(priority, &mut None).await;
                assert!(matches!(refused, Err(Unsent::Forbidden(_))), "{refused:?}");
            };
            tokio::join!(ask(Priority::Normal), ask(Priority::Bulk));
            ask(Priority::Normal).await;
        };
        local.run_until(asked).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_pool_that_is_closed_waits_for_no_connection_that_may_come() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let silent = format!("https://{}", listener.local_addr().unwrap());
        let local = tokio::task::LocalSet::new();
        for origin in [&*silent, "https://127.0.0.1:1"] {
            let pool = pool(origin, Arc::new(Anywhere));
            let clock = pool.shared.clock;
            let begun = clock.monotonic();
            let waited = || (clock.monotonic() - begun).as_secs();
            let asked = async {
                let nothing = pool.stream::<()>(Priority::Normal, &mut None).await;
                assert!(
                    matches!(nothing, Err(Unsent::Unreachable(_) | Unsent::Full)),
                    "{nothing:?}"
                );
                assert_eq!(waited(), STREAM_WAIT.as_secs());
                pool.close().await;
                assert_eq!(waited(), STREAM_WAIT.as_secs(), "it waited on");
            };
            local.run_until(asked).await;
        }
    }
}
