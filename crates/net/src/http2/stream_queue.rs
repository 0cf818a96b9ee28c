//! Requests that wait for streams, in the order of priority, then of arrival: those of one caller, or one with a future.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::mem;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use notification::Priority;
use tokio::sync::futures::Notified;
use tokio::time::{Instant, Timeout, timeout_at};

use super::connection::PROOF_WAIT;
use super::pool::{Http2Pool, Line};
use super::stream::Http2Stream;
use crate::connect::ConnectFailure;
use crate::exchange::{Failure, Permit, Reply, Unsent};
use crate::request_head::RequestHead;

/// How long a request waits for a stream. Leaves half of an attempt's time for the answer.
pub(super) const STREAM_WAIT: Duration = Duration::from_secs(15);
/// How often a request that was certainly not processed is sent again within its attempt.
const TRIES_MAX: u8 = 3;

/// Requests of one caller that wait for streams of a pool, in the order in which they came: each an item, without a future. Turns are
/// by caller, however many requests each has; in a turn a caller has all streams that are free.
#[derive(Debug)]
pub struct StreamQueue<'a, Item> {
    pool: &'a Http2Pool,
    priority: Priority,
    line: &'a Line,
    /// Items, and since when they wait.
    waiting: VecDeque<(Item, Instant)>,
    /// True while it is their turn.
    is_turn: bool,
    /// The wait for a turn; for a while, since the first answer of a connection may not come.
    turn: Option<Pin<Box<Timeout<Notified<'a>>>>>,
}

// === impl Http2Pool ===

impl Http2Pool {
    /// Sends a request with `head` and `payload` when it is its turn, and waits for the answer; the stream says over which
    /// connection. A request that was certainly not processed is sent again, a few times. `since` is when it was sent before, if it
    /// was: the waits for a stream count from its first byte on, since the attempt must not end in the last one, in doubt, when it is
    /// certain that it was not processed.
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
        let mut queue = StreamQueue::new(self, permit.priority());
        // All waits of one request count from the first one on.
        let (mut waiting_since, mut tries) = (since, 0);
        loop {
            tries += 1;
            let now = || self.shared.clock.monotonic();
            let stream = if let Some(stream) = queue.take() {
                stream
            } else {
                queue.push((), *waiting_since.get_or_insert_with(now));
                poll_fn(|context| queue.poll_next(context)).await.2?
            };
            // Before it is begun: what cannot be written must not be marked as sent.
            if !head.is_writable() {
                return Err(Unsent::Unwritable.into());
            }
            permit.begin().await.map_err(Unsent::Withheld)?;
            // Behind the permit: it may wait for a commit, and that is no time of the server's.
            let sent_at = now();
            let outcomes = Rc::default();
            let begun = stream.begun(head, payload, (&outcomes, 0));
            let mut stream = begun.ok_or(Unsent::Unwritable)?;
            match stream.conclude(outcomes.next().await, head, sent_at) {
                Err(Failure::Unsent(Unsent::Declined(_))) if tries < TRIES_MAX => {
                    waiting_since.get_or_insert(sent_at);
                }
                concluded => {
                    let mut reply = concluded?.reply;
                    reply.timing.waited =
                        waiting_since.map_or(Duration::ZERO, |since| sent_at - since);
                    return Ok((reply, stream));
                }
            }
        }
    }
}

// === impl StreamQueue ===

impl<'a, Item> StreamQueue<'a, Item> {
    /// A queue for requests of `priority`, in which none waits.
    pub fn new(pool: &'a Http2Pool, priority: Priority) -> Self {
        Self {
            pool,
            priority,
            line: pool.shared.lines.of(priority),
            waiting: VecDeque::new(),
            is_turn: false,
            turn: None,
        }
    }

    /// True if no request waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Since when the first one waits.
    pub fn oldest(&self) -> Option<Instant> {
        self.waiting.front().map(|(_, since)| *since)
    }

    /// A stream for a request that does not wait: where more are free than requests wait that go before it. So a request that waited
    /// once does not make all later ones wait as well.
    pub fn take(&self) -> Option<Http2Stream> {
        Http2Stream::take(&self.pool.shared, self.pool.shared.lines.before(self.priority))
    }

    /// Has a request wait, `since` now.
    pub fn push(&mut self, item: Item, since: Instant) {
        if self.is_empty() {
            // What an earlier connect found out is not told to requests that wait for a later one.
            self.pool.shared.failure.borrow_mut().take_if(|failure| failure.is_final());
        }
        self.waiting.push_back((item, since));
        self.line.length.set(self.line.length.get() + 1);
    }

    /// The first request, since when it waits, and its stream, or why it has none. To be polled until it is pending.
    pub fn poll_next<Refusal>(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<(Item, Instant, Result<Http2Stream, Unsent<Refusal>>)> {
        let Some(since) = self.oldest() else { return Poll::Pending };
        let found = ready!(self.poll_stream(since, context));
        // What it was told, if anything, is passed on.
        self.turn = None;
        let Some((item, since)) = self.waiting.pop_front() else { return Poll::Pending };
        self.line.length.set(self.line.length.get() - 1);
        if self.is_empty() && found.is_ok() {
            self.is_turn = false;
            self.pool.shared.wake();
            // Others may wait behind it for streams that are too few.
            self.pool.grow();
        }
        Poll::Ready((item, since, found))
    }

    /// Waits for a stream for the first one, which waits `since` then.
    fn poll_stream<Refusal>(
        &mut self,
        since: Instant,
        context: &mut Context<'_>,
    ) -> Poll<Result<Http2Stream, Unsent<Refusal>>> {
        let shared = &self.pool.shared;
        loop {
            if mem::take(&mut self.is_turn) {
                // Behind those that are more urgent.
                let before = shared.lines.before(self.priority) - self.line.length.get();
                if let Some(stream) = Http2Stream::take(shared, before) {
                    self.is_turn = true;
                    return Poll::Ready(Ok(stream));
                }
                shared.wake();
            }
            // Before it waits: one that was woken looks for a stream first.
            let failure = shared.failure.borrow().clone();
            if self.turn.is_none()
                && let Some(failure) = failure.filter(ConnectFailure::is_final)
            {
                return Poll::Ready(Err(failure.into()));
            }
            let (now, until) = (shared.clock.monotonic(), since + STREAM_WAIT);
            let line = self.line;
            let turn = self.turn.get_or_insert_with(|| {
                Box::pin(timeout_at(until.min(now + PROOF_WAIT), line.turn.notified()))
            });
            let Poll::Ready(woken) = turn.as_mut().poll(context) else {
                // More may wait than did when it was asked last.
                self.pool.grow();
                return Poll::Pending;
            };
            self.turn = None;
            if woken.is_err() && until <= now {
                return Poll::Ready(Err(shared.no_stream()));
            }
            self.is_turn = woken.is_ok();
        }
    }
}

impl<Item> Drop for StreamQueue<'_, Item> {
    /// The turn passes on.
    fn drop(&mut self) {
        self.line.length.set(self.line.length.get() - self.waiting.len());
        self.pool.shared.wake();
    }
}
