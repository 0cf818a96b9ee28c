//! The latency of the unloaded destination, as far as it is known.

use super::float;
use super::window::Level;

/// A mean of logarithms, weighted by the samples that it is made of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Unloaded {
    mean: f64,
    weight: f64,
}

/// The most samples that it stands for: so it follows.
const WEIGHT_MAX: f64 = 1_024.0;

/// Standard error of the mean of `count` latencies with this spread; some are left out of it.
pub(super) fn error(spread: f64, count: f64) -> f64 {
    1.25 * spread / count.max(1.0).sqrt()
}

// === impl Unloaded ===

impl Default for Unloaded {
    /// Before the first measurement.
    fn default() -> Self {
        Self { mean: f64::INFINITY, weight: 0.0 }
    }
}

impl Unloaded {
    /// The latency of one window alone.
    pub(super) fn of(level: Level) -> Self {
        Self { mean: level.mean, weight: float(level.count) }
    }

    pub(super) fn mean(self) -> f64 {
        self.mean
    }

    pub(super) fn weight(self) -> f64 {
        self.weight
    }

    /// Has what was measured before count for no more than `samples`.
    pub(super) fn weigh_at_most(&mut self, samples: usize) {
        self.weight = self.weight.min(float(samples));
    }

    /// Counts a window in.
    pub(super) fn pool(&mut self, level: Level) {
        if self.weight == 0.0 {
            *self = Self::of(level);
            return;
        }
        let count = float(level.count);
        self.mean += (level.mean - self.mean) * count / (count + self.weight);
        self.weight = (self.weight + count).min(WEIGHT_MAX);
    }
}
