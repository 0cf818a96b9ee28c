//! A limit that the gates of several threads share: each has a part of its places.
//!
//! The limit is one for all of them, and learns from all their answers: a destination has one knee, however many threads send to it.
//! The places are divided into *parts*, one for each gate. While several gates wait for places, their parts are equal; what one
//! of them does not need is the others'. An attempt takes a place of its gate's part with one atomic operation that no
//! other thread waits for; the lock is taken to divide anew, which happens when a gate begins to wait, when a batch of answers is
//! learned, and when a gate has given up a place of a part that became smaller.
//!
//! The parts are never more than the limit together, and a place that is taken is not given to another gate before it is free: more are
//! under way only while those are that began under a higher limit, and by the few for which a gate has a reserve.

use std::cmp::Reverse;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::limit::{Limit, Sample};

/// A limit on the attempts under way from all threads of a process.
#[derive(Debug)]
pub struct SharedLimit {
    division: Mutex<Division>,
    /// The limit as of the last division.
    total: AtomicUsize,
    /// Attempts that it has learned from.
    learned_from: AtomicUsize,
}

#[derive(Debug)]
struct Division {
    limit: Box<dyn Limit>,
    parts: Vec<Arc<Part>>,
    /// Count of parts that got their first place.
    events: u64,
}

/// The part of one gate. Only the gate's thread takes and frees its places.
#[derive(Debug, Default)]
pub(crate) struct Part {
    places: PlaceCount,
    /// True if attempts have waited for a place since the gate last learned.
    is_waiting: AtomicBool,
    /// Notified when a part for which attempts wait becomes larger.
    pub(crate) grown: Notify,
    /// The event at which it last got its first place.
    served: AtomicU64,
}

/// The places of a part, and how many of them are taken: two halves of one number, which change together.
#[derive(Debug, Default)]
struct PlaceCount(AtomicU64);

/// The places of a part. More are taken than there are while it becomes smaller.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PlaceState {
    pub(crate) all: usize,
    pub(crate) taken: usize,
}

/// Answers that are learned at once: one in so many of the limit, and no more than [`BATCH_MAX`].
const BATCH_DIVISOR: usize = 32;
const BATCH_MAX: usize = 64;
/// Bits of each half of a [`PlaceCount`].
const HALF: u32 = 32;

// === impl SharedLimit ===

impl SharedLimit {
    /// Shares the places of `limit`. No gate has a part yet.
    pub fn new(limit: Box<dyn Limit>) -> Arc<Self> {
        let total = AtomicUsize::new(limit.current());
        let division = Mutex::new(Division { limit, parts: Vec::new(), events: 0 });
        Arc::new(Self { division, total, learned_from: AtomicUsize::new(0) })
    }

    /// The limit as of now.
    pub fn current(&self) -> usize {
        self.total.load(Ordering::Relaxed)
    }

    /// Attempts from whose ends it has learned.
    pub fn learned_from(&self) -> usize {
        self.learned_from.load(Ordering::Relaxed)
    }

    /// Attempts under way, of all gates.
    pub fn in_flight(&self) -> usize {
        self.lock().parts.iter().map(|part| part.taken()).sum()
    }

    /// Number of answers after which a gate should learn: with small limits each one at once.
    pub(crate) fn batch(&self) -> usize {
        (self.current() / BATCH_DIVISOR).clamp(1, BATCH_MAX)
    }

    /// A part for one more gate.
    pub(crate) fn join(&self) -> Arc<Part> {
        let part = Arc::new(Part::default());
        let mut division = self.lock();
        division.parts.push(Arc::clone(&part));
        self.divide(&mut division);
        part
    }

    /// Gives up the part of a gate that has no attempt under way.
    pub(crate) fn leave(&self, part: &Arc<Part>) {
        let mut division = self.lock();
        division.parts.retain(|other| !Arc::ptr_eq(other, part));
        self.divide(&mut division);
    }

    /// Learns from `samples`, the last answers of a gate, in their order. `part` is the gate's, for which attempts wait or not.
    pub(crate) fn learn(&self, part: &Part, samples: &mut Vec<Sample>, is_waiting: bool) {
        part.is_waiting.store(is_waiting, Ordering::Relaxed);
        let mut division = self.lock();
        let Division { limit, parts, .. } = &mut *division;
        let in_flight: usize = parts.iter().map(|part| part.places.get().taken).sum();
        let count = samples.len();
        self.learned_from.fetch_add(count, Ordering::Relaxed);
        for (number, sample) in samples.drain(..).enumerate() {
            // Those of the batch that are learned later were under way as well: the limit may change with each.
            let in_flight = (in_flight + count - 1 - number).max(1);
            limit.learn(Sample { in_flight, ..sample });
        }
        self.divide(&mut division);
    }

    /// Frees a place of `part`.
    pub(crate) fn free(&self, part: &Part) {
        if part.places.free() {
            self.divide(&mut self.lock());
        }
    }

    /// Attempts wait for a place of `part`, which gets more if other gates do not need theirs.
    pub(crate) fn wait(&self, part: &Part) {
        if !part.is_waiting.swap(true, Ordering::Relaxed) {
            self.divide(&mut self.lock());
        }
    }

    /// Divides the places: first the parts that are too large are made smaller, and then others are made larger by what is free.
    fn divide(&self, division: &mut Division) {
        let total = division.limit.current();
        self.total.store(total, Ordering::Relaxed);
        let wanted = division.wanted(total);
        let mut occupied = 0;
        for (part, wanted) in &wanted {
            occupied += part.places.shrink(*wanted);
        }
        let mut free = total.saturating_sub(occupied);
        for (part, wanted) in wanted {
            let PlaceState { all, .. } = part.places.get();
            let more = wanted.saturating_sub(all).min(free);
            if more == 0 {
                continue;
            }
            free -= more;
            if all == 0 {
                division.events += 1;
                part.served.store(division.events, Ordering::Relaxed);
            }
            part.places.grow(more);
            if part.is_waiting() {
                part.grown.notify_one();
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Division> {
        // A panic of a limit's arithmetic leaves numbers that the next division puts right.
        self.division.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Division ===

impl Division {
    /// The places that each part should have of `total`: equal ones for those that want as many, and what the others need.
    fn wanted(&self, total: usize) -> Vec<(Arc<Part>, usize)> {
        let mut parts: Vec<_> = self.parts.iter().map(|part| (part.needs(), part)).collect();
        // What is left of an equal division is for the part that has been without a place for longest.
        parts.sort_by_key(|(needs, part)| (*needs, Reverse(part.served.load(Ordering::Relaxed))));
        let (mut left, mut count) = (total, parts.len());
        let mut wanted = Vec::with_capacity(count);
        for (needs, part) in parts {
            let share = needs.min(left / count);
            wanted.push((Arc::clone(part), share));
            left -= share;
            count -= 1;
        }
        // No gate waits for the rest: it is where it may be needed next.
        let each = left / wanted.len().max(1);
        for (_, share) in &mut wanted {
            *share += each;
        }
        wanted
    }
}

// === impl Part ===

impl Part {
    /// True if attempts have waited for a place since the gate last learned.
    pub(crate) fn is_waiting(&self) -> bool {
        self.is_waiting.load(Ordering::Relaxed)
    }

    /// Places that are taken.
    pub(crate) fn taken(&self) -> usize {
        self.places.get().taken
    }

    /// Its places.
    pub(crate) fn state(&self) -> PlaceState {
        self.places.get()
    }

    /// Takes a place, if `may_take` says so of the part's state; whether it did.
    pub(crate) fn try_take(&self, may_take: impl Fn(PlaceState) -> bool) -> bool {
        self.places.change(|state| {
            may_take(state).then_some(PlaceState { taken: state.taken + 1, ..state })
        })
    }

    fn needs(&self) -> usize {
        if self.is_waiting() {
            return usize::MAX;
        }
        // A little more than it has, so that it need not ask for each; nothing at rest, as the gates of threads are that a small
        // destination is not assigned to.
        match self.taken() {
            0 => 0,
            taken => taken + taken / 8 + 1,
        }
    }
}

// === impl PlaceCount ===

impl PlaceCount {
    fn get(&self) -> PlaceState {
        PlaceState::of(self.0.load(Ordering::Acquire))
    }

    /// Changes it unless `change` gives nothing; whether it did.
    fn change(&self, change: impl Fn(PlaceState) -> Option<PlaceState>) -> bool {
        let packed = |packed| change(PlaceState::of(packed)).map(PlaceState::packed);
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, packed).is_ok()
    }

    /// Frees a place that is taken; true if it is another part's, because this one became smaller.
    fn free(&self) -> bool {
        let PlaceState { all, taken } = PlaceState::of(self.0.fetch_sub(1, Ordering::AcqRel));
        taken > all
    }

    /// Leaves no more than `most` places; the number that is this part's or taken then.
    fn shrink(&self, most: usize) -> usize {
        self.change(|PlaceState { all, taken }| {
            (all > most).then_some(PlaceState { all: most, taken })
        });
        let PlaceState { all, taken } = self.get();
        all.max(taken)
    }

    fn grow(&self, more: usize) {
        self.change(|PlaceState { all, taken }| Some(PlaceState { all: all + more, taken }));
    }
}

// === impl PlaceState ===

impl PlaceState {
    #[expect(clippy::cast_possible_truncation, reason = "half of the bits")]
    fn of(packed: u64) -> Self {
        Self { all: (packed >> HALF) as usize, taken: packed as u32 as usize }
    }

    fn packed(self) -> u64 {
        let all = u32::try_from(self.all).unwrap_or(u32::MAX);
        u64::from(all) << HALF | self.taken as u64
    }
}

#[cfg(test)]
#[path = "shared_limit_tests.rs"]
mod tests;
