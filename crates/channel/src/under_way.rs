//! The attempts of a job that are under way: each reports once, ends when its time is up, and a panic costs it alone.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use flow::{Pass, Signal};
use futures_util::future::CatchUnwind;
use futures_util::stream::{FuturesUnordered, Stream};
use futures_util::{FutureExt as _, StreamExt as _};
use net::http2::{Http2Stream, RequestOutcome, RequestOutcomes, StreamQueue};
use notification::{Delivery, Report, Verdict};
use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep};

use crate::attempts::{Again, Attempts};
use crate::{Attempt, Job};

/// Attempts under way: a stream of their reports, in the order in which they end. All have the same time, so one timer is enough.
#[derive(Debug)]
pub(crate) struct UnderWay<'a, 'job, All: Attempts<'job>, Make, Attempting> {
    job: &'a Job<'job>,
    all: &'a All,
    /// Makes the future of one that needs a future.
    make: Make,
    /// Those that were begun, by their place in the job, and how many they are.
    begun: Vec<Option<BegunAttempt<All::Begun>>>,
    open: usize,
    outcomes: Rc<RequestOutcomes>,
    /// Those that wait for a stream; `None` where none does.
    queue: Option<StreamQueue<'a, (u16, Pass)>>,
    /// Those that are futures.
    waiting: FuturesUnordered<OneAttempt<'a, 'job, Attempting>>,
    /// Reports of those that ended without an outcome.
    ended: VecDeque<(u16, Report)>,
    timeout: Duration,
    /// When the job began.
    begun_at: Instant,
    /// The time of this turn of the thread, once it was read.
    now: Option<Instant>,
    /// When to look for those whose time is up.
    expiry: Pin<Box<Sleep>>,
}

/// An attempt that waits for its outcome. Small, since hundreds of thousands may be under way.
#[derive(Debug)]
struct BegunAttempt<Begun> {
    begun: Begun,
    pass: Pass,
    /// When it was let in, in microseconds since the job began. A job takes less than a [`LEASE`](notification::limits::LEASE).
    since_us: u32,
    /// When it was sent, likewise.
    sent_us: u32,
}

pin_project! {
    /// An attempt as a future, whole: of its delivery's index and report. Thousands may be under way at a time and go through the
    /// processor's cache again and again, so it is small.
    #[derive(Debug)]
    struct OneAttempt<'a, 'job, Attempting> {
        #[pin]
        attempt: CatchUnwind<AssertUnwindSafe<Attempting>>,
        job: &'a Job<'job>,
        index: u16,
        pass: Option<Pass>,
        // When it was let in.
        since: Instant,
        is_over_time: bool,
        waker: Option<Waker>,
    }
}

// === impl UnderWay ===

impl<'a, 'job, All, Make, Attempting> UnderWay<'a, 'job, All, Make, Attempting>
where
    All: Attempts<'job>,
    Make: Fn(&'job Delivery, Again) -> Attempting,
    Attempting: Future<Output = Attempt>,
{
    /// None yet; each may take `timeout`.
    pub(crate) fn new(job: &'a Job<'job>, all: &'a All, make: Make, timeout: Duration) -> Self {
        let begun_at = job.clock.monotonic();
        // Nothing that begins from here on is over its time before.
        let expiry = Box::pin(tokio::time::sleep_until(begun_at + timeout));
        // What must be sent at most once waits for its mark.
        let pool = if job.fence.is_none() { all.pool() } else { None };
        Self {
            job,
            all,
            make,
            begun: Vec::new(),
            open: 0,
            outcomes: Rc::default(),
            queue: pool.map(|pool| StreamQueue::new(pool, job.priority())),
            waiting: FuturesUnordered::new(),
            ended: VecDeque::new(),
            timeout,
            begun_at,
            now: None,
            expiry,
        }
    }

    /// Begins the attempt of the delivery at `place` of the job, which holds `pass` and may start.
    pub(crate) fn push(&mut self, place: u16, delivery: &'job Delivery, pass: Pass) {
        let now = *self.now.get_or_insert_with(|| self.job.clock.monotonic());
        let Some(queue) = &mut self.queue else {
            return self.begin(place, delivery, None, (pass, now, now));
        };
        match queue.take() {
            Some(stream) => self.begin(place, delivery, Some(stream), (pass, now, now)),
            None => queue.push((place, pass), now),
        }
    }

    /// Begins those for which there are streams by now.
    fn begin_waiting(&mut self, context: &mut Context<'_>) {
        if self.queue.as_ref().is_none_or(StreamQueue::is_empty) {
            return;
        }
        let mut now = None;
        while let Some(queue) = &mut self.queue
            && let Poll::Ready(((place, pass), since, found)) = queue.poll_next(context)
        {
            let Some(delivery) = self.job.deliveries.get(usize::from(place)) else { continue };
            let found = found.map_err(Attempt::from);
            // Asked again: what it was let in for may have passed.
            let may_start = || self.job.may_start(delivery).map_err(Attempt::not_started);
            match found.and_then(|stream| may_start().map(|()| stream)) {
                Ok(stream) => {
                    let now = *now.get_or_insert_with(|| self.job.clock.monotonic());
                    self.begin(place, delivery, Some(stream), (pass, since, now));
                }
                Err(ended) => self.end(delivery, (pass, since), ended),
            }
        }
    }

    /// Begins an attempt `now` that has waited `since` then.
    fn begin(
        &mut self,
        place: u16,
        delivery: &'job Delivery,
        stream: Option<Http2Stream>,
        (pass, since, now): (Pass, Instant, Instant),
    ) {
        let try_at_once = || match &self.job.fence {
            None => self.all.begin(delivery, stream, (&self.outcomes, place)),
            Some(_) => None,
        };
        match catch_unwind(AssertUnwindSafe(try_at_once)) {
            Ok(Some(begun)) => {
                let at = usize::from(place);
                // Once, and no larger: growing leaves holes.
                self.begun.reserve_exact(self.job.deliveries.len() - self.begun.len());
                self.begun.resize_with(self.begun.len().max(at + 1), || None);
                let [since_us, sent_us] = [since, now].map(|at| self.us_of(at));
                if let Some(free) = self.begun.get_mut(at) {
                    *free = Some(BegunAttempt { begun, pass, since_us, sent_us });
                    self.open += 1;
                }
            }
            Ok(None) => {
                let again = Again { since: (since != now).then_some(since), is_refused: false };
                self.wait(delivery, again, (pass, since));
            }
            Err(_panic) => {
                self.end(delivery, (pass, since), Attempt::lost("the attempt panicked"));
            }
        }
    }

    fn us_of(&self, at: Instant) -> u32 {
        u32::try_from((at - self.begun_at).as_micros()).unwrap_or(u32::MAX)
    }

    fn wait(&self, delivery: &'job Delivery, again: Again, (pass, since): (Pass, Instant)) {
        let attempt = AssertUnwindSafe((self.make)(delivery, again)).catch_unwind();
        let (pass, is_over_time, waker) = (Some(pass), false, None);
        let (job, index) = (self.job, delivery.index);
        let attempt = OneAttempt { attempt, job, index, pass, since, is_over_time, waker };
        self.waiting.push(attempt);
    }

    /// Has what is pushed from here on begin at another time: the thread did something else.
    pub(crate) const fn end_turn(&mut self) {
        self.now = None;
    }

    pub(crate) fn is_empty(&self) -> bool {
        let is_any_queued = self.queue.as_ref().is_some_and(|queue| !queue.is_empty());
        self.open == 0 && !is_any_queued && self.waiting.is_empty() && self.ended.is_empty()
    }

    /// The report of one that has ended by now. No task is woken for the next one: between two starts that costs less than a poll.
    pub(crate) fn next_ended(&mut self) -> Option<(u16, Report)> {
        let ended = self.next_concluded();
        if ended.is_some() || self.waiting.is_empty() {
            return ended;
        }
        self.waiting.next().now_or_never().flatten()
    }

    /// The report of one that has ended and was no future.
    fn next_concluded(&mut self) -> Option<(u16, Report)> {
        while self.ended.is_empty() {
            // An answer that came while settle held the loop up still counts, whatever the time is.
            let (place, outcome) = self.outcomes.take()?;
            self.conclude(place, outcome);
        }
        self.ended.pop_front()
    }

    /// Takes the outcome of the attempt at `place`, if that is still under way.
    fn conclude(&mut self, place: u16, outcome: RequestOutcome) {
        let at = usize::from(place);
        let begun = self.begun.get_mut(at).and_then(Option::take);
        let (Some(one), Some(delivery)) = (begun, self.job.deliveries.get(at)) else { return };
        self.open -= 1;
        let BegunAttempt { begun, pass, since_us, sent_us } = one;
        let [since, sent_at] = [since_us, sent_us].map(|us| instant(self.begun_at, us));
        let conclude = || self.all.conclude(delivery, begun, sent_at, outcome);
        match catch_unwind(AssertUnwindSafe(conclude)) {
            Ok(Ok(mut attempt)) => {
                if let Some(timing) = &mut attempt.timing {
                    timing.waited = sent_at - since;
                }
                self.end(delivery, (pass, since), attempt);
            }
            // With the time that is left: to send it again is part of the same attempt, and of its pass.
            Ok(Err(again)) => {
                // Its waits for streams end as late as those of one that waited as a future from the first on.
                let waiting_since = (since != sent_at).then_some(since);
                let again = Again { since: waiting_since.or(again.since), ..again };
                self.wait(delivery, again, (pass, since));
            }
            Err(_panic) => {
                self.end(delivery, (pass, since), Attempt::lost("the attempt panicked"));
            }
        }
    }

    /// Ends an attempt that was let in at `since`.
    fn end(&mut self, delivery: &Delivery, (pass, since): (Pass, Instant), attempt: Attempt) {
        let index = delivery.index;
        self.ended.push_back((index, finish(self.job, (index, since), pass, attempt)));
    }

    /// Has those end whose time is up, and looks again when the next one's is.
    fn expire(&mut self) {
        let now = self.job.clock.monotonic();
        // One that waits for a stream has what is left of its time when it is begun.
        let oldest = self.queue.as_ref().and_then(StreamQueue::oldest);
        let mut next = oldest.unwrap_or(now) + self.timeout;
        for (one, delivery) in self.begun.iter_mut().zip(self.job.deliveries) {
            let Some(begun) = one else { continue };
            let since = instant(self.begun_at, begun.since_us);
            let deadline = since + self.timeout;
            if deadline > now {
                // What begins later ends later.
                next = next.min(deadline);
            } else if let Some(BegunAttempt { pass, .. }) = one.take() {
                self.open -= 1;
                let over = over_time(self.job, delivery.index);
                let place = (delivery.index, since);
                self.ended.push_back((delivery.index, finish(self.job, place, pass, over)));
            }
        }
        let waiting = Pin::new(&mut self.waiting).iter_pin_mut();
        let deadlines = waiting.filter_map(|attempt| attempt.expire(self.timeout, now));
        self.expiry.as_mut().reset(deadlines.fold(next, Instant::min));
    }
}

impl<'job, All, Make, Attempting> Stream for UnderWay<'_, 'job, All, Make, Attempting>
where
    All: Attempts<'job>,
    Make: Fn(&'job Delivery, Again) -> Attempting + Unpin,
    Attempting: Future<Output = Attempt>,
{
    type Item = (u16, Report);

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(ended) = self.next_concluded() {
                return Poll::Ready(Some(ended));
            }
            self.outcomes.wake_by(context);
            self.begin_waiting(context);
            if !self.ended.is_empty() {
                continue;
            }
            match self.waiting.poll_next_unpin(context) {
                Poll::Ready(None) if self.is_empty() => return Poll::Ready(None),
                Poll::Ready(Some(ended)) => return Poll::Ready(Some(ended)),
                Poll::Ready(None) | Poll::Pending => {}
            }
            ready!(self.expiry.as_mut().poll(context));
            self.expire();
        }
    }
}

// === impl OneAttempt ===

impl<Attempting: Future<Output = Attempt>> OneAttempt<'_, '_, Attempting> {
    /// Has it end when it is polled next, if its time, `timeout`, is up at `now`; otherwise gives the time until which it may take.
    fn expire(self: Pin<&mut Self>, timeout: Duration, now: Instant) -> Option<Instant> {
        let this = self.project();
        let deadline = *this.since + timeout;
        if deadline > now {
            return Some(deadline);
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
        let report = match this.pass.take() {
            Some(pass) => finish(this.job, (*this.index, *this.since), pass, finished),
            None => finished.report,
        };
        Poll::Ready((*this.index, report))
    }
}

/// The instant so many microseconds after `begun_at`.
fn instant(begun_at: Instant, us: u32) -> Instant {
    begun_at + Duration::from_micros(us.into())
}

/// Ends an attempt at the delivery at `index`, which was let in at `since`: the gate learns what it says of the destination.
fn finish(job: &Job<'_>, (index, since): (u16, Instant), pass: Pass, attempt: Attempt) -> Report {
    let at = job.clock.recent_wall();
    if let Some(is_answer) = is_answer(&attempt.report) {
        pass.note(is_answer, at);
    }
    job.reports.ended(index, since, &attempt);
    if attempt.signal == Signal::OverRate {
        learn_rate(job, &attempt);
    }
    pass.finish(attempt.signal, attempt.timing, at);
    attempt.report
}

/// Has the quota of the destination learn from a refusal for its rate.
fn learn_rate(job: &Job<'_>, refused: &Attempt) {
    let (Some(quota), Report::Attempted(answer)) = (job.quota, &refused.report) else { return };
    let Verdict::Deferred { after } = answer.verdict else { return };
    let now = job.clock.monotonic();
    let on_wire = refused.timing.map_or(Duration::ZERO, |timing| timing.on_wire);
    let sent_at = now.checked_sub(on_wire).unwrap_or(now);
    quota.refused(now, sent_at, after.unwrap_or_default());
}

/// True if the provider accepted or refused an attempt; `None` when it was not made.
fn is_answer(report: &Report) -> Option<bool> {
    let Report::Attempted(answer) = report else { return None };
    // A deferral counts as none: a destination that defers everything is shut like one that does not answer.
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
