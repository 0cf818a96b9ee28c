//! The outcomes of requests, one for each, where they are waited for.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Context, Poll, Waker};

use super::answer::{IncomingReply, NoReply};

/// Collects the outcomes of requests that were begun with it ([`Http2Stream::begun`](super::Http2Stream::begun)), in the order in which
/// they come. One task reads them, so a thousand requests cost one waker.
#[derive(Debug, Default)]
pub struct RequestOutcomes {
    arrived: RefCell<VecDeque<(u16, RequestOutcome)>>,
    waker: RefCell<Option<Waker>>,
}

/// The outcome of a request, for [`Http2Stream::conclude`](super::Http2Stream::conclude). Small, since a thousand may wait to be read.
#[derive(Debug)]
pub struct RequestOutcome(pub(super) Result<Box<IncomingReply>, Box<NoReply>>);

// === impl RequestOutcomes ===

impl RequestOutcomes {
    /// The next outcome that is there, with the key of its request.
    pub fn take(&self) -> Option<(u16, RequestOutcome)> {
        self.arrived.borrow_mut().pop_front()
    }

    /// Has the task of `context` woken by the next outcome. Those that are there are to be taken first.
    pub fn wake_by(&self, context: &Context<'_>) {
        let mut waker = self.waker.borrow_mut();
        waker.get_or_insert_with(|| context.waker().clone()).clone_from(context.waker());
    }

    /// Waits for the next outcome, with the key of its request.
    pub async fn next(&self) -> (u16, RequestOutcome) {
        poll_fn(|context| {
            self.wake_by(context);
            self.take().map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    pub(super) fn put(&self, key: u16, outcome: RequestOutcome) {
        self.arrived.borrow_mut().push_back((key, outcome));
        // Until it has read them all once is enough.
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}
