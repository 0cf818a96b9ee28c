//! The connections of one thread to one origin, and the requests that wait for their streams.
//!
//! A request waits only while fewer streams are free than requests wait that go before it. When more wait than streams are free,
//! another connection is opened, one at a time; how many requests a new one takes before its first answer is its
//! [`Priming`](super::Priming).

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use flow::Clock;
use notification::Priority;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::connection::{Dial, Http2ConnectFailure, PROOF_WAIT};
use super::head::RequestHead;
use super::pool_state::PoolState;
use super::stream::{Http2Stream, Unanswered};
use super::waiting::Queue;
use crate::exchange::{Failure, Permit, Reply, Unsent};
use crate::tasks::LocalTasks;

/// How long a request waits for a stream. Leaves half of an attempt's time for the answer.
const STREAM_WAIT: Duration = Duration::from_secs(15);
/// How often a request that was certainly not processed is sent again within its attempt.
const TRIES_MAX: u8 = 3;

/// Connections to one endpoint.
#[derive(Debug)]
pub struct Http2Pool {
    shared: Rc<PoolState>,
    tasks: LocalTasks,
}

/// Requests in a queue. When they leave it, served or not, the turn passes on.
#[derive(Debug)]
pub(super) struct Queued<'a> {
    queue: &'a Queue,
    shared: &'a PoolState,
    requests: usize,
}

// === impl Http2Pool ===

impl Http2Pool {
    /// A pool without connections, for at most `connections_max`; `seed` is for its random waits between connects.
    pub fn new(dial: Dial, connections_max: usize, clock: Clock, seed: u64) -> Self {
        let shared = PoolState::new(dial, connections_max, clock, seed);
        Self { shared: Rc::new(shared), tasks: LocalTasks::default() }
    }

    /// Sends a request with `head` and `payload` when it is its turn, and waits for the answer; the stream says over which
    /// connection. A request that was certainly not processed is sent again, a few times. `since` is when it was sent before, if it
    /// was ([`Unanswered::Again`]).
    ///
    /// # Errors
    /// Why there is no answer.
    pub async fn exchange<P: Permit>(
        &self,
        permit: P,
        payload: &Bytes,
        head: &impl RequestHead,
        since: Option<Instant>,
    ) -> Result<(Reply, Http2Stream), Failure<P::Refusal>> {
        let mut waiting_since = since;
        for _ in 0..TRIES_MAX {
            let mut stream = self.stream(permit.priority(), &mut waiting_since).await?;
            // Before it is begun: what cannot be written must not be marked as sent.
            if !head.is_writable() {
                return Err(Unsent::Unwritable.into());
            }
            permit.begin().await.map_err(Unsent::Withheld)?;
            // Behind the permit: it may wait for a commit, and that is no time of the server's.
            let sent_at = self.shared.clock.monotonic();
            let outcomes = Rc::default();
            let outcome = match stream.begin(head, payload.clone(), (&outcomes, 0)) {
                Ok(()) => outcomes.next().await,
                Err(outcome) => outcome,
            };
            match stream.conclude(outcome, head, sent_at) {
                Ok(answer) => {
                    let mut reply = answer.reply;
                    reply.timing.waited =
                        waiting_since.map_or(Duration::ZERO, |since| sent_at - since);
                    return Ok((reply, stream));
                }
                Err(Unanswered::Again { since }) => {
                    waiting_since.get_or_insert(since);
                }
                Err(Unanswered::Failed(failure)) => return Err(failure),
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
    ) -> Result<Http2Stream, Unsent<Refusal>> {
        if let Some(stream) = self.take_in_turn(priority) {
            return Ok(stream);
        }
        let since = *since.get_or_insert_with(|| self.shared.clock.monotonic());
        // In the queue first: `grow` opens a connection only for requests that wait.
        let mut queued = self.queued(priority);
        queued.set(1);
        // Boxed: every attempt would carry the room for it.
        let found = Box::pin(self.turn(priority, since)).await;
        // First, since a connection is opened for requests that wait, and this one waits no more.
        drop(queued);
        if found.is_ok() {
            self.grow();
        }
        found
    }

    /// A stream for the first request of a queue that waits for those of `priority`, and has waited `since` then.
    pub(super) async fn turn<Refusal>(
        &self,
        priority: Priority,
        since: Instant,
    ) -> Result<Http2Stream, Unsent<Refusal>> {
        let found = tokio::time::timeout_at(since + STREAM_WAIT, self.wait(priority)).await;
        found.unwrap_or_else(|_| Err(self.shared.no_stream()))
    }

    async fn wait<Refusal>(&self, priority: Priority) -> Result<Http2Stream, Unsent<Refusal>> {
        let queue = self.shared.waiting.queue(priority);
        loop {
            self.grow();
            // It is looked at again whether there are connections enough: the first answer of one may not come.
            if tokio::time::timeout(PROOF_WAIT, queue.turn.notified()).await.is_err() {
                continue;
            }
            // Without a look at its turn: this request is itself among those that wait, and was woken for it.
            if let Some(stream) = self.shared.find_free().and_then(|place| self.take(place)) {
                return Ok(stream);
            }
            let failure = self.shared.failure.borrow().clone();
            if let Some(failure) = failure.filter(Http2ConnectFailure::is_final) {
                return Err(failure.into());
            }
        }
    }

    /// A place in the queue of `priority`, for no request yet.
    pub(super) fn queued(&self, priority: Priority) -> Queued<'_> {
        let queue = self.shared.waiting.queue(priority);
        Queued { queue, shared: &self.shared, requests: 0 }
    }

    /// Wakes the request whose turn it is, if there is a stream for it.
    pub(super) fn pass_turn(&self) {
        self.shared.wake();
    }

    /// Takes a free stream, unless it belongs to a request that came before this one, or is more urgent.
    pub(super) fn take_in_turn(&self, priority: Priority) -> Option<Http2Stream> {
        self.take(self.shared.find_free_for(priority)?)
    }

    /// Takes a free stream for a request that waits, and whose turn it is among those of `priority`.
    pub(super) fn take_free(&self, priority: Priority) -> Option<Http2Stream> {
        self.take(self.shared.find_free_for_waiting(priority)?)
    }

    fn take(&self, place: usize) -> Option<Http2Stream> {
        let connection = Rc::clone(self.shared.connections.borrow().get(place)?);
        connection.take_stream();
        Some(Http2Stream { connection, shared: Rc::clone(&self.shared), number: None })
    }

    /// Opens a connection if requests wait and the open ones, with those that are being made, have too few streams for them.
    pub(super) fn grow(&self) {
        let shared = &self.shared;
        if !shared.may_grow() {
            return;
        }
        // What an earlier connect found out is not told to requests that wait for this one.
        shared.failure.borrow_mut().take_if(|failure| failure.is_final());
        let connecting = self.tasks.spawn(live(Rc::clone(shared)));
        shared.connecting.borrow_mut().push(connecting);
    }

    /// Closes all connections gracefully.
    pub async fn close(&self) {
        // A connection without its sending side says GOAWAY when the last request on it has ended.
        self.shared.connections.borrow_mut().clear();
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

// === impl Queued ===

impl Queued<'_> {
    /// Has `requests` of them wait.
    pub(super) fn set(&mut self, requests: usize) {
        let length = &self.queue.length;
        length.set((length.get() + requests).saturating_sub(self.requests));
        self.requests = requests;
    }
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        self.set(0);
        self.shared.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::Endpoint;
    use crate::guard::Guard;
    use crate::http2::connection::Connection;
    use crate::http2::driver::Wire;
    use crate::http2::{Priming, StreamQueue};
    use crate::tcp::{Anywhere, Reach};
    use crate::tls;
    use std::future::poll_fn;
    use std::sync::Arc;
    use std::task::{Context, Poll, Waker};

    fn pool(origin: &str, reach: Arc<dyn Reach>) -> Http2Pool {
        pool_of(origin, reach, 1)
    }

    fn pool_of(origin: &str, reach: Arc<dyn Reach>, connections_max: usize) -> Http2Pool {
        let dial = Dial {
            provider: "test",
            origin: Endpoint::parse(origin).unwrap().origin,
            tls: tls::client(None, &[b"h2"], None).unwrap(),
            reach,
            priming: Priming::OneStream,
            read_fields: &[],
        };
        let clock = Clock::starting_at(Duration::ZERO);
        Http2Pool::new(dial, connections_max, clock, 1)
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
            let mut queue = StreamQueue::<u8, ()>::new(&pool, Priority::Normal);
            let now = pool.shared.clock.monotonic();
            queue.push(1, now);
            queue.push(2, now);
            for expect in [1, 2] {
                let (item, _, found) = poll_fn(|context| queue.poll_next(context)).await;
                assert!(matches!(found, Err(Unsent::Forbidden(_))), "{found:?}");
                assert_eq!(item, expect);
                let connecting = pool.shared.connecting.borrow().len();
                assert_eq!(connecting, 0, "to all of them the answer is the same");
            }
            assert!(queue.is_empty());
        };
        local.run_until(asked).await;
    }

    #[tokio::test]
    async fn a_request_waits_behind_others_only_while_streams_are_too_few_for_all() {
        let pool = pool("https://127.0.0.1:1", Arc::new(Anywhere));
        // Each has one stream until the peer says how many.
        let wire = || Wire::new("test", &[], tokio::io::empty(), pool.shared.clock);
        let wires = [wire(), wire(), wire()];
        let connection = |wire| Rc::new(Connection::new(wire, Priming::Unprimed));
        pool.shared.connections.borrow_mut().extend(wires.iter().map(connection));
        let wait = |priority, requests| pool.shared.waiting.queue(priority).length.set(requests);
        let is_free = |priority| pool.shared.find_free_for(priority).is_some();
        wait(Priority::Normal, 2);
        assert!(is_free(Priority::Normal) && is_free(Priority::Bulk));
        wait(Priority::Normal, 3);
        assert!(!is_free(Priority::Normal) && !is_free(Priority::Bulk));
        let urgent = pool.take_in_turn(Priority::Urgent).unwrap();
        wait(Priority::Normal, 1);
        let normal = pool.take_in_turn(Priority::Normal).unwrap();
        assert!(pool.take_in_turn(Priority::Normal).is_none(), "the last is for the other");
        drop((urgent, normal));
    }

    /// The items of `queue` that are given streams now, and their streams.
    fn given(queue: &mut StreamQueue<'_, u8, ()>) -> (Vec<u8>, Vec<Http2Stream>) {
        let mut context = Context::from_waker(Waker::noop());
        std::iter::from_fn(|| match queue.poll_next(&mut context) {
            Poll::Ready((item, _, found)) => Some((item, found.unwrap())),
            Poll::Pending => None,
        })
        .unzip()
    }

    #[tokio::test]
    async fn requests_of_a_caller_have_all_free_streams_in_its_turn() {
        let pool = pool("https://127.0.0.1:1", Arc::new(Anywhere));
        let now = pool.shared.clock.monotonic();
        // Each has one stream until the peer says how many.
        let wires = [(); 3].map(|()| Wire::new("test", &[], tokio::io::empty(), pool.shared.clock));
        let connection = |wire| Rc::new(Connection::new(wire, Priming::Unprimed));
        pool.shared.connections.borrow_mut().extend(wires.iter().map(connection));
        let queue = |priority| {
            let mut queue = StreamQueue::<u8, ()>::new(&pool, priority);
            queue.push(1, now);
            queue.push(2, now);
            queue
        };
        let taken = [(); 3].map(|()| pool.take_in_turn(Priority::Normal).unwrap());
        let mut queues = [(); 2].map(|()| queue(Priority::Normal));
        for queue in &mut queues {
            assert!(given(queue).0.is_empty());
        }
        let [mut first, mut second] = queues;
        let [stream, other, another] = taken;
        drop(stream);
        let (items, of_first) = given(&mut first);
        assert_eq!(items, [1]);
        drop((other, another));
        let (items, of_second) = given(&mut second);
        assert_eq!(items, [1, 2], "both streams that are free");
        assert!(given(&mut first).0.is_empty());
        let mut urgent = queue(Priority::Urgent);
        assert!(given(&mut urgent).0.is_empty());
        drop((of_first, of_second));
        assert_eq!(given(&mut urgent).0, [1, 2]);
        assert_eq!(given(&mut first).0, [2], "a turn is passed on");
        assert!(!pool.shared.waiting.is_any());
    }

    #[tokio::test(start_paused = true)]
    async fn each_request_of_a_caller_waits_for_its_own_time() {
        let pool = pool("https://127.0.0.1:1", Arc::new(Anywhere));
        let clock = pool.shared.clock;
        let mut queue = StreamQueue::<u8, ()>::new(&pool, Priority::Normal);
        let begun = clock.monotonic();
        queue.push(1, begun);
        queue.push(2, begun + Duration::from_secs(1));
        let local = tokio::task::LocalSet::new();
        let asked = async {
            for item in [1, 2] {
                let (of, _, found) = poll_fn(|context| queue.poll_next(context)).await;
                assert!(matches!(found, Err(Unsent::Unreachable(_))), "{found:?}");
                let waited = (clock.monotonic() - begun).as_secs();
                assert_eq!((of, waited), (item, STREAM_WAIT.as_secs() + u64::from(item) - 1));
            }
        };
        local.run_until(asked).await;
        assert!(queue.is_empty() && !pool.shared.waiting.is_any());
    }

    #[tokio::test]
    async fn connections_that_are_opened_double_while_there_are_requests_for_them() {
        let pool = pool_of("https://127.0.0.1:1", Arc::new(Anywhere), 8);
        let state = &*pool.shared;
        let local = tokio::task::LocalSet::new();
        let opened = |settled: usize, requests: usize| {
            let wires: Vec<_> = (0..settled)
                .map(|_| Wire::new("test", &[], tokio::io::empty(), state.clock))
                .collect();
            let full = |wire| {
                let connection = Rc::new(Connection::new(wire, Priming::Unprimed));
                connection.take_stream();
                connection
            };
            state.connections.replace(wires.iter().map(full).collect());
            state.waiting.queue(Priority::Normal).length.set(requests);
            while state.may_grow() {
                let connecting = tokio::task::spawn_local(std::future::pending::<()>());
                state.connecting.borrow_mut().push(connecting.abort_handle());
            }
            state.connecting.take().len()
        };
        let counted = async {
            let check = |settled, requests, expect| {
                assert_eq!(opened(settled, requests), expect, "{settled} and {requests}");
            };
            check(0, 0, 0);
            // An origin that has not answered yet.
            check(0, 100, 1);
            check(1, 100, 1);
            check(2, 100, 2);
            check(3, 100, 3);
            // As many as there are streams to be needed, of one a connection.
            check(4, 2, 2);
            // `connections_max`.
            check(6, 100, 2);
            check(8, 100, 0);
        };
        local.run_until(counted).await;
        state.connections.take();
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
