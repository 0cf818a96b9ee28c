//! The requests of one caller that wait for streams.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use notification::Priority;
use tokio::time::Instant;

use super::pool::{Http2Pool, Queued};
use super::stream::Http2Stream;
use crate::exchange::Unsent;

/// Requests of one caller that wait for streams of a pool, in the order in which they came: each an item, without a future. Turns are
/// by caller, however many requests each has; in a turn a caller has all streams that are free.
pub struct StreamQueue<'a, Item, Refusal> {
    pool: &'a Http2Pool,
    priority: Priority,
    queued: Queued<'a>,
    /// Items, and since when they wait.
    waiting: VecDeque<(Item, Instant)>,
    /// True if some have come since the pool was last asked for another connection.
    has_more: bool,
    /// True while it is their turn.
    is_turn: bool,
    /// The wait for a turn.
    turn: Option<Pin<Box<dyn Future<Output = StreamOr<Refusal>> + 'a>>>,
    /// Why none of those that wait gets a stream, if that is so.
    refusal: Option<Unsent<Refusal>>,
}

/// A stream, or why there is none.
type StreamOr<Refusal> = Result<Http2Stream, Unsent<Refusal>>;

// === impl StreamQueue ===

impl<'a, Item, Refusal: Clone + 'a> StreamQueue<'a, Item, Refusal> {
    /// A queue for requests of `priority`, in which none waits.
    pub fn new(pool: &'a Http2Pool, priority: Priority) -> Self {
        Self {
            pool,
            priority,
            queued: pool.queued(priority),
            waiting: VecDeque::new(),
            has_more: false,
            is_turn: false,
            turn: None,
            refusal: None,
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

    /// A stream for a request that does not wait: where more are free than requests wait that go before it.
    pub fn take(&self) -> Option<Http2Stream> {
        self.pool.take_in_turn(self.priority)
    }

    /// Has a request wait, `since` now.
    pub fn push(&mut self, item: Item, since: Instant) {
        self.waiting.push_back((item, since));
        self.queued.set(self.waiting.len());
        self.has_more = true;
    }

    /// The first request, since when it waits, and its stream, or why it has none. To be polled until it is pending.
    pub fn poll_next(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<(Item, Instant, StreamOr<Refusal>)> {
        let Some(since) = self.oldest() else {
            self.refusal = None;
            return Poll::Pending;
        };
        let at_once = if self.is_turn { self.pool.take_free(self.priority) } else { None };
        let found = match (&self.refusal, at_once) {
            (Some(refusal), _) => Err(refusal.clone()),
            (None, Some(stream)) => Ok(stream),
            (None, None) => ready!(self.poll_turn(since, context)),
        };
        // Another connection would be told the same.
        if let Err(refusal @ (Unsent::Forbidden(_) | Unsent::NotSpoken(_))) = &found {
            self.refusal = Some(refusal.clone());
        }
        let Some((item, since)) = self.waiting.pop_front() else { return Poll::Pending };
        self.queued.set(self.waiting.len());
        self.is_turn = found.is_ok() && !self.waiting.is_empty();
        if !self.is_turn {
            self.pool.pass_turn();
        }
        Poll::Ready((item, since, found))
    }

    /// Waits until it is the turn of the first one, which waits `since` then.
    fn poll_turn(&mut self, since: Instant, context: &mut Context<'_>) -> Poll<StreamOr<Refusal>> {
        if mem::take(&mut self.is_turn) {
            self.pool.pass_turn();
        }
        if mem::take(&mut self.has_more) {
            self.pool.grow();
        }
        let (pool, priority) = (self.pool, self.priority);
        let turn = self.turn.get_or_insert_with(|| Box::pin(pool.turn(priority, since)));
        let found = turn.as_mut().poll(context);
        if found.is_ready() {
            self.turn = None;
        }
        found
    }
}

impl<Item, Refusal> fmt::Debug for StreamQueue<'_, Item, Refusal> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("StreamQueue");
        shown.field("priority", &self.priority).field("waiting", &self.waiting.len());
        shown.finish_non_exhaustive()
    }
}
