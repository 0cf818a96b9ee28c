//! Slow start anew, where the knee of a steady limit seems to be far off.

use std::time::Duration;

/// Decides when a steady limit grows as fast as in slow start again: after some windows in a row that were nearly as fast as the
/// unloaded destination although the limit grew with each, and were so by more than noise explains. Where that was for nothing,
/// the next time waits twice as long, unless the destination answers more or fewer a second than it could then, or is calm for much
/// longer; and the limit returns to what it was: of several senders that share a destination none gains places by mistake.
#[derive(Debug, Default)]
pub(super) struct Restart {
    /// Calm windows in a row, and by how many standard errors all of them together were.
    windows: u32,
    calmness: f64,
    /// The limit at which the present one began.
    from: Option<f64>,
    /// Times in a row that it was for nothing.
    failures: u32,
    /// Wall time of the next one at the earliest, while answers come at about `rate` a second.
    next: Duration,
    rate: f64,
}

const WINDOWS: u32 = 3;
const CALMNESS: f64 = 10.0;
/// So many are enough if each is as calm as a window can be.
const VERY_CALM_WINDOWS: u32 = 2;
/// The calmness with which it does not wait, however often it was for nothing: six windows at least, since one counts for no more
/// than so much.
const CERTAIN: f64 = 24.0;
const CALMNESS_MAX: f64 = 4.0;
/// Part by which the limit has grown if it was not for nothing.
const GROWN: f64 = 1.5;
/// Shortest time between one that was for nothing and the next.
const WAIT: Duration = Duration::from_secs(10);
const FAILURES_MAX: u32 = 5;
/// Factor by which the rate of answers differs, either way, if a destination has changed.
const CHANGED: f64 = 1.25;

// === impl Restart ===

impl Restart {
    /// A window of a limit that is used was faster by `calmness` standard errors than where calm ends; slower if negative.
    pub(super) fn heed(&mut self, calmness: f64) {
        if calmness > 0.0 {
            self.windows += 1;
            self.calmness += calmness.min(CALMNESS_MAX);
        } else {
            (self.windows, self.calmness) = (0, 0.0);
        }
    }

    /// True if the steady `limit`, with which `rate` answers come in a second, should grow fast from `now` (wall time) on.
    pub(super) fn begin(&mut self, limit: f64, rate: f64, now: Duration) -> bool {
        let is_calm = self.windows >= WINDOWS && self.calmness >= CALMNESS;
        let is_calm = is_calm || self.windows >= VERY_CALM_WINDOWS && self.is_likely();
        if rate > CHANGED * self.rate || CHANGED * rate < self.rate {
            (self.failures, self.next) = (0, now);
        }
        let is_certain = self.calmness >= CERTAIN;
        if !is_calm || (now < self.next && !is_certain) {
            return false;
        }
        (self.windows, self.calmness, self.from) = (0, 0.0, Some(limit));
        true
    }

    /// True if there were calm windows, and each was as calm as a window can be.
    pub(super) fn is_likely(&self) -> bool {
        self.windows > 0 && self.calmness >= CALMNESS_MAX * f64::from(self.windows)
    }

    /// True from [`Restart::begin`] to [`Restart::end`].
    pub(super) fn is_under_way(&self) -> bool {
        self.from.is_some()
    }

    /// Fast growth has led to `limit` at `now`, and to `rate` answers a second. Gives the limit to go on with.
    pub(super) fn end(&mut self, limit: f64, rate: f64, now: Duration) -> f64 {
        let Some(from) = self.from.take() else { return limit };
        if limit >= GROWN * from {
            self.failures = 0;
            return limit;
        }
        self.failures = (self.failures + 1).min(FAILURES_MAX);
        self.next = now + WAIT * ((1 << self.failures) - 1);
        self.rate = rate;
        from
    }
}
