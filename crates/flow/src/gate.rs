//! A gate in front of one destination: it lets in as many as its [`Limit`] says.
//!
//! Those that wait are woken in the order in which they came. [`Gate::try_enter`] passes them: a place goes to the one that
//! asks for it first, so what frees a place and goes on at once has it again.
//!
//! Lives on one thread: the senders are single-threaded, so it needs no lock. A sender thread has one gate
//! per lane.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::Notify;

use crate::breaker::Breaker;
use crate::limit::{Limit, Sample, Signal, Timing};

/// Admits up to `limit` holders of a [`Pass`]. Cloning gives another handle on the same gate.
#[derive(Debug, Clone)]
pub struct Gate {
    inner: Rc<GateState>,
}

/// Permission for one attempt. Dropping it frees the place and teaches the limit nothing.
#[derive(Debug)]
pub struct Pass {
    inner: Rc<GateState>,
}

#[derive(Debug)]
struct GateState {
    limit: RefCell<Box<dyn Limit>>,
    in_flight: Cell<usize>,
    breaker: Cell<Breaker>,
    /// Hands a wake-up on when the wait that got it is dropped, so none is ever lost.
    freed: Notify,
}

// === impl Gate ===

impl Gate {
    /// A gate governed by `limit`.
    pub fn new(limit: Box<dyn Limit>) -> Self {
        let (limit, breaker) = (RefCell::new(limit), Cell::default());
        let inner = GateState { limit, in_flight: Cell::new(0), breaker, freed: Notify::new() };
        Self { inner: Rc::new(inner) }
    }

    /// Enters if there is a place right now.
    pub fn try_enter(&self) -> Option<Pass> {
        if self.inner.in_flight.get() >= self.inner.limit.borrow().current() {
            return None;
        }
        self.inner.in_flight.set(self.inner.in_flight.get() + 1);
        Some(Pass { inner: Rc::clone(&self.inner) })
    }

    /// Waits for a place. Dropping the future gives up the wait and loses nothing.
    pub async fn enter(&self) -> Pass {
        loop {
            if let Some(pass) = self.try_enter() {
                return pass;
            }
            // A wake-up is a reason to try, not a place: an attempt that did not wait may have entered first.
            self.inner.freed.notified().await;
        }
    }

    /// Whether the destination does not answer, and is being tried: nothing more should be sent to it until that has an end.
    /// `now` is asked for the wall time, and only if it may be so.
    pub fn is_shut(&self, now: impl FnOnce() -> Duration) -> bool {
        let breaker = self.inner.breaker.get();
        self.inner.in_flight.get() > 0 && breaker.is_suspicious() && breaker.is_open(now())
    }

    /// How many hold a pass.
    pub fn in_flight(&self) -> usize {
        self.inner.in_flight.get()
    }

    /// Whether there is no pass and no other handle on this gate.
    pub fn is_idle(&self) -> bool {
        // Each pass holds the state as well, so a count of one excludes both.
        Rc::strong_count(&self.inner) == 1
    }

    /// The limit as of now.
    pub fn limit(&self) -> usize {
        self.inner.limit.borrow().current()
    }
}

// === impl Pass ===

impl Pass {
    /// Says what the attempt came to, at the wall time `at`: see [`Breaker::note`].
    pub fn note(&self, is_answer: bool, at: Duration) {
        let mut breaker = self.inner.breaker.get();
        breaker.note(is_answer, at);
        self.inner.breaker.set(breaker);
    }

    /// Ends the attempt, at the wall time `at`, and lets the limit learn from it.
    pub fn finish(self, signal: Signal, timing: Option<Timing>, at: Duration) {
        // Counted before the pass is dropped: the sample of a lone attempt says 1.
        let sample = Sample { timing, signal, in_flight: self.inner.in_flight.get(), at };
        self.inner.limit.borrow_mut().learn(sample);
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let in_flight = self.inner.in_flight.get().saturating_sub(1);
        self.inner.in_flight.set(in_flight);
        // Two at most: the place that was freed, and one that a risen limit opened.
        let places = self.inner.limit.borrow().current().saturating_sub(in_flight);
        for _ in 0..places.min(2) {
            self.inner.freed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::Fixed;
    use futures_util::FutureExt;

    /// Grows by one with each answer, so that a change of the limit shows.
    #[derive(Debug)]
    struct Growing(usize);

    impl Limit for Growing {
        fn current(&self) -> usize {
            self.0
        }

        fn learn(&mut self, sample: Sample) {
            assert!(sample.in_flight >= 1, "a sample counts itself");
            self.0 += usize::from(sample.signal == Signal::Answered);
        }
    }

    #[test]
    fn no_more_enter_than_the_limit_says() {
        let gate = Gate::new(Box::new(Fixed(2)));
        let first = gate.try_enter().unwrap();
        let _second = gate.try_enter().unwrap();
        assert!(gate.try_enter().is_none());
        assert!(gate.enter().now_or_never().is_none());
        drop(first);
        assert_eq!(gate.in_flight(), 1);
        assert!(gate.enter().now_or_never().is_some());
    }

    #[test]
    fn a_destination_that_does_not_answer_is_tried_by_one_at_a_time() {
        let gate = Gate::new(Box::new(Fixed(100)));
        let later = || Duration::from_hours(1);
        for _ in 0..20 {
            let pass = gate.try_enter().unwrap();
            pass.note(false, Duration::ZERO);
        }
        assert!(!gate.is_shut(later), "nothing is tried");
        let one = gate.try_enter().unwrap();
        assert!(gate.is_shut(later));
        one.note(true, later());
        assert!(!gate.is_shut(later));
    }

    #[test]
    fn a_limit_of_zero_still_lets_one_through() {
        assert!(Gate::new(Box::new(Fixed(0))).try_enter().is_some());
    }

    #[test]
    fn the_limit_learns_from_finished_attempts_and_not_from_dropped_ones() {
        let gate = Gate::new(Box::new(Growing(1)));
        drop(gate.try_enter().unwrap());
        assert_eq!(gate.limit(), 1);
        gate.try_enter().unwrap().finish(Signal::Answered, Some(Timing::default()), Duration::ZERO);
        assert_eq!(gate.limit(), 2);
        gate.try_enter().unwrap().finish(Signal::Dropped, None, Duration::ZERO);
        assert_eq!(gate.limit(), 2);
    }

    #[tokio::test]
    async fn a_wait_that_is_dropped_does_not_swallow_the_place() {
        let gate = Gate::new(Box::new(Fixed(1)));
        let held = gate.try_enter().unwrap();
        assert!(gate.enter().now_or_never().is_none(), "queues and goes away");
        let local = tokio::task::LocalSet::new();
        let waiting = gate.clone();
        let handle = local.spawn_local(async move { waiting.enter().await });
        local
            .run_until(async {
                tokio::task::yield_now().await;
                drop(held);
                drop(handle.await.unwrap());
            })
            .await;
        assert_eq!(gate.in_flight(), 0);
    }
}
