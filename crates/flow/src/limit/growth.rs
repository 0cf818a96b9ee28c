//! The growth of a steady limit.

use super::float;
use super::window::Level;

/// State of the growth of a steady limit.
#[derive(Debug, Default)]
pub(super) struct Growth {
    /// Answers without growth that are left.
    held: usize,
    /// Times in a row that growth was followed by a queue.
    failures: u32,
    /// The limit before it grew, and its latency, if it grew with the last window, or with the one before it while that is in doubt.
    pub(super) from: Option<(f64, f64)>,
    /// True if more answers are to say whether a queue followed.
    pub(super) is_in_doubt: bool,
}

/// Answers of the smallest window.
pub(super) const LEAST: usize = 16;
/// Below it one more is a large part.
pub(super) const SMALL: usize = 5;
/// Answers for which a small limit waits after growth that was followed by a queue, and twice as many each time that it happens
/// again: a destination that does one thing at a time is rarely sent two.
const HELD_SMALL: usize = 512;
const FAILURES_MAX: u32 = 6;

// === impl Growth ===

impl Growth {
    /// A window had a queue. If the limit grew before it, gives the limit to return to; the next growth waits twice as long.
    pub(super) fn fail(&mut self, limit: f64, level: f64, error: f64) -> Option<f64> {
        let expected = self.step_to(limit);
        // More answers that are not clear either are not worth a third look: one more of few is missed less than it is felt.
        let errors = if std::mem::take(&mut self.is_in_doubt) { 2.0 } else { 4.0 };
        let (former, former_level) = self.from.take()?;
        if expected <= 0.0 || level - former_level < (expected / 2.0).max(errors * error) {
            return None;
        }
        self.wait(former);
        Some(former)
    }

    /// Has more answers decide if a small `limit` has grown and the first, which are few, show no queue. True the first time.
    pub(super) fn look_twice(&mut self, limit: f64) -> bool {
        let has_grown = limit < float(SMALL) && self.step_to(limit) > 0.0;
        self.is_in_doubt = has_grown && !self.is_in_doubt;
        self.is_in_doubt
    }

    /// How much slower answers are at `limit` than at the one before it, if what is more waits: the queue grows by as much as the limit.
    pub(super) fn step_to(&self, limit: f64) -> f64 {
        self.from.map_or(0.0, |(from, _)| (limit.floor() / from.floor()).ln())
    }

    fn wait(&mut self, limit: f64) {
        self.failures = (self.failures + 1).min(FAILURES_MAX);
        // Where one more is a large part, each try is felt.
        self.held = if limit < float(SMALL) { HELD_SMALL } else { LEAST } << self.failures;
    }

    /// A window with `limit` was slower than the unloaded destination by `excess` more than is tolerated.
    pub(super) fn heed(&mut self, limit: f64, excess: f64) {
        if excess <= 0.0 && self.from.is_some_and(|(from, _)| from.floor() < limit.floor()) {
            self.failures = 0;
        }
    }

    /// True while it waits after growth that was followed by a queue.
    pub(super) fn is_held(&self) -> bool {
        self.held > 0
    }

    /// The growth of a steady `limit` for a window of `ended` answers at `level`.
    pub(super) fn next(&mut self, limit: f64, level: Level, ended: usize) -> f64 {
        self.from = (self.held == 0).then_some((limit, level.mean));
        if self.held > 0 {
            self.held = self.held.saturating_sub(ended);
            return 0.0;
        }
        // Noise hides a longer queue, and what is unequal about measurements of the unloaded latency weighs less beside it.
        let step = 0.5 * limit.cbrt() * (1.0 + 6.0 * level.spread);
        step.min(0.25 * limit)
    }
}
