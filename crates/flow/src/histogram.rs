//! A histogram that is added to without a lock, in whole units such as microseconds.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts of observed values by upper bound.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [u64],
    /// One for each bound, and one for what is above the last.
    counts: Box<[AtomicU64]>,
    sum: AtomicU64,
}

/// The counts of one histogram, or of several with the same bounds, at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistogramTotal {
    bounds: &'static [u64],
    counts: Box<[u64]>,
    /// Sum of the values; wraps around.
    pub sum: u64,
}

/// Bounds that begin at `first`, each twice the one before.
pub const fn doubling<const BOUNDS: usize>(first: u64) -> [u64; BOUNDS] {
    let (mut bounds, mut bound) = ([0; BOUNDS], first);
    let mut rest: &mut [u64] = &mut bounds;
    while let [place, behind @ ..] = rest {
        *place = bound;
        bound *= 2;
        rest = behind;
    }
    bounds
}

// === impl Histogram ===

impl Histogram {
    /// An empty one with upper bounds in ascending order; a value that equals a bound is within it.
    pub fn new(bounds: &'static [u64]) -> Self {
        debug_assert!(bounds.is_sorted(), "{bounds:?} ascend");
        let counts = std::iter::repeat_with(AtomicU64::default).take(bounds.len() + 1).collect();
        Self { bounds, counts, sum: AtomicU64::default() }
    }

    /// Adds a value: two atomic additions.
    pub fn observe(&self, value: u64) {
        let place = self.bounds.partition_point(|bound| *bound < value);
        if let Some(count) = self.counts.get(place) {
            count.fetch_add(1, Ordering::Relaxed);
            self.sum.fetch_add(value, Ordering::Relaxed);
        }
    }

    /// Adds its counts to `total`, which has the same bounds.
    pub fn add_to(&self, total: &mut HistogramTotal) {
        debug_assert_eq!(self.bounds, total.bounds, "of one kind");
        for (sum, count) in total.counts.iter_mut().zip(&self.counts) {
            *sum += count.load(Ordering::Relaxed);
        }
        total.sum = total.sum.wrapping_add(self.sum.load(Ordering::Relaxed));
    }

    /// Its counts.
    pub fn total(&self) -> HistogramTotal {
        let mut total = HistogramTotal::new(self.bounds);
        self.add_to(&mut total);
        total
    }
}

// === impl HistogramTotal ===

impl HistogramTotal {
    /// No counts, of histograms with `bounds`.
    pub fn new(bounds: &'static [u64]) -> Self {
        Self { bounds, counts: vec![0; bounds.len() + 1].into(), sum: 0 }
    }

    /// Number of values.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Each upper bound with the number of values that are within it and above the one before. The last has no bound.
    pub fn buckets(&self) -> impl Iterator<Item = (Option<u64>, u64)> + '_ {
        let bounds = self.bounds.iter().map(|bound| Some(*bound)).chain([None]);
        bounds.zip(self.counts.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static BOUNDS: [u64; 3] = doubling(5);

    #[test]
    fn a_value_is_counted_within_the_least_bound_that_is_no_less() {
        let (one, other) = (Histogram::new(&BOUNDS), Histogram::new(&BOUNDS));
        for value in [0, 5, 6, 10, 20] {
            one.observe(value);
        }
        other.observe(21);
        let mut total = one.total();
        other.add_to(&mut total);
        let buckets: Vec<_> = total.buckets().collect();
        assert_eq!(buckets, [(Some(5), 2), (Some(10), 2), (Some(20), 1), (None, 1)]);
        assert_eq!((total.count(), total.sum), (6, 62));
    }
}
