//! Requests that wait for streams, in the order of priority, then of arrival.

use std::collections::VecDeque;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use notification::Priority;
use tokio::sync::futures::Notified;
use tokio::time::{Instant, Timeout, timeout_at};

use super::connection::PROOF_WAIT;
use super::pool::{Http2Pool, Line};
use super::stream::Http2Stream;
use crate::connect::ConnectFailure;
use crate::exchange::Unsent;

/// How long a request waits for a stream. Leaves half of an attempt's time for the answer.
pub(super) const STREAM_WAIT: Duration = Duration::from_secs(15);

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
