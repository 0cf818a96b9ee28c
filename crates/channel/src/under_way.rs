//! The attempts of a job that are under way: each reports once, ends when its time is up, and a panic costs it alone.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use flow::{Clock, Pass};
use futures_util::future::CatchUnwind;
use futures_util::stream::{FuturesUnordered, Stream};
use futures_util::{FutureExt as _, StreamExt as _};
use notification::{Report, Verdict};
use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep};

use crate::{Attempt, Job};

/// Attempts under way: a stream of their reports, in the order in which they end. All have the same time, so one timer is enough.
#[derive(Debug)]
pub(crate) struct UnderWay<'a, 'job, Attempting> {
    attempts: FuturesUnordered<OneAttempt<'a, 'job, Attempting>>,
    timeout: Duration,
    clock: Clock,
    /// The time of this turn of the thread, once it was read.
    now: Option<Instant>,
    /// When to look for those whose time is up.
    expiry: Pin<Box<Sleep>>,
}

pin_project! {
    /// An attempt, whole: a future of its delivery's index and report. Thousands are under way at a time and go through the
    /// processor's cache again and again, so it is small.
    #[derive(Debug)]
    struct OneAttempt<'a, 'job, Attempting> {
        #[pin]
        attempt: CatchUnwind<AssertUnwindSafe<Attempting>>,
        job: &'a Job<'job>,
        index: u16,
        pass: Option<Pass>,
        deadline: Instant,
        is_over_time: bool,
        waker: Option<Waker>,
    }
}

// === impl UnderWay ===

impl<'a, 'job, Attempting: Future<Output = Attempt>> UnderWay<'a, 'job, Attempting> {
    /// None yet; each may take `timeout`.
    pub(crate) fn new(timeout: Duration, clock: Clock) -> Self {
        let expiry = Box::pin(tokio::time::sleep_until(clock.monotonic() + timeout));
        Self { attempts: FuturesUnordered::new(), timeout, clock, now: None, expiry }
    }

    /// Begins the attempt of delivery `index`, which holds `pass`.
    pub(crate) fn push(&mut self, job: &'a Job<'job>, index: u16, pass: Pass, attempt: Attempting) {
        let deadline = *self.now.get_or_insert_with(|| self.clock.monotonic()) + self.timeout;
        let attempt = AssertUnwindSafe(attempt).catch_unwind();
        let (pass, is_over_time, waker) = (Some(pass), false, None);
        let attempt = OneAttempt { attempt, job, index, pass, deadline, is_over_time, waker };
        self.attempts.push(attempt);
    }

    /// Has what is pushed from here on begin at another time: the thread did something else.
    pub(crate) const fn end_turn(&mut self) {
        self.now = None;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.attempts.is_empty()
    }

    /// Has those end whose time is up, and looks again when the next one's is.
    fn expire(&mut self) {
        let now = self.clock.monotonic();
        let attempts = Pin::new(&mut self.attempts).iter_pin_mut();
        let deadlines = attempts.filter_map(|attempt| attempt.expire(now));
        // What begins later ends later.
        let next = deadlines.min().unwrap_or(now + self.timeout);
        self.expiry.as_mut().reset(next);
    }
}

impl<Attempting: Future<Output = Attempt>> Stream for UnderWay<'_, '_, Attempting> {
    type Item = (u16, Report);

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            // An answer that came while settle held the loop up still counts, whatever the time is.
            let next = self.attempts.poll_next_unpin(context);
            if next.is_ready() || self.expiry.as_mut().poll(context).is_pending() {
                return next;
            }
            self.expire();
        }
    }
}

// === impl OneAttempt ===

impl<Attempting: Future<Output = Attempt>> OneAttempt<'_, '_, Attempting> {
    /// Has it end when it is polled next, if its time is up at `now`; otherwise gives the time until which it may take.
    fn expire(self: Pin<&mut Self>, now: Instant) -> Option<Instant> {
        let this = self.project();
        if *this.deadline > now {
            return Some(*this.deadline);
        }
        *this.is_over_time = true;
        if let Some(waker) = this.waker.take() {
            waker.wake();
        }
        None
    }
}

impl<Attempting: Future<Output = Attempt>> Future for OneAttempt<'_, '_, Attempting> {
    type Output = (u16, Report);

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let finished = match this.attempt.poll(context) {
            Poll::Ready(Ok(finished)) => finished,
            Poll::Ready(Err(_panic)) => Attempt::lost("the attempt panicked"),
            Poll::Pending if *this.is_over_time => over_time(this.job, *this.index),
            Poll::Pending => {
                if !this.waker.as_ref().is_some_and(|known| known.will_wake(context.waker())) {
                    *this.waker = Some(context.waker().clone());
                }
                return Poll::Pending;
            }
        };
        let at = this.job.clock.recent_wall();
        if let Some(pass) = this.pass.take() {
            if let Some(is_answer) = is_answer(&finished.report) {
                pass.note(is_answer, at);
            }
            pass.finish(finished.signal, finished.timing, at);
        }
        Poll::Ready((*this.index, finished.report))
    }
}

/// Whether the provider answered an attempt, whatever it was; `None` when it was not made.
fn is_answer(report: &Report) -> Option<bool> {
    let Report::Attempted(answer) = report else { return None };
    Some(matches!(answer.verdict, Verdict::Accepted | Verdict::Refused { .. }))
}

/// An attempt that took too long. One that is not begun has waited for its mark, while the store was away: it was not sent, and is
/// not in doubt.
fn over_time(job: &Job<'_>, index: u16) -> Attempt {
    if job.fence.is_some_and(|fence| !fence.is_begun(index)) {
        return Attempt::not_started(Report::HandedBack { after: Duration::ZERO });
    }
    Attempt::lost("no answer in time")
}
