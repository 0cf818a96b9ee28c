//! A gate in front of one destination: it admits as many attempts as its part of a [`SharedLimit`] allows.
//!
//! Attempts belong to *groups*, each with a weight. While several groups wait, a place goes to the one with the fewest places for its
//! weight, and of those with as many to the one that got or freed one longest ago: each has a part by its weight, and a group with few
//! attempts does not wait behind one with many. Within a group, waits are woken in the order in which they began.
//! [`Gate::try_enter`] passes them: a place goes to the first caller, so an attempt that frees a place and continues at once has it
//! again. Of 32 places or more, one, or a sixty-fourth, is for groups with fewer places than that: they do not wait while one group has
//! all other places, nor until what is under way fits into a part that has become smaller.
//!
//! Lives on one thread: the senders are single-threaded, so it needs no lock. A sender thread has one gate
//! per channel and destination, with a group for each lane; those of all threads share the destination's limit.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use crate::breaker::{Breaker, TRIES};
use crate::limit::{Limit, Sample, Signal, Timing};
use crate::shared_limit::{Part, PlaceState, SharedLimit};

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
    /// Times the places held, this is the first part of its rank: the less, the more places.
    cost: usize,
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

/// Order of turns, least first: the cost of the places held, and the event by which the group last got or freed one.
type Rank = (usize, u64);

#[derive(Debug)]
struct GateState {
    limit: Arc<SharedLimit>,
    /// The places of this gate.
    part: Arc<Part>,
    /// Answers that the limit has not learned.
    samples: RefCell<Vec<Sample>>,
    /// Running mean of the latency on the wire.
    latency: Cell<Option<Duration>>,
    /// Places got and freed, and groups made.
    events: Cell<u64>,
    breaker: Cell<Breaker>,
    /// The groups that wait, by rank. A group that waits alone may be listed with an older rank. A vector, so that a group which
    /// is listed again and again costs no allocation.
    waiting: RefCell<Vec<Rc<GateGroup>>>,
}

/// Share of the places that is for groups with few: one in 64, or one of [`RESERVED_FROM`]. Fewer places have none to spare.
const RESERVE_DIVISOR: usize = 64;
const RESERVED_FROM: usize = 32;
/// Cost of a place for a group of weight 1.
const COST: usize = 1 << 16;

/// A wait of a group. When it ends, another one may have the place that it was woken for.
struct Wait<'a>(&'a Rc<GateGroup>);

// === impl Gate ===

impl Gate {
    /// A gate governed by `limit`, which no other gate shares.
    pub fn new(limit: Box<dyn Limit>) -> Self {
        Self::sharing(SharedLimit::new(limit))
    }

    /// A gate with a part of the places of `limit`, and a first group of weight 1.
    pub fn sharing(limit: Arc<SharedLimit>) -> Self {
        let gate = GateState {
            part: limit.join(),
            limit,
            samples: RefCell::default(),
            latency: Cell::new(None),
            events: Cell::new(0),
            breaker: Cell::default(),
            waiting: RefCell::default(),
        };
        Self { group: GateGroup::of(Rc::new(gate), 1) }
    }

    /// A handle on the same gate for a group of its own. Of two groups that wait, one with twice the `weight`, at least 1, comes to have
    /// twice the places.
    #[must_use]
    pub fn for_group(&self, weight: usize) -> Self {
        Self { group: GateGroup::of(Rc::clone(&self.group.gate), weight) }
    }

    /// Enters if there is a place right now for the group, and it is not another group's turn.
    pub fn try_enter(&self) -> Option<Pass> {
        let (group, gate) = (&self.group, &self.group.gate);
        if gate.prefers_another_to(group) || !gate.part.try_take(|state| group.may_take(state)) {
            return None;
        }
        group.set_in_flight(group.in_flight.get() + 1);
        Some(Pass { group: Rc::clone(group) })
    }

    /// Waits for a place. Dropping the future gives up the wait and loses nothing.
    pub async fn enter(&self) -> Pass {
        if let Some(pass) = self.try_enter() {
            return pass;
        }
        let gate = &self.group.gate;
        // Ends after the look for a place, so that a further place is offered to the next.
        let wait = Wait::begin(&self.group);
        gate.limit.wait(&gate.part);
        loop {
            if let Some(pass) = self.try_enter() {
                drop(wait);
                return pass;
            }
            // If there is a place, it is another group's.
            gate.offer_place();
            // A wake-up is a reason to try, not a place: an attempt that did not wait may have entered first.
            tokio::select! {
                () = self.group.freed.notified() => {}
                () = gate.part.grown.notified() => {}
            }
        }
    }

    /// True if no attempt should be sent now: the destination does not answer, and others than the holder of `own` try it. False
    /// for a destination that does not answer counts as a try. `now` (wall time) is called only when the breaker may be open.
    pub fn is_shut(&self, own: Option<&Pass>, now: impl FnOnce() -> Duration) -> bool {
        let (gate, own) = (&self.group.gate, usize::from(own.is_some()));
        let (in_flight, mut breaker) = (gate.part.taken().saturating_sub(own), gate.breaker.get());
        let is_tried = in_flight > 0 && breaker.is_suspicious();
        // With fewer places than tries it is shut once they are taken: each may hang until its time is over.
        let tries = || TRIES.min(gate.part.state().all.max(1));
        let is_shut = is_tried && breaker.shuts_out(now(), in_flight >= tries());
        gate.breaker.set(breaker);
        is_shut
    }

    /// Number of passes held, of all groups of this gate.
    pub fn in_flight(&self) -> usize {
        self.group.gate.part.taken()
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

    /// The limit as of now, for all gates that share it.
    pub fn limit(&self) -> usize {
        self.group.gate.limit.current()
    }

    /// Attempts from whose ends the limit has learned, of all gates that share it.
    pub fn learned_from(&self) -> usize {
        self.group.gate.limit.learned_from()
    }

    /// Running mean of the latency on the wire, in which the last 32 answers count for two thirds; `None` before the first.
    pub fn latency(&self) -> Option<Duration> {
        self.group.gate.latency.get()
    }
}

// === impl GateGroup ===

impl GateGroup {
    fn of(gate: Rc<GateState>, weight: usize) -> Rc<Self> {
        let served = Cell::new(gate.next_event());
        Rc::new(Self {
            gate,
            cost: COST / weight.clamp(1, COST),
            in_flight: Cell::new(0),
            served,
            waiting: Cell::new(0),
            listed_as: Cell::default(),
            freed: Notify::new(),
        })
    }

    fn rank(&self) -> Rank {
        (self.in_flight.get() * self.cost, self.served.get())
    }

    /// True if the group may take a place of a part in this state. Groups with few have the reserve, also while more is taken than the
    /// part has now.
    fn may_take(&self, PlaceState { all, taken }: PlaceState) -> bool {
        let least = usize::from(all >= RESERVED_FROM);
        let reserve = (all / RESERVE_DIVISOR).max(least);
        if self.in_flight.get() < reserve { taken != all } else { taken + reserve < all }
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
    /// Has the limit learn from a sample, with those before it: push-back and lost attempts at once, answers in batches.
    fn learn(&self, sample: Sample) {
        let mut samples = self.samples.borrow_mut();
        samples.push(sample);
        if sample.signal != Signal::Answered || samples.len() >= self.limit.batch() {
            let is_waiting = !self.waiting.borrow().is_empty();
            self.limit.learn(&self.part, &mut samples, is_waiting);
        }
    }

    /// Leaves the places to other gates, and the samples to the limit, when nothing is under way and nothing waits.
    fn rest(&self) {
        let mut samples = self.samples.borrow_mut();
        let has_news = self.part.is_waiting() || !samples.is_empty();
        if has_news && self.part.taken() == 0 && self.waiting.borrow().is_empty() {
            self.limit.learn(&self.part, &mut samples, false);
        }
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

    /// Wakes one of those whose turn it is, if there is a place. Without one for the first it is not the others' turn.
    fn offer_place(&self) {
        if let Some(first) = self.waiting.borrow().first()
            && first.may_take(self.part.state())
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

impl Drop for GateState {
    fn drop(&mut self) {
        // What it has seen is no less true without it.
        self.limit.learn(&self.part, &mut self.samples.borrow_mut(), false);
        self.limit.leave(&self.part);
    }
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
        group.gate.rest();
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
        gate.learn(Sample { timing, signal, in_flight: gate.part.taken(), at });
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let gate = &self.group.gate;
        gate.limit.free(&gate.part);
        self.group.set_in_flight(self.group.in_flight.get().saturating_sub(1));
        // Those that have entered offer what is left to the next: a risen limit may have opened more than this place.
        gate.offer_place();
        gate.rest();
    }
}

#[cfg(test)]
#[path = "gate_tests.rs"]
mod tests;
