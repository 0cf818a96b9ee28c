//! A gate in front of one destination: it admits as many attempts as its [`Limit`] allows.
//!
//! Attempts belong to *groups*. While several groups wait, a place goes to the one with the fewest places, and of those with as
//! many to the one that got or freed one longest ago: each has an equal part, and a group with few attempts does not wait behind
//! one with many. Within a group, waits are woken in the order in which they began. [`Gate::try_enter`] passes them: a place goes
//! to the first caller, so an attempt that frees a place and continues at once has it again. Of a limit of 64 or more, a
//! sixty-fourth is for groups with fewer places than that: they do not wait while one group has all other places.
//!
//! Lives on one thread: the senders are single-threaded, so it needs no lock. A sender thread has one gate
//! per channel, destination and priority, with a group for each lane.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::Notify;

use crate::breaker::{Breaker, TRIES};
use crate::limit::{Limit, Sample, Signal, Timing};

/// Admits up to `limit` holders of a [`Pass`]. Cloning gives another handle on the same gate, for the same group.
#[derive(Debug, Clone)]
pub struct Gate {
    group: Rc<GateGroup>,
}

/// Permission for one attempt. Dropping it frees the place and teaches the limit nothing.
#[derive(Debug)]
pub struct Pass {
    group: Rc<GateGroup>,
}

/// A group of attempts that take turns with other groups at the gate.
#[derive(Debug)]
struct GateGroup {
    gate: Rc<GateState>,
    in_flight: Cell<usize>,
    /// The number of the event by which it last got or freed a place.
    served: Cell<u64>,
    /// Number of waits in the group.
    waiting: Cell<usize>,
    /// Rank in [`GateState::waiting`] while the group waits.
    listed_as: Cell<Rank>,
    /// Hands a wake-up on when the wait that got it is dropped, so none is ever lost.
    freed: Notify,
}

/// Order of turns, least first: places held, and the event by which the group last got or freed one.
type Rank = (usize, u64);

#[derive(Debug)]
struct GateState {
    limit: RefCell<Box<dyn Limit>>,
    /// Running mean of the latency on the wire.
    latency: Cell<Option<Duration>>,
    in_flight: Cell<usize>,
    /// Places got and freed, and groups made.
    events: Cell<u64>,
    breaker: Cell<Breaker>,
    /// The groups that wait, by rank. A group that waits alone may be listed with an older rank. A vector, so that a group which
    /// is listed again and again costs no allocation.
    waiting: RefCell<Vec<Rc<GateGroup>>>,
}

/// Share of the places that is for groups with few: one in 64. A smaller limit has none to spare.
const RESERVE_DIVISOR: usize = 64;

/// A wait of a group. When it ends, another one may have the place that it was woken for.
struct Wait<'a>(&'a Rc<GateGroup>);

// === impl Gate ===

impl Gate {
    /// A gate governed by `limit`.
    pub fn new(limit: Box<dyn Limit>) -> Self {
        let gate = GateState {
            limit: RefCell::new(limit),
            latency: Cell::new(None),
            in_flight: Cell::new(0),
            events: Cell::new(0),
            breaker: Cell::default(),
            waiting: RefCell::default(),
        };
        Self { group: GateGroup::of(Rc::new(gate)) }
    }

    /// A handle on the same gate for another group.
    #[must_use]
    pub fn for_another_group(&self) -> Self {
        Self { group: GateGroup::of(Rc::clone(&self.group.gate)) }
    }

    /// Enters if there is a place right now for the group, and it is not another group's turn.
    pub fn try_enter(&self) -> Option<Pass> {
        let (group, gate) = (&self.group, &self.group.gate);
        if !gate.has_place_for(group) || gate.prefers_another_to(group) {
            return None;
        }
        gate.in_flight.set(gate.in_flight.get() + 1);
        group.set_in_flight(group.in_flight.get() + 1);
        Some(Pass { group: Rc::clone(group) })
    }

    /// Waits for a place. Dropping the future gives up the wait and loses nothing.
    pub async fn enter(&self) -> Pass {
        if let Some(pass) = self.try_enter() {
            return pass;
        }
        // Ends after the look for a place, so that a further place is offered to the next.
        let wait = Wait::begin(&self.group);
        loop {
            if let Some(pass) = self.try_enter() {
                drop(wait);
                return pass;
            }
            // If there is a place, it is another group's.
            self.group.gate.offer_place();
            // A wake-up is a reason to try, not a place: an attempt that did not wait may have entered first.
            self.group.freed.notified().await;
        }
    }

    /// True if no attempt should be sent now: the destination does not answer, and others than the holder of `own` try it. False
    /// for a destination that does not answer counts as a try. `now` (wall time) is called only when the breaker may be open.
    pub fn is_shut(&self, own: Option<&Pass>, now: impl FnOnce() -> Duration) -> bool {
        let (gate, own) = (&self.group.gate, usize::from(own.is_some()));
        let (in_flight, mut breaker) = (gate.in_flight.get() - own, gate.breaker.get());
        let is_tried = in_flight > 0 && breaker.is_suspicious();
        // With fewer places than tries it is shut once they are taken: each may hang until its time is over.
        let is_shut = is_tried && breaker.shuts_out(now(), in_flight >= TRIES.min(gate.limit()));
        gate.breaker.set(breaker);
        is_shut
    }

    /// Number of passes held, of all groups.
    pub fn in_flight(&self) -> usize {
        self.group.gate.in_flight.get()
    }

    /// True if the group has no pass and no other handle.
    pub fn is_idle(&self) -> bool {
        // Each pass holds the group as well, so a count of one excludes both.
        Rc::strong_count(&self.group) == 1
    }

    /// True if the gate has another group.
    pub fn has_other_groups(&self) -> bool {
        Rc::strong_count(&self.group.gate) > 1
    }

    /// The limit as of now.
    pub fn limit(&self) -> usize {
        self.group.gate.limit()
    }

    /// Running mean of the latency on the wire, in which the last 32 answers count for two thirds; `None` before the first.
    pub fn latency(&self) -> Option<Duration> {
        self.group.gate.latency.get()
    }
}

// === impl GateGroup ===

impl GateGroup {
    fn of(gate: Rc<GateState>) -> Rc<Self> {
        let served = Cell::new(gate.next_event());
        Rc::new(Self {
            gate,
            in_flight: Cell::new(0),
            served,
            waiting: Cell::new(0),
            listed_as: Cell::default(),
            freed: Notify::new(),
        })
    }

    fn rank(&self) -> Rank {
        (self.in_flight.get(), self.served.get())
    }

    fn set_in_flight(&self, in_flight: usize) {
        self.in_flight.set(in_flight);
        self.served.set(self.gate.next_event());
        if self.waiting.get() > 0 {
            self.gate.list_anew(self);
        }
    }
}

// === impl GateState ===

impl GateState {
    fn limit(&self) -> usize {
        self.limit.borrow().current()
    }

    fn has_place_for(&self, group: &GateGroup) -> bool {
        let limit = self.limit();
        let reserve = limit / RESERVE_DIVISOR;
        let withheld = if group.in_flight.get() < reserve { 0 } else { reserve };
        self.in_flight.get() + withheld < limit
    }

    fn next_event(&self) -> u64 {
        self.events.set(self.events.get() + 1);
        self.events.get()
    }

    fn prefers_another_to(&self, group: &Rc<GateGroup>) -> bool {
        let waiting = self.waiting.borrow();
        waiting
            .first()
            // Its present rank: a group that waits alone is listed under an older one.
            .is_some_and(|first| !Rc::ptr_eq(first, group) && first.rank() < group.rank())
    }

    /// Wakes one of those whose turn it is, if there is a place. Without one for the first, which has the fewest, there is none for
    /// the others.
    fn offer_place(&self) {
        if let Some(first) = self.waiting.borrow().first()
            && self.has_place_for(first)
        {
            first.freed.notify_one();
        }
    }

    /// Lists a waiting group under its changed rank. A group that waits alone needs no new place.
    fn list_anew(&self, group: &GateGroup) {
        let mut waiting = self.waiting.borrow_mut();
        if waiting.len() > 1
            && let Some(group) = unlist(&mut waiting, group)
        {
            list(&mut waiting, group);
        }
    }
}

/// Lists a group under its rank, which no other one has.
fn list(waiting: &mut Vec<Rc<GateGroup>>, group: Rc<GateGroup>) {
    group.listed_as.set(group.rank());
    let place = waiting.partition_point(|other| other.listed_as.get() < group.rank());
    waiting.insert(place, group);
}

fn unlist(waiting: &mut Vec<Rc<GateGroup>>, group: &GateGroup) -> Option<Rc<GateGroup>> {
    let place = waiting.binary_search_by_key(&group.listed_as.get(), |it| it.listed_as.get());
    place.ok().map(|place| waiting.remove(place))
}

// === impl Wait ===

impl<'a> Wait<'a> {
    fn begin(group: &'a Rc<GateGroup>) -> Self {
        group.waiting.set(group.waiting.get() + 1);
        if group.waiting.get() == 1 {
            let mut waiting = group.gate.waiting.borrow_mut();
            // It was alone until now.
            if waiting.len() == 1
                && let Some(alone) = waiting.pop()
            {
                list(&mut waiting, alone);
            }
            list(&mut waiting, Rc::clone(group));
        }
        Self(group)
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let Self(group) = self;
        group.waiting.set(group.waiting.get() - 1);
        if group.waiting.get() == 0 {
            unlist(&mut group.gate.waiting.borrow_mut(), group);
        }
        group.gate.offer_place();
    }
}

// === impl Pass ===

impl Pass {
    /// Reports the end of the attempt, at the wall time `at`: see [`Breaker::note`].
    pub fn note(&self, is_answer: bool, at: Duration) {
        let mut breaker = self.group.gate.breaker.get();
        breaker.note(is_answer, at);
        self.group.gate.breaker.set(breaker);
    }

    /// Ends the attempt, at the wall time `at`, and lets the limit learn from it.
    pub fn finish(self, signal: Signal, timing: Option<Timing>, at: Duration) {
        let gate = &self.group.gate;
        if let (Signal::Answered, Some(Timing { on_wire, .. })) = (signal, timing) {
            let mean = gate.latency.get().map_or(on_wire, |mean| (mean * 31 + on_wire) / 32);
            gate.latency.set(Some(mean));
        }
        // Counted before the pass is dropped: the sample of a lone attempt says 1.
        let sample = Sample { timing, signal, in_flight: gate.in_flight.get(), at };
        gate.limit.borrow_mut().learn(sample);
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let gate = &self.group.gate;
        gate.in_flight.set(gate.in_flight.get().saturating_sub(1));
        self.group.set_in_flight(self.group.in_flight.get().saturating_sub(1));
        // Those that have entered offer what is left to the next: a risen limit may have opened more than this place.
        gate.offer_place();
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
    fn a_destination_that_does_not_answer_is_tried_by_few_at_a_time() {
        let gate = Gate::new(Box::new(Fixed(100)));
        let later = || Duration::from_hours(1);
        (0..20).for_each(|_| gate.try_enter().unwrap().note(false, Duration::ZERO));
        let small = Gate::new(Box::new(Fixed(1)));
        (0..20).for_each(|_| small.try_enter().unwrap().note(false, Duration::ZERO));
        let own = small.try_enter().unwrap();
        assert!(small.is_shut(None, later) && !small.is_shut(Some(&own), later));
        let mut tries = Vec::new();
        let at = |number: usize| later() + Duration::from_millis(500 * number as u64);
        for number in 0..TRIES {
            assert!(!gate.is_shut(None, || at(number)), "{number} are tried");
            tries.push(gate.try_enter().unwrap());
            assert!(number == 0 || gate.is_shut(None, || at(number)), "another one so soon");
        }
        assert!(gate.is_shut(None, || at(TRIES)));
        tries[0].note(true, later());
        assert!(!gate.is_shut(None, later));
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

    #[test]
    fn a_group_that_comes_with_little_does_not_wait_behind_one_that_has_much() {
        for limit in [1, 2, 10] {
            let busy = Gate::new(Box::new(Fixed(limit)));
            let mut held: Vec<Pass> = (0..limit).map(|_| busy.try_enter().unwrap()).collect();
            let other = busy.for_another_group();
            let mut waits = std::pin::pin!(other.enter());
            assert!(waits.as_mut().now_or_never().is_none());
            held.pop();
            assert!(busy.try_enter().is_none(), "it is the other's turn");
            assert!(waits.now_or_never().is_some());
            assert!(busy.try_enter().is_some(), "nobody waits any more");
        }
    }

    #[test]
    fn groups_with_few_places_have_a_reserve() {
        let busy = Gate::new(Box::new(Fixed(2 * RESERVE_DIVISOR)));
        let enter = |gate: &Gate| std::iter::from_fn(|| gate.try_enter()).collect::<Vec<_>>();
        let mut of_busy = enter(&busy);
        assert_eq!(of_busy.len(), 2 * RESERVE_DIVISOR - 2);
        assert!(busy.enter().now_or_never().is_none());
        let other = busy.for_another_group();
        let of_other = enter(&other);
        assert_eq!(of_other.len(), 2);
        // The one that is freed is the reserve again.
        of_busy.pop();
        assert!(busy.try_enter().is_none() && other.try_enter().is_none());
        drop(of_other);
        assert!(busy.try_enter().is_some());
    }

    #[test]
    fn groups_that_wait_come_to_equal_parts() {
        let busy = Gate::new(Box::new(Fixed(9)));
        let mut held = vec![(0..9).map(|_| busy.try_enter().unwrap()).collect::<Vec<_>>()];
        let mut gates = vec![busy];
        for _ in 0..2 {
            gates.push(gates[0].for_another_group());
            held.push(Vec::new());
        }
        let mut random = fastrand::Rng::with_seed(5);
        let mut waits: Vec<_> = gates.iter().map(|gate| Box::pin(gate.enter())).collect();
        for _ in 0..1_000 {
            for (position, wait) in waits.iter_mut().enumerate() {
                if let Some(pass) = wait.now_or_never() {
                    held[position].push(pass);
                    let gate = &gates[position];
                    *wait = Box::pin(gate.enter());
                    assert!(wait.now_or_never().is_none(), "waits again at once");
                }
            }
            // An answer comes for any of the nine.
            let (in_flight, mut before) = (gates[0].in_flight(), 0);
            let freed = random.usize(..in_flight);
            let group = held.iter().position(|passes| {
                before += passes.len();
                freed < before
            });
            held[group.unwrap()].pop();
        }
        let parts: Vec<usize> = held.iter().map(Vec::len).collect();
        assert_eq!(parts.iter().sum::<usize>(), 8);
        assert!(parts.iter().all(|part| (2..=3).contains(part)), "{parts:?}");
    }

    /// A freed place without a waiter that takes it would stay free for ever.
    #[tokio::test]
    async fn no_place_is_lost_whoever_gives_up() {
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..200 {
            let limit = if random.bool() { random.usize(1..4) } else { random.usize(60..200) };
            let first = Gate::new(Box::new(Fixed(limit)));
            let gates = [first.clone(), first.for_another_group(), first.for_another_group()];
            let enter = |gate| std::iter::from_fn(move || Gate::try_enter(gate));
            let held: Vec<Pass> = gates.iter().flat_map(enter).collect();
            assert_eq!(held.len(), limit);
            let local = tokio::task::LocalSet::new();
            let waiting = |gate: &Gate| {
                let gate = gate.clone();
                local.spawn_local(async move { drop(gate.enter().await) })
            };
            let waiting: Vec<_> = (0..12).map(|number| waiting(&gates[number % 3])).collect();
            local
                .run_until(async {
                    tokio::task::yield_now().await;
                    drop(held);
                    for wait in waiting {
                        if random.bool() {
                            wait.abort();
                        }
                        let _given_up = wait.await;
                    }
                })
                .await;
            assert_eq!(first.in_flight(), 0);
            assert!(first.group.gate.waiting.borrow().is_empty());
        }
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
