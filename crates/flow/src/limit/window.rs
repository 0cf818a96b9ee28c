//! The samples between two decisions of a learned limit.

use super::Sample;

/// Counts and latencies of attempts that were sent under the present limit and have ended.
#[derive(Debug)]
pub(super) struct Window {
    /// Attempts that were sent before the change and have not ended: evidence of the former limit.
    stale: usize,
    /// True if the last change lowered the limit.
    is_lower: bool,
    wanted: usize,
    /// Answers for each latency that is kept.
    stride: usize,
    latencies: Vec<f32>,
    counts: WindowCounts,
}

/// Ends of attempts in a window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct WindowCounts {
    pub(super) ended: usize,
    pub(super) pushed_back: usize,
    pub(super) dropped: usize,
    /// Answers to attempts that waited for a stream or a connection.
    pub(super) waited: usize,
    /// The most that were under way.
    pub(super) peak: usize,
}

/// The latency of a window, as logarithms: causes of latency multiply it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Level {
    /// The mean without the slowest and the fastest: a few slow answers are no load.
    pub(super) mean: f64,
    /// The standard deviation, from the quartiles.
    pub(super) spread: f64,
    pub(super) count: usize,
}

/// Latencies that are kept of one window.
const KEPT: usize = 256;
/// The shares of latencies, in twentieths, between which the mean is taken: answers that are slow for reasons of their
/// own are up to a tenth.
const MEAN_FROM: usize = 1;
const MEAN_TO: usize = 17;
/// The distance of the quartiles of a normal distribution, in standard deviations.
const QUARTILES: f64 = 1.35;

// === impl Window ===

impl Window {
    /// A window of `wanted` answers after those of `stale` attempts.
    pub(super) fn new(wanted: usize, stale: usize, is_lower: bool) -> Self {
        let stride = wanted.div_ceil(KEPT);
        let latencies = Vec::with_capacity(wanted.min(KEPT));
        Self { stale, is_lower, wanted, stride, latencies, counts: WindowCounts::default() }
    }

    /// Counts the end of an attempt; whether it was sent since the change. One of those before it still says that the
    /// destination is overloaded, unless the limit was lowered since.
    pub(super) fn passes(&mut self, is_overload: bool) -> bool {
        let is_stale = self.stale > 0;
        self.stale = self.stale.saturating_sub(1);
        !is_stale || is_overload && !self.is_lower
    }

    /// True if the attempts that end now were sent under a higher limit.
    pub(super) fn is_of_higher_limit(&self) -> bool {
        self.is_lower && self.stale > 0
    }

    /// An answer.
    pub(super) fn answered(&mut self, sample: &Sample) {
        self.counts.ended += 1;
        self.counts.waited += usize::from(sample.has_waited());
        self.counts.peak = self.counts.peak.max(sample.in_flight);
        if let Some(seconds) = sample.seconds()
            && self.counts.ended.is_multiple_of(self.stride)
            && self.latencies.len() < KEPT
        {
            #[expect(
                clippy::cast_possible_truncation,
                reason = "half the memory, and precise enough"
            )]
            self.latencies.push(seconds.max(1e-6).ln() as f32);
        }
    }

    pub(super) fn pushed_back(&mut self) {
        self.counts.ended += 1;
        self.counts.pushed_back += 1;
    }

    pub(super) fn dropped(&mut self) {
        self.counts.ended += 1;
        self.counts.dropped += 1;
    }

    pub(super) fn counts(&self) -> WindowCounts {
        self.counts
    }

    pub(super) fn is_full(&self) -> bool {
        self.counts.ended >= self.wanted
    }

    /// The latency so far; `None` with fewer than `least` of them.
    pub(super) fn level(&mut self, least: usize) -> Option<Level> {
        let count = self.latencies.len();
        if count < least.max(1) {
            return None;
        }
        self.latencies.sort_unstable_by(f32::total_cmp);
        let at = |part: usize, parts: usize| self.latencies.get(count * part / parts).copied();
        let quartiles = at(3, 4).unwrap_or_default() - at(1, 4).unwrap_or_default();
        let to = (count * MEAN_TO / 20).max(1);
        let middle = self.latencies.get(count * MEAN_FROM / 20..to).unwrap_or_default();
        let sum: f64 = middle.iter().map(|latency| f64::from(*latency)).sum();
        #[expect(clippy::cast_precision_loss, reason = "a few hundred")]
        let mean = sum / middle.len().max(1) as f64;
        Some(Level { mean, spread: f64::from(quartiles) / QUARTILES, count })
    }
}
